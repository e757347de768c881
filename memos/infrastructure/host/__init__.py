"""The local model: the only room that imports torch, transformers and peft. Knows no callers, rights or stores.

    training    ->  host.py, adapters, kv       what is to be taught, and whether it was; alone may use all the others
    engines.py  ->  host.py                     what loads a host, by name
    host.py     ->  kv_rows.py, adapters, model, kv     the facade that the rest of memos sees
    kv_rows.py  ->  adapters, model, kv         which KV a request begins with
    adapters    ->  forward.py                  LoRA adapters as folders, and as they serve
    model       ->  adapters, kv                loading, prompts, decoding, and what the model's KV is good for
    kv          ->  forward.py                  KV caches in memory and in files
    encoders    ->  (none)                      small models beside the large one: vectors, ranks, tags

fingerprint.py and forward.py lie beneath all of them, and encoders load under the lock of engines.py. Within a
function, engines.py imports the host when it is needed.
"""
