"""P6 at the host: at once while it keeps up, the most urgent first while it is behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.overlays import settings
from matching import EVERYTHING
from overlay.links.events import LinkCongested, LinkRelieved
from overlay.machine import ProtocolError
from overlay.reports import Reports
from overlay.settings import Settings
from overlay.upper_tree.host.constants import (
    EVENTS_MOST,
    HELD_BACK_CHECK,
    MATCH_AT_ONCE,
    SLICE_BYTES,
    SLICE_CALM,
    SLICE_FIRST,
    SLICE_SECONDS,
)
from overlay.upper_tree.host.visit_scheduler import MatchDue
from overlay.upper_tree.host_load import PERIOD, LoadMeter
from overlay.upper_tree.messages import Assign, Deliver, Install, Registration, Visit
from tests.support.trees import HostNode, event
from tests.support.world import one_node, peer

OWNER, PUB, S = peer("owner"), peer("pub"), peer("s")
FIFO = settings(tree={"priority": False})


def host(chosen: Settings | None = None) -> HostNode:
    """A host of the whole tree `type`, with a subscriber of `hot` (level 1) and `cold` (5)."""
    node = HostNode(one_node("h"), chosen or Settings()).lease()
    wishes = [("hot", 1), ("cold", 5), ("none", 0)]
    made = tuple(
        Registration(f"s/{n}", "type", S, f"type = '{name}'", EVERYTHING, level)
        for n, (name, level) in enumerate(wishes)
    )
    node.port.hear(Install("type", 1, made), OWNER)
    node.port.hear(Assign("type", (1, 1), (EVERYTHING,), 1, ()), OWNER)
    return node


def visit(node: HostNode, first: int, *kinds: str) -> None:
    events = tuple(event(first + n, type=kind) for n, kind in enumerate(kinds))
    node.port.hear(Visit(PUB, 1, ("type",), events), PUB)


def served(node: HostNode) -> list[int]:
    """Sequences in the order of their delivery since the last look."""
    return [e.sequence for message in node.port.take(Deliver) for e in message.events]


def busy(node: HostNode) -> None:
    """A first event, whose matching has taken a millisecond when the next come."""
    visit(node, 0, "cold")
    node.port.world.jump(0.001)
    assert served(node) == [0]


def tick(node: HostNode) -> None:
    """The alarm that is due."""
    assert node.port.timers[MatchDue()] <= node.port.now
    node.port.fire(MatchDue())


def accepted(node: HostNode) -> list[int]:
    """Sequences in the order of their acceptance since the last look."""
    return [s for m in node.accepted() for _, sequences in m.taken for s in sequences]


def works(node: HostNode, cost: float) -> None:
    """The host has matched events that took so many seconds each."""
    for number in range(40):
        visit(node, 1_000_000 + number, "none")
        node.port.world.jump(cost)
        if MatchDue() in node.port.timers:
            tick(node)
    node.port.world.jump(1.0)
    assert len(accepted(node)) == 40
    served(node)


def test_a_host_that_keeps_up_matches_at_once_and_times_one_event_in_a_while() -> None:
    node, timed = host(), []
    for number in range(10):
        visit(node, number, "none")
        assert accepted(node) == [number]
        node.port.world.jump(0.0001)
        if MatchDue() in node.port.timers:
            tick(node)
            timed.append(number)
        node.port.world.jump(0.0051)
    assert timed == [0, 4, 8]
    assert node.port.counts["visits_queued"] == 0


def test_the_urgent_overtake_where_a_host_is_behind() -> None:
    node = host()
    busy(node)
    visit(node, 1, "cold", "none")
    visit(node, 3, "none", "hot")
    assert served(node) == []
    tick(node)
    assert served(node) == [4, 2, 3, 1]  # who names no level is in the middle
    assert node.port.counts["visits_queued"] == 4


def test_an_event_has_the_most_urgent_level_of_the_trees_that_it_visits() -> None:
    node = host()
    urgent = Registration("s/9", "x", S, "x > 0 AND type = 'cold'", EVERYTHING, 1)
    node.port.hear(Install("x", 1, (urgent,)), OWNER)
    node.port.hear(Assign("x", (1, 1), (EVERYTHING,), 1, ()), OWNER)
    busy(node)
    visit(node, 1, "none")
    both = Visit(PUB, 1, ("type", "x"), (event(2, type="cold", x=1),))
    node.port.hear(both, PUB)
    tick(node)
    assert served(node) == [2, 1]


def test_without_priority_it_is_first_in_first_out() -> None:
    node = host(FIFO)
    busy(node)
    visit(node, 1, "cold", "cold")
    visit(node, 3, "hot")
    tick(node)
    assert served(node) == [1, 2, 3]


def test_every_event_is_accepted_once() -> None:
    node = host()
    busy(node)
    visit(node, 1, "cold", "hot", "none")
    tick(node)
    assert sorted(accepted(node)) == [0, 1, 2, 3]


def test_what_waits_ages() -> None:
    node = host(settings(tree={"ageing": 0.1}))
    busy(node)
    visit(node, 1, "cold")
    node.port.world.jump(0.5)  # four levels and more
    visit(node, 2, "hot")
    while len(node.hosting.scheduler.queue):
        tick(node)
    assert served(node) == [1, 2]


def test_a_slice_is_a_part_of_what_waits_so_that_the_urgent_overtake_the_rest() -> None:
    node = host()
    busy(node)
    visit(node, 1, *["cold"] * 100)
    tick(node)
    assert served(node) == list(range(1, 26))
    visit(node, 500, "hot")
    tick(node)
    assert served(node)[0] == 500


def test_without_named_levels_a_slice_is_bounded_by_its_time() -> None:
    node = host()
    node.hosting.trees["type"].uninstall("s/0")
    node.hosting.trees["type"].uninstall("s/1")
    visit(node, 0, "none")
    node.port.world.jump(0.001)
    visit(node, 1, *["none"] * 100)
    tick(node)
    at_once = int(1_000 * SLICE_SECONDS)  # it has matched an event in a millisecond
    assert served(node) == list(range(1 + at_once))


def test_a_turn_serves_a_full_visit_at_once_and_lets_the_rest_wait() -> None:
    node = host()
    works(node, 1e-5)
    visit(node, 0, *["cold"] * MATCH_AT_ONCE)
    visit(node, 1_000, "hot")
    assert len(served(node)) == MATCH_AT_ONCE
    tick(node)
    assert served(node) == [1_000]


@pytest.mark.parametrize("cost", [None, 0.001, 0.003])
def test_an_idle_host_matches_of_a_large_visit_what_takes_no_longer_than_a_slice(
    cost: float | None,
) -> None:
    node = host()
    for urgent in ("s/0", "s/1"):
        node.hosting.trees["type"].uninstall(urgent)
    if cost is not None:
        works(node, cost)
    most = SLICE_FIRST if cost is None else max(SLICE_CALM, round(SLICE_SECONDS / cost))
    visit(node, 0, *["none"] * MATCH_AT_ONCE)
    assert node.port.counts["visits_queued"] == MATCH_AT_ONCE
    got: list[int] = []
    while len(node.hosting.scheduler.queue):
        tick(node)
        part = accepted(node)
        assert 0 < len(part) <= (most if cost or not got else MATCH_AT_ONCE)
        node.port.world.jump(len(part) * (cost or 0.001))
        got += part
    assert got == list(range(MATCH_AT_ONCE))


def test_a_full_queue_serves_its_most_urgent_and_loses_nothing() -> None:
    node = host()
    busy(node)
    count = EVENTS_MOST // 256
    for number in range(count):
        visit(node, 1 + 256 * number, *["cold"] * 255, "hot")
    assert served(node) == []
    visit(node, 100_000, "cold")
    assert node.port.counts["queue_full"] == 1
    got = served(node)
    assert got == [256]  # the first that is urgent
    assert node.hosting.scheduler.queue.events <= EVENTS_MOST
    while len(node.hosting.scheduler.queue):
        tick(node)
        node.port.world.jump(0.01)
        got += served(node)
    assert sorted(got) == [*range(1, 256 * count + 1), 100_000]


def test_a_tree_that_left_meanwhile_is_reported_as_moved() -> None:
    node = host()
    busy(node)
    visit(node, 1, "cold")
    node.port.hear(Assign("type", (1, 2), (), 0, ()), OWNER)
    tick(node)
    assert node.port.counts["visits_given_back"] == 1


def test_a_visit_that_lies_is_refused_when_it_comes() -> None:
    node = host()
    busy(node)
    with pytest.raises(ProtocolError):
        node.port.hear(Visit(PUB, 1, ("type",), (event(1, x=1),)), PUB)
    assert not len(node.hosting.scheduler.queue)


def test_a_host_that_leaves_matches_first_what_waits() -> None:
    node = host()
    quiet: Any = SimpleNamespace(
        left=True,
        waiting=0,
        ending=0,
        publisher=SimpleNamespace(unaccepted=0),
        settled=True,
        unacknowledged=lambda: 0,
        hosted=0,
    )
    reports = Reports(
        *(quiet, quiet, quiet, quiet, node.hosting), quiet, quiet, quiet, quiet, quiet
    )
    busy(node)
    visit(node, 1, "cold")
    assert reports.unfinished == {"visits": 1}
    tick(node)
    assert reports.unfinished == {}


def test_levels_end_with_their_registrations() -> None:
    node = host()
    tree = node.hosting.trees["type"]
    assert tree.latency.priority("hot") == 1
    tree.install([tree.registrations["s/0"]])  # installed again
    assert tree.latency.priority("hot") == 1
    tree.uninstall("s/0")
    assert tree.latency.priority("hot") is None


# --- what it says of itself ---


def test_the_service_rate_is_that_of_work_and_not_of_idleness() -> None:
    pacing = LoadMeter(0.0)
    assert pacing.service == 0
    for _ in range(5):
        pacing.worked(10, 0.02)  # whatever lies between
    assert pacing.service == pytest.approx(500)
    pacing.worked(10, 0.0)  # a clock that stands still says nothing
    pacing.worked(10, 30.0)  # nor does a process that was stopped
    assert pacing.service == pytest.approx(500)


def test_the_arrival_rate_follows_what_arrives() -> None:
    pacing = LoadMeter(0.0)
    now = 0.0
    for _ in range(400):
        now += 0.01
        pacing.arrived(2, now)
    assert pacing.report(7).arrival == pytest.approx(200, rel=0.05)
    pacing.arrived(1, now + 100 * PERIOD)
    assert pacing.report(7).arrival < 2
    assert pacing.report(7).queue == 7


def test_a_host_says_how_much_waits_only_while_something_does() -> None:
    node = host()
    assert node.hosting.scheduler.load is None
    busy(node)
    visit(node, 1, "cold", "cold")
    found = node.hosting.scheduler.load
    assert found is not None
    assert found.queue == 2


def test_publishers_are_informed_while_something_waits_behind_what_they_hear_of() -> None:
    node = host()
    busy(node)
    assert [m.pace for m in node.accepted()] == [None]
    visit(node, 1, *["cold"] * 12)
    node.port.world.jump(0.1)
    tick(node)
    (pace,) = [m.pace for m in node.accepted()]
    assert pace is not None
    assert pace.queue == 8
    assert pace.service > 0
    tick(node)
    tick(node)
    assert [m.pace for m in node.accepted()][-1] is None


def test_a_host_that_is_held_back_accepts_nothing_until_it_is_no_more() -> None:
    node = host()
    node.port.hear(LinkCongested(S))
    visit(node, 1, "cold")
    visit(node, 2, "cold")
    assert not node.accepted()
    node.port.advance(HELD_BACK_CHECK)
    assert not node.accepted(), "its publishers wait"
    node.port.hear(LinkRelieved(S))
    node.port.advance(HELD_BACK_CHECK)
    assert served(node) == [1, 2]
    assert [sequences for one in node.accepted() for _, sequences in one.taken] == [
        (1,),
        (2,),
    ]


def test_after_a_link_is_relieved_a_host_matches_a_slice_of_bytes_a_turn() -> None:
    node = host()
    node.port.hear(LinkCongested(S))
    large = 64 * 1024
    for first in (0, 20):
        events = tuple(event(first + n, type="cold", text="x" * large) for n in range(20))
        node.port.hear(Visit(PUB, 1, ("type",), events), PUB)
    node.port.hear(LinkRelieved(S))
    node.port.world.jump(HELD_BACK_CHECK)
    tick(node)
    taken = accepted(node)
    assert taken == list(range(len(taken)))
    assert 0 < len(taken) * large <= SLICE_BYTES
    node.port.hear(LinkCongested(S))  # which its deliveries brought about
    node.port.advance(HELD_BACK_CHECK)
    assert not accepted(node)
    node.port.hear(LinkRelieved(S))
    node.port.advance(HELD_BACK_CHECK)
    assert accepted(node) == list(range(len(taken), 40))


def test_a_host_that_is_held_back_with_a_full_queue_goes_on() -> None:
    node = host()
    node.port.hear(LinkCongested(S))
    for number in range(EVENTS_MOST + 10):
        visit(node, number, "cold")
    assert len(node.accepted()) == 10
    assert node.hosting.holding.held.events == 10, "held, since the link takes nothing"
