"""Progress where there is no terminal."""

import pytest

from memos.plugins import progress


@pytest.mark.parametrize(("every", "lines"), [(0.0, ["kill 1/3", "kill 2/3", "kill 3/3"]), (30.0, [])])
def test_a_file_gets_lines_now_and_then(
    every: float, lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_INTERVAL_S", every)
    with progress.progress_bars() as show:
        for done in (1, 2, 3):
            show("kill", done, 3)
    told = [line.strip() for line in capsys.readouterr().err.splitlines()]
    assert [line.partition(", ")[0] for line in told if "━" not in line and line] == lines
    assert all(line.endswith("left") for line in told if "━" not in line and ", " in line)
    assert any(line.startswith("kill") and "3/3" in line for line in told if "━" in line)
