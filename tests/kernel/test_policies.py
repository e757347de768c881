"""One line of YAML, another memory system: every policy through the real kernel, with the small model and a vault."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memos import MemOS
from memos.config import Config, MemoryOSConfig, load_config
from memos.cube import Form, MemCube
from memos.errors import ConfigError, InputError
from memos.infrastructure.host.host import Host
from memos.infrastructure.host.request import Request
from memos.interface.doors.cli.app import app
from memos.operation.policies.policy import POLICIES, Ranked
from memos.plugins.policies.baselines import Baseline
from memos.plugins.policies.memoryos import MemoryOSTiers

PEOPLE = {"Mira": "Lisbon", "Tom": "Oslo", "Ada": "Rome", "Ben": "Lima", "Cleo": "Cairo", "Dan": "Delhi"}
PEOPLE |= {"Eva": "Quito", "Finn": "Tokyo", "Gus": "Bern", "Hana": "Kyiv", "Ivo": "Riga", "Jana": "Turin"}
ASKED = "Where does Mira live?"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemOS]:
    """A kernel that others have the loaded model from."""
    with MemOS(vault=tmp_path_factory.mktemp("model") / "vault") as kernel:
        yield kernel


def opened(vault: Path, model: MemOS, config: Config | None = None, **settings: Any) -> MemOS:
    given = {"model": model.host.model, "tokenizer": model.host.tokenizer}
    return MemOS(config or Config(**settings), vault=vault, **given)


def told(kernel: MemOS, people: dict[str, str] = PEOPLE, **user: str) -> list[MemCube]:
    return [kernel.within(**user).add(f"{name} lives in {city}.")[0] for name, city in people.items()]


def texts(cubes: Any) -> list[str]:
    return [cube.text for cube in cubes]


def of(*names: str) -> list[str]:
    return [f"{name} lives in {PEOPLE[name]}." for name in names]


EVERYBODY = [*PEOPLE]
# those that write nothing; the others are held to their papers in tests/plugins/policies
PLAIN = ("memos", "plain-rag", "keywords", "recency", "lru", "full-context", "memoryos")


@pytest.mark.parametrize("name", PLAIN)
def test_each_policy_answers_from_what_it_admits(tmp_path: Path, model: MemOS, name: str) -> None:
    with opened(tmp_path / "vault", model, policy=name, memoryos=MemoryOSConfig(top_pages=2)) as kernel:
        cubes = told(kernel)
        kernel.vault.usage.record([cube.id for cube in cubes[2:10]], cubes[-1].header.created)
        reply = kernel.ask(ASKED, via="plaintext")
        seen = texts(reply.admission.cubes)
        shown = {
            "memos": of("Mira"),
            "plain-rag": None,
            "keywords": None,
            "recency": of(*EVERYBODY[4:]),
            "lru": of(*EVERYBODY[2:10]),
            "full-context": of(*EVERYBODY),
        }.get(name)
        assert seen == sorted(seen, key=lambda text: texts(cubes).index(text))  # canonical order
        if shown is not None:
            assert seen == shown
        elif name in ("memoryos-mtm", "memoryos-stm"):  # what there is room for in what is left
            assert seen
        elif name.startswith("memoryos"):
            assert set(of(*EVERYBODY[-7:])) <= set(seen) and of("Mira")[0] in seen
        else:
            assert of("Mira")[0] in seen and len(seen) == 8
        if name in ("memos", "memoryos", "full-context"):
            assert "Lisbon" in reply.text
        used = {cube.id for cube in kernel.memories() if cube.usage.recalls}
        assert used >= {cube.id for cube in reply.admission.cubes}
        assert kernel.tick() == [] or name == "memos"


@pytest.mark.parametrize("name", PLAIN)
def test_each_policy_searches_and_forgets(tmp_path: Path, model: MemOS, name: str) -> None:
    """What is to be forgotten is found by its meaning, whatever finds answers."""
    with opened(tmp_path / "vault", model, policy=name) as kernel:
        [tea, *_] = [kernel.add(text)[0] for text in ("The blue key opens the shed.", "Bread is on the table.")]
        assert len(kernel.search("key", top_k=1)) == 1
        assert [hit.cube for hit in kernel.search("key", policy="keywords", top_k=1)] == [tea]
        gone = kernel.chat("Forget that the blue key opens the shed.")
        assert gone.forgotten == (tea.id,)
        assert texts(hit.cube for hit in kernel.search("key")) == ["Bread is on the table."]


# selection


YAML = """
policy: recency
policies: {ann: full-context, bob: memoryos}
scheduler: {top_k: 2}
"""


def test_a_line_of_yaml_selects_and_another_for_a_namespace(tmp_path: Path, model: MemOS) -> None:
    (tmp_path / "memos.yaml").write_text(YAML)
    config = load_config(tmp_path / "memos.yaml", ("policies.cid=lru",))
    with opened(tmp_path / "vault", model, config) as kernel:
        for user in ("ann", "bob", "cid", "default"):
            told(kernel, user=user)
        first = kernel.within("cid").memories()[0]
        kernel.vault.usage.record([first.id], kernel.within("default").memories()[-1].header.created)
        seen = {user: texts(kernel.within(user).ask(ASKED, via="plaintext").admission.cubes) for user in ("ann", "cid")}
        assert seen == {"ann": of(*EVERYBODY), "cid": of("Mira", "Jana")}
        assert texts(kernel.ask(ASKED, via="plaintext").admission.cubes) == of("Ivo", "Jana")
        assert texts(hit.cube for hit in kernel.within("default").search("anything")) == of("Jana", "Ivo")
        assert isinstance(kernel.within("bob").tiers(), MemoryOSTiers)
        with pytest.raises(InputError, match="policy recency keeps no tiers.*memoryos"):
            kernel.tiers()


@pytest.mark.parametrize("yaml", ["policy: fifo", "policies: {ann: fifo}"])
def test_a_wrong_name_in_yaml_is_refused_at_the_start_with_the_known_ones(tmp_path: Path, yaml: str) -> None:
    (tmp_path / "memos.yaml").write_text(yaml)
    with pytest.raises(InputError) as found:
        MemOS(load_config(tmp_path / "memos.yaml"), vault=tmp_path / "vault")
    assert "no policy 'fifo'" in str(found.value) and all(name in str(found.value) for name in POLICIES.names())
    assert not (tmp_path / "vault").exists()


def test_a_name_in_yaml_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "memos.yaml").write_text("policy: [memos]")
    with pytest.raises(ConfigError, match="policy: .*string"):
        load_config(tmp_path / "memos.yaml")


def test_a_wrong_name_at_a_door_is_refused_with_the_known_ones(tmp_path: Path, model: MemOS) -> None:
    vault = tmp_path / "vault"
    with opened(vault, model) as kernel:
        told(kernel)
        with pytest.raises(InputError, match="no policy 'fifo'; there are .*memoryos, .*memos, "):
            kernel.search("key", policy="fifo")
    doors = [
        ["search", "key", "--vault", str(vault)],
        ["bench", "conversations", "--set", "locomo", "--data", "no-such-file.json"],
    ]
    for door in doors:
        refused = CliRunner().invoke(app, [*door, "--policy", "fifo"])
        assert refused.exit_code == 1 and "no policy 'fifo'; there are " in refused.stderr
    found = CliRunner().invoke(app, [*doors[0], "--policy", "recency", "--top-k", "1"])
    assert of("Jana")[0] in found.stdout


# memoryos


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """What the model is given, which it still answers."""
    seen: list[Request] = []
    stream = Host.stream

    def recorded(host: Host, request: Request, *args: Any) -> Any:
        seen.append(request)
        return stream(host, request, *args)

    monkeypatch.setattr(Host, "stream", recorded)
    return seen


def test_chat_under_memoryos_is_given_the_three_tiers_joined(
    tmp_path: Path, model: MemOS, asked: list[Request]
) -> None:
    """Four statements on one matter are a hot segment, from which the profile comes; one of another matter is found in
    the middle; the last seven are the queue."""
    config = MemoryOSConfig(top_segments=1, top_pages=1, top_knowledge=1, theta=0.3)
    with opened(tmp_path / "vault", model, policy="memoryos", memoryos=config) as kernel:
        # kept one by one: in one conversation, what is said around a statement would make all alike
        own = ["I live in Oslo.", "I work as a nurse.", "My favourite drink is tea.", "My favourite colour is red."]
        for text in (*own, "The blue key opens the shed.", *of(*EVERYBODY[:7])):
            kernel.chat(f"Remember that {text[0].lower() + text[1:] if text[0] != 'I' else text}")
        made = kernel.tiers()
        assert isinstance(made, MemoryOSTiers)
        kernel.chat("What opens the shed?")
        profile = [note.text for note in made.profile.values()]
        given = list(asked[-1].memories)
        assert given == sorted(given, key=texts(kernel.memories()).index)
        last = texts(kernel.memories())[-7:]
        assert given[-7:] == last
        assert any("key" in text for text in given[:-7])
        assert profile and set(profile) <= set(given)


def test_what_was_shown_is_a_visit_and_what_was_searched_is_not(tmp_path: Path, model: MemOS) -> None:
    with opened(tmp_path / "vault", model, policy="memoryos") as kernel:
        told(kernel)

        def visits() -> int:
            made = kernel.tiers()
            assert isinstance(made, MemoryOSTiers)
            return sum(topic.visits for topic in made.topics.values())

        kernel.search(ASKED)
        assert visits() == 0
        kernel.ask(ASKED, via="plaintext")
        assert visits() > 0


def test_the_tiers_are_the_same_after_a_restart_and_without_what_was_deleted(tmp_path: Path, model: MemOS) -> None:
    def held(kernel: MemOS) -> tuple[list[str], list[tuple[int, int, list[str]]], list[str]]:
        made = kernel.tiers()
        assert isinstance(made, MemoryOSTiers)
        short = [note.text for page in made.short for note in page.notes]
        middle = [
            (topic.visits, len(topic.fresh), [note.text for page in topic.pages for note in page.notes])
            for topic in made.topics.values()
        ]
        return short, middle, [note.text for note in (*made.profile.values(), *made.knowledge)]

    with opened(tmp_path / "vault", model, policy="memoryos") as kernel:
        cubes = told(kernel)
        for name in EVERYBODY[:4]:
            kernel.ask(f"Where does {name} live?", via="plaintext")
        before = held(kernel)
        assert any(visits for visits, _, _ in before[1])
    with opened(tmp_path / "vault", model, policy="memoryos") as kernel:
        assert held(kernel) == before
        kernel.delete(cubes[1].id)
        assert "Oslo" in str(before) and "Oslo" not in str(held(kernel))
        assert all("Oslo" not in hit.cube.text for hit in kernel.search("Where does Tom live?"))


def test_an_answer_never_becomes_a_memory_of_the_tiers(tmp_path: Path, model: MemOS) -> None:
    """Nor what the model says instead of one: a session keeps it as its turn, and that is all."""
    with opened(tmp_path / "vault", model, policy="memoryos") as kernel:
        told(kernel)
        reply = kernel.chat(ASKED, session="s")
        [turn] = kernel.turns("s")
        assert reply.text and turn.form is Form.PLAINTEXT
        made = kernel.tiers()
        assert isinstance(made, MemoryOSTiers)
        kept = [note for page in made.short for note in page.notes]
        kept += [note for topic in made.topics.values() for page in topic.pages for note in page.notes]
        assert sorted(note.text for note in kept) == sorted(of(*EVERYBODY))


def test_kv_made_by_hand_serves_a_policy_that_shows_just_these(tmp_path: Path, model: MemOS) -> None:
    with opened(tmp_path / "vault", model, policy="full-context") as kernel:
        cubes = told(kernel)
        kernel.promote([cube.id for cube in cubes], "activation")
        reply = kernel.ask(ASKED, via="activation")
        assert reply.past_tokens > 0 and "Lisbon" in reply.text


def test_a_search_is_in_the_order_of_the_policys_own_rank(tmp_path: Path, model: MemOS) -> None:
    class Backwards(Baseline):
        def rank(self, hits: Ranked) -> list[tuple[MemCube, float]]:
            return [hit for hit in reversed(hits) if "Lisbon" not in hit[0].text]

    with opened(tmp_path / "vault", model) as kernel:
        told(kernel)
        forwards = texts(hit.cube for hit in kernel.search(ASKED, top_k=4, policy="plain-rag"))
    given = {"model": model.host.model, "tokenizer": model.host.tokenizer}
    with MemOS(vault=tmp_path / "vault", policy=Backwards(lambda signals: signals.near), **given) as kernel:
        found = texts(hit.cube for hit in kernel.search(ASKED, top_k=4))
    assert forwards[0] in of("Mira")
    assert found == [*reversed(forwards[1:]), forwards[0]]  # what it leaves out of a prompt comes last


def test_a_budget_is_filled_by_scores_of_which_longer_memories_need_higher_ones(tmp_path: Path, model: MemOS) -> None:
    with opened(tmp_path / "vault", model) as kernel:
        long = "Mira lives in Lisbon" + ", and in summer by the sea near there" * 8 + "."
        for text in (long, short := "Mira has a flat in Lisbon.", "Bread is on the table."):
            kernel.add(text)
        whole = kernel.search("Where does Mira live?", budget=10_000)
        assert [hit.score for hit in whole] == sorted((hit.score for hit in whole), reverse=True) and len(whole) == 3
        count = kernel.parts.embedder().counts
        size = {hit.cube.text: count([hit.cube.text])[0] for hit in whole}
        for budget in (1, 12, 40, 200):
            found = texts(hit.cube for hit in kernel.search("Where does Mira live?", budget=budget))
            assert sum(size[text] for text in found) <= budget
            assert found == [hit.cube.text for hit in whole if hit.cube.text in found]  # in the order of the ranking
            assert found or budget < min(size.values())
        assert whole[0].cube.text == long  # the best, and still there is room for it or for the other two
        assert texts(hit.cube for hit in kernel.search("Where does Mira live?", budget=size[long]))[0] == short


def test_a_policy_of_ones_own_takes_the_place_of_the_named_one(tmp_path: Path, model: MemOS) -> None:
    longest = Baseline(lambda signals: signals.length)
    given = {"model": model.host.model, "tokenizer": model.host.tokenizer}
    with MemOS(Config(policies={"ann": "keywords"}), vault=tmp_path / "vault", policy=longest, **given) as kernel:
        tom = told(kernel)[1]
        told(kernel, user="ann")
        (long,) = kernel.add("The old bakery on the corner opens at six on every day but Sunday.")
        kernel.within("ann").add("The old bakery on the corner opens at six on every day but Sunday.")
        (best, *_), (named, *_) = kernel.search(ASKED), kernel.search(ASKED, policy="own")
        assert best.cube == named.cube == long
        assert texts(hit.cube for hit in kernel.search(ASKED, top_k=1, policy="memos")) == of("Mira")
        assert texts(hit.cube for hit in kernel.within("ann").search(ASKED, top_k=1)) == of("Mira")
        assert kernel.chat("Forget where Tom lives.").forgotten == (tom.id,)  # found by memos, as ever
    with (
        MemOS(vault=tmp_path / "vault", **given) as kernel,
        pytest.raises(InputError, match="there is no policy 'own'"),
    ):
        kernel.search(ASKED, policy="own")
