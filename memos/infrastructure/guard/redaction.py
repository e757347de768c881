"""Finds and masks identifiers in texts; knows kinds of identifiers, must not know cubes.

A number is what it is by its own check (digits of an issuer and Luhn's check of a card, ISO 7064 of an IBAN, a
numbering plan of a phone number), not by its length alone; and not where the words before it say that it is something
else, as an order's number. Full-width characters count as the usual ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

from memos.config import Redact, RedactionConfig
from memos.errors import ConfigError, InputError

SENSITIVE = "sensitive:"  # before the kind, in a tag
_WIDE = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}  # one for one: places stay
_NEVER = {"before_use": ("before_use", "before_storing"), "before_storing": ("before_storing",)}
# what an order, a part or a version is numbered with, just before its number
_NUMBERED = re.compile(
    r"(?:\b(?:order|invoice|ticket|tracking|serial|reference|ref|case|model|isbn|issn|doi|sku|part|batch|lot|build|version|"
    r"commit|transaction|booking|confirmation|receipt|parcel|shipment|barcode|imei|article|item|episode|port|patent|"
    r"issue|error|code|score|population|distance|seed|hash|timestamp|epoch|voucher|coupon|meter)\b"
    r"(?:\s*(?:no|nr|number|id|code|#))?|"
    r"(?:订单|单号|编号|序列号|序号|型号|版本|发票|快递|运单|流水|工单|货号|条形码|条码|书号|批号|验证码|邮编|编码|代码|合同|车次|"
    r"航班|学号|工号|票号|案号|房号|人口|金额|总价|售价|价格|时间戳|票据|凭证|交易|券码|商品|书|表)(?:号码|号|编号)?)"
    r"[\s.:#=是为的：]*(?:is|was|are)?[\s:#(（]*$",
    re.IGNORECASE,
)
_CALLED = re.compile(
    r"(?:phone|tel|mobile|cell|call|dial|text|fax|whatsapp|电话|手机|座机|热线|传真|致电|拨打|打给|联系)", re.I
)
_EMAIL = re.compile(
    r"(?<![A-Za-z0-9._%+\-@/])[A-Za-z0-9](?:[A-Za-z0-9._%+\-]{0,62}[A-Za-z0-9_+\-])?"
    r"@(?:[A-Za-z0-9](?:[A-Za-z0-9\-]{0,61}[A-Za-z0-9])?\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9@]|\.[A-Za-z0-9]|:[\w~])"
)
_CARD = re.compile(r"(?<![\d.\-+/])\d(?:[ \-]?\d){12,18}(?![\d/]|[.,\-]\d)")
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?:[ \-]?[A-Za-z0-9]){11,30}(?![A-Za-z0-9])")
_RIC = re.compile(r"(?<![\dA-Za-z])\d{6}[ \-]?\d{8}[ \-]?\d{3}[\dXx](?![\dA-Za-z])")
_SSN = re.compile(r"(?<![\d\-.])\d{3}([\- ])\d{2}\1\d{4}(?![\d\-])")
_SSN_PLAIN = re.compile(r"(?:SSN|social security(?: number| no\.?)?)\D{0,12}(\d{9})(?!\d)", re.IGNORECASE)
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:[A-Za-z]{1,4} )?[A-Za-z]*\d[A-Za-z0-9]*(?:[ .\-/][A-Za-z]*\d[A-Za-z0-9]*){0,6}(?:[ \-][A-Z])?"
    r"(?![A-Za-z0-9])"
)
_CITIZEN = re.compile(
    r"(?:\b(?:id|identity|identification|national|passport|tax|taxpayer|insurance|citizen|resident|social|nhs|nino|dni|"
    r"nif|nie|bsn|pesel|cpf|ssn|itin|hetu|aadhaar|pan|personal)\b|身份证|证件|护照|社保|税号|居民)[^.。!?！？]{0,40}$",
    re.IGNORECASE,
)
# lengths of numbers by their first digits (ISO/IEC 7812, as the networks publish them)
_ISSUERS = (
    (re.compile(r"4"), (13, 16, 19)),
    (re.compile(r"5[1-5]|2(?:22[1-9]|2[3-9]|[3-6]|7[01]|720)"), (16,)),
    (re.compile(r"3[47]"), (15,)),
    (re.compile(r"6011|65|64[4-9]"), (16, 19)),
    (re.compile(r"62|81"), (16, 17, 18, 19)),
    (re.compile(r"35(?:2[89]|[3-8])"), (16, 19)),
    (re.compile(r"3(?:0[0-5]|[689])"), (14,)),
    (re.compile(r"5018|5020|5038|5893|6304|6759|676[1-3]"), (13, 15, 16, 18, 19)),
)
_TRIALS = ("a" * 256, "1" * 256, "a1 " * 86, "1-" * 128, "中" * 256, "\t \n" * 86)


class Identifier(NamedTuple):
    """Where one stands in a text: text[start:end]."""

    kind: str
    start: int
    end: int


class Redactor:
    """What is done with identifiers, as configured."""

    def __init__(self, config: RedactionConfig = RedactionConfig()) -> None:
        """Raises ConfigError for a pattern, a region or a module that cannot be used."""
        self._config = config
        kinds = ("phone", "email", "card", "iban", "national_id")
        self.does: dict[str, Redact] = {kind: getattr(config, kind) for kind in kinds}
        if clash := self.does.keys() & config.custom.keys():
            raise ConfigError(f"governance.redaction.custom.{min(clash)}: the name is taken; choose another")
        self._finders: dict[str, Callable[[str], Iterable[tuple[int, int]]]] = {
            "national_id": self._national_ids,
            "iban": _ibans,
            "card": _cards,
            "email": lambda text: (m.span() for m in _EMAIL.finditer(text)),
            "phone": self._phones,
        }
        for name, custom in config.custom.items():
            self.does[name] = custom.do
            self._finders[name] = _bounded(name, custom.pattern, config.pattern_ms / 1e3)
        self._wanted = [kind for kind in self._finders if self.does[kind] != "off"]
        self.active = bool(self._wanted)
        if "phone" in self._wanted:
            self._require_regions()
        self._modules = list(map(_module, config.national_ids)) if "national_id" in self._wanted else []

    def hides(self, stage: str) -> frozenset[str]:
        """The kinds that are masked by `stage`: before_use or before_storing."""
        return frozenset(kind for kind in self._wanted if self.does[kind] in _NEVER[stage])

    def find(self, text: str, kinds: Collection[str] | None = None) -> list[Identifier]:
        """The identifiers in a text, in their order; of two that overlap, the kind that is checked more strictly.

        kinds: None for all that are not off. Raises InputError for a custom pattern that takes too long.
        """
        plain = text.translate(_WIDE)
        found: list[Identifier] = []
        wanted = self._wanted if kinds is None else kinds
        for kind in (one for one in self._finders if one in wanted):
            for start, end in self._finders[kind](plain):
                if start < end and all(end <= other.start or start >= other.end for other in found):
                    found.append(Identifier(kind, start, end))
        return sorted(found, key=lambda one: one.start)

    def mask(self, text: str, kinds: Collection[str], known: Iterable[tuple[str, str]] = ()) -> str:
        """The text with [KIND] in place of identifiers of these kinds. known: (identifier, kind) that were found where
        more stood around them."""
        out, at = [], 0
        for one in self.find(text, kinds):
            out += [text[at : one.start], f"[{one.kind}]"]
            at = one.end
        masked = "".join([*out, text[at:]])
        for value, kind in sorted(known, key=lambda pair: -len(pair[0])):
            masked = re.sub(re.escape(value), f"[{kind}]", masked, flags=re.IGNORECASE)
        return masked

    # kinds

    def _require_regions(self) -> None:
        import phonenumbers

        for region in self._config.regions:
            if region not in phonenumbers.SUPPORTED_REGIONS:
                raise ConfigError(
                    f"governance.redaction.regions: {region!r} is no country of phone numbers; write it as US, CN, GB"
                )

    def _phones(self, text: str) -> Iterator[tuple[int, int]]:
        import phonenumbers  # numbering plans of all countries

        for region in self._config.regions:
            for match in phonenumbers.PhoneNumberMatcher(text, region, leniency=phonenumbers.Leniency.VALID):
                raw, before = match.raw_string, _before(text, match.start)
                grouped = raw.startswith("+") or re.search(r"\d[ \-.()]+\d", raw)
                mobile = region == "CN" and re.fullmatch(r"(?:\+?86)?1[3-9]\d{9}", re.sub(r"\D", "", raw))
                if _NUMBERED.search(before) or _AMOUNT.search(before) or _UNIT.match(text[match.end :]):
                    continue
                if grouped or mobile or _CALLED.search(before):
                    opened = raw.startswith("(") and raw.count("(") > raw.count(")")
                    yield match.start + opened, match.end

    def _national_ids(self, text: str) -> Iterator[tuple[int, int]]:
        for name, is_valid in self._modules:
            match name:
                case "cn.ric":
                    yield from (m.span() for m in _RIC.finditer(text) if is_valid(re.sub(r"[ \-]", "", m[0])))
                case "us.ssn":
                    for m in _SSN.finditer(text):
                        if is_valid(m[0].replace(" ", "-")) and not _NUMBERED.search(_before(text, m.start())):
                            yield m.span()
                    yield from (m.span(1) for m in _SSN_PLAIN.finditer(text) if is_valid(m[1]))
                case _:
                    for m in _TOKEN.finditer(text):
                        start = next((at for at in _starts(m) if is_valid(text[at : m.end()])), None)
                        if start is not None and _CITIZEN.search(text[max(0, start - 64) : start]):
                            yield start, m.end()


_AMOUNT = re.compile(r"(?:[$€£¥￥#]|\b(?:USD|EUR|RMB|CNY|GBP)\b|v|0x)\s*$", re.IGNORECASE)
_UNIT = re.compile(
    r"\s*(?:%|°|(?:km|kg|mb|gb|ms|m|px|steps|people|dollars|euros|bytes|times|units)\b|元|块|个|人|次|米|公里|万|步)"
)


def _before(text: str, place: int) -> str:
    """The words that may say what a number is."""
    return text[max(0, place - 24) : place]


def _starts(m: re.Match[str]) -> Iterator[int]:
    """Where a number may begin: with the short word before its digits, or after it."""
    if sum(map(str.isdigit, m[0])) >= 4:
        yield m.start()
        if (space := m[0].find(" ")) >= 0 and m[0][:space].isalpha():
            yield m.start() + space + 1


def _cards(text: str) -> Iterator[tuple[int, int]]:
    from stdnum import luhn

    for m in _CARD.finditer(text):
        digits = re.sub(r"\D", "", m[0])
        issued = any(first.match(digits) and len(digits) in lengths for first, lengths in _ISSUERS)
        if issued and luhn.is_valid(digits) and len(set(digits)) > 1 and not _NUMBERED.search(_before(text, m.start())):
            yield m.span()


def _ibans(text: str) -> Iterator[tuple[int, int]]:
    from stdnum import iban

    for m in _IBAN.finditer(text):
        for end in range(m.end(), m.start() + 14, -1):  # words may follow that look like more of it
            ends = end == m.end() or not text[end].isalnum()
            if ends and iban.is_valid(text[m.start() : end], check_country=False):
                yield m.start(), end
                break


def _is_resident_id(number: str) -> bool:
    """By its date of birth and its check digit. The county is not looked up: one who was born before a county was made
    may have been registered in it."""
    from stdnum.cn import ric
    from stdnum.exceptions import ValidationError

    try:
        return bool(ric.get_birth_date(number) and ric.calc_check_digit(number) == number[-1].upper())
    except ValidationError:
        return False


def _module(name: str) -> tuple[str, Callable[[str], bool]]:
    """Raises ConfigError."""
    if name == "cn.ric":
        return name, _is_resident_id
    with suppress(ImportError, AttributeError):
        if re.fullmatch(r"[a-z]{2}\.[a-z0-9_]+", name):
            return name, import_module(f"stdnum.{name}").is_valid
    raise ConfigError(
        f"governance.redaction.national_ids: python-stdnum has no {name!r}; write it as cn.ric, us.ssn or gb.nhs"
    )


def _bounded(name: str, pattern: str, seconds: float) -> Callable[[str], Iterable[tuple[int, int]]]:
    """Finds a custom pattern, or raises InputError when that takes too long. Raises ConfigError."""
    import regex  # its matching can be given a time

    path = f"governance.redaction.custom.{name}.pattern"

    def find(text: str) -> list[tuple[int, int]]:
        try:
            return [m.span() for m in compiled.finditer(text, timeout=seconds)]
        except TimeoutError:
            raise InputError(
                f"{path} takes longer than {seconds * 1e3:g} ms over a text of {len(text)} characters, so that nobody "
                f"knows what it would find; make it simpler, or raise governance.redaction.pattern_ms"
            ) from None

    try:
        compiled: Any = regex.compile(pattern)
        if not name or compiled.search("") is not None:
            raise ConfigError(f"{path} matches where there is nothing; write what must stand there")
        for trial in _TRIALS:
            find(trial)
    except regex.error as error:
        raise ConfigError(f"{path} is no regular expression ({error}): {pattern!r}") from None
    except InputError as error:
        raise ConfigError(str(error)) from None
    return find
