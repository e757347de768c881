"""Resolves "she", "it" and "that café" by what was said before, or leaves them open; never guesses.

Knows English and Chinese; knows no intents.
"""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

from memos.interface.reading.phrasebook import language, sentences

_NAME = re.compile(
    r"(?<![\w.])(?:(?:Dr|Mr|Mrs|Ms|Prof)\.? )?[A-ZÀ-ÖØ-Þ][a-zà-öø-ÿ]+(?:-[A-Z][a-z]+)?(?: [A-ZÀ-ÖØ-Þ][a-zà-öø-ÿ]+)?"
)
_TITLED = re.compile(  # what follows is the name of a thing
    r"\b(?:song|film|movie|book|novel|play|poem|game|band|show|series|album|painting|caf[eé]|hotel|restaurant|bar|ship|boat|app|brand|not) $",
    re.IGNORECASE,
)
# before a name, these say that it is a place, a thing or a time
_AT = re.compile(
    r"\b(?:in|at|to|from|into|of|near|via|on|like|speak|speaks|speaking|visit|visited|called|named|using|use|play|plays|drive|drives|drove|by|a|an|the|than|learn|learning|love|watch|watched|reading|read) $",
    re.IGNORECASE,
)
_OF_PERSON = re.compile(
    r"\b(?:about|on|for|with|to|by|of|from|like|visit|visited|called|named|love|than) $", re.IGNORECASE
)
_PLACE = re.compile(
    r"^(?:Café|Cafe|Hotel|Restaurant|Bar|Saint|St|Lake|Mount|Bay|North|South|East|West|University|Street)\b|\b(?:Street|Road|Avenue|Row|Lane|Hospital|School|University|Café|Airport|Station|Square|Bridge|Park|Hotel|Club|Inc|Ltd|Bank|Airlines|Church|Museum|Library|Beach|River|Lake|Island|Company|Group|Team)$"
)
_DET = r"(?:(?i:my|our|the|a|an|his|her|their|your|this|that)|[A-Z]\w+['’]s)"
_TIME_NOUN = re.compile(
    r"^(?:week|month|year|day|time|times|moment|morning|evening|afternoon|night|weekend|way|lot|bit|one|other|same|end|town|idea|first|last|world|future|past|beginning|place|job)$"
)
_NP = re.compile(rf"(?<![\w’'])(?P<det>{_DET}) (?P<rest>[\w’'-]+(?: [\w’'-]+){{0,7}})")
_SHE_NOUN = re.compile(r"\b(?:sister|mother|mum|mom|daughter|wife|aunt|girlfriend|grandmother|niece|woman|girl|lady)\b")
_HE_NOUN = re.compile(r"\b(?:brother|father|dad|son|husband|uncle|boyfriend|grandfather|nephew|man|guy|boy)\b")
_SHE = re.compile(r"\b(?:she|her|hers|herself)\b", re.IGNORECASE)
_HE = re.compile(r"\b(?:he|him|his|himself)\b", re.IGNORECASE)
_NO_NOUN = (
    r"again|too|now|any|please|either|to|and|or|but|for|at|with|from|on|about|in|yet|instead|back|also|when|where|what"
    r"|who|how|that|if|because|as|by|is|was|anymore|until|off|out|up|down|so|then|there|here|today|tomorrow|yesterday"
    r"|know|see|read|edit|have|use|access|write|change|look|the|a|an|my|our|this|these|those|some|all|not|only|alone"
)
MAX_NOUN = 6  # words
# Chinese
_SURNAMES = "王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗梁宋郑谢韩唐冯于董萧程曹袁邓许傅沈曾彭吕苏卢蒋蔡贾丁魏薛叶阎余潘杜戴夏钟汪田任姜范方石姚谭廖邹熊金陆郝孔白崔康毛邱秦江史顾侯邵孟龙万段雷钱汤尹黎易常武乔贺赖龚文"
_HAN = r"\u4e00-\u9fff"
_NOT_GIVEN = "的在是有了把被对给和跟与也都就要会能去来住说到让从不很最能还没想这那开能可看吃喝养换搬改每昨今明上下中大小老家里外什么怎哪几多少叫姓为于以能用带买做当拉爱喜现正已将便啦我你您他她它们教写画种卖唱跳玩学读听讲弹骑忘记送请约等帮见问订租借欠坐飞做打管收应必该需才刚常总曾让再一两三四五六七八九十个天年月日前后只自从向往比太真可得过着吗呢"
_ZH_NAME = re.compile(
    rf"(?:小[{_HAN}](?![时学朋孩区猫狗店说心组])|阿[{_HAN}](?![姨])|老[{_SURNAMES}](?![师板家])|(?<![{_HAN}])?[{_SURNAMES}](?:[^{_NOT_GIVEN}\W\dA-Za-z_][^{_NOT_GIVEN}\W\dA-Za-z_](?=[的在是有了把被对给和跟与也都就要会能去来住说到让从不很最还没想这那开可看吃喝养换搬改每昨今明上下叫姓，,。：:！？、]|$|[现什怎哪几多])|[^{_NOT_GIVEN}\W\dA-Za-z_](?![{_HAN}]*(?:医生|老师))))"
)
_ZH_TITLE = re.compile(
    rf"[{_SURNAMES}付柯卓翁焦洪褚梅卞纪敖鲁裴窦骆庞樊凌霍虞管莫房缪应宗郁单包左吉邢荣曲靳乌巴娟秀芳]"
    r"(?:先生|女士|老师|医生|大夫|护士|教授|教练|经理|律师|会计|主任|师傅|阿姨|叔叔|奶奶|爷爷|总|工|姐|哥|叔|婶|嫂|伯)(?![的]?[作程具])"
    rf"|老[{_SURNAMES}付柯翁焦洪褚裴窦骆庞霍鲁范](?![师板家])"
)
_ZH_NO_NAME = re.compile(
    r"^(?:小时|小说|小学|小组|老师|老板|高中|高兴|马上|马路|金额|周[一二三四五六日末]|方法|方案|方便|白天|白色|石头|江边|江南|田里|文件|文字|文本|文档|文章|常常|常用|任务|任何|万一|万能|段落|易经|于是|余额|许多|何时|何必|黄色|黄金|叶子|林子|高铁|高速|高度|何处|和平|温度|程序|康复|金鱼|龙虾|雷雨|钱包|汤姆|毛衣|毛巾|史料|顾客|武器|夏天|秋天|冬天|春天|石油|陆地|孔子|金属|房间|周末|周围|周年|曾经|曾在|马拉|马拉松|华为|苏打|苏州|贺卡|胡同|胡子|杜绝|范围|戴着|丁香|唐朝|唐诗|宋朝|宋词|汉堡|罗马|梁上|蒋介|白菜|白酒|白米|高考|高血|黄瓜|黄油|黄河|江苏|江西|金融|金牌|文学|文化|方向|方面|万圣|钟头|钟表|余下|熊猫|任意|汪汪|毛病|毛笔|龙井|段子|雷达|钱都|钱够|常规|常见|史上|顾虑|成都|施工|关于|关系|易碎|叶酸|叶片|秦岭|夏令|夏季|唐人|武汉|武术|康乃|白板|白天)"
)
_MEASURE = r"[个只条家本份张件间辆台部座所套幅篇首款次处种位名场栋把封双]"


