"""Who may do what: callers, and relations between somebody and a memory or a whole namespace (Zanzibar's tuples).

Knows the relations and what each allows; knows no stores, and not what is granted to whom.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from pydantic import AwareDatetime

from memos.cube import Frozen, Namespace
from memos.errors import InputError

Action = Literal["read", "annotate", "write", "delete", "manage"]
Relation = Literal["owner", "editor", "annotator", "reader"]
# what each relation to a cube allows; `ops.action` says which of these an operation needs
ACTIONS: Mapping[Relation, frozenset[Action]] = {
    "owner": frozenset({"read", "annotate", "write", "delete", "manage"}),
    "editor": frozenset({"read", "annotate", "write"}),
    "annotator": frozenset({"read", "annotate"}),
    "reader": frozenset({"read"}),
}
_LONGEST = 200  # characters of a group's name or a purpose


class Group(Frozen):
    """A group of users, agents and other groups, which its owner keeps."""

    owner: str
    name: str

    def __str__(self) -> str:
        return f"group:{self.owner}/{self.name}"


Subject = Namespace | Group  # a user is a namespace without agent and session


class Grant(Frozen):
    """One relation. on: the id of a cube, or a namespace with all that lies in it.

    purpose: what a caller must say that it is for; "" holds for every purpose.
    """

    on: str | Namespace
    to: Subject
    relation: Relation
    purpose: str = ""
    until: AwareDatetime | None = None


@dataclass(frozen=True)
class Standing:
    """What has been granted to one caller, for one purpose: the actions on each namespace (user, agent, session), and
    on single cubes."""

    namespaces: Mapping[tuple[str, str, str], frozenset[Action]] = field(default_factory=dict)
    cubes: Mapping[str, frozenset[Action]] = field(default_factory=dict)

    @cached_property
    def key(self) -> Hashable:
        """The same for all in which the same is granted."""
        return frozenset(self.namespaces.items()), frozenset(self.cubes.items())

    def over(self, action: Action, namespace: Namespace) -> bool:
        """True if it is granted on the namespace, or on one that covers it."""
        user, agents, sessions = namespace.user_id, {namespace.agent_id, ""}, {namespace.session_id, ""}
        return any(action in self.namespaces.get((user, a, s), ()) for a in agents for s in sessions)

    def allows(self, action: Action, id: str, namespace: Namespace) -> bool:
        return action in self.cubes.get(id, ()) or self.over(action, namespace)


@dataclass(frozen=True)
class Caller:
    """Who acts, and what for: made where a call comes in, and passed on unchanged.

    purpose: what grants may ask for. keeper: holds the folder of the vault, and calls without a key.
    """

    namespace: Namespace
    purpose: str = ""
    keeper: bool = False

    @property
    def user_id(self) -> str:
        return self.namespace.user_id

    @property
    def session_id(self) -> str:
        return self.namespace.session_id

    def covers(self, part: Namespace) -> bool:
        """True if a namespace lies within the caller's own."""
        return self.namespace.covers(part)

    def __str__(self) -> str:
        return str(self.namespace)


def holds_for(subject: Namespace, caller: Namespace) -> bool:
    """True if what is granted to `subject` is granted to a caller: a user's rights are those of its agents too, never
    the other way round."""
    return subject.covers(caller)


def subject_of(text: str | Namespace | Group, owner: str) -> Subject:
    """`bob` or `user:bob`, `agent:bob/planner`, `namespace:bob/planner/monday`, `group:team` of the owner's groups or
    `group:ann/team` of another's. Raises InputError."""
    if not isinstance(text, str):
        return text
    kind, colon, rest = text.partition(":") if is_utf8(text) else ("", ":", "")
    if not colon:
        kind, rest = "user", text
    parts = [part.replace("%2F", "/").replace("%25", "%") for part in rest.split("/")]  # as `Namespace` writes them
    match kind, parts:
        case "user", _ if rest:
            return Namespace(user_id=rest)
        case "agent", [user, agent] if user and agent:
            return Namespace(user_id=user, agent_id=agent)
        case "namespace", [user, *more] if user and len(more) <= 2:
            return Namespace(user_id=user, agent_id=more[0] if more else "", session_id=more[1] if more[1:] else "")
        case "group", [name] if name:
            return Group(owner=owner, name=word(name, "group"))
        case "group", [of, name] if of and name:
            return Group(owner=of, name=word(name, "group"))
    raise InputError(
        f"{text!r} names nobody; give user:NAME, agent:USER/AGENT, namespace:USER/AGENT/SESSION, group:NAME or "
        f"group:OWNER/NAME"
    )


def object_of(text: str | Namespace) -> str | Namespace:
    """`namespace:bob/planner` or the id of a cube. Raises InputError."""
    if isinstance(text, str) and text.startswith("namespace:"):
        found = subject_of(text, "")
        assert isinstance(found, Namespace)
        return found
    return text


def name_of(subject: Subject) -> str:
    """As `subject_of` reads it."""
    if isinstance(subject, Group):
        return str(subject)
    if not (subject.agent_id or subject.session_id):
        return f"user:{subject.user_id}"
    return f"{'namespace' if subject.session_id else 'agent'}:{subject}"


def word(text: str, what: str) -> str:
    """A name of a group, or a purpose. Raises InputError."""
    if not (is_utf8(text) and text.strip() and len(text) <= _LONGEST and not set(text) & set("/\n")):
        raise InputError(
            f"{text!r:.80} cannot be a {what}; give 1 to {_LONGEST} characters in UTF-8 without / and line breaks"
        )
    return text


def relation_of(text: str) -> Relation:
    """Raises InputError."""
    for relation in ACTIONS:
        if text == relation:
            return relation
    raise InputError(f"{text!r} is no relation; give one of {', '.join(ACTIONS)}")


def is_utf8(text: str) -> bool:
    """False for what cannot be written down, as half of a pair of surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
