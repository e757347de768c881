"""The commands that are calls of the Memory API, one line of a table each: what they take follows from the call.

Of a call, its signature gives the types and defaults, its docstring the help, and its reply what --json prints.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, get_type_hints

import typer

from memos.errors import InputError
from memos.interface.doors.api.calls import MemoryCalls
from memos.interface.doors.api.values import Json
from memos.interface.doors.cli.shared import Output, User, counted, vault_command
from memos.plugins.commands.memories import event_line, memories
from memos.rights import Grant, name_of

if TYPE_CHECKING:
    from memos.kernel.mem_os import MemOS


@dataclass(frozen=True)
class ApiCommand:
    """A command by what is typed. call: its name in the Memory API, if that is another.

    shown: what a person sees: of each result its fields in this form, or lines of the whole reply. empty: printed where
    there are none.
    """

    typed: str
    shown: str | Callable[[Json], Iterable[str]]
    empty: str = ""
    call: str = ""

    @property
    def name(self) -> str:
        """In the Memory API."""
        return self.call or self.typed.replace("-", "_")

    def lines(self, reply: Json, given: dict[str, Json]) -> Iterable[str]:
        shown = self.shown
        return (
            (shown.format(**{**given, **one}) for one in reply["results"]) if isinstance(shown, str) else shown(reply)
        )


def _function(command: ApiCommand) -> Callable[..., Output]:
    method = getattr(MemoryCalls, command.name)
    api_names, parameters = dict[str, str](), list[inspect.Parameter]()
    hints = get_type_hints(method)
    for one in inspect.signature(method).parameters.values():
        if option := _TAKEN.get(f"{command.name}.{one.name}") or _TAKEN.get(one.name):
            name = one.name.removeprefix("memory_").removesuffix("_id")
            api_names[name] = one.name
            default = [] if hints[one.name] == list[str] else one.default  # how many there must be is the call's to say
            if f"{command.name}.{one.name}" in _REQUIRED:
                default = inspect.Parameter.empty
            kind = Annotated[hints[one.name], option]  # type: ignore[valid-type, name-defined]
            parameters.append(inspect.Parameter(name, one.KEYWORD_ONLY, default=default, annotation=kind))

    def run(kernel: MemOS, user: str | None, **named: Json) -> Output:
        given = {api_names[name]: value for name, value in named.items()}
        acts = kernel.config.user_id if user is None else user
        reply = getattr(MemoryCalls(kernel), command.name)(**given, user_id=acts)
        return Output(reply, command.lines(reply, given), command.empty.format(vault=kernel.vault.path))

    first = inspect.Parameter("kernel", inspect.Parameter.POSITIONAL_ONLY)
    as_user = inspect.Parameter("user", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=User)
    run.__signature__ = inspect.Signature([first, *parameters, as_user])  # type: ignore[attr-defined]
    first_sentence = " ".join((method.__doc__ or "").split()).partition(". ")[0].rstrip(".")
    run.__name__, run.__doc__ = command.name, f"{first_sentence}."
    return run


# -- what commands take, by the argument's name in the API ------------------------------------------------------------


def _json_object(text: str) -> dict[str, Json]:
    """Raises InputError."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InputError(f"--metadata {text!r:.80} is no JSON object; give one, as '{{\"page\": 3}}'")
    return found


_TAKEN: dict[str, Json] = {
    "answer": typer.Option(help="explain this answer; without: the one that is given"),
    "budget": typer.Option(help="in place of --top-k: as many memories as fit into so many tokens"),
    "diffs": typer.Option("--diff", help="how each version differs from the one before"),
    "explain": typer.Option("--explain", help="what each score is made of"),
    "feedback.answer": typer.Option(help="its right answer: what each memory does for it is measured"),
    "feedback.question": typer.Option(help="instead of a memory: a question"),
    "grant.until": typer.Option(help="when it ends by itself, in UTC"),
    "group": typer.Argument(help="NAME of one of the user's, or OWNER/NAME"),
    "job_id": typer.Argument(help="as `memos jobs` lists it"),
    "kinds": typer.Option("--kind", help="fact, event, ...; may be given again"),
    "member": typer.Argument(help="USER, agent:USER/AGENT, group:NAME or group:OWNER/NAME"),
    "memory_id": typer.Argument(help="of a memory, as `memos ls` lists it"),
    "memory_ids": typer.Argument(help="of two memories or more"),
    "metadata": typer.Option(
        parser=_json_object,
        metavar="JSON",
        help="an object, set beside what is there; a name that is null is taken out",
    ),
    "name": typer.Argument(help="of a snapshot"),
    "on": typer.Argument(help="id of a memory, or namespace:USER, namespace:USER/AGENT"),
    "parts": typer.Option("--part", help="what a part says; may be given again"),
    "pipeline": typer.Argument(help="of what a message asked for, as `memos chat` tells it"),
    "policy": typer.Option(help="what finds; default: the user's policy"),
    "purpose": typer.Option(help="holds only for callers who state it"),
    "query": typer.Argument(help="what to look for"),
    "question": typer.Argument(help="what is asked"),
    "relation": typer.Argument(help="owner, editor, annotator or reader"),
    "revoke.relation": typer.Argument(help="owner, editor, annotator or reader; without: all"),
    "since": typer.Option(help="said at this time or later (UTC)"),
    "tags": typer.Argument(help="always, apart:NAME, or words of your own; none: no tags"),
    "text": typer.Option(help="what the one should say; else what each says"),
    "to": typer.Argument(help="USER, agent:USER/AGENT, group:NAME or group:OWNER/NAME"),
    "top_k": typer.Option(help="most memories; default: scheduler.top_k"),
    "trust": typer.Argument(help="user, tool, document, model, imported or untrusted"),
    "until": typer.Option(help="said at this time or before (UTC)"),
    "update.text": typer.Argument(help="what it should say; without: as now"),
    "useful": typer.Option(min=-1, max=1, help="how much it has helped, from -1 to 1"),
    "version": typer.Argument(help="as `memos history` lists it"),
    "why": typer.Option(help="a reason, for its history and those who meet it"),
}

