"""`memos serve`: the Memory API over HTTP, and what other plug-ins serve beside it.

    request -> edge (who, how much, how large) -> a route -> a lane (a thread, or the model's queue) -> Memory

Knows HTTP; knows no stores, tensors or rights: what a call does and who may make it is the kernel's.
"""
