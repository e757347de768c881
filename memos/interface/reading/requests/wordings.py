"""Tables of the words that point, withhold, or name the form of a memory, in English and Chinese."""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import re

FIRST = re.compile(
    r"\b(?:I|me|my|mine|myself|I['’]\w+|we|us|our|ours)\b|(?<!\w)i(?=['’ ])|我|咱|俺|自己", re.IGNORECASE
)
SPEAKER = re.compile(r"I|我", re.IGNORECASE)
SENTENCE = re.compile(r"\S.*?(?:[.!?。！？…]+(?=\s|$|[\u4e00-\u9fff])|$)", re.DOTALL)
WORD = re.compile(r"[^\W\d_]")
TO_ME = re.compile(r"\b(?:remind|tell|show|give|let) (?:me|us)\b", re.IGNORECASE)
POINTS = re.compile(
    r"(?:all of |both of )?(?:it|its|that|this|them|those|these|they|there|here|both|the same|all that|that all|it all)"
    r"(?: (?:one|ones|thing|things|stuff))?|the (?:one|other|thing|latter|former|lot)"
    r"|(?:它们?|其|这些?|那些?|此)(?:都|全部|全)?|[这那][个只条家本份张件间辆台部座所套幅篇首款次处种位名]?(?:东西|玩意儿?|事儿?|些)?|里[面头]|上[面头]|那[里儿]|这[里儿]",
    re.IGNORECASE,
)
DEFINITE = re.compile(r"(?:the|that|this|those|these|his|her|its|their)\b|[这那该其]", re.IGNORECASE)
SO = re.compile(r"(?:like )?(?:that|this|so|it|right|true|correct)|[这那]样(?:的)?|对|真的?", re.IGNORECASE)
PERSON = re.compile(r"she|he|her|hers|his|him|they|them|their|[她他](?:们)?|人家", re.IGNORECASE)
SOMEBODY = re.compile(r"\b(?:she|he|hers?|him|his)\b|[她他]", re.IGNORECASE)
MANY = re.compile(r"they|them|their", re.IGNORECASE)  # people or things
OPENS = re.compile(r"^(?:The|My|Our|His|Her|Their|All|Every|Everything|What|Where|When|Who|How)\b")  # a sentence
AFTER = re.compile(r"(?:(?<=with)|(?<=to)|(?<=from)| (?:with|to|from)) (?P<with>[\w@.-]*\w)")
INSIDE = re.compile(r"(?P<what>.*\S) with (?P<with>[\w@.-]*\w)")
NEXT = re.compile(r"(?<=\w) (?:back to|with|to|from)$|(?<=.)的$")  # what opens the slot after it
CALLED = re.compile(  # what stands around a name: "the group hikers", "hikers' "
    r"^(?:the |our )?(?:group|team|user|agent) (?:called )?(?=\w)|^(?:the|our) (?=\w)|['’]s?$"
    r"|^(?:用户|群组|同事)(?=[\u4e00-\u9fffA-Za-z])",
    re.IGNORECASE,
)
_WEEKDAY = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?s?"
WEEKDAYS = re.compile(
    rf"\b{_WEEKDAY}(?:(?:, and|, or|,| and| or| &|/) ?{_WEEKDAY})+\b", re.IGNORECASE
)  # several, in a list
OWNS = re.compile(r"his|its|their", re.IGNORECASE)
WITHHELD = re.compile(  # "don't delete it yet"; not "don't keep it"
    r"(?:\b(?:do not|dont|never|not to|no need to|rather not)|n['’]t)(?: (?:ever|yet|just|actually|you|go and|dare"
    r"|want (?:you )?to))* (?:delet|eras|remov|wip|scrap|purg|bin|ditch|revok|withdraw|unshar|roll|revert|undo"
    r"|undid)\w*\b|(?:别|不要|勿|莫|不用|不必|不许|不准|不能|先不|暂不|暂时不)(?:急着|忙着|着急|给我|随便|现在|马上"
    r"|真的?)?(?:删|清[掉除空]|抹[掉去]|撤[销回掉]|收回|回滚|擦掉|销毁|扔|丢掉|取消)",
    re.IGNORECASE,
)
FORMS = re.compile(  # where a memory may be taken out of without being lost
    r"(?<![a-z])(?:cached?|adapter|LoRA|KV|GPU|weights|by heart|(?:pre|un)?loaded|train(?:ed)? (?:on|into?)|resident"
    r"|memori[sz]ed?|(?:kept?|still|is|are|stays?) warm|warm slots?|(?:at|to) hand|within reach)(?![a-z])"
    r"|缓存|快取|显存|显卡|适配器|权重|激活|常驻|预热|热着|温着|预载|加载|载入|[进入]模型|手边|背(?:下|熟|过|着|会)",
    re.IGNORECASE,
)
ERASES = re.compile(r"\b(?:delet|eras|forg[eo]t)|删|忘|销", re.IGNORECASE)  # a cache, too, is wiped and cleared
WHOLLY = re.compile(  # not out of the cache alone
    r"\b(?:memor|records?\b|originals?\b|backups?\b|trace|destr|eradicat|obliterat|shred|purg|wholly|completely"
    r"|entirely|altogether|for good|permanently)"
    r"|记忆|记录|彻底|原[文件始]|底稿|备份|存底|全部|通通|一概|永久|毁|连根|抹平",
    re.IGNORECASE,
)
NO_NOUN = re.compile(r"\s*(?:$|[,.!?;:]|(?:again|too|now|any|please|to|and|or|but|for|at|with|from|on|about|in)\b)")
_DONT = r"(?:please |pls )?(?:do not|don['’]?t|never)(?: ever)? (?:save|store|remember|record|log|note|memori[sz]e|write|keep(?! it))"
UNKEPT = re.compile(  # "..., don't save that", "don't remember that I like jazz"; not "don't save that file"
    rf"(?:^|[.!?,;:\n]\s*|\b(?:but|and|so|please|pls) )(?:{_DONT}(?: (?:down|on to))?"
    r" (?:(?:any of )?(?:that|this|it)|what i (?:just )?(?:said|told you))"
    r"(?: (?:down|anywhere|please|pls|plz|ok(?:ay)?|though|either|thanks))*\s*(?:$|[.!,;:)]|(?=\bbut\b)))"
    rf"|(?:^|[.!?\n]\s*)(?:{_DONT}(?: that (?=(?:i|my|we|our|i['’]\w+)\b)| (?=(?:i|we|i['’]\w+)\b))(?!.*\?\s*$)|off the record[,:])"
    r"|(?:^|[，。！,;；]\s*)(?:请|拜托)?(?:别|不要|勿|不用)(?:帮我|给我)?(?:把)?(?:这个?|它|这些|这[句条件]话?)?(?:记录?|保?存|储存)"
    r"(?:下来|住|下|起来)?(?:这个?|它|这些|这[句条件]话?)?\s*(?:$|[，。！,.!：:])",
    re.IGNORECASE,
)
UNDO = re.compile(
    r"(?:no,? |please |pls |oh )*(?:undo|scratch|strike|revert|scrub)(?: (?:that|it|this|the last one))?(?: please| pls)?[.!]*|撤[销回]|算了[，,]?撤[销回]",
    re.IGNORECASE,
)
LAST_SAID = re.compile(
    r"(?:the |my )?(?:last|latest|previous)(?: (?:thing|one|message|bit|memory))?(?: (?:that )?i (?:just )?(?:said|told you|wrote))?"
    r"|what i(?: just)? (?:said|told you|wrote)|我?刚[才刚]?说的话?|上一[句条]话?|最后[那一]?[句条]话?",
    re.IGNORECASE,
)
EVERYTHING = re.compile(  # "everything you know about Callum"
    r"(?:everything|anything|whatever|all)(?: of it| (?:the )?(?:memories|things|stuff))?"
    r"(?: (?:that )?(?:you|u)(?: (?:know|have|remember|stored|saved|kept))?)? (?:about|on|of|regarding) (?P<name>.+?)"
    r"|(?:所有|一切|全部)?关于(?P<zh>.+?)(?:的(?:所有|一切|全部)?(?:事情?|记忆|东西|信息)?)?",
    re.IGNORECASE,
)
FORGETS_ALL = re.compile(  # nothing is left to ask back
    rf"(?:please |pls |can you |could you )?(?:forget|wipe|delete|erase|remove|clear) (?P<what>{EVERYTHING.pattern})(?: please| pls)?[.!?]*",
    re.IGNORECASE,
)
