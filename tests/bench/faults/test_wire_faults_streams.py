"""A stream of real processes under faults of every kind (`make faults`): each row that was
acknowledged, each transaction and each row of a group is accounted for."""

from __future__ import annotations

import json

import pytest

from bench.streams import endurance

pytestmark = [pytest.mark.process, pytest.mark.faults]


def test_every_row_of_a_stream_is_accounted_for(capsys: pytest.CaptureFixture[str]) -> None:
    status = endurance.main(["--faults", "12", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert status == 0, report
    assert report["wrong"] == {}
    assert sum(report["faults"].values()) == 12
    assert report["acknowledged"] > 1_000
    assert report["receipts proved offline"] >= 3
