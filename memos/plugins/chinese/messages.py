"""Finds the people and things that a Chinese text names, and whom "她" and "他" mean; and what asks or tells."""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import re
from functools import cache

from opencc import OpenCC

from memos.interface.reading.phrasebook import read_book
from memos.interface.reading.requests.references import words_of
from memos.skeleton import simplified

_HAN = r"\u4e00-\u9fff"
_SURNAMES = "王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗梁宋郑谢韩唐冯于董萧程曹袁邓许傅沈曾彭吕苏卢蒋蔡贾丁魏薛叶阎余潘杜戴夏钟汪田任姜范方石姚谭廖邹熊金陆郝孔白崔康毛邱秦江史顾侯邵孟龙万段雷钱汤尹黎易常武乔贺赖龚文"
_NOT_GIVEN = "的在是有了把被对给和跟与也都就要会能去来住说到让从不很最能还没想这那开能可看吃喝养换搬改每昨今明上下中大小老家里外什么怎哪几多少叫姓为于以能用带买做当拉爱喜现正已将便啦我你您他她它们教写画种卖唱跳玩学读听讲弹骑忘记送请约等帮见问订租借欠坐飞做打管收应必该需才刚常总曾让再一两三四五六七八九十个天年月日前后只自从向往比太真可得过着吗呢"
_NAME = re.compile(
    rf"(?:小[{_HAN}](?![时学朋孩区猫狗店说心组])|阿[{_HAN}](?![姨])|老[{_SURNAMES}佟曲栾闫詹](?![师板家])|(?<![外长曾重侄])(?!(?<=[工教课行日流过章])程|(?<=[师師])傅)[{_SURNAMES}](?:[^{_NOT_GIVEN}\W\dA-Za-z_][^{_NOT_GIVEN}\W\dA-Za-z_](?=[的在是有了把被对给和跟与也都就要会能去来住说到让从不很最还没想这那开可看吃喝养换搬改每昨今明上下叫姓，,。：:！？、\s]|$|[现什怎哪几多])|[^{_NOT_GIVEN}\W\dA-Za-z_](?![{_HAN}]*(?:医生|老师))))"
)
_LATIN_NAME = re.compile(
    r"(?:闺蜜|朋友|男友|女友|同事|同学|同桌|室友|老板|上司|[弟妹哥姐]|儿子|女儿|老公|老婆)(?:叫|是)?([A-Z][a-z]+)"
)
_TITLE = re.compile(
    rf"[{_SURNAMES}付柯卓翁焦洪褚梅卞纪敖鲁裴窦骆庞樊凌霍虞管莫房缪应宗郁单包左吉邢荣曲靳乌巴娟秀芳]"
    r"(?:先生|女士|老师|医生|大夫|护士|教授|教练|经理|律师|会计|主任|师傅|阿姨|叔叔|奶奶|爷爷|总|工|姐|哥|叔|婶|嫂|伯)(?![的]?[作程具])"
    rf"|老[{_SURNAMES}付柯翁焦洪褚裴窦骆庞霍鲁范](?![师板家])"
)
_NO_NAME = re.compile(
    r"(?:小时|小说|小学|小组|老师|老板|高中|高兴|马上|马路|金额|周[一二三四五六日末]|方法|方案|方便|白天|白色|石头|江边|江南|田里|文件|文字|文本|文档|文章|常常|常用|任务|任何|万一|万能|段落|易经|于是|余额|许多|何时|何必|黄色|黄金|叶子|林子|高铁|高速|高度|何处|和平|温度|程序|康复|金鱼|龙虾|雷雨|钱包|汤姆|毛衣|毛巾|史料|顾客|武器|夏天|秋天|冬天|春天|石油|陆地|孔子|金属|房间|周末|周围|周年|曾经|曾在|马拉|马拉松|华为|苏打|苏州|贺卡|胡同|胡子|杜绝|范围|戴着|丁香|唐朝|唐诗|宋朝|宋词|汉堡|罗马|梁上|蒋介|白菜|白酒|白米|高考|高血|黄瓜|黄油|黄河|江苏|江西|金融|金牌|文学|文化|方向|方面|万圣|钟头|钟表|余下|熊猫|任意|汪汪|毛病|毛笔|龙井|段子|雷达|钱都|钱够|常规|常见|史上|顾虑|成都|施工|关于|关系|易碎|叶酸|叶片|秦岭|夏令|夏季|唐人|武汉|武术|康乃|白板|白天|郑州|常州|徐州|温州|梅州|黄山|汉口|石家庄|马来|秦皇岛|江门|汕头|贺州|夏威|罗湖|龙岩|常熟|昆山|高雄|孟买|金华|万达|方言|方便面|马桶|黄金|高中|高三|高一|高二|白血|金毛)"
)
_MEASURE = r"[个只条家本份张件间辆台部座所套幅篇首款次处种位名场栋把封双]"
_QUESTION = re.compile(
    r"[吗呢么？?]$|(?<![没无为])(?:什么|啥)(?!都|也)|哪(?![里儿个些]?[都也])|谁(?![都也])|多少(?!有点|都|也)|怎么(?!都|也)|咋|干[嘛啥]|[做干]什么的$|为(?:什么|啥)|何时"
    rf"|(?<![好十过这那有了上前后近隔来第每])几(?:{_MEASURE}(?!月前|[朋同孩])|[岁点号月楼层口天年次块斤度路分米])(?![前来])"
    rf"|有几{_MEASURE}[\u3400-\u9fff]{{1,3}}$"
    r"|(?:星期|周|礼拜)几|(?<![很好许没太不])多[高重大长远久快]|几年级|多钱|(?!还)(.)[不没]\1|(?<=[\u3400-\u9fff])(?<![都也还我])(?:没有?|不)$"
)
_UNKNOWN = re.compile(r"(?<=.{4})不(?:知道?|晓得|清楚|记得|确定)[^，。！？]*")  # beside what is told
_STATEMENT = re.compile(
    r"我们?(?:的|叫|是|有|住|在|爱|喜欢|最|不|讨厌|对|养|学|会|来自|出生|搬|换|现在|每|买|用|开|想去|打算|计划)"
)
_SMALL_TALK = re.compile(r"天气|下雨|你好|谢谢|再见|早上好|晚安|哈哈|不错|不好意思|不知道|不客气|不用")


