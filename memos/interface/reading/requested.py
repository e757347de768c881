"""A message -> what it asks for, one after the other, each with its arguments. Rules alone.

Knows the books, times and references; knows no kernel. A message is cut where another request begins. A part that no
form of the book fits is a question, a statement or talk. What is to be destroyed and cannot be told is asked back.
"""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date

from memos.interface import requests
from memos.interface.reading import cues, references, times
from memos.interface.reading.book import Book, Language, Match, book
from memos.interface.reading.references import Known
from memos.ops import Asked

_DESTRUCTIVE = ("forget", "rollback", "unshare", "correct")
_WITH_WHO = ("remember", "recall", "correct", "forget")
_FIRST = re.compile(
    r"\b(?:I|me|my|mine|myself|I['’]\w+|we|us|our|ours)\b|(?<!\w)i(?=['’ ])|我|咱|俺|自己", re.IGNORECASE
)
_LONGEST = 400  # characters of a request; what is longer is a text
_PARTICLES = frozenset("back out in up off away down over again".split())
_ZH_NO_THING = re.compile(
    r"^(?:到|见|着|过|瞅|起来|设为|永久|彻底|统统|全都变?|通通)|^(?:谁|只|定|麻烦|重新|我要|退|改|别|了|再|就|都|起来|也|先|请|我|退回|恢复|回到|回退|撤销|给|让|把|做|进|住|上|一下|最后|全|全部)$"
    r"|^(?:别|不要|不能|不许|不准|请|怎么|如何|为什么|谁)|把|(?:别|不要|不用|不能|不许|不再|怎么|如何|不)$|怎么|如何|什么(?!都)|不小心|(?:[他她我].{0,4})(?:已经|刚|刚刚|昨天|今天)"
)
_GROUP = re.compile(
    r"(?:the|my|our) (?:[\w-]+ )?(?:team|group|department|crew|family|club|class|office|board|committee|staff|people|folks|others|friends?"
    r"|sister|brother|mother|father|mum|mom|dad|wife|husband|boss|colleagues?|partner|parents|kids|children|son|daughter|assistant"
    r"|lawyer|accountant|doctor|manager|neighbours?|roommate|flatmate|agent|teammates?|coworkers?|aunt|uncle|cousin|landlord|[\w-]+-[\w-]+)$",
    re.IGNORECASE,
)
_FIRST_FALSE = re.compile(r"\b(?:remind|tell|show|give|let) (?:me|us)\b", re.IGNORECASE)
_ON_MEMORIES = ("forget", "share", "unshare", "promote", "demote", "freeze", "thaw", "rollback")
_STATE = re.compile(r"\b(?:versions?|revisions?|changes?|edits?|one|way|time|moment|freeze|lock)$", re.IGNORECASE)
_ZH_TOPIC = re.compile(
    r".{0,3}?[把将](?P<moved>[^，,]{2,10}?)(?:改|弄|搞|写|锁|冻|缓存|分享|共享)"
    r"|(?P<of>[^，,]{2,12}?)(?=(?:我|你|大家)?(?:现在|最近|最后|上次|刚才|已经|以后|早就|天天|每天|经常|常常|老是|总是|一直|其实|是|很|太|挺|都|也|不|没|被|处于|定稿|定下|改|用|要|该|应该|写|出|搞|弄|存|占|锁|冻|过时|有|可以|能|在|乱|错|变|还|我))"
)
_ZH_ASKS = re.compile(
    r"怎样|咋|什么(?!都)|为什么|怎么|如何|多少|几[个度天次点号]|哪[里儿个些年天]|谁(?!都|也)|多[久长大高远]|吗[？?]?$"
)
_NO_PARTNER = re.compile(
    r"(?:edit(?:s|ing)?|changes?|changing|good|sure|now|ever|now on|text|\d.*)$|.*[锁冻解删撤改看]+.*开|.*(?:解开|打开|放开|锁|出来|掉|缓存|文本)$",
    re.IGNORECASE,
)
_NO_MEMORY = re.compile(  # what has an operation of its own
    r"^(?:the |that |this |his |her |their |its |any |all |[\w-]+['’]s )?(?:(?:edit|write|read|change|reading|editing)[- ])*(?:freeze|locks?|protection|write[- ]protection|access|permissions?|rights)(?: (?:on|from|of|to|for) .+)?$|(?:锁|锁定|冻结|权限|访问|共享|编辑限制|写保护)$",
    re.IGNORECASE,
)
_ZH_TOLD = re.compile(  # somebody did it, or it has happened
    r"(?!请|别|不|停|麻烦|帮|你|您|我想|我要|我希望|以后|那|就|再|先|直接|现在)[\u4e00-\u9fff]{1,6}(?:把|将)[^，,]+(?:锁|冻|冻结|删|撤|收|缓存|分享|共享|解冻|忘|退回|恢复|公开)(?:给[^，,]+|起来|上|掉)?了"
    r"|[^，,]*(?:已经|早就|刚刚?|昨天|今早|上周|去年|前天)(?:把[^，,]+)?(?:被)?(?:锁|冻|冻结|解冻|解锁|化冻|删|撤|共享|分享|忘|恢复|公开)[^，,]{0,4}了?"
)
# where another request may begin
_CUT = {
    "en": re.compile(
        r"\s*(?:[,;:]|\s[-–—])\s*(?:and |then |and then |but |also |and also |plus )?\s*|\s+(?:and then|and also|and|then|but)\s+",
        re.IGNORECASE,
    ),
    "zh": re.compile(
        r"[，,；;：]\s*(?:然后|并且|并|再|而且|还有|另外|同时|也|最后|接着|顺便|以及|但是?|不过)?|\s*(?:然后|并且|接着|顺便|另外|还有|同时|最后)[，,]?|并(?=锁|冻|把|将|分享|共享|删|放|缓存|恢复|解|撤|退|给|让)"
    ),
}
_NUMBER = {word: n for n, word in enumerate("zero one two three four five six seven eight nine ten eleven twelve".split())} | {
    word: n for n, word in enumerate("zeroth first second third fourth fifth sixth seventh eighth ninth tenth".split())
} | {"original": 1, "initial": 1, "very first": 1}  # fmt: skip
_VERSION = re.compile(
    r"(?:the |its |my )?(?:version|ver\.?|v\.?|revision|rev\.?|edition|state|number|no\.|#) ?(?:number |no\.? ?|#)?(?P<n>\d+|one|two|three|four|five|six|seven|eight|nine|ten)"
    r"|(?:the |its |my )?(?P<th>\d+(?=st|nd|rd|th)|(?:very )?first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|original|initial)(?:st|nd|rd|th)? (?:version|revision|edition|state|one|wording|draft)"
    r"|(?:最?初始?|第一)(?P<first>版本?|个版本)|第(?P<zn>[\d一二两三四五六七八九十]+)(?:个)?版本?|版本(?:号)?(?:为|是)?(?P<zv>[\d一二两三四五六七八九十]+)|[vV](?P<v>\d+)(?:版本?)?|(?P<zb>\d+)号版本",
    re.IGNORECASE,
)


