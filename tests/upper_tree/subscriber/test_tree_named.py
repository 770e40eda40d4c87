"""A host names a registration that it has found; the interested node checks that one (C9)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matching import EVERYTHING, Index, Interval, compile_selector, place
from overlay.client import Event
from overlay.machine import ProtocolError
from overlay.settings import Settings
from overlay.upper_tree.event_history import EventHistory
from overlay.upper_tree.host.constants import NAMED_FROM
from overlay.upper_tree.messages import Assign, Deliver, Entry, Install, Visit
from overlay.upper_tree.partition import PartitionMap
from overlay.upper_tree.subscriber.publication_order import InnerParts
from overlay.upper_tree.subscriber.receiver import Arrived, Receiver
from tests.support.trees import HostNode, event, registration
from tests.support.world import one_node, peer

HOST = peer("h")


class Rig:
    """A receiver whose subscriptions are gathered by clients 1, 2, …"""

    def __init__(self, *selectors: str, clients: int = 1) -> None:
        self.port = one_node("s")
        self.receiver = Receiver(self.port, Settings(), EventHistory(100))
        self.port.add(self.receiver)
        self.matched: list[int] = []
        for number, selector in enumerate(selectors):
            predicate = compile_selector(selector)
            ids = {f"s.{number}/{n}": 1 for n in range(len(predicate.conjunctions))}
            self.receiver.add(f"s.{number}", predicate, ids, ("x",), 1 + number % clients)

    def deliver(self, *events: Event, found: Sequence[str] = ()) -> dict[int, list[int]]:
        """By client the numbers of the events that it is given for one message."""
        self.port.hear(Deliver("x", EVERYTHING, 2, events, found=tuple(found)), HOST)
        shown: dict[int, list[int]] = {}
        for arrived in self.port.of(Arrived):
            for client, places in arrived.gathered.items():
                shown.setdefault(client, []).extend(arrived.events[p].sequence for p in places)
        self.port.emitted.clear()
        return shown

    def counted(self) -> int:
        """For how many events the node says that they were for one of its subscriptions."""
        return sum(map(self.receiver.delivered_to, self.receiver.pivots))


def count_matches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each event that is matched against all subscriptions its x, from now on."""
    matched: list[int] = []
    original = Index.match

    def match(self: Index[str], attributes: dict[str, int]) -> list[str]:
        matched.append(attributes["x"])
        return original(self, attributes)

    monkeypatch.setattr(Index, "match", match)
    return matched


def test_what_the_host_names_is_checked_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig("x > 1", "x > 3 OR x = -1", "x > 9")
    rig.port.sampled = lambda events: ()  # type: ignore[method-assign,assignment]  # no traces
    matched = count_matches(monkeypatch)
    assert rig.deliver(event(1, x=5), event(2, x=-1), found=(".0/0", ".1/1")) == {1: [1, 2]}
    assert matched == []
    assert rig.receiver.delivered_to("s.1") == 1
    assert rig.deliver(event(3, x=5)) == {1: [3]}
    assert matched == [5], "without a name it is matched"
    assert rig.counted() == 3


@pytest.mark.parametrize("name", [".2/0", ".7/0", "", "/", ".0", "t.0/0", "."])
def test_an_event_whose_name_is_wrong_is_matched_with_all_others(name: str) -> None:
    rig = Rig("x > 1", "x > 3", "x > 9")
    assert rig.deliver(event(1, x=5), event(2, x=2), found=(name, ".0/0")) == {1: [1, 2]}
    assert "recheck_failed" not in rig.port.counts
    assert rig.counted() == 2


def test_a_subscription_that_has_ended_is_shown_nothing_though_a_host_named_it_before() -> None:
    rig = Rig("x = 1", "x = 2")
    assert rig.deliver(event(1, x=1), found=[".0/0"]) == {1: [1]}
    rig.receiver.remove("s.0", 1)
    assert rig.deliver(event(2, x=1), found=[".0/0"]) == {}


def test_what_nobody_wants_is_not_shown_whatever_the_host_names() -> None:
    rig = Rig("x > 1", "x > 3")
    assert rig.deliver(event(1, x=0), found=(".0/0",)) == {}
    assert rig.port.counts["recheck_failed"] == 1
    assert rig.deliver(event(1, x=2), found=(".0/0",)) == {1: [1]}, "the true one comes later"


