"""C6: which of a virtual node's hosts a publisher visits, and what it does about silent ones."""

from __future__ import annotations

from collections import Counter

import pytest

from matching import EVERYTHING
from overlay.links.events import LinkDown
from overlay.machine import Peer
from overlay.upper_tree.host_load import HostLoad
from overlay.upper_tree.messages import Accepted, Location, Visit
from overlay.upper_tree.partition import ranked
from overlay.upper_tree.publisher.constants import WAIT_FACTOR, WAIT_HALF_LIFE, WAIT_MOST
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.replicas import (
    SILENT_FOR,
    SUSPICIONS_MOST,
    TIMEOUT_FIRST,
    TIMEOUT_LEAST,
    ReplicaSelector,
)
from tests.support.world import peer
from tests.upper_tree.publisher.test_tree_publisher import Rig

ABC = tuple(map(peer, "abc"))
RETRY = 3.0


def order(rig: Rig) -> list[str]:
    return [host.id for host in ranked(rig.locations.replicas.me, ABC)]


def knowing(*attributes: str) -> Rig:
    rig = Rig()
    for attribute in attributes:
        rig.locations.learn(Location(attribute, (1, 1), EVERYTHING, ABC))
    return rig


def to(rig: Rig) -> list[str]:
    return [host for host, _ in rig.port.sent_to(Visit)]


# --- choosing ---


def test_publishers_spread_over_the_hosts_and_each_has_its_own() -> None:
    first = Counter(ranked(f"node{n}", ABC)[0].id for n in range(300))
    assert sorted(first) == ["a", "b", "c"]
    assert min(first.values()) > 60
    assert ranked("node1", ABC) == ranked("node1", ABC[::-1])


def test_a_host_comes_first_for_itself() -> None:
    assert {ranked(name, ABC)[0].id for name in "abc"} == set("abc")
    assert all(ranked(name, ABC)[0].id == name for name in "abc")


def test_a_publisher_takes_the_nearest_host_and_another_where_it_is_silent() -> None:
    """M1: its events reach its own region without crossing a border."""
    regions = {"a": "us", "b": "eu/fr", "c": "eu/de", "d": ""}
    hosts = [Peer(name, "", region) for name, region in regions.items()]
    replicas = ReplicaSelector("me", RETRY, region="eu/de")
    order = [each.id for each in ranked("me", hosts, "eu/de")]
    assert order[0] == "c"
    assert order[-1] == "a"
    assert replicas.choose("x", hosts).id == "c"
    replicas.suspect_silent("c", 0.0)
    assert replicas.choose("x", hosts).id == order[1]
    assert ReplicaSelector("a", RETRY, region="eu/de").choose("x", hosts).id == "a", "itself"


def test_one_visit_for_all_trees_that_share_their_hosts() -> None:
    rig = knowing("x", "y")
    rig.publish({"x": 1, "y": 2})
    assert rig.visits() == [(order(rig)[0], ("x", "y"), [1])]


# --- silence ---


def test_a_silent_host_is_passed_over_at_once_for_the_next() -> None:
    rig = knowing("x")
    first, second, third = order(rig)
    rig.publish({"x": 1})
    rig.port.advance(TIMEOUT_FIRST * 0.9)
    assert to(rig) == [first]
    rig.port.advance(TIMEOUT_FIRST * 0.2)
    assert to(rig) == [second]
    rig.publish({"x": 2})
    assert to(rig) == [second], "the same silence is waited for once"
    rig.port.advance(TIMEOUT_FIRST * 1.1)
    assert rig.visits() == [(third, ("x",), [1, 2])]
    rig.accept(third, "x", 1, 2)
    assert rig.done() == [1, 2]


def test_a_host_that_accepts_something_is_only_slow() -> None:
    rig = knowing("x")
    first = order(rig)[0]
    rig.publish(*({"x": n} for n in range(9)))
    to(rig)
    for number in range(1, 9):
        rig.port.advance(TIMEOUT_FIRST * 0.8)
        rig.accept(first, "x", number)
    assert to(rig) == []


def test_the_owner_is_asked_when_no_replica_answers() -> None:
    rig = knowing("x")
    rig.publish({"x": 1})
    rig.port.advance(3 * TIMEOUT_FIRST + RETRY + 0.5)
    assert sorted(to(rig)[:3]) == ["a", "b", "c"]
    assert rig.finder.asked[:1] == ["x"]


def test_a_silent_host_is_tried_again_after_a_while_or_when_it_is_heard() -> None:
    rig = knowing("x")
    first, second, _ = order(rig)
    rig.publish({"x": 1})
    rig.port.advance(TIMEOUT_FIRST * 1.1)
    rig.accept(second, "x", 1)
    rig.accept(first, "x", 1)
    rig.port.sent.clear()
    rig.publish({"x": 2})
    assert to(rig) == [first]
    rig.port.advance(TIMEOUT_LEAST * 1.1)
    assert to(rig) == [second]
    rig.accept(second, "x", 2)
    rig.port.advance(SILENT_FOR)
    rig.publish({"x": 3})
    assert to(rig) == [first]


def test_a_lost_link_or_moved_leads_to_the_next_at_once() -> None:
    rig = knowing("x")
    first, second, third = order(rig)
    rig.publish({"x": 1})
    rig.port.hear(LinkDown(peer(first), "silent", False))
    rig.moved(second, "x", 1)
    assert to(rig) == [first, second, third]
    again = Location("x", (1, 1), EVERYTHING, ABC)
    rig.locations.learn(again)
    rig.publish({"x": 2})
    assert to(rig) == [third], "it is not forgotten when they are named once more"


