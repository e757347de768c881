"""Whether an answer says that there is none, in the many wordings of models; English and Chinese."""

from __future__ import annotations

import re

MOST = 2000  # characters that are read: whether an answer is a refusal shows at its beginning


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns))


_FOUND = (
    r"(?:information|info|mention|records?|evidence|indication|details?|data|memor(?:y|ies)|answers?|references?|"
    r"context)"
)
_SAID = (  # of anybody
    r"(?:(?:mention|specif|stat|provid|indicat|discuss|disclos|reveal|clarif)(?:y|ies|ied|e|es|ed|s)?|"
    r"given|brought up|come up|talked about|touch(?:ed|es)? (?:up)?on)"
)
_KEPT = r"(?:(?:includ|cover|record|document|address|describ|identif|refer|list)(?:y|ies|ied|e|es|ed|s)?)"  # of sources
_SOURCE = (
    r"(?:conversations?|contexts?|texts?|memor(?:y|ies)|dialog(?:ue)?s?|passages?|chats?|documents?|messages?|excerpts?|"
    r"transcripts?|notes?|logs?|history|they|it)"
)
_NOT = r"(?:n't| not| never)(?: \w+ly)?"
_WHICH = r"(?:who|what|when|where|why|how|which|whether|if|so|anything|much)"

# An answer of just these words. "None" is no refusal: it may be a number.
_WHOLE = re.compile(
    r"(?:(?:it|that|this|the answer|(?:the |that |this )?information)(?: is|'s)? )?(?:currently )?"
    r"(?:unknown|n/?a|unsure|not sure|no idea|unclear|uncertain|unanswerable|undetermined|unspecified|"
    r"undefined|missing|not (?:available|applicable|known|answerable)|"
    rf"null|idk|信息不足|資訊不足)(?: to me| yet| at this time| in (?:\w+ )?{_SOURCE})?"
)
_REFUSES = _any(
    # there is no information about …; but not: no details were too small
    rf"(?:^|\bthere(?: is|'s| are| was| were)|\b(?:i|we) (?:\w+ )?(?:have|see|find|found)|\b{_SOURCE} (?:\w+ )?\w+) ?"
    rf"(?:no|insufficient|not enough)(?: such)?(?: [\w-]+){{0,2}}? {_FOUND}\b"
    r"(?! (?:is|are|was|were) (?!\w*(?:available|given|provid|mention|found|stat|specif)))",
    rf"\b(?:is|was|are|were)(?:n't| not) (?:\w+ )?(?:any|enough|sufficient)(?: [\w-]+)? {_FOUND}\b",
    rf"\b{_SOURCE} (?:\w+ )?lacks? (?:[\w-]+ ){{0,2}}{_FOUND}\b",
    rf"\b(?:nothing|no one|nobody|neither)(?: \w+){{0,4}} (?:{_SAID}|says?|said)\b",
    rf"\bnothing is known\b|\bnone of the (?:{_SOURCE}|{_FOUND})(?: \w+)? (?:{_SAID}|answers?)\b",
    r"^no mention\b|\bthere(?: is|'s| was) nothing (?:about|on|regarding|that)\b",
    # it is not mentioned; the text does not say
    rf"\bnot (?:\w+ly )?(?:been |be )?(?:{_SAID}|said)\b",
    rf"(?:\bnot|n't) (?:been )?{_KEPT}(?:$| (?:in|by) (?:\w+ )?{_SOURCE}\b)",
    rf"\b(?:is|was|has|have|are|were)n't (?:\w+ly )?(?:been )?(?:{_SAID}|said|available|known(?! for))\b",
    r"\b(?:never|not|n't) (?:appears?|comes? up|brings? (?:it|this|that) up)\b",
    r"\b(?:i|we)(?: am| are|'m|'re| was) not told\b",
    rf"\bnever (?:\w+ )?{_SAID}\b|\bno way (?:of|to) (?:\w+ )?(?:know|tell|determin|find)",
    rf"\b(?:do|does|did|has|have){_NOT} {_SAID}\b|\bnot something \w+ (?:{_SAID}|said)\b",
    rf"\b{_SOURCE} (?:\w+ )?(?:do|does|did){_NOT} "
    rf"(?:say|tell|contain|show|answer|{_KEPT}|have (?:[\w-]+ ){{0,3}}{_FOUND})\b",
    rf"\b(?:do|does|did){_NOT} (?:say|tell)(?: {_WHICH}\b|$)",
    # I do not know; it cannot be determined
    r"\b(?:i|we)(?: \w+ly)? (?:do|did)(?:n't| not) (?:\w+ly )?"
    rf"(?:know|recall|remember|(?:have|find|see) (?:(?:[\w-]+ ){{0,3}}{_FOUND}|anything (?:about|on)))\b",
    r"^do(?:n't| not) know\b|^(?:not sure|unsure|no idea)\b|^unknown\s*[:,;–—-]",
    r"\b(?:i am|i'm|we are|we're) (?:not sure|unsure|unaware|not aware|not certain|uncertain)\b",
    r"(?:^|\b(?:i|we|it|this|that|there|answer|question|which)(?:'s|'m|'re| is| am| are| was| were)? )"
    r"(?:can ?not|can't|could not|couldn't|unable to|impossible to|not possible to|hard to)(?: \w+ly)?(?: be)? "
    r"(?:answer|determin|tell|find|say|infer|know|identif|establish|provide|locate|confirm|conclude)\w*\b",
    rf"\b(?:is|are|was|were|remains?) (?:\w+ly )?(?:unknown|not (?:known|available|clear|in the (?:\w+ )?{_SOURCE}))"
    r"(?:$| (?:from|in|to me|for)\b)",
    r"^(?:it|this|that)(?: is|'s) (?:unclear|unknown|not clear|not known|uncertain)\b",
    r"\b(?:is|are|was|were) (?:unclear|unspecified|undetermined)$",
)
_CHINESE = _any(
    r"(?:^|我|我们|我們|，|也|并|並)不(?:太|大|是很)?(?:知道|清楚|确定|確定)|不得而知|未知|不详|不詳",
    r"未(?:曾|明确|明確)?(?:提|说明|說明|指明|记录|記錄|找到)",
    r"(?:没有|沒有|没|沒)\w{0,4}?(?:提到|提及|提供|说明|說明|说[他她它到是过](?!谎)|說[他她它到是過](?!謊)|指明|记录|記錄|找到)",
    r"(?:没有|沒有)\w{0,10}?(?:记录|記錄|信息|資訊|资讯|资料|資料|答案|线索|線索|内容|內容|细节|細節)|没人提|沒人提|没有人提|沒有人提|"
    r"无\w{0,2}(?:信息|答案)|無\w{0,2}資訊",
    r"(?:无法|無法|不能|难以|難以)\w{0,8}?(?:回答|确定|確定|得知|判断|判斷|知道|找到|推断|推斷)",
)
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|[。！？；\n]+")
_CONTRAST = _any(
    r"[,;:.–—-]{0,3}\s*\b(?:but|however|although|though|yet|nevertheless)\b[,:]?\s*",
    r"[,，]?(?:但是?|不过|不過|然而|可是)[,，]?",
)
_CONCESSION = re.compile(r"(?:although|though|while|even though|even if|虽然|雖然|尽管|儘管).*?[,，]\s*(.+)")
_HEDGE = re.compile(  # begins what answers after all
    r"(?:so|then|thus|therefore|still|if i had to guess|at a guess)?[,:]?\s*"
    r"(?:maybe|perhaps|probably|possibly|likely|presumably|apparently|my (?:best )?guess|(?:the |my )?answer|"
    r"i(?: would|'d)? (?:think|believe|guess|suppose|assume|say)|"
    r"(?:it|this|that|he|she|they) (?:(?:is|was|were|are) (?:in|on|at|about|around|most|called|probably|likely)|may|"
    r"might|could|must|would|seems?|appears?|probably|likely)\b|"
    rf"(?:the |these |this )?{_SOURCE} (?:\w+ )?(?:suggest|impl|hint|point)|"
    r"也许|也許|可能|大概|或许|或許|应该|應該|我猜|答案)"
)
_GUESS = re.compile(r"(?:yes|probably|likely|maybe|perhaps|possibly|可能|大概|也许|也許)\b")
_NO_ANSWER = _any(  # offers help, or speaks of the source
    r"\b(?:please|let me know|if you|you (?:can|could|may|might|should)|i (?:can|could|would be happy|am happy)|"
    r"feel free)\b",
    rf"\b(?:the|these|those|only|there) (?:\w+ )?{_SOURCE} (?:\w+ )?(?:mention|talk|discuss|refer|say|state|contain)",
    r"请|請|如果",
)
_FILLER = re.compile(
    r"(?:(?:i'm |i am )?sorry|unfortunately|apologies|hm+|well|抱歉|对不起|對不起|很遗憾)[,.!，。]*\s*(?:but\b|但)?\s*"
)


