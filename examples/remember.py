"""Tell it something, and ask. `Memory` takes and returns plain values, and keeps them in a folder.

prints:
I live in Lisbon.
Lisbon
I live in Porto.
"""

from memos import Memory

with Memory(vault="examples-data/remember") as memory:
    memory.add("I live in Lisbon.", user_id="mira")
    found = memory.search("Where do I live?", user_id="mira", top_k=1)["results"]
    print(found[0]["memory"])
    print(memory.chat("Where do I live?", user_id="mira")["text"])

    memory.update(found[0]["id"], "I live in Porto.", user_id="mira")
    print(memory.get(found[0]["id"], user_id="mira")["memory"])