def read(text: str, turns: Sequence[Mapping[str, object]], today: date) -> list[Asked]:
    """What a message asks for; never nothing. turns: what was said before. today: the day of the message."""
    about = references.known(turns)
    out: list[Asked] = []
    for sentence in _told(text):
        lang: Language = "zh" if requests.language(sentence) == "zh" else "en"
        pieces = list(_pieces(sentence, book(lang), about, today))
        firm = any(strong for _, strong in pieces)
        for asked, strong in pieces:
            if firm and not strong and asked.intent in ("remember", "talk") and (len(pieces) > 1) and not asked.kept:
                if _tells(asked, [one for one, strong in pieces if strong]):
                    out.append(asked)
                continue  # the reason of a request, not a statement of its own
            if _is_again(asked, out):
                out[-1] = _joined(out[-1], asked)
                continue
            out.append(asked)
            about = about.with_(
                [asked.who]
                if asked.who not in ("", "user")
                else references.names_in(f"{asked.with_} {asked.what}".strip()),
                _things_of(asked),
            )
    told = [asked for asked in out if asked.intent != "talk"]
    return [
        asked.model_copy(update={"kept": False}) for asked in _merged(told or out[:1] or [Asked(intent="talk")], text)
    ]


def _tells(asked: Asked, requested: list[Asked]) -> bool:
    """True if a statement beside requests is worth keeping for itself: it gives a value, or news before a question."""
    if asked.intent != "remember" or asked.who != "user":
        return False
    value = re.search(r"\d", asked.what) and not re.search(r"version|revision|版", asked.what)
    beside = {one.intent for one in requested}
    news = asked.when or re.match(
        r"(?:I(?:['’]m| am)|[Ww]e(?:['’]re| are)) (?:going|flying|moving|visiting|meeting|starting)\b|我(?:刚|刚刚|今天|昨天|明天|下周)",
        asked.what,
    )
    return bool(
        (value and beside & {"forget", "correct", "freeze", "share", "recall"}) or (news and beside == {"recall"})
    )


def _merged(told: list[Asked], text: str) -> list[Asked]:
    """Statements in a row are one, as far as they are about the same."""
    out: list[Asked] = []
    for asked in told:
        last = out[-1] if out else None
        if (
            last
            and last.intent == asked.intent == "remember"
            and (not asked.who or asked.who == last.who)
            and not asked.when
        ):
            mark = (
                ""
                if last.what.endswith((".", "!", "。", "！"))
                else "。"
                if requests.language(last.what) == "zh"
                else "."
            )
            space = "" if mark == "。" or last.what.endswith(("。", "！")) else " "
            out[-1] = last.model_copy(update={"what": f"{last.what}{mark}{space}{asked.what}"})
        elif (
            last
            and last.intent == "correct"
            and asked.intent == "remember"
            and (not asked.who or asked.who == last.who)
        ):
            out[-1] = (
                last.model_copy(update={"what": f"{last.what}. {asked.what}"})
                if last.what
                else asked.model_copy(update={"intent": "correct"})
            )
        elif (
            last and last.intent == "ask_back" and last.doubted == "correct" and asked.intent in ("remember", "correct")
        ):
            out[-1] = asked.model_copy(update={"intent": "correct"})
        else:
            out.append(asked)
    return out


def _is_again(asked: Asked, out: list[Asked]) -> bool:
    """True if a request says again what the one before it says: "nobody should see it, take it away"."""
    if not out:
        return False
    last = out[-1]
    if {asked.intent, last.intent} == {"ask_back", asked.doubted or last.doubted}:
        return not (asked.what and last.what)
    same = asked.intent == last.intent and asked.intent not in ("remember", "recall", "about", "talk")
    return (
        same
        and (not asked.what or asked.what == last.what or not last.what)
        and (asked.with_ == last.with_ or not asked.with_)
        and asked.relation in ("", last.relation)
    )


def _joined(last: Asked, asked: Asked) -> Asked:
    sure = asked if last.intent == "ask_back" and asked.intent != "ask_back" else last
    other = asked if sure is last else last
    return sure.model_copy(
        update={
            name: getattr(sure, name) or getattr(other, name)
            for name in ("what", "who", "with_", "to", "until", "when")
        }
    )


def _things_of(asked: Asked) -> list[str]:
    """What may be called "it" afterwards."""
    if asked.intent in ("remember", "recall", "correct"):
        return references.things_in(asked.what) or _object(asked.what)
    if asked.intent == "about":
        return [asked.what] if asked.what and asked.ask in ("why", "history") else []
    return [asked.what] if asked.intent not in ("talk", "ask_back") else []


def _object(what: str) -> list[str]:
    """ "I collect old maps" -> old maps."""
    found = re.fullmatch(
        r"(?:I|we) (?:also |really )?(?!am|was|have|live|work)[a-z]+ ((?:[a-z]+ ){0,2}[a-z]+s)[.!]?", what
    )
    if found:
        return [found[1]]
    zh = re.fullmatch(r"我(?:在|也)?(?:收集|养|喜欢|爱|种|研究|教|画|写|买|卖)了?([\u4e00-\u9fff]{2,6})[。！]?", what)
    return [zh[1]] if zh else []


def _sentences(text: str) -> list[str]:
    parts = requests.sentences(text.strip())
    return parts or [text.strip()]


def _told(text: str) -> list[str]:
    """The sentences of a message, without what asks for nothing; all of it where nothing else is said."""
    every = _sentences(text)
    return [plain for sentence in every if (plain := _without_asides(sentence))] or every


