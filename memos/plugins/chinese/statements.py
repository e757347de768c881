"""Reads the facts that a Chinese sentence states, and how each holds.

A clause is a subject, adverbs and a predicate. The adverbs say how it holds (现在, 也, 不再, 以前, 打算, ...); the
predicate is read by the forms of readings.yaml. A clause without a subject has that of the one before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from memos.cube import Fact
from memos.interface.reading.statements.readings import Mode
from memos.plugins.chinese.readings import ChineseForm, chinese_readings

_QUESTION = re.compile(r"[吗呢么？?][。！!]*$|什么|哪[里儿个]|谁|怎么|为什么|何时|是不是|是否|有没有|会不会|要不要")
_ASKED_FOR = re.compile(r"哪(?:个城市|家公司|一?[天年里儿])?|什么(?:名字|工作|地方|时候)?|谁|几[月号点日]|多少")
_WHO_AM_I = re.compile(r"^(?:你知道)?我是谁")
_ANSWER = "某某"  # stands in a statement for what is asked
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
        r"已经?|早就|最近|刚刚?|昨天|上个?[月周]|上星期|这个?[月周]|本[月周]|终于|其实|真的|一直|始终|仍然|依然|都|就"
        r"|才|正在?|总算|彻底|非常|特别|很|挺|十分|比较|每天|天天|经常|常常?|总是?|平时|一般|通常|主要|一共|今年|近来"
        r"|说实话|因为[^，]{1,6}?(?=[搬换跳辞离])|顺便说一下|对了|嗯|哦|哎|会(?=每|常|经|去)",
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
        r"以前|曾经?|过去|从前|小时候|之前|原来|原先|当年|当时|那时候?|年轻时候?|(?:上学|读书|上大学|小|年轻|刚毕业"
        r"|[^，]{1,8}?)的时候|[从]?\d{4}年?到\d{4}年?|当初|早年|童年",
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
_IS_MINE = re.compile(  # "小王是我的老板"
    r"(?P<o>[^，是我]{1,8}?)(?P<cue>现在|也|还|曾经?|以前|过去|之前)?是(?:我|我们)的?(?P<noun>[^，的]{1,6}?)了?"
)
_ATTRIBUTE = re.compile(  # "我的老板是王强"
    r"(?!把)的?(?P<new>新)?(?P<noun>[^是叫为换改变]{1,10}?)(?P<now>现在|如今|目前|已经)?(?P<also>也|还)?"
    r"(?P<verb>是|叫做?|为|换成了?|改成了?|改为了?|变成了?|成了|换为|有)(?P<o>[^是]{1,30}?)(?:了|啦)?"
)
_CHANGED = re.compile(r"把(?P<noun>.{1,10}?)(?:换成|改成|改为|更新为|设成)了?(?P<o>.{1,30}?)了?")  # "把密码改成9024了"
_FAVOURITE = ("最喜欢的", "最爱的", "最爱吃的", "最爱喝的", "最喜爱的", "最喜欢吃的", "最喜欢喝的")
_INNER = r"(?=过敏|是(?:好)?朋友|感兴趣)"  # what an adverb may stand before within a predicate


@dataclass(frozen=True)
class _Cut:
    """One way to cut a clause: whom it is about, in which words, what it says of them, and the adverbs before that."""

    subject: str
    words: str
    rest: str
    adverbs: frozenset[str] = frozenset()


def asked(question: str, speaker: str) -> list[Fact]:
    """The facts, without their objects, that a question asks for: it is read as the statement that would answer it."""
    words = _WHO_AM_I.sub("我叫谁", question.rstrip("。.！!？? 呢啊呀吗"))
    stated, found = _ASKED_FOR.subn(_ANSWER, words, count=1)
    facts = read(stated, speaker)[0] if found else []
    asks = (Fact(subject=fact.subject, relation=fact.relation, object="") for fact in facts if _ANSWER in fact.object)
    return list(dict.fromkeys(asks))


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
    before = _Cut("", "", "")
    for clause in (part.strip() for part in _CLAUSE.split(text) if part and part.strip()):
        found: list[Fact] = []
        for cut in _cuts(clause, speaker, before):
            if found := _predicate(cut, clause):
                before = cut
                break
            if cut.words and not before.subject:
                before = cut
        facts += found
        if not found:
            unread.append(clause)
    return facts, unread


def _cuts(clause: str, speaker: str, before: _Cut) -> Iterator[_Cut]:
    """Each way to cut a clause, the surest first. before: the subject of the clause before, for one without."""
    rest, adverbs = _without_adverbs(clause)
    if rest.startswith(("不对", "不是的")):
        rest = rest[2:]
    if _PRONOUN.match(rest):
        return
    readings = chinese_readings()
    if mine := _IS_MINE.fullmatch(rest):
        if speaker and (predicate := _of_mine(mine)):
            yield _Cut(speaker, "我", predicate, adverbs)
    elif kin := readings.kin.match(rest):
        if owner := speaker if kin["who"] in ("我", "我们", "咱们") else kin["who"]:
            yield _Cut(owner, kin["who"], rest[kin.end("who") :], adverbs)  # "我妹妹叫小红" tells of me
            yield _Cut(f"{owner}的{kin['kin']}", kin[0], rest[kin.end() :], adverbs)
    elif first := re.match(r"我们?家(?=[住搬])|我们?|咱们?", rest):
        if speaker:
            yield _Cut(speaker, first[0], rest[first.end() :], adverbs)
    else:
        for length in (2, 3, 4):
            if (named := readings.name.match(rest[:length])) and named.end() == min(length, len(rest)):
                yield _Cut(rest[:length], rest[:length], rest[length:], adverbs)
        if latin := re.match(r"[A-ZÀ-Þ][A-Za-zÀ-ɏ'-]*(?: [A-ZÀ-Þ][A-Za-zÀ-ɏ'-]*)?", rest):
            yield _Cut(latin[0], latin[0], rest[latin.end() :].strip(), adverbs)
        if before.subject:
            rest = f"的{rest}" if re.match(r"新?[^是]{1,6}是", rest) else rest
            yield _Cut(before.subject, before.words, rest, adverbs)


def _of_mine(mine: re.Match[str]) -> str:
    """ "王强是我的老板" as said of me: "的老板是王强"; "" for what was, and for what one has no name for."""
    noun, readings = mine["noun"], chinese_readings()
    if mine["cue"] in ("曾", "曾经", "以前", "过去", "之前"):
        return ""
    if noun.endswith("朋友") and noun not in readings.nouns:
        return f"和{mine['o']}是朋友"
    named = noun in readings.nouns or noun.endswith(readings.single)
    return f"的{noun}{mine['cue'] or ''}是{mine['o']}" if named else ""


def _without_adverbs(text: str) -> tuple[str, frozenset[str]]:
    """(the text without the adverbs in front, what these say)."""
    text, adverbs = text.strip(), frozenset[str]()
    while text and (found := next(((n, m) for n, form in _ADVERBS if (m := form.match(text))), None)):
        adverbs |= {found[0]}
        text = text[found[1].end() :]
    return text, adverbs


def _mode(adverbs: frozenset[str], clause: str) -> Mode | None:
    """How a clause with these adverbs holds; None where it states nothing."""
    if "will" in adverbs:
        return None if "not" in adverbs else "will"
    if "past" in adverbs:
        return "was"
    if "not" in adverbs:
        partly = "part" in adverbs and not re.search(r"再|了[。！]?$", clause)
        return None if partly or "dated" in adverbs else "ended"
    if "also" in adverbs:
        return "also"
    return "now" if "now" in adverbs else "is"


def _predicate(cut: _Cut, clause: str) -> list[Fact]:
    """The facts of a predicate: with its adverbs as they stand first, then with fewer of them."""
    rest, adverbs = cut.rest, cut.adverbs
    if _FORMER.match(rest) or re.match(r"的?(?:第一|前)", rest):
        return []
    while rest:
        name, adverb = next(((n, m) for n, form in _ADVERBS if (m := form.match(rest))), ("", None))
        # "每周一健身" and "最喜欢的菜" are read whole; "打算搬家" is no ball game
        if name in ("", "part", "most") and (found := _by_forms(cut.subject, rest, adverbs, clause)):
            return found
        if adverb is None or (name == "not" and adverb[0] == "没"):
            return []
        adverbs |= {name}
        rest = rest[adverb.end() :]
        if name == "not" and adverb[0].startswith("没有"):
            rest = "有" + rest
    return []


def _by_forms(subject: str, rest: str, adverbs: frozenset[str], clause: str) -> list[Fact]:
    """The facts by the most specific form of a predicate, or by the forms that end something."""
    inner, adverbs = _without_inner_adverbs(rest, adverbs)
    mode = _mode(adverbs, clause)
    if mode is None:
        return []
    bare = _TAIL.sub("", inner)
    if attribute := _attribute(inner, subject, mode):
        return attribute
    current = mode in ("is", "now", "also")
    for words in dict.fromkeys((bare, re.sub(r"^(?:开始|恢复)", "", bare), inner)):
        found = [(form, match) for form in chinese_readings().forms if (match := form.regex.fullmatch(words))]
        states = [pair for pair in found if pair[0].mode != "ended"]
        if states:
            form, match = max(states, key=lambda pair: pair[0].literal)
            been = form.relation != "visited" and bool(_BEEN.search(rest))
            dated = "dated" in adverbs and form.mode == "is"
            return _facts(form, match, subject, mode, "most" in adverbs, been or dated)
        if current or "again" in adverbs:
            ends = [(form.relation, _bare(match.groupdict().get("o") or "")) for form, match in found]
            if ends:
                return [_ended(subject, relation, words) for relation, words in dict.fromkeys(ends)]
    given_up = (match for form in chinese_readings().over if current and (match := form.fullmatch(bare)))
    return [_ended(subject, "", _bare(match["o"])) for match in given_up][:1]


def _ended(subject: str, relation: str, words: str) -> Fact:
    return Fact(subject=subject, relation=relation, object=words, mode="ended")


def _without_inner_adverbs(rest: str, adverbs: frozenset[str]) -> tuple[str, frozenset[str]]:
    """(a predicate without the adverbs within it, all adverbs): "对花生也过敏"."""
    inner = re.sub(rf"(?<=.)(?:已经?)?(不再|再也不|不|也|还){_INNER}", "", rest)
    for adverb in re.findall(r"(不|也|还)(?=过敏|再过敏|是(?:好)?朋友|感兴趣)", rest[1:]):
        adverbs |= {"not" if adverb == "不" else "also"}
    within = r"(?<=[\u4e00-\u9fff])也(?=[在做当有])"
    if re.search(within, inner):
        adverbs |= {"also"}
    return (re.sub(within, "", inner) if "also" in adverbs else inner), adverbs


def _facts(form: ChineseForm, match: re.Match[str], subject: str, mode: Mode, most: bool, been: bool) -> list[Fact]:
    """One fact for each value. most: it is said to be the favourite. been: it is said to be over."""
    readings, groups = chinese_readings(), match.groupdict()
    words = groups.get("o") or ""
    relation = f"{form.relation} {groups['key']}" if "key" in groups else form.relation
    if most and relation == "likes" and words.endswith("色"):
        relation = "colour"
    most = most and relation in ("food", "drink", "colour")  # "最喜欢吃火锅", not "最喜欢爬山"
    holds = "one" if most else readings.holds.get(relation, "many")
    if re.match(r"(?:不|没|了$|个$|在|别人|你|被)", words):
        return []
    if (relation == "city" and _NO_PLACE.search(words)) or (
        relation == "employer" and readings.places.fullmatch(words)
    ):
        return []
    how: Mode = "was" if been and mode in ("is", "now") else _mode_of_form(mode, form, holds)
    values = [words] if holds == "one" else [v for v in _LISTED.split(words) if v]
    sole = holds == "one" and how in ("is", "now")
    cleaned = (_bare(v, form.relation) for v in values)
    return [
        Fact(subject=subject, relation=relation, object=v, mode=how, sole=sole) for v in cleaned if v and v != subject
    ]


def _mode_of_form(mode: Mode, form: ChineseForm, holds: str) -> Mode:
    """How a form holds in a clause of this mode: a plain one gives way to the form's own."""
    if mode == "also" and form.mode == "now":
        return "now"
    if mode in ("is", "now") and form.mode == "also":
        return "also"
    if mode == "now" or (mode == "is" and form.mode == "now"):
        return "now" if holds in ("one", "few") or form.mode == "now" else "is"
    return mode


