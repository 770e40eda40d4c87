"""What happened to nodes in a made-up run: incidents of the report, and ends of subscriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from overlay.chord.epochs import FORK
from tests.support.traces.runs import (
    ABOVE_5,
    EVIL,
    START,
    Analysed,
    Overlay,
    analysed,
)

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def eventful(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    """Incidents that several nodes saw, and later one node that was killed and one that slept; and
    two nodes more, one of which is killed and started again."""
    folder = tmp_path_factory.mktemp("eventful")
    o = Overlay(folder / "traces", 4)
    mine = o.subscribe(1, ABOVE_5, "mine", "a > 5")
    o.wait(1)
    event = o.publish(0, {"a": 9})
    o.route(event, 1, "a", [1])
    o.deliver(event, mine, 2.0)
    for name, what, wait in (
        (1, "silent", 0.1),
        (2, "silent", 0.5),
        (1, "elected", 0.1),
        (2, "elected", 0.1),
        (3, "link down", 30.0),
        (3, "link down", 0.1),
        (1, "role", 0.1),
    ):
        o.write(
            o.names[name],
            "incident",
            what=what,
            peer=o.names[0],
            name="c" * 40 if what != "link down" else "",
            epoch=FORK + 3,
            reason=f"in place of {o.names[2]} {EVIL}",
        )
        o.wait(wait)
    above = ["cmp", ">", ["attr", "b"], ["lit", 5]]
    killed = o.subscribe(1, above, "killed", "b > 5")
    asleep = o.subscribe(2, above, "asleep", "b > 5")
    o.wait(10)
    first = o.publish(0, {"b": 9})
    o.route(first, 3, "b", [1, 2])
    o.deliver(first, killed, 2.0)
    o.deliver(first, asleep, 2.0)
    o.wait(20)
    o.write(o.names[1], "ready")  # its last record
    o.wait(20)
    for node in (1, 2):
        o.write(o.names[3], "incident", what="link down", peer=o.names[node], reason="silent")
    second = o.publish(0, {"b": 8})
    o.wait(20)
    o.deliver(second, asleep, 20_000.0)
    o.stop(kill=1)
    restarted_run(folder / "traces")
    return analysed(spark, o, folder / "report")


def restarted_run(folder: Path) -> None:
    """The loss of a node that is killed and started again, and subscribes again, is reported by no
    other. What the former process was owed before its last record is missing."""
    o = Overlay(folder, 2, first=0xC0)
    above = ["cmp", ">", ["attr", "c"], ["lit", 5]]
    former = o.subscribe(1, above, "former", "c > 5")
    o.wait(5)
    o.deliver(o.publish(0, {"c": 6}), former, 2.0, "c")
    o.publish(0, {"c": 6})
    o.wait(5)
    o.write(o.names[1], "ready")  # the last record of the process that is killed
    o.wait(5)
    o.publish(0, {"c": 7})  # while the node is away
    o.wait(5)
    o.restart(1)
    later = o.subscribe(1, above, "later", "c > 5")
    o.wait(5)
    for _ in range(3):
        o.deliver(o.publish(0, {"c": 8}), later, 2.0, "c")
    o.wait(5)
    o.stop()


def test_what_several_nodes_saw_is_one_incident_of_the_report(eventful: Analysed) -> None:
    page = (eventful.out / "report.html").read_text()
    assert "What happened" in page
    assert page.count("<td>elected</td>") == 1
    assert page.count("<td>silent</td>") == 1 + 2  # the incident, and the reason of two others
    assert page.count("<td>link down</td>") == 2 + 2  # half a minute apart; two nodes
    assert page.count("<circle") == 6
    assert "<td>2 nodes</td>" in page
    assert f"<td>cccccccc, {FORK + 3}</td>" in page
    assert "connections to 3 nodes were lost, and clusters elected a primary 1 time" in page
    assert "in place of node-2" in page
    assert EVIL not in page


def test_a_subscription_ends_with_the_process_of_its_node_and_not_with_one_that_slept(
    eventful: Analysed, spark: Any
) -> None:
    rows = {row["name"]: row for row in eventful.table(spark, "subscriptions")}
    assert {name: (row["expected"], row["missing"]) for name, row in rows.items()} == {
        "mine": (1, 0),
        "killed": (1, 0),
        "asleep": (2, 0),
        "former": (2, 1),
        "later": (3, 0),
    }
    assert 10 < rows["former"]["ended"] - START < 11
    assert rows["later"]["ended"] - START > 30
    assert (eventful.summary.expected, eventful.summary.missing) == (9, 1)
    assert not eventful.summary.exact