def _without_asides(sentence: str) -> str:
    """Without the clauses that only excuse or thank, and with hasty spellings put right; "" where nothing is left."""
    words = book("zh" if requests.language(sentence) == "zh" else "en")
    sentence = words.hasty.sub(lambda word: str(words.raw["hasty"][word[0].lower()]), sentence)
    parts = re.split(r"([,，;；:：]\s*|\s[-–—]+\s*|——)", sentence)
    kept = [
        (clause, mark)
        for clause, mark in zip(parts[::2], [*parts[1::2], ""], strict=True)
        if clause.strip() and not words.asides.fullmatch(clause.strip().rstrip(".!?。！？~ "))
    ]
    plain = "".join(clause + mark for clause, mark in kept).strip(" ,，;；")
    last = sentence.rstrip()[-1:]
    return plain if not kept or plain.endswith(last) or last not in "。." else plain + last


def _pieces(sentence: str, words: Book, about: Known, today: date) -> Iterator[tuple[Asked, bool]]:
    """(what is asked for, True if a form of the book says so) of each part of a sentence."""
    if topical := _of_topic(sentence, words, about, today):
        head, told = topical
        stated = _plain(head, words, about, today)
        if _tells(stated, [told]):
            yield stated.model_copy(update={"kept": True}), True
        yield told, True
        return
    whole = _formed(sentence, words, about, today)
    if whole and not _several(sentence, words, about, today):
        yield whole, True
        return
    opening = words.openings["correct"].match(sentence)
    opened = opening.end() if opening else 0
    start, cuts = 0, [cut for cut in _CUT[words.language].finditer(sentence) if cut.start() >= opened]
    pieces: list[str] = []
    for cut in cuts:
        if cut.start() <= start or cut.end() >= len(sentence):
            continue
        left, right = sentence[start : cut.start()], sentence[cut.end() :]
        if _begins(right, words, _after(left, words, about, today), today) or (
            _formed(left, words, about, today) and _begins(right, words, about, today, plain=_joins(cut[0]))
        ):
            pieces.append(left)
            start = cut.end()
    pieces.append(sentence[start:])
    if len(pieces) == 1 and not whole:
        for cut in cuts:  # what follows tells why
            if cut.start() and (asked := _formed(sentence[: cut.start()], words, about, today)):
                yield asked, True
                rest = _plain(sentence[cut.end() :], words, about, today)
                if _tells(rest, [asked]):
                    yield rest.model_copy(update={"kept": True}), True
                return
    if len(pieces) == 1:
        if asked := whole or _cued(sentence, words, about, today):
            yield asked, True
        else:
            yield _plain(sentence, words, about, today), False
        return
    for n, piece in enumerate(pieces):
        asked = _formed(piece, words, about, today) or _cued(piece, words, about, today)
        read_ = asked or _plain(piece, words, about, today)
        joined = n + 1 < len(pieces) and bool(
            re.search(
                r"(?:, |; |\s)(?:and|also|plus)\b|另外|还有|然后",
                sentence[
                    sentence.find(piece) + len(piece) : sentence.find(pieces[n + 1], sentence.find(piece) + len(piece))
                ],
            )
        )
        keep = joined or read_.intent == "correct" or bool(words.openings["remember"].match(_led(piece, words)))
        yield (
            read_.model_copy(update={"kept": keep}),
            asked is not None or read_.intent == "correct" or (read_.intent == "recall"),
        )
        about = about.with_(
            [read_.who]
            if read_.who not in ("", "user")
            else references.names_in(f"{read_.with_} {read_.what}".strip()),
            _things_of(read_),
        )


def _of_topic(sentence: str, words: Book, about: Known, today: date) -> tuple[str, Asked] | None:
    """(the clause before, the request) of a request whose object the clause before it names: "the menu gets used a lot, so cache it"."""
    for cut in _CUT[words.language].finditer(sentence):
        head, tail = sentence[: cut.start()], sentence[cut.end() :]
        if not head or not tail or not (topic := _topic(head, words)):
            continue
        if words.openings["remember"].match(_led(head, words)) or words.openings["correct"].match(_led(head, words)):
            return None
        if _formed(head, words, about, today) or _is_question(head, words):
            return None
        named = references.resolved(topic, about)[0]
        asked = _formed(
            tail,
            words,
            replace(about, people=(*about.people, *references.names_in(named)), things=(named,), alike=1),
            today,
        )
        if asked and asked.intent in _ON_MEMORIES and asked.what == named:
            return head, asked
    return None


def _topic(head: str, words: Book) -> str:
    """What a statement is about, where it is a thing with a name."""
    if words.language == "en":
        first = references.phrases_in(
            re.sub(r"^(?:The|My|Our|His|Her|Their)\b", lambda m: m[0].lower(), _led(head, words))
        )
        return next((t for t in first if not _STATE.search(t)), "")
    found = _ZH_TOPIC.match(re.sub(r"^(?:哎|唉|嗯|那个|我觉得)[，,]?", "", head))
    thing = (found["moved"] or found["of"]) if found else ""
    return (
        ""
        if re.fullmatch(r"(?:我|你|您|他|她|它|我们|大家|谁|这|那).{0,1}|有人|今天|昨天|现在|最近", thing or "我")
        else thing
    )


def _joins(cut: str) -> bool:
    return bool(re.search(r"and|then|also|然后|另外|还有|[：:]", cut))


def _several(sentence: str, words: Book, about: Known, today: date) -> bool:
    """True if another request begins within a sentence that a form fits as a whole."""
    return any(
        cut.start() > 0
        and _begins(sentence[cut.end() :], words, _after(sentence[: cut.start()], words, about, today), today)
        and _formed(sentence[: cut.start()], words, about, today)
        for cut in _CUT[words.language].finditer(sentence)
    )


def _after(left: str, words: Book, about: Known, today: date) -> Known:
    """What is known once a first request has been read."""
    asked = _formed(left, words, about, today)
    return about.with_([], _things_of(asked)) if asked else about


def _begins(text: str, words: Book, about: Known, today: date, plain: bool = False) -> bool:
    """True if a request begins here: a form fits what follows, or its first part; a question too."""
    ends = [cut.start() for cut in _CUT[words.language].finditer(text) if cut.start() > 0]
    for end in [len(text), *reversed(ends)]:
        part = text[:end]
        if _formed(part, words, about, today) or words.openings["remember"].match(_led(part, words)):
            return True
    return _is_question_start(text, words) or (plain and bool(_FIRST.match(text)))


def _is_question_start(text: str, words: Book) -> bool:
    if words.language == "zh":
        return bool(re.search(r"[吗呢？?]$|什么|哪[儿里个些]|谁|多少|怎么", text)) and not text.startswith(
            ("因为", "所以")
        )
    return bool(
        re.match(
            r"(?:who|what|where|when|why|how|which|does|do|did|is|are|can|could|will|would|has|have)\b",
            _led(text, words),
            re.IGNORECASE,
        )
    ) and text.rstrip().endswith("?")