def _words(name: str) -> frozenset[str]:
    """A list of names.yaml."""
    return _lists()[name]


@cache
def _lists() -> dict[str, frozenset[str]]:
    lists = yaml.safe_load(files("memos.interface.reading.requests").joinpath("names.yaml").read_text("utf-8"))
    return {name: frozenset(words.split()) for name, words in lists.items()}


@dataclass(frozen=True)
class Known:
    """What a conversation has spoken of, the latest last: people, things, whole statements by anybody.

    women, men: names that were spoken of as "she" and as "he". shared: (what, with whom), in its words.
    """

    people: tuple[str, ...] = ()
    things: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    women: tuple[str, ...] = ()
    men: tuple[str, ...] = ()
    shared: tuple[tuple[str, str], ...] = ()


def known(turns: Sequence[Mapping[str, object]]) -> Known:
    """What turns of {role or speaker, content} speak of."""
    people, things, statements, women, men = list[str](), list[str](), list[str](), list[str](), list[str]()
    shared: list[tuple[str, str]] = []
    for turn in turns:
        content = str(turn.get("content", ""))
        by_model = str(turn.get("role", "")) == "assistant"
        names = names_in(content)
        people += [speaker] if (speaker := str(turn.get("speaker", ""))) else []
        people += names
        things += [yours(thing, by_model) for thing in things_in(content)]
        if names and language(content) == "en":
            women += names[:1] if _SHE.search(content) or _SHE_NOUN.search(content) else []
            men += names[:1] if _HE.search(content) or _HE_NOUN.search(content) else []
        for sentence in sentences(content):
            if not sentence.endswith(("?", "？")):
                statements.append(yours(sentence.rstrip(".!。！ "), by_model))
            shared += _shared(sentence)
    return Known(_latest(people), _latest(things), tuple(statements), tuple(women), tuple(men), tuple(shared))


