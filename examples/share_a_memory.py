"""Ada grants bob one memory, takes it back, and sends all of hers to another vault as a signed pack.

prints:
bob finds: The launch is on Friday.
bob finds nothing any more
the other vault has: The launch is on Friday.
"""

from pathlib import Path

from memos import MemOS
from memos.plugins.packs.calls import PackCalls

PACK = Path("examples-data/ada.mip")

with MemOS(vault="examples-data/ada") as memos:
    (plan,) = memos.within("ada").add("The launch is on Friday.")
    memos.within("ada").grant(plan.id, "bob", "reader")
    print("bob finds:", memos.within("bob").search("When is the launch?")[0].cube.text)
    memos.within("ada").revoke(plan.id, "bob")
    print("bob finds", memos.within("bob").search("When is the launch?") or "nothing any more")
    key = PackCalls.of(memos.within("ada")).dump(PACK).key

with MemOS(vault="examples-data/other") as other:
    PackCalls.of(other.within("bob")).load(PACK, trust=key)  # the key is compared by another way, once
    print("the other vault has:", other.within("bob").memories()[0].text)
