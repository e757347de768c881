"""The calls that find and list memories, narrowed to what the caller may see before anything is ranked."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memos.cube import ANSWERING, EPISODE, SUMMARY, USER, Fact, Form, MemCube, State, Text, in_zone, plain
from memos.errors import InputError
from memos.infrastructure.host.threads import numpy_multiplies_alone
from memos.interface.reading.phrasebook import language
from memos.interface.reading.requests import corrections, references, wordings
from memos.interface.reading.times import times
from memos.kernel.access import REPLAY, Limits, Service, Staged, unique
from memos.operation.finding.catalog import Catalog
from memos.operation.life.knowledge import said_words, stated
from memos.operation.life.time_machine import as_of
from memos.operation.policies.policy import terms
from memos.ops import Add, Asked, Forget, Recall, Search
from memos.skeleton import simplified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import date, datetime

    from memos.infrastructure.vault.audit.records import Decision
    from memos.kernel.access import CuratingOf, Replaying
    from memos.kernel.wiring import Parts
    from memos.operation.choosing.mem_scheduler import Admission
    from memos.operation.finding.catalog import View
    from memos.operation.finding.mem_operator import FoundMemory
    from memos.rights import Caller

NO_LIMITS: Limits = (None, None, None)
MAX_IN_BUDGET = 64  # memories that are looked at to fill a number of tokens
BY_LENGTH = 0.2  # power of its tokens that a memory's score is divided by there: twice as long, 15 % higher
NEAR = 0.4  # mean cosine of the question's tokens with those of a memory that speaks of what is asked: of LoCoMo's
# questions .92 of the evidence lies above, and .11 of the nearest of somebody else's conversations (docs/benchmarks.md)
CLEAR = 0.6  # the same of one that speaks of it although it has but a name of the question's words
SHARED = 0.04  # of its words, those that such a memory has too, where the encoder does not know the language
SHORT = 100  # characters of a message that may change an earlier one
_OPENING, _OPENING_ZH = 20, 6  # characters, in which a message speaks of what was said before it
UNSURE = 2  # memories that are quoted where none speaks of what is asked
MAX_NEAR = 3  # memories that a description which fits none is compared with

_CHANGES = re.compile(  # words of a message that may end what was said before
    r"(?i)\b(?:now|no longer|any ?more|instead|new|moved|changed|switched|swapped|replaced|raised|lowered|increased"
    r"|reduced|(?:went|gone|going|goes|put|pushed) (?:up|down|back)|(?:changed|changing) (?:my|his|her|their) mind"
    r"|cancel+ed|postponed|rescheduled|broke up|quit|sold|stopped|(?:paid|gave|given) (?:\w+ ){0,3}back|returned)\b"
    r"|[改换搬涨降]|跳槽|不再|现在|推迟|提前|取消|辞|分手|出院|离职|停了|卖了"
)


_NUMERAL = re.compile(r"[\d〇零一二两三四五六七八九十百千万年月日号點点半個个上下午周]+")  # of a day or an amount


@dataclass(frozen=True)
class Hit:
    """A memory found, with its score, and the signals that the score was made of."""

    cube: MemCube
    score: float
    why: dict[str, float]


class Finding(Service):
    """search, memories, cubes, tiers; and what other services look up."""

    def __init__(self, parts: Parts, curating: CuratingOf) -> None:
        super().__init__(parts)
        self._curating = curating
        self._replays: dict[str, Replaying] = {}  # by policy: the tiers of those that find by themselves

    def search(
        self,
        caller: Caller,
        query: str,
        *,
        top_k: int | None = None,
        budget: int | None = None,
        kinds: Iterable[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        where: Callable[[MemCube], bool] | None = None,
        policy: str | None = None,
    ) -> list[Hit]:
        """The memories that answer the query best among those that the caller may see, best first.

        budget: instead of a number of memories, as many as fit into so many tokens, counted by the embedder, with who
        said each and when. kinds: of memories (Header.kind); since, until: when they were said, UTC where no zone is
        given; where: true of them, as the caller may read them. policy: which one finds, in place of the caller's.
        Raises InputError.
        """
        if top_k is not None and top_k < 1:
            raise InputError(f"top_k {top_k} finds nothing; give 1 or more, or leave it out")
        if budget is not None and (budget < 1 or top_k is not None):
            raise InputError(f"budget {budget}: give 1 token or more, and no top_k beside it, which counts memories")
        recall = self._reader.recall(query, today=self._today())
        most = MAX_IN_BUDGET if budget else top_k or self._config.scheduler.top_k
        op = Search(query=query, top_k=most, about=recall.about, asks=recall.asks, wants=recall.wants)
        limits = (None if kinds is None else frozenset(kinds), in_zone(since), in_zone(until))
        hits, narrowed = self.find(caller, op, op.top_k, policy, limits, where)
        self._governance.record([narrowed])
        hits = self._ranked(hits, policy or self._schedulers.policy_of(caller))[:most]
        return hits if budget is None else self._within(budget, hits, self._access.as_read(caller))

    def _ranked(self, hits: Sequence[Hit], policy: str) -> list[Hit]:
        """As the policy ranks them; what it holds to be too weak for a prompt comes last."""
        ranked = self._schedulers.named(policy).policy.rank([(hit.cube, hit.score) for hit in hits])
        place = {cube.id: n for n, (cube, _) in enumerate(ranked)}
        return sorted(hits, key=lambda hit: place.get(hit.cube.id, len(place)))

    def _within(self, budget: int, hits: Sequence[Hit], shown: Callable[[MemCube], MemCube]) -> list[Hit]:
        """Of these, best first, as many as fit into a number of tokens: taken by their scores, of which a longer memory
        needs a higher one (BY_LENGTH); what does not fit is passed over."""
        counts = self._embedder().counts([shown(hit.cube).text for hit in hits])
        least = min([0.0, *(hit.score for hit in hits)])  # some policies count down from 0
        worth = [(hit.score - least) / max(1, tokens) ** BY_LENGTH for hit, tokens in zip(hits, counts, strict=True)]
        taken = set[int]()
        for n in sorted(range(len(hits)), key=lambda n: -worth[n]):
            if counts[n] <= budget:
                budget -= counts[n]
                taken.add(n)
        return [hit for n, hit in enumerate(hits) if n in taken]

    def memories(
        self, caller: Caller, *, true_at: datetime | None = None, known_at: datetime | None = None
    ) -> list[MemCube]:
        """The memories in force that the caller may see, as they were said.

        true_at, known_at: instead, the caller's own that held at the one time, as far as was known at the other (UTC
        where no zone is given; left out: now).
        """
        if true_at is None and known_at is None:
            return self._access.texts(caller)
        now = self._vault.now()
        then = as_of(self._vault, caller.user_id, in_zone(true_at) or now, in_zone(known_at) or now)
        return self._governance.readable(caller, then)

    def cubes(self, caller: Caller, *, form: Form | None = None) -> list[MemCube]:
        """Everything the caller may see, of every state."""
        return self._access.cubes(caller, form)

    def tiers(self, caller: Caller) -> object:
        """What the caller's policy has made of the memories, where it keeps tiers. Raises InputError."""
        self._governance.permit(caller, Search(query=""))
        policy = self._schedulers.policy_of(caller)
        if replay := self._replay(policy):
            return replay.tiers(self._access.view(caller))
        raise InputError(f"the policy {policy} keeps no tiers; set policy to one that does: memoryos")

    # what other services look up

    def find(
        self,
        caller: Caller,
        op: Recall | Search,
        k: int | None = None,
        policy: str | None = None,
        limits: Limits = NO_LIMITS,
        where: Callable[[MemCube], bool] | None = None,
    ) -> tuple[list[Hit], Decision]:
        """What a policy, by default the caller's, finds in the caller's view; and how far that view reached, which is
        still to be written into the audit log. k: None for as much as a request needs."""
        kinds, since, until = limits
        view = self._access.view(caller, (kinds, since or op.wants.since, until), summaries=op.wants.summary)
        if (rules := self._config.lifecycle).cool_after_days is not None:
            view = replace(view, enough=rules.cold_below)
        if where:
            shown, seen = self._access.as_read(caller), self._vault.at(self._operator().versions(view))
            view = replace(view, among=frozenset(cube.id for cube in seen if where(shown(cube))))
        found = self._found(caller, op, k, policy or self._schedulers.policy_of(caller), view)
        narrowed = self._governance.narrowed(caller, self._operator().in_view(view, afresh=False)[0])
        there = self._vault.at(one.id for one in found)  # one that is gone since is left out
        # what was revoked while it was looked for is left out as well
        cubes = {c.id: c for c in self._governance.visible(caller, there) if c.state in ANSWERING}
        hits = [Hit(cubes[one.id], one.score, one.why) for one in found if one.id in cubes]
        if op.wants.whatever:  # the latest first, all as good as can be
            latest = sorted(hits, key=lambda hit: hit.cube.order, reverse=True)
            hits = [replace(h, score=1 - n * 1e-6, why=h.why | {"tokens": 1.0}) for n, h in enumerate(latest)]
        if op.wants.held and limits == NO_LIMITS and not where:  # it is about what these have replaced
            past = (replace(h, cube=c) for h in hits for c in (*self._replaced(caller, h.cube, *op.wants.held), h.cube))
            hits = list({hit.cube.id: hit for hit in past}.values())
        return (self._by_use(hits) if any(hit.cube.usage.utility for hit in hits) else hits), narrowed

    def near(self, caller: Caller, op: Recall, admission: Admission, most: int) -> tuple[tuple[MemCube, ...], bool]:
        """At most so many of those found that speak of what is asked, lie on its days, state the fact asked for,
        or held before one of these at the time that is asked of, and where there is room what may have changed one of
        them since, the latest first; for an overview twice as many, oldest first. A short message is given whole, also
        where a part of it was found, and one that ends with a question is followed by what was replied to it. Else,
        and False beside them, those found first."""
        # any two texts are near in a language beside English
        signal, least = ("tokens", NEAR) if language(op.question) == "en" else ("words", SHARED)
        near = {cube.id for cube, why in admission.found if why.get("states") or why.get(signal, 1.0) >= least}
        if on := times.ahead(op.question, self._today()):
            near |= {cube.id for cube, _ in admission.found if is_on(cube, *on)}
        held = [cube for cube, _ in admission.found if cube.id in near] if op.wants.held else []
        past = {one.id for cube in held for one in self._replaced(caller, cube, *(op.wants.held or ()))}
        near |= past
        spoken = [cube for cube, _ in admission.found if cube.id in near]
        spoken += [c for c, _ in admission.found if c.id not in near and any(_may_change(one, c) for one in spoken)]
        if on:
            spoken.sort(key=lambda cube: not is_on(cube, *on))
        is_sure = bool(spoken) and not _only_named(op.question, [one for one in admission.found if one[0].id in near])
        nearest = [cube for cube, why in admission.found if signal == "tokens" or why.get(signal)][:UNSURE]
        spoken = spoken[: 2 * most if op.wants.overview else most] or nearest
        if op.wants.overview or (held and not past):  # how things went
            spoken.sort(key=lambda cube: cube.order)
        else:
            spoken = _latest_first(spoken, set(terms(op.question, query=True)))
            spoken = self._with_next(caller, spoken)[:most] if is_sure else spoken
        turns = self._access.view(caller, (frozenset([EPISODE]), None, None))
        of = {cube.id: cube.sources[0].id for cube in spoken if len(cube.sources) == 1}
        replies = self._operator().beside([*(cube.id for cube in spoken), *of.values()], turns, Catalog.reply)
        others = self._governance.visible(caller, self._vault.at({*replies.values(), *of.values()}))
        said = {cube.id: self._vault.guard.as_shown(cube) for cube in others if cube.state in ANSWERING}
        spoken = [one if (one := said.get(of.get(c.id, ""))) and _has_more(one, c) else c for c in spoken]
        both = (one for cube in spoken for one in (cube, said.get(replies.get(cube.id, ""))) if one)
        return tuple({(one.header.speaker, bare(said_words(one))): one for one in both}.values()), is_sure

    def _with_next(self, caller: Caller, cubes: Sequence[MemCube]) -> list[MemCube]:
        """The same, each with what was told right after and speaks of it by "it" or "she", or in front of it what says
        that it changed."""
        view = self._access.view(caller, (None, None, None))
        following = self._operator().beside([cube.id for cube in cubes], view, Catalog.next)
        more = {c.id: c for c in self._governance.visible(caller, self._vault.at(following.values()))}
        found = list[MemCube]()
        for cube in cubes:
            after = more.get(following.get(cube.id, ""))
            if after and after.state in ANSWERING and _goes_on(said_words(after)):
                found += [after, cube] if _CHANGES.search(said_words(after)) else [cube, after]
            else:
                found.append(cube)
        said = {bare(said_words(cube)): cube for cube in reversed(found)}  # the first of those that say the same
        return unique(said[bare(said_words(cube))] for cube in found)

    def _replaced(self, caller: Caller, cube: MemCube, first: date, last: date) -> list[MemCube]:
        """What a memory has replaced that held at some time between two days, and what that had replaced before, the
        earliest first: whole turns, and not what was read in them."""
        ended: dict[str, datetime] = {}
        latest = [cube]
        while latest:
            by = [id for one in latest for id in (one.id, *(source.id for source in one.sources))]
            by += [one.id for one in self._vault.derived(*(one.id for one in latest))]
            new = {id: at for id, at in self._vault.superseded.replaced(by).items() if id not in ended}
            ended, latest = new | ended, self._vault.at(new) if new else []
        gone = [one for one in self._vault.at(ended) if one.order[0].date() <= last and ended[one.id].date() > first]
        ids = {one.id for one in gone}
        archived = [one for one in self._governance.visible(caller, gone) if one.state is State.ARCHIVED]
        return [one for one in archived if ids.isdisjoint(source.id for source in one.sources)]

    def _found(self, caller: Caller, op: Recall | Search, k: int | None, policy: str, view: View) -> list[FoundMemory]:
        query = " ".join((op.question, *op.also)) if isinstance(op, Recall) else op.query
        if replay := self._replay(policy):
            return replay.search(query, k, self._access.view(caller), view)
        if curating := self._curating(policy):
            return curating.find(caller, policy, query, k or MAX_IN_BUDGET, view)
        score, most = self._schedulers.named(policy).policy.score, k or self._config.scheduler.top_k
        with numpy_multiplies_alone():
            return self._operator().search(query, most, view, score, op.about, op.asks, op.wants)

    def _replay(self, policy: str) -> Replaying | None:
        """None for a policy that keeps no tiers."""
        staged = self._schedulers.named(policy).policy
        if policy not in self._replays and isinstance(staged, Staged):
            self._replays[policy] = REPLAY.get("tiers")(self._vault, self._operator(), staged)
        return self._replays.get(policy)

    def forget_tiers(self) -> None:
        """After all of a user was removed: tiers are replayed anew."""
        self._replays.clear()

    def _by_use(self, hits: Sequence[Hit]) -> list[Hit]:
        """The same, in the order of their scores and of how much they have helped so far."""
        weight = self._config.retrieval.useful
        rated = [replace(h, score=h.score + weight * h.cube.usage.utility) for h in hits]
        rated = [replace(h, why=h.why | {"useful": h.cube.usage.utility}) for h in rated]
        return sorted(rated, key=lambda hit: -hit.score)

    def described(self, caller: Caller, op: Forget, is_final: bool = False) -> tuple[list[MemCube], list[MemCube]]:
        """(the memories that a description means, those that are near it); of a turn and what was read in it one.
        is_final: what is meant is to be deleted."""
        if op.naming:  # also what is no longer in force
            own = [cube for cube in self.cubes(caller, form=Form.PLAINTEXT) if cube.rights.owner == caller.user_id]
            return _least([c for c in own if _names(c.text, op.naming)], lambda text: _names(text, op.naming)), []
        texts = [cube for cube in self._access.texts(caller) if cube.header.kind != SUMMARY]
        facts, words = op.facts, frozenset(terms(op.query, query=True))
        if fits := [c for c in texts if any(_fits(wanted, fact) for wanted in facts for fact in stated(c))]:
            return fits, []
        shared = {cube.id: len(words.intersection(terms(said_words(cube)))) for cube in texts}
        literal = all(words.issuperset(terms(wanted.relation)) for wanted in facts)  # the words are those of its name
        says_all = _says_all(op.query, words)
        if words and literal and (all_words := [c for c in texts if shared[c.id] and says_all(said_words(c))]):
            return _least(all_words, says_all), []
        # what is meant does not depend on how answers are found
        near, narrowed = self.find(caller, Search(query=op.query), MAX_NEAR, policy="memos")
        self._governance.record([narrowed])
        cubes = sorted((hit.cube for hit in near), key=lambda cube: -shared.get(cube.id, 0))  # likeliest first
        least = self._config.scheduler.forget_score
        close = [hit.cube for hit in near if hit.why["near"] >= least]
        most = max((shared.get(cube.id, 0) for cube in close), default=0)
        if facts or (is_final and most <= len(words) / 2):  # "my sister's birthday" is not that of my brother
            return [], cubes
        return [cube for cube in close if shared.get(cube.id, 0) == most], cubes

    def left(self, told: MemCube, what: str) -> Add | None:
        """What a memory tells beside what is described, to be remembered; None where it cannot stand by itself."""
        words = frozenset(terms(self._reader.forget(what).query, query=True) if what else ())
        line, today = bare(said_words(told)), told.order[0].astimezone().date()
        left = corrections.without(line, lambda clause: words <= {*terms(clause)}) if words else ""
        stated = Asked(intent="remember", what=left, when=corrections.day_of(left, line, told.text, today))
        return self._reader.to_statement(stated).model_copy(update={"said": told.order[0]}) if left else None

    def saying(self, words: str, caller: Caller) -> list[MemCube]:
        """The caller's memories that say just this, the latest last."""
        own = [cube for cube in self._access.texts(caller) if words and cube.rights.owner == caller.user_id]
        return [cube for cube in own if plain(bare(said_words(cube))) == plain(bare(words))]

    def told(self, cube: MemCube) -> list[MemCube]:
        """A memory, after what it was read in where that says no more."""
        sources = self._vault.at(source.id for source in cube.sources)
        return [*(one for one in sources if bare(said_words(one)) == bare(said_words(cube))), cube]

    def roots(self, cube: MemCube) -> list[MemCube]:
        """What a memory was made of, down to what was said; a memory that was said, itself. All that is made of it goes
        with it."""
        is_said = isinstance(cube.payload, Text) and bool(cube.payload.verbatim)
        if not cube.sources or is_said or cube.header.kind == SUMMARY:
            return [cube]
        return unique(root for source in self._vault.at(s.id for s in cube.sources) for root in self.roots(source))


