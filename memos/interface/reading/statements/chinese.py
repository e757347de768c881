"""A Chinese sentence -> the facts that it states, and how each holds. Knows Chinese; statements.py knows English.

A clause is a subject, adverbs and a predicate. The adverbs say how it holds (现在, 也, 不再, 以前, 打算, ...); the
predicate is read by the forms of readings_zh.yaml. A clause without a subject has that of the one before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Literal

import yaml

from memos.cube import Fact

Mode = Literal["is", "also", "now", "ended", "was", "will"]
HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_LATIN_WORD = re.compile(r"[A-Za-zÀ-ɏ]+")

_QUESTION = re.compile(r"[吗呢么？?][。！!]*$|什么|哪[里儿个]|谁|怎么|为什么|何时|是不是|是否|有没有|会不会|要不要")
_DOUBT = re.compile(
    r"如果|要是|假如|假设|倘若|也许|可能|或许|大概|说不定|差点|差一点|险些|万一|听说|好像|据说|应该|似乎|恐怕|没准|估计"
    r"|即使|就算|开玩笑|梦见|幻想|恨不得|不确定"
)
_SAYS = re.compile(
    r"^(?!我(?!们|[妈爸哥姐弟妹朋老同女男儿妻丈]))[^，,：:]{1,6}?(?<![会能])(?:说|问|告诉|认为|觉得|以为|建议|劝|听"
    r"|让|叫我|希望)"
)
_CLAUSE = re.compile(
    r"[，,。；;！!\n]+|但是?|不过(?!敏)|所以|因为(?![^，]{1,6}?[搬换跳辞离])|然后|而且|(?<=了)(?=现在)"
)
_BEFORE = (
    ("now", r"现在|如今|目前|眼下|从现在起|从今天起|以后都|从此"),
    (
        "",
        r"已经?|早就|最近|刚刚?|昨天|上个?[月周]|上星期|这个?[月周]|本[月周]|终于|其实|真的|一直|始终|仍然|依然|都"
        r"|就|才|正在?|总算|彻底"
        r"|非常|特别|很|挺|十分|比较|每天|天天|经常|常常?|总是?|平时|一般|通常|主要|一共|今年|近来|说实话"
        r"|因为[^，]{1,6}?(?=[搬换跳辞离])|顺便说一下|对了|嗯|哦|哎|会(?=每|常"
        r"|经|去)",
    ),
    ("most", r"最"),
    (
        "part",
        r"今[天晚早]|晚上|早上|中午|下午|白天|夜里|周末|(?:每个?)?(?:周|星期|礼拜)[一二三四五六日天末](?:早上"
        r"|晚上)?|工作日|平日|睡前|饭后|夏天|冬天",
    ),
    ("also", r"也|还(?!是|没)|另外|此外|同时|除此之外|并且|再(?!也|次)|同样|顺便"),
    ("again", r"又|重新"),
    (
        "past",
        r"以前|曾经?|过去|从前|小时候|之前|原来|原先|当年|当时|那时候?|年轻时候?|(?:上学|读书|上大学|小|年轻"
        r"|刚毕业|[^，]{1,8}?)的时候"
        r"|[从]?\d{4}年?到\d{4}年?|当初|早年|童年",
    ),
    (
        "dated",
        r"去年(?:[春夏秋冬]天)?|前年|[一二三四五六七八九十\d]+月份?(?:[一二三四五六七八九十\d]+[日号])?|几年前"
        r"|[一二三四五六七八九十\d]+年前|上个世纪|\d{4}年(?:\d+月)?",
    ),
    (
        "will",
        r"明年|明天|后天|下个?(?:月|周|星期|学期)|将来|未来|迟早|总有一天|以后|打算|准备|计划|想要?(?!念)"
        r"|要(?!好)|将要?|希望|考虑|本来想|本来|原本|快要?|就要|即将|愿意"
        r"|梦想|期待|正要|决定|申请|应聘|面试|争取|努力|不得不|会(?=[搬换辞离跳从住在去戒改转变放])",
    ),
    ("not", r"不再|再也不|再不|从来不|从不|并不|不是(?=.)|不(?!对|错|好意思)|没有(?=.*了$)|没有|没(?!有)|别"),
)
_ADVERBS = tuple((name, re.compile(form)) for name, form in _BEFORE)
_PRONOUN = re.compile(
    r"[他她它您你]们?|大家|有人|别人|某人|这|那|谁|公司|我们(?:公司|学校|单位|老板|家)|咱们(?:公司|单位)"
)
_FORMER = re.compile(
    r"的?(?:第一|上一|前任|前[妻夫]|旧|老(?=[车家号]))|以前的|过去的|去年的|之前的|原来的|小时候的|曾经的|明年的|未来的"
)
_MEASURE = re.compile(
    r"^(?:了)?(?:[一两二三四五六七八九十几半\d]+|好几)?(?:只|条|个|辆|套|艘|名|位|本|台|部|双|把|匹|点儿?|家|种|些|款"
    r"|头|支|份|杯|间|门|栋|块)(?=.)"
)
_TAIL = re.compile(r"(?:的?了|啦|呀|啊|哦|呢|嘛|吧|的|过|过了|而已|好几年|很多年|多年|[一二三四五六七八九十\d]+年)+$")
_BEEN = re.compile("过了?$|[住待做当学作]过")
_NO_PLACE = re.compile(r"(?:楼|厅|室|公寓里?|宿舍|房子里?|房间|一起|附近|旁边|隔壁|里|边|校)$")
_LISTED = re.compile(r"、|和|跟|与|以及|还有")
_VERB_OF_OBJECT = re.compile(r"^(?:打|踢|弹|拉|吹|下|玩|学|练|看|听|读|敲)(?=.)")


@dataclass
class _Cues:
    """What the adverbs of a clause say."""

    names: set[str] = field(default_factory=set)

    def mode(self, text: str) -> Mode | None:
        """How the clause holds; None where it states nothing."""
        names = self.names
        if "will" in names:
            return None if "not" in names else "will"
        if "past" in names:
            return "was"
        if "not" in names:
            part = "part" in names and not re.search(r"再|了[。！]?$", text)
            return None if part or "dated" in names else "ended"
        if "also" in names:
            return "also"
        return "now" if "now" in names else "is"


@dataclass(frozen=True)
class _Form:
    relation: str
    regex: re.Pattern[str]
    mode: Literal["is", "now", "also", "ended"]
    literal: int


@dataclass(frozen=True)
class _Book:
    """readings_zh.yaml, compiled."""

    forms: tuple[_Form, ...]
    over: tuple[re.Pattern[str], ...]
    holds: dict[str, str]
    nouns: dict[str, str]
    many: frozenset[str]
    single: tuple[str, ...]
    places: re.Pattern[str]  # where one works for nobody in particular
    kin: re.Pattern[str]
    name: re.Pattern[str]


def read(sentence: str, speaker: str) -> tuple[list[Fact], list[str]]:
    """The facts, and the clauses that no form reads."""
    text = re.sub(r"(?<=[\u4e00-\u9fff])\s+(?=[\u4e00-\u9fff])", "", sentence.strip())
    if _QUESTION.search(text.rstrip("。！!. ")) or text.endswith(("?", "？")):
        return [], []
    if _DOUBT.search(text) or _SAYS.match(text):
        return [], [text]
    text = re.sub(r"换了?(?:个|一个)?(?P<n>[^，换工]{1,5}?)了?[，,](?:现在|新的)(?:是|叫)", r"的\g<n>换成", text)
    text = re.sub(r"换了?工作了?[，,](?:现在)?(?:在|去了?|到了?)(?=[^，,。]+?[了。！]*$)", "跳槽到", text)
    facts, unread = list[Fact](), list[str]()
    subject, whole = "", ""
    for clause in (part.strip() for part in _CLAUSE.split(text) if part and part.strip()):
        found: list[Fact] = []
        for who, called, rest, cues in _subjects(clause, speaker, subject, whole):
            if found := _predicate(rest, who, cues, clause):
                subject, whole = who, called
                break
            if called and not subject:
                subject, whole = who, called
        facts += found
        if not found:
            unread.append(clause)
    return facts, unread


def _subjects(clause: str, speaker: str, before: str, whole: str) -> Iterator[tuple[str, str, str, _Cues]]:
    """(subject, its words, the rest, cues so far): each way to cut the clause, the surest first."""
    lead = _Cues()
    rest = _stripped(clause, lead)
    if rest.startswith(("不对", "不是的")):
        rest = rest[2:]
    if _PRONOUN.match(rest):
        return
    book = _book()
    if mine := re.fullmatch(
        r"(?P<o>[^，是我]{1,8}?)(?P<cue>现在|也|还|曾经?|以前|过去|之前)?是(?:我|我们)的?(?P<noun>[^，的]{1,6}?)了?",
        rest,
    ):
        noun = mine["noun"]
        if mine["cue"] in ("曾", "曾经", "以前", "过去", "之前"):
            return
        if speaker and (noun in book.nouns or noun.endswith((*book.single, "朋友"))):
            friend = f"和{mine['o']}是朋友" if noun.endswith("朋友") and noun not in book.nouns else ""
            yield speaker, "我", friend or f"的{noun}{mine['cue'] or ''}是{mine['o']}", lead
        return
    if kin := book.kin.match(rest):
        owner = speaker if kin["who"] in ("我", "我们", "咱们") else kin["who"]
        if owner:
            yield owner, kin["who"], rest[kin.end("who") :], lead  # "我妹妹叫小红" tells of me
            yield f"{owner}的{kin['kin']}", kin[0], rest[kin.end() :], lead
        return
    if first := re.match(r"我们?家(?=[住搬])|我们?|咱们?", rest):
        if speaker:
            yield speaker, first[0], rest[first.end() :], lead
        return
    for length in (2, 3, 4):
        if (named := book.name.match(rest[:length])) and named.end() == min(length, len(rest)):
            yield rest[:length], rest[:length], rest[length:], lead
    if latin := re.match(r"[A-ZÀ-Þ][A-Za-zÀ-ɏ'-]*(?: [A-ZÀ-Þ][A-Za-zÀ-ɏ'-]*)?", rest):
        yield latin[0], latin[0], rest[latin.end() :].strip(), lead
    if before:
        yield before, whole, rest if not re.match(r"新?[^是]{1,6}是", rest) else f"的{rest}", lead


def _stripped(text: str, cues: _Cues) -> str:
    """Without the adverbs in front, which the cues keep."""
    text = text.strip()
    while text:
        for name, form in _ADVERBS:
            if found := form.match(text):
                cues.names.add(name)
                text = text[found.end() :]
                break
        else:
            return text
    return text


def _predicate(rest: str, who: str, cues: _Cues, clause: str) -> list[Fact]:
    """The facts of a predicate: with its adverbs as they stand first, then with fewer of them."""
    cues = _Cues(set(cues.names))
    if _FORMER.match(rest) or re.match(r"的?(?:第一|前)", rest):
        return []
    while rest:
        first = next((name for name, form in _ADVERBS if form.match(rest)), "")
        # "每周一健身" and "最喜欢的菜" are read whole; "打算搬家" is no ball game
        if first in ("", "part", "most") and (found := _forms(rest, who, cues, clause)):
            return found
        for name, form in _ADVERBS:
            if taken := form.match(rest):
                cues.names.add(name)
                rest = rest[taken.end() :]
                if name == "not" and taken[0].startswith("没有"):
                    rest = "有" + rest
                elif name == "not" and taken[0] == "没":
                    return []
                break
        else:
            return []
    return []


def _forms(rest: str, who: str, cues: _Cues, clause: str) -> list[Fact]:
    names = set(cues.names)
    inner = re.sub(r"(?<=.)(?:已经?)?(不再|再也不|不|也|还)(?=过敏|是(?:好)?朋友|感兴趣)", "", rest)
    for cut in re.findall(r"(不|也|还)(?=过敏|再过敏|是(?:好)?朋友|感兴趣)", rest[1:]):
        names.add("not" if cut == "不" else "also")
    if re.search(r"(?<=[\u4e00-\u9fff])也(?=[在做当有])", inner):
        names.add("also")
    inner = re.sub(r"(?<=[\u4e00-\u9fff])也(?=[在做当有])", "", inner) if "also" in names else inner
    mode = _Cues(names).mode(clause)
    if mode is None:
        return []
    bare = _TAIL.sub("", inner)
    if attribute := _attribute(inner, who, mode):
        return attribute
    started = re.sub(r"^(?:开始|恢复)", "", bare)
    book = _book()
    best: tuple[int, _Form, re.Match[str]] | None = None
    ends: list[Fact] = []
    for words in dict.fromkeys((bare, started, inner)):
        for form in book.forms:
            if not (match := form.regex.fullmatch(words)):
                continue
            if form.mode == "ended":
                if mode in ("is", "now", "also") or "again" in names:
                    obj = _bare(match.groupdict().get("o") or "")
                    ends.append(Fact(subject=who, relation=form.relation, object=obj, mode="ended"))
            elif best is None or form.literal > best[0]:
                best = (form.literal, form, match)
        if best or ends:
            break
    if best:
        form, match = best[1:]
        dated = "dated" in names and form.mode == "is"
        been = form.relation != "visited" and bool(_BEEN.search(rest))
        return _facts(form, match, who, mode, "most" in names, been or dated)
    if not ends and mode in ("is", "now", "also"):
        for over in book.over:
            if match := over.fullmatch(bare):
                return [Fact(subject=who, relation="", object=_bare(match["o"]), mode="ended")]
    return list(dict.fromkeys(ends))


def _facts(form: _Form, match: re.Match[str], who: str, mode: Mode, most: bool, been: bool) -> list[Fact]:
    book = _book()
    words = match.groupdict().get("o") or ""
    relation = f"{form.relation} {match['key']}" if "key" in match.groupdict() else form.relation
    if most and relation == "likes" and words.endswith("色"):
        relation = "colour"
    most = most and relation in ("food", "drink", "colour")  # "最喜欢吃火锅", not "最喜欢爬山"
    holds = "one" if most else book.holds.get(relation, "many")
    how: Mode = mode
    if been and mode in ("is", "now"):
        how = "was"
    elif mode == "also" and form.mode == "now":
        how = "now"
    elif mode in ("is", "now") and form.mode == "also":
        how = "also"
    elif mode == "now" or (mode == "is" and form.mode == "now"):
        how = "now" if holds in ("one", "few") or form.mode == "now" else "is"
    if re.match(r"(?:不|没|了$|个$|在|别人|你|被)", words):
        return []
    values = [words] if holds == "one" else [v for v in _LISTED.split(words) if v]
    sole = holds == "one" and how in ("is", "now")
    if (relation == "city" and _NO_PLACE.search(words)) or (relation == "employer" and book.places.fullmatch(words)):
        return []
    cleaned = (_bare(v, form.relation) for v in values)
    return [Fact(subject=who, relation=relation, object=v, mode=how, sole=sole) for v in cleaned if v and v != who]


def _attribute(rest: str, who: str, mode: Mode) -> list[Fact]:
    """ "我的老板是王强", "我把密码改成9024了"."""
    book = _book()
    found = re.fullmatch(
        r"(?!把)的?(?P<new>新)?(?P<noun>[^是叫为换改变]{1,10}?)(?P<now>现在|如今|目前|已经)?(?P<also>也|还)?"
        r"(?P<verb>是|叫做?|为|换成了?|改成了?|改为了?|变成了?|成了|换为|有)(?P<o>[^是]{1,30}?)(?:了|啦)?",
        rest,
    )
    changed = (
        None
        if found
        else re.fullmatch(r"把(?P<noun>.{1,10}?)(?:换成|改成|改为|更新为|设成)了?(?P<o>.{1,30}?)了?", rest)
    )
    if not (match := found or changed):
        return []
    groups = match.groupdict()
    noun, obj = groups["noun"].strip("的 "), groups["o"].strip(" 。！!《》") if groups["o"] else ""
    favourite = noun.startswith(("最喜欢的", "最爱的", "最爱吃的", "最爱喝的", "最喜爱的", "最喜欢吃的", "最喜欢喝的"))
    relation = book.nouns.get(noun, "")
    single = favourite or noun.endswith(book.single) or (relation != "" and relation not in book.many)
    if not (single or relation) or not obj or re.match(r"(?:不|很|非常|太|在|个|一个)", obj):
        return []
    verb = groups.get("verb", "换成") or ""
    if verb == "有" and relation not in book.many:
        return []
    anew = bool(changed or groups.get("new") or groups.get("now") or verb[0] in "换改变成")
    how: Mode = mode
    if groups.get("also") or verb == "有":
        how = "also" if mode in ("is", "now") else mode
    elif mode == "now" or (mode == "is" and anew):
        how = "now" if single else "is"
    sole = single and how in ("is", "now")
    if mode == "ended":
        how = "ended"
    return [Fact(subject=who, relation=relation or noun, object=_bare(obj), mode=how, sole=sole)]


def _bare(words: str, relation: str = "") -> str:
    """An object without measure word, title marks and the like."""
    words = re.sub(r"^(?:一点|一些|了)", "", words.strip(' 。！!的《》“”"'))
    words = _MEASURE.sub("", words)
    words = re.sub(r"^(?:新|小)(?=狗|猫)", "", words)
    if relation in ("does", "likes", "hobby"):
        words = _VERB_OF_OBJECT.sub("", words)
    return words.strip("了的《》 ")


@cache
def _book() -> _Book:
    folder = files("memos.interface.reading.statements")
    book = yaml.safe_load(folder.joinpath("readings_zh.yaml").read_text("utf-8"))
    english = yaml.safe_load(folder.joinpath("readings.yaml").read_text("utf-8"))["relations"]
    lists = {
        "JOB": r"(?P<o>(?:(?![我你他她的年月天一二三四五六七八九十两几])[\u4e00-\u9fff]){0,4}?(?:"
        + "|".join(book["jobs"].split())
        + "|(?!"
        + "|".join(book["no_jobs"].split())
        + r")(?:(?![一二三四五六七八九十年月天的])[\u4e00-\u9fff]){1,3}[师员长工手匠]))",
        "PLAY": "[" + "".join(book["play"].split()) + "]",
        "DO": "|".join(book["do"].split()),
    }
    named = {
        "ANIMAL": r".{0,4}(?:" + "|".join(book["animals"].split()) + ")",
        "TONGUE": ".{0,3}(?:" + "|".join(book["tongues"].split()) + ")",
    }
    modes: dict[str, Literal["is", "now", "also", "ended"]] = {
        "is": "is", "now": "now", "adds": "also", "ends": "ended", "not": "ended", "over": "ended",
    }  # fmt: skip

    def compiled(form: str) -> re.Pattern[str]:
        pattern = re.sub(r"\{o=(\w+)\}", lambda m: f"(?P<o>{named[m[1]]})", form)
        pattern = re.sub(r"\{(JOB|PLAY|DO)\}", lambda m: lists[m[1]], pattern)
        return re.compile(pattern.replace("{o}", r"(?P<o>[^，。是]{1,20}?)"))

    forms = tuple(
        _Form(
            name,
            compiled(form),
            mode,
            len(re.sub(r"\(\?!.*?\)|\{.*?\}|[^\u4e00-\u9fff]", "", form)) + ("=" in form or "JOB" in form),
        )
        for name, entry in book["relations"].items()
        for key, mode in modes.items()
        for form in entry.get(key, ())
    )
    kin = "|".join(sorted(book["kin"].split(), key=len, reverse=True))
    surnames = "".join(book["surnames"].split())
    han = r"[\u4e00-\u9fff]"
    return _Book(
        forms=forms,
        over=tuple(compiled(form) for form in book["over"]),
        holds={name: entry.get("holds", "many") for name, entry in english.items()},
        nouns=book["nouns"],
        many=frozenset(book["many"]),
        single=tuple(book["single"].split()),
        places=re.compile(rf"{'|'.join(book['places'].split())}|.+[市省县区镇村国街路]"),
        kin=re.compile(rf"(?P<who>我们?|咱们|(?:小|阿|老){han}|[{surnames}]{han})的?(?P<kin>{kin})(?!号|机)"),
        name=re.compile(
            rf"(?:小{han}{{1,2}}|阿{han}{{1,2}}|老[{surnames}]|[{surnames}]{han}{{1,2}}(?:先生|女士|老师)?)"
        ),
    )
