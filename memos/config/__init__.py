"""The whole tree of settings, frozen: read from YAML, with unknown keys and wrong types refused by their path."""

from memos.config.distil import DistilConfig, GateConfig
from memos.config.experiment import AskStep, DemoteStep, ExperimentConfig, IngestStep, PromoteStep, Step, TickStep
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

__all__ = ["ActivationConfig", "AgeingConfig", "AskStep", "AuditConfig", "Config", "CuratorsConfig", "CustomPattern"]
__all__ += ["DecodeConfig", "DemoteStep", "DistilConfig", "EmbedderConfig", "ExperimentConfig", "FidelityConfig"]
__all__ += ["GateConfig", "GovernanceConfig", "IngestStep", "JobsConfig", "KeyLimits", "LifecycleConfig"]
__all__ += ["LimitConfig", "LimitsConfig"]
__all__ += ["MemoryOSConfig", "ModelConfig", "PromoteStep", "QuarantineConfig", "QuotaConfig", "ReaderConfig"]
__all__ += ["Redact", "RedactionConfig", "RetrievalConfig", "SchedulerConfig", "Section", "ServeConfig", "Step"]
__all__ += ["TickStep", "TrustConfig", "VaultConfig", "load_config", "parse_config", "parse_yaml"]
