"""Progress: plain lines without a terminal, a bar per stage on a terminal, on standard error."""

from __future__ import annotations

import pytest

from canopy.cli.sim.replay import SimProgress


def stages(progress: SimProgress) -> None:
    for number in range(50):
        progress("grow", number * 0.1, number / 50)
    progress("publish", 5.0, 0.0)


def test_plain_lines_are_few(capsys: pytest.CaptureFixture[str]) -> None:
    with SimProgress() as progress:
        stages(progress)
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split()[0] for line in err.splitlines()] == ["grow", "publish"]


def test_a_terminal_shows_a_bar_per_stage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with SimProgress() as progress:
        stages(progress)
    out, err = capsys.readouterr()
    assert out == ""
    assert "grow" in err
    assert "s of virtual time" in err
    assert "GB" in err


def test_quiet_is_quiet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for forced in ("", "1"):
        if forced:
            monkeypatch.setenv("FORCE_COLOR", forced)
        with SimProgress(quiet=True) as progress:
            stages(progress)
        assert capsys.readouterr() == ("", "")