def _only_named(question: str, found: Sequence[tuple[MemCube, Mapping[str, float]]]) -> bool:
    """True where memories share a name with an English question, and no other word, and are not near it otherwise."""
    names = {*terms(" ".join(references.names_in(question)))} if language(question) == "en" else set()
    rest = {*terms(question, query=True)} - names
    near = [cube for cube, why in found if why.get("tokens", 1.0) >= CLEAR or why.get("states")]
    return bool(names and rest) and not near and all(rest.isdisjoint(terms(said_words(cube))) for cube, _ in found)


def bare(words: str) -> str:
    """What was said without the days behind it, the user's name in front, and how it ends."""
    return times.WRITTEN.sub("", words).removeprefix(f"{USER}: ").strip(" .!。！")


def is_on(cube: MemCube, first: date, last: date) -> bool:
    """True if a memory has days behind its words that lie between these."""
    days = times.WRITTEN.search(cube.text)
    return days is not None and days[1] <= last.isoformat() and first.isoformat() <= (days[2] or days[1])


def _may_change(earlier: MemCube, later: MemCube) -> bool:
    """True if somebody says a little on a later day, or of a change, that has a word in common with what they said."""
    both = said_words(earlier), said_words(later)
    if earlier.header.speaker != later.header.speaker or max(map(len, both)) > SHORT:
        return False
    changes = _CHANGES.search(both[1])
    is_later = earlier.order < later.order if changes else earlier.order[0].date() < later.order[0].date()
    return is_later and bool(_shared(earlier, later))


