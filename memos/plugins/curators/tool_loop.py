"""A conversation in which the local model manages its own memory by tools, as in MemGPT (arXiv 2310.08560).

    message -> step -> a tool's result, in a fence -> step -> ... -> answer

Core memory is two short blocks that the model always sees, recall is what was said, the archive takes what has no room
in the blocks. A tool that writes returns a curator's operations, which are one run: with the caller's rights, in the
audit log, and undone by one call. As the conversation fills the model's context it is warned, and it has so many steps:
what goes wrong ends it with what there is. Knows no stores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from memos.cube import MemCube, Namespace
from memos.errors import InputError, MemosError
from memos.plugins.chat_endpoint import Messages
from memos.plugins.curators.carrying_out import maker
from memos.plugins.curators.curator import Archive, CuratorOp, CuratorView, Keep, Revise
from memos.plugins.curators.rules import said
from memos.plugins.curators.tables import WriterCost
from memos.plugins.curators.writers import ChatModel
from memos.plugins.tool_step import Tool, ToolStep, as_call, closed, fenced, instructions, read_step, step_schema, text

TOOL_LOOP = "tool-loop"  # the system by whose name its memories and runs are known
CORE, ARCHIVAL = "core", "archival"  # Header.kind
BLOCKS = ("human", "persona")
BLOCK_CHARS = 600  # of each
MAX_LINE, MAX_QUERY = 240, 80  # characters of what is kept at once, and of a query
MAX_FOUND, MAX_FOUND_CHARS = 5, 240  # memories that a search gives, and characters of each
MAX_STEPS, MAX_WRONG = 8, 3  # of a conversation, and those that could not be read
PRESSURE = 0.7  # share of the context from which on the model is warned (section 2.2)

_BLOCK = {"enum": list(BLOCKS)}
_QUERY = closed({"query": text(MAX_QUERY)})
READING = (Tool("recall_search", "find what was said", _QUERY), Tool("archival_search", "find in the archive", _QUERY))
WRITING = (
    Tool("core_append", "add a line", closed({"block": _BLOCK, "text": text(MAX_LINE)})),
    Tool(
        "core_replace",
        'new "" removes the line',
        closed({"block": _BLOCK, "old": text(MAX_LINE), "new": text(MAX_LINE)}),
    ),
    Tool("archival_insert", "put into the archive", closed({"text": text(MAX_LINE)})),
)
_INTRODUCTION = (
    "You remember by tools. You always see your core memory: `human` is on those you talk with, `persona` on how you "
    f"should be, {BLOCK_CHARS} characters each. The archive takes more."
)
_WARNING = (
    "The conversation fills most of your context. Save what matters with core_append or archival_insert, and answer."
)
_AGAIN = "You have called this before, and its result stands above. Answer now."


class Ended(str, Enum):
    """How a conversation ended; but for the first, with what there was."""

    __str__ = str.__str__

    ANSWERED = "answered"
    STEPS = "it had no steps left"
    REPEATS = "it asked for the same again"
    NONSENSE = "its steps could not be read"
    CONTEXT = "the conversation does not fit its context"
    FAILED = "the model failed"


@dataclass(frozen=True)
class ToolUse:
    """A call of a tool. run: what takes it back (`undo_curation`); "" where it changed nothing."""

    tool: str
    arguments: Mapping[str, object]
    result: str
    run: str = ""


@dataclass(frozen=True)
class ToolTalk:
    """The reply to a message. text: the answer; where there is none, what the last search found."""

    text: str
    ended: Ended
    calls: tuple[ToolUse, ...] = ()


class MemoryTools:
    """The tools of one conversation."""

    def __init__(
        self,
        view: Callable[[], CuratorView],
        write: Callable[[str, Sequence[CuratorOp]], str],
        own: Namespace,
        said_in: Sequence[str],
        shown: Callable[[str], str],
    ) -> None:
        """write: carries out what a tool asks for, and returns the run. own: where core memory lies. said_in: the ids
        of the turn that is answered, which what is kept goes with; without it nothing is. shown: a text as a model may
        read it."""
        self._view, self._write, self._own = view, write, own
        self._said_in, self._shown = tuple(said_in), shown
        self.all = (*WRITING, *READING) if said_in else READING

    def introduction(self) -> str:
        blocks = "\n".join(f"{name}:\n{self._block(name)}" for name in BLOCKS)
        return f"{_INTRODUCTION}\n{instructions(self.all)}\n{fenced(self._shown(blocks))}"

    def use(self, step: ToolStep) -> ToolUse:
        """Raises what its operations raise, and InputError for arguments that are none of the tool's."""
        run, arguments = "", step.arguments or {}
        match step.tool, arguments:
            case "recall_search", {"query": str(query)}:
                result = self._recalled(query)
            case "archival_search", {"query": str(query)}:
                view = self._view()
                result = _listed(view.at(*(one.id for one in view.near(query, MAX_FOUND, ARCHIVAL))))
            case "core_append", {"block": str(block), "text": str(line)} if block in BLOCKS:
                self._require_room(block, len(line) + 1)
                run = self._kept(step.tool, line, CORE, (block,))
                result = self._block(block)
            case "core_replace", {"block": str(block), "old": str(old), "new": str(new)} if block in BLOCKS:
                run = self._replaced(block, old, new)
                result = self._block(block)
            case "archival_insert", {"text": str(line)}:
                run = self._kept(step.tool, line, ARCHIVAL)
                result = "It is in the archive."
            case _:
                raise InputError(f"{step.tool} does not take {as_call(step.tool, arguments):.120}; see its arguments")
        return ToolUse(step.tool, arguments, self._shown(result), run)

    def _recalled(self, query: str) -> str:
        """Of what was said, the nearest; not the message that is answered, nor what was read in it."""
        view = self._view()
        found = view.at(*(one.id for one in view.near(query, 4 * MAX_FOUND)))
        there = [c for c in found if not maker(c) and not {c.id, *(s.id for s in c.sources)} & set(self._said_in)]
        return _listed(there[:MAX_FOUND])

    def _lines(self, block: str) -> list[MemCube]:
        """A memory for each line, so that one that goes with its turn leaves the others."""
        return [c for c in self._view().memories(CORE) if c.namespace == self._own and block in c.header.tags]

    def _block(self, block: str) -> str:
        return "\n".join(cube.text for cube in self._lines(block))

    def _require_room(self, block: str, more: int) -> None:
        taken = len(self._block(block))
        if more > 0 and taken + more > BLOCK_CHARS:
            raise InputError(
                f"{block} has {taken} of {BLOCK_CHARS} characters, and {more} more do not fit; core_replace a part of "
                "it, or use archival_insert"
            )

    def _kept(self, tool: str, line: str, kind: str, tags: tuple[str, ...] = ()) -> str:
        return self._write(tool, [Keep(text=line, kind=kind, tags=tags, sources=self._said_in)])

    def _replaced(self, block: str, old: str, new: str) -> str:
        line = next((cube for cube in self._lines(block) if old.strip() and old in cube.text), None)
        if line is None:
            raise InputError(f"{block} does not say {old!r:.80}; give `old` as it stands there")
        self._require_room(block, len(new) - len(old))
        rewritten = line.text.replace(old, new, 1).strip()
        if not new.strip() or not rewritten:
            return self._write("core_replace", [Archive(id=line.id, why="removed from core memory")])
        return self._write("core_replace", [Revise(id=line.id, text=rewritten, sources=self._said_in)])


