"""A memory system in a package of its own: a page for each day, which grows as the day goes on.

`pip install examples/curator_package` makes its name known, and one line of YAML, `policy: diary`, chooses it.
What it returns is carried out by memos: as one transaction, undone by one call, and gone with the turns that it names.
"""

from collections.abc import Iterator, Sequence

from memos.config import Config
from memos.cube import MemCube
from memos.plugins.curators.curator import Curator, CuratorOp, CuratorView, Keep, Revise, Writer
from memos.plugins.curators.signals import Recalled

PAGE = "page"  # the kind of what it makes
LINES = 12  # of a page


class Diary(Curator):
    def on_turns(self, turns: Sequence[MemCube], view: CuratorView, writer: Writer) -> Iterator[CuratorOp]:
        """One more line on the page of the day for each statement; the rules say what a statement is."""
        day = f"{turns[0].order[0]:%Y-%m-%d}"
        page = next((page for page in view.memories(PAGE) if page.text.startswith(day)), None)
        told = [(line, turn.id) for turn in turns for line in view.statements(turn)]
        if not told:
            return
        lines, sources = zip(*told[:LINES], strict=True)
        if page is None:
            yield Keep(text="\n".join([f"{day}: {lines[0]}", *lines[1:]]), kind=PAGE, sources=sources)
        elif page.text.count("\n") + len(lines) < LINES:
            yield Revise(id=page.id, text="\n".join([page.text, *lines]), sources=sources)

    def find(self, query: str, k: int, view: CuratorView, writer: Writer) -> list[Recalled]:
        return view.near(query, k, PAGE)


def make(config: Config) -> Diary:
    """What the entry point names: the configuration in, the policy out."""
    return Diary()