def test_patience_follows_what_hosts_take() -> None:
    found = ReplicaSelector("me", RETRY)
    assert found.timeout == TIMEOUT_FIRST
    for _ in range(100):
        found.accepted("a", 0.01, 0.0)
    assert found.timeout == TIMEOUT_LEAST
    for _ in range(100):
        found.accepted("a", 0.4, 0.0)
    assert 1.5 < found.timeout < 1.7
    for _ in range(100):
        found.accepted("a", 9.0, 0.0)
    assert found.timeout == RETRY


def test_doubts_are_bounded() -> None:
    found = ReplicaSelector("me", RETRY)
    for number in range(SUSPICIONS_MOST + 10):
        found.suspect_silent(f"n{number}", 0.0)
        found.accepted(f"m{number}", None, 0.0)
    assert len(found) == SUSPICIONS_MOST
    assert len(found._heard_at) == SUSPICIONS_MOST


def test_what_is_known_of_a_tree_names_the_other_hosts_when_one_is_gone() -> None:
    known = LocationCache(10, ReplicaSelector("me", RETRY))
    known.learn(Location("x", (1, 1), EVERYTHING, ABC))
    known.forget_node("a")
    known.forget("x", "b")
    tree = known.tree("x")
    assert tree is not None
    assert tree.only_host == peer("c")
    known.forget_node("c")
    assert not tree.is_known


# --- hosts that are behind ---


def behind(rig: Rig, node: str, queue: int) -> None:
    rig.port.hear(Accepted(7, (), (), HostLoad(0.0, 300.0, queue)), peer(node))


def test_what_waits_too_long_at_a_host_that_is_behind_goes_to_another() -> None:
    """The owner is not asked, and what is published meanwhile does not wait for its answer."""
    rig = knowing("x")
    first, second, _ = order(rig)
    rig.publish({"x": 1})
    assert to(rig) == [first]
    for _ in range(11):
        rig.port.advance(RETRY / 10)
        behind(rig, first, 1_000)  # it does something
    assert rig.visits() == [(second, ("x",), [1])]
    assert rig.finder.asked == []
    rig.publish({"x": 2})
    assert to(rig) == [second]


def test_many_events_are_spread_over_hosts_while_one_is_behind() -> None:
    """What waited for room, or for a host, comes together; it is divided into what a host does
    within a tenth of a second, or a batch's worth."""
    rig = knowing("x")
    first, second, third = order(rig)
    behind(rig, first, 1_000)
    rig.publish(*({"x": n} for n in range(60)))
    assert [(host, len(events)) for host, _, events in rig.visits()] == [(second, 30), (third, 30)]


@pytest.mark.parametrize(("rate", "events"), [(0.0, 64), (1_000.0, 64), (10_000.0, 200)])
def test_no_part_is_so_small_that_its_frames_cost_more_than_its_events(
    rate: float, events: int
) -> None:
    rig = knowing("x")
    first, *_ = order(rig)
    rig.port.hear(Accepted(7, (), (), HostLoad(0.0, rate, 1_000_000)), peer(first))
    rig.publish(*({"x": n} for n in range(250)))
    assert len(rig.visits()[0][2]) == events


def test_what_only_one_host_may_have_is_not_divided() -> None:
    rig = Rig()
    rig.locations.learn(Location("x", (1, 1), EVERYTHING, ABC[:1]))
    behind(rig, "a", 1_000)
    rig.publish(*({"x": n} for n in range(60)))
    assert [(host, len(events)) for host, _, events in rig.visits()] == [("a", 60)]


def test_many_events_are_one_visit_while_nothing_waits() -> None:
    rig = knowing("x")
    rig.publish(*({"x": n} for n in range(12)))
    assert [len(events) for _, _, events in rig.visits()] == [12]


def test_what_waits_at_a_host_that_works_is_not_sent_again() -> None:
    """Hosts that are all far behind are asked once for each event; a silent one is left."""
    rig = knowing("x")
    rig.publish({"x": 1})
    (first,) = to(rig)
    for _ in range(40):
        rig.port.advance(0.25)
        for host in ABC:
            behind(rig, host.id, 6_000)  # 20 s
    assert to(rig) == []
    assert rig.port.counts["visits_retried"] == rig.port.counts["visits_elsewhere"] == 0
    rig.port.advance(RETRY + 0.1)
    assert to(rig)[0] != first


def test_what_a_working_host_has_for_too_long_is_sent_again() -> None:
    """It may have been lost on its way beyond that host."""
    rig = knowing("x")
    rig.publish({"x": 1})
    assert len(to(rig)) == 1
    for _ in range(round(WAIT_FACTOR * 5.0 / 0.25) - 1):
        rig.port.advance(0.25)
        for host in ABC:
            behind(rig, host.id, 1_500)  # 5 s
    assert to(rig) == rig.finder.asked == []
    for _ in range(round(2 * WAIT_HALF_LIFE / 0.25)):
        rig.port.advance(0.25)
        for host in ABC:
            behind(rig, host.id, 150)
    assert rig.finder.asked == ["x"]


def test_how_long_events_take_is_learnt_from_acceptances_too() -> None:
    replicas = ReplicaSelector("me", RETRY)
    assert replicas.late_after("a") == RETRY
    replicas.accepted("a", 4.0, 10.0)
    assert replicas.late_after("a") == WAIT_FACTOR * 4.0
    replicas.accepted("a", 0.1, 10.0 + WAIT_HALF_LIFE)
    assert replicas.late_after("a") == WAIT_FACTOR * 2.0
    replicas.waits("a", 20.0, HostLoad(1.0, 0.001, 1_000_000))
    assert replicas.late_after("a") == WAIT_MOST
