"""Holds answers to a JSON schema by masking the next tokens with llguidance; knows logits, no language.

A schema bounds every string and list, so an answer always ends: `max_answer_tokens` says after how many tokens at most.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from memos.errors import HostError, InputError, Unsupported, how_to_install

Schema = Mapping[str, Any]
_MAX_CHARACTER_BYTES = 4  # each of which may be a token of its own
# no white space between the parts, and no escape of six characters for one
_COMPACT = {"whitespace_flexible": False, "json_allowed_escapes": 'nrbtf\\"'}


class Constraint:
    """One answer that grows within a schema."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def allowed(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits, [vocabulary] on the CPU, with -inf for whatever may not come next. Raises InputError."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            raise InputError(f"the schema cannot be followed: {self._matcher.get_error()}; make it simpler")
        mask = torch.from_numpy(np.unpackbits(bits, bitorder="little")[: len(logits)].astype(bool))
        # a model may give no number, or -inf, to all that may come: one of it is taken all the same
        return torch.nan_to_num(logits).masked_fill(~mask, -torch.inf)

    def take(self, token: int) -> None:
        self._matcher.consume_token(token)


class Grammars:
    """Schemas for one model's tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: int, ends: set[int]) -> None:
        """vocabulary: the width of the logits. Raises Unsupported where llguidance is not there, or cannot read the
        tokenizer."""
        try:
            from llguidance import LLTokenizer
        except ImportError:
            raise Unsupported(
                f"answers by a schema need llguidance: {how_to_install('reader')}, ask for none (response_format, "
                f"decode.json_schema), or set reader.model to false"
            ) from None
        if not isinstance(tokenizer, PreTrainedTokenizerFast) or not ends:
            raise Unsupported(
                f"{type(tokenizer).__name__} has no end token or no fast form, so its answers cannot be held to a "
                f"schema; ask for none (response_format, decode.json_schema), or set reader.model to false"
            )
        self._tokens = LLTokenizer(
            tokenizer.backend_tokenizer.to_str(), n_vocab=max(vocabulary, len(tokenizer)), eos_token=sorted(ends)
        )

    def constraint(self, schema: Schema) -> Constraint:
        """Raises InputError for a schema that is none, or asks for what cannot be told token by token."""
        from llguidance import LLMatcher

        grammar = LLMatcher.grammar_from_json_schema(json.dumps({**schema, "x-guidance": _COMPACT}))
        matcher = LLMatcher(self._tokens, grammar)
        if matcher.is_error():
            raise InputError(f"no schema that can be followed: {matcher.get_error()}; see https://json-schema.org")
        return Constraint(matcher)


def max_answer_tokens(schema: Schema) -> int:
    """Tokens of the longest answer of a schema. Raises HostError where nothing bounds it."""
    match schema:
        case {"enum": values}:
            return max(len(json.dumps(value, ensure_ascii=False).encode()) for value in values)
        case {"type": "string", "maxLength": int(length)}:
            return _MAX_CHARACTER_BYTES * length + 2
        case {"type": "array", "maxItems": int(most), "items": items}:
            return most * (max_answer_tokens(items) + 1) + 2
        case {"type": "object", "properties": parts, "additionalProperties": False}:
            return sum(len(json.dumps(name).encode()) + max_answer_tokens(part) + 2 for name, part in parts.items()) + 2
        case {"type": "boolean"}:
            return 5
        case {"type": "integer" | "number", "minimum": least, "maximum": most}:
            return max(len(f"{number:.6f}") for number in (least, most))
        case {"anyOf": [*options]}:
            return max(map(max_answer_tokens, options))
        case _:
            raise HostError(f"nothing bounds {dict(schema)!r:.200}; give maxLength, maxItems, maximum or an enum")
