"""Predicts what will be used next from past use: by whom, which topic group, when.

Knows names and times; knows no stores, no forms and no tensors. It takes from others:

- a use that fades, at several time scales: the combined recency and frequency of LRFU (Lee et al., IEEE Trans.
  Computers 50(12), 2001);
- experts weighed by how well each predicted, as LeCaR weighs LRU and LFU (Vietri et al., HotStorage 2018), with the
  fixed share of Herbster and Warmuth (Machine Learning 32, 1998), so that the best one may change;
- what follows what within a window: the probability graph of Griffioen and Appleton (USENIX Summer 1994), and of order
  two as in Markov prefetching (Joseph and Grunwald, ISCA 1997).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from memos.operation.finding.columns import Column

Floats = npt.NDArray[np.float64]

Context = tuple[str, ...]  # a user, a user who begins a session, a group, or two that came one after the other

SCALES = np.array([600.0, 6 * 3600.0, 4 * 86_400.0, 60 * 86_400.0])  # seconds: a talk, a part of a day, days, a season
PAUSE = 1800.0  # seconds without a use after which a user begins a new session
WINDOW = 4  # requests of a user that a prediction is about
LIKELY = 0.02  # what is predicted with less than this probability is not worth fetching
_KINDS = 2 * WINDOW  # of contexts: the user, each of the latest, each two of the latest
_LEARN = 0.02  # how far one use moves what is believed
_FADE = 0.995  # of what was counted, at each further count
_LARGE = 1e9  # numbers that grow are made small again
_MOST = 64  # groups that are remembered as following something


@dataclass
class Follows:
    """What came in the few requests after something, the nearest and the latest counted most."""

    counts: dict[str, float] = field(default_factory=dict)
    total: float = 0.0
    unit: float = 1.0  # what the next one counts: it grows instead of the others fading

    def add(self, group: str, distance: int) -> None:
        """It came so many requests after."""
        self.counts[group] = self.counts.get(group, 0.0) + self.unit / distance
        self.total += self.unit / distance
        self.unit /= _FADE
        if len(self.counts) > _MOST:
            del self.counts[min(self.counts, key=self.counts.__getitem__)]
        if self.unit > _LARGE:
            self.counts = {group: count / self.unit for group, count in self.counts.items()}
            self.total, self.unit = self.total / self.unit, 1.0

    @property
    def scale(self) -> float:
        """From a count to a probability. Some of it is left for what never came, the more the more different ones did:
        PPM's method C (Moffat, IEEE Trans. Communications 38(11), 1990)."""
        return 1 / (self.total + len(self.counts) * self.unit)


@dataclass
class Visit:
    """A user's present session: its latest groups, and the uses that are expected next."""

    user: str
    trail: tuple[Context, ...]  # the latest last
    at: float = -math.inf
    coming: dict[str, float] = field(default_factory=dict)

    def contexts(self) -> list[tuple[int, int, Context]]:
        """What the next group follows: each with its kind, and how many requests after it."""
        ends = self.trail[::-1]
        pairs = [(*b, *a) for a, b in pairwise(ends)]
        of_one = [(n, n, context) for n, context in enumerate(ends, start=1)]
        of_two = [(WINDOW + n, n, context) for n, context in enumerate(pairs, start=1)]
        return [(0, 1, ("user", self.user)), *of_one, *of_two]