_SHARED = re.compile(
    r"(?:^|\b(?:can|could|may|does|do|is|yes, |no, )\s*)(?P<with>(?!(?:can|could|may|does|do|is|yes|no)\b)(?:the |my |our )?[\w-]+(?: (?-i:[A-Z])[\w-]+| team| group)?)(?: and (?-i:[A-Z])\w+)?(?: (?:can|may|still|now|also|able|allowed|to))* (?:see|read|view|access|edit|open|annotate|comment on|change) (?P<what>(?:my|our|the|[A-Z]\w+['’]s) [\w' -]+?)[?.!]*$"
    r"|\b(?P<what2>(?:my|our|the|[A-Z]\w+['’]s) [\w' -]+?) (?:is|was|are|has been)? ?(?:shared with|visible to|open to) (?P<with2>(?:the |my |our )?[\w-]+(?: team| group)?)"
    r"|\bshared? (?P<what3>(?:my|our|the|[A-Z]\w+['’]s) [\w' -]+?) with (?P<with3>(?:the |my |our )?[\w-]+(?: team| group)?)"
    rf"|(?P<with4>[{_HAN}]{{2,5}}?)(?:还|也|现在)?(?:可以|能|能够|有权)(?:看到|看见|查看|看|编辑|读|访问|批注|修改)(?P<what4>[{_HAN}]{{2,10}}?)[吗？。！]*$"
    rf"|(?P<what5>[{_HAN}]{{2,10}}?)(?:已经|是|已)?(?:共享|分享|开放)给(?:了)?(?P<with5>[{_HAN}]{{2,5}}?)[了吗？。！，]*$",
    re.IGNORECASE,
)


def _shared(sentence: str) -> list[tuple[str, str]]:
    """What a sentence says, or asks, that somebody can see: (what, with whom)."""
    found = _SHARED.search(sentence)
    if not found:
        return []
    groups = {name.rstrip("2345"): value for name, value in found.groupdict().items() if value}
    partner = re.sub(r"^(?:the|our) ", "", groups["with"], flags=re.IGNORECASE)
    nobody = re.fullmatch(r"i|you|who|we|我|你|谁|大家|yes|no|it", partner, re.IGNORECASE)
    return [] if nobody else [(groups["what"], partner)]


def _latest(names: Sequence[str]) -> tuple[str, ...]:
    """Drop duplicates, keeping the last."""
    return tuple(reversed(dict.fromkeys(reversed(names))))


def yours(text: str, by_model: bool) -> str:
    """The model's "your" is the user's "my"."""
    if not by_model:
        return text
    text = re.sub(r"\byour\b", "my", text)
    text = re.sub(r"\bYour\b", "my", text)
    return re.sub(r"您|你", "我", text) if language(text) == "zh" else text


def names_in(text: str) -> list[str]:
    """The people whom a text names, in order; what lies in a place or is a product is none."""
    if language(text) == "zh":
        return _zh_names(text)
    found = [named for match in _NAME.finditer(text) if (named := _person(match, text))]
    if text == text.lower():  # written without capitals
        usual = (_words("she") | _words("he")) - _words("common_words")
        words = ((m.start(), m[0].capitalize()) for m in re.finditer(r"[a-z]+", text))
        found += [(start, name) for start, name in words if name in usual]
    return list(dict.fromkeys(name for _, name in sorted(found)))


