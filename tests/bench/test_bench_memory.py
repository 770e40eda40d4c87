"""The bench of memory starts a node, and reports what it takes."""

from __future__ import annotations

import json

import pytest

from bench.node import memory


@pytest.mark.process
def test_a_node_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--subscriptions", "16", "--events", "64", "--settle", "0", "--json"]
    assert memory.main(options) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["state"] for row in rows] == ["ready", "subscribed", "published", "published"]
    assert [row["events"] for row in rows] == [0, 0, 6, 64]
    assert all(10 < row["uss_mb"] <= row["rss_mb"] < 1000 for row in rows)
