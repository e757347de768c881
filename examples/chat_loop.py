"""Memory in a chat loop of your own: a model that you have loaded with transformers, and memos for what was said.

The session is kept: the next run, with the same vault, goes on where this one ended.

prints:
> I live in Porto.
Noted: User: I live in Porto.
> Where do I live?
Porto  [from User: I live in Porto.]
> Forget where I live.
...
"""

from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer

import memos

SMALL = Path(memos.__file__).parent / "infrastructure/host/small_model"  # put the folder of your own model here
model = AutoModelForCausalLM.from_pretrained(SMALL)
tokenizer = AutoTokenizer.from_pretrained(SMALL)

with memos.MemOS(model=model, tokenizer=tokenizer, vault="examples-data/chat") as kernel:
    for message in ("I live in Porto.", "Where do I live?", "Forget where I live."):
        print(">", message)
        reply = kernel.chat(message, session="today", user="mira")
        seen = "; ".join(cube.text for cube in reply.admission.cubes)
        print(f"{reply.text}  [from {seen}]" if seen else reply.text)
