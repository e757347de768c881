"""Implements LangGraph's `BaseStore` over memos: the items of a graph's store are memories.

    graph = builder.compile(store=MemosStore(Memory(vault="memos-data")))

An item is a memory of the session `langgraph/<namespace>`, so that a user's chat sees it, and a grant on that namespace
shares it. What it says is its text; its key and its value are kept with it as they are. Putting a key again archives
what it held; deleting it deletes all of it. What is in quarantine is given back by its key, and no search finds it. A
door; knows LangGraph and the kernel's calls.
"""

from __future__ import annotations

import asyncio
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote, unquote

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)
from langgraph.store.base.embed import get_text_at_path, tokenize_path

from memos.cube import MemCube, State, new_id
from memos.errors import InputError
from memos.interface.doors.api.memory import Memory
from memos.kernel.calls import Calls
from memos.ops import Add
from memos.plugins.langgraph.items import item_text

Path = tuple[str, ...]
_ROOT = "langgraph"  # before the namespace, in the name of the session
_ORIGIN = "tool:langgraph"  # by a program that the user runs
OVERSAMPLING = 10  # times as many as are asked for are searched, as filters leave some out


def _ordered(compare: Callable[[float, float], bool]) -> Callable[[Any, Any], bool]:
    """Of what is a number, alone."""
    return lambda there, given: isinstance(there, (int, float)) and compare(there, float(given))


_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": _ordered(operator.gt),
    "$gte": _ordered(operator.ge),
    "$lt": _ordered(operator.lt),
    "$lte": _ordered(operator.le),
}


class MemosStore(BaseStore):
    """Reads see what was there before the batch; of several puts of one key in a batch the last one holds. Each batch
    reads all items in the scope once. Items do not expire (`ttl`)."""

    def __init__(self, memory: Memory, *, user_id: str | None = None, agent_id: str | None = None) -> None:
        """user_id, agent_id: whose store it is, where the memory's key does not say it."""
        self._memory, self._who = memory, {"user_id": user_id, "agent_id": agent_id}

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Raises InputError for a value that is no JSON, and what the kernel's `keep`, `search` and `delete` raise."""
        asked = list(ops)
        for op in asked:
            validate_op_namespace(op)
        there = {(item.namespace, item.key): (item, cube) for item, cube in self._items()}
        results: list[Result] = []
        for op in asked:
            match op:
                case GetOp(namespace=namespace, key=key):
                    results.append(there[namespace, key][0] if (namespace, key) in there else None)
                case SearchOp():
                    results.append(self._search(op, [item for item, cube in there.values() if not _suspect(cube)]))
                case ListNamespacesOp():
                    results.append(_namespaces(op, {namespace for namespace, _ in there}))
                case PutOp():
                    results.append(None)
        for (namespace, key), put in {(op.namespace, op.key): op for op in asked if isinstance(op, PutOp)}.items():
            old = there.get((namespace, key))
            if put.value is None:
                self._delete(namespace, key)
            else:
                self._put(put, old[0] if old else None)
                if old and not _suspect(old[1]):  # after the new one: whoever is cut short has the one or the other
                    self._calls(namespace).archive(old[1].id, why="put again")
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await asyncio.to_thread(self.batch, list(ops))

    def _calls(self, namespace: Path | None = None) -> Calls:
        """The kernel's calls in a namespace, or in the whole scope."""
        return self._memory.within(**self._who, run_id=None if namespace is None else _session(namespace))

    def _items(self) -> Iterator[tuple[Item, MemCube]]:
        """The items in force, and the user's own in quarantine, as they were first put; of two of one key the later
        one."""
        calls = self._calls()
        user = calls.caller.user_id
        suspects = (cube for cube, _ in calls.quarantined() if cube.rights.owner == user and _suspect(cube))
        cubes = sorted((*calls.memories(), *suspects), key=lambda cube: (cube.header.created, cube.id))
        found = {(item.namespace, item.key): (item, cube) for cube in cubes if (item := _item(cube))}
        yield from sorted(found.values(), key=lambda pair: pair[0].created_at)

    def _put(self, op: PutOp, old: Item | None) -> None:
        assert op.value is not None
        created = None if old is None else old.created_at.isoformat()
        item = {"key": op.key, "value": dict(op.value), "created": created, "found": op.index is not False}
        try:
            metadata = json.dumps({_ROOT: item}, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"the value of {op.key!r:.80} in {op.namespace} is no JSON ({error}); put texts, numbers, lists "
                f"and mappings"
            ) from None
        # with a thread of its own it is no other item that says the same
        text = _text(op.value, op.index or None) or op.key
        add = Add(text=text, origin=_ORIGIN, thread=f"{_ROOT}:{new_id()}", segment=_session(op.namespace), kind="note")
        self._calls(op.namespace).keep([add.model_copy(update={"metadata": metadata})])

    def _delete(self, namespace: Path, key: str) -> None:
        calls = self._calls(namespace)
        for cube in calls.cubes():
            item = _item(cube)
            if item and (item.namespace, item.key) == (namespace, key):
                calls.delete(cube.id)

    def _search(self, op: SearchOp, items: Sequence[Item]) -> list[SearchItem]:
        """Items of a namespace and those beneath it. With a query the best first, and then others without a score."""
        fit = {
            (item.namespace, item.key): item
            for item in items
            if item.namespace[: len(op.namespace_prefix)] == op.namespace_prefix and _is(item.value, op.filter or {})
        }
        scores = dict[tuple[Path, str], float | None]()
        if op.query and fit:
            most = max(100, OVERSAMPLING * (op.offset + op.limit))
            for hit in self._calls().search(op.query, top_k=most):
                found = _item(hit.cube)
                if (
                    found
                    and (found.namespace, found.key) in fit
                    and json.loads(hit.cube.header.metadata)[_ROOT]["found"]
                ):
                    scores.setdefault((found.namespace, found.key), hit.score)
        ranked = [*scores, *(name for name in fit if name not in scores)][op.offset : op.offset + op.limit]
        return [
            SearchItem(name[0], name[1], fit[name].value, fit[name].created_at, fit[name].updated_at, scores.get(name))
            for name in ranked
        ]


