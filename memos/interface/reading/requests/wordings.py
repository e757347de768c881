"""Tables of the words that point, withhold, or name the form of a memory, in English and Chinese."""

# ruff: noqa: E501  (a regular expression is read as one line)

from __future__ import annotations

import re

from memos.lazy import pattern

FIRST = pattern(r"\b(?:I|me|my|mine|myself|I['’]\w+|we|us|our|ours)\b|(?<!\w)i(?=['’ ])|我|咱|俺|自己", re.IGNORECASE)
SPEAKER = pattern(r"I|我", re.IGNORECASE)
SENTENCE = pattern(  # "Dr. Seuss" is within one
    r"\S.*?(?:(?<!\bDr)(?<!\bMr)(?<!\bMs)(?<!\bSt)(?<!\bMrs)(?<!\bvs)[.!?。！？…]+(?=\s|$|[\u4e00-\u9fff])|$)",
    re.DOTALL,
)
WORD = pattern(r"[^\W\d_]")
TO_ME = pattern(r"\b(?:remind|tell|show|give|let) (?:me|us)\b", re.IGNORECASE)
POINTS = pattern(
    r"(?i)(?:all of |both of )?(?:it|its|that|this|them|those|these|they|there|here|both|the same|all that|that all|it all)(?: (?:one|ones|thing|things|stuff))?|the (?:one|other|thing|latter|former|lot)|(?:它们?|其|这些?|那些?|此)(?:都|全部|全)?|[这那][个只条家本份张件间辆台部座所套幅篇首款次处种位名]?(?:东西|玩意儿?|事儿?|些)?|里[面头]|上[面头]|那[里儿]|这[里儿]"
)
REFERS = pattern(  # to what was said before, as far as a word can tell
    r"\b(?:it|its|that|this(?! (?:week(?:end)?|month|year|morning|afternoon|evening)\b)|th[oe]se|them|they|their|she|hers?|he|him|his|ones?|there|same|former|latter|others?|both|either|so(?! far)|else|again|why)\b|[它她他]|其(?![实他余中])|这(?!周|个?月|个?星期|几天|两天|次|么|样|辈)|那(?!天|年|么|样|时)",
    re.IGNORECASE,
)
INTRODUCES = pattern(  # "note that ..."; not "forgot my keys"
    r"(?i)[,:;.!?，：。—-]\s*$|\bthat\s*$|\b(?:remember|note|fyi|log|jot|in mind|forget|so|and|but|well|btw)\b|记|忘"
)
LEADS_IN = pattern(r"^\W*(?:\w\S*\s*){0,3}$|[:,，：]\s*$|\bthat\s*$", re.IGNORECASE)  # few words, or to what is told
DEFINITE = pattern(r"(?:the|that|this|those|these|his|her|its|their)\b|[这那该其]", re.IGNORECASE)
NAMES_A_THING = pattern(r"the (?!(?:one|other|thing|latter|former|lot|same)s?\b)(?:\w+ )*(?P<noun>\w+)$", re.IGNORECASE)
OF_WHAT = pattern(r" (?:about|on|regarding|with) (?P<what>[^,.;!?]+)", re.IGNORECASE)  # behind "that last thing"
SAYS_WHAT = pattern(r"(?!(?:the|my|our|your|his|her|their|an?)$)(?:\w\w|[\u3400-\u9fff])", re.IGNORECASE)
SO = pattern(r"(?:like )?(?:that|this|so|it|right|true|correct)|[这那]样(?:的)?|对|真的?", re.IGNORECASE)
ONE_ZH = pattern(r"[他她它](?!们)")
NOBODY = pattern(  # whom "she" could be
    r"(?:hi|hello|hey|hiya|morning|evening|mr|mrs|ms|dr|prof|dear|love|you|i|me|him|her|she|he|it)s?\W*|[我俺咱].*|.|[\u4e00-\u9fff]+[a-z].*",
    re.IGNORECASE,
)
TORN_ZH = pattern(r"(?<=[\u3400-\u9fff])[\u3400-\u9fff]+")  # what goes on without a break
PERSON = pattern(r"she|he|her|hers|his|him|they|them|their|[她他](?:们)?|人家", re.IGNORECASE)
SOMEBODY = pattern(r"\b(?:she|he|hers?|him|his)\b|[她他]", re.IGNORECASE)
MANY = pattern(r"they|them|their", re.IGNORECASE)  # people or things
OPENS = pattern(r"^(?:The|My|Our|His|Her|Their|All|Every|Everything|What|Where|When|Who|How)\b")  # a sentence
AFTER = pattern(r"(?:(?<=with)|(?<=to)|(?<=from)| (?:with|to|from)) (?P<with>[\w@.-]*\w)")
INSIDE = pattern(r"(?P<what>.*\S) with (?P<with>[\w@.-]*\w)")
NEXT = pattern(r"(?<=\w) (?:back to|with|to|from)$|(?<=.)的$")  # what opens the slot after it
CALLED = pattern(  # what stands around a name: "the group hikers", "hikers' "
    r"(?i)^(?:the |our )?(?:group|team|user|agent) (?:called )?(?=\w)|^(?:the|our) (?=\w)|['’]s?$|^(?:用户|群组|同事)(?=[\u4e00-\u9fffA-Za-z])"
)
_WEEKDAY = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?s?"
WEEKDAYS = pattern(
    rf"(?i)\b{_WEEKDAY}(?:(?:, and|, or|,| and| or| &|/) ?{_WEEKDAY})+\b", re.IGNORECASE
)  # several, in a list
OWNS = pattern(r"his|its|their", re.IGNORECASE)
WITHHELD = pattern(  # "don't delete it yet"; not "don't keep it"
    r"(?i)(?:\b(?:do not|dont|never|not to|no need to|rather not)|n['’]t)(?: (?:ever|yet|just|actually|you|go and|dare|want (?:you )?to))* (?:delet|eras|remov|wip|scrap|purg|bin|ditch|revok|withdraw|unshar|roll|revert|undo|undid)\w*\b|(?:别|不要|勿|莫|不用|不必|不许|不准|不能|先不|暂不|暂时不)(?:急着|忙着|着急|给我|随便|现在|马上|真的?)?(?:删|清[掉除空]|抹[掉去]|撤[销回掉]|收回|回滚|擦掉|销毁|扔|丢掉|取消)"
)
FORMS = pattern(  # where a memory may be taken out of without being lost
    r"(?i)(?<![a-z])(?:cached?|adapter|LoRA|KV|GPU|weights|by heart|(?:pre|un)?loaded|train(?:ed)? (?:on|into?)|resident|memori[sz]ed?|(?:kept?|still|is|are|stays?) warm|warm slots?|(?:at|to) hand|within reach)(?![a-z])|缓存|快取|显存|显卡|适配器|权重|激活|常驻|预热|热着|温着|预载|加载|载入|[进入]模型|手边|背(?:下|熟|过|着|会)"
)
ERASES = pattern(r"\b(?:delet|eras|forg[eo]t)|删|忘|销", re.IGNORECASE)  # a cache, too, is wiped and cleared
WHOLLY = pattern(  # not out of the cache alone
    r"(?i)\b(?:memor|records?\b|originals?\b|backups?\b|trace|destr|eradicat|obliterat|shred|purg|wholly|completely|entirely|altogether|for good|permanently)|记忆|记录|彻底|原[文件始]|底稿|备份|存底|全部|通通|一概|永久|毁|连根|抹平"
)
NO_NOUN = pattern(r"\s*(?:$|[,.!?;:]|(?:again|too|now|any|please|to|and|or|but|for|at|with|from|on|about|in)\b)")
_DONT = r"(?:please |pls )?(?:do not|don['’]?t|never)(?: ever)? (?:save|store|remember|record|log|note|memori[sz]e|write|keep(?! it))"
UNKEPT = pattern(  # "..., don't save that", "don't remember that I like jazz"; not "don't save that file"
    rf"(?i)(?:^|[.!?,;:\n]\s*|\b(?:but|and|so|please|pls) )(?:{_DONT}(?: (?:down|on to))?"
    r" (?:(?:any of )?(?:that|this|it)|what i (?:just )?(?:said|told you))(?: (?:down|anywhere|please|pls|plz|ok(?:ay)?|though|either|thanks))*\s*(?:$|[.!,;:)]|(?=\bbut\b)))"
    rf"|(?:^|[.!?\n]\s*)(?:{_DONT}(?: that (?=(?:i|my|we|our|i['’]\w+)\b)| (?=(?:i|we|i['’]\w+)\b))(?!.*\?\s*$)|off the record[,:])"
    r"|(?:^|[，。！,;；]\s*)(?:请|拜托)?(?:你)?(?:也|就|先)?(?:别|不要|勿|不用)(?:帮我|给我)?(?:把)?(?:这个?|它|这些|这[句条件]话?)?(?:记录?|保?存|储存)(?:下来|住|下|起来)?(?:这个?|它|这些|这[句条件]话?)?\s*(?:$|[\s，。！,.!：:])|(?:^|[，。！,;；\s])这个?(?:就|先|也)?(?:别|不要|不用|不必)(?:帮我|给我)?(?:记|保?存)(?:录|下来|住|下|了)?(?:$|[\s，。！,.!])"
)
_SAY = r"(?:(?:please|pls|plz|kindly|can|could|would|you|just|no|oh|oops|ok(?:ay)?|wait|actually|sorry|now|and|then|hey|lol|haha|omg|nvm|never ?mind)[,.!]* )*"
_ERASE = r"(?:forget(?: about)?|delete|erase|remove|wipe(?: out)?|scrub|clear|scrap|drop|lose|unsave|strike|scratch|get rid of|take back)"
_THANKS = r"(?:,? (?:please|pls|plz|now|again|then|ok|thanks|thx|for me))*[\s.!?~]*"
_SAID = r"(?:(?:that )?i(?:['’]ve)? (?:just |ever )?(?:said|told (?:you|u)|wrote|sent|mentioned|typed)(?: that)?)"
ASKS_MODEL = pattern(  # for what is not remembered yet
    r"(?i)(?:(?:please|pls|ok(?:ay)?|now|hey),? |(?:can|could|would|will) you )*(?:tell me (?!that)|(?:give|show) me|write(?! (?:\w+ )?down)|draft|compose|translate|explain|suggest|recommend|rewrite|proofread|brainstorm|come up with|generate|calculate|convert|anything about)\b|(?:请|帮我|给我)?(?:介绍|推荐|说说|讲讲|聊聊|谈谈|总结)(?:一下|下)?|[^\s，。]{1,10}发(?:给)?我(?:一?下|看看)?[。！]*$"
)
REPLIES = pattern(  # to what was said before, or about who is talked to: nothing to keep, and nothing to look up
    r"(?i)(?:(?:(?:hi|hello|hey|hiya|good (?:morning|afternoon|evening|night|day)|everyone|there|all|oh|ah|hm+|well|so|and|but|ok(?:ay)?|k|yes|yeah|ye[ps]|yup|no|nope|nah|sure|please|pls|thanks|thx|maybe|never ?mind|got it|help(?: me)?|stop(?: it)?|not (?:really|yet|now|sure|at all)|(?:i|we) (?:do|did|am|was|will|can|(?:do|did|wo|ca)n['’]?t)|me (?:too|neither)|same|that['’]?s (?:all|it|everything)(?: (?:for|from) \w+)?|(?:you|u)(?:['’]?re|r)? an? (?:star|legend|gem|lifesaver|angel))\b|[\s,.!…])+|(?:(?:and|so|hey|ok),? )?(?:(?:who|what) (?:are|r) (?:you|u)|what['’]?s your name|what is your name|are (?:you|u) (?:a bot|an? ai|human|real|there)|who made (?:you|u)|how (?:are|r) (?:you|u|things)(?: doing)?(?: today)?|how['’]?s it going|what['’]?s up)[?!. ]*|(?:哈{2,}|嘿{2,}|呵{2,}|嘻{2,}|呜{2,})[~～!！。]*)"
)
_KEEPS = r"note|remember|keep|save|store|log|jot|mind|forget|write|record"  # words of an order to remember
KEEPS = pattern(rf"(?i)\b(?:{_KEEPS}|fyi|in mind)\b|[记忘]")
ADDS_NOTHING = pattern(  # behind what is to be remembered: an order, or a courtesy
    rf"(?is).*(?:\b(?:{_KEEPS}|got (?:that|it)|amend|fix|update|adjust|change|(?:would|will|can|could) (?:you|u))\b|[记忘存写留备错改]).*"
    r"|(?:(?:please|pls|plz|thanks|thank you|thx|ty|ok(?:ay)?|btw|by the way|lol|haha|though|too|so|you know|just|fyi|for future reference|for (?:me|later|next time))\b|[\s,.!?;:)(~…'\"“”‘’。，！]|[吧哦])*"
)
REMINDS = pattern(  # of what is to be done, which is kept
    r"(?i)(?:(?:please|pls|ok(?:ay)?|hey),? |(?:can|could|would|will) (?:you|u) )*remind me (?:to|that|(?:tomorrow|tonight|later|(?:on|at|in|next|this) \w+) (?:to|that|about))\b(?!.*\?\s*$)"
)
OF_MESSAGE = pattern(  # in a sentence that is about what is to be remembered, and tells nothing itself
    rf"(?i){REFERS.pattern}|\b(?:{_KEEPS}|correction|wrong|mistake|meant|update|change|quick|heads up|fyi|no)\b|[记忘存写留备错]"
)
CORRECTS = pattern(  # what was said just before
    r"(?i)(?:oh,? )?(?:no|nope|nah|wait|sorry|oops|actually|correction|wrong|not true|not quite|i meant|i mean|that['’]?s|it['’]?s|make (?:it|that)|should be)\b|[啊哦诶哎欸嗯]*[，, ]*(?:不对|不是|错|[说写打记搞]错|应该|[更纠]正|我是说)|.*(?:改过来|改一下|改正|更新一下)"
)
_RIGHT = r"(?!(?:wrong|not|right|true|false|correct|fine|ok(?:ay)?|it|that|this|nothing|no|yes|i|i['’]m|you|we|they|he|she|sorry|him|her|in|on|at|under|behind|by|with|from|for|about|because|so|but|and|really|very|too|just|still|never|always|been|going|getting|all|my|his|their|our|your)\b)[^\s,.!?][^\s,!?]*(?: [\w'’]+){0,5}?"
_NOPE = r"(?:(?:no|nope|nah|oh|wait|sorry|oops|actually|correction|wrong|not true|hang on|i beg your pardon|(?:i(?:['’]ve)? )?(?:said|wrote|typed|told you|got|put)(?: (?:it|that))? wrong|that(?:['’]s| was) wrong|(?:beg )?pardon(?: me)?|my mistake|my bad|apologies|excuse me|dear|love|mate|hun|honey|darling)\b[,.! ]*)*"
NOPE = pattern(_NOPE, re.IGNORECASE)
PUTS_RIGHT = pattern(  # what was said just before, and with what
    rf"(?i)(?:scrap|scratch|forget|ignore) (?:(?:that|the|what i said|last|thing|bit|about) ){{0,5}}(?P<old3>[^\s,!?]+)[,.;] (?:it['’]?s|it is|it was|make it) (?P<new3>{_RIGHT})[.!]*|{_NOPE}not (?P<old>[^\s,!?]+(?: [^\s,!?]+)?)[,.;]? (?:but )?(?:it['’]?s |it is |that['’]?s )?(?P<new>{_RIGHT})(?:,? (?:sorry|i (?:was )?(?:confused|misspoke|mistaken|wrong|mixed (?:it|them) up|got (?:it|that) wrong)))?[.!]*|{_NOPE}(?:it['’]?s|it is|(?:the|my|our) (?:[\w'’]+ ){{1,3}}(?:is|are|was)(?: on| at| called| named)?) (?P<new2>{_RIGHT}),? not (?P<old2>[^\s,!?]+)[.!]*"
    rf"|{_NOPE}(?:(?<=[,.! ])(?:it['’]?s|that['’]?s|it is|is|was)(?: at| on)?|(?<=[,.! ])(?:at|on)|i (?:meant|mean)|make (?:it|that)|(?:it )?should(?:['’]?ve| have)? be(?:en)?|(?<=[,.! ]))(?: actually)? ?(?P<right>{_RIGHT})(?:,? (?:sorry|actually)|(?:,| now)? (?:since|because|as|cos|cuz)\b[^.!?]*|, (?-i:[A-Z])\w+ (?:reckons|says|said|thinks|told)\b[^.!?]*)?[.!]*"
    rf"|(?:ok(?:ay)?,? |ugh,? )?(?:(?:it|that|this|she|he|they)(?:['’]?s| has| have| got)?(?: just| now)?(?: been)? )?(?:moved|changed|pushed(?: back)?|put back|brought forward|switched|rescheduled|postponed)(?: it| that)? to (?P<moved>{_RIGHT})(?: now)?[.!]*"
    r"|(?:不对[，, ]*)?(?:不是|唔系|唔係)(?P<zold>[^\s，,他她它]{1,12}?)[，,。 ]*而?[是系係](?P<znew>[^\s，,我]{1,12}?)(?: ?(?:才对|先啱))?(?:[，, ]*我?(?:刚才)?(?:记|说|打|写|搞)错了?)?[。！]*|(?:[啊哦诶哎欸嗯]*[，, ]*(?:不对|错了|[说写打记搞]错了?)[，,。！ ]*)?[^\s，,是不]{0,8}是(?P<znew2>[^\s，,我]{1,12}?)[，, ]*不是(?P<zold2>[^\s，,]{1,12}?)[。！]*|[啊哦诶哎欸嗯喔]?[，, ]*(?:不对|不是|错了|(?:刚刚?|刚才)?[说写打记]错了?|[更纠]正)[，,。！ ]*(?:应该是|应该|应为|改成|是)? ?(?P<zright>[^\s，,。！？]{1,16}?)(?: ?才对|[啦了啊哦喔])?(?:[，, ]*我?(?:刚刚?|刚才)?[说写打记搞弄看算]错[^，。]{0,6})?[。！]*|(?:[啊哦诶哎欸嗯] ?[，,]?)?(?:又|已经)?(?:改[到成为]|换[成到])(?P<zmoved>[^\s，。！？]{1,12}?)了?[。！]*"
)
PUTS_ANEW = pattern(  # what somebody has told of, in other words: "correction: the rent is 650"
    rf"(?i)(?=\w){_NOPE}:? ?(?P<said>(?:the|my|our) (?P<of>(?:[\w'’]+ ){{0,2}}[\w'’]+) (?:is|are|was|costs?)(?: now| called| named| on| at)* (?P<new>(?:[^,;?]|,(?=\d))+?))(?:,? (?:sorry|i (?:wrote|typed|said|got|had) (?:it|that) wrong|my mistake))?[.!]*"
    r"|(?:[啊哦诶哎欸嗯]*[，, ]*(?:不对|错了|[说写打记搞]错了?|[更纠]正)(?:一下)?[，,。！：: ]*)(?P<zsaid>(?P<zof>[\u4e00-\u9fff]{2,6}?)(?:应该)?(?:是|为|改[为成到在])(?P<znew>[^，。？]+?))[啦了啊哦。！]*"
)
MAY = pattern(
    r"\b(?:can|could|will|would|may|might|should|must|going to|gonna|wants?|needs?|ha(?:s|ve) to)\b|['’]ll\b",
    re.IGNORECASE,
)
RECURS = pattern(r"每[个隔]?(?:周|星期|礼拜|月|两)|公休")  # 每周二 is no one day
WRONG_ZH = pattern(r"错|不对|不是")
ASKS_ZH = pattern(  # for what is not told, or asks for it
    r"(?:请|麻烦|帮我?|给我?|你|再|能|可以|来|跟我|和我)*(?:介绍|说|讲|聊|谈|总结|列|查|找|看|搜|告诉|推荐|帮|给|读|念|翻译|写|算)|.*(?:[谁哪什啥几咩吗呢怎咋]|多少|记不记|记得)"
)
ORDER_ZH = pattern(r"^(?:请|麻烦|帮我|给我|你)*(?:记住|记一下|记得|记下来?|别忘了?|记录?)(?:一下)?[，,：: ]*")
GETS_RID = pattern(  # words without which nothing is told to go
    r"(?i)\b(?:delet|eras|forg[eo]t|remov|wip(?:e|ing)|scrub|clear|scrap|drop|los[et]|unsav|strik|scratch|rid\b|tak(?:e|ing)\b|never ?mind|purg|bin\b|trash|dump|throw|toss|cross|redact|expunge|let go|get it out|clean|shred|discard|destroy|undo|(?:don['’]?t|do not|no longer|not|stop|never|rather you)\b.*\b(?:keep|keeping|sav|stor|remember|know|have|need|hold|hang|retain|mention|bring)|disappear|nuke|kill|(?:can|may|must|should) go[.! ]*$|go away|gone|get lost|out of (?:your|the)|blank|hide|ditch|cancel (?:that|it|my (?:memory|note)))|[删忘抹清销撤扔掉]|别[再记留存提保]|不[要用必留]|剔除|去掉|移除|丢"
)
GOES_BACK = pattern(  # words without which nothing is told to be as it was
    r"(?i)\b(?:back|undo|revers|revert|restor|roll|return|earlier|previous|before|was\b|were\b|used to|old|original|first|last|version|reset|again)|[回撤退]|恢复|重置|还原|之前|以前|原[来先]|上一|上个版|旧|早先|第[一二三四\d]"
)
IS_COLD = pattern(r"(?i)冻[死坏僵得伤哭]|\bfreezing\b")  # and no order to freeze a memory
SHARES = pattern(  # words without which nothing is told to be shared
    r"(?i)\b(?:shar|giv|let\b|show|send|access|visible|see\b|seen|look|watch|use\b|own|read|grant|allow|view|open|edit|publish|with\b|for\b|to\b)|[享给給让讓看见見开授权发许可传归用]|公开|知道"
)
CHANGES_TO = pattern(  # of what is spoken, and what is to be in its place: an order by its form alone where it has one
    r"(?i)(?P<order>(?:(?:please|pls|ok(?:ay)?|and|so|(?:can|could) (?:you|u)),? )*(?:change|update|set|amend) )?(?P<of>(?:(?:my|our|his|her|their|the) |(?-i:[A-Z])[\w’'-]*['’]s )(?!(?:\w+ed|\w+ing|is|are|was|were|has|had|have|goes|went|came|comes|got|flew|drove|belongs|used|said|gave|took|sent|runs|leads|returns)\b)[\w'’-]+(?: (?!(?:\w+ed|\w+ing|is|are|was|were|has|had|have|goes|went|came|comes|got|flew|drove|belongs|used|said|gave|took|sent|runs|leads|returns)\b)[\w'’-]+){0,5}?) to (?P<new>(?:(?!\b(?:is|are|was|were)\b)[^?]){1,60}?)(?:,? (?:please|pls|thanks|thx|(?:would|will|can|could) (?:you|u)))*[.!?]*|(?P<order2>(?:请|麻烦|帮我|你)*把)?(?P<of2>[^，,。？?]{1,15}?)(?:的?(?:时间|日期))?(?:又?改了[，,])?(?:改|换|调|更新)(?:成|为|到)了?(?P<new2>[^，,。？?]{1,15}?)[吧了。！!]*(?:[，,](?P<why>[^？?]{1,60}))?|(?P<of3>(?![他她它我你您这那])[^，,。？?]{1,10}?)(?:现在)?是(?P<new3>[^，,。？?是]{1,12}?)[，,]?(?P<order3>不是)[^，,。？?]{1,12}?[了。！!]*"
)
LAST_SAID = pattern(
    r"(?:the|my|that) (?:very )?(?:last|latest|previous)(?: (?:thing|one|message|bit|memory|note|part|sentence))?"
    rf"(?: {_SAID})?|(?:what |that ){_SAID}|i (?:just |ever )?said (?:that|it|so)|我?刚[才刚]?(?:说|讲|发)的(?:话|那[句条]话?)?|上一[句条]话?|最后[那一]?[句条]话?",
    re.IGNORECASE,
)
TAKES_BACK = pattern(  # what was said, and not what was done
    rf"(?i){_SAY}{_ERASE} (?:it|that|this|{LAST_SAID.pattern}){_THANKS}|(?:请|麻烦)?(?:把)?(?:{LAST_SAID.pattern}|这个?|那个?|它)(?:给我?)?(?:都)?(?:删|忘|抹|清)(?:掉|了|除)?[了吧。！]*"
)
UNDO = pattern(
    rf"(?i){_SAY}(?:(?:undo|revert|reverse)(?: (?:it|that|this|the (?:last one|deletion|delete)))?|(?:bring|put|get|give me) (?:it|that|this|them) back|(?:restore|undelete|unforget) (?:it|that|this|them)){_THANKS}"
    r"|(?:算了[，,]?|不对[，,]?|等等[，,]?)?(?:请|帮我)?(?:把[它这那]个?)?(?:(?:撤[销回]|恢复|还原|复原)(?:刚才的?)?(?:删除|操作)?|找回来?|加回[来去])(?:一下|回来)?[吧。！]*"
)
EVERYTHING = pattern(  # "everything you know about Callum"
    r"(?:everything|anything|whatever|all)(?: of it| (?:the )?(?:memories|things|stuff))?(?: (?:that )?(?:you|u)(?: (?:know|have|remember|stored|saved|kept))?)? (?:about|on|of|regarding) (?P<name>.+?)|(?:所有|一切|全部)?关于(?P<zh>.+?)(?:的(?:所有|一切|全部)?(?:事情?|记忆|东西|信息)?)?|(?P<zh2>[^\s，,]{1,8}?)(?:(?:相关|有关)的?|的(?=那些|所有|全部|一切))(?:那些|所有|全部|一切)?(?:的?(?:事情?|话|东西|信息|内容|记忆|记录))?|(?:everything|it all|all of it|all (?:the |my |your )?(?:memories|data|notes))(?: (?:that )?(?:you|u)(?:['’]ve)? (?:know|have|remember|stored|saved|kept|got)(?: stored)?)?|(?:所有|一切|全部)(?:的?(?:记忆|东西|信息))?",
    re.IGNORECASE,
)
_OF_ALL = rf"(?:forget|wipe|delete|erase|remove|clear|get rid of|scrub) (?P<all>{EVERYTHING.pattern})"
FORGETS_ALL = pattern(
    rf"{_SAY}{_OF_ALL}{_THANKS}|(?:你|请|帮我)*把?(?P<zh_all>[\u4e00-\u9fffA-Za-z]{{1,8}}?(?:(?:相关|有关)的?|的(?=那些|所有|全部|一切))(?:那些|所有|全部|一切)?(?:的?(?:事情?|话|东西|信息|内容|记忆|记录))?)(?:都|全部?|统统)?(?:删|忘|清)(?:掉|了|除)?[了吧。！]*",
    re.IGNORECASE,
)  # nothing is left to ask back
_NAMED = r"(?:(?:my|our|the) (?:[\w'’-]+ ){0,2}?)?(?!(?:me|us|you|it|that|this|those|these|them|they|him|his|her|their|he|she|everything|all|anything|some|to|how|about|up|out)\b)[\w'’-]+(?: (?-i:[A-Z])[\w'’-]+)?"
FORGETS = pattern(  # an order by its form alone, of so few words that they are no more than a name
    rf"(?i){_SAY}(?:forget(?: about)?|delete|erase|wipe|remove) (?P<what>{_NAMED}){_THANKS}|{_SAY}(?:forget|delete|erase|wipe|clear|remove) (?:what(?:ever)?) (?:you|u) (?:have|know|remember|saved|stored|kept)(?: (?:on|about|of))? (?P<known>{_NAMED}){_THANKS}|{_SAY}forget (?:that|about how) (?P<that>(?!(?:i|you|we|it)\b)[a-z][^,;.?!]{{6,60}}?){_THANKS}(?:[,;] [^?]{{1,60}})?|{_SAY}{_ERASE} (?:(?:the|that|my) (?:last )?(?:bit|thing|stuff|part|note|info)s?|what(?:ever)? {_SAID}(?: (?:you|u))?) (?:about|on|with) (?P<about>(?!(?:it|that|this|them|him|her)\b)[^,;.?!]{{2,60}}?){_THANKS}(?:[,;] [^?]{{1,60}})?|{_SAY}(?:(?:never|don['’]?t|do not)(?: (?:you|ever))* (?:mention|bring up|talk about|speak of)|stop (?:mentioning|bringing up|talking about)) (?P<never>{_NAMED})(?: to me)?(?: (?:again|ever|any ?more))*{_THANKS}|{_SAY}(?:don['’]?t|do not|never) (?:keep|store|save|hang on to|hold on to|remember) (?P<unkept>my [\w'’-]+(?: [\w'’-]+){{0,2}}?|(?:the|that) (?:thing|bit|stuff|part) (?:about|on|with) [^,;.?!]{{2,60}}?){_THANKS}"
    r"|(?:请|帮我|麻烦)?把(?P<zh_what>[^\s，。？]{2,14}?)(?:那条|这条|这个|那个)?(?:给我)?(?:删|清)(?:掉|除|了)+(?:好了|算了)?[吧。！]*(?:[，,][^？?]{1,20})?|(?:请|帮我)?(?:把)?(?:忘[掉记]?|删[掉除]?)(?:了)?(?:我(?:之前|以前)?(?:说|讲|提)过?的?|你(?:知道|记得)的|所有)?(?:关于|有关)(?P<zh_about>[\u4e00-\u9fff\w]{1,8}?)的?(?:事情?|话|东西|信息|内容|一切|记忆)?(?:都|全)?了?[吧。！]*|(?:[^，,。？?]{2,24}[，,])?(?P<zh_of>[^\s，,。？?]{2,14}?)(?:的|[那这][个件]?|的[那这]件)(?:事情?|事儿)(?:就|都|给我|也|可以)*(?:忘|删)(?:掉|了|记|除)+[吧了。！]*|(?:请|帮我|你)*(?:忘[掉记]|删[掉除])了?(?P<zh_matter>[^\s，,。？?]{2,14}?)(?:的|[那这][个件]|的[那这]件)(?:事情?|事儿)[吧了。！]*(?:[，,][^？?]{1,20})?|(?:别|不要|不用)再?记(?P<zh_unkept>[^\s，,。？?]{1,14}?)的?(?:事情?|事儿)了?[吧。！]*(?:[，,](?:把?[那这]?条?)?[删忘][^，。？?]{0,6})?[。！]*|(?:以后)?(?:再也)?(?:别|不要|不许)再?(?:跟我|和我)?提起?(?P<zh_never>[\u4e00-\u9fff]{2,6}?)了?[吧。！]*"
)
FORGETS_OWN = pattern(  # what it names itself, behind what it tells: "sold the ute, so you can wipe the rego for it"
    rf"(?i)(?:(?P<told>[^?]{{8,80}}?)(?:,|,? so|,? and)? (?:so )?)?{_SAY}{_ERASE} (?P<what>(?:the|my|our) (?!(?:very )?(?:last|latest|previous|first|ones?|other|things?|rest|lot|bit|stuff|part)\b)[\w'’-]+(?: [\w'’-]+){{0,3}}?)(?: (?:for|of|about) (?:it|that|this|them))?{_THANKS}"
)
ASIDE = pattern(  # beside what a description is about
    rf"(?i)^(?:(?:all |any of )?(?:the|that|those|my|this|any) (?:last |latest )?(?:thing|bit|stuff|part|fact|note|one|message|news|info(?:rmation)?|memory|memories)s? (?:about|on|with|of|where)|(?:the (?:thing|bit|part) )?(?:what(?:ever)?|that) {_SAID}(?: (?:you|u))?(?: about| of| on)?|(?:what(?:ever)?) (?:you|u) (?:have|know|remember)(?: (?:on|about|of))?|that i(?: ever)? (?:said|told (?:you|u)) (?:that )?|about) |(?<=.)(?:放?在?哪[儿里]?)?(?:的[那这]?[个件条]?|[那这][个件条]?)(?:事情?|事儿|记录?|记忆)[吧了。]*$|(?<=.)放?在?哪[儿里]?的[那这][个件条]$"
)
RUN_ON = pattern(
    r"(?i)(?<=\w\w\w) (?:stuff|things?|info|bit)(?: (?:i|we|he|she|they|it)\b.*)?$"
)  # "the gym stuff i quit it"
EXCLAIMS_ZH = pattern(
    r"今[天晚早儿][^，,。\d]{1,10}(?:[啊呀呐呜唉]|哈哈)[啊呀呜哈~！!。]*"
)  # of a day that is like that
SMALL_TALK_ZH = pattern(  # of the weather, and of how tired somebody is
    r"[^我]*(?:今[儿天]个?|最近|外[头面]|这[几两]天)[^我，,]{0,6}(?:天气|[真好太怪贼可][冷热闷]|零下)[^我]*|[^，,。]{0,20}累死(?:个?人|我)?[了啊呀哈啦~！!。]*"
)
STAYS = pattern(r"(?:留[着著]|别[删忘]|不要[删忘]|不用[删忘]|保留)[吧了。！]*$")  # beside what is to be forgotten
IF_TOLD = pattern(r"^我?(?:有没有|是不是|是否)(?:之前|以前)?(?:跟你|和你)?(?:说|提|讲)过(?=.*(?:什么|[哪谁啥几]|多少))")
GOES_ON_ZH = pattern(
    r"涨|换|改|那|原[来先]|之前|本来|当初|最初|一?开始"
)  # opens a question about before that names nothing
ORIGIN = pattern(  # where a memory comes from
    r"(?i)\b(?:why|how (?:do|did|can|would|come|on earth)|makes? (?:you|u)|where(?:['’]?d| do| did| does| is| was)|who (?:told|said|gave)|source|based|c[ao]me from|got (?:that|this|it)|reason|basis|evidence|proof|explain|know that|sure)\b|为[什何啥]|凭|依据|根据|来源|[哪那][里儿]?来|[从打]哪|听来|怎么(?:会|知|晓|得)|谁(?:说|告|讲|跟)|出处|缘由|原因|确定"
)
JUST_A_NOUN = pattern(  # which is asked for
    r"[^\s，。是了在有叫换改为忘记]{1,8}(?:密码|电话|手机号|号码|地址|生日|车牌号?|单号|取件码|[账帐]号)[呢？?]*"
)
QUESTION_WORDS = r"who|whose|whom|what|which|where|how|why|do|does|did|is|are|am|was|were|can|could|will|would|should|have|has|when (?:do|does|did|is|are|am|was|were|will)"
ASKS_ITSELF = pattern(  # what opens a question: "when did I", and not "when I did"
    rf"(?i)\s*(?:(?:and|or|but|then|also|so|oh|hey|please|ok(?:ay)?),? )*(?:{QUESTION_WORDS}|(?:who|what|where|how|why)s|when(?:['’]s| (?:can|should|have|has))|tell me)\b|\s*[\u3400-\u9fff]"
)
ASKS_PLAINLY = pattern(
    r"(?i)(?:(?:and|so|but|hey|ok(?:ay)?),? )?(?:who|whose|what|which|where|when|how|why)(?: \w+){0,3}? (?:do|does|did|is|are|am|was|were|have|has|can|should|will) (?:(?:i|you|u|we|he|she|it|they|my|our|your|the)\b|(?-i:[A-Z]))|(?:am|do|did|have|was|should|shall) (?:i|we)\b|(?:is|are|does|do|can|will) (?:it|he|she|they|there)\b|(?:what|who|where|when|why|how)(?: \w+)? (?:does|did) \w|(?:what|who|where|when|how)(?:['’]?s| is| was) (?:(?:\w+ ){0,3}\w+['’]s\b|.* again$)"
)
ASKS_OWN = pattern(
    r"(?i)(?:what|which|where|when|how|why|who)(?: \w+)? (?:do|does|did|is|are|am|was|were|have|has) (?:i|we|my|our)\b|how many (?!memor|note|thing|fact|item|entr|record)\w+ (?:are|were|is|will|can)\b(?!.*\b(?:you|u)\b)|我(?:有没有|有)?(?:跟你)?[说提讲]过.*吗"
)
ASKS_OF_LIFE = pattern(r"^(?!.*[你您]).*(?:哪|谁|什么|啥|几|多少|何时)")  # not of who is talked to
SUPPOSES = pattern(  # "if I draw a card, what are the odds?"
    r"(?:if|suppose|supposing|assuming|imagine|let['’]?s say|假如|如果|要是)(?![\w])|(?:假如|如果|要是)", re.IGNORECASE
)
ASKS_MORE = pattern(  # beside what is told: "I start drafting my essay. Can you suggest some tools?"
    rf"(?is)(?!.*\b(?:{_KEEPS}|add|put|update|change|fix|delete|remove|set|do (?:it|that|this))\b)(?:[\w'’-]+,? ){{4,}}.*[?？]$"
)
OF_REPLY = pattern(  # how to reply to what was asked before it, and to nothing else
    r"(?is)(?!.*\b(?:always|never|from now on|in (?:the )?future|whenever|every time|each time)\b)(?:(?:please|and|but),? )*(?:(?:only|just) )?(?:mention|list|name|give|show|answer|reply|respond|include|exclude|limit|explain|describe|summari[sz]e|keep (?:it|your)|be (?:brief|concise|specific|short|precise))\b"
)
SEVERAL = pattern(  # between two questions: "where do I live and what's my dog called?"
    r"(?i)(?<=[?？])\s*(?=[^\s?？][^?？]*[?？])|,? and (?=(?:(?:who|what|where|how|why|when)(?:['’]s| (?:do|does|did|is|are|am|was|were))|what (?:\w+ )(?:do|does|did|is|are|was|were)) (?:i|we|you|he|she|they|it|my|our|his|her|their|the)\b)"
)
HOLDS = pattern(  # from now on
    r"(?:(?:please|and|so|ok(?:ay)?),? )*(?:always|never) (?!mind\b|ever\b)\w+ \w", re.IGNORECASE
)
LISTS = pattern(  # what is remembered of somebody or something
    r"(?:(?:so|and|ok(?:ay)?|hey),? )*(?:(?:what (?:do|does|did) you|tell me (?:what|everything|all)(?: that)? you|what you) (?:know|remember|have)(?: (?:about|on|of))? |tell me (?:all|everything|more) about )(?P<what>(?!(?:about|on|of|it|that|this|him|her|them|me|all|everything)\b)[^,;.?!]{2,40}?)(?: again| so far| now)?[?.! ]*|(?:(?:please|can you|could you) )*(?:list|show(?: me)?)(?: all)?(?: of)? (?P<my>my (?!memor|notes|data)[\w ]{2,30}?)[?.! ]*|(?:(?:please|can you|could you) )*(?:list|show(?: me)?) (?:everything|all(?: of)?(?: that)?|what(?:ever)?)(?: that)? (?:i|we)(?:['’]?ve| have)? (?:ever )?(?:told|said|mentioned)(?: to)?(?: (?:you|u))? (?:about|on) (?P<said>[^,;.?!]{2,40}?)[?.! ]*|(?:帮我|请)*列出(?:所有|全部)?(?:关于|有关)?(?P<zh_list>[^\s，。？]{1,10}?)的?(?:事情?|信息|东西|记录|内容)[吧。！]*|(?:你|还|都|現|现在)*(?:知道?|记得|了解)(?:关于)?(?P<zh>(?!我[什啥哪的]|[他她它你这那])[^\s，。？]{1,10}?)的?(?:什么|些?啥|哪些|些什么|咩)(?:事情?|信息|东西)?[吗呢？。]*|我(?:跟|和|给|对)你(?:说|讲|提|聊)过(?:哪些|什么|些什么|啥)?(?:关于|有关)(?P<zh_of>[^\s，。？]{1,10}?)的(?:哪些|什么|啥)?(?:事情?|事儿|话|信息|东西)?[呢？。]*",
    re.IGNORECASE,
)
IS_CANTONESE = pattern(r"[喺嘅唔冇佢哋嗰啲咗睇嘢乜啱]|而家|[系係](?=[我你])|(?<=[我你])[系係]|[边邊]度|咩")
