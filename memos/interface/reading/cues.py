"""A request that no form fits: what it speaks of, and whether it says yes or no to that.

Knows the cues of the books; knows no kernel. Coarser than a form: tried after all of them, and only on what is put as
a request or as a question about the memory.
"""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from memos.interface.reading import references
from memos.interface.reading.book import Book, Form, Language, Match, book

_GROUPS = re.compile(
    r"\b(?:everyone|everybody|all|(?:the )?(?:[\w-]+ )?(?:team|group|department|crew|class|committee|staff|board)|[a-z]+-[a-z]+|my (?:wife|husband|boss|mother|mum|mom|dad|father|sister|brother|partner|colleagues?|friends?|assistant|family))\b"
)
_ZH_GROUPS = re.compile(r"[\u4e00-\u9fff]{1,4}(?:组|部|团队|小组|班|群|部门)|大家|家人|同事们?|所有人")
_ROLE = {
    "en": ((r"\b(?:own|owner|ownership|full control|take over|hand\w* over|in charge)\b", "owner"),
           (r"\b(?:annotat\w+|comment\w*|remarks?|tag)\b", "annotator"),
           (r"\b(?:edit\w*|writ\w+|modif\w+|chang\w+|updat\w+|contribut\w+|collaborat\w+|co-?author\w*|work on)\b", "editor")),
    "zh": ((r"所有者|主人|拥有|所有权|负责人|接管", "owner"), (r"批注|评论|注释|标注|留言|点评", "annotator"),
           (r"编辑|修改|改|更新|写|协作", "editor")),
}  # fmt: skip


@dataclass(frozen=True)
class _Cues:
    patterns: dict[str, re.Pattern[str]]
    questions: dict[str, re.Pattern[str]]

    def says(self, cue: str, text: str) -> bool:
        return bool(self.patterns[cue].search(text))


@cache
def _cues(language: Language) -> _Cues:
    raw: dict[str, Any] = book(language).raw["cues"]
    every = "|".join(
        sorted(
            {
                re.escape(verb)
                for listed in book(language).raw["verbs"].values()
                for verb in re.findall(r'"([^"]+)"|(\S+)', listed)
                for verb in verb
                if verb
            },
            key=len,
            reverse=True,
        )
    )
    name = r"(?-i:[A-Z][a-z]+)"
    filled = {k: v.replace("{every}", every).replace("{NAME}", name) for k, v in raw.items() if isinstance(v, str)}
    return _Cues(
        {cue: re.compile(pattern, re.IGNORECASE) for cue, pattern in filled.items()},
        {ask: re.compile(pattern, re.IGNORECASE) for ask, pattern in raw["questions"].items()},
    )


def matches(text: str, words: Book, about: references.Known) -> list[Match]:
    """What a request that no form fits asks for, the surest first; none for what is no request."""
    cues = _cues(words.language)
    if asked := _question(text, words, cues):
        return [asked]
    if cues.says("how", text) and not re.match(
        r"(?:can|could|would|will) you\b|你?能不能|你?可以|你?可不可以", text, re.IGNORECASE
    ):
        return []
    if not cues.says("asks", text) or (
        cues.says("tells", text)
        and not re.match(
            r"(?:i|we)(?:['’]d| would)? (?:want|need|like|love|prefer|rather|no longer|do not|don['’]?t)|the\b|my\b",
            text,
            re.IGNORECASE,
        )
    ):
        return []
    if cues.says("narrates", text) or words.openings["recall"].match(text):
        return []
    no = cues.says("against", text)
    thing = _thing(text, words, cues)
    who = _person(text, words)
    out: list[Match] = []

    def say(intent: str, **slots: str) -> None:
        form = Form(intent, re.compile(""), to=slots.pop("form", ""))
        out.append(
            Match(
                form, slots.get("what", thing), slots.get("with_", ""), slots.get("to", ""), slots.get("relation", "")
            )
        )

    if cues.says("text", text):
        say("demote")
    for kind, form in (("weights", "parametric"), ("cache", "activation")):
        if cues.says(kind, text):
            say("demote" if no else "promote", form="" if no else form)
    if cues.says("lock", text):
        say("thaw" if cues.says("thaw", text) else "freeze")
    if cues.says("version", text):
        say("rollback", to=_state(text, words))
    if who and cues.says("access", text):
        role = next((r for form, r in _ROLE[words.language] if re.search(form, text, re.IGNORECASE)), "")
        say("unshare" if no else "share", with_=who, relation="" if no else role)
    if cues.says("change", text) and cues.says("nobody", text):
        say("freeze")
    elif cues.says("change", text) and cues.says("again", text) and re.search(r"\bagain\b|重新|又|放开", text):
        say("thaw")
    if cues.says("forget", text) or cues.says("keep", text):
        say("forget", what=thing or "")
    return out