def _person(match: re.Match[str], text: str) -> tuple[int, str] | None:
    """(where it begins, the name) of words with capitals; None where they name nobody."""
    first_names = _words("she") | _words("he")
    parts, start = match[0].split(), match.start()
    while parts and (parts[0] in _words("openings") or parts[0] in ("St", "St.")):
        if parts[0] in first_names - {"Will", "Mark", "May"}:
            break
        start += len(parts[0]) + 1
        parts = parts[1:]
    while len(parts) > 1 and parts[-1] in _words("openings"):
        parts = parts[:-1]
    name, before = " ".join(parts), text[:start]
    if not parts or parts[0] in _words("not_people") or _PLACE.search(name):
        return None
    if re.match(r"\w*(?: [A-Z]\w+)? (?:Street|Road|Row|Lane|Hospital|Airport)", text[start:]):
        return None
    if parts[0] not in first_names:
        of_person = _OF_PERSON.search(before) and _human(text[start + len(name) :], before)
        if _TITLED.search(before) or (_AT.search(before) and not of_person):
            return None
    return start, name


def _human(after: str, before: str) -> bool:
    """True if a name after "about" or "with" is of somebody, as far as that can be seen."""
    return bool(re.search(r"\b(?:about|with|for|by) $", before) or after.startswith(("'s", "’s")))


def _zh_names(text: str) -> list[str]:
    found = [(m.start(), m[0]) for m in _ZH_TITLE.finditer(text)]
    for match in _ZH_NAME.finditer(text):
        name = match[0]
        if _ZH_NO_NAME.match(text[match.start() :]) or any(
            m.start() <= match.start() < m.end() for m in _ZH_TITLE.finditer(text)
        ):
            continue
        found.append((match.start(), name))
    known_names = _words("she") | _words("he")
    found += [(m.start(), m[0]) for m in re.finditer(r"[A-Z][a-z]+", text) if m[0] in known_names]
    return list(dict.fromkeys(name for _, name in sorted(found)))


def things_in(text: str) -> list[str]:
    """The things that a text names with "my", "the" and the like, in order."""
    return _zh_things(text) if language(text) == "zh" else phrases_in(text)


def phrases_in(text: str) -> list[str]:
    """Of an English text."""
    return list(dict.fromkeys(phrase for match in _NP.finditer(text) if (phrase := _phrase(match))))


def _phrase(match: re.Match[str]) -> str:
    """A noun with its determiner, up to a word that ends it; "" for times and people."""
    det, words = match["det"], _noun_words(match["rest"].split())
    if not words:
        return ""
    head = words[-1] if "of" not in words else words[words.index("of") - 1] if words.index("of") else ""
    if _TIME_NOUN.match(head.lower()) or {head.lower().removesuffix("'s"), words[0].lower()} & _words("person_nouns"):
        return ""
    if det.lower() in ("a", "an", "this", "that"):
        return " ".join(words)
    if det.lower() in ("my", "our", "the", "your", "his", "her", "their"):
        det = det[0].lower() + det[1:]
    return f"{det} {' '.join(words)}"


def _noun_words(words: list[str]) -> list[str]:
    noun: list[str] = []
    for word in words[:MAX_NOUN]:
        if word.lower() in _words("noun_ends") and not (word.lower() == "of" and noun):
            break
        if noun and re.fullmatch(r"[a-z]+(?:ed|ly)", word):
            break
        noun.append(word)
    while noun and noun[-1] == "of":
        noun.pop()
    return noun


