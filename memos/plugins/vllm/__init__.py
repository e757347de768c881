"""vLLM decodes, and memos remembers: the engine `vllm`, and the connector by which vLLM reads KV of memories.

    engine.py     ->  batch.py, embedded.py, endpoint.py      what `model.engine: vllm` names
    batch.py      ->  exchange.py, adapters.py                 requests as vLLM takes them
    embedded.py, endpoint.py  ->  server.py                    vLLM in a process of its own, or a server of somebody's
    connector.py  ->  loads.py, identity.py                    runs within vLLM, which alone imports it
    loads.py      ->  exchange.py                              what is loaded for which request, without vLLM

`embedded.py` and `connector.py` are the only files that import vLLM.
"""