# -- one part ------------------------------------------------------------------------------------------


def _led(text: str, words: Book) -> str:
    """Without what stands before a request: a greeting, "then", politeness."""
    text = text.strip()
    while (found := words.lead.match(text)) and found.end() and found.end() < len(text):
        if any(words.openings[kind].match(text) for kind in ("remember", "correct")):
            break
        text = text[found.end() :]
    return text


def _bare(text: str, words: Book) -> Iterator[str]:
    """The request as the forms have it: without lead, politeness and tail, with the verb's plain form."""
    text = text.strip(" \t,，;；.。!！~")
    seen: set[str] = set()
    queue = [text]
    while queue:
        at = queue.pop(0)
        if at in seen or not at:
            continue
        seen.add(at)
        yield at
        plain = re.sub(r"(?<=\w)[?？]+$", "", at).strip()
        if plain != at:
            queue.append(plain)
        if (tail := words.tail.search(at)) and tail.start() > 0:
            queue.append(at[: tail.start()].strip(" ,，"))
        if (lead := words.lead.match(at)) and 0 < lead.end() < len(at):
            queue.append(at[lead.end() :])
        if (before := words.before.match(at)) and before.end() < len(at):
            queue.append(at[before.end() :])
        if words.gerund and (gerund := words.gerund.match(at)):
            rest = at[gerund.end() :]
            for ing, verb in words.gerunds.items():
                if rest.lower().startswith(f"{ing} "):
                    queue.append(f"{verb}{rest[len(ing) :]}")
                    break


def _formed(text: str, words: Book, about: Known, today: date) -> Asked | None:
    """What a form of the book says; None where none fits."""
    if words.language == "zh":
        text = re.sub(r"(?<=[\u4e00-\u9fff])\s+(?=[\u4e00-\u9fff])", "", text)
        text = re.sub(
            r"(?<![你您])(?:能不能|可不可以|能否|可否)|(?:行不行|行不|好不好|成不成|可以不|好吗|可以吗|行吗|能吗)[？?]?$",
            "",
            text,
        )
        if _ZH_TOLD.fullmatch(text.strip(" 。！!")):
            return None
    if len(text) > _LONGEST or words.talk.fullmatch(text.strip()):
        return None
    stripped = list(_bare(text, words))
    if any(words.vague_correct.fullmatch(at) for at in stripped) and not (
        stripped and words.talk.fullmatch(stripped[-1])
    ):
        return Asked(intent="ask_back", doubted="correct")
    if any(words.openings["remember"].match(at) for at in stripped[:1]) and not re.match(
        r"(?:remember|learn|know|keep|store|add|save) ", stripped[0], re.IGNORECASE
    ):
        return None
    pointed = ""
    if (
        words.language == "zh"
        and len(about.things) == 1
        and len(text) <= 16
        and not re.search(r"[把将它我]", stripped[-1])
    ):
        pointed = f"把它{stripped[-1]}"
        stripped = [pointed, *stripped]
    asks = (
        words.language == "zh"
        and _ZH_ASKS.search(text)
        and not re.match(r"(?:你|您)?(?:可以|能|可否|方便)?(?:让|给|把|帮|请|忘|允许)", text)
    )
    generic = words.language == "en" and _of_the_world(text)
    for at in stripped:
        until, rest = times.until(at, today)
        for match in words.matches(rest.strip(" ,，")) if until else ():
            if match.form.intent == "share" and (asked := _filled(match, words, about, today)):
                return asked.model_copy(update={"until": until})
        for match in words.matches(at):
            if match.form.intent != "about" and (asks or generic):
                continue
            if at is pointed and match.what != "它":
                continue
            if at != stripped[-1] and (lead := words.lead.match(match.what)) and lead.end() < len(match.what):
                continue  # fits without it too
            if asked := _filled(match, words, about, today):
                return asked
    for at in stripped:
        for form in words.correct:
            if (found := form.fullmatch(at)) and not _is_question(at, words):
                return _changed(found, words, about, today)
    return None


def _of_the_world(text: str) -> bool:
    """True for "can you freeze cooked rice?": what is meant is nobody's, and no memory has a name like that."""
    return bool(
        re.match(r"(?:can|could|should|may|do|does|will|would|is|are) (?!you please|we please)", text, re.IGNORECASE)
        and text.rstrip().endswith("?")
        and not re.search(
            r"\b(?:my|our|the|that|this|these|those|it|them|his|her|their|your|everything|all|please|what|where|when|how|who|about|[A-Z][a-z]+(?:['’]s)?)\b",
            re.sub(r"^\w+ ", "", re.sub(r"\b(?:after|before|when|once|if|while)\b.*", "", text)),
        )
    )


def _cued(text: str, words: Book, about: Known, today: date) -> Asked | None:
    """What the cues of a request say that no form fits."""
    stripped = list(_bare(text, words))
    if _of_the_world(text) if words.language == "en" else _ZH_TOLD.fullmatch(text.strip(" 。！!")):
        return None
    if not stripped or len(text) > _LONGEST or words.talk.fullmatch(text.strip()):
        return None
    if any(words.openings[kind].match(stripped[0]) for kind in ("remember", "correct")):
        return None
    for at in stripped[-1:]:
        until, rest = times.until(at, today)
        for match in cues.matches(rest if until else at, words, about):
            if match.form.intent == "rollback":
                to = match.to or _cued_state(at, words, today)
                match = replace(match, to=to)
                if not to and not match.what:
                    continue
            asked = _filled(match, words, about, today)
            if asked:
                return asked.model_copy(update={"until": until}) if asked.intent == "share" and until else asked
    return None


def _cued_state(text: str, words: Book, today: date) -> str:
    """The day or "the previous version", where no version is named."""
    if found := times.find(text, today):
        return text[found.span[0] : found.span[1]]
    if words.language == "zh":
        return "" if re.search(r"(?:旧|老|早|以前的)(?:的)?版", text) else "上一个版本"
    return (
        "an older version"
        if re.search(r"\b(?:an|some|any) (?:older|earlier|old|previous)\b", text)
        else "the previous version"
    )


