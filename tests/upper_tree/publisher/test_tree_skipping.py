"""C9: visits that a publisher skips, and those that go together."""

from __future__ import annotations

from harness.overlays import settings
from matching import compile_selector
from overlay.upper_tree.events import TreeFound
from overlay.upper_tree.messages import TreeSummary
from tests.support.summaries import summarise
from tests.upper_tree.publisher.test_tree_publisher import Rig


def outline(rig: Rig, attribute: str, selector: str) -> None:
    found = summarise(compile_selector(selector).conjunctions, 8)
    now = rig.port.now
    rig.locations.learn_summary(TreeSummary(attribute, 7, found), now + 10, 1, now)


def test_a_tree_that_cannot_want_the_event_is_not_visited() -> None:
    rig = Rig()
    rig.know("x", "hx")
    rig.know("y", "hy")
    outline(rig, "x", "x > 5 AND z = 1")
    rig.publish({"x": 6, "y": 1}, {"x": 6, "y": 1, "z": 1})
    assert [v for v in rig.visits() if v[0] == "hx"] == [("hx", ("x",), [2])]
    assert rig.port.counts["visits_skipped"] == 1
    rig.accept("hy", "y", 1)
    assert rig.done() == [1]


def test_a_tree_here_is_visited_whatever_its_summary_says() -> None:
    rig = Rig()
    rig.know("x", "pub")
    outline(rig, "x", "x > 5")
    rig.publish({"x": 1})
    assert len(rig.visits()) == 1


def test_the_owner_is_asked_for_the_summaries_of_trees_elsewhere() -> None:
    rig = Rig()
    rig.know("x", "hx")
    rig.know("y", "pub")
    rig.publish({"x": 1, "y": 1})
    rig.publish({"x": 2, "y": 1})
    assert rig.finder.summaries_asked == ["x"]


def test_counting_knows_no_summaries() -> None:
    rig = Rig(settings(tree={"routing": "counting"}))
    rig.know("x", "hx")
    outline(rig, "x", "x > 5")
    rig.publish({"x": 1})
    assert len(rig.visits()) == 1
    assert rig.finder.summaries_asked == []


def test_trees_found_in_one_turn_are_visited_together() -> None:
    rig = Rig()
    rig.publish({"x": 1, "y": 1})
    for name in "xy":
        rig.know(name, "h")
        rig.port.emit(TreeFound(name))
    rig.port.turn()
    assert rig.visits() == [("h", ("x", "y"), [1])]
