"""Settings of governance: credentials, the audit log, redaction, trust, quarantine, retention."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from memos.config.section import Section
from memos.cube import Trust

Redact = Literal["off", "label", "before_use", "before_storing"]


class CustomPattern(Section):
    """Identifiers of your own."""

    pattern: str = Field(description="a regular expression; refused if it matches nothing at all, or takes too long")
    do: Redact = Field("before_storing", description="as for the other kinds")


class RedactionConfig(Section):
    """What is done with identifiers in texts, by their kind.

    off: nothing. label: the memory gets the tag `sensitive:KIND`. before_use: it is kept whole and tagged; what the
    model and everybody but the owner see is masked. before_storing: it never reaches the vault.
    """

    phone: Redact = Field("off", description="by the numbering plans of all countries")
    email: Redact = Field("off", description="an address with a domain")
    card: Redact = Field("off", description="payment cards: issuer's digits, length and Luhn's check")
    iban: Redact = Field("off", description="by its check digits, ISO 7064")
    national_id: Redact = Field("off", description="those that national_ids names, by their check digits")
    regions: tuple[str, ...] = Field(
        ("US", "CN", "GB"), description="countries whose phone numbers are known without their +NN"
    )
    national_ids: tuple[str, ...] = Field(
        ("cn.ric", "us.ssn"), description="modules of python-stdnum, as cn.ric, us.ssn, gb.nhs, de.idnr, es.dni"
    )
    custom: dict[str, CustomPattern] = Field({}, description="by name, which is then a kind like the others")
    pattern_ms: float = Field(50.0, gt=0, description="most that one of them may take over a text")


class AuditConfig(Section):
    """The audit log's signature."""

    key: Path | None = Field(
        None,
        description="file of the Ed25519 key, made at first use, and of the last checkpoint beside it; one for each "
        "vault. Unset: signing.key in the vault, where whoever can write to the vault can sign too",
    )
    every: int = Field(1000, ge=1, description="rows after which a checkpoint is signed; one is signed on closing too")
    trusted: tuple[str, ...] = Field(
        (), description="public keys (hex) of others whose checkpoints are taken, as of before"
    )


class QuarantineConfig(Section):
    """What answers nothing until somebody releases it."""

    trusts: tuple[Trust, ...] = Field(
        (Trust.TOOL, Trust.DOCUMENT, Trust.MODEL, Trust.IMPORTED, Trust.UNTRUSTED),
        description="of these, memories with one of the patterns below",
    )
    patterns: tuple[str, ...] = Field(
        (
            r"\b(ignore|disregard|forget|override)\b.{0,30}\b(previous|prior|above|earlier|preceding|system|all)\b.{0,30}"
            r"\b(instructions?|prompts?|rules|messages|directions|guidelines)\b",
            r"\b(do not|don't|never) (tell|inform|mention|reveal)( this)?( to)? the user\b",
            r"\byou are now\b.{0,40}\b(assistant|ai|model|mode|dan|unrestricted|jailbroken)\b",
            r"\b(reveal|print|repeat|show|leak)\b.{0,20}\b(system|hidden|initial) prompt\b",
            r"\bnew (system )?instructions?\s*:",
            r"<\|[a-z_]{2,30}\|>|\[/?inst\]|<</?sys>>|</?\s*memories\s*>",
            r"(忽略|无视|忘记|忘掉|不要理会|不要遵守).{0,12}(之前|以前|以上|上面|前面|先前|所有|一切|系统).{0,12}"
            r"(指令|指示|提示|命令|规则|要求|设定)",
            r"(不要|别|切勿)(告诉|告知|透露给|让)(用户|使用者)",
            r"你现在(是|变成|扮演).{0,20}(助手|模型|模式|人工智能|ai)",
            r"(泄露|输出|显示|重复|打印|说出).{0,8}(系统|初始|隐藏)(提示词|提示|指令)",
            r"新的?(系统)?(指令|指示)\s*[:：]",
            # words that stand together, as letters that stood apart do
            r"(ignore|disregard|forget|override)\w{0,12}(previous|prior|above|earlier|preceding|all)\w{0,12}"
            r"(instructions?|prompts?|rules|messages|directions|guidelines)|(donot|dont|never)(tell|inform)theuser|"
            r"(reveal|print|repeat|show|leak)\w{0,12}(system|hidden|initial)prompt",
        ),
        description="regular expressions, read without regard to case, look-alikes and invisible characters",
    )
    unknown_origin: bool = Field(False, description="of an origin that trust.origins does not name")
    most: int | None = Field(None, ge=1, description="memories from one origin within `window_s`; beyond, all further")
    window_s: float = Field(60.0, gt=0, description="seconds in which these are counted")


class TrustConfig(Section):
    """How far memories are believed, by their origin: the whole of it, or what stands before its first ":"."""

    origins: dict[str, Trust] = Field(
        {
            **dict.fromkeys(("api", "chat", "turns", "merge"), Trust.USER),
            "tool": Trust.TOOL,
            "model": Trust.MODEL,
            "import": Trust.IMPORTED,
            "pack": Trust.IMPORTED,
            "web": Trust.UNTRUSTED,
        },
        description="origin to trust; naming one replaces the whole table",
    )
    others: Trust = Field(Trust.DOCUMENT, description="an origin that is not named, as a file is")
    adapters: tuple[Trust, ...] = Field(
        tuple(trust for trust in Trust if trust is not Trust.UNTRUSTED), description="of these, adapters may be made"
    )


class GovernanceConfig(Section):
    """Who may call, and what is signed, hidden, believed and kept (docs/concepts/governance.md)."""

    require_credentials: bool = Field(
        False, description="refuse calls without a key (`memos key add`), also in this process"
    )
    exchange_folder: Path | None = Field(
        None,
        description="where holders of keys find and leave files (packs, documents, adapters), each in a folder of its "
        "own there; unset: they name none",
    )
    audit: AuditConfig = Field(AuditConfig(), description="how the log of decisions is signed")
    redaction: RedactionConfig = Field(RedactionConfig(), description="what is done with identifiers")
    trust: TrustConfig = Field(TrustConfig(), description="how far memories are believed")
    quarantine: QuarantineConfig = Field(QuarantineConfig(), description="what answers nothing until it is released")
    retention: dict[str, float] = Field(
        {},
        description="days until a memory expires for good, by its class: NAME of its tag `retain:NAME`, else its kind; "
        "carried out by `tick`",
    )

    @model_validator(mode="after")
    def _days_are_positive(self) -> GovernanceConfig:
        if wrong := [name for name, days in self.retention.items() if not 0 < days <= 36_500]:
            raise ValueError(f"retention.{wrong[0]}: give days, more than 0 and at most 36500")
        return self