def _shared(one: MemCube, other: MemCube) -> set[str]:
    """The words of both; the days behind them are none of theirs."""
    both = set(terms(bare(said_words(one)), query=True)).intersection(terms(bare(said_words(other)), query=True))
    return {word for word in both if not _NUMERAL.fullmatch(word)}


def _latest_first(cubes: Sequence[MemCube], asked: set[str]) -> list[MemCube]:
    """The same, but of those that have the same words of the question, or of which one says that what another told has
    changed, the latest first, which may be the state now."""

    def ends(earlier: MemCube, later: MemCube) -> bool:
        shared = _shared(earlier, later)
        is_change = earlier.order < later.order and _CHANGES.search(said_words(later)) is not None
        return is_change and bool(asked & shared or len(shared) > 1 or not "".join(shared).isascii())

    has = [asked.intersection(terms(said_words(cube))) for cube in cubes]
    place = {
        c.id: next(n for n, words in enumerate(has) if n == m or (words and words <= has[m]) or ends(cubes[n], c))
        for m, c in enumerate(cubes)
    }
    return sorted(sorted(cubes, key=lambda cube: cube.order, reverse=True), key=lambda cube: place[cube.id])


def _goes_on(words: str) -> bool:
    """True of a short message that says little alone: it speaks of what was said before it, or only of a change."""
    changes = _CHANGES.search if language(words) == "en" else _CHANGES.match  # "price went up to 74", 改吃缬沙坦了
    opening = _OPENING if language(words) == "en" else _OPENING_ZH
    is_short = len(words) < 2 * _OPENING or opening == _OPENING_ZH
    is_change = is_short and changes(words) and not wordings.FIRST.search(words)
    refers = wordings.REFERS.search(words)  # at its beginning: "the swimming changed, now it is at 5" is clear alone
    return len(words) <= SHORT and bool((refers and refers.start() < opening) or is_change)


