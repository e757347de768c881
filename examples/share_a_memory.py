"""Ada grants bob one memory, takes it back, and sends all of hers to another vault as a signed pack.

prints:
bob finds: The launch is on Friday.
bob finds nothing any more
the other vault has: The launch is on Friday.
"""

from pathlib import Path

from memos import MemOS

PACK = Path("examples-data/ada.mip")

with MemOS(vault="examples-data/ada") as memos:
    (plan,) = memos.add("The launch is on Friday.", user="ada")
    memos.grant(plan.id, "bob", "reader", user="ada")
    print("bob finds:", memos.search("When is the launch?", user="bob")[0].cube.text)
    memos.revoke(plan.id, "bob", user="ada")
    print("bob finds", memos.search("When is the launch?", user="bob") or "nothing any more")
    key = memos.dump(PACK, user="ada").key

with MemOS(vault="examples-data/other") as other:
    other.load(PACK, trust=key, user="bob")  # the key is compared by another way, once
    print("the other vault has:", other.memories(user="bob")[0].text)
