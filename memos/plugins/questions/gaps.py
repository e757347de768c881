"""Leaves words out of statements and asks for them; knows English question words, and no model.

What is left out is a name, a number, a time or a thing that the statement names; the words around it, which stand in no
other statement of the group, say which one is meant. What is trained quotes one side of the gap, what is held out the
other side or single words in another order: no three words in a row stand in both, names and numbers aside. Of a
memory with a speaker or a day, who said it and when is asked too. Every answer stands in the text of its memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import zip_longest

from memos.cube import Probe, plain
from memos.interface.reading.phrasebook import NOT_NAMES, language
from memos.interface.reading.times import times
from memos.lazy import pattern
from memos.operation.forms.lessons import GroupStatement
from memos.operation.policies.policy import STOP, terms

GAPS = 2  # of a statement, the most telling ones
QUOTED = 6  # words beside a gap that are quoted, at most; of a whole statement, twice as many
LONGEST = 4  # words of an answer
KEYWORDS = 3  # words of a statement that stand for it, at most
_WORD = pattern(r"[^\W_](?:[\w'’&.-]*[^\W_])?")
_TITLE = pattern(r"[\"“]([^\"“”]{2,40})[\"”]")
_NO_TIME = date(2001, 1, 3)  # from which times are looked for in what nobody knows the day of
_DAY = pattern(r"\s*\(\d{4}-\d\d-\d\d(?:/\d{4}-\d\d-\d\d)?\)[.!]*$")  # that the reader has put behind a statement
_NUMBERS = frozenset(
    "two three four five six seven eight nine ten eleven twelve dozen hundred thousand twice".split()  # not "one"
)
# What is said of anything: as an answer it would tell nothing, and as a word of a question it would point nowhere.
_VAGUE = frozenset(
    """able agree ago already also always amazing another anything around away awesome awhile back bad best better big
    bit bye care chat come comes coming cool could done even ever every everyone everything excited exciting fantastic
    feel feeling feels felt find first fun gave get gets getting give glad go goes going gone gonna good got gotta great
    guess guys ha haha half happen happened happy hard hear heard hello help helped helps here hey hi hope huh important
    incredible inside inspiring interesting keep kind kinda know let like likes little long look looking looks lot lots
    love loved lovely made make makes making many maybe mean means mention might much must need needed never new next
    nice nothing oh ok okay one ones outside overall people perfect photo photography pic picture pretty proud put quite
    real right said saw say saying second see seeing seems seen sense soon sorry sound sounds special start started
    still stuff super sure take taken taking talk talking tell thank thankful thanks thing things think thinking though
    thought time times together took tough towards true try trying us use used usually wanna want wanted wants way well
    went whatever whenever wherever whoa wonderful won woohoo words worth would wow yeah yep yes yet yup
    someone something
    i'm i've i'd i'll you're you've you'd you'll it's he's she's we're we've we'll they're they've that's there's what's
    don't doesn't didn't can't couldn't won't wouldn't isn't aren't wasn't weren't haven't hasn't let's who's here's
    how's where's""".split()
)
_NO_ADVERBS = frozenset("ally assembly belly bully butterfly family jelly rally reply supply".split())
_LEADS = frozenset("a an the my our his her their your this these some in at to for with from of on about by".split())


@dataclass(frozen=True)
class _Gap:
    """Words of a statement that are asked for: where they begin and end, and what they are."""

    begin: int
    end: int
    kind: str  # name, number, time, thing


@dataclass(frozen=True)
class _Sentence:
    """A statement as it is asked about."""

    of: GroupStatement
    words: str

    @cached_property
    def matter(self) -> frozenset[str]:
        return frozenset(terms(self.words))

    @cached_property
    def plain(self) -> str:
        return f" {plain(self.words)} "

    def answer(self, gap: _Gap) -> str:
        return self.words[gap.begin : gap.end]


def ask(statements: Sequence[GroupStatement]) -> dict[GroupStatement, list[Probe]]:
    """Questions about those of a group that are not asked about yet; none about what no question finds an answer to.

    The same for the same group, in every run.
    """
    group = [_Sentence(one, _DAY.sub("", one.words)) for one in statements]
    names = {plain(one.speaker) for one in statements if one.speaker}
    made, told = dict[GroupStatement, list[Probe]](), set[str]()
    for sentence in group:
        if sentence.of.asked or language(sentence.words) != "en":
            continue
        asker = _Asker(sentence, group, names)
        probes = [probe for gap in _gaps(sentence, names) for probe in asker.about(gap)]
        if probes and sentence.of.memory not in told:
            told.add(sentence.of.memory)
            probes += asker.about_saying()
        if probes:
            made[sentence.of] = probes
    return _apart(made)


def _apart(made: dict[GroupStatement, list[Probe]]) -> dict[GroupStatement, list[Probe]]:
    """Without the held-out questions that share wording with a question of the group that is trained on; of an answer
    for which none is left, nothing is trained."""
    trained = {run for probes in made.values() for p in probes if not p.held_out for run in wording(p.question)}
    out = dict[GroupStatement, list[Probe]]()
    for one, probes in made.items():
        apart = [p for p in probes if not p.held_out or trained.isdisjoint(wording(p.question))]
        proven = {p.answer for p in apart if p.held_out}
        if left := [p for p in apart if p.answer in proven]:
            out[one] = left
    return out


def wording(question: str) -> set[tuple[str, ...]]:
    """Each three words in a row of a question, names and numbers aside, which questions about one thing share."""
    runs, row = set[tuple[str, ...]](), list[str]()
    for word in _WORD.findall(question):
        is_name = (row and word[0].isupper() and word not in NOT_NAMES) or any(letter.isdigit() for letter in word)
        row = [] if is_name else [*row, word.casefold()]
        if len(row) >= 3:
            runs.add(tuple(row[-3:]))
    return runs


class _Asker:
    """Words questions about one statement of a group."""

    def __init__(self, sentence: _Sentence, group: Sequence[_Sentence], names: Iterable[str]) -> None:
        self._sentence, self._others = sentence, [one for one in group if one is not sentence]
        self._words = list(_WORD.finditer(sentence.words))
        self._names = frozenset(word for name in names for word in name.split())
        speaker = sentence.of.speaker
        self._who = "I" if speaker == "User" else speaker

    def about(self, gap: _Gap) -> list[Probe]:
        """In several wordings; [] unless there are some for training and some that are held out."""
        answer = self._sentence.answer(gap)
        before, after = self._side(gap, before=True), self._side(gap, before=False)
        first, second = (before, after) if before else (after, "")
        keys = self._keywords(gap)
        halves = (keys[::2], keys[1::2]) if len(keys) >= 4 else ((), keys)
        some, rest = (self._pointing(half, answer) for half in halves)
        if not first:
            return []
        trained = self._of_quote(first, gap.kind, after_it=bool(before))
        trained += self._of_keywords(some, gap.kind) if some else []
        held_out = self._held_out(second, rest, gap.kind)
        if not held_out:
            return []
        return [Probe(question=q, answer=answer) for q in trained] + [
            Probe(question=q, answer=answer, held_out=True) for q in held_out
        ]

    def about_saying(self) -> list[Probe]:
        """Who said it, where more than one speaks in the group; and on which day."""
        one, answers = self._sentence.of, list[tuple[str, str, str]]()
        quote = self._quote(self._words[: 2 * QUOTED])
        keys = self._pointing(self._keywords(None)[-KEYWORDS:], "")
        if not keys or not self._is_alone(quote, ""):
            return []
        named = Probe(question="", answer=one.speaker).holds(one.memory)
        if named and len({other.of.speaker for other in self._others} | {one.speaker}) > 1:
            answers.append((f'Who said "{quote}"?', f"Whose remark is about {keys}?", one.speaker))
        if one.said:
            day = f"{one.said:%-d %B %Y}"
            if Probe(question="", answer=day).holds(one.memory):
                answers.append(
                    (f'On which day was "{quote}" said?', f"What is the date of the remark about {keys}?", day)
                )
        return [
            Probe(question=question, answer=answer, held_out=n == 1)
            for *both, answer in answers
            for n, question in enumerate(both)
            if not Probe(question=question, answer=answer).holds(question)
        ]

    def _of_quote(self, quote: str, kind: str, after_it: bool) -> list[str]:
        who, side = self._who, "after" if after_it else "before"
        gap = f"{quote} ..." if after_it else f"... {quote}"
        if not who:
            return [f'Complete this sentence: "{gap}"', f'Which {kind} stands right {side} "{quote}"?']
        return [f'Complete what {who} said: "{gap}"', f'Which {kind} did {who} name right {side} "{quote}"?']

    def _of_keywords(self, keys: str, kind: str) -> list[str]:
        if not self._who:
            return [f"Which {kind} is mentioned along with {keys}?"]
        return [f"Which {kind} did {self._who} mention along with {keys}?"]

    def _held_out(self, after: str, keys: str, kind: str) -> list[str]:
        """after: the words behind the gap, where those before it are trained."""
        found, whose = list[str](), f" of {self._who}" if self._who else ""
        if after:
            found.append(f'What {kind} is missing in words{whose}: "___ {after}"?')
        if keys:
            found.append(f"In words{whose} about {keys}, what {kind} comes up?")
        return found

    def _side(self, gap: _Gap, before: bool) -> str:
        """The words on one side of a gap, as they stand there; "" where they do not say which gap is meant."""
        if before:
            near = [word for word in self._words if word.end() <= gap.begin][-QUOTED:]
        else:
            near = [word for word in self._words if word.start() >= gap.end][:QUOTED]
        telling = [word for word in near if self._tells(word[0])]
        quote = self._quote(near)
        answer = self._sentence.answer(gap)
        if len(near) < 2 or not telling or plain(answer) in plain(quote):
            return ""
        return quote if self._is_alone(quote, answer) else ""

    def _quote(self, words: Sequence[re.Match[str]]) -> str:
        return self._sentence.words[words[0].start() : words[-1].end()].replace('"', "'") if words else ""

    def _is_alone(self, quote: str, answer: str) -> bool:
        """True if the words stand once in the statement, and in no other but such as say the same."""
        wanted = f" {plain(quote)} "
        if self._sentence.plain.count(wanted) != 1:
            return False
        return not any(wanted in one.plain for one in self._others_than(answer))

    def _others_than(self, answer: str) -> Iterator[_Sentence]:
        """The other statements of the group in which the answer does not stand."""
        return (one for one in self._others if not answer or f" {plain(answer)} " not in one.plain)

    def _keywords(self, gap: _Gap | None) -> tuple[str, ...]:
        """Words that tell of the statement, the last first, without those asked for."""
        asked = set(terms(self._sentence.answer(gap))) if gap else set()
        found = (word[0] for word in reversed(self._words) if self._tells(word[0]))
        return tuple(dict.fromkeys(word for word in found if asked.isdisjoint(terms(word))))

    def _pointing(self, keys: Sequence[str], answer: str) -> str:
        """The keywords in words, the fewest that point at this statement alone; "" where they do not."""
        for count in range(min(2, len(keys)) or 2, KEYWORDS + 1):
            some, matter = keys[:count], frozenset(terms(" ".join(keys[:count])))
            if len(some) == count and not any(matter <= one.matter for one in self._others_than(answer)):
                return " and ".join(filter(None, (", ".join(some[:-1]), some[-1])))
        return ""

    def _tells(self, word: str) -> bool:
        return _tells(word, self._names)


def _tells(word: str, names: frozenset[str]) -> bool:
    low = word.casefold().replace("’", "'")
    adverb = word.islower() and low.endswith("ly") and low not in _NO_ADVERBS
    return not (adverb or low in STOP or low in _VAGUE or low in names or len(low) < 3) and bool(terms(low))


def _gaps(sentence: _Sentence, names: Iterable[str]) -> list[_Gap]:
    """The most telling parts of a statement that do not overlap, in that order: times, names, numbers, things."""
    speakers = frozenset(word for name in names for word in name.split())
    found = [*_times(sentence), *_names(sentence.words, speakers), *_counted(sentence.words)]
    things = sorted(_things(sentence.words, speakers), key=lambda pair: pair[0], reverse=True)
    chosen = list[_Gap]()
    for gap in (*found, *(thing for _, thing in things)):
        if all(gap.end <= other.begin or gap.begin >= other.end for other in chosen):
            chosen.append(gap)
    return chosen[:GAPS]


def _names(words: str, speakers: frozenset[str]) -> Iterator[_Gap]:
    """Titles in quotation marks, and words with a capital within the sentence."""
    for title in _TITLE.finditer(words):
        if len(title[1].split()) <= LONGEST:
            yield _Gap(title.start(1), title.end(1), "name")
    run = list[re.Match[str]]()
    for word in [*_WORD.finditer(words), None]:
        if word and word.start() > 0 and word[0][0].isupper() and _is_name(word[0], speakers):
            if run and words[run[-1].end() : word.start()] != " ":
                yield from _whole(run, "name")
                run = []
            run.append(word)
        else:
            yield from _whole(run, "name")
            run = []


def _whole(run: Sequence[re.Match[str]], kind: str) -> Iterator[_Gap]:
    if run and len(run) <= LONGEST:
        yield _Gap(run[0].start(), run[-1].end(), kind)


def _is_name(word: str, speakers: frozenset[str]) -> bool:
    return word not in NOT_NAMES and _tells(word, speakers)


def _counted(words: str) -> Iterator[_Gap]:
    """A number, with what is counted."""
    found = list(_WORD.finditer(words))
    for word, after in zip_longest(found, found[1:]):
        if any(letter.isdigit() for letter in word[0]) or word[0].casefold() in _NUMBERS:
            beside = after and words[word.end() : after.start()] == " " and _tells(after[0], frozenset())
            yield _Gap(word.start(), after.end() if after and beside else word.end(), "number")


def _times(sentence: _Sentence) -> Iterator[_Gap]:
    day = sentence.of.said.date() if sentence.of.said else _NO_TIME
    if found := times.find(sentence.words, day, past=True):
        words = sentence.words[slice(*found.span)].rstrip(" ,.")
        if 2 <= len(words.split()) <= LONGEST or not words.islower():  # "today" is no more than the day of saying
            yield _Gap(found.span[0], found.span[0] + len(words), "time")


def _things(words: str, speakers: frozenset[str]) -> Iterator[tuple[tuple[bool, int], _Gap]]:
    """Runs of words that tell something, each with how telling it is: what an article or a preposition leads to names
    a thing as a rule; of two, the longer."""
    run, lead, last = list[re.Match[str]](), "", ""
    for word in [*_WORD.finditer(words), None]:
        goes_on = bool(run and word and words[run[-1].end() : word.start()] == " ")
        if word and _tells(word[0], speakers) and (goes_on or not run):
            lead = lead if run else last
            run.append(word)
        else:
            if run:
                part = run[-3:]
                size = part[-1].end() - part[0].start()
                yield (lead in _LEADS, size), _Gap(part[0].start(), part[-1].end(), "thing")
            lead = last
            run = [word] if word and _tells(word[0], speakers) else []
        last = word[0].casefold() if word else ""
