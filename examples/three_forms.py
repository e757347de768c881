"""The same question over text and over a KV cache: the same answer, with fewer tokens to read.

`promote(ids, to="parametric")` would train an adapter, which takes half a minute and has to pass its gate.

prints:
plaintext: Lisbon, ... tokens read
activation: Lisbon, ... tokens read
after an edit the cache is archived, and text answers: Porto
"""

from memos import MemOS

with MemOS(vault="examples-data/three-forms") as memos:
    told = memos.add([{"speaker": "Mira", "content": "I live in Lisbon. I work as a nurse."}])
    cache = memos.promote([cube.id for cube in told], to="activation")
    for via in ("plaintext", "activation"):
        reply = memos.ask("Where does Mira live?", via=via)
        print(f"{via}: {reply.text}, {reply.prompt_tokens} tokens read")

    memos.update(told[0].id, "I live in Porto.")
    reply = memos.ask("Where does Mira live?")
    print(f"after an edit the cache is {memos.get(cache.id).state}, and text answers: {reply.text}")
