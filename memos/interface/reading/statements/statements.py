"""A sentence -> the facts that it states, and how each holds: from now on, no longer, in the past, or as a wish.

Knows English; chinese.py knows Chinese. Reads clause by clause: words such as "no longer", "also" and "used to" are
taken out and remembered, and what is left is read by the phrasebook's forms and those of readings.yaml. A sentence of
doubt or of somebody else's words states nothing. What is not read is never guessed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Literal

import yaml

from memos.cube import Fact
from memos.interface.reading.phrasebook import (
    END,
    LONGEST,
    NAME,
    NOT_NAMES,
    OBJECT,
    Hit,
    as_object,
    hits,
    is_all_said,
    parse,
    phrasebook,
)
from memos.interface.reading.statements import chinese

Mode = Literal["is", "also", "now", "ended", "was", "will"]


@dataclass(frozen=True)
class Reading:
    """What a sentence states, and its clauses that no form reads."""

    facts: tuple[Fact, ...]
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Voice:
    """Whose words they are; lower: without capitals."""

    name: str
    lower: bool = False


@dataclass(frozen=True)
class _Form:
    relation: str
    regex: re.Pattern[str]
    literal: int
    mode: Literal["is", "now", "also", "ended"]


@dataclass(frozen=True)
class _Book:
    """readings.yaml, compiled."""

    forms: tuple[_Form, ...]
    over: tuple[re.Pattern[str], ...]
    holds: dict[str, str]
    adds: frozenset[str]  # updates of the phrasebook that stand beside what was
    attributes: frozenset[str]
    nouns: dict[str, str]  # the relations of some attributes
    jobs: frozenset[str]
    no_jobs: frozenset[str]  # what one can become beside
    kin: re.Pattern[str]


# In doubt, hearsay or a question, nothing is stated.
_DOUBT = re.compile(
    r"\b(?:if|whether|unless|maybe|perhaps|might|could(?! eat)|would(?! like)|should|possibly|probably|likely to|wonder"
    r"|suppos(?:e|ing|edly)|imagin(?:e|ing)|pretend\w*|wish(?:es)?|almost|nearly|apparently|rumou?rs?|joking|kidding"
    r"|not sure|doubt|as though|as if|dreamt|dreamed|heard)\b|\bI (?:think|guess|believe(?! in)) (?=\w)",
    re.IGNORECASE,
)
_SAYS = re.compile(
    r"\b(?!I\b)[\w'’]+ (?:just |once |also )?(?:says?|said|tells?|told|thinks?|thought|claims?|claimed|asks?|asked"
    r"|insists?"
    r"|(?:believes?|believed)(?! in)|wrote|writes|heard|swears?|mentioned|suggested|wants? me|asked me)\b.*",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"[\"“]\s*(?:I|He|She|We|They|My|You)\b[^\"”]*[\"”]?|(?<=[:,] )[‘'](?:I|We|My)\b[^’']*[’']?")
_WISH = re.compile(
    r"\b(?:will(?: be)?|shall|(?:am|is|are) (?:going to|gonna|about to|due to|supposed to|planning (?:to|on)"
    r"|thinking (?:of|about)"
    r"|considering|hoping (?:to|for)|looking (?:to|for|into)|trying to|training to be|saving (?:up )?for|tempted to)"
    r"|plans? (?:to|on)|(?:wants?|wanted|hopes?|hoped|intends?|intended|aims?|tries|try|tried|needs?|has|have|had"
    r"|would like|"
    r"decided|promised|meant|used to want) to|dreams? (?:of|about)|considering|want(?=s? an?\b)s?"
    r"|apply(?:ing)? (?:to|at|for)"
    r"|applied (?:to|at|for)|interview\w*|would like)\b ?",
    re.IGNORECASE,
)
_LATER = re.compile(
    r"\b(?:next (?:week|month|year|spring|summer|autumn|fall|winter|semester|term|\w+day)|tomorrow|some ?day|one day"
    r"|soon"
    r"|in the future|eventually|from (?:January|February|March|April|May|June|July|August|September|October|November"
    r"|December|next \w+|tomorrow))\b",
    re.IGNORECASE,
)
_NOT_WANT = re.compile(r"\b(?:not|never|cannot)\b", re.IGNORECASE)
_USED_TO = re.compile(r"\bused to (?:be\b)?", re.IGNORECASE)
_BACK_THEN = re.compile(
    r"\b(?:back then|in those days|in the past|at the time|before (?:that|this)|previously|formerly|as a (?:child"
    r"|kid|boy"
    r"|girl|teenager|student)|when (?:I|he|she|we|they) (?:was|were|had|lived|did)\b.*|in my (?:youth|childhood"
    r"|twenties"
    r"|teens)|growing up|at school|once upon a time|years ago|(?:until|till) .*|in (?:19|20)\d\d|last (?:year|summer"
    r"|winter"
    r"|spring"
    r"|autumn|fall|week|month)|from \d{4} to \d{4}|for a (?:week|month|year|while|few \w+))\b",
    re.IGNORECASE,
)
_FORMER = re.compile(r"(?:\b[Mm]y|['’]s) (?:first|old|previous|former|ex|late|last|childhood|second|least)\b")
# The past of verbs that tell a state; that of "move" or "buy" tells a change.
_PAST = {
    "lived": "live", "worked": "work", "played": "play", "drank": "drink", "liked": "like", "loved": "love",
    "hated": "hate", "drove": "drive", "owned": "own", "had": "have", "was": "am", "were": "am", "ate": "eat",
    "studied": "study", "preferred": "prefer", "spoke": "speak", "smoked": "smoke", "enjoyed": "enjoy", "kept": "keep",
    "used": "use", "reported": "report", "went": "go", "did": "do", "stayed": "stay", "volunteered": "volunteer",
    "attended": "attend", "ran": "run", "swam": "swim",
}  # fmt: skip
_PAST_VERB = re.compile(
    rf"(?<!been )(?<!have )(?<!has )\b(?:{'|'.join(_PAST)})\b(?! (?:born|promoted|hired|fired|made|laid|let|put))"
)
_NO_LONGER = re.compile(r"\b(?:no longer|not)\b(?= )|\bcannot (?=(?:\w+ ){1,5}any (?:more|longer))", re.IGNORECASE)
_ANY_MORE = re.compile(r",? ?\bany ?(?:more|longer)\b", re.IGNORECASE)
_DO_NOT = re.compile(r"\b(?:do|does) (?:not|no longer) ", re.IGNORECASE)
_NEVER = re.compile(r"\bnever ", re.IGNORECASE)
_STOPPED = re.compile(
    r"\b(?:have |has )?(?:stopped|quit|given up|gave up|finished|done with|ceased|quitted) (\w+ing)\b", re.IGNORECASE
)
# "I don't play today", "I don't like it very much": no end of anything.
_PARTLY = re.compile(
    r"\bon (?:\w+days?|weekends?|weekdays)\b|\b(?:today|tonight|yesterday|this \w+|at (?:night|work|home|all times)"
    r"|in the (?:morning|"
    r"afternoon|evening|summer|winter)\w*|often|always|every|much|well|yet|enough|usually|when|alone|right now|for"
    r" (?:breakfast|lunch|dinner)|after|before|during|without|while|because|just|only|that)\b",
    re.IGNORECASE,
)
_NOT_AT_ALL = re.compile(
    r"\b(?:not|never)\b.*\b(?:want|need|think|know|plan|mean|let|forget|mind|stop|quit|give up|care|believe|have to)",
    re.IGNORECASE,
)
_TOO = re.compile(
    r",? \b(?:as well|too|additionally|in addition|besides|on top of (?:that|it))\b(?= *$)|\b(?:also|additionally"
    r"|another)\b",
    re.IGNORECASE,
)
_SIDE = re.compile(r"\b(?:on (?:the side|weekends)|part[- ]time|in my spare time)\b", re.IGNORECASE)
_INSTEAD = re.compile(r",? \b(?:instead|rather)\b(?: of .*)?|\b(?:and )?no longer \w+$", re.IGNORECASE)
_NOW = re.compile(
    r",? ?\b(?:now(?! and (?:then|again))|nowadays|these days|from now on|as of (?:today|now|this \w+)|by now"
    r"|at last|again)\b",
    re.IGNORECASE,
)
_STRONG = re.compile(r"switched|instead|changed|mostly|only|best friend|prefer")
_WHEN = re.compile(
    r",? ?\b(?:(?:late |early )?(?:last|this|earlier this) (?:week|month|year|spring|summer|autumn|fall|winter"
    r"|morning|evening|night|weekend"
    r"|\w+day|January|February|March|April|May|June|July|August|September|October|November|December)|yesterday|today"
    r"|recently|lately|just|finally|currently|already|really|mostly|mainly|usually|actually|officially|happily|still"
    r"|at the moment|right now|(?:a|an|one|two|three|four|five|six|\d+|a few|a couple of|several) (?:day|week|month"
    r"|year)s? ago"
    r"|in (?:(?:19|20)\d\d|January|February|March|April|May|June|July|August|September|October|November|December)"
    r"|since (?:\w+ ?){1,2}$|for (?:\w+ ){1,3}(?:years|months|weeks)(?: now)?|for good|(?:on|every) (?:\w+days?"
    r"|weekends?)"
    r"|(?:every|each) (?:single )?(?:day|morning|evening|night|week|year)|in the (?:morning|evening|afternoon"
    r"|mornings|evenings)"
    r"|at night|daily|a lot|so much|very much|after all|in the end|all the time|at the age of \d+|for a living"
    r"|myself)\b",
    re.IGNORECASE,
)  # fmt: skip
_OPENING = re.compile(
    r"^(?:(?:oh|well|so|yes|yeah|yep|ok|okay|hey|hi|hello|btw|by the way|(?:it )?turns out(?: that)?|good news"
    r"|big news|bad news|fun fact"
    r"|news|I meant?(?: to say)?(?: that)?|update|actually|in fact|correction|no|sorry|wait|on top of that"
    r"|in addition|besides|additionally|plus|also"
    r"|honestly|sadly|unfortunately|luckily|happily|apart from that|since then|as you know|you know(?: what)?"
    r"|guess what|i should mention"
    r"|just so you know|for the record|fyi|and|but|these days|nowadays|now|currently|recently|finally|as of (?:today"
    r"|now)"
    r"|(?:this|last) (?:week|month|year|spring|summer|autumn|fall|winter))\b[,:;.!—-]*\s*)+",
    re.IGNORECASE,
)
_VERB = (
    r"(?:am|is|are|was|have|has|live|work|play|drive|like|love|hate|enjoy|prefer|speak|drink|eat|study|use|own|moved"
    r"|joined"
    r"|started|switched|became|bought|got|took|adopted|quit|left|stopped|gave|sold|go|do|no longer|don['’]t"
    r"|doesn['’]t|used"
    r"|want|lives|works|plays|drives|likes|loves|hates|enjoys|speaks|drinks|eats|uses|owns|report|reports|keep|keeps"
    r"|became)"
)
_CLAUSE = re.compile(
    r"[;—,!?]\s+|\.\s+(?=[A-Z])|:\s+|\s+(?:but|because|although|though|whereas|and then|while|since (?=I|we|my))\s*"
    rf"|\s+and\s+(?=(?:now |then |also |just |have |has )?(?:I|I['’]\w+|[Mm]y|[Ww]e|(?:now |also )?{_VERB}"
    rf"|{NAME} (?:[a-z]+))\b)"
)
_SUBJECT = re.compile(rf"(?:I|{NAME})(?= )")
_ITEM = (
    rf"(?!(?:{_VERB}|\w+ed)\b)(?:an? |the |some |two |three )?(?!(?:I|we|he|she|they|it|my|now|not|then|also|but"
    rf"|so|who|which|as|you"
    r"|that|because)\b)[\w'-]+(?: [\w'-]+){0,2}?"
)
_LIST = re.compile(
    rf"((?:, {_ITEM})*),? (?:and|as well as|plus) ({_ITEM})(?=\s*(?:[.!?;]|, (?:too|as well|but|and)\b|$| too\b"
    rf"| as well\b| on\b| for\b| in\b| at\b))"
)
_PLAIN = (
    (re.compile(r"[’‘]"), "'"),
    (re.compile(r"。"), "."),
    (re.compile(r"，"), ", "),
    (re.compile(r"\bi\b(?!\.)"), "I"),
    (re.compile(r"\b(?:We|we)(?= |')"), "I"),
    (re.compile(r"\b(?:Our|our)(?= )"), "my"),
    (re.compile(r"\bI'm\b|\bI're\b|\bI are\b|\bIm\b(?= )"), "I am"),
    (re.compile(r"\bI've\b"), "I have"),
    (re.compile(r"\bI'll\b"), "I will"),
    (re.compile(r"\bI'd\b"), "I would"),
    (re.compile(r"\b(can|could|do|does|did|is|are|was|were|has|have|had|would|should)n't\b", re.IGNORECASE), r"\1 not"),
    (re.compile(r"\bwon't\b"), "will not"),
    (re.compile(r"\bcan(?:'t| not)\b"), "cannot"),
    (re.compile(r"\b([Ff])avorite\b"), r"\1avourite"),
    (re.compile(r"\b([Cc])olor\b"), r"\1olour"),
    (re.compile(r",? ?\b(?:every )?now and (?:then|again)\b"), " sometimes"),
    (re.compile(r"\b(a new (?:boss|manager|supervisor)), (?=[A-Z])"), r"\1 called "),
    (re.compile(r"\b(Dr|Mr|Mrs|Ms|St|Prof)\. "), r"\1 "),
    (re.compile(r"\bgot a new (job|role|position)\b"), r"got a \1"),
)
_ATTRIBUTE = re.compile(
    rf"(?:(?:the (?P<of>[a-z][\w -]*?) of )?(?:[Mm]y|(?P<s>{NAME})'s)(?P<new> new)?"
    rf"|[Tt]he (?P<for>[a-z][\w -]*?) (?:of|for) my) "
    rf"(?P<noun>(?:favourite )?[A-Za-z][\w-]*(?: [a-z][\w-]*){{0,2}}?) "
    rf"(?P<verb>is called|is named|is|has changed to|changed to|became|has become|are)(?: now)? (?:now )?"
    rf"(?P<o>[\w@+#][\w@.+#'&-]*(?: [\w&+#][\w.'&-]*){{0,4}}?){END}"
)
_CHANGED = re.compile(
    rf"(?:(?P<who>I|{NAME})) (?:have |has )?(?:changed|updated|reset|switched|set) (?:my|his|her|their"
    rf"|the) (?P<noun>[\w-]+(?: [\w-]+){{0,2}}?) to "
    rf"(?P<o>[\w@+#][\w@.+#'&-]*(?: [\w&][\w.'&-]*){{0,3}}?){END}"
)
_PAIR = re.compile(
    rf"^({NAME}|[Mm]y \w+) and I (?:are |am |were |have |just )*(?P<rest>(?:no longer |not |best |good )*(?:friends"
    rf"|dating|married|engaged|together|broke|broken|split|divorced|separated|got divorced).*)"
)
_PARTED = re.compile(r"(?:broke|broken|split|divorced|separated|got)\b")
_AM_JOB = re.compile(
    rf"(?:I am|(?P<s>{NAME}) is) (?:an? )(?P<o>[\w-]+(?: [\w-]+){{0,2}}?)(?: by trade| by profession)?{END}"
)
_AT_WORK = re.compile(
    r"\b((?:work|works|working|am|is) (?:as )?an? (?!student)[a-z]+(?: [a-z]+)?) (?:at|for) (?=[A-Z])"
)
_FROM_TO = re.compile(
    r"\b((?:moved|relocated|switched|changed|went|swapped|transferred)(?: \w+)?) from ((?:[\w'-]+ ?){1,3}?) to (?=\w)"
)
_FOR = re.compile(r"\b(left|quit) ([A-Z]\w+) (?:for|to join) (?=[A-Z])")
_NAMED_ENDS = frozenset(("city", "employer", "school", "partner", "friend"))


@lru_cache(maxsize=1 << 8)  # a sentence is looked at to be kept, and again to be read
def read(sentence: str, speaker: str = "", corrects: bool = False) -> Reading:
    """What a sentence states. corrects: it was said to put something right, so that what it says is said anew."""
    if len(sentence) > LONGEST:
        return Reading((), (sentence,))
    named = re.match(rf"({NAME}|[\u4e00-\u9fff]{{2,4}})[:：] *(?=\S)", sentence)
    if not speaker and named and named[1] not in NOT_NAMES:
        speaker, sentence = named[1], sentence[named.end() :]
    if chinese.is_chinese(sentence):
        facts, unread = chinese.read(sentence, speaker)
    else:
        facts, unread = _english(sentence, speaker)
    if corrects:
        facts = [f.model_copy(update={"mode": "now"}) if f.mode == "is" and f.sole else f for f in facts]
    return Reading(tuple(dict.fromkeys(facts)), tuple(unread))


def _english(sentence: str, speaker: str) -> tuple[list[Fact], list[str]]:
    text = sentence.strip()
    if text.endswith("?"):
        return [], []
    text = _QUOTED.sub("", text)
    for spelling, usual in _PLAIN:
        text = spelling.sub(usual, text)
    facts, unread = list[Fact](), list[str]()
    if not _DOUBT.search(text):
        for clause in _clauses(_listed(text)):
            if found := _clause(clause, _Voice(speaker, sentence.islower())):
                facts += found
            else:
                unread.append(clause)
    else:
        unread.append(text)
    if not facts and not _DOUBT.search(text):  # forms that span clauses
        said = [(f, u) for f, u in parse(text, speaker) if f.object.split()[-1].lower() not in _book().no_jobs]
        facts = [_sorted_out(fact, "now" if update else "is", text) for fact, update in said]
        unread = [] if facts and is_all_said(text, speaker) else unread
    return facts, unread


def _clauses(text: str) -> Iterator[str]:
    """Clauses that stand alone: what leaves its subject out is given that of the one before."""
    text = _FROM_TO.sub(r"\1 from \2, \1 to ", text)
    text = _FOR.sub(r"\1 \2, joined ", text)
    text = _AT_WORK.sub(r"\1 and work for ", text)
    if pair := _PAIR.match(text):
        rest = pair["rest"].rstrip(" .!")
        rest = _ANY_MORE.sub("", rest) if "not" in rest or "no longer" in rest else rest
        text = f"I {'' if _PARTED.match(rest) else 'am '}{rest} with {pair[1]}"
    subject = ""
    for part in _CLAUSE.split(_SAYS.sub("", text) if not re.search(r"\bsays? that (?:the|my) ", text) else text):
        opened = _OPENING.sub("", part.strip(" .!"))
        lead = part.strip(" .!")[: len(part.strip(" .!")) - len(opened)]
        if not opened:
            continue
        if subject and re.match(rf"(?:now |then |also |just )?{_VERB}\b", opened):
            opened = f"{subject} {opened}"
        if found := _SUBJECT.match(opened):
            subject = found[0]
        yield _kept_cues(lead) + opened


def _kept_cues(lead: str) -> str:
    """Of the words before a clause those that say how it holds."""
    cues = [cue[0].strip(" ,") for form in (_TOO, _NOW) for cue in form.finditer(f" {lead} ")]
    if re.search(r"on top of|in addition|additionally|besides|plus|apart from", lead, re.IGNORECASE):
        cues.append("also")
    return "".join(f"{cue.lower()} " for cue in cues if cue)


def _clause(clause: str, by: _Voice) -> list[Fact]:
    if _FORMER.search(clause) or (
        re.search(r"\bdid not\b|\bhad not\b|\bwas not\b", clause) and not _ANY_MORE.search(clause)
    ):
        return []
    cued = any(cue.search(clause) for cue in (_TOO, _SIDE, _INSTEAD, _ANY_MORE, _USED_TO, _LATER))
    said: Mode = "now" if _NOW.search(clause) else "is"
    found = [] if cued else _plain(clause, by, said)
    if found and not any(_WHEN.search(f" {f.object}") or _NOW.search(f" {f.object}") for f in found):
        return [f for f in found if not (_BACK_THEN.search(clause) and f.mode == "is" and f.sole)]
    mode: Mode = "is"
    if _WISH.search(clause) or _LATER.search(clause):
        if _NOT_WANT.search(clause):
            return []
        mode, clause = "will", _LATER.sub("", _WISH.sub("", clause))
        clause = re.sub(r"\b(mov|work|liv|chang|switch|leav|buy|adopt|join|becom)ing\b", lambda m: _base(m[0]), clause)
    if _NOT_AT_ALL.search(clause) or re.search(
        r"\bcannot (?:stop|quit|give up)|\bnever (?:quit|left|stopped|gave)", clause
    ):
        return []
    gave_up = [form for form in (_over(clause, by, mode)) if form]
    if mode == "is" and (stopped := _STOPPED.search(clause)):
        rest = clause[: stopped.start()] + _base(stopped[1]) + clause[stopped.end() :]
        ended = _plain(_stripped(rest), by, "ended")
        return ended + [f for f in gave_up if f.object not in {e.object for e in ended}]
    if mode == "is" and _USED_TO.search(clause):
        mode, clause = "was", _USED_TO.sub(lambda m: "am " if m[0].endswith("be") else "", clause)
    elif mode == "is" and (_PAST_VERB.search(clause)):
        mode, clause = "was", _PAST_VERB.sub(lambda m: _PAST[m[0]], _BACK_THEN.sub("", clause))
    if mode == "is" and (_ANY_MORE.search(clause) or _NO_LONGER.search(clause) or _NEVER.search(clause)):
        if not _ANY_MORE.search(clause) and not re.search("no longer", clause) and _PARTLY.search(clause):
            return []
        plain = _plain(_stripped(_ANY_MORE.sub("", clause)), by, "is")
        if plain and all(f.mode == "ended" for f in plain):  # "I cannot stand it any more"
            return plain
        held = _NEVER.sub("", _NO_LONGER.sub("", _DO_NOT.sub("", _ANY_MORE.sub("", clause))))
        negated = _NO_LONGER.search(clause) or _NEVER.search(clause)
        plain_end = _stripped(re.sub(r"\s+", " ", held))
        found = _plain(plain_end, by, "ended" if negated else "is")
        sure = _ANY_MORE.search(clause) or "no longer" in clause
        return [f for f in found if sure or plain_end.casefold().endswith(f.object.split()[-1].casefold())]
    if _TOO.search(clause) or _SIDE.search(clause):
        mode = "also" if mode == "is" else mode
        clause = re.sub(
            r"\s+", " ", _SIDE.sub("", _TOO.sub(lambda m: " another" if "another" in m[0] else "", clause))
        ).strip()
    if mode == "is" and _INSTEAD.search(clause):
        bare = _INSTEAD.sub("", clause)
        return _plain(bare, by, "instead") or _plain(_stripped(bare), by, "instead")
    now = mode == "is" and bool(_NOW.search(clause))
    found = _plain(_stripped(clause), by, "now" if now else mode)
    return found or gave_up


def _stripped(clause: str) -> str:
    """Without the words that say when."""
    plain = _WHEN.sub("", _NOW.sub("", clause))
    return re.sub(r"\s+", " ", plain).strip(" ,.")


def _listed(clause: str) -> str:
    """ "apples, pears and plums" as one object of several values."""

    def joined(found: re.Match[str]) -> str:
        items = [*(item for item in found[1].split(", ") if item), found[2]]
        bare = [re.sub(r"^(?:an?|the|some|two|three|my) ", "", item).replace(" ", "_") for item in items]
        return "".join(f"&{item}" for item in bare)

    return _LIST.sub(joined, clause)


def _base(gerund: str) -> str:
    """ "playing" -> "play"."""
    stem = re.sub(r"ing$", "", gerund.lower())
    if re.search(r"([bdgmnprt])\1$", stem):
        return stem[:-1]
    return (
        stem + "e"
        if re.search(
            r"(?:mok|liv|driv|us|tak|danc|bak|mak|hik|rid|mov|practis|practic|danc|vap|gambl|skat|leav|chang|becom"
            r"|writ|cycl|lik|lov|hat|jok)$",
            stem,
        )
        else stem
    )


def _over(clause: str, by: _Voice, mode: Mode) -> list[Fact]:
    """What is given up, whatever it was."""
    if mode != "is":
        return []
    plain = _stripped(clause)
    for form in _book().over:
        if (found := form.match(plain)) and (subject := found.groupdict().get("s") or by.name):
            objects = [o.replace("_", " ") for o in found["o"].split("&")]
            return [Fact(subject=subject, relation="", object=_bare(o), mode="ended") for o in objects if _bare(o)]
    return []


def _bare(words: str) -> str:
    return re.sub(r"^(?:an?|the|my|his|her|their|on|to|some|any) ", "", words).strip()


def _plain(clause: str, by: _Voice, mode: Mode | Literal["instead"]) -> list[Fact]:
    """The facts of a clause from which words of time and number are gone, said in this mode."""
    for words, whose in _subjects(clause, by):
        if found := _forms(words, by, mode):
            return [f.model_copy(update={"subject": whose.get(f.subject, f.subject)}) for f in found]
    return []


def _subjects(clause: str, by: _Voice) -> Iterator[tuple[str, dict[str, str]]]:
    """The clause, and the clause with "my brother" as a name of its own."""
    yield clause, {}
    if kin := _book().kin.match(clause):
        whose = by.name if not kin["s"] else kin["s"]
        if whose:
            yield "Somekin" + clause[kin.end() :], {"Somekin": f"{whose}'s {kin['kin'].lower()}"}


def _forms(clause: str, by: _Voice, mode: Mode | Literal["instead"]) -> list[Fact]:
    book = _book()
    of_book = hits(clause, by.name, by.lower)
    best = max(of_book, key=lambda hit: hit.form.literal, default=None)
    found: list[tuple[int, str, _Form, re.Match[str]]] = []
    for form in book.forms:
        if (match := form.regex.match(clause)) and (match.groupdict().get("s") or by.name):
            found.append((form.literal, form.relation, form, match))
    ends = list(
        {hit[1]: hit for hit in sorted(found, key=lambda h: (h[3].end(), h[0])) if hit[2].mode == "ended"}.values()
    )
    others = sorted((hit for hit in found if hit[2].mode != "ended"), key=lambda h: -h[0])
    top = others[0][0] if others else 0
    if best and best.form.literal >= top:
        return [f for hit in of_book for f in _of_hit(hit, mode)]
    if attribute := _attribute(clause, by, mode):
        return attribute
    facts: list[Fact] = []
    for _, relation, form, match in [*others[:1], *(ends if not others else [])]:
        facts += _of_form(relation, form, match, by, mode)
    return facts or _job(clause, by, mode)


def _of_hit(hit: Hit, mode: Mode | Literal["instead"]) -> list[Fact]:
    """The facts of a form of the phrasebook."""
    said = "now" if hit.update else "is"
    beside = hit.form.text in _book().adds
    generic = "{noun}" in hit.form.text
    if said == "now" and mode in ("is", "now") and _STRONG.search(hit.form.text):
        mode = "instead"
    if hit.form.relation == "job" and hit.fact.object.split()[-1].lower() in _book().no_jobs:
        return []
    return _facts(
        hit.fact.subject, hit.fact.relation, hit.fact.object, "also" if beside and mode == "is" else mode, said, generic
    )


def _of_form(
    relation: str, form: _Form, match: re.Match[str], by: _Voice, mode: Mode | Literal["instead"]
) -> list[Fact]:
    groups = match.groupdict()
    subject = groups.get("s") or by.name
    words = groups.get("o") or ""
    if form.mode == "ended":
        if mode == "ended" or mode == "was":
            return []
        if relation in _NAMED_ENDS and words and not by.lower and words[0].islower():
            return []
        held: Mode = "will" if mode == "will" else "ended"
        return [Fact(subject=subject, relation=relation, object=_bare(words).replace("_", " "), mode=held)]
    if key := groups.get("key"):
        relation = f"{relation} {_base(key) if key.endswith('ing') else re.sub('(?<=[a-z]{3})s$', '', key.lower())}"
    obj = as_object(relation, _base(words) if relation == "habit" and words.endswith("ing") else words, by.lower)
    if obj and relation == "habit":
        obj = re.sub(r"(?<=[a-z]{3})e?s$", "", obj) if not obj.endswith(("ss", "es")) else obj
    if obj is None or (relation == "job" and obj.split()[-1].lower() in _book().no_jobs):
        return []
    if form.mode == "also" and mode in ("is", "now"):
        mode = "also"
    return _facts(subject, relation, obj, mode, form.mode, False)


def _facts(
    subject: str, relation: str, obj: str, mode: Mode | Literal["instead"], said: str, generic: bool
) -> list[Fact]:
    """One fact for each value; a plain mode gives way to what the form itself says."""
    if subject in NOT_NAMES:
        return []
    book, sole = _book(), _is_sole(relation, generic)
    few = sole or generic or book.holds.get(relation) in ("one", "few")
    how: Mode
    if mode == "instead":
        how = "now"
    elif mode == "now" or (mode == "is" and said == "now"):
        how = "now" if few else "is"
    else:
        how = mode
    values = [value.replace("_", " ") for value in obj.split("&")]
    if len(values) == 1 and not sole and book.holds.get(relation) not in ("one",):
        values = re.split(r" and ", obj)
    if book.holds.get(relation) == "one":
        values = [" and ".join(values)]
    kept = sole and how in ("is", "now")
    return [Fact(subject=subject, relation=relation, object=_bare(v), mode=how, sole=kept) for v in values if _bare(v)]


def _is_sole(relation: str, generic: bool) -> bool:
    """True if a subject has one value of this at a time: "my favourite food is", not "I like to eat"."""
    if _book().holds.get(relation) == "one":
        return True
    entry = phrasebook().get(relation)
    return generic and entry is not None and entry.noun.startswith(("favourite", "best", "mother", "dream", "car"))


def _sorted_out(fact: Fact, mode: Literal["is", "now"], text: str) -> Fact:
    generic = fact.relation in phrasebook() and phrasebook()[fact.relation].noun in text
    how: Mode | Literal["instead"] = "instead" if mode == "now" and _STRONG.search(text) else "is"
    [one, *_] = _facts(fact.subject, fact.relation, fact.object, how, mode, generic)
    return one


def _attribute(clause: str, by: _Voice, mode: Mode | Literal["instead"]) -> list[Fact]:
    """ "My dentist is Dr. Kim": of some things there is one at a time."""
    match = _ATTRIBUTE.match(clause) or _CHANGED.match(clause)
    if not match:
        return []
    groups = match.groupdict()
    who = groups.get("who")
    subject = (who if who and who != "I" else by.name) if who else groups.get("s") or by.name
    noun, obj = groups["noun"].lower(), groups["o"]
    changed = (
        bool(groups.get("new")) or "chang" in (groups.get("verb") or "changed") or "bec" in (groups.get("verb") or "")
    )
    if _NOW.search(noun) or _WHEN.search(f" {noun}"):
        return []
    favourite = noun.startswith("favourite ")
    listed = favourite or noun in _book().attributes
    named = bool(re.search(r"[A-Z\d@]", obj))
    if not subject or not (listed or named) or re.match(r"(?:not|very|so|too|really|on|in|at|to|an? [a-z]+ing)\b", obj):
        return []
    if not favourite and re.match(r"(?:favou?rite)$", noun):
        return []
    known = {r.noun: r.name for r in phrasebook().values()}
    relation = known.get(noun, _book().nouns.get(noun, noun))
    how: Mode = (
        "now" if mode in ("now", "instead") or (mode == "is" and changed) else "is" if mode == "instead" else mode
    )
    sole = listed and how in ("is", "now")
    return [Fact(subject=subject, relation=relation, object=_bare(obj).replace("_", " "), mode=how, sole=sole)]


def _job(clause: str, by: _Voice, mode: Mode | Literal["instead"]) -> list[Fact]:
    """ "I am a nurse": of a job alone."""
    match = _AM_JOB.match(clause)
    if not match or not (subject := match["s"] or by.name):
        return []
    words = match["o"].lower().split()
    if words[0] in (
        "amateur",
        "hobby",
        "aspiring",
        "former",
        "future",
        "born",
        "natural",
        "good",
        "bad",
        "great",
        "terrible",
    ):
        return []
    if not any(" ".join(words[n:]) in _book().jobs for n in range(len(words))):
        return []
    return _facts(subject, "job", match["o"], mode, "is", False)


@cache
def _book() -> _Book:
    book = yaml.safe_load(files("memos.interface.reading.statements").joinpath("readings.yaml").read_text("utf-8"))
    lexicon = {
        "ANIMAL": _several(book["animals"]),
        "INSTRUMENT": _several(book["instruments"]),
        "TONGUE": _several(book["tongues"]),
        "SUBJECT": _several(book["subjects"]),
        "DAY": r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days?",
    }
    modes: dict[str, Literal["is", "now", "also", "ended"]] = {
        "is": "is", "now": "now", "adds": "also", "ends": "ended", "not": "ended",
    }  # fmt: skip
    forms, adds, holds = list[_Form](), set[str](), dict[str, str]()
    for name, entry in book["relations"].items():
        holds[name] = entry.get("holds", "many")
        for key, mode in modes.items():
            for form in entry.get(key, ()):
                if key == "adds" and form in _updates():
                    adds.add(form)
                else:
                    forms.append(_compile(name, form, mode, lexicon))
    for name in phrasebook():
        holds.setdefault(name, "many")
    over = tuple(_compile("", form, "ended", lexicon).regex for form in book["over"])
    kin = "|".join(sorted(_words(book["kin"]), key=len, reverse=True))
    return _Book(
        forms=tuple(forms),
        over=over,
        holds=holds,
        adds=frozenset(adds | {u for u in _updates() if "adopted" in u or "bought" in u}),
        nouns=book["nouns"],
        attributes=frozenset(shlex.split(book["attributes"])),
        no_jobs=frozenset(_words(book["no_jobs"])),
        jobs=frozenset(word for word in _words(book["jobs"])),
        kin=re.compile(
            rf"(?:(?:(?:[Mm]y|(?P<s>{NAME})'s) (?:\w+ )?))(?P<kin>(?i:{kin}))(?= (?!(?:is|are) (?:called|named)\b)|'s )"
        ),
    )


@cache
def _updates() -> frozenset[str]:
    return frozenset(form for relation in phrasebook().values() for form in relation.updates)


def _several(listed: str) -> str:
    """A pattern of one of the words, or of some."""
    one = "|".join(_words(listed))
    return rf"(?:{one})(?:&(?:{one}))*"


def _words(listed: str) -> list[str]:
    return [word.replace("[ ]", " ") for word in listed.split()]


def _compile(relation: str, form: str, mode: Any, lexicon: dict[str, str]) -> _Form:
    pattern = re.sub(r"\[([^|\]\\]*)\|([^\]]*)\]", r"(?:\1|\2)", form)
    slots = {
        "{s}": rf"(?-i:I|(?P<s>{NAME}))",
        "{s's}": rf"(?-i:[Mm]y|(?P<s>{NAME})'s)",
        "{o}": rf"(?P<o>{OBJECT})",
        "{key}": r"(?P<key>[\w]+(?: [\w]+)?)",
        "{my}": "my",
    }
    pattern = re.sub(r"\{o=([^{}]*)\}", lambda m: rf"(?P<o>{lexicon.get(m[1], m[1])})", pattern)
    for slot, regex in slots.items():
        pattern = pattern.replace(slot, regex)
    literal = len(re.sub(r"\{[^}]*\}|\(\?[^)]*\)\??|[\[\]|?\\]", "", form)) + 20 * ("{o=" in form)
    literal = 1 if relation == "does" else literal  # any other relation is more specific
    return _Form(relation, re.compile(rf"(?i:{pattern}){END}"), literal, mode)
