"""A rolling upgrade of real nodes (`make faults`; with twelve: `make upgrade`)."""

from __future__ import annotations

import json

import pytest

from bench.processes import upgrade

pytestmark = [pytest.mark.process, pytest.mark.faults]


def test_real_nodes_are_upgraded_one_by_one_and_lose_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = upgrade.main(["--nodes", "5", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert status == 0, report
    assert report["owed"] > 200
    assert report["mixed"] > 0, "two versions side by side"
