"""Events that a host takes as one batch: matched once for all trees, or left to its receiver."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from matching import BOTTOM, EVERYTHING, TOP, Attributes, GroupedIndex, Interval, place, warm
from overlay.client import Event
from overlay.settings import Settings
from overlay.upper_tree.event_history import EventHistory
from overlay.upper_tree.events import Visited
from overlay.upper_tree.messages import Assign, Deliver, Entry, Install, Visit
from overlay.upper_tree.partition import PartitionMap
from overlay.upper_tree.subscriber.receiver import Arrived, Receiver
from tests.support.trees import HostNode, event, registration
from tests.support.world import one_node, peer

OWNER, PUB, S, T = peer("owner"), peer("pub"), peer("s"), peer("t")
LOW, MIDDLE, HIGH = (
    Interval(BOTTOM, place(10)),
    Interval(place(10), place(20)),
    Interval(place(20), TOP),
)


def host() -> HostNode:
    return HostNode(one_node("h"), Settings()).lease()


def assign(node: HostNode, attribute: str, *mine: Interval, version: int = 1) -> None:
    """Of the three virtual nodes these are ours, the rest is at `other`."""
    entries = tuple(
        Entry(i, (node.port.me if i in mine else peer("other"),)) for i in (LOW, MIDDLE, HIGH)
    )
    map_ = PartitionMap((1, version), entries)
    node.port.hear(Assign(attribute, (1, version), mine, 3, map_.slice_for("h")), OWNER)


def install(node: HostNode, id_: str, attribute: str, selector: str, who: str) -> None:
    made = registration(id_, attribute, selector, peer(who))
    node.port.hear(Install(attribute, 1, (made,)), OWNER)


def delivered(node: HostNode) -> list[tuple[str, list[int]]]:
    return [(to, [e.sequence for e in m.events]) for to, m in node.port.sent_to(Deliver)]


def test_what_a_tree_finds_that_the_event_does_not_visit_here_is_not_delivered() -> None:
    """The index is one for all trees: x is elsewhere for this value, and elsewhere delivers it."""
    node = host()
    assign(node, "x", LOW)
    assign(node, "y", LOW, MIDDLE, HIGH)
    install(node, "s/0", "x", "x > 1", "s")
    install(node, "t/0", "y", "y > 1", "t")
    both = event(1, x=50, y=5)
    node.port.hear(Visit(PUB, 1, ("y",), (both, event(2, x=5, y=0))), PUB)
    assert delivered(node) == [("t", [1])]
    node.port.hear(Visit(PUB, 1, ("x", "y"), (both, event(2, x=5, y=0))), PUB)
    assert sorted(delivered(node)) == [("s", [2]), ("t", [1])]
    assert [m.attributes for m in node.port.take(Visit)] == [("x",)]


def test_a_match_in_a_tree_that_is_not_visited_does_not_hide_another() -> None:
    node = host()
    assign(node, "x", LOW)
    assign(node, "y", LOW, MIDDLE, HIGH)
    install(node, "s/0", "x", "x > 1", "s")
    install(node, "s/1", "y", "y > 1", "s")
    node.port.hear(Visit(PUB, 1, ("y",), (event(1, x=50, y=5),)), PUB)
    assert delivered(node) == [("s", [1])]


def test_adjacent_virtual_nodes_are_one_place_for_the_publisher() -> None:
    node = host()
    assign(node, "x", LOW, MIDDLE)
    install(node, "s/0", "x", "x > 1", "s")
    node.port.hear(Visit(PUB, 1, ("x",), (event(1, x=5), event(2, x=15))), PUB)
    (accepted,) = [m for _, m in node.port.sent if type(m).__name__ == "Accepted"]
    assert [location.interval for location in accepted.locations] == [Interval(BOTTOM, place(20))]
    (message,) = node.port.take(Deliver)
    assert message.interval == Interval(BOTTOM, place(20))


@pytest.mark.parametrize("count", [30, 800])
def test_a_batch_finds_whom_brute_force_finds(count: int) -> None:
    """With the plain engine, and with the fast one."""
    warm()
    rng = random.Random(count)
    node = host()
    wanted: list[tuple[str, int, int, int]] = []
    for attribute in ("x", "y"):
        assign(node, attribute, LOW, MIDDLE, HIGH)
    for number in range(count):
        who, low = f"s{rng.randrange(5)}", rng.randrange(30)
        width, most = rng.randrange(1, 4), rng.randrange(30)
        wanted.append((who, low, low + width, most))
        selector = f"x BETWEEN {low} AND {low + width} AND y <= {most}"
        install(node, f"{who}/{number}", rng.choice("xy"), selector, who)
    node.port.advance(0.0)  # many are installed in several turns
    events = [event(n, x=rng.randrange(30), y=rng.randrange(30)) for n in range(60)]
    node.port.hear(Visit(PUB, 1, ("x", "y"), tuple(events)), PUB)
    node.port.advance(0.1)

    def due(made: Event) -> list[str]:
        x, y = made.attributes["x"], made.attributes["y"]
        assert isinstance(x, int)
        assert isinstance(y, int)
        return sorted({w for w, low, high, most in wanted if low <= x <= high and y <= most})

    found: dict[int, list[str]] = {made.sequence: [] for made in events}
    for to, message in node.port.sent_to(Deliver):
        for each in message.events:
            found[each.sequence].append(to)
    assert {n: sorted(names) for n, names in found.items()} == {e.sequence: due(e) for e in events}
    recorded = {made.identity: 0 for made in events}
    for record in node.port.traced("match"):
        recorded[record["event"]] += record["recipients"]
    assert recorded == {made.identity: len(due(made)) for made in events}
    in_vain = node.port.unmatched.total()
    assert len(node.port.traced("match")) + in_vain == len(events) * len(("x", "y"))
    assert node.port.alone == sum(not due(made) for made in events)


def test_matches_in_vain_are_counted_where_an_event_was_accepted() -> None:
    """Part of a tree is elsewhere, and what lies there is no match here."""
    node = host()
    assign(node, "x", LOW, MIDDLE)
    assign(node, "y", LOW, MIDDLE, HIGH)
    install(node, "s/0", "x", "x > 1 AND y > 1", "s")
    events = (event(1, x=5, y=5), event(2, x=50, y=0), event(3, x=5, y=0))
    node.port.hear(Visit(PUB, 1, ("x", "y"), events), PUB)
    matches = [(t["event"], t["attribute"], t["hi"]) for t in node.port.traced("match")]
    assert matches == [("pub.1.1", "x", "20")]
    assert node.port.unmatched == {"x": 1, "y": 3}
    assert node.port.alone == 2, "of the first there is a record"


@pytest.mark.parametrize("others", [False, True])
def test_records_of_a_match_come_from_the_one_that_was_made(
    monkeypatch: pytest.MonkeyPatch, others: bool
) -> None:
    """A batch is matched in one call, also for what is recorded of it."""
    calls: list[int] = []
    find = GroupedIndex.find_by_group

    def counted(self: Any, batch: Sequence[Attributes]) -> Any:
        calls.append(len(batch))
        return find(self, batch)

    def alone(self: Any, attributes: Attributes) -> Any:
        raise AssertionError("an event is matched by itself")

    home = Home()
    home.subscribe("a", "x > 1")
    if others:
        install(home.node, "s/0", "x", "x > 6", "s")
    monkeypatch.setattr(GroupedIndex, "find_by_group", counted)
    monkeypatch.setattr(GroupedIndex, "match", alone)
    home.port.hear(Visit(PUB, 1, ("x",), (event(1, x=5), event(2, x=7), event(3, x=0))), PUB)
    assert calls == [3]
    matches = [(t["event"], t["recipients"]) for t in home.port.traced("match")]
    assert matches == [("pub.1.1", 1), ("pub.1.2", 1 + others)]
    assert (home.port.unmatched, home.port.alone) == ({"x": 1}, 1)


class Home:
    """A host that alone subscribes to what it hosts."""

    def __init__(self) -> None:
        self.node = host()
        self.port = self.node.port
        self.receiver = Receiver(self.port, Settings(), EventHistory(100))
        self.port.add(self.receiver)
        assign(self.node, "x", LOW, MIDDLE, HIGH)

    def subscribe(self, id_: str, selector: str) -> None:
        install(self.node, f"{id_}/0", "x", selector, "h")
        made = registration(f"{id_}/0", "x", selector, peer("h"))
        predicate = self.node.hosting.trees["x"].registrations[made.id][1]
        self.receiver.add(id_, predicate, {made.id: 1}, ("x",))

    def visit(self, *events: Event, hop: int = 2) -> list[tuple[str, int, str, int]]:
        before = len(self.port.emitted)
        self.port.hear(Visit(PUB, hop, ("x",), events), PUB)
        self.port.turn()
        return [
            (d.subscription, d.event.sequence, d.attribute, d.hops)
            for found in self.port.emitted[before:]
            if isinstance(found, Arrived)
            for d in found.deliveries
        ]


def test_a_host_that_alone_is_interested_leaves_the_match_to_its_recheck() -> None:
    home = Home()
    home.subscribe("a", "x > 1")
    home.subscribe("b", "x > 6")
    assert home.visit(event(1, x=5), event(2, x=7), event(3, x=0)) == [
        ("a", 1, "x", 2),
        ("a", 2, "x", 2),
        ("b", 2, "x", 2),
    ]
    assert home.port.take(Deliver) == []
    assert home.port.counts["recheck_failed"] == 0, "an event without subscribers is no fault"
    assert home.visit(event(2, x=7)) == [], "once"
    matches = [(t["event"], t["recipients"]) for t in home.port.traced("match")]
    assert matches[:2] == [("pub.1.1", 1), ("pub.1.2", 1)]
    assert (home.port.unmatched, home.port.alone) == ({"x": 1}, 1), "nobody wants the third"


def test_what_was_not_wanted_here_may_still_come_for_a_later_subscription() -> None:
    home = Home()
    home.subscribe("a", "x > 100")
    assert home.visit(event(1, x=5)) == []
    home.subscribe("b", "x > 1")
    assert home.visit(event(1, x=5)) == [("b", 1, "x", 2)]


def test_as_soon_as_another_node_is_interested_all_are_matched() -> None:
    home = Home()
    home.subscribe("a", "x > 1")
    install(home.node, "s/0", "x", "x > 6", "s")
    assert home.visit(event(1, x=5), event(2, x=7)) == [("a", 1, "x", 2), ("a", 2, "x", 2)]
    assert ("s", [2]) in delivered(home.node)
    assert not [each for each in home.port.emitted if isinstance(each, Visited)]


def test_nothing_is_matched_without_registrations() -> None:
    home = Home()
    assert home.visit(event(1, x=5)) == []
    assert home.port.emitted == []
    assert home.node.hosting.trees["x"].served.spans[0] == EVERYTHING


def test_each_tree_is_charged_with_the_events_that_visit_it_here() -> None:
    """One message brings events of many trees: a rare one would be charged as much as the others,
    cut, and given hosts that have nothing to do."""
    node = host()
    for attribute in ("x", "y"):
        assign(node, attribute, LOW, MIDDLE, HIGH)
    assign(node, "z", LOW)
    events = tuple(event(n, **{"xyz"[(n > 6) + (n > 8)]: 15 if n == 9 else 5}) for n in range(12))
    apart = ((("y",), (7, 8)), (("z",), (9, 10, 11)))
    node.port.hear(Visit(PUB, 1, ("x",), events, apart), PUB)
    taken = {name: node.hosting.trees[name].visits.take()[:2] for name in "xyz"}
    assert taken == {"x": (7, 7), "y": (2, 2), "z": (2, 2)}, "one of z is passed on"
    both = (event(20, x=1, y=1), event(21, x=1, y=1), event(22, x=1))
    node.port.hear(Visit(PUB, 1, ("x", "y"), both, ((("x",), (2,)),)), PUB)
    taken = {name: node.hosting.trees[name].visits.take()[:2] for name in "xy"}
    assert taken == {"x": (2, 1), "y": (1, 0)}
