"""Ada grants bob one memory, takes it back, and sends all of hers to another vault as a signed pack.

prints:
bob finds: The launch is on Friday.
bob finds nothing any more
the other vault has: The launch is on Friday.
"""

from memos import MemOS

with MemOS(vault="examples-data/ada") as memos:
    (plan,) = memos.add("The launch is on Friday.", user="ada")
    memos.grant(plan.id, "bob", "reader", user="ada")
    print("bob finds:", memos.search("When is the launch?", user="bob")[0].cube.text)
    memos.revoke(plan.id, "bob", user="ada")
    print("bob finds", memos.search("When is the launch?", user="bob") or "nothing any more")
    pack = memos.dump("examples-data/ada.mip", user="ada")

with MemOS(vault="examples-data/other") as other:
    other.load("examples-data/ada.mip", trust=pack.key, user="bob")  # the key is compared by another way, once
    print("the other vault has:", other.memories(user="bob")[0].text)
