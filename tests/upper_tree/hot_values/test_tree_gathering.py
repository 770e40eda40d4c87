"""C6: an event whose value is cut into shards meets every registration of it once."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from matching import BOTTOM, TOP, Cut, Interval, compile_selector
from overlay.settings import Settings
from overlay.upper_tree.messages import (
    Accepted,
    Deliver,
    Entry,
    Install,
    PartTaken,
    TreeMoved,
    Visit,
)
from overlay.upper_tree.partition import PartitionMap
from overlay.upper_tree.shards import lies_in
from tests.support.trees import HostNode, event, registration
from tests.support.world import World, peer

OWNER, PUB = peer("owner"), peer("pub")
SELECTORS = ("x = 1", "x >= 1", "x <= 2", "x = 2", "x = 1 AND y > 0", "x > 5")
SUBSCRIBERS = [f"s{number}" for number in range(6)]


def cut(value: int, side: float) -> Cut:
    return (1, value, side)


class Shared:
    """Hosts of one tree, by a map; nodes that subscribe and publish are not there: what is sent to
    them is read."""

    def __init__(self, ends: list[Cut], hosts: list[str], selectors: int = 36) -> None:
        """Virtual nodes between these ends, each at the hosts of these letters."""
        self.net = World()
        self.hosts = {
            name: HostNode(self.net.node(name), Settings()).lease()
            for name in sorted(set("".join(hosts)))
        }
        self.registrations = [
            registration(
                f"{SUBSCRIBERS[n // 6 % 6]}/{n}",
                "x",
                SELECTORS[n % 6],
                peer(SUBSCRIBERS[n // 6 % 6]),
            )
            for n in range(selectors)
        ]
        self.assign(ends, hosts)

    def assign(self, ends: list[Cut], hosts: list[str], version: int = 1, only: str = "") -> None:
        """A map; only the hosts with these letters hear of it."""
        entries = tuple(
            Entry(Interval(lo, hi), tuple(map(peer, names)))
            for (lo, hi), names in zip(pairwise([BOTTOM, *ends, TOP]), hosts, strict=True)
        )
        map_ = PartitionMap((1, version), entries)
        for name, node in self.hosts.items():
            if only and name not in only:
                continue
            mine = map_.hosted_by(name)
            wanted = tuple(
                each for each in self.registrations if any(lies_in(each, one) for one in mine)
            )
            node.port.hear(Install("x", 1, wanted), OWNER)
            node.port.hear(map_.assignment("x", name), OWNER)
        self.net.flush()

    def visit(self, name: str, *values: int) -> None:
        """Events with these values visit a host; y is 1 for every other."""
        events = tuple(event(n, x=value, y=n % 2) for n, value in enumerate(values, 1))
        self.hosts[name].port.hear(Visit(PUB, 1, ("x",), events), PUB)

    def delivered(self) -> Counter[tuple[str, int]]:
        """How often each event was sent to each node. No host is asked for nothing."""
        assert all(m.events for *_, m in self.net.sent if isinstance(m, Visit))
        return Counter(
            (to, each.sequence)
            for _, to, message in self.net.sent
            if isinstance(message, Deliver)
            for each in message.events
        )

    def expected(self, *values: int) -> Counter[tuple[str, int]]:
        found: Counter[tuple[str, int]] = Counter()
        for number, value in enumerate(values, 1):
            for each in self.registrations:
                if compile_selector(each.selector).matches({"x": value, "y": number % 2}):
                    found[each.subscriber.id, number] = 1
        return found

    def accepted(self) -> list[int]:
        """What the publisher has heard to be accepted, in this order."""
        return [
            sequence
            for _, to, message in self.net.sent
            if to == "pub" and isinstance(message, Accepted)
            for _, sequences in message.taken
            for sequence in sequences
        ]

    def moved(self) -> list[int]:
        return [
            sequence
            for _, to, message in self.net.sent
            if to == "pub" and isinstance(message, TreeMoved)
            for sequence in message.sequences
        ]

    def asked(self) -> list[str]:
        """Hosts that were asked for parts, in order."""
        return [to for _, to, m in self.net.sent if isinstance(m, Visit) and m.part is not None]


HALVES = [cut(1, 0), cut(1, 0.5), cut(1, 1)]
THIRDS = [cut(1, 0), cut(1, 0.25), cut(1, 0.625), cut(1, 1)]


def test_every_shard_matches_its_registrations_and_the_publisher_hears_when_all_have() -> None:
    rig = Shared(THIRDS, ["a", "a", "b", "c", "a"])
    rig.net.held["c"] = None
    rig.visit("a", 1)
    rig.net.flush()
    assert rig.accepted() == [], "c has not matched it"
    assert sum(rig.delivered().values()) < len(rig.expected(1))
    del rig.net.held["c"]
    rig.net.flush()
    assert rig.accepted() == [1]
    assert rig.delivered() == rig.expected(1)
    assert not len(rig.hosts["a"].hosting.gathering)


def test_any_host_of_any_shard_takes_an_event_for_all() -> None:
    for name in "abc":
        rig = Shared(THIRDS, ["a", "a", "b", "c", "a"])
        rig.visit(name, 1, 1, 7, 1)
        rig.net.flush()
        assert sorted(rig.accepted()) == [1, 2, 3, 4]
        assert rig.delivered() == rig.expected(1, 1, 7, 1)


def test_the_publisher_learns_all_hosts_of_the_value_as_one_place() -> None:
    rig = Shared(THIRDS, ["a", "a", "b", "c", "a"])
    rig.visit("b", 1)
    rig.net.flush()
    (location,) = [
        location
        for _, to, message in rig.net.sent
        if to == "pub" and isinstance(message, Accepted)
        for location in message.locations
    ]
    assert location.interval == Interval(cut(1, 0), cut(1, 1))
    assert [host.id for host in location.hosts] == ["a", "b", "c"]


def test_another_replica_of_a_shard_is_asked_when_the_first_is_lost() -> None:
    rig = Shared(HALVES, ["a", "a", "bc", "a"])
    rig.net.held.update({"b": None, "c": None})
    rig.visit("a", 1)
    (first,) = rig.asked()
    rig.net.cut("a", first)
    rig.net.held.clear()
    rig.net.flush()
    assert rig.asked() == [first, "c" if first == "b" else "b"]
    assert rig.accepted() == [1]
    assert rig.delivered() == rig.expected(1)


def test_another_replica_of_a_shard_is_asked_when_the_first_is_silent() -> None:
    rig = Shared(HALVES, ["a", "a", "bc", "a"])
    rig.net.held.update({"b": None, "c": None})
    rig.visit("a", 1)
    (first,) = rig.asked()
    del rig.net.held["c" if first == "b" else "b"]
    rig.net.run(0.5)
    rig.net.flush()
    assert rig.accepted() == [1]
    rig.visit("a", 1)
    rig.net.flush()
    assert rig.asked()[-1] != first, "it is passed over for a while"


def test_an_event_is_given_back_where_a_shard_has_no_host_left() -> None:
    rig = Shared(HALVES, ["a", "a", "b", "a"])
    rig.net.held["b"] = None
    rig.visit("a", 1)
    rig.net.cut("a", "b")
    assert rig.accepted() == []
    assert rig.moved() == [1]
    assert not len(rig.hosts["a"].hosting.gathering)


def test_a_host_whose_shard_went_elsewhere_passes_the_part_on() -> None:
    rig = Shared(HALVES, ["a", "a", "b", "a"])
    rig.hosts["c"] = HostNode(rig.net.node("c"), Settings()).lease()
    rig.assign(
        [cut(1, 0), cut(1, 0.5), cut(1, 0.75), cut(1, 1)], ["a", "a", "b", "c", "a"], 2, "bc"
    )
    rig.visit("a", 1)
    rig.net.flush()
    assert rig.accepted() == [1]
    assert rig.delivered() == rig.expected(1)


def test_a_host_that_has_the_whole_value_again_matches_only_what_is_asked_for() -> None:
    rig = Shared(HALVES, ["a", "a", "b", "a"])
    rig.assign([cut(1, 0), cut(1, 1)], ["a", "b", "a"], 2, "b")
    rig.visit("a", 1)
    rig.net.flush()
    assert rig.accepted() == [1]
    assert rig.delivered() == rig.expected(1)


def test_a_host_without_a_lease_takes_no_part() -> None:
    rig = Shared(HALVES, ["a", "a", "b", "a"])
    rig.net.run(10.0)
    rig.hosts["a"].lease()
    rig.visit("a", 1)
    rig.net.flush()
    assert rig.accepted() == []
    assert rig.moved() == [1]


def test_an_answer_that_comes_twice_accepts_nothing_twice() -> None:
    rig = Shared(THIRDS, ["a", "a", "b", "c", "a"])
    rig.net.held["c"] = None
    rig.visit("a", 1)
    rig.net.flush()
    (answer,) = [m for _, _, m in rig.net.sent if isinstance(m, PartTaken)]
    rig.hosts["a"].port.hear(answer, peer("b"))
    assert rig.accepted() == []
    del rig.net.held["c"]
    rig.net.flush()
    rig.hosts["a"].port.hear(answer, peer("b"))
    assert rig.accepted() == [1]


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[Cut], list[str]]:
    """Maps in which the values 1 and 2 may be virtual nodes of their own, and cut further."""
    ends: list[Cut] = []
    for value in (1, 2):
        if draw(st.booleans()):
            sides = draw(st.sets(st.integers(1, 15), max_size=4))
            ends += [
                cut(value, 0),
                *(cut(value, side / 16) for side in sorted(sides)),
                cut(value, 1),
            ]
    names = st.sets(st.sampled_from("abcde"), min_size=1, max_size=3).map(
        lambda s: "".join(sorted(s))
    )
    return ends, [draw(names) for _ in range(len(ends) + 1)]


@given(layouts(), st.lists(st.integers(0, 6), min_size=1, max_size=5), st.data())
def test_each_event_meets_each_matching_registration_once(
    layout: tuple[list[Cut], list[str]], values: list[int], data: st.DataObject
) -> None:
    """By any map, wherever the event enters: a node's registrations of one value are in one shard
    of it, so each interested node gets it once, and the publisher hears of it once."""
    rig = Shared(*layout)
    rig.visit(data.draw(st.sampled_from(sorted(rig.hosts))), *values)
    rig.net.flush()
    assert sorted(rig.accepted()) == list(range(1, len(values) + 1))
    assert rig.moved() == []
    assert rig.delivered() == rig.expected(*values)
