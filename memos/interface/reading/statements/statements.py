"""Reads the facts that a sentence states, and how each holds: from now on, no longer, in the past, or as a wish.

Knows English; a plug-in may know another language (phrasebook.Language). Reads clause by clause: cues like "no longer",
"also" and "used to" (cues.py) are taken out and remembered, and what is left is read by the forms of the phrasebook and
of readings.yaml. A sentence of doubt or of somebody else's words states nothing. What is not read is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from memos.cube import Fact
from memos.interface.reading.phrasebook import (
    MAX_SENTENCE,
    NAME,
    NOT_NAMES,
    FormMatch,
    as_object,
    in_small_letters,
    is_all_parsed,
    language_of,
    matches,
    parse,
    phrasebook,
)
from memos.interface.reading.statements import cues
from memos.interface.reading.statements.readings import EnglishForm, Mode, english_readings
from memos.lazy import pattern

Manner = Mode | Literal["instead"]  # in which a clause is said; "instead" is "now" of what has several values, too
_OWN = pattern(rf"(?:[Mm]y|(?P<s>{NAME})['’]s) (?P<noun>[\w-]+(?: [\w-]+){{0,2}})")
_ASKED_OF = pattern(
    r"(?i:(?:what|who|where|when)(?:['’]?s| is| are| was)|(?:do (?:you|u) (?:know|remember)|tell me|remind me(?: of)?"
    r"|(?:can|could) (?:you|u) (?:tell|remind) me(?: of)?)(?: what| who)?)(?: again)? "
    rf"(?P<own>(?:[Mm]y|{NAME}['’]s) .+?)(?:['’]s names?)?(?i: is| are| was| called| again)*"
)
_WHO_AM_I = pattern(r"(?:do (?:you|u) (?:know|remember) )?who (?:am i|i am)(?: again)?", re.IGNORECASE)
_KIN = "Somekin"  # stands in a clause for "my brother"


@dataclass(frozen=True)
class Reading:
    """What a sentence states, and its clauses that no form reads."""

    facts: tuple[Fact, ...]
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Voice:
    """Who speaks. lower: they write without capitals."""

    name: str
    lower: bool = False


@lru_cache(maxsize=1 << 8)  # a sentence is looked at to be kept, and again to be read
def read(sentence: str, speaker: str = "", corrects: bool = False) -> Reading:
    """What a sentence states. corrects: it was said to put something right, so that what it says is said anew."""
    if len(sentence) > MAX_SENTENCE:
        return Reading((), (sentence,))
    named = re.match(rf"({NAME}|[\u4e00-\u9fff]{{2,4}})[:：] *(?=\S)", sentence)
    if not speaker and named and named[1] not in NOT_NAMES:
        speaker, sentence = named[1], sentence[named.end() :]
    language = language_of(sentence)
    facts, unread = (language.read if language else _english)(sentence, speaker)
    if corrects:
        facts = [f.model_copy(update={"mode": "now"}) if f.mode == "is" and f.sole else f for f in facts]
    return Reading(tuple(dict.fromkeys(facts)), tuple(unread))


def says_change(text: str) -> bool:
    """True if a text says that something has changed, beside the update forms of the phrasebook."""
    return bool(cues.UPDATE.search(text))


def _english(sentence: str, speaker: str) -> tuple[list[Fact], list[str]]:
    """(the facts, the clauses that no form reads) of an English sentence."""
    text = sentence.strip()
    if text.endswith("?"):
        return [], []
    text = cues.QUOTED.sub("", text).translate(cues.MARKS)
    for part, spelling, usual in cues.SPELLINGS:
        text = spelling.sub(usual, text) if part in text else text
    if cues.DOUBT.search(text):
        return [], [text]
    facts, unread = list[Fact](), list[str]()
    for clause in _clauses(_joined_lists(text)):
        if found := _clause(clause, _Voice(speaker, in_small_letters(sentence))):
            facts += found
        else:
            unread.append(clause)
    if not facts:  # forms that span clauses
        stated = [pair for pair in parse(text, speaker) if not _is_no_job(pair[0].object)]
        facts = [_of_sentence(fact, update, text) for fact, update in stated]
        unread = [] if facts and is_all_parsed(text, speaker) else unread
    return facts, unread


# -- clauses -------------------------------------------------------------------------------------------


def _clauses(text: str) -> Iterator[str]:
    """Clauses that stand alone: what leaves its subject out is given that of the one before."""
    text = cues.FROM_TO.sub(r"\1 from \2, \1 to ", text)
    text = cues.FOR.sub(r"\1 \2, joined ", text)
    text = cues.AT_WORK.sub(r"\1 and work for ", text)
    if pair := cues.PAIR.match(text):
        rest = pair["rest"].rstrip(" .!")
        rest = cues.ANY_MORE.sub("", rest) if "not" in rest or "no longer" in rest else rest
        text = f"I {'' if cues.PARTED.match(rest) else 'am '}{rest} with {pair[1]}"
    subject = ""
    for part in cues.CLAUSE.split(text if re.search(r"\bsays? that (?:the|my) ", text) else cues.SAYS.sub("", text)):
        clause = part.strip(" .!")
        opened = cues.OPENING.sub("", clause)
        opening = clause[: len(clause) - len(opened)]
        if not opened:
            continue
        if subject and re.match(rf"(?:now |then |also |just )?{cues.VERB}\b", opened):
            opened = f"{subject} {opened}"
        if found := cues.SUBJECT.match(opened):
            subject = found[0]
        yield _cues_of(opening) + opened


def _cues_of(opening: str) -> str:
    """Of the words before a clause those that say how it holds."""
    found = [cue[0].strip(" ,") for form in (cues.TOO, cues.NOW) for cue in form.finditer(f" {opening} ")]
    if cues.ON_TOP.search(opening):
        found.append("also")
    return "".join(f"{cue.lower()} " for cue in found if cue)


def _joined_lists(text: str) -> str:
    """The text with "apples, pears and plums" as one object of several values: "&apples&pears&plums"."""

    def joined(found: re.Match[str]) -> str:
        items = [*(item for item in found[1].split(", ") if item), found[2]]
        bare = [re.sub(r"^(?:an?|the|some|two|three|my) ", "", item).replace(" ", "_") for item in items]
        return "".join(f"&{item}" for item in bare)

    return cues.LIST.sub(joined, text)


def _clause(clause: str, voice: _Voice) -> list[Fact]:
    """The facts of a clause: those of its words as they stand, or of what is left without the cues in it."""
    if cues.FORMER.search(clause) or (cues.PAST_DENIAL.search(clause) and not cues.ANY_MORE.search(clause)):
        return []
    if (facts := _as_it_stands(clause, voice)) is not None:
        return facts
    if wished := bool(cues.WISH.search(clause) or cues.LATER.search(clause)):
        if cues.NOT_WANT.search(clause):
            return []
        clause = cues.LATER.sub("", cues.WISH.sub("", clause))
        clause = re.sub(r"\b(mov|work|liv|chang|switch|leav|buy|adopt|join|becom)ing\b", lambda m: _base(m[0]), clause)
    if cues.NOT_AT_ALL.search(clause) or cues.NO_END.search(clause):
        return []
    if wished:
        return _plain(_without_times(_without_also(clause)), voice, "will")
    given_up = _given_up(clause, voice)
    if stopped := cues.STOPPED.search(clause):
        rest = clause[: stopped.start()] + _base(stopped[1]) + clause[stopped.end() :]
        ended = _plain(_without_times(rest), voice, "ended")
        return ended + [f for f in given_up if f.object not in {e.object for e in ended}]
    was, clause = _in_the_present(clause)
    if was:
        return _plain(_without_times(_without_also(clause)), voice, "was") or given_up
    if cues.ANY_MORE.search(clause) or cues.NO_LONGER.search(clause) or cues.NEVER.search(clause):
        return _negated(clause, voice)
    also = cues.TOO.search(clause) or cues.SIDE.search(clause)
    if not also and cues.INSTEAD.search(clause):
        bare = cues.INSTEAD.sub("", clause)
        return _plain(bare, voice, "instead") or _plain(_without_times(bare), voice, "instead")
    manner: Manner = "also" if also else "now" if cues.NOW.search(clause) else "is"
    return _plain(_without_times(_without_also(clause)), voice, manner) or given_up


def _as_it_stands(clause: str, voice: _Voice) -> list[Fact] | None:
    """The facts of a clause in which nothing says how it holds; None where something does, or no form reads it."""
    if any(cue.search(clause) for cue in (cues.TOO, cues.SIDE, cues.INSTEAD, cues.ANY_MORE, cues.USED_TO, cues.LATER)):
        return None
    found = _plain(clause, voice, "now" if cues.NOW.search(clause) else "is")
    if not found or any(cues.WHEN.search(f" {f.object}") or cues.NOW.search(f" {f.object}") for f in found):
        return None
    return [f for f in found if not (cues.BACK_THEN.search(clause) and f.mode == "is" and f.sole)]


def _in_the_present(clause: str) -> tuple[bool, str]:
    """(whether a clause is about the past, the clause as it would be said of now)."""
    if cues.USED_TO.search(clause):
        return True, cues.USED_TO.sub(lambda m: "am " if m[0].endswith("be") else "", clause)
    if cues.PAST_VERB.search(clause):
        return True, cues.PAST_VERB.sub(lambda m: english_readings().past[m[0]], cues.BACK_THEN.sub("", clause))
    return False, clause


def _negated(clause: str, voice: _Voice) -> list[Fact]:
    """The facts that "not", "no longer", "never" or "any more" end."""
    sure = cues.ANY_MORE.search(clause) or "no longer" in clause
    if not sure and cues.PARTLY.search(clause):
        return []
    plain = _plain(_without_times(cues.ANY_MORE.sub("", clause)), voice, "is")
    if plain and all(f.mode == "ended" for f in plain):  # "I cannot stand it any more"
        return plain
    positive = cues.NEVER.sub("", cues.NO_LONGER.sub("", cues.DO_NOT.sub("", cues.ANY_MORE.sub("", clause))))
    positive = _without_times(re.sub(r"\s+", " ", positive))
    negated = cues.NO_LONGER.search(clause) or cues.NEVER.search(clause)
    found = _plain(positive, voice, "ended" if negated else "is")
    return [f for f in found if sure or positive.casefold().endswith(f.object.split()[-1].casefold())]


def _given_up(clause: str, voice: _Voice) -> list[Fact]:
    """What is given up, whatever it was."""
    plain = _without_times(clause)
    for form in english_readings().over:
        if (found := form.match(plain)) and (subject := found.groupdict().get("s") or voice.name):
            objects = [_bare(words.replace("_", " ")) for words in found["o"].split("&")]
            return [Fact(subject=subject, relation="", object=words, mode="ended") for words in objects if words]
    return []


def _without_times(clause: str) -> str:
    return re.sub(r"\s+", " ", cues.WHEN.sub("", cues.NOW.sub("", clause))).strip(" ,.")


def _without_also(clause: str) -> str:
    if not (cues.TOO.search(clause) or cues.SIDE.search(clause)):
        return clause
    plain = cues.SIDE.sub("", cues.TOO.sub(lambda m: " another" if "another" in m[0] else "", clause))
    return re.sub(r"\s+", " ", plain).strip()


# -- words ---------------------------------------------------------------------------------------------


def _base(gerund: str) -> str:
    """ "playing" -> "play"."""
    stem = re.sub(r"ing$", "", gerund.lower())
    if re.search(r"([bdgmnprt])\1$", stem):
        return stem[:-1]
    return f"{stem}e" if cues.STEM_OF_E.search(stem) else stem


def _bare(words: str) -> str:
    return re.sub(r"^(?:an?|the|my|his|her|their|on|to|some|any) ", "", words).strip()


def _is_name(words: str, lower: bool) -> bool:
    """True for what may be a name. lower: they stand in a text without capitals."""
    return (lower or not words[0].islower()) and words.capitalize() not in NOT_NAMES


def _is_no_job(words: str) -> bool:
    """True for what one can become beside a job: "I became a father"."""
    return words.split()[-1].lower() in english_readings().no_jobs


# -- forms ---------------------------------------------------------------------------------------------


def _plain(clause: str, voice: _Voice, manner: Manner) -> list[Fact]:
    """The facts of a clause without cues, said in this manner; "my brother" may be its subject."""
    if found := _by_forms(clause, voice, manner):
        return found
    kin = english_readings().kin.match(clause)
    relative_of = kin and (kin["s"] or voice.name)
    if not kin or not relative_of:
        return []
    subject = f"{relative_of}'s {kin['kin'].lower()}"
    found = _by_forms(_KIN + clause[kin.end() :], voice, manner)
    return [f.model_copy(update={"subject": subject if f.subject == _KIN else f.subject}) for f in found]


def _by_forms(clause: str, voice: _Voice, manner: Manner) -> list[Fact]:
    """The facts by the most specific form of the phrasebook and of readings.yaml; attributes and jobs are last."""
    in_phrasebook = matches(clause, voice.name, voice.lower)
    best = max((match.form.literal for match in in_phrasebook), default=-1)
    pairs = ((match.groupdict().get("s") or voice.name, form, match) for form, match in _forms_of(clause))
    found = [(form, match) for who, form, match in pairs if who and who not in NOT_NAMES]
    states = sorted((pair for pair in found if pair[0].mode != "ended"), key=lambda pair: -pair[0].literal)
    if best >= (states[0][0].literal if states else 0):
        return [f for match in in_phrasebook for f in _of_phrase(match, manner)]
    if attribute := _attribute(clause, voice, manner):
        return attribute
    if states:
        facts = _of_form(*states[0], voice, manner)
    else:
        ends = sorted(found, key=lambda pair: (pair[1].end(), pair[0].literal))
        longest = {form.relation: (form, match) for form, match in ends}  # of each relation
        facts = [fact for form, match in longest.values() for fact in _of_form(form, match, voice, manner)]
    return facts or _job(clause, voice, manner)


@lru_cache(maxsize=1 << 4)  # a clause is read as it stands, and again without its cues, of which most have none
def _forms_of(clause: str) -> tuple[tuple[EnglishForm, re.Match[str]], ...]:
    words, readings = clause.lower(), english_readings()
    there = {anchor for anchor in readings.anchors if anchor in words}
    places = sorted({n for anchor in ("", *there) for n in readings.opened_by.get(anchor, ())})
    near = [form for form in map(readings.forms.__getitem__, places) if not any(map(there.isdisjoint, form.anchors))]
    return tuple((form, match) for form in near if (match := form.regex.match(clause)))


def _of_phrase(match: FormMatch, manner: Manner) -> list[Fact]:
    """The facts of a form of the phrasebook."""
    fact, wording = match.fact, match.form.text
    form_mode: Literal["is", "now"] = "now" if match.update else "is"
    if match.update and manner in ("is", "now") and cues.STRONG.search(wording):
        manner = "instead"
    if fact.relation == "job" and _is_no_job(fact.object):
        return []
    if wording in english_readings().adds and manner == "is":
        manner = "also"
    return _facts(fact.subject, fact.relation, fact.object, manner, form_mode, "{noun}" in wording)


def _of_form(form: EnglishForm, match: re.Match[str], voice: _Voice, manner: Manner) -> list[Fact]:
    """The facts of a form of readings.yaml."""
    groups, relation = match.groupdict(), form.relation
    subject, words = groups.get("s") or voice.name, groups.get("o") or ""
    if form.mode == "ended":
        if manner in ("ended", "was") or (form.named and words and not _is_name(words, voice.lower)):
            return []
        mode: Mode = "will" if manner == "will" else "ended"
        return [Fact(subject=subject, relation=relation, object=_bare(words).replace("_", " "), mode=mode)]
    if key := groups.get("key"):
        relation = f"{relation} {_base(key) if key.endswith('ing') else re.sub('(?<=[a-z]{3})s$', '', key.lower())}"
    if relation == "habit" and words.endswith("ing"):
        words = _base(words)
    value = as_object(relation, words, voice.lower)
    if value and relation == "habit" and not value.endswith(("ss", "es")):
        value = re.sub(r"(?<=[a-z]{3})e?s$", "", value)
    if value is None or (relation == "job" and _is_no_job(value)):
        return []
    if form.mode == "also" and manner in ("is", "now"):
        manner = "also"
    return _facts(subject, relation, value, manner, form.mode, False)


def _facts(subject: str, relation: str, value: str, manner: Manner, form_mode: str, generic: bool) -> list[Fact]:
    """One fact for each value; a plain manner gives way to the form's mode. generic: the form fits any relation."""
    holds, sole = english_readings().holds.get(relation), _is_sole(relation, generic)
    mode: Mode
    if manner == "instead":
        mode = "now"
    elif manner == "now" or (manner == "is" and form_mode == "now"):
        mode = "now" if sole or generic or holds in ("one", "few") else "is"
    else:
        mode = manner
    values = [one.replace("_", " ") for one in value.split("&")]
    if holds == "one":
        values = [" and ".join(values)]
    elif len(values) == 1 and not sole:
        values = value.split(" and ")
    current = sole and mode in ("is", "now")
    objects = (_bare(one) for one in values)
    return [Fact(subject=subject, relation=relation, object=o, mode=mode, sole=current) for o in objects if o]


