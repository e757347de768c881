"""What vLLM's model is, in the parts of memos' fingerprint: computed as the host computes them, of the same files."""

from __future__ import annotations

from functools import cache

from memos.config import ModelConfig
from memos.infrastructure.host.engines import loading
from memos.plugins.vllm.exchange import model_parts


@cache
def identity_of(path: str, dtype: str, trust_remote_code: bool) -> dict[str, str]:
    """Loads the model once more, on the CPU, and lets go of it: vLLM fuses and splits weights, so that those in its
    memory say nothing of the file's. dtype: that vLLM computes in, such as float32. Raises ModelNotFound, HostError."""
    with loading():
        from memos.infrastructure.host.fingerprint import fingerprint_parts
        from memos.infrastructure.host.model.load import load_model

        config = ModelConfig.model_validate(
            {"path": path, "dtype": dtype, "device": "cpu", "trust_remote_code": trust_remote_code}
        )
        return model_parts(fingerprint_parts(*load_model(config), ""))