def _changed(found: re.Match[str], words: Book, about: Known, today: date) -> Asked:
    """ "Change my address to 8 Canal Row" -> my address is now 8 Canal Row."""
    what, new = found["what"].strip(), found["new"].strip()
    if what.lower() in _PARTICLES:
        return Asked(intent="ask_back", doubted="correct")
    if words.pronouns.fullmatch(what):
        things = references.thing_of(what, about)
        if not things:
            return Asked(intent="ask_back", doubted="correct")
        what = things[-1]
    what = references.resolved(what, about)[0]
    statement = f"{what} is {new}" if words.language == "en" else f"{what}是{new}"
    return _with_when(Asked(intent="correct", what=statement, who=_who(statement)), today)


def _filled(match: Match, words: Book, about: Known, today: date) -> Asked | None:
    """The arguments of a form that fits. None where its words are not what it is about after all."""
    intent, what, with_ = match.form.intent, match.what, match.with_
    if words.language == "zh":
        what = re.sub(r"^(?:让|把|将|给)(?=它)", "", what)
        if intent == "thaw":
            what = re.sub(r"(?<=.)的?(?:锁|锁定|冻结|写?保护|编辑限制)(?:状态)?$", "", what)
        if re.fullmatch(
            r"(?:统统|通通|全都变?|全部|全|都|永久|彻底|给我|从今往后|从今以后|从现在起|以后|今后|现在)+", what
        ):
            what = ""
    if intent in ("forget", "rollback", "share") and _NO_MEMORY.search(what):
        return None
    if what.lower() in _PARTICLES or (words.language == "zh" and intent != "about" and _ZH_NO_THING.search(what)):
        return None
    if intent == "about":
        return _about(match, words, about)
    if not what and intent in ("promote", "demote", "freeze", "thaw", "share", "rollback", "unshare") and about.things:
        what = about.things[-1] if about.alike <= 1 or intent not in _DESTRUCTIVE else ""
    what, unsure = _meant(what, words, about)
    who_unsure = False
    if with_:
        if _NO_PARTNER.match(with_) or any(with_ in n and with_ != n for n in _names_of(match, words)):
            return None
        partners = {partner for _, partner in about.shared}
        if len(partners) == 1 and words.pronouns.fullmatch(with_):
            with_ = partners.pop()
        with_, who_unsure = _partner(with_, words, about)
        if not with_:
            return None
    if intent == "unshare" and len(set(about.shared)) == 1:
        (thing, partner) = about.shared[-1]
        if not what or what in ("there", "here") or words.pronouns.fullmatch(what):
            what, unsure = thing, False
        with_ = with_ or partner
    to: str | int = match.form.to
    if intent == "rollback":
        told = _to(match.to, words, today) if match.to else "previous"
        if told is None:
            return None
        if told == "" or not what or words.pronouns.fullmatch(what):
            return Asked(intent="ask_back", doubted="rollback", what=_telling(what, words))
        to = told
    if intent == "promote" and not what:
        return None
    if intent in _DESTRUCTIVE and (unsure or who_unsure or _is_vague(what, words, about) or not what):
        if intent == "unshare" and not unsure and not who_unsure and what and not words.pronouns.fullmatch(what):
            pass
        else:
            told_what = _telling(match.what, words)
            return Asked(intent="ask_back", doubted=intent, what=told_what)
    if intent == "unshare" and not with_ and not what:
        return Asked(intent="ask_back", doubted="unshare")
    who = _who(what) if intent in _WITH_WHO else ""
    relation = match.relation if intent == "share" and match.relation != "reader" else ""
    return Asked(intent=intent, what=what, who=who, with_=with_, to=to, relation=relation)


def _names_of(match: Match, words: Book) -> list[str]:
    """The names that a form may have cut in two."""
    return references.names_in(f"{match.with_}{match.what}") if words.language == "zh" else []


def _telling(what: str, words: Book) -> str:
    """What an ambiguous request says of what it means; empty where it only points."""
    what = re.sub(r"(?:了|吧)+$", "", what.strip())
    return "" if words.pronouns.fullmatch(what) else what


def _partner(name: str, words: Book, about: Known) -> tuple[str, bool]:
    """(with whom something is shared, True if that could be several)."""
    name = name.strip(" ,，")
    if words.language == "en":
        name = re.sub(
            r"^(?:the |our |my )?(?:group|team|user|agent|colleagues?)(?: (?:called|named))? (?=\w)",
            "",
            name,
            flags=re.IGNORECASE,
        )
        if re.fullmatch(
            r"(?:any(?:one|body|thing)|some(?:one|body)|people|others|no[- ]?one)(?: else)?", name, re.IGNORECASE
        ):
            return "", False
        if re.match(r"(?:the|my|our) ", name, re.IGNORECASE) and not _GROUP.match(name):
            return "", False
        name = re.sub(r"^(?:the|our) ", "", name, flags=re.IGNORECASE)
        name = re.sub(r"['’]s$", "", name)
        if name.lower() in ("she", "her", "he", "him", "they", "them"):
            base = {"her": "she", "him": "he", "them": "they"}.get(name.lower(), name.lower())
            who = references.person_of(base, about)
            return (who[-1], len(who) > 1) if who else (name, True)
        return name, False
    name = re.sub(r"(?:了|吧|也|都)+$", "", name)
    if re.search(r"任何人|^别人$|^他人$|^人$|^大家$|什么|谁|哪|怎|生了|我$|你$", name) or not name:
        return "", False
    name = re.sub(r"^(?:用户|群组|小组|同事|我的?)(?=[\u4e00-\u9fffA-Za-z])", "", name)
    if re.fullmatch(r"[她他](?:们)?", name):
        return (about.people[-1], len(about.people) > 1) if about.people else (name, True)
    return name, False