def _attribute(rest: str, subject: str, mode: Mode) -> list[Fact]:
    """ "我的老板是王强", "我把密码改成9024了"."""
    found = _ATTRIBUTE.fullmatch(rest)
    changed = None if found else _CHANGED.fullmatch(rest)
    match = found or changed
    if not match:
        return []
    groups, readings = match.groupdict(), chinese_readings()
    noun, words = groups["noun"].strip("的 "), groups["o"].strip(" 。！!《》")
    relation, verb = readings.nouns.get(noun, ""), groups.get("verb") or "换成"
    several = relation == "" or relation in readings.many
    single = noun.startswith(_FAVOURITE) or noun.endswith(readings.single) or not several
    if not (single or relation) or not words or re.match(r"(?:不|很|非常|太|在|个|一个)", words):
        return []
    if verb == "有" and relation not in readings.many:
        return []
    how: Mode = mode
    if groups.get("also") or verb == "有":
        how = "also" if mode in ("is", "now") else mode
    elif mode == "now" or (
        mode == "is" and (changed or groups.get("new") or groups.get("now") or verb[0] in "换改变成")
    ):
        how = "now" if single else "is"
    sole = single and how in ("is", "now")
    return [Fact(subject=subject, relation=relation or noun, object=_bare(words), mode=how, sole=sole)]


def _bare(words: str, relation: str = "") -> str:
    """An object without measure word, title marks and the like."""
    words = re.sub(r"^(?:一点|一些|了)", "", words.strip(' 。！!的《》“”"'))
    words = _MEASURE.sub("", words)
    words = re.sub(r"^(?:新|小)(?=狗|猫)", "", words)
    if relation in ("does", "likes", "hobby"):
        words = _VERB_OF_OBJECT.sub("", words)
    return words.strip("了的《》 ")
