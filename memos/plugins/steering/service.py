"""The calls that make and list directions. A direction is derived of its instruction, a memory that every request sees.

The direction stands for the instruction as long as it is in force. It goes with it: where the instruction is corrected,
deleted or archived, or the direction is given up (`demote`), answers are the model's own again, and the instruction, if
it is there, is shown as text. Knows no tensors.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from memos.cube import BY_HAND, STEERING, Blob, Form, Header, MemCube, Rights, State, new_id
from memos.errors import GateRejected, NoRoom
from memos.kernel.calls import Services
from memos.operation.choosing.mem_scheduler import ALWAYS
from memos.plugins.steering import ops
from memos.plugins.steering.values import FOLLOWED, KEPT, TOGETHER, Behaviour, read

if TYPE_CHECKING:
    from memos.plugins.steering.make import Tell
    from memos.rights import Caller


class Steering:
    """steer, steerings."""

    def __init__(self, services: Services) -> None:
        self._parts = services.parts
        self._vault, self._governance = self._parts.vault, self._parts.governance

    def steer(
        self, caller: Caller, behaviour: Behaviour | Path, *, seed: int = 0, tell: Tell = lambda *_: None
    ) -> MemCube:
        """Make a direction, which every answer to the user is steered by from then on; published only once it has
        proven itself, alone and together with those in force.

        behaviour: what it is to do, or the YAML that says so. tell: (phase, step, of). Raises GateRejected, InputError,
        NoRoom, Unsupported.
        """
        from memos.plugins.steering.make import make  # loads torch

        if isinstance(behaviour, Path):
            behaviour = read(behaviour)
        self._governance.permit(caller, ops.Steer(instruction=behaviour.instruction))
        in_force, most = self.steerings(caller), self._parts.config.scheduler.steerings
        others = [cube for cube in in_force if self._instruction(cube) != behaviour.instruction]
        if len(others) >= most:
            raise NoRoom(
                f"{caller.user_id} has {len(others)} directions and scheduler.steerings allows {most}; give one up, as "
                f"with `memos demote ID`, or raise it"
            )
        began, host = time.perf_counter(), self._parts.host()
        with self._vault.blobs.staging() as staged:
            made = make(host, behaviour, staged, seed, tell)
            scores = made.scores | self._together(others, behaviour, staged)
            name, size = self._vault.blobs.store(staged)
        blob = Blob(
            sha256=name, bytes=size, fingerprint=host.digest, build_s=time.perf_counter() - began, scores=scores
        )
        return self._published(caller, behaviour.instruction, blob)

    def steerings(self, caller: Caller) -> list[MemCube]:
        """The directions that the user's answers are steered by, oldest first."""
        self._governance.permit(caller, ops.ListSteerings())
        cubes = self._vault.cubes(form=Form.PARAMETRIC, states=(State.ACTIVATED,))
        mine = [c for c in cubes if c.header.kind == STEERING and c.rights.owner == caller.user_id]
        return [c for c in mine if self._parts.is_ours(c)]

    def _instruction(self, cube: MemCube) -> str:
        return self._vault.get(cube.sources[0].id).text

    def _together(self, others: list[MemCube], behaviour: Behaviour, folder: Path) -> dict[str, float]:
        """The lowest share that each of several is followed by while all are in force. Raises GateRejected."""
        from memos.plugins.steering.make import behaviour_of, judge, short_of

        if not others:
            return {}
        host = self._parts.host()
        folders = [self._vault.blobs.path(cube.blob) for cube in others if cube.blob]
        every = [behaviour, *(behaviour_of(host, path) for path in folders)]
        parts = [judge(host, (*folders, folder), *one.split()[1:]) for one in every]
        scores = {TOGETHER: min(part[FOLLOWED] for part in parts), KEPT: min(part[KEPT] for part in parts)}
        if short := short_of(scores):
            raise GateRejected(
                f"a direction for {behaviour.instruction!r:.80} does not go together with the {len(others)} in force: "
                f"{', '.join(short)}; nothing was published. Give one of them up with `memos demote`",
                scores,
            )
        return {TOGETHER: scores[TOGETHER]}

    def _published(self, caller: Caller, instruction: str, blob: Blob) -> MemCube:
        """The instruction as a memory that every request sees, and the direction of it, in place of one before."""
        told = self._parts.reader.statement(instruction).model_copy(update={"tags": (ALWAYS,)})
        try:
            with self._vault.transaction():
                [source] = self._parts.knowledge.remember([told], caller.namespace)
                for cube in self._vault.derived(source.id):
                    if cube.header.kind == STEERING:
                        self._parts.lifecycle.delete(cube.id)
                cube = MemCube(
                    id=new_id(),
                    form=Form.PARAMETRIC,
                    namespace=source.namespace,
                    rights=Rights(owner=source.rights.owner),
                    header=Header(
                        created=self._vault.now(), origin=BY_HAND, segment=source.header.segment, kind=STEERING
                    ),
                    payload=blob,
                    sources=(source.pin,),
                )
                cube = self._parts.lifecycle.publish(cube)
        except BaseException:  # an interrupt too
            self._vault.blobs.discard(blob.sha256)
            raise
        self._parts.freshness.release()
        self._parts.operator().refresh_soon()
        return cube


def make(services: Services) -> Steering:
    return Steering(services)