def asks(text: str) -> bool:
    """True if a text asks; it ends before any full stop."""
    return bool(_QUESTION.search(_UNKNOWN.sub("", text)))


def tells(sentence: str) -> bool:
    """True if a sentence is a statement by "我" that is no small talk."""
    return bool(_STATEMENT.search(sentence)) and not _SMALL_TALK.search(sentence)


def other_words(question: str) -> list[str]:
    """Words for the same as those of a question, from words.yaml, in its characters."""
    plain = simplified(question)
    groups = (group for group in _same() if any(word in plain for word in group))
    words = list(dict.fromkeys(word for group in groups for word in group if word not in plain))
    return words if plain == question else [_traditional().convert(word) for word in words]


@cache
def _traditional() -> OpenCC:
    return OpenCC("s2t")


@cache
def _same() -> list[list[str]]:
    return [line.split() for line in read_book("memos.plugins.chinese", "words.yaml")]


def people(text: str) -> list[str]:
    """The people whom a text names, in order."""
    found = [(m.start(), m[0]) for m in _TITLE.finditer(text)]
    for match in _NAME.finditer(text):
        name = match[0]
        if _NO_NAME.match(text, match.start()) or any(
            m.start() <= match.start() < m.end() for m in _TITLE.finditer(text)
        ):
            continue
        found.append((match.start(), name))
    known_names = words_of("she") | words_of("he")
    found += [(m.start(), m[0]) for m in re.finditer(r"[A-Z][a-z]+", text) if m[0] in known_names]
    found += [(m.start(1), m[1]) for m in _LATIN_NAME.finditer(text)]
    return list(dict.fromkeys(name for _, name in sorted(found)))


_THING = re.compile(
    rf"(?:我的|我们的|您的|你的)(?P<of>[{_HAN}A-Za-z]{{2,8}}?)(?=是|叫|在|好像|看起来|有|，|。|！|？|怎么|里|还|为|现在|不|改|被|$|吗|写)"
    rf"|(?:一|这|那){_MEASURE}(?P<one>[{_HAN}A-Za-z]{{1,8}}?)(?=，|。|！|？|$|是|在|的|和|叫|里|了|吗)"
    rf"|^(?P<subject>[{_HAN}A-Za-z]{{2,8}}?)(?=好像|看起来|还在|在缓存|里写|里有|里面|都|包括|包含|没法|无法|没|不能|处于|可以|能|什么|缓存|锁|冻结|已经|是不是|是|有没有|被|怎么|不对|锁)"
    rf"|(?:把|将)(?P<moved>[{_HAN}A-Za-z]{{2,8}}?)(?=卖|放|改|锁|写|存|给)"
    rf"|(?:只有|就)(?P<only>[{_HAN}A-Za-z]{{2,8}}?)(?=。|，|$|被)"
    rf"|(?<=在)(?P<place>[{_HAN}A-Za-z]{{2,8}}?(?:店|馆|厅|院|园|吧|铺|楼|公司|学校|酒店|餐厅))(?=[{_HAN}，。])"
)  # fmt: skip


def things(text: str) -> list[str]:
    """The things that a text names, in order."""
    out: list[str] = []
    for match in _THING.finditer(text):
        name, found = next(((k, v) for k, v in match.groupdict().items() if v), ("", ""))
        if (
            not found
            or (re.match(r"[我你您他她它这那哪谁什]", found) and name == "subject")
            or re.match(r"[我你您他她它]$", found)
        ):
            continue
        if name == "subject" and people(found) == [found]:
            continue
        if name == "of" and re.match(r"(?:意思|话|吩咐|要求|朋友|同事|老板|妹妹|姐姐|哥哥|弟弟|妈妈|爸爸|老师)", found):
            continue
        out.append(match[0] if name == "of" else found)
    return list(dict.fromkeys(out))