_REQUIRED = {"grant.relation"}  # though the API has a default: nobody gives a right by leaving a word out

# -- what a person sees -----------------------------------------------------------------------------------------------


def _history(reply: Json) -> Iterator[str]:
    for event in reply["results"]:
        yield event_line(event)
        yield from (f"    {line}" for line in event.get("diff", ()))


def _tagged(reply: Json) -> Iterator[str]:
    return (f"{one['id']} {one['memory']}  [{', '.join(one['tags']) or 'no tags'}]" for one in reply["results"])


def _consolidated(reply: Json) -> Iterator[str]:
    return (f"{one['id']} {one['memory']}  [of {counted(len(one['sources']))}]" for one in reply["results"])


def _hits(reply: Json) -> Iterator[str]:
    for hit in reply["results"]:
        yield f"{hit['score']:6.3f}  {hit['id']}  {hit['memory']}"
        if "why" in hit:
            yield "        " + ", ".join(f"{name} {value:g}" for name, value in hit["why"].items() if value)


def _reasons(reply: Json) -> Iterator[str]:
    yield f"{reply['answer']}  [{reply['likelihood']:.2f} nats; without any memory {reply['closed_book']:.2f}]"
    for reason in reply["reasons"]:
        yield f"{reason['change']:+7.2f}  {reason['id']}  {reason['memory']}  [{reason['form']}]"


def _credited(reply: Json) -> Iterator[str]:
    for one in reply["results"]:
        yield f"{one['id']}  " + (f"utility {one['utility']:+.3f}" if "utility" in one else f"{one['useful']:+.3f}")


def _lineage(trace: Json) -> Iterator[str]:
    for role, cubes in (("", [trace["memory"]]), ("made of ", trace["sources"]), ("made of it: ", trace["derived"])):
        for cube in cubes:
            yield f"{role}{cube['id']} {cube['form']} {cube['state']}  {cube['memory']}"
    for origin in trace["origins"]:
        yield "from " + ", ".join(f"{name} {value}" for name, value in origin.items() if value)


def _overview(reply: Json) -> Iterator[str]:
    for name, count in sorted(reply["cubes"].items()):
        yield f"{count} {name}"
    for topic in reply["topics"]:
        yield f"heat {topic['heat']:6.2f}  {topic['name']}: {counted(len(topic['ids']))}"
    for form, budget in reply["budget"].items():
        yield f"{form}: {reply['used'].get(form, 0):,.0f} of {budget:,.0f}"
    yield f"recalled {reply['recalls']} times; policy {reply['policy']}, model {reply['model']}"


def _snapshots(reply: Json) -> Iterator[str]:
    for one in reply["results"]:
        missing = f", {one['missing']} of them deleted since" if one["missing"] else ""
        yield f"{one['at']:.19}  {one['name']}: {counted(one['cubes'])}{missing}"


def _restored(reply: Json) -> Iterator[str]:
    [restored] = reply["results"]
    outcomes = {
        "changed": "as they were",
        "archived": "archived, as they were not there or not in use then",
        "revived": "KV, adapters and turns in use again",
        "stale": "KV, adapters and turns out of use, as a source is not what it was",
        "kept": "left as they are, being frozen or expired",
    }
    yield from (f"{len(restored[name])} {outcome}" for name, outcome in outcomes.items() if restored[name])
    if restored["missing"]:
        yield f"{restored['missing']} deleted since; a deletion is final"
    yield f"to undo this: memos restore {restored['undo']!r}"


