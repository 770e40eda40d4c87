"""A publisher learns where trees are once, again when that changes, and at times."""

from __future__ import annotations

import pytest

from matching import BOTTOM, TOP, Interval
from overlay.upper_tree.host import acceptances
from overlay.upper_tree.host.constants import ANNOUNCE_AGAIN
from overlay.upper_tree.host.visit_scheduler import MatchDue
from overlay.upper_tree.messages import Visit
from tests.support.trees import HostNode, event
from tests.support.world import peer
from tests.upper_tree.host.test_tree_visiting import HIGH, LOW, MIDDLE, assign, host

WHOLE = Interval(BOTTOM, TOP)


def announced(node: HostNode, publisher: str, **attributes: int) -> list[tuple[str, Interval]]:
    """What the acceptance of an event says of trees."""
    visit = Visit(peer(publisher), 1, tuple(attributes), (event(1, publisher, **attributes),))
    node.port.hear(visit, peer(publisher))
    node.port.hear(MatchDue())
    (accepted,) = node.accepted()
    return [(location.attribute, location.interval) for location in accepted.locations]


def test_a_publisher_learns_what_is_new_to_it() -> None:
    node = host()
    assign(node, "x", LOW, MIDDLE, HIGH)
    assign(node, "y", LOW)
    assert announced(node, "p", x=1) == [("x", WHOLE)]
    assert announced(node, "p", x=2) == []
    assert announced(node, "p", x=2, y=1) == [("y", LOW)]
    assert announced(node, "q", x=1, y=1) == [("x", WHOLE), ("y", LOW)]


def test_it_is_announced_again_when_the_map_changes_and_after_a_while() -> None:
    node = host()
    assign(node, "x", LOW, MIDDLE, HIGH)
    assert announced(node, "p", x=1) == [("x", WHOLE)]
    assign(node, "x", LOW, version=2)
    assert announced(node, "p", x=1) == [("x", LOW)]
    assert announced(node, "p", x=1) == []
    node.port.world.jump(ANNOUNCE_AGAIN + 0.1)
    assert announced(node, "p", x=1) == [("x", LOW)]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptances, "ANNOUNCED_MOST", 2)
    made = host()
    assign(made, "x", LOW, MIDDLE, HIGH)
    for name in "abc":
        assert announced(made, name, x=1) == [("x", WHOLE)]
    assert [announced(made, name, x=1) for name in "cba"] == [[], [], [("x", WHOLE)]]