def test_it_comes_once_however_often_and_by_whatever_name() -> None:
    rig = Rig("x > 1", "x > 3")
    assert rig.deliver(event(1, x=5), found=(".0/0",)) == {1: [1]}
    assert rig.deliver(event(1, x=5), found=(".1/0",)) == {}
    assert rig.port.counts["duplicates"] == 1


def test_with_several_programs_all_that_match_get_it() -> None:
    rig = Rig("x > 1", "x > 3", clients=2)
    assert rig.deliver(event(1, x=5), found=(".0/0",)) == {1: [1], 2: [1]}
    rig = Rig("x > 1")
    rig.receiver.add("other", compile_selector("x > 4"), {"other/0": 1}, ("x",))
    rig.port.hear(Deliver("x", EVERYTHING, 2, (event(1, x=5),), found=(".0/0",)), HOST)
    (arrived,) = rig.port.of(Arrived)
    assert [d.subscription for d in arrived.deliveries] == ["other"]
    assert dict(arrived.gathered) == {1: [0]}


def test_a_name_for_each_event_or_none() -> None:
    rig = Rig("x > 1")
    message = Deliver("x", EVERYTHING, 2, (event(1, x=5),), found=(".0/0", ".0/0"))
    with pytest.raises(ProtocolError, match="what was found does not fit"):
        rig.receiver.on_deliver(HOST, message)


def test_a_host_names_what_it_has_found_for_a_node_with_many_registrations() -> None:
    node = HostNode(one_node("h"), Settings()).lease()
    entries = (Entry(EVERYTHING, (node.port.me,)),)
    slice_ = PartitionMap((1, 1), entries).slice_for("h")
    node.port.hear(Assign("x", (1, 1), (EVERYTHING,), 1, slice_), peer("o"))
    rig = Rig(*(f"x = {n}" for n in range(NAMED_FROM)))
    for number in range(NAMED_FROM):
        made = registration(f"s.{number}/0", "x", f"x = {number}", peer("s"))
        node.port.hear(Install("x", 1, (made,)), peer("o"))
    made = registration("t.0/0", "x", "x = 5", peer("t"))
    node.port.hear(Install("x", 1, (made,)), peer("o"))
    events = tuple([event(n + 1, x=n) for n in range(NAMED_FROM)])
    node.port.hear(Visit(peer("p"), 1, ("x",), events), peer("p"))
    sent = dict(node.port.sent_to(Deliver))
    assert sent["t"].found == ()
    assert sent["s"].found == tuple([f".{n}/0" for n in range(NAMED_FROM)])
    assert rig.deliver(*sent["s"].events, found=sent["s"].found) == {
        1: [e.sequence for e in events]
    }


SPANS = st.tuples(st.integers(0, 20), st.integers(1, 8)).map(
    lambda one: Interval(place(one[0]), place(one[0] + one[1]))
)


@given(st.lists(SPANS, max_size=12), st.lists(SPANS, max_size=12), SPANS, st.integers(0, 30))
def test_inner_values_are_in_no_subscription_that_reaches_beyond_their_part(
    before: list[Interval], later: list[Interval], part: Interval, value: int
) -> None:
    parts = InnerParts()
    parts.find("x", part, before)
    for hull in later:
        parts.came("x", hull)
        parts.came("y", EVERYTHING)
    lo, hi = parts.find("x", part, ())
    spot = place(value)
    concerned = [hull for hull in (*before, *later) if hull.lo <= spot < hull.hi]
    beyond = [hull for hull in concerned if hull.lo < part.lo or hull.hi > part.hi]
    if part.lo <= spot < part.hi:
        assert not (lo <= spot < hi and beyond)


def test_what_is_known_of_a_part_is_looked_at_again_when_many_subscriptions_have_gone() -> None:
    parts, part = InnerParts(), Interval(place(0), place(10))
    wide = Interval(place(-1), place(5))
    assert parts.find("x", part, [wide]) == (place(5), place(10))
    parts.gone(1)
    assert parts.find("x", part, []) == (place(5), place(10))
    parts.gone(0)
    assert parts.find("x", part, []) == (place(0), place(10))
