"""Steps of a demo: bars on a terminal, plain lines elsewhere, on standard error."""

from __future__ import annotations

import os
import sys

import pytest

from canopy.cli.display import Bars, Display


def steps(display: Display) -> None:
    display.step("publishing [1]", 10)
    display.update(4, 10, "4 events")
    display.update(10, 10, "10 events")
    display.note("something [else]")
    display.step("waiting")
    display.done("3 left")


def test_a_step_has_its_bar_and_is_full_at_its_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Display() as display:
        steps(display)
        first, second = display._bars.tasks
    out, err = capsys.readouterr()
    assert out == ""
    for text in ("publishing [1]", "10 events", "waiting", "3 left", "something [else]"):
        assert text in err
    assert (first.completed, first.total) == (10, 10)
    assert second.finished


def test_plain_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with Display() as display:
        steps(display)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["publishing [1] …", "! something [else]", "waiting …", "  3 left"]


def test_a_reader_of_progress_that_goes_ends_no_command() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as closed, pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stderr", closed)
        with Display() as display:
            steps(display)
        patched.undo()
        with pytest.raises(BrokenPipeError):
            print("nobody reads it", file=closed, flush=True)
        with open(os.devnull, "w") as null:
            os.dup2(null.fileno(), writer)  # for the flush at its end


def test_bars_that_are_not_shown_cost_nothing() -> None:
    with Bars(quiet=True) as bars:
        bars.begin("a", 2)
        bars.show(1, facts="half")
        bars.fill()
        bars.fill()
