"""Programs hear of events that may be missing if these may have been for them."""

from __future__ import annotations

import pytest

from matching import compile_selector
from overlay.client import Dropped
from overlay.settings import Settings
from overlay.upper_tree.clients.constants import GAP_LASTS, NAMED_MOST
from overlay.upper_tree.clients.gap_reports import GapReports
from overlay.upper_tree.clients.low_water import LocalSubscription, LowWater
from overlay.upper_tree.events import DeliveriesMissed, HostsReplaced
from overlay.upper_tree.messages import DeliveriesGivenUp
from tests.support.world import WorldNode, one_node


class Node:
    """Programs 1 and 2 with subscriptions to x, y and, of 2 only, to events without z."""

    def __init__(self) -> None:
        self.port: WorldNode = one_node("me")
        self.start = self.port.now
        self.subscriptions: dict[str, LocalSubscription] = {}
        low_water = LowWater(self.port, Settings(), self.wall, lambda: None)
        self.reports = GapReports(self.port, self.subscriptions, low_water, self.wall)
        self.port.add(self.reports, low_water)
        self.add("x1", 1, "x > 1 AND y = 2")
        self.add("y1", 1, "y > 1")
        self.add("x2", 2, "x = 1 OR w LIKE 'a%'")

    def wall(self) -> float:
        return 1_000.0 + self.port.now - self.start

    def add(self, id_: str, client: int, selector: str, acknowledged: bool = True) -> None:
        predicate = compile_selector(selector)
        mine = LocalSubscription(id_, client, 1, "", predicate, False, acknowledged=acknowledged)
        self.subscriptions[id_] = mine

    def told(self, *attributes: str, lapsed_for: float | None = None) -> dict[int, Dropped]:
        """What each client hears of a notice about events with these attributes."""
        where = (4, "p.1.1", "p.1.9", 10.0, 20.0, "a reason")
        is_lapsed = lapsed_for is not None
        notice = DeliveriesGivenUp(*where, is_lapsed, lapsed_for or 0.0, attributes)
        self.port.hear(DeliveriesMissed(notice))
        return self.replies()

    def replies(self) -> dict[int, Dropped]:
        found, self.port.replies = self.port.replies, []
        return dict(found)


@pytest.mark.parametrize(
    ("attributes", "concerned"),
    [
        ((), {1: (), 2: ()}),
        (("y",), {1: ()}),
        (("x",), {1: ("x1",), 2: ()}),
        (("w", "type"), {2: ()}),
        (("type",), {}),
    ],
)
def test_who_may_miss_an_event_with_these_attributes_hears_of_it(
    attributes: tuple[str, ...], concerned: dict[int, tuple[str, ...]]
) -> None:
    told = Node().told(*attributes)
    assert {client: notice.subscriptions for client, notice in told.items()} == concerned
    for notice in told.values():
        assert (notice.count, notice.first, notice.last) == (4, "p.1.1", "p.1.9")
        assert (notice.since, notice.until) == (10.0, 20.0)


def test_a_conjunction_that_needs_no_attribute_may_miss_any_event() -> None:
    node = Node()
    node.add("any", 3, "z IS NULL")
    assert list(node.told("type")) == [3]


def test_a_subscription_that_was_not_acknowledged_misses_nothing() -> None:
    node = Node()
    node.add("early", 3, "type = 'a'", acknowledged=False)
    assert not node.told("type")


def test_very_many_subscriptions_are_not_named() -> None:
    node = Node()
    for number in range(NAMED_MOST + 1):
        node.add(f"v{number}", 1, f"v > {number}")
    assert node.told("v")[1].subscriptions == ()


def test_a_gap_in_matching_has_its_beginning_and_is_reported_until_it_is_over() -> None:
    node = Node()
    told = node.told("y", lapsed_for=6.0)
    assert (told[1].code, told[1].seconds, list(told)) == ("lapsed", 6.0, [1])
    node.port.advance(1.0)
    assert set(node.told("w", lapsed_for=2.0)) == {2}
    node.port.advance(GAP_LASTS - 1.0)
    over = node.replies()
    assert set(over) == {1, 2}, "those of either notice"
    assert over[1].seconds == pytest.approx(6.0 + GAP_LASTS), "since the earlier one began"
    node.port.advance(2 * GAP_LASTS)
    assert not node.replies()


def test_where_a_gap_began_is_not_known_if_one_notice_does_not_know_it() -> None:
    node = Node()
    assert node.told("y", lapsed_for=6.0)[1].seconds == 6.0
    assert node.told(lapsed_for=0.0)[1].seconds == 0.0
    node.port.advance(GAP_LASTS)
    assert [notice.seconds for notice in node.replies().values()] == [0.0, 0.0]


def test_a_program_that_comes_back_hears_what_was_told_since_its_last_mark() -> None:
    node = Node()
    node.told("y")
    node.port.advance(10.0)
    node.told("x")
    node.port.advance(1.0)
    told = node.told("y", lapsed_for=6.0)
    assert told[1].seconds == 6.0
    node.port.advance(5.0)
    for number, since in enumerate((0.0, 1_005.0)):
        node.add(f"z{number}", 3 + number, "y = 7")
        mine = node.subscriptions[f"z{number}"]
        mine.since = since
        node.reports.acknowledged(mine)
    found = node.port.replies
    assert [client for client, _ in found] == [4], "the first is new; x does not concern the other"
    assert [(one.code, one.seconds) for _, one in found] == [("lapsed", 11.0)], "so long ago by now"
    assert found[0][1].subscriptions == ("z1",)


def test_programs_hear_of_hosts_that_were_lost_while_their_node_stood_still() -> None:
    node = Node()
    node.port.hear(HostsReplaced(("w",), 20.0))
    told = node.replies()
    assert {client: (one.code, one.seconds) for client, one in told.items()} == {
        2: ("lapsed", 20.0)
    }