def _has_more(turn: MemCube, part: MemCube) -> bool:
    """True if a short message says more than what was read in it, which may be clear only with the rest."""
    words, of_part = said_words(turn), said_words(part)
    ends = words.endswith(("!", "！")) and not of_part.endswith(("!", "！"))  # as a password may
    return len(words) <= SHORT and (ends or bare(words) != bare(of_part))


def _says_all(query: str, words: frozenset[str]) -> Callable[[str], bool]:
    """Tells of a text whether it has all words of a description; of a Chinese one, which has no spaces to tell where
    words end, one of them and the characters of all."""
    if language(query) != "zh":
        return lambda text: words <= {*terms(text)}
    return lambda text: not words.isdisjoint(terms(text)) and {*"".join(words)} - {*"我的"} <= {*simplified(text)}


def _names(text: str, name: str) -> bool:
    """True if a text has the name in it, as a word where it is written with spaces between words."""
    edge = "" if ord(name[0]) > 0x2E80 else r"\b"
    return bool(re.search(f"{edge}{re.escape(name)}{edge}", text, re.IGNORECASE))


def _least(cubes: Sequence[MemCube], fits: Callable[[str], bool]) -> list[MemCube]:
    """Of a turn and what was read in it the shortest without which nothing there fits, else the turn."""
    by_turn: dict[str, list[MemCube]] = {}
    for cube in cubes:
        by_turn.setdefault(next((source.id for source in cube.sources), cube.id), []).append(cube)
    found = list[MemCube]()
    for id, some in by_turn.items():
        if turn := next((cube for cube in some if cube.id == id), None):
            parts = sorted(some, key=lambda cube: len(said_words(cube))) if turn.header.kind == EPISODE else []
            some = [next((c for c in parts if not fits(turn.text.replace(said_words(c), "", 1))), turn)]
        found += some
    return found


def _fits(wanted: Fact, fact: Fact) -> bool:
    """True if a fact with blanks describes another."""
    pairs = ((wanted.subject, fact.subject), (wanted.relation, fact.relation), (wanted.object, fact.object))
    return all(not asked or asked.casefold() == there.casefold() for asked, there in pairs)
