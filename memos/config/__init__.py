"""The whole tree of settings, frozen: read from YAML, with unknown keys and wrong types refused by their path."""

from memos.config.distil import DistilConfig, GateConfig
from memos.config.governance import (
    AuditConfig,
    CustomPattern,
    GovernanceConfig,
    QuarantineConfig,
    Redact,
    RedactionConfig,
    TrustConfig,
)
from memos.config.loading import Config, load_config, parse_config, parse_yaml
from memos.config.models import ActivationConfig, DecodeConfig, EmbedderConfig, FidelityConfig, ModelConfig
from memos.config.operation import (
    AgeingConfig,
    CuratorsConfig,
    LifecycleConfig,
    LimitConfig,
    LimitsConfig,
    MemoryOSConfig,
    ReaderConfig,
    RetrievalConfig,
    SchedulerConfig,
)
from memos.config.section import Section
from memos.config.serve import KeyLimits, ServeConfig
from memos.config.storage import JobsConfig, QuotaConfig, VaultConfig

__all__ = ["ActivationConfig", "AgeingConfig", "AuditConfig", "Config", "CuratorsConfig", "CustomPattern"]
__all__ += ["DecodeConfig", "DistilConfig", "EmbedderConfig", "FidelityConfig", "GateConfig", "GovernanceConfig"]
__all__ += ["JobsConfig", "KeyLimits", "LifecycleConfig", "LimitConfig", "LimitsConfig", "MemoryOSConfig"]
__all__ += ["ModelConfig", "QuarantineConfig", "QuotaConfig", "ReaderConfig", "Redact", "RedactionConfig"]
__all__ += ["RetrievalConfig", "SchedulerConfig", "Section", "ServeConfig", "TrustConfig", "VaultConfig"]
__all__ += ["load_config", "parse_config", "parse_yaml"]