def _is_sole(relation: str, generic: bool) -> bool:
    """True if a subject has one value of this at a time: "my favourite food is", not "I like to eat"."""
    if english_readings().holds.get(relation) == "one":
        return True
    entry = phrasebook().get(relation)
    return generic and entry is not None and entry.noun.startswith(("favourite", "best", "mother", "dream", "car"))


def _of_sentence(fact: Fact, update: bool, text: str) -> Fact:
    """A fact that a form of the phrasebook finds in a whole sentence, as it holds."""
    generic = fact.relation in phrasebook() and phrasebook()[fact.relation].noun in text
    manner: Manner = "instead" if update and cues.STRONG.search(text) else "is"
    [one, *_] = _facts(fact.subject, fact.relation, fact.object, manner, "now" if update else "is", generic)
    return one


# -- attributes and jobs -------------------------------------------------------------------------------


def _attribute(clause: str, voice: _Voice, manner: Manner) -> list[Fact]:
    """ "My dentist is Dr. Kim": of some things there is one at a time."""
    match = cues.ATTRIBUTE.match(clause) or cues.CHANGED.match(clause)
    if not match:
        return []
    groups = match.groupdict()
    who, verb = groups.get("who"), groups.get("verb") or "changed"
    subject = voice.name if who == "I" else who or groups.get("s") or voice.name
    noun, value = groups["noun"].lower(), groups["o"]
    if cues.NOW.search(noun) or cues.WHEN.search(f" {noun}") or noun in ("favourite", "favorite"):
        return []
    listed = noun.startswith("favourite ") or noun in english_readings().attributes
    if not subject or not (listed or re.search(r"[A-Z\d@]", value)) or cues.NO_ATTRIBUTE.match(value):
        return []
    relation = _relation_of(noun)
    changed = bool(groups.get("new")) or "chang" in verb or "bec" in verb
    mode: Mode = "now" if manner == "instead" or (manner == "is" and changed) else manner
    sole = listed and mode in ("is", "now")
    return [Fact(subject=subject, relation=relation, object=_bare(value).replace("_", " "), mode=mode, sole=sole)]


