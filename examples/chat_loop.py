"""Memory in a chat loop of your own: a model that you have loaded with transformers, called as its pipeline is.

prints:
> I live in Porto.
Noted: User: I live in Porto.
> Where do I live?
Porto
> Forget where I live.
Forgotten: User: I live in Porto.
"""

from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer

import memos
from memos.plugins.chat_loop import with_memory

SMALL = Path(memos.__file__).parent / "infrastructure/host/model/small_model"  # put the folder of your own model here
model = AutoModelForCausalLM.from_pretrained(SMALL)
tokenizer = AutoTokenizer.from_pretrained(SMALL)

with with_memory(model, tokenizer, vault="examples-data/chat", user_id="mira") as pipe:
    messages = []
    for said in ("I live in Porto.", "Where do I live?", "Forget where I live."):
        print(">", said)
        messages = pipe([*messages, {"role": "user", "content": said}])[0]["generated_text"]
        print(messages[-1]["content"])
