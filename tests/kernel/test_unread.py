"""Turns that the rules leave: kept as they are, read by the model several at once, gone with what is made of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memos import Memory, MemOS
from memos.config import Config, GovernanceConfig, ModelConfig, QuotaConfig, ReaderConfig, RedactionConfig, VaultConfig
from memos.cube import EPISODE, MemCube, Trust, Turn
from memos.errors import HostError, QuotaExceeded
from memos.interface.reading import extraction
from memos.kernel.unread import READ, READ_TURNS, UNREAD
from memos.operation.policies.policy import terms
from memos.plugins.care.check import problems_of

pytest.importorskip("llguidance")
TURNS = [
    "guess what, finally got round to adopting that scruffy terrier",
    "yeah no way, it snowed all night here",
    "been mostly cycling to the office since the tram broke down",
    "honestly could not face another meeting like that one",
    "that podcast about lighthouses was such fun",
    "turns out gluten is what made everything hurt all these years",
    "ugh, keys locked inside the car again",
    "thinking of relocating somewhere by the sea next spring",
]
FOUND = "She adopted a scruffy terrier."
Saying = Callable[..., None]


def opened(vault: Path, **reader: Any) -> MemOS:
    return MemOS(_config(**reader), vault=vault)


def _config(**reader: Any) -> Config:
    return Config(model=ModelConfig(path="shape:tiny"), reader=ReaderConfig(model=True, **{"after_s": 0.0} | reader))


def told(texts: list[str]) -> list[dict[str, Any]]:
    return [{"speaker": "Mira", "content": text} for text in texts]


def raw(memos: MemOS, segment: str) -> list[MemCube]:
    return [c for c in memos.cubes() if c.header.segment == segment]


def lies_in(folder: Path, text: str) -> list[str]:
    return [p.name for p in folder.rglob("*") if p.is_file() and text.encode() in p.read_bytes()]


def wait_for(what: Callable[[], Any], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not what() and time.monotonic() < until:
        time.sleep(0.02)
    assert what()


@pytest.fixture
def saying(monkeypatch: pytest.MonkeyPatch) -> Saying:
    """The model gives these (turn, statement) for an answer, as one that can read might."""

    def say(*facts: tuple[int, str]) -> None:
        from memos.infrastructure.host.host import Host

        given = [{"turn": turn, "statement": statement, "who": "Mira"} for turn, statement in facts]
        answer = json.dumps({"reasoning": "", "facts": given})
        monkeypatch.setattr(Host, "extract", lambda *_: [answer])

    return say


def learnt(memos: MemOS) -> list[MemCube]:
    """What is in force beside the turns themselves, oldest first."""
    return sorted((c for c in memos.memories() if c.header.kind != EPISODE), key=lambda cube: cube.id)


def rest_on_their_turns(memos: MemOS) -> bool:
    sources = [(cube, memos.get(cube.header.origin.removeprefix("model:")).payload) for cube in learnt(memos)]
    return all(isinstance(t, Turn) and set(terms(c.text)) & set(terms(t.question)) for c, t in sources)


def test_as_many_turns_as_are_read_together_are_read_beside_the_request(tmp_path: Path) -> None:
    with opened(tmp_path, every_turns=4) as memos:
        memos.add(told(TURNS[:3]))
        assert learnt(memos) == []
        assert memos.vault.jobs.all("queued") == [] and len(raw(memos, UNREAD)) == 3  # too few yet
        memos.add(told(TURNS[3:4]))
        wait_for(lambda: memos.vault.jobs.all("done", READ_TURNS))
        assert len(memos.vault.jobs.all("done", READ_TURNS)) == 1 and not memos.jobs()
        assert len(raw(memos, READ)) == 4 and not raw(memos, UNREAD) and rest_on_their_turns(memos)


def test_random_weights_read_what_is_left_over_at_a_tick_which_says_what_it_cost(tmp_path: Path) -> None:
    with Memory(_config(), vault=tmp_path) as memory:
        assert memory.add(told(TURNS[:4]))["cost"]["model_calls"] == 0
        done = memory.tick()
        [read] = done["results"]
        assert (read["move"], read["model_calls"], done["cost"]["model_calls"]) == (READ_TURNS, 1, 1)
        assert memory.tick()["cost"]["model_calls"] == 0 and rest_on_their_turns(memory.kernel)


def test_what_the_model_finds_is_a_memory_if_it_rests_on_its_turn(tmp_path: Path, saying: Saying) -> None:
    nonsense = ((2, FOUND), (1, "Xylo brim quand ef."), (1, "Which scruffy terrier?"), (7, "terrier"), (3, " "))
    with opened(tmp_path) as memos:
        memos.add(told(TURNS[:4]), metadata={"talk": 7})
        before = {c.payload.question: c.id for c in raw(memos, UNREAD) if isinstance(c.payload, Turn)}
        saying((1, FOUND), (3, "I cycle to the office."), *nonsense)
        [done] = memos.tick()
        assert done["memories"] == 2
        found, own = learnt(memos)
        assert (found.text, own.text) == (FOUND, "Mira: I cycle to the office.")
        assert (found.header.origin, found.header.trust) == (f"model:{before[TURNS[0]]}", Trust.MODEL)
        assert (found.header.speaker, found.header.metadata) == ("Mira", '{"talk": 7}')
        assert [c.id for c in memos.lineage(found.id).derived] == [before[TURNS[0]]]
        assert memos.search("terrier")[0].cube.id == found.id and problems_of(memos.vault) == []
        memos.grant(found.id, "bob", "reader")  # and not what else was said in the turn
        assert [c.id for c in memos.within("bob").cubes()] == [found.id]


def test_a_deletion_leaves_no_byte_of_the_turn_and_the_turns_other_memories_stay(
    tmp_path: Path, saying: Saying
) -> None:
    turn = "guess what, adopted that scruffy terrier, so cycling to the office is over"
    with opened(tmp_path) as memos:
        memos.add(told([turn, *TURNS[1:4]]))
        saying((1, FOUND), (1, "Cycling to the office is over for Mira."))
        memos.tick()
        assert lies_in(tmp_path, "guess what, adopted")
        found, other = learnt(memos)
        assert found.id in memos.delete(found.id)
        assert not memos.vault.erasing.wait(10)
        assert not lies_in(tmp_path, "scruffy") and not lies_in(tmp_path, "guess what, adopted")
        assert [c.text for c in learnt(memos)] == [other.text] and len(raw(memos, READ)) == 3


def test_a_forgotten_user_leaves_no_byte_of_turns_whether_read_or_not(tmp_path: Path, saying: Saying) -> None:
    with opened(tmp_path) as memos:
        memos.within("ada").add(told(TURNS[:4]))
        saying((1, FOUND))
        memos.within("ada").tick()
        memos.within("ada").add(told(TURNS[4:6]))
        proof = memos.within("ada").forget_user()
        assert proof.clean and proof.counts["turns"] == 6
        assert [text for text in (*TURNS, FOUND) if lies_in(tmp_path, text)] == []


def test_an_error_is_no_memory_and_loses_no_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saying: Saying
) -> None:
    from memos.infrastructure.host.host import Host

    def fails(*_: Any) -> list[str]:
        raise HostError("no")

    with opened(tmp_path) as memos, monkeypatch.context() as patch:
        for n, broken in enumerate((fails, lambda *_: [""], lambda *_: ['{"reasoning'])):
            memos.services.unread._failed.clear()
            patch.setattr(Host, "extract", broken)
            memos.add(told(TURNS[n : n + 1]))
            [done] = memos.tick()
            assert "failed" in done and learnt(memos) == [] and memos.tick() == []  # not again and again
        assert len(raw(memos, UNREAD)) == 3
    saying((1, FOUND))
    with opened(tmp_path) as memos:  # another process tries again
        [done] = memos.tick()
        assert done["memories"] == 1 and len(raw(memos, READ)) == 3


def test_turns_whose_reader_died_are_read_again_and_learnt_once(tmp_path: Path, saying: Saying) -> None:
    saying((1, FOUND))
    with opened(tmp_path) as memos:
        memos.add(told(TURNS[:4]))
        memos.plan()
        assert memos.vault.jobs.take()  # and is not heard of again
    with opened(tmp_path) as memos:
        assert [job.state for job in memos.jobs()] == ["queued"]
        [done] = memos.tick()
        assert done["memories"] == 1 and memos.tick() == []
        assert [c.text for c in learnt(memos)] == [FOUND]


def test_a_turn_deleted_while_it_waits_or_is_read_is_not_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memos.infrastructure.host.host import Host

    with opened(tmp_path) as memos:
        memos.add(told(TURNS[:4]))
        first, second, *_ = sorted(c.sources[0].id for c in raw(memos, UNREAD))
        memos.plan()
        memos.delete(second)
        assert memos.jobs() == []  # the others are planned anew

        def meanwhile(*_: Any) -> list[str]:
            memos.delete(first)
            return [json.dumps({"reasoning": "", "facts": [{"turn": 1, "statement": FOUND, "who": ""}]})]

        monkeypatch.setattr(Host, "extract", meanwhile)
        memos.tick()
        assert learnt(memos) == [] and len(raw(memos, READ)) == 2


def test_what_the_model_reads_replaces_nothing_that_was_told(tmp_path: Path, saying: Saying) -> None:
    turn = "they say Oslo is where everybody lives now"
    with opened(tmp_path) as memos:
        [told_] = memos.add(told(["I live in Lisbon."]))
        memos.add(told([turn, *TURNS[1:4]]))
        saying((1, "Mira lives in Oslo now."))
        memos.tick()
        texts = {c.text: c.payload.facts for c in learnt(memos)}  # type: ignore[union-attr]
        assert texts == {told_.text: told_.payload.facts, "Mira lives in Oslo now.": ()}  # type: ignore[union-attr]


def test_turns_count_against_the_quota_and_identifiers_are_taken_out(tmp_path: Path) -> None:
    hidden = GovernanceConfig(redaction=RedactionConfig(email="before_storing"))
    config = _config().model_copy(
        update={"vault": VaultConfig(quota=QuotaConfig(cubes_per_user=5)), "governance": hidden}
    )
    with MemOS(config, vault=tmp_path) as memos:
        memos.add([{"speaker": "mira@lisbon.pt", "content": "that was such fun, mira@lisbon.pt"}])
        assert len(raw(memos, UNREAD)) == 1 and not lies_in(tmp_path, "mira@lisbon.pt")
        with pytest.raises(QuotaExceeded):
            memos.add(told(TURNS[:3]))
        assert len(raw(memos, UNREAD)) == 1


def test_without_the_setting_nothing_is_kept_raw(tmp_path: Path) -> None:
    with MemOS(vault=tmp_path) as memos:
        memos.add(told(TURNS))
        assert learnt(memos) == [] and {c.header.kind for c in memos.cubes()} == {EPISODE}


def test_a_file_of_turns_is_read_too_and_conversations_apart(tmp_path: Path, saying: Saying) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text("\n".join(json.dumps(turn) for turn in told(TURNS[:4])), "utf-8")
    saying((1, FOUND))
    with opened(tmp_path / "vault", every_turns=4, after_s=9999.0) as memos:
        memos.add(told(TURNS[4:7]))
        memos.add(file)
        wait_for(lambda: memos.vault.jobs.all("done", READ_TURNS))
        assert [c.text for c in learnt(memos)] == [FOUND] and len(raw(memos, UNREAD)) == 3
        assert memos.tick() == []  # of the other conversation there are too few


def test_a_long_turn_is_read_from_its_beginning() -> None:
    from memos.interface.reading.documents.parts import DialogueTurn

    [message] = extraction.prompt([DialogueTurn("Mira", "sea " * 10_000)])
    assert len(message["content"]) < 2_000
