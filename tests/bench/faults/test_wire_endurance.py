"""A small run of endurance on real processes (`make faults`): nothing is lost that must not be."""

from __future__ import annotations

import json

import pytest

from bench.endurance import endurance

pytestmark = [pytest.mark.process, pytest.mark.faults]


def test_a_small_run_of_endurance_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    status = endurance.main(["--events", "8000", "--faults", "6", "--every", "3", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert status == 0, report
    assert report["published"] >= 8_000
    assert report["faults"] == 6
    assert report["owed"] > 2_000
