"""`memos top`: shows a vault live in a terminal, and acts, over the Memory API; a promotion is one that it can stop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Event
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
from memos.plugins.top.texts import FORMS, Row, budgets, cells, counts, job_line, life, listed

COLUMNS = ("heat", "form", "tier", "state", "uses", "size", "topic", "memory")
# what the rows are ordered by, in turn
ORDERS: dict[str, Callable[[Row], Any]] = {
    "heat": lambda row: (-row["heat"], -row["recalls"]),
    "uses": lambda row: -row["recalls"],
    "size": lambda row: -row["bytes"],
    "topic": lambda row: (row["topic"], -row["heat"]),
    "form": lambda row: (-list(FORMS).index(row["form"]), -row["heat"]),
}
MAX_LISTED = 1000  # memories


class Memories(DataTable[Text]):
    """The table of memories."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "inspect")]


class Top(App[None]):
    """Refreshed in a thread, so that keys are heard while the vault or the model works."""

    TITLE = "memos top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary { height: auto; padding: 1 1 0 1; }
    #budgets, #counts { width: 1fr; height: auto; }
    #jobs { height: auto; max-height: 6; padding: 0 1; }
    #message { height: 1; padding: 0 1; color: $text-muted; }
    #filter { display: none; height: 3; }
    #filter.open { display: block; }
    Memories { height: 1fr; scrollbar-size: 1 1; }
    Inspect, Confirm { align: center middle; }
    Confirm Static { width: auto; border: round $accent; padding: 1 2; background: $surface; }
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
        self._leaving = Event()

    def compose(self) -> ComposeResult:
        with Horizontal(id="summary"):
            yield Static(id="budgets")
            yield Static(id="counts")
        yield Input(placeholder="show what holds these words; escape shows all", id="filter")
        yield Memories(cursor_type="row", zebra_stripes=True)
        yield Static(id="jobs")
        yield Static(id="message")
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
            overview = api.overview(hottest=MAX_LISTED, **who)  # one decision, and so one row of the audit log
            jobs = api.jobs(**who)["results"]
        except MemosError as error:  # the next look may meet another state of things
            self._in_view(self._say, str(error))
            return
        self._in_view(self._show, overview, listed(overview), jobs)

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
        self.query_one("#message", Static).update(escape(words))

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

    def on_unmount(self) -> None:
        self._leaving.set()

    def _in_view(self, call: Callable[..., object], *given: object) -> None:
        """Make a call where the view is; none once it is being left, which waits for this thread."""
        if not self._leaving.is_set():
            self.call_from_thread(call, *given)

    def _go_on(self, *_: object) -> None:
        """Told of each step of a training, which stops with the view; the same promotion goes on from there."""
        if self._leaving.is_set():
            raise KeyboardInterrupt

    @work(thread=True, group="act")
    def _act(self, words: str, call: Callable[..., Any], *given: Any) -> None:
        """Do a call, say how it went, and look again."""
        self._in_view(self._say, f"{words} ...")
        try:
            call(*given)
            message = f"{words}: done"
        except MemosError as error:
            message = f"{words}: {error}"
        except KeyboardInterrupt:  # of `_go_on`: nobody is there to be told
            return
        self._in_view(self._say, message)
        self._in_view(self.action_look)

    def action_promote(self, to: str) -> None:
        row = self._row()
        if not row:
            return
        what, calls = f"{FORMS[to][0]} of {row['words']}", self._memory.within(self._who["user_id"])

        def begin(is_wanted: bool | None) -> None:
            if is_wanted:
                self._act(what, partial(calls.promote, progress=self._go_on), [row["id"]], to)

        if to == "parametric":
            self.push_screen(Confirm(f"Train an {what}?\nIt takes minutes, and stops when you leave."), begin)
        else:
            begin(True)

    def action_demote(self) -> None:
        if row := self._row():
            self._act(f"give up {row['words']}", partial(self._memory.demote, **cast(Any, self._who)), row["id"])

    def action_freeze(self) -> None:
        if row := self._row():
            name = "thaw" if row["state"] == "frozen" else "freeze"
            self._act(f"{name} {row['words']}", partial(getattr(self._memory, name), **self._who), row["id"])

    @work(thread=True, group="act")
    def on_data_table_row_selected(self) -> None:
        """Show its life."""
        if row := self._row():
            api, who = self._memory, cast(Any, self._who)
            try:
                traced, events = api.provenance(row["id"], **who), api.history(row["id"], diffs=True, **who)["results"]
            except MemosError as error:
                self._in_view(self._say, str(error))
                return
            self._in_view(self.push_screen, Inspect(life(traced, events)))

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

    def __init__(self, life: Text) -> None:
        super().__init__()
        self._life = life

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._life)


class Confirm(ModalScreen[bool]):
    """A question to say yes or no to."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "dismiss(True)", "yes"),
        Binding("n,escape,q", "dismiss(False)", "no"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        yield Static(f"{escape(self._question)}\n\ny: yes   n: no")