def is_refusal(answer: str) -> bool:
    """Whether an answer begins by saying that it is not known, and does not answer after that.

    "I don't know, but I think it was in May" answers; so does what answers first and adds that the day is not known.
    """
    text = " ".join(answer[:MOST].lower().replace("’", "'").replace("*", "").split()).strip(" \"'()[]")
    clauses = [part for part in _SENTENCE.split(_FILLER.sub("", text, count=1)) if part.strip(" .")]
    if not clauses:
        return False
    first, *rest = clauses
    if conceded := _CONCESSION.match(first):
        first = conceded[1]
    begun, *after = _CONTRAST.split(first)
    if _GUESS.match(begun) or not _refuses(begun.split(", which ")[0]):
        return False
    for clause in rest:
        contrast = _CONTRAST.match(clause)
        if contrast or _HEDGE.match(clause):
            after.append(clause[contrast.end() if contrast else 0 :])
    after += [part for part in re.split("[,，]", begun)[1:] if _HEDGE.match(part.strip())]
    return not any(_answers(clause) for clause in after)


def _refuses(clause: str) -> bool:
    bare = clause.strip(" .!,;:\"'()[]")
    return bool(_WHOLE.fullmatch(bare) or _REFUSES.search(bare) or _CHINESE.search(bare))


def _answers(clause: str) -> bool:
    return any(c.isalnum() for c in clause) and not _refuses(clause) and not _NO_ANSWER.search(clause)
