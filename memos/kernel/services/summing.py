"""Sums up conversations: of which so much has been said, and not summed up yet; by the local model where it may."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from memos.cube import EPISODE, PASSAGE, SUMMARY, MemCube
from memos.errors import MemosError
from memos.extensions import Registry
from memos.kernel.access import Service
from memos.operation.life import summaries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memos.infrastructure.host.host import Host
    from memos.rights import Caller

log = logging.getLogger("memos")
SAID = frozenset([EPISODE, PASSAGE])  # kinds
# Turns as the model may read them, and the model -> what it says of them; "" where that is not to be believed.
RETELLERS: Registry[Callable[[Sequence[MemCube], Host], str]] = Registry("memos.retellers", "way of summing up")


class Summing(Service):
    """What `consolidate` and the reading of turns call when they are done."""

    def sum_up(self, caller: Caller) -> list[MemCube]:
        """Summaries of the caller's conversations, as far as these are not yet summed up: of every so many turns, and
        of what is left where nothing was added for as long as `reader.after_s`."""
        operator, now, made = self._operator(), self._vault.now(), list[MemCube]()
        said, known = (self._access.view(caller, (kinds, None, None)) for kinds in (SAID, frozenset([SUMMARY])))
        summed_up = {source.id for cube in self._vault.at(operator.versions(known)) for source in cube.sources}
        for ids in operator.conversations(said):
            done = max((n for n, id in enumerate(ids, start=1) if id in summed_up), default=0)
            if len(ids) - done < summaries.FEWEST:
                continue
            turns = self._vault.at(ids[done:])
            if not (turns and caller.covers(turns[0].namespace) and turns[0].rights.owner == caller.user_id):
                continue
            ended = now - max(c.header.created for c in turns) >= timedelta(seconds=self._config.reader.after_s)
            for part in summaries.chapters(turns, ended):
                with operator.steady():
                    vectors = operator.vectors(cube.id for cube in part)
                    there = [cube for cube in part if cube.id in vectors]  # no other has deleted it meanwhile
                    if len(there) < summaries.FEWEST:
                        continue
                    telling = operator.telling([cube.id for cube in there], said)
                places = summaries.quoted(np.stack([vectors[cube.id] for cube in there]), telling)
                made.append(self._lifecycle.publish(self._summary(there, places, now)))
        return self._freshness.changed(made) if made else made

    def _summary(self, turns: Sequence[MemCube], places: Sequence[int], now: datetime) -> MemCube:
        """In the words of the local model, if `reader.model` lets it read turns, it reads more than a closed world, and
        what it says may be kept; else by what is quoted."""
        quotes = summaries.summary(turns, places, now)
        if not self._config.reader.model:
            return quotes
        try:
            host, guard = self._host(), self._vault.guard
            shown = [guard.as_shown(cube) for cube in turns]
            words = "" if host.in_closed_world else RETELLERS.get("prompts")(shown, host)
        except MemosError as error:
            log.warning("a conversation is summed up by quotes, as the model failed: %s", error)
            return quotes
        told = summaries.summary(turns, places, now, words) if words else quotes
        return quotes if guard.suspicion(told, lambda _: 0) else told
