"""The table of states: which may follow which, and what each move is for."""

from __future__ import annotations

from memos.cube import MemCube, State
from memos.errors import BadTransition

# from -> to -> what the move is for; `MemLifecycle.move` has the guards
ALLOWED: dict[State, dict[State, str]] = {
    State.GENERATED: {
        State.ACTIVATED: "it is recalled for the first time, or published",
        State.MERGED: "it lives on in a memory made of it",
        State.ARCHIVED: "it is superseded, or given up unused",
        State.FROZEN: "somebody locks it",
    },
    State.ACTIVATED: {
        State.MERGED: "it lives on in a memory made of it",
        State.ARCHIVED: "it is superseded, given up, or its source has changed",
        State.FROZEN: "somebody locks it",
    },
    State.MERGED: {
        State.ACTIVATED: "what it lived on in is gone",
        State.ARCHIVED: "it is superseded, or given up",
        State.FROZEN: "somebody locks it",
    },
    # the only way to EXPIRED is through the archive, from where a memory can still be brought back
    State.ARCHIVED: {
        State.ACTIVATED: "it is brought back",
        State.EXPIRED: "its time has come",
        State.FROZEN: "somebody brings it back and locks it",
    },
    State.EXPIRED: {},  # the end; only deletion is left
    State.FROZEN: {
        State.ACTIVATED: "a thaw",
        State.ARCHIVED: "its source has changed, or its time has come",
    },
}


def way_to(cube: MemCube, to: State) -> list[State]:
    """The fewest moves that lead there. Raises BadTransition."""
    ways: dict[State, list[State]] = {cube.state: []}
    for state in (queue := [cube.state]):  # grows while it is read
        for step in ALLOWED[state]:
            if step not in ways:
                ways[step] = [*ways[state], step]
                queue.append(step)
    if to not in ways:
        raise BadTransition(f"cube {cube.id} is {cube.state}, from where no moves lead to {to}; add it as a new memory")
    return ways[to]
