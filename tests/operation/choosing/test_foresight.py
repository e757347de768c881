"""What is predicted from known uses."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from memos.operation.choosing import foresight
from memos.operation.choosing.foresight import PAUSE, SCALES, Follows, Foresight

DAY = 86_400.0


def after(*uses: tuple[str, float], user: str = "ada", most: int = 1000) -> Foresight:
    out = Foresight(most)
    for group, at in uses:
        out.used(user, group, at)
    return out


def test_what_followed_before_is_predicted_to_follow_again() -> None:
    sessions = [(group, day * DAY + n * 60) for day in range(8) for n, group in enumerate("abc" if day % 2 else "xyz")]
    known = after(*sessions, ("a", 9 * DAY))
    predicted = dict(known.next("ada", 9 * DAY + 60))
    assert min(predicted["b"], predicted["c"]) > max(predicted.get(g, 0.0) for g in "xyz")
    assert all(0 < p <= 1 for p in predicted.values())


def test_a_session_opens_as_earlier_ones_did() -> None:
    known = after(
        *((group, day * DAY + n) for day in range(9) for n, group in enumerate(("news", "mail", "w", "x", "y")))
    )
    first, second = [group for group, _ in known.next("ada", 20 * DAY)][:2]
    assert {first, second} <= {"news", "mail", "w", "x"}
    assert dict(known.next("ada", 20 * DAY))["news"] > dict(known.next("ada", 20 * DAY))["y"]


def test_of_nobody_nothing_is_predicted_and_what_was_never_used_is_worth_nothing() -> None:
    assert Foresight().next("ada", 0.0) == []
    assert after(("a", 0.0)).worth(["a", "never"], 1.0)[1] == 0.0
    assert after(("a", 0.0)).worth(["a"], 1.0)[0] > 0.0


def test_users_have_their_own_sequences() -> None:
    known = Foresight()
    for day in range(6):
        for n, (his, hers) in enumerate(zip("abc", "axy", strict=True)):
            known.used("bob", his, day * DAY + n)
            known.used("eva", hers, day * DAY + n)
    known.used("bob", "a", 7 * DAY)
    predicted = dict(known.next("bob", 7 * DAY))
    assert predicted["b"] > predicted["x"]


def test_a_prediction_ends_with_the_session() -> None:
    uses = [(group, day * DAY + n) for day in range(8) for n, group in enumerate("abc")]
    known = after(*uses, ("a", 8 * DAY), ("other", 8 * DAY + 1))
    known.used("eva", "other", 8 * DAY + 2)
    during = known.worth(["b"], 8 * DAY + 3)[0]
    known.used("eva", "other", 8 * DAY + 2 + PAUSE)
    assert known.worth(["b"], 8 * DAY + 3 + PAUSE)[0] < during


def test_uses_fade_and_the_scale_that_predicts_better_is_believed() -> None:
    steady = after(*(("ab"[n % 2], n * DAY) for n in range(200)))
    assert np.argmax(steady._scales) >= 2  # days or a season: the shorter ones have forgotten by the next use
    old, new = after(("old", 0.0), ("new", 10 * DAY)).worth(["old", "new"], 10 * DAY)
    assert new > old > 0


def test_a_share_of_uses_by_hand() -> None:
    known = after(("a", 0.0), ("b", SCALES[0]))
    faded = np.exp(-SCALES[0] / SCALES)
    found = known._shares(np.array([0, 1]), SCALES[0])
    assert found == pytest.approx(np.array([faded, np.ones(len(SCALES))]) / (1 + faded))


def test_counts_by_hand() -> None:
    follows = Follows()
    for group, distance in (("a", 1), ("a", 1), ("b", 2)):
        follows.add(group, distance)
    unit = 1 / foresight._FADE
    assert follows.counts == pytest.approx({"a": 1 + unit, "b": unit**2 / 2})
    # and some for what never came: as much as two at once, since two different ones came
    assert follows.counts["a"] * follows.scale == pytest.approx((1 + unit) / (1 + unit + unit**2 / 2 + 2 * unit**3))


def test_counts_stay_finite_and_keep_their_shares() -> None:
    follows = Follows()
    for n in range(200_000):
        follows.add("abc"[n % 3], 1)
    assert follows.unit <= foresight._LARGE
    assert sum(follows.counts.values()) == pytest.approx(follows.total)
    assert follows.counts["a"] * follows.scale == pytest.approx(1 / 3, abs=0.01)


def test_what_is_remembered_is_bounded() -> None:
    draw, known = Random(0), Foresight(most=50)
    for n in range(3000):
        known.used(f"user {draw.randrange(200)}", f"group {draw.randrange(500)}", 20.0 * n)
        known.used("user 1", "often", 20.0 * n + 1)
    assert len(known._rows) == len(known._uses) == len(known._last) == len(known._soon) <= 50
    assert len(known._follows) <= 50
    assert all(len(f.counts) <= foresight._MOST for f in known._follows.values())
    assert known.worth(["often"], 60_000.0)[0] > 1  # what is used most is not what is forgotten
    expected = {g: 0.0 for g in known._rows}
    for visit in known._visits.values():
        for group, uses in visit.coming.items():
            if group in expected:
                expected[group] += uses
    assert known._soon.all == pytest.approx(np.array([expected[g] for g in known._rows]), abs=1e-9)


def test_the_same_uses_give_the_same_predictions() -> None:
    def learn() -> tuple[list[float], list[tuple[str, float]]]:
        draw, known = Random(1), Foresight()
        for n in range(500):
            known.used(f"user {draw.randrange(5)}", f"group {draw.randrange(40)}", 100.0 * n)
        return known.worth([f"group {n}" for n in range(40)], 50_000.0).tolist(), known.next("user 1", 50_000.0)

    assert learn() == learn()


def test_time_does_not_go_back() -> None:
    known = after(("a", 100.0), ("b", 50.0))
    assert np.isfinite(known.worth(["a", "b"], 0.0)).all()