def attribute_in(words: str, speaker: str) -> Fact | None:
    """What "my salary" or "Mira's dentist" names, whatever it is: a fact without its object."""
    named = _OWN.fullmatch(words.strip(" .!"))
    if not named or not ({noun := named["noun"].lower()} & {*english_readings().attributes, *english_readings().nouns}):
        return None
    return Fact(subject=named["s"] or speaker, relation=_relation_of(noun), object="")


def asked_of(question: str, speaker: str) -> tuple[Fact, ...]:
    """Facts without their objects that a question asks for by what the phrasebook has no word for: "my wife's name"."""
    words = question.strip(" ?!.")
    if _WHO_AM_I.fullmatch(words):
        return (Fact(subject=speaker, relation="name", object=""),)
    asked = _ASKED_OF.fullmatch(words)
    if not asked or not (own := _OWN.fullmatch(asked["own"])):
        return ()
    subject, noun = own["s"] or speaker, own["noun"].lower()
    attribute = Fact(subject=subject, relation=_relation_of(noun), object="")
    return attribute, Fact(subject=f"{subject}'s {noun}", relation="name", object="")


def _relation_of(noun: str) -> str:
    nouns = {relation.noun: relation.name for relation in phrasebook().values()}
    return nouns.get(noun, english_readings().nouns.get(noun, noun))


def _job(clause: str, voice: _Voice, manner: Manner) -> list[Fact]:
    """ "I am a nurse": of a job alone."""
    match = cues.AM_JOB.match(clause)
    if not match or not (subject := match["s"] or voice.name):
        return []
    words = match["o"].lower().split()
    jobs = english_readings().jobs
    if cues.NO_TRADE.fullmatch(words[0]) or not any(" ".join(words[n:]) in jobs for n in range(len(words))):
        return []
    return _facts(subject, "job", match["o"], manner, "is", False)
