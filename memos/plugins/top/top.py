"""`memos top`: shows a vault live in a terminal, and acts, over the Memory API alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, cast

from rich.markup import escape
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from memos.errors import MemosError
from memos.interface.doors.api.memory import Memory
from memos.interface.doors.experiment.report import size

Row = dict[str, Any]
FORMS = {"plaintext": ("text", "#78a6e6"), "activation": ("KV", "#e8ac58"), "parametric": ("adapter", "#c294e8")}
COLUMNS = ("heat", "form", "tier", "state", "uses", "size", "topic", "memory")
# what the rows are ordered by, in turn
ORDERS: dict[str, Callable[[Row], Any]] = {
    "heat": lambda row: (-row["heat"], -row["recalls"]),
    "uses": lambda row: -row["recalls"],
    "size": lambda row: -row["bytes"],
    "topic": lambda row: (row["topic"], -row["heat"]),
    "form": lambda row: (-list(FORMS).index(row["form"]), -row["heat"]),
}
_MOST = 1000  # memories of each form that are listed
_BAR = 24  # columns of a budget's bar


class Memories(DataTable[Text]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "inspect")]


class Top(App[None]):
    """Refreshed in a thread, so that keys are heard while the vault or the model works."""

    TITLE = "memos top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary { height: auto; padding: 1 1 0 1; }
    #budgets, #counts { width: 1fr; height: auto; }
    #jobs { height: auto; max-height: 6; padding: 0 1; }
    #said { height: 1; padding: 0 1; color: $text-muted; }
    #filter { display: none; height: 3; }
    #filter.open { display: block; }
    Memories { height: 1fr; scrollbar-size: 1 1; }
    Inspect { align: center middle; }
    Inspect VerticalScroll { width: 90%; height: 80%; border: round $accent; padding: 1 2; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "promote('activation')", "make KV"),
        Binding("p", "promote('parametric')", "make an adapter"),
        Binding("d", "demote", "give up"),
        Binding("f", "freeze", "freeze/thaw"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("s", "sort", "sort"),
        Binding("r", "look", "refresh"),
        Binding("q", "quit", "quit"),
        Binding("escape", "no_filter", show=False),
    ]

    def __init__(self, memory: Memory, every: float = 2.0, user: str | None = None) -> None:
        """every: seconds between two looks. user: whose memories; None: those of the config's user."""
        super().__init__()
        self._memory, self._every, self._who = memory, every, {"user_id": user}
        self._rows: list[Row] = []
        self._order, self._wanted = "heat", ""

    def compose(self) -> ComposeResult:
        with Horizontal(id="summary"):
            yield Static(id="budgets")
            yield Static(id="counts")
        yield Input(placeholder="show what holds these words; escape shows all", id="filter")
        yield Memories(cursor_type="row", zebra_stripes=True)
        yield Static(id="jobs")
        yield Static(id="said")
        yield Footer()

    def on_mount(self) -> None:
        self._table.add_columns(*COLUMNS)
        self._table.focus()
        self.action_look()
        self.set_interval(self._every, self.action_look)

    # -- what is shown -------------------------------------------------------------------------------------

    @work(thread=True, exclusive=True, group="look")
    def action_look(self) -> None:
        """Ask for everything again."""
        api, who = self._memory, cast(Any, self._who)
        try:
            overview = api.overview(hottest=_MOST, **who)  # one decision, and so one row of the audit log
            jobs = api.jobs(**who)["results"]
        except MemosError as error:  # the next look may meet another state of things
            self.call_from_thread(self._say, str(error))
            return
        self.call_from_thread(self._show, overview, listed(overview), jobs)

    def _show(self, overview: Any, rows: list[Row], jobs: list[Row]) -> None:
        self._rows = rows
        self.query_one("#budgets", Static).update(budgets(overview))
        self.query_one("#counts", Static).update(counts(overview))
        self.query_one("#jobs", Static).update(Text("\n".join(map(job_line, jobs))))
        self._fill()

    def _fill(self) -> None:
        """The rows that fit the filter, in their order; the cursor stays on its memory."""
        table, chosen = self._table, self._chosen
        words = self._wanted.casefold()
        rows = [row for row in self._rows if words in f"{row['words']} {row['topic']} {row['state']}".casefold()]
        rows.sort(key=ORDERS[self._order])
        hottest = max((row["heat"] for row in rows), default=0.0)
        table.clear()
        for row in rows:
            table.add_row(*cells(row, hottest), key=row["id"])
        if chosen in [row["id"] for row in rows]:
            table.move_cursor(row=table.get_row_index(chosen))

    def _say(self, words: str) -> None:
        self.query_one("#said", Static).update(escape(words))

    @property
    def _table(self) -> Memories:
        return self.query_one(Memories)

    @property
    def _chosen(self) -> str:
        """The id of the memory under the cursor; "" where there is none."""
        table = self._table
        if not table.is_valid_row_index(table.cursor_row):
            return ""
        return str(table.ordered_rows[table.cursor_row].key.value)

    def _row(self) -> Row | None:
        return next((row for row in self._rows if row["id"] == self._chosen), None)

    # -- what can be done ----------------------------------------------------------------------------------

    @work(thread=True, group="act")
    def _act(self, words: str, call: Callable[..., Any], *given: Any) -> None:
        """Do a call, say how it went, and look again."""
        self.call_from_thread(self._say, f"{words} ...")
        try:
            call(*given, **self._who)
            told = f"{words}: done"
        except MemosError as error:
            told = f"{words}: {error}"
        self.call_from_thread(self._say, told)
        self.call_from_thread(self.action_look)

    def action_promote(self, to: str) -> None:
        if row := self._row():
            self._act(f"{FORMS[to][0]} of {row['words']}", self._memory.promote, [row["id"]], to)

    def action_demote(self) -> None:
        if row := self._row():
            self._act(f"give up {row['words']}", self._memory.demote, row["id"])

    def action_freeze(self) -> None:
        if row := self._row():
            name = "thaw" if row["state"] == "frozen" else "freeze"
            self._act(f"{name} {row['words']}", getattr(self._memory, name), row["id"])

    @work(thread=True, group="act")
    def on_data_table_row_selected(self) -> None:
        """Show its life."""
        if row := self._row():
            api, who = self._memory, cast(Any, self._who)
            try:
                traced, events = api.provenance(row["id"], **who), api.history(row["id"], diffs=True, **who)["results"]
            except MemosError as error:
                self.call_from_thread(self._say, str(error))
                return
            self.call_from_thread(self.push_screen, Inspect(life(traced, events)))

    def action_sort(self) -> None:
        names = list(ORDERS)
        self._order = names[(names.index(self._order) + 1) % len(names)]
        self._say(f"sorted by {self._order}")
        self._fill()

    def action_filter(self) -> None:
        field = self.query_one(Input)
        field.add_class("open")
        field.focus()

    def action_no_filter(self) -> None:
        field = self.query_one(Input)
        field.value = ""
        field.remove_class("open")
        self._table.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._wanted = event.value
        self._fill()

    def on_input_submitted(self) -> None:
        self._table.focus()


