"""A-MEM on cases worked out by hand: how a note describes itself, what is linked, what evolves, what links find."""

from __future__ import annotations

from pathlib import Path

from talk import Conversation, conversation

from memos.cube import MemCube
from memos.plugins.curators.signals import Recalled
from memos.plugins.curators.tables import StoredLink
from memos.plugins.policies.a_mem import NeighbourEvolution, NoteAttributes, NoteText, _with_linked

WORDS = (
    ("Ann: I adopted a puppy called Rex.", "Bo: What does he eat?"),
    ("Ann: My flight to Lisbon leaves on Friday.", "Bo: Have a safe journey."),
    ("Ann: The puppy Rex chewed my new shoes.", "Bo: Oh no!"),
)


def _note(talk: Conversation, word: str) -> MemCube:
    """The note of the turn with this word."""
    [found] = [cube for cube in talk.made() if word in NoteText.read(cube.text).content]
    return found


def test_near_notes_are_linked_and_evolve(tmp_path: Path) -> None:
    with conversation(tmp_path, "a-mem") as talk:
        for lines in WORDS:
            talk.say(*lines)
        first, later, flight = _note(talk, "adopted"), _note(talk, "chewed"), _note(talk, "Lisbon")
        related = {frozenset((link.a, link.b)) for link in talk.links() if link.kind == "related"}
        assert frozenset((first.id, later.id)) in related  # near, and both have a puppy
        assert not any(flight.id in pair and {first.id, later.id} & pair for pair in related)
        was, note = NoteText.read(talk.memory.kernel.parts.vault.get(first.id, 1).text), NoteText.read(first.text)
        assert note.content == "Ann: I adopted a puppy called Rex." and "puppy" in note.keywords
        assert first.version == 2 and len(note.tags) == len(was.tags) + 1
        assert note.tags[-1] in NoteText.read(later.text).keywords  # gained from the note that came later
        assert [source.id for source in first.sources] == [first.sources[0].id, later.sources[0].id]
        assert flight.version == 1


def test_a_note_says_what_it_answers(tmp_path: Path) -> None:
    with conversation(tmp_path, "a-mem") as talk:
        talk.say("Ann: Where does your sister work?", "Bo: At a bakery in Leeds.")
        assert NoteText.read(_note(talk, "bakery").text).context == "Ann: Where does your sister work?"
        [turn] = _note(talk, "bakery").sources
        assert "bakery" in talk.kernel.get(turn.id).text


def test_without_links_notes_stay_as_they_were_made(tmp_path: Path) -> None:
    with conversation(tmp_path, "a-mem-links") as talk:
        for lines in WORDS:
            talk.say(*lines)
        assert not talk.links() and {cube.version for cube in talk.made()} == {1} and len(talk.made()) == 6
        assert talk.find("Who was adopted?", 1)[0].startswith("Ann: I adopted a puppy called Rex.")


def test_what_is_linked_to_a_note_that_was_found_ranks_by_both() -> None:
    class Links:
        def links(self, *ids: str) -> list[StoredLink]:
            return [StoredLink(*pair, "related", by, None, None) for pair, by in ((("a", "b"), 0.7), (("c", "a"), 0.5))]

    found = _with_linked([Recalled("a", 0.8, {}), Recalled("d", 0.5, {})], Links())  # b: .56, c: .4
    assert [one.id for one in found] == ["a", "b", "d", "c"]


def test_a_note_is_read_as_it_was_written() -> None:
    by = NoteAttributes(keywords=["a;b", "c, d", ""], tags=[], context="Who | when")
    note = NoteText.of("Ann: x | y", by)
    assert note == ("Ann: x / y", ("a b", "c d"), (), "Who / when") and NoteText.read(str(note)) == note
    bare = NoteText.of("好", NoteAttributes(keywords=[], tags=[], context=""))
    assert str(bare) == "好" and NoteText.read("好") == bare
    change = NeighbourEvolution(neighbour=1, linked=True, tags=["t"], context="")
    assert note.evolved(change) == note._replace(tags=("t",))
