"""One KV file, several readers: LMCache and SGLang read pages of what `Host.save_kv` writes, and memos reads theirs.

    lmcache.py, sglang.py  ->  folder.py     what each program loads as its storage, on its own interface

Both name a page by all tokens up to its end, so only exact prefixes may lie in such a folder: KV as it was encoded,
never composed, under no adapter. `lmcache.py` is the only file that imports LMCache, `sglang.py` SGLang.
"""
