"""Up to when deliveries are complete, as a node tells its programs."""

from __future__ import annotations

from overlay.client import CompleteUntil
from overlay.links.events import LinkDown, LinkUp, LocalStall, SessionEnd
from overlay.settings import Settings
from overlay.upper_tree.clients.constants import LOST_FOR, MARK_PERIOD, SETTLES, SLACK
from overlay.upper_tree.clients.low_water import LowWater, MarkDue
from tests.support.world import WorldNode, one_node, peer

LAG = Settings().links.dead_after + SLACK

EPOCH = 1_000.0


class Node:
    """A node with one program that wants marks."""

    def __init__(self) -> None:
        self.port: WorldNode = one_node("me")
        self.start = self.port.now
        self.ahead = EPOCH - self.start
        self.unconfirmed: float | None = None
        self.water = LowWater(
            self.port, Settings(), lambda: self.ahead + self.port.now, lambda: self.unconfirmed
        )
        self.port.add(self.water)
        self.water.follow(1)

    def told(self, seconds: float = MARK_PERIOD) -> list[float]:
        """The marks of that time, in seconds since the start."""
        self.port.advance(seconds)
        found, self.port.replies = self.port.replies, []
        assert all(client == 1 and isinstance(one, CompleteUntil) for client, one in found)
        return [one.until - EPOCH for _, one in found]

    @property
    def now(self) -> float:
        return self.port.now - self.start

    def down(self, name: str, end: SessionEnd, left: bool = False) -> None:
        self.port.hear(LinkDown(peer(name), "a reason", left, (), end))


def test_what_is_not_under_way_any_more_is_complete() -> None:
    node = Node()
    assert node.told(3 * MARK_PERIOD) == [n * MARK_PERIOD - LAG for n in (1, 2, 3)]
    node.water.forget(1)
    assert node.told(60.0) == []
    node.water.follow(1)
    start = node.now
    assert node.told() == [start + MARK_PERIOD - LAG]


def test_a_node_that_stood_still_is_behind_until_what_was_held_has_come() -> None:
    node = Node()
    node.told(20.0)
    node.port.hear(LocalStall(12.0))  # from 8 to 20
    assert node.told() == [20.0 - 12.0 - LAG]
    assert node.told(SETTLES) == [22.0, 27.0]


def test_a_mark_that_is_late_itself_tells_of_no_time_in_which_the_node_stood_still() -> None:
    node = Node()
    node.told(20.0)
    due = node.port.timers.pop(MarkDue())
    assert node.told(17.0) == []
    node.port.timers[MarkDue()] = due
    assert node.port.fire(MarkDue())
    assert node.told(0.0) == [due - node.start - LAG], (
        "it was to be told at 25 s, and no later than that"
    )


def test_a_node_out_of_reach_may_hold_something_until_shortly_after_it_is_back() -> None:
    node = Node()
    node.told(20.0)
    node.down("h", SessionEnd.UNREACHABLE)
    assert node.told(100.0)[-1] == 20.0 - LAG
    node.port.hear(LinkUp(peer("h"), True))
    assert node.told()[-1] == 20.0 - LAG
    assert node.told(SETTLES)[-1] == node.now - LAG
    node.down("h", SessionEnd.RESET)
    at = node.now
    assert node.told()[-1] == at - LAG
    assert node.told(SETTLES)[-1] == node.now - LAG


def test_nodes_that_have_ended_hold_nothing_and_no_node_does_for_ever() -> None:
    node = Node()
    node.told(20.0)
    for name in ("gone", "left", "away"):
        node.down(name, SessionEnd.UNREACHABLE)
    node.down("gone", SessionEnd.GONE)
    node.down("left", SessionEnd.UNREACHABLE, left=True)
    assert node.told(30.0)[-1] == 20.0 - LAG, "of the third"
    assert node.told(LOST_FOR)[-1] == node.now - LAG


def test_unconfirmed_leases_and_what_is_reported_hold_the_mark() -> None:
    node = Node()
    node.told(60.0)
    node.unconfirmed = node.start + 31.0
    assert node.told() == [31.0]
    node.unconfirmed = None
    node.water.hinder("a subscription", node.start + 40.0)
    assert node.told() == [40.0]
    node.water.hinder("a subscription", node.start + 35.0)
    node.water.cease("a subscription")
    assert node.told() == [35.0]
    assert node.told(SETTLES)[-1] == node.now - LAG


def test_where_the_wall_clock_is_set_the_mark_is_the_earlier_of_both_settings() -> None:
    node = Node()
    node.told(20.0)
    node.ahead += 3_600.0
    (mark,) = node.told()
    assert mark == node.now - LAG, "what is stamped by the former setting is not left out"
    assert node.told(20.0)[-1] == node.now - LAG + 3_600.0
    node.ahead -= 7_200.0
    (mark,) = node.told()
    assert mark == node.now - LAG - 3_600.0