def _jobs(reply: Json) -> Iterator[str]:
    for job in reply["results"]:
        sources = " ".join(job["payload"].get("sources", []))
        yield f"{job['id']} {job['state']} {job['kind']} {sources} {job['note']}".rstrip()


def _grants(reply: Json) -> Iterator[str]:
    for grant in map(Grant.model_validate, reply["results"]):
        on = grant.on if isinstance(grant.on, str) else f"namespace:{grant.on}"
        purpose = f" for {grant.purpose}" if grant.purpose else ""
        until = f" until {grant.until:%Y-%m-%d %H:%M} UTC" if grant.until else ""
        yield f"{name_of(grant.to)} is {grant.relation} of {on}{purpose}{until}"


def _groups(reply: Json) -> Iterator[str]:
    for one in reply["results"]:
        yield f"{one['group']}: {', '.join(map(_member, one['members'])) or 'of which the user is a member'}"


def _member(name: str) -> str:
    """As `memos grant` and `memos group join` take it."""
    return name if name.startswith("group:") else f"{('user', 'agent', 'namespace')[name.count('/')]}:{name}"


def _message(reply: Json) -> list[str]:
    return [reply["message"]]


# -- the table --------------------------------------------------------------------------------------------------------

_GROUPS = {
    "group": "Groups of users, agents and other groups, to grant rights to.",
    "quarantine": "Memories that answer nothing until somebody has looked at them.",
}
_TEXT, _STATE, _VERSION = "{id} {memory}", "{id} is {state}", "{id} version {version}: {memory}"
_NOT_FOUND = "nothing in {vault} is found by that; `memos ls --vault {vault}` lists what there is"
COMMANDS = (
    # what a memory says, and where it comes from
    ApiCommand("update", _VERSION),
    ApiCommand("history", _history),
    ApiCommand("rollback", _VERSION),
    ApiCommand("tag", _tagged),
    ApiCommand("fuse", _TEXT),
    ApiCommand("split", _TEXT),
    ApiCommand("consolidate", _consolidated, "nothing to consolidate"),
    ApiCommand("reinstate", _TEXT),
    ApiCommand("lineage", _lineage, call="provenance"),
    # finding and answering
    ApiCommand("search", _hits, _NOT_FOUND),
    ApiCommand("explain", _reasons),
    ApiCommand("feedback", _credited, "no memory was seen, so none is credited"),
    ApiCommand("undo", "done: {undone}"),
    ApiCommand("overview", _overview),
    # life and form
    ApiCommand("freeze", _STATE),
    ApiCommand("thaw", _STATE),
    ApiCommand("archive", _STATE),
    ApiCommand("unarchive", _STATE),
    ApiCommand("snapshot", lambda reply: (f"{one['name']}: {counted(one['cubes'])}" for one in reply["results"])),
    ApiCommand("snapshots", _snapshots, "there is no snapshot; take one with `memos snapshot NAME`"),
    ApiCommand("restore", _restored),
    ApiCommand("delete-snapshot", "{name} is deleted"),
    ApiCommand("demote", _TEXT),
    ApiCommand("jobs", _jobs, "no job is running or waits, and none was interrupted"),
    ApiCommand("cancel", "{id} is cancelled"),
    # rights, and what is believed
    ApiCommand("grant", _grants),
    ApiCommand("revoke", _message),
    ApiCommand("grants", _grants, "nothing is granted"),
    ApiCommand("group join", _message, call="join"),
    ApiCommand("group leave", _message, call="leave"),
    ApiCommand("group list", _groups, "there is no group; make one with `memos group join NAME MEMBER`", call="groups"),
    ApiCommand(
        *("quarantine list", "{id}  {trust}, from {origin}: {note}\n    {memory}", "nothing is in quarantine"),
        call="quarantined",
    ),
    ApiCommand("quarantine release", _STATE, call="release"),
    ApiCommand("trust", "{id} is of trust {trust}"),
    ApiCommand("hold", "{id} is {state}, held: {why}"),
    ApiCommand("end-hold", _STATE),
    ApiCommand("holds", "{id}  held by {note}\n    {memory}", "nothing is held"),
)


def _add(app: typer.Typer) -> typer.Typer:
    groups = {name: typer.Typer(help=about, no_args_is_help=True) for name, about in _GROUPS.items()}
    for command in COMMANDS:
        *group, word = command.typed.split()
        vault_command(groups[group[0]] if group else app, word)(_function(command))
    for name, group_of in groups.items():
        app.add_typer(group_of, name=name)
    return app


api = _add(typer.Typer())
api.add_typer(memories)