_ZH_THING = re.compile(
    rf"(?:我的|我们的|您的|你的)(?P<of>[{_HAN}A-Za-z]{{2,8}}?)(?=是|叫|在|好像|看起来|有|，|。|！|？|怎么|里|还|为|现在|不|改|被|$|吗|写)"
    rf"|(?:一|这|那){_MEASURE}(?P<one>[{_HAN}A-Za-z]{{1,8}}?)(?=，|。|！|？|$|是|在|的|和|叫|里|了|吗)"
    rf"|^(?P<subject>[{_HAN}A-Za-z]{{2,8}}?)(?=好像|看起来|还在|在缓存|里写|里有|里面|都|包括|包含|没法|无法|没|不能|处于|可以|能|什么|缓存|锁|冻结|已经|是不是|是|有没有|被|怎么|不对|锁)"
    rf"|(?:把|将)(?P<moved>[{_HAN}A-Za-z]{{2,8}}?)(?=卖|放|改|锁|写|存|给)"
    rf"|(?:只有|就)(?P<only>[{_HAN}A-Za-z]{{2,8}}?)(?=。|，|$|被)"
    rf"|(?<=在)(?P<place>[{_HAN}A-Za-z]{{2,8}}?(?:店|馆|厅|院|园|吧|铺|楼|公司|学校|酒店|餐厅))(?=[{_HAN}，。])"
)  # fmt: skip


def _zh_things(text: str) -> list[str]:
    out: list[str] = []
    for match in _ZH_THING.finditer(text):
        name, found = next(((k, v) for k, v in match.groupdict().items() if v), ("", ""))
        if (
            not found
            or (re.match(r"[我你您他她它这那哪谁什]", found) and name == "subject")
            or re.match(r"[我你您他她它]$", found)
        ):
            continue
        if name == "subject" and _zh_names(found) == [found]:
            continue
        if name == "of" and re.match(r"(?:意思|话|吩咐|要求|朋友|同事|老板|妹妹|姐姐|哥哥|弟弟|妈妈|爸爸|老师)", found):
            continue
        out.append(match[0] if name == "of" else found)
    return list(dict.fromkeys(out))


# -- resolving -----------------------------------------------------------------------------------------


def person_of(pronoun: str, about: Known) -> list[str]:
    """Whom "she" or "he" can be: one name where that is sure, several or none where it is not."""
    if pronoun in ("they", "them", "their", "theirs"):
        return list(about.people)
    female = pronoun in ("she", "her", "hers", "herself", "她")
    she, he = _words("she"), _words("he")
    own, other = (she, he) if female else (he, she)
    named_so, named_otherwise = (about.women, about.men) if female else (about.men, about.women)
    fits = [
        name
        for name in about.people
        if name.split()[0] not in other and (name not in named_otherwise or name in named_so)
    ]
    return [name for name in fits if name.split()[0] in own or name in named_so] or fits


def resolved(text: str, about: Known) -> str:
    """The text with names for "she" and "his", as far as the conversation tells whom they mean."""
    if not about.people:
        return text
    if language(text) == "zh":
        return _zh_resolved(text, about)
    own = names_in(text)

    def named(match: re.Match[str]) -> str:
        word = match[0].lower()
        pronoun = {"him": "he", "his": "he", "her": "she", "hers": "she"}.get(word, word)
        before = [name for name in own if text.find(name) < match.start()]
        if person_of(pronoun, Known(tuple(before))):
            return match[0]  # of somebody whom the sentence itself names
        who = person_of(pronoun, about)
        if not who:
            return match[0]
        noun_follows = not re.match(rf"\s*(?:$|[,.!?;:]|(?:{_NO_NOUN})\b)", match.string[match.end() :])
        owns = word in ("his", "hers") or (word == "her" and noun_follows)
        return f"{who[-1]}'s" if owns else who[-1]

    out = re.sub(r"\b(?:she|he|her|hers|his|him)\b(?!['’])", named, text, flags=re.IGNORECASE)
    return re.sub(r"\b(?:she|he)(?=['’](?:s|ll|d)\b)", named, out, flags=re.IGNORECASE)


def _zh_resolved(text: str, about: Known) -> str:
    def named(match: re.Match[str]) -> str:
        before = [name for name in _zh_names(text) if text.find(name) < match.start()]
        if before:
            return match[0]
        who = about.people
        return who[-1] if len(who) == 1 or not about.statements else _topic(about)

    return re.sub(r"[她他](?!们)", named, text)


def _topic(about: Known) -> str:
    """Of several people the one whom the conversation is about: the first to be spoken of, where none has a statement."""
    named = any(name in line for line in about.statements for name in about.people)
    return about.people[-1] if named else about.people[0]
