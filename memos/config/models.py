"""Settings of the models: which causal LM, how it decodes, how KV is stored and composed, which embedder."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from memos.config.section import Section
from memos.cube import FEW_ROWS


class ModelConfig(Section):
    """The local Hugging Face causal LM."""

    engine: str = Field("transformers", description="what runs the model; `memos plugins` lists what is installed")
    engine_options: dict[str, Any] = Field({}, description="settings of the engine itself, as its how-to has them")
    path: str = Field("memos-small", description="a folder, a hub name, or memos-small: the model inside the package")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto takes cuda where there is one")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="auto: as stored on cuda, float32 on cpu"
    )
    attention: Literal["auto", "sdpa", "eager"] = Field(
        "auto", description="auto: sdpa where the model supports it, else eager; memos doctor says which"
    )
    trust_remote_code: bool = Field(False, description="run code that comes with the model")
    template: Literal["auto", "chat", "plain"] = Field(
        "auto", description="auto: the tokenizer's chat template where there is one"
    )
    memory_header: str = Field("Memory:\n", description="what stands before the memories in a prompt")
    memory_line: str = Field("- {text}\n", description="one memory in a prompt")
    fence: Literal["auto", "always", "never"] = Field(
        "auto",
        description="memories stand between marks that they cannot write themselves, and are said to be data; auto: "
        "with a chat template, but not for memos-small, which has learnt another form",
    )
    system: str = Field("", description="an instruction before the memories; the small model takes none")
    adapters_in_memory: int = Field(
        256, ge=1, description="adapters kept ready; beyond, the least recently used is read from its folder again"
    )
    requests_at_once: int = Field(32, ge=1, description="answered together; further ones wait until one has ended")
    adapters_on_device: int = Field(16, ge=1, description="of those, the ones that lie beside a GPU's weights")

    @model_validator(mode="after")
    def _line_has_text(self) -> ModelConfig:
        if "{text}" not in self.memory_line:
            raise ValueError("memory_line must contain {text}")
        return self


class DecodeConfig(Section):
    """How an answer is decoded."""

    max_new_tokens: int = Field(48, ge=1)
    temperature: float = Field(0.0, ge=0.0, description="0 is greedy")
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    seed: int = 0
    beams: int = Field(1, ge=1, description="above 1: beam search, which is deterministic and costs as many rows")
    stop: tuple[str, ...] = Field((), description="strings that end an answer")
    json_schema: dict[str, Any] | None = Field(
        None, description="what an answer must be: JSON of this schema, as far as max_new_tokens reach; with one beam"
    )

    @model_validator(mode="after")
    def _beams_do_not_sample(self) -> DecodeConfig:
        if self.beams > 1 and self.temperature > 0:
            raise ValueError("beams > 1 needs temperature 0, as beam search does not sample; set beams to 1 to sample")
        if self.beams > 1 and self.json_schema is not None:
            raise ValueError("beams > 1 cannot be held to json_schema; set beams to 1, or leave json_schema out")
        return self


class FidelityConfig(Section):
    """How several KV caches are put in front of one question; the levels are those of docs/decisions (0004)."""

    level: Literal["auto", "L0", "L1", "L2", "L3", "L4"] = Field(
        "auto",
        description="auto: the cheapest that reaches `agreement` on the card of `memos calibrate`, L0 without a card; "
        "L0: one exact prefix of all of them; L1: encoded apart and moved into place; L2: and the first "
        "tokens of each computed anew; L3: and those that the question looks at; L4: as text",
    )
    agreement: float = Field(
        0.95, ge=0, le=1, description="share of questions answered as over the full prompt; a level below is not used"
    )
    first_tokens: int = Field(4, ge=0, description="tokens of each later cache that L2 and L3 compute anew")
    share: float = Field(0.1, ge=0, le=1, description="share of the other tokens that L3 computes anew")
    prefix_bytes: int = Field(1 << 28, ge=0, description="budget of the exact prefixes that L0 keeps for next time")


class ActivationConfig(Section):
    """How a KV cache is stored."""

    codec: str = Field(
        "raw",
        description="raw, bf16, fp8, int8, int4, trained, or the name of an installed codec; raw keeps every bit; the "
        "others take 2 to 8 times fewer bytes and are measured before use; auto: of these the one that loads soonest "
        "here and loses no more than max_kl; wrapped: raw, with what its rows gain behind others, for composing "
        "without reading anything anew (L1); trained: few rows, distilled and gated as an adapter is; "
        "compact: fewer rows still, found in seconds without training, and gated likewise",
    )
    trained_share: float = Field(
        0.25, gt=0, le=1, description="of the tokens of the memories, for which trained KV has rows"
    )
    compact_shares: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field(
        (0.1, 0.25), min_length=1, description="likewise of compact KV: the first of these that passes the gate is kept"
    )
    max_kl: float = Field(
        0.02, ge=0, description="nats from the full prompt that a cache in another codec than raw may lose"
    )

    @property
    def few_rows(self) -> bool:
        """Whether rows are made that stand for many tokens, which a gate has to let pass."""
        return self.codec in FEW_ROWS

    @property
    def stored(self) -> str:
        """How the bytes of a row for each token lie in the file."""
        return "raw" if self.few_rows else self.codec


class EmbedderConfig(Section):
    engine: str = Field("transformers", description="what embeds; `memos plugins` lists what is installed")
    path: str = Field(
        "all-MiniLM-L6-v2", description="the pinned package, or a folder or hub name of a BERT-like encoder"
    )