def _meant(what: str, words: Book, about: Known) -> tuple[str, bool]:
    """(what is meant, with what it points to put in its place; True if that could be several)."""
    what = what.strip(" ,，")
    if words.language == "zh":
        what = (
            re.sub(r"(?:了|吧|啊|也|都|就|先|全部?|，|。)+$", "", what)
            if not re.search(r"[^了]了$", what) or len(what) > 1
            else what
        )
        what = re.sub(
            r"^(?:再|重新|先|请|就|那?把|对|我(?:想|要|希望|觉得)|麻烦|让|想请[你您]|想)(?=[\u4e00-\u9fffA-Za-z]{2})",
            "",
            what,
        )
        what = (
            re.sub(
                r"(?:从现在开始|从现在起|从今往后|从此以后|从此|以后|今后|现在|可以|应该|能|的话|吗|全都|统统|给我|[，,])+$",
                "",
                what,
            )
            or what
        )
    if words.language == "en":
        what = re.sub(
            r"(?:,? (?:please|pls|again|too|as well|instead|now|for now|then|any ?more|any ?longer|from now on|straight away|right away|for good|at all))+$",
            "",
            what,
        )
        if what.lower() in ("me", "myself"):
            return what, False
        what = re.sub(r"(?<=\w) (?:warm|hot|ready|back a version|back one version|back|down)$", "", what)
    if words.pronouns.fullmatch(what):
        things = references.thing_of(what, about)
        if things:
            return things[-1], len(things) > 1 and about.alike > 1
        return what, False
    if words.language == "zh" and len(named := [t for t in about.things if t.endswith(what) and t != what]) == 1:
        return named[0], False
    if words.language == "en" and re.match(r"(?:that|this|those|these) \w+(?: \w+)?$", what, re.IGNORECASE):
        things = references.thing_of(what, about)
        if things:
            return things[-1], len(things) > 1
    if words.language == "zh" and re.match(r"[这那]", what):
        things = references.thing_of(what, about)
        if things:
            return things[-1], len(things) > 1
    return references.resolved(what, about)


def _is_vague(what: str, words: Book, about: Known) -> bool:
    """True if words do not tell what is to be destroyed."""
    if not what or words.pronouns.fullmatch(what) or words.before_words.search(what):
        return True
    if words.language == "zh":
        bare = re.sub(r"^(?:关于|有关|所有|全部|一切)", "", what)
        if words.nouns.search(bare) and re.search(
            r"[这那]|一些|某些|有些|几[条个]|之前|以前|旧的?(?:东西|信息|记录|数据)|哪|另", what
        ):
            return True
        return bool(re.match(r"[这那]", what)) and not references.thing_of(what, about)
    if re.match(
        r"(?:some|a few|several|one|a couple|any|either|most|half|certain) (?:of )?", what, re.IGNORECASE
    ) and not re.search(r"\b(?:about|on|regarding|concerning|where|who|from)\b", what):
        return True
    plain = re.sub(
        r"^(?:all |all of |both |some of |any of |one of |every |each |most of )?(?:the |that |this |those |these |my |your |an? |some |old |older |newer |earlier |previous |former |latest |recent |other |last |first |whole |certain )*",
        "",
        what,
        flags=re.IGNORECASE,
    )
    head, *rest = plain.split() or [""]
    if re.fullmatch(
        r"(?:versions?|revisions?|states?|wordings?|drafts?|ones?|both|all|lot|rest|others?)", head, re.IGNORECASE
    ) and not re.match(r"(?:of|about|from|for)$", (rest or [""])[0]):
        return True
    if words.nouns.fullmatch(head):
        return (
            bool(re.match(r"(?:the |that |this |those |these |some |an? )", what, re.IGNORECASE))
            and not re.match(r"(?:all|everything)\b", what)
            and (
                head.lower()
                in (
                    "thing",
                    "things",
                    "stuff",
                    "one",
                    "ones",
                    "bit",
                    "bits",
                    "matter",
                    "business",
                    "item",
                    "items",
                    "part",
                    "piece",
                )
                or not words.restricts.search(" ".join(rest))
            )
        )
    if re.match(r"(?:that|this|those|these) ", what, re.IGNORECASE):
        return not references.thing_of(what, about)
    if re.match(r"the \w+$", what, re.IGNORECASE) and about.said:
        head = what.lower().split()[-1]
        near = [line for line in about.said if re.search(rf"\b{re.escape(head)}", line.lower())]
        return len(near) != 1
    return False


def _to(words_: str, words: Book, today: date) -> str | int | None:
    """A version, "previous", a day; "" for any earlier one; None where the words name no state of a memory."""
    told = words_.strip(" ,，.。的")
    told = re.sub(r"^(?:back to |to )", "", told)
    if found := _VERSION.fullmatch(told) or _VERSION.fullmatch(re.sub(r"(?:的样子|的内容|的状态|那版)$", "", told)):
        if found["first"]:
            return 1
        number = next(v for v in found.groupdict().values() if v)
        return _int(number)
    if words.previous.fullmatch(told):
        return "previous"
    if words.some.fullmatch(told):
        return ""
    if (when := times.find(told, today) or times.find(f"on {told}", today)) and re.search(r"\d|[a-z]", when.when):
        return when.when.split("/")[0]
    return None


def _int(word: str) -> int:
    if word.isdigit():
        return int(word)
    if word.lower() in _NUMBER:
        return _NUMBER[word.lower()]
    digits = dict(zip("一二三四五六七八九", range(1, 10), strict=True)) | {"两": 2}
    tens, ten, ones = word.partition("十")
    return (digits.get(tens, 1) * 10 + digits.get(ones, 0)) if ten else digits.get(word, 1)


def _about(match: Match, words: Book, about: Known) -> Asked:
    """A question about the memory itself."""
    ask, what = match.form.ask, match.what
    if ask == "why":
        if not what or words.pronouns.fullmatch(what):
            what = about.said[-1] if about.said else ""
    elif what:
        if words.pronouns.fullmatch(what):
            found = (
                references.thing_of(what, about)
                if what.lower() in ("it", "that", "this", "它", "这个", "那个", "这", "那")
                else []
            )
            what = found[-1] if found else references.resolved(what, about)[0]
        else:
            what = _meant(what, words, about)[0]
        what = re.sub(r"(?<=\w)['’]s$", "", what) if ask == "history" and not re.search(r"\b\w+['’]s ", what) else what
    elif ask == "history" and about.things:
        what = about.things[-1]
    return Asked(intent="about", ask=ask, what=what.strip(" ?？"))


# -- statements, questions, talk -----------------------------------------------------------------------


def _plain(text: str, words: Book, about: Known, today: date) -> Asked:
    """A part that no form fits."""
    text = text.strip()
    if words.talk.fullmatch(text):
        return Asked(intent="talk")
    led = _led(text, words)
    corrects, remembers = False, False
    for _ in range(3):
        if opening := words.openings["correct"].match(text) or words.openings["correct"].match(led):
            at = led if words.openings["correct"].match(led) and not words.openings["correct"].match(text) else text
            rest = at[opening.end() :]
            if rest.strip() and not _is_question(rest, words):
                if again := _formed(rest, words, about, today):
                    return again
                if words.talk.fullmatch(rest):
                    return Asked(intent="talk")
                text, led, corrects = rest, _led(rest, words), True
                continue
        if (opening := words.openings["remember"].match(led) or words.openings["pronoun"].match(led)) and led[
            opening.end() :
        ].strip():
            rest = led[opening.end() :].strip()
            if not _is_question(rest, words) or rest.endswith(("?", "？")):
                text, led, remembers = (
                    rest.rstrip("?？ ") if rest.endswith(("?", "？")) else rest,
                    _led(rest, words),
                    True,
                )
                continue
        break
    if (after := words.after.search(text)) and after.start() > 0 and not _is_question(text[: after.start()], words):
        text, remembers = text[: after.start()], True
        led = _led(text, words)
    if not remembers and not corrects and _is_question(led, words):
        return _question(led, words, about, today)
    statement = (
        led
        if (words.language == "zh" or re.match(r"(?:I|[Mm]y|The|[A-Z])", led) or remembers or corrects or led != text)
        else text
    ).strip()
    return _statement(statement, words, about, today, remembers, corrects)