def _question(text: str, words: Book, cues: _Cues) -> Match | None:
    """A question about the memory itself."""
    asks = cues.says("how", text) or bool(
        re.match(
            r"(?:show|list|tell|give|let me|count|do you|have you|are you|is|any|anything|what|which|explain|print|display|what['’]?s)\b|列|给我|告诉|看看|显示|展示|说说|查|有没有",
            text,
            re.IGNORECASE,
        )
    )
    if not asks:
        return None
    for ask, pattern in cues.questions.items():
        if ask == "mine" or not pattern.search(text):
            continue
        if (
            ask in ("history", "list")
            and not (
                ask == "history"
                and re.search(
                    r"\bhistor|versions?\b|revisions?\b|changed|evolv|edits\b|used to|历史|版本|怎么变|变过|改过|以前|之前|原来",
                    text,
                )
            )
            and not cues.questions["mine"].search(text)
        ):
            continue
        if ask == "why" and not re.search(r"\b(?:you|your|that)\b|你|您|这|那", text):
            continue
        if ask == "list" and not re.search(
            r"\b(?:what|which|show|list|tell|give|anything|everything|any|all|summar\w+|display|print)\b|什么|哪些|列|看|显示|展示|告诉",
            text,
            re.IGNORECASE,
        ):
            continue
        what = ""
        if ask in ("list", "count"):
            found = re.search(
                r"\b(?:about|on|regarding|concerning|involving|mention(?:s|ing)?|related to|to do with)\s+(.+?)[?.!]*$",
                text,
                re.IGNORECASE,
            ) or re.search(r"(?:关于|有关|对|跟|和)(.+?)(?:的|有|你|知道|存|记|了解|相关|$)", text)
            what = found[1] if found else ""
            if ask == "list" and not what:
                continue
        elif ask == "history":
            what = _thing(text, words, cues)
            if not what:
                continue
        elif ask == "why":
            found = (
                re.search(r"\bthat ((?:i|my|we|[A-Z]\w+)\b.+?)[?.!]*$", text)
                or re.search(
                    r"\b(?:think|believe|know|say|said|assume|sure|claim|conclude) ((?:i|my|we|i['’]m|(?-i:[A-Z])\w+)\b.+?)[?.!]*$",
                    text,
                    re.IGNORECASE,
                )
                or re.search(r"(?:知道|说|认为|觉得|以为)((?:我|[\u4e00-\u9fff]{2,3}).{2,}?)[的？?]*$", text)
            )
            what = found[1] if found else ""
        return Match(Form("about", re.compile(""), ask=ask), what.strip(" ?？"))
    return None


def _thing(text: str, words: Book, cues: _Cues) -> str:
    """What a request names with "my", "the" and the like, or in Chinese after 把; "it" where it only points."""
    if words.language == "zh":
        for form in (
            r"(?:把|将|对|给|为|让|从|关于)([^，,。]{2,12}?)(?=(?:的(?:缓存|权限|锁|版本|适配器|修改|改动))|分享|共享|放|锁|冻|解|恢复|退|回|还原|变|转|移|拿|从|给|设|写|背|训|缓存|删|忘|清|抹|开放|公开|改|存|做|装|加|载|弄|撤|取消|也|都|再|重新|彻底|全|的事)",
            r"(?:锁住?|冻结|解锁|解冻|缓存|删除|删掉|忘掉|忘记|撤销|恢复|保护|背熟|分享|公开|开放|训练|修改|编辑|改动|清除|看|读|访问|用)([^，,。的了]{2,10}?)(?=吧|了|的|给|，|。|！|$)",
            r"^([^，,。把将别不请让给]{2,10}?)(?=别|不|可以|应该|要|就|需要|也|都|放|锁|冻|解|恢复|退|回到|还原|变|转|给|得|该|从|必须|现在|以后|的(?:缓存|锁|适配器|权限))",
        ):
            for found in re.finditer(form, text):
                what = found[1].strip()
                if not cues.patterns["no_thing"].search(what) and what not in references.names_in(text):
                    return what
        return "它" if "它" in text else ""
    people = {name.lower() for name in references.names_in(text)}
    for thing in references.phrases_in(text):
        bare = re.sub(r"^(?:my|our|the|your|his|her|their|its|this|that|an?)\s+", "", thing.lower())
        if (
            cues.patterns["no_thing"].match(bare)
            or bare in people
            or re.fullmatch(r"(?:team|group|department|family)", bare.split()[-1])
        ):
            continue
        return thing
    return next((m[0] for m in re.finditer(r"\b(?:it|that|this|them|those|these)\b", text, re.IGNORECASE)), "")


def _person(text: str, words: Book) -> str:
    """With whom; a pronoun where it only points."""
    if names := references.names_in(text):
        plain = [
            name
            for name in names
            if not re.search(rf"{re.escape(name)}['’]s (?!access|permission|right|eyes|edit)", text)
        ]
        return (plain or names)[0]
    if group := (_ZH_GROUPS if words.language == "zh" else _GROUPS).search(text):
        return group[0]
    pronoun = (
        re.search(r"[他她]们?", text)
        if words.language == "zh"
        else re.search(r"\b(?:she|he|her|him|they)\b", text, re.IGNORECASE)
    )
    return pronoun[0] if pronoun else ""


def _state(text: str, words: Book) -> str:
    """Which version or day a request goes back to, in its words."""
    if words.language == "zh":
        found = re.search(
            r"第[\d一二两三四五六七八九十]+个?版|版本(?:号)?[\d一二两三四五六七八九十]+|[vV]\d+|最初的?版本|第一版",
            text,
        )
        return found[0] if found else ""
    found = re.search(
        r"\b(?:(?:the )?(?:version|revision|v\.?|rev\.?|no\.?|number) ?(?:number )?\d+|v\d+|version (?:one|two|three|four|five|six|seven|eight|nine|ten)|(?:the )?(?:first|second|third|fourth|fifth|sixth|original|initial|\d+(?:st|nd|rd|th)) (?:version|revision|one|wording|draft|state))\b",
        text,
        re.IGNORECASE,
    )
    return found[0] if found else ""