class ToolLoop:
    """One conversation of a model with these tools; `cost` is what it took."""

    def __init__(self, model: ChatModel, tools: MemoryTools, steps: int = MAX_STEPS) -> None:
        self._model, self._tools, self._steps = model, tools, steps
        self._used = list[ToolUse]()
        self.cost = WriterCost()

    def run(self, message: str, turns: Messages = ()) -> ToolTalk:
        """turns: what was said before. Raises what the model raises before it has called a tool."""
        introduction = {"role": "system", "content": self._tools.introduction()}
        messages = [introduction, *turns, {"role": "user", "content": message}]
        wrong, warned, end, called = 0, False, Ended.ANSWERED, set[str]()
        for left in reversed(range(self._steps)):
            end = end if left else Ended.STEPS
            if not warned and self._model.share_of_context(messages) >= PRESSURE:
                messages[-1] = {**messages[-1], "content": f"{messages[-1]['content']}\n{_WARNING}"}
                warned = True
            try:
                written = self._written(messages, may_call=end is Ended.ANSWERED)
            except MemosError:
                if not self._used:
                    raise
                return self._without_answer(Ended.FAILED)
            if not written:
                return self._without_answer(Ended.CONTEXT)
            try:
                step = read_step(written, self._tools.all)
                if step.answer:
                    return ToolTalk(step.answer, end, tuple(self._used))
                if not step.tool or not step.whole:
                    raise InputError(f"{written!r:.80} says nothing; call a tool, or answer")
            except InputError as error:
                wrong, result = wrong + 1, str(error)
                if wrong == MAX_WRONG:
                    return self._without_answer(Ended.NONSENSE)
            else:
                call = as_call(step.tool, step.arguments or {})
                if call in called:
                    end, result = Ended.REPEATS, _AGAIN
                else:
                    called.add(call)
                    result = self._result(step)
            messages += [
                {"role": "assistant", "content": written[: MAX_LINE * 3]},
                {"role": "user", "content": fenced(result)},
            ]
        return self._without_answer(Ended.STEPS)

    def _written(self, messages: Messages, may_call: bool) -> str:
        began = time.monotonic()
        written, tokens = self._model.reply(messages, step_schema(self._tools.all if may_call else ()))
        c = self.cost
        failed = c.failed + (not written)
        self.cost = WriterCost(c.calls + 1, c.tokens + tokens, c.seconds + time.monotonic() - began, failed)
        return written

    def _result(self, step: ToolStep) -> str:
        """What a tool gives; what it may not do, and what it lacks, is its result, too."""
        try:
            use = self._tools.use(step)
        except MemosError as error:
            use = ToolUse(step.tool, step.arguments or {}, f"error: {error}")
        self._used.append(use)
        return use.result

    def _without_answer(self, end: Ended) -> ToolTalk:
        found = [use.result for use in self._used if use.tool in {tool.name for tool in READING}]
        return ToolTalk(found[-1] if found else "", end, tuple(self._used))


def _listed(cubes: Sequence[MemCube]) -> str:
    lines = [f"{cube.order[0]:%Y-%m-%d} {said(cube):.{MAX_FOUND_CHARS}}" for cube in cubes]
    return "\n".join(lines) or "Nothing was found."
