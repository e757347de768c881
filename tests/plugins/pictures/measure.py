"""Prints how far logits after KV of a picture are from the whole prompt's, by architecture, as a table in Markdown."""

from __future__ import annotations

import numpy as np
import transformers

from memos.errors import Unsupported
from memos.plugins.pictures.vision import difference, encode, whole_logits
from tests.plugins.pictures import seeing


def main() -> None:
    transformers.utils.logging.set_verbosity_error()
    tail = np.random.default_rng(4).integers(10, 2000, 9).tolist()
    print("| architecture | over KV | with another picture | largest logit | rows, ids, next position |")
    print("|---|---:|---:|---:|---|")
    for kind in seeing.CONFIGS:
        model, (prompt, text) = seeing.model(kind), seeing.prompt_of(kind)
        try:
            kv = encode(model, prompt, text, ("a picture",))
        except Unsupported:
            print(f"| {kind} | refused | | | |")
            continue
        apart, largest = difference(model, kv, prompt, tail)
        other = whole_logits(model, seeing.prompt_of(kind, 1)[0], tail) - whole_logits(model, prompt, tail)
        where = f"{kv.rows}, {len(kv.ids)}, {kv.next_position}"
        print(f"| {kind} | {apart:.1e} | {float(other.abs().max()):.2f} | {largest:.1f} | {where} |")


if __name__ == "__main__":
    main()
