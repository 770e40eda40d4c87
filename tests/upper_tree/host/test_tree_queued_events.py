"""What waits at a host: once for each event, and its publisher knows."""

from __future__ import annotations

import pytest

from overlay.upper_tree.delivery.hold import Holding
from overlay.upper_tree.host.constants import WAITING_WORD
from overlay.upper_tree.host.visit_scheduler import MatchDue, QueuedEvents
from overlay.upper_tree.messages import Visit
from tests.support.trees import event
from tests.support.world import peer
from tests.upper_tree.host.test_tree_scheduler import FIFO, accepted, busy, host, served, visit

PUB = peer("pub")


def test_an_event_that_waits_is_not_queued_again() -> None:
    node = host(FIFO)
    busy(node)
    visit(node, 1, "hot", "cold")
    visit(node, 1, "hot", "cold", "hot")  # sent again, with a new one
    visit(node, 2, "cold")
    assert len(node.hosting.scheduler.queue) == 2
    assert node.port.counts["visits_repeated"] == 3
    node.port.fire(MatchDue())
    assert served(node) == [1, 2, 3]
    assert sorted(accepted(node)) == [0, 1, 2, 3]
    node.port.world.jump(0.001)
    visit(node, 2, "cold")  # it waits no longer: perhaps the answer was lost
    node.port.fire(MatchDue())
    assert served(node) == [2]


def test_events_are_the_same_in_all_that_they_have_and_for_the_same_trees() -> None:
    queued = QueuedEvents()
    one = event(1, x=1, y=2)
    queued.add(Visit(PUB, 1, ("x", "y"), (one,)), 0.0)

    def left(*visit: Visit) -> list[int]:
        return [len(queued.without_repeated(each).events) for each in visit]

    assert left(Visit(PUB, 1, ("x", "y"), (one,)), Visit(PUB, 2, ("y",), (one,))) == [0, 0]
    other, forged = event(2, x=1, y=2), event(1, x=1, y=3)
    assert left(Visit(PUB, 1, ("x", "y"), (other,)), Visit(PUB, 1, ("x",), (forged,))) == [1, 1]
    assert left(Visit(PUB, 1, ("x", "z"), (one,)), Visit(peer("p"), 1, ("x",), (one,))) == [1, 1]
    apart = Visit(PUB, 1, ("z",), (one, other), ((("x",), (0,)),))
    assert [each.sequence for each in queued.without_repeated(apart).events] == [2]
    queued.remove(Visit(PUB, 1, ("x", "y"), (one,)))
    assert len(queued) == 0
    assert left(Visit(PUB, 1, ("x",), (one,))) == [1]


def test_each_tree_of_an_event_counts_by_itself_in_counting_routing() -> None:
    queued = QueuedEvents()
    one = event(1, x=1, y=2)
    both = Visit(PUB, 1, ("x",), (one, one), ((("y",), (1,)),))
    assert queued.without_repeated(both) is both
    queued.add(both, 0.0)
    assert queued.without_repeated(both).events == ()


def test_a_publisher_of_which_something_waits_hears_so(monkeypatch: pytest.MonkeyPatch) -> None:
    node = host(FIFO)
    busy(node)
    visit(node, 1, *["cold"] * 4_000)
    accepted(node)
    monkeypatch.setattr(Holding, "holds_back", True)
    told = 0
    for _ in range(20):
        node.port.world.jump(WAITING_WORD / 4)
        node.port.fire(MatchDue())
        words = node.accepted()
        assert all(not word.taken and word.pace is not None for word in words)
        told += len(words)
    assert 20 / 4 - 1 <= told <= 20 / 2
    monkeypatch.setattr(Holding, "holds_back", False)
    for _ in range(8):
        node.port.world.jump(WAITING_WORD / 4)
        node.port.fire(MatchDue())
        assert all(word.taken for word in node.accepted()), "it hears of what is matched"
    assert len(node.hosting.scheduler.queue)