def _is_question(text: str, words: Book) -> bool:
    text = text.strip()
    if not text:
        return False
    if text.endswith(("?", "？")):
        return True
    if words.language == "zh":
        bare = text.rstrip("。！!. ")
        return bool(
            re.search(
                r"[吗呢么](?:来着)?$|什么|哪[儿里个些位年天种家]|谁(?!都|也)|多少|几[个岁点号月条次只天]|怎么(?!都)|为什么|何时|如何|多[长大高远久重快深]|来着$|怎样|咋|是不是|有没有|能不能|会不会|记不记得|知道.*吗",
                bare,
            )
        ) and not re.search(r"什么都|谁都|哪里都|没什么|不知道怎么|告诉过", bare)
    if words.openings["recall"].match(text) and words.clause.match(text[words.openings["recall"].match(text).end() :]):  # type: ignore[union-attr]
        return True
    return bool(
        (
            re.match(
                r"(?:(?:at|on|in|to|for|with|from|by|of|since|until) (?:what|which|whom|whose|when)|who|whose|whom|what|which|where|how|why|whats|wheres|whos|hows|what['’]s|where['’]s|who['’]s|how['’]s|when['’]s|does|do|did|is|are|am|was|were|can|could|should|has|have|had|isn['’]?t|aren['’]?t|doesn['’]?t|don['’]?t|didn['’]?t|wasn['’]?t|would|when (?:do|does|did|is|are|am|was|were|will|can|should|has|have))\b",
                text,
                re.IGNORECASE,
            )
            and not re.match(
                r"(?:what a|how (?:nice|lovely|cool|funny|sweet|sad)|do not|don['’]t|have a|(?:is|are|can|did) [a-z]+ing\b|which is|when I)\b",
                text,
                re.IGNORECASE,
            )
        )
        or re.match(
            r"(?!make (?:it|that) )(?:tell|show|give|explain|describe|list|translate|write|summari[sz]e|calculate|compute|define|recommend|suggest|name|compare|convert|find|help|sing|recite|draft|spell|make|create|teach|search|look up|remind)\b (?!in |up )",
            text,
            re.IGNORECASE,
        )
    )


def _question(text: str, words: Book, about: Known, today: date) -> Asked:
    """Something to be answered."""
    what = text
    if opening := words.openings["recall"].match(text):
        rest = text[opening.end() :].strip()
        if rest and words.clause.match(rest):
            what = rest
    if words.language == "zh":
        what = re.sub(r"^(?:你)?(?:还)?(?:知道|记得)(?=.{3,})", "", what)
        if what != text:
            what = re.sub(r"[了吗]+[？?]?$", "", what)
    plain, _ = references.resolved(what, about)
    plain = _its(plain, words, about)
    return _with_when(Asked(intent="recall", what=plain, who=_who(plain)), today)


def _its(text: str, words: Book, about: Known) -> str:
    """With the thing for "it", "that café" or "them", where one thing alone was spoken of."""
    if words.language == "zh":
        for match in re.finditer(
            r"[这那][个只条家本份张件间辆台部座所套幅篇首款处种位名][\u4e00-\u9fff]{1,3}?(?=[的在是有了离里，？。能会开叫怎多还几吗])",
            text,
        ):
            things = references.thing_of(match[0], about)
            if things:
                return text.replace(match[0], things[-1])
        return re.sub(r"它(?!们)", about.things[-1], text) if about.things else text
    for match in re.finditer(r"\b(?:that|this|the) ((?:[a-zé]+ )?[a-zé]+)\b", text, re.IGNORECASE):
        for words_ in (match[0], match[0].rsplit(" ", 1)[0]):
            if len(words_.split()) < 2 or match[0].lower().startswith("the "):
                continue
            things = [thing for thing in references.thing_of(words_, about)]
            if things:
                return text.replace(words_, things[-1], 1)
    if (
        about.things
        and re.search(r"\b(?:it|its|them)\b", text)
        and not re.search(
            r"\bit (?:rains?|snows?|is raining|takes|seems|was raining|is (?:cold|hot|late))\b", text, re.IGNORECASE
        )
    ):
        before = references.things_in(text[: re.search(r"\b(?:it|its|them)\b", text).start()])  # type: ignore[union-attr]
        if not before:
            thing = about.things[-1]
            text = re.sub(r"\bits\b", f"{thing}'s", text, count=1)
            text = re.sub(r"\b(?:it|them)\b(?!['’])", thing, text, count=1)
            text = re.sub(r"\bit['’]s\b", f"{thing} is", text, count=1)
    if about.things and (found := re.match(r"it(?:['’]s| is)\b", text, re.IGNORECASE)):
        text = f"{about.things[-1]} is{text[found.end() :]}"
    elif about.things and (found := re.match(r"it\b", text, re.IGNORECASE)):
        text = f"{about.things[-1]}{text[found.end() :]}"
    return text


def _statement(text: str, words: Book, about: Known, today: date, remembers: bool, corrects: bool) -> Asked:
    text = text.strip().strip(" ,，;；")
    text = re.sub(r"[.。!！]+$", "", text).strip()
    if not text:
        return Asked(intent="ask_back", doubted="correct") if corrects else Asked(intent="talk")
    if not (remembers or corrects) and _is_talk(text, words, about):
        return Asked(intent="talk")
    plain, _ = references.resolved(text, about)
    plain = _its(plain, words, about)
    intent = "correct" if corrects or (not remembers and words.stated.search(plain)) else "remember"
    return _with_when(Asked(intent=intent, what=plain, who=_who(plain)), today)


