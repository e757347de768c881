"""What the memory says of itself: what there is, how much, since when, and why an answer was given.

Knows what was asked and the kernel's calls; knows no language.
"""

from __future__ import annotations

from memos.cube import Namespace, State
from memos.kernel.calls import Calls
from memos.operation.life.mem_lifecycle import ANSWERING
from memos.ops import Asked

_SHOWN = 20  # memories that a list names


def told(kernel: Calls, asked: Asked, caller: Namespace, user: str | None) -> str:
    """The answer to one question about the memory. user: as the call names the caller. Raises Denied."""
    match asked.ask:
        case "list" | "count":
            cubes = kernel._texts(caller)
            if asked.what and asked.what.lower() not in ("me", "我"):
                about = kernel.reader.recall(asked.what).about or (asked.what,)
                like = {hit.cube.id for hit in kernel.search(asked.what, user=user)}
                named = [c for c in cubes if any(word.lower() in c.text.lower() for word in about)]
                cubes = named or [c for c in cubes if c.id in like]
            if asked.ask == "count":
                return f"{len(cubes)} memories."
            more = f"\n... and {len(cubes) - _SHOWN} more" if len(cubes) > _SHOWN else ""
            return "\n".join(f"{c.id} {c.text}" for c in cubes[:_SHOWN]) + more or "There is no such memory."
        case "history":
            found = kernel._described(kernel.reader.forget(asked.what), caller)[0]
            if len(found) != 1:
                return "Say more closely which memory: " + (
                    " | ".join(f"{c.id} {c.text}" for c in found) or "none fits"
                )
            return "\n".join(str(event) for event in kernel.history(found[0].id, user=user))
        case "jobs":
            return (
                "\n".join(f"{job.id} {job.kind} {job.state}" for job in kernel.jobs(user=user)) or "No job is going on."
            )
        case "status":
            cubes = kernel.cubes(user=user)
            forms = {
                str(form): sum(c.form == form and c.state in ANSWERING for c in cubes)
                for form in {c.form for c in cubes}
            }
            frozen = sum(c.state is State.FROZEN for c in cubes)
            return ", ".join([*(f"{n} {form}" for form, n in sorted(forms.items())), f"{frozen} frozen"])
        case _:
            near = kernel.search(asked.what, user=user) if asked.what else []
            if not near:
                return "Ask `memos explain` with the question: it names the memories that an answer was given from."
            return "From: " + " | ".join(
                f"{hit.cube.id} {hit.cube.text} ({hit.cube.header.origin})" for hit in near[:3]
            )