class Foresight:
    """Thread safe. Learns with each use. The same uses in the same order give the same predictions.

    most: groups, contexts and users that are remembered, each; those used longest ago, or least, are forgotten.
    """

    def __init__(self, most: int = 20_000) -> None:
        self._most, self._now, self._lock = most, 0.0, threading.RLock()
        self._rows = dict[str, int]()
        self._uses, self._last, self._soon = Column(np.float64, len(SCALES)), Column(np.float64), Column(np.float64)
        self._total = np.zeros(len(SCALES))  # of all uses, at `now`
        self._follows = dict[Context, Follows]()  # the one that grew last at the end
        self._visits = dict[str, Visit]()  # of users who are there, the one heard of last at the end
        self._scales = np.full(len(SCALES), 1 / len(SCALES))  # how much each scale is believed
        self._kinds = np.full(_KINDS, 1 / _KINDS)  # how much each kind of context is

    def used(self, user: str, group: str, at: float) -> None:
        """A user used a group, `at` seconds after a moment that is the same for all. Time does not go back."""
        with self._lock:
            at = max(at, self._now)
            self._leave(at)
            self._count(group, at)
            visit = self._visits.pop(user, None) or _begun(user)
            self._expect(visit, -1)
            probabilities = np.zeros(_KINDS)
            for kind, distance, context in visit.contexts():
                follows = self._follows[context] = self._follows.pop(context, Follows())
                if group in follows.counts:
                    probabilities[kind] = follows.counts[group] * follows.scale
                follows.add(group, distance)
            self._kinds = _believed(self._kinds, probabilities)
            visit = Visit(user, (*visit.trail, ("group", group))[-WINDOW:], at)
            visit.coming = self._predicted(visit)
            self._expect(visit, 1)
            self._visits[user] = visit
            while len(self._follows) > self._most:
                del self._follows[next(iter(self._follows))]

    def worth(self, groups: Sequence[str], now: float) -> Floats:
        """Uses of each that are expected while those who are there make a few requests each. Never used: 0."""
        with self._lock:
            rows = np.array([self._rows.get(group, -1) for group in groups], np.int64)
            out, known = np.zeros(len(rows)), rows[rows >= 0]
            shares = self._shares(known, max(now, self._now)) @ self._scales
            out[rows >= 0] = WINDOW * max(1, len(self._visits)) * shares + self._soon.all[known]
            return out

    def next(self, user: str, now: float) -> list[tuple[str, float]]:
        """What this user is predicted to use in the next few requests, with its probability, the likeliest first."""
        with self._lock:
            visit = self._visits.get(user)
            if visit is None or now - visit.at > PAUSE:
                visit = _begun(user)
            coming = visit.coming or self._predicted(visit)
            return sorted(((g, min(1.0, uses)) for g, uses in coming.items()), key=lambda row: (-row[1], row[0]))

    def _count(self, group: str, at: float) -> None:
        if group not in self._rows:
            self._forget(at)
            self._rows[group] = len(self._rows)
            self._uses.append(0.0)
            self._last.append(at)
            self._soon.append(sum(visit.coming.get(group, 0.0) for visit in self._visits.values()))
        row = np.array([self._rows[group]])
        if at - self._last.all[row[0]] > SCALES[0]:  # what is used again at once teaches nothing about keeping
            self._scales = _believed(self._scales, self._shares(row, at)[0])
        self._uses.all[row] = self._faded(row, at) + 1
        self._last.all[row] = at
        self._total = self._total * np.exp((self._now - at) / SCALES) + 1
        self._now = at

    def _faded(self, rows: npt.NDArray[np.int64], now: float) -> Floats:
        """[rows, scales]: uses, each counted the less the longer ago it was."""
        return self._uses.all[rows] * np.exp((self._last.all[rows] - now)[:, None] / SCALES)

    def _shares(self, rows: npt.NDArray[np.int64], now: float) -> Floats:
        """[rows, scales]: of all uses."""
        return self._faded(rows, now) / np.maximum(self._total * np.exp((self._now - now) / SCALES), 1e-300)

    def _predicted(self, visit: Visit) -> dict[str, float]:
        """Uses that are expected in the next few requests, by group."""
        out = dict[str, float]()
        for kind, _, context in visit.contexts():
            if follows := self._follows.get(context):
                scale = WINDOW * float(self._kinds[kind]) * follows.scale
                for group, count in follows.counts.items():
                    out[group] = out.get(group, 0.0) + scale * count
        return out

    def _expect(self, visit: Visit, sign: int) -> None:
        soon = self._soon.all
        for group, uses in visit.coming.items():
            if group in self._rows:
                soon[self._rows[group]] += sign * uses

    def _leave(self, now: float) -> None:
        """Users who have not been heard of for a while."""
        while self._visits and now - next(iter(self._visits.values())).at > PAUSE:
            self._expect(self._visits.pop(next(iter(self._visits))), -1)

    def _forget(self, now: float) -> None:
        """The half of the groups that are worth least, where there are too many."""
        if len(self._rows) < self._most:
            return
        names = list(self._rows)
        best = np.sort(np.argsort(-self.worth(names, now), kind="stable")[: self._most // 2])
        self._rows = {names[row]: n for n, row in enumerate(best)}
        for column in (self._uses, self._last, self._soon):
            column.keep(best)


def _begun(user: str) -> Visit:
    return Visit(user, (("session", user),))


def _believed(weights: Floats, probabilities: Floats) -> Floats:
    """After each expert gave the probability of what happened: those that gave more are believed more."""
    proven = weights * probabilities
    return weights + _LEARN * (proven / proven.sum() - weights) if proven.sum() > 0 else weights
