"""The parts of a demo's tour; all of it, with real nodes, is in `make faults`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from canopy.cli.demo.overlay import DemoNode
from canopy.cli.demo.plan import TELEMETRY, DemoError, PlanError, tour_wanted
from canopy.cli.demo.tour import crossings
from canopy.traces.analysis.report import told


def test_the_default_demo_has_a_tour_and_small_ones_or_those_of_users_do_not() -> None:
    assert tour_wanted(None, TELEMETRY, 12, own=False)
    assert not tour_wanted(None, TELEMETRY, 7, own=False)
    assert not tour_wanted(None, TELEMETRY, 12, own=True)
    assert not tour_wanted(None, "usgs", 12, own=False)
    assert tour_wanted(True, "usgs", 12, own=True)
    assert not tour_wanted(False, TELEMETRY, 12, own=False)
    with pytest.raises(PlanError, match="8 nodes or more, not 3"):
        tour_wanted(True, TELEMETRY, 3, own=False)


def test_messages_between_regions_are_counted_of_the_news_alone(tmp_path: Path) -> None:
    def record(kind: str, event: str, node: str, **more: object) -> str:
        return json.dumps({"kind": kind, "event": event, "node": node, **more})

    (tmp_path / "north.jsonl").write_text(
        "\n".join(
            (
                record("publish", "a.1.1", "a", attributes={"tour_news": 1}),
                record("publish", "a.1.2", "a", attributes={"other": 1}),
                record("visit", "a.1.1", "a", peer="c"),  # in the north
                record("visit", "a.1.2", "a", peer="b"),  # no news
                record("forward", "a.1.1", "c", peer="b"),
                "",
            )
        )
    )
    (tmp_path / "south.jsonl").write_text(
        record("forward", "a.1.1", "b", peer="d") + "\n" + record("arrive", "a.1.1", "b", peer="c")
    )
    assert crossings(tmp_path, {"a": 0, "b": 1, "c": 2, "d": 3}) == 1


def test_a_node_that_is_killed_on_purpose_is_no_node_that_died(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    node = DemoNode(0, tmp_path, {"A": "1"})
    node.log.write_text("")

    class Ended:
        def poll(self) -> int:
            return -9

    node.process = Ended()  # type: ignore[assignment]
    with pytest.raises(DemoError, match="ended by itself"):
        node.check()
    node.is_lost = True
    node.check()


def test_the_report_tells_what_was_shown() -> None:
    assert told(()) == ""
    page = told([("A <tree>", "It was cut & served.")])
    assert "<dt>A &lt;tree&gt;</dt><dd>It was cut &amp; served.</dd>" in page
