"""Loads the tree of settings from YAML; unknown keys and wrong values are refused by their path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from memos.config.distil import DistilConfig
from memos.config.governance import GovernanceConfig
from memos.config.models import ActivationConfig, DecodeConfig, EmbedderConfig, FidelityConfig, ModelConfig
from memos.config.operation import (
    CuratorsConfig,
    LifecycleConfig,
    LimitsConfig,
    MemoryOSConfig,
    ReaderConfig,
    RetrievalConfig,
    SchedulerConfig,
)
from memos.config.section import Section, explain
from memos.config.serve import ServeConfig
from memos.config.storage import VaultConfig
from memos.errors import ConfigError

MAX_YAML_CHARS = 1 << 18
MAX_YAML_DEPTH = 50


class Config(Section):
    """The whole tree; `Config()` is the embedded default."""

    seed: int = 0
    user_id: str = Field("default", description="namespace of whoever runs the kernel")
    policy: str = Field(
        "memos", description="what ranks, admits and moves memories; `memos plugins` lists what there is"
    )
    policies: dict[str, str] = Field({}, description="instead, for single namespaces: user_id to policy")
    model: ModelConfig = ModelConfig()
    decode: DecodeConfig = DecodeConfig()
    fidelity: FidelityConfig = FidelityConfig()
    activation: ActivationConfig = ActivationConfig()
    embedder: EmbedderConfig = EmbedderConfig()
    retrieval: RetrievalConfig = RetrievalConfig()
    vault: VaultConfig = VaultConfig()
    governance: GovernanceConfig = GovernanceConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    memoryos: MemoryOSConfig = MemoryOSConfig()
    curators: CuratorsConfig = CuratorsConfig()
    limits: LimitsConfig = LimitsConfig()
    reader: ReaderConfig = ReaderConfig()
    lifecycle: LifecycleConfig = LifecycleConfig()
    serve: ServeConfig = ServeConfig()
    distil: DistilConfig = DistilConfig()
    experiment: object = Field(None, description="what `memos run` does; it reads this by itself")


def load_config(path: str | Path | None, overrides: tuple[str, ...] = ()) -> Config:
    """Read a YAML file; `overrides` are `a.b=value` with YAML values.

    path: None for the embedded default.
    Raises ConfigError that names the key's path, the rule and the nearest valid key.
    """
    data = {} if path is None else _read(Path(path))
    for item in overrides:
        _override(data, item)
    return parse_config(data)


class _Loader(yaml.SafeLoader):
    """Plain values only, within bounds: aliases of aliases grow without end, and nesting is read by recursion."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(f"*{self.peek_event().anchor} is an alias; write out what it stands for")
        self._depth += 1
        if self._depth > MAX_YAML_DEPTH:
            raise yaml.YAMLError(f"it is nested deeper than {MAX_YAML_DEPTH} levels")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def parse_yaml(text: str) -> Any:
    """Raises ConfigError for what is no YAML, or more of it than anybody writes."""
    if len(text) > MAX_YAML_CHARS:
        raise ConfigError(
            f"it has {len(text):,} characters, and {MAX_YAML_CHARS:,} are read; leave out what is not needed"
        )
    try:
        return yaml.load(text, _Loader)
    # of values: a date that no calendar has, a number of too many digits, a mapping as a key
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError, AttributeError) as error:
        raise ConfigError(f"not YAML: {error!s:.500}") from None


def _read(path: Path) -> dict[str, object]:
    try:
        data = parse_yaml(path.read_text("utf-8")) or {}
    except FileNotFoundError:
        near = sorted(p.name for p in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
        raise ConfigError(
            f"no config file {path}; {'here are ' + ', '.join(near) if near else 'give the path of a YAML file'}"
        ) from None
    # bytes that are no UTF-8, or a NUL in the name, are ValueErrors
    except (OSError, ValueError, ConfigError) as error:
        raise ConfigError(f"{path} is not a readable YAML file: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must be a mapping of sections such as `model:`, not {type(data).__name__}")
    return data


def parse_config(data: Mapping[str, object]) -> Config:
    """A mapping -> Config. Raises ConfigError."""
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise explain(error, "", Config) from None


def _override(data: dict[str, object], item: str) -> None:
    key, equals, raw = item.partition("=")
    if not equals or not key:
        raise ConfigError(f"--set {item!r}: write it as a.b=value")
    try:
        value = parse_yaml(raw)
    except ConfigError as error:
        raise ConfigError(f"--set {key}: {raw!r:.200} is not a YAML value: {error}") from None
    *sections, last = key.split(".")
    for section in sections:
        inner = data.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {key}: {section} is not a section")
        data = inner
    data[last] = value