def _suspect(cube: MemCube) -> bool:
    """True if an item is in quarantine: all others are in force."""
    return cube.state is State.ARCHIVED


def _session(namespace: Path) -> str:
    return "/".join((_ROOT, *(quote(label, safe=" @+,=") for label in namespace)))


def _item(cube: MemCube) -> Item | None:
    """What a graph has put, or None for another memory."""
    root, *labels = cube.namespace.session_id.split("/")
    if root != _ROOT or not cube.header.metadata:
        return None
    stored = json.loads(cube.header.metadata).get(_ROOT)
    if stored is None:
        return None
    created = datetime.fromisoformat(stored["created"]) if stored["created"] else cube.header.created
    return Item(
        value=stored["value"],
        key=stored["key"],
        namespace=tuple(map(unquote, labels)),
        created_at=created,
        updated_at=cube.header.created,
    )


def _text(value: Mapping[str, Any], fields: list[str] | None) -> str:
    """What an item says: the texts of these fields, or its own words."""
    if fields is None:
        return item_text(value)[0] or ""
    return "; ".join(text for field in fields for text in get_text_at_path(value, tokenize_path(field)))


def _is(there: Any, wanted: Any) -> bool:
    """True if a value is as a filter has it; mappings by what the filter names of them."""
    match wanted:
        case dict() as named if any(name.startswith("$") for name in named):
            if unknown := [name for name in named if name not in _COMPARED]:
                raise InputError(f"a filter cannot ask for {unknown[0]!r:.80}; it can for {', '.join(_COMPARED)}")
            return all(_COMPARED[name](there, given) for name, given in named.items())
        case dict() as named:
            return isinstance(there, Mapping) and all(_is(there.get(name), given) for name, given in named.items())
        case list() | tuple():
            return isinstance(there, list) and len(there) == len(wanted) and all(map(_is, there, wanted))
        case _:
            return there == wanted


def _namespaces(op: ListNamespacesOp, found: Iterable[Path]) -> list[Path]:
    fit = {path[: op.max_depth] for path in found if all(_matches(path, one) for one in op.match_conditions or ())}
    return sorted(fit)[op.offset : op.offset + op.limit]


def _matches(path: Path, wanted: MatchCondition) -> bool:
    """At its beginning or its end; "*" is any label."""
    if len(path) < len(wanted.path):
        return False
    part = path[: len(wanted.path)] if wanted.match_type == "prefix" else path[len(path) - len(wanted.path) :]
    return all(label in ("*", there) for there, label in zip(part, wanted.path, strict=True))