def _is_talk(text: str, words: Book, about: Known) -> bool:
    """True for a statement with nothing in it to keep: about the talk itself, the listener, or a passing mood."""
    if requests.is_worth_keeping(text, "User") and not re.match(r"(?:you|your)\b", text, re.IGNORECASE):
        return False
    if words.language == "zh":
        if re.search(r"\d|我(?:的|家|妈|爸|哥|姐|弟|妹|们)", text) or references.names_in(text):
            return False
        if re.match(
            r"(?:你|您)(?!的)|(?:这|那)(?:真|太|就|很|还|可|也|样|倒|话|主意|下)|(?:真|太|好|多|可)[^，]{1,6}[啊呀了的]|(?:哈|嗯|哦|哇|唉|嘿|哎)",
            text,
        ):
            return True
        return len(text) <= 3 or (
            bool(re.search(r"(?:啊|呀|哈|呢|嘛|啦|哦|耶|吧)$", text)) and not about.things and len(text) <= 14
        )
    plain = text.strip()
    words_ = re.findall(r"[\w'’-]+", plain)
    concrete = (
        re.search(r"\d", plain)
        or re.search(r"(?<!^)(?<![.!?] )\b[A-ZÀ-Þ][a-zà-ÿ]{2,}", plain)
        or references.names_in(plain)
    )
    told = re.search(
        r"\b(?:my|our) (?!day|time|god|goodness|mind|bad|way|pleasure|turn|thoughts?|point|ears|eyes|head|dear|friend)\w+",
        plain,
        re.IGNORECASE,
    )
    if re.match(
        r"(?:if|let['’]?s|maybe|perhaps|what a|how|wow|well|ha+|oh|ah|phew|yay|haha|so|whatever|anyway|nothing|no)\b",
        plain,
        re.IGNORECASE,
    ):
        return not (concrete or told)
    if re.match(r"(?:i['’]?m|i am) (?:not )?(?:an? |the )?[a-z]+-[a-z]+$", plain, re.IGNORECASE):
        return False
    if re.match(r"there (?:is|are|was|were|['’]s)\b", plain, re.IGNORECASE):
        return not re.search(r"\b(?:in|at|on|under|behind|near|by)\b", plain)
    if concrete or told:
        return bool(re.match(r"(?:you(?:['’]re)?|your|that['’]?s|thanks|thank)\b", plain, re.IGNORECASE)) and not told
    if re.search(r"\b(?:you|your|yours|you['’]\w+)\b", plain, re.IGNORECASE):
        return True
    if re.match(r"(?:that|this|those|these)(?:['’]?s)?\b", plain, re.IGNORECASE):
        return not references.thing_of(" ".join(plain.split()[:2]), about)
    if re.match(r"it(?:['’]?s| is| was| has| feels| looks| sounds| seems)?\b", plain, re.IGNORECASE):
        return not about.things
    if re.match(
        r"(?:i|we)(?:['’](?:m|re|ll|d|ve)| am| feel| was| are)? ?(?:just |so |really |very |quite |pretty |feeling |a bit |a little |rather |too |still |kind of )*(?:tired|bored|happy|sad|excited|hungry|sleepy|glad|sure|fine|good|okay|great|exhausted|stressed|busy|impressed|confused|curious|lost|done|back|ready|better|worse|awful|amazed|surprised|relieved|grateful|thankful|lucky|sick of|fed up|nervous|worried|anxious|annoyed|angry|lonely|freezing|starving|speechless|off|in a (?:good|bad|great) mood|wondering|thinking|guessing|hoping|laughing|smiling|crying|yawning|listening|waiting|kidding|joking|chatting)\b",
        plain,
        re.IGNORECASE,
    ):
        return True
    if re.match(
        r"(?:i|we) (?:just |really |totally |completely |do |also |kind of |sort of )*(?:think|guess|hope|wish|wonder|suppose|agree|disagree|doubt|bet|believe|see|understand|mean|feel|appreciate|can['’]?t (?:wait|believe|complain|stop|help)|could (?:use|do with)|needed that|wanted to (?:say|chat|talk|check)|don['’]?t (?:know|mind|care|get it|think|feel)|should (?:go|sleep|get going|probably)|must (?:go|say|admit)|have to (?:go|run|say|admit)|need (?:a (?:break|coffee|nap|holiday|drink|hug|moment|minute)|to (?:go|run|sleep))|got to|gotta|will (?:think|see|try))\b",
        plain,
        re.IGNORECASE,
    ):
        return True
    if re.match(r"(?:the|an?|some|every|each|all|both|two|three|four) \w+ \w+", plain, re.IGNORECASE):
        return False
    if re.match(
        r"(?:off|back|back to|on) (?:to|my|now|home|it)\b|.*\b(?:such is life|good mood|this more often|for today|long day|done for)\b",
        plain,
        re.IGNORECASE,
    ):
        return True
    return len(words_) < 3 or not _VERBS.search(plain)


_VERBS = re.compile(
    r"\b(?:is|are|am|was|were|has|have|had|do|does|did|will|can|must|should|may|\w+(?:ed|es|s)|go|went|got|get|keep|kept|live|work|like|love|hate|eat|drink|drive|play|speak|use|own|want|need|take|took|make|made|come|came|buy|bought|sell|sold|run|ran|read|wrote|write|study|know|knew|met|meet|see|saw|lost|left|gave|give|put|sleep|slept|start|began|won|moved|grew|wear|wore|hold|held|sit|sat|stand|stood|prefer|collect|teach|taught|learn|sing|swim|smoke|cook|bake|'s|’s|['’]m|['’]ve|['’]re)\b",
    re.IGNORECASE,
)


def _who(text: str) -> str:
    """The person whom words are about: the first that they name; "user" for the speaker."""
    plain = _FIRST_FALSE.sub(lambda m: " " * len(m[0]), text)
    first = _FIRST.search(plain)
    people = [(plain.find(name), name) for name in references.names_in(plain) if plain.find(name) >= 0]
    people += [(plain.lower().find(name.lower()), name) for name in references.names_in(plain) if plain.find(name) < 0]
    at, name = min(people, default=(len(text) + 1, ""))
    if first and first.start() <= at:
        return "user"
    return name


def _with_when(asked: Asked, today: date) -> Asked:
    text = asked.what
    if (
        asked.intent == "correct"
        and (turned := re.search(r"(?:\bnot\b|n['’]?t\b).*?(?:[,;]|\bbut\b)|不是.*?[，,]是?", text))
        and times.find(text[turned.end() :], today)
    ):
        text = text[turned.end() :]
    found = times.find(text, today)
    return asked.model_copy(update={"when": found.when}) if found else asked
