"""The progress of an analysis: its stages, Spark's tasks, and lines where there is no terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from canopy.cli import display
from canopy.cli.main import main
from canopy.cli.traces.command import Stages
from canopy.traces.analysis import AnalysisError
from canopy.traces.analysis.spark.session import watched_tasks

SLEEP = "reflect('java.lang.Thread', 'sleep', 300L)"


@pytest.mark.spark
def test_the_tasks_of_a_running_job_are_counted(spark: Any) -> None:
    seen: list[tuple[int, int]] = []
    with watched_tasks(spark, lambda *tasks: seen.append(tasks), 0.05):
        for count in (6, 2):
            spark.range(0, count, 1, count).selectExpr(SLEEP).collect()
    assert list(dict.fromkeys(total for _, total in seen)) == [6, 8]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len({done for done, _ in seen}) > 2
    count = len(seen)
    spark.range(0, 2, 1, 2).selectExpr(SLEEP).collect()
    assert len(seen) == count, "nobody watches any more"


@pytest.mark.spark
def test_a_failed_job_ends_the_watching(spark: Any) -> None:
    seen: list[tuple[int, int]] = []
    with pytest.raises(ZeroDivisionError), watched_tasks(spark, lambda *tasks: seen.append(tasks)):
        raise ZeroDivisionError
    with watched_tasks(spark, None):
        assert spark.range(3).count() == 3
    assert not seen


def failing(
    *stages: str,
) -> Callable[..., object]:
    """An analysis that goes through these stages and fails then."""

    def analyze(
        _traces: Path,
        _out: Path,
        *,
        progress: Callable[[str, int, int], None],
        **options: Any,
    ) -> None:
        for number, stage in enumerate(stages):
            progress(stage, number, len(stages))
            options["on_tasks"](40 * number + 1, 40 * number + 40)
            options["on_tasks"](40 * number + 40, 40 * number + 40)
        progress("done", len(stages), len(stages))
        raise AnalysisError("no more")

    return analyze


@pytest.mark.parametrize(("pause", "lines"), [(60.0, 0), (0.0, 1)])
def test_without_a_terminal_each_stage_is_a_line_and_long_ones_are_more(
    pause: float,
    lines: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(display, "PROGRESS_INTERVAL", pause)
    monkeypatch.setattr(
        "canopy.traces.analysis.analyze_places", failing("reading [all]", "judging")
    )
    assert main(["trace", "analyze", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert [re.sub(r", \d+ s$", "", line) for line in err.splitlines()] == [
        "1 of 2: reading [all] …",
        *["  1 of 40 tasks done"] * lines,
        "2 of 2: judging …",
        *["  1 of 40 tasks done"] * lines,
        "Error: no more",
    ]


def test_on_a_terminal_each_stage_is_a_bar_with_its_tasks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Stages() as stages:
        for number, stage in enumerate(("reading [all]", "judging")):
            stages.stage(stage, number, 2)
            stages.tasks(40 * number + 31, 40 * number + 40)
            bar = stages._bars.tasks[number]
            done, total = ((31, 40), (40, 49))[number]  # those of the first that were not seen, too
            assert (bar.completed, bar.total) == (done, total)
            assert bar.fields["facts"].startswith(f"{done} of {total} tasks done")
        stages.stage("done", 2, 2)
        assert all(bar.finished for bar in stages._bars.tasks)
    out, err = capsys.readouterr()
    assert out == ""
    for text in ("1 of 2: reading [all]", "2 of 2: judging"):
        assert text in err
    assert "tasks done" not in err.splitlines()[-1]
    assert "\x1b[32m✓" not in err, "the end of a stage is no verdict"