class Inspect(ModalScreen[None]):
    """A memory's life."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "dismiss", "close")]

    def __init__(self, told: Text) -> None:
        super().__init__()
        self._told = told

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._told)


# -- values as text --------------------------------------------------------------------------------------------


def listed(overview: Any) -> list[Row]:
    """The hottest memories, each with the tier of its payload where it is known, and words for what has no text."""
    tiers = overview["tiers"] if overview["answering"] else {}

    def one(row: Row) -> Row:
        words = row["memory"] or f"{FORMS[row['form']][0]} of {len(row['sources'])} memories"
        return row | {"tier": tiers.get(row["id"], ""), "words": words}

    return list(map(one, overview["hottest"]))


def cells(row: Row, hottest: float) -> tuple[Text, ...]:
    name, colour = FORMS[row["form"]]
    warm = round(8 * row["heat"] / hottest) if hottest else 0
    return (
        Text(f"{row['heat']:5.1f} ").append("▮" * warm, colour).append("▯" * (8 - warm), "dim"),
        Text(name, colour),
        Text(row["tier"]),
        Text(row["state"], "" if row["state"] in ("generated", "activated") else "italic"),
        Text(str(row["recalls"]), justify="right"),
        Text(size(row["bytes"]) if row["bytes"] else "", justify="right"),
        Text(row["topic"]),
        Text(row["words"]),
    )


def budgets(overview: Any) -> Text:
    """KV and adapters beside what there may be."""
    out = Text()
    for form, told in (("activation", size), ("parametric", lambda count: f"{count:g}")):
        used, most = overview["used"][form], overview["budget"][form]
        share = min(1.0, used / most) if most else 0.0
        full = round(_BAR * share) or (1 if used else 0)
        name, colour = FORMS[form]
        out.append(f"{name:8}").append("█" * full, colour).append("░" * (_BAR - full), "dim")
        out.append(f" {told(used)} of {told(most)}\n")
    return out.append(f"model {overview['model']}, policy {overview['policy']}", "dim")


def counts(overview: Any) -> Text:
    """Forms, tiers, jobs and hit rates in numbers."""

    def many(form: str) -> int:
        return sum(n for name, n in overview["cubes"].items() if name.split()[0] == form)

    out = Text()
    for form, (name, colour) in FORMS.items():
        out.append(f"{name} ").append(f"{many(form)}  ", f"bold {colour}")
    uses = ", ".join(f"{name} {overview['uses'][form]}" for form, (name, _) in FORMS.items())
    jobs = ", ".join(f"{state} {n}" for state, n in overview["jobs"].items()) or "none"
    shown, every = len(overview["hottest"]), sum(overview["cubes"].values())
    if shown < every:
        out.append(f"below: the hottest {shown:,} of {every:,}")
    return out.append(f"\nuses: {uses}\n{in_memory(overview)}\njobs: {jobs}")


def in_memory(overview: Any) -> str:
    """Tiers and prefetching: of the process that answers, which may be another one."""
    if not overview["answering"]:
        return "in memory: not known here; another process may answer"
    tiers, ahead = list(overview["tiers"].values()), overview["prefetched"]
    lying = ", ".join(f"{tier} {tiers.count(tier)}" for tier in ("device", "host", "disk"))
    ready = f"{overview['prefetch_hits'] / ahead:.0%} of {ahead}" if ahead else "none yet"
    return f"{lying}; prefetched and used: {ready}"


def job_line(job: Row) -> str:
    return f"{job['state']:12}{job['kind']}  {' '.join(job['payload'].get('sources', ()))}  {job['note']}".rstrip()


def life(traced: Any, events: list[Row]) -> Text:
    """What a memory says, where it comes from, and what happened to it."""
    memory = traced["memory"]
    out = Text(memory["memory"] or f"{FORMS[memory['form']][0]}, {size(memory['bytes'])}", "bold")
    out.append(f"\n{memory['id']}  version {memory['version']}, {memory['form']}, {memory['state']}\n", "not bold dim")
    for title, side in (("made from", traced["sources"]), ("made of it", traced["derived"])):
        for cube in side:
            out.append(f"\n{title:11}{cube['form']:11} {cube['id']} {cube['memory']}", "not bold")
    for event in events:
        told = f"version {event['version']}" if "version" in event else event.get("state", event["event"])
        out.append(f"\n{event['at'][:19]}  {told}  {event.get('why', '')}", "not bold")
        out.append("".join(f"\n                     {line}" for line in event.get("diff", ())), "not bold dim")
    return out
