"""Registrations that come together are logged, installed and acknowledged together, and mean what
they mean one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from harness.overlays import settings
from matching import compile_selector
from overlay.machine import ProtocolError
from overlay.settings import Settings
from overlay.upper_tree.events import SubscriptionsReady
from overlay.upper_tree.messages import (
    AskTree,
    Install,
    Installed,
    Invalidate,
    Invalidated,
    NotOwner,
    Register,
    Registered,
    Registration,
    Unregister,
    Unregistered,
)
from overlay.upper_tree.owner.registrations.registry import RegisterMoreDue
from overlay.upper_tree.owner.tree_log import RegistrationAdded, decode
from overlay.upper_tree.sliced_inbox import AT_ONCE
from overlay.upper_tree.subscriber.registrar import Registrar
from tests.support.trees import (
    FakeRing,
    HostNode,
    OwnerNode,
    cluster_of,
    event,
    registration,
)
from tests.support.world import World, one_node, peer

S, T, PUB = peer("s"), peer("t"), peer("pub")
MANY = AT_ONCE // 4


def owner(replicas: int = 1) -> OwnerNode:
    """A primary whose trees are hosted by h, or by h and g."""
    brokers = ("h", "g")[:replicas]
    chosen = settings(tree={"replicas": replicas})
    return OwnerNode(one_node("p"), chosen, cluster_of("p", *brokers))


def batch(count: int = MANY, attribute: str = "x") -> tuple[Registration, ...]:
    return tuple(registration(f"s{n}/0", attribute, f"{attribute} > {n}", S) for n in range(count))


def ids(registrations: tuple[Registration, ...]) -> tuple[str, ...]:
    return tuple(one.id for one in registrations)


def acknowledged(node: OwnerNode) -> list[str]:
    return [id_ for message in node.port.take(Registered) for id_ in message.ids]


# --- together ---


def test_a_batch_is_one_step_of_the_log_and_one_message_to_host_and_subscriber() -> None:
    node = owner()
    made = batch()
    steps: list[int] = []
    append_all = node.clusters.append_all
    node.clusters.append_all = lambda entries: (  # type: ignore[method-assign]
        steps.append(len(entries)) or append_all(entries)
    )
    node.port.hear(Register(1, made), S)
    assert steps == [MANY]
    added = [decode(entry) for entry in node.clusters.log]
    assert [o.registration for o in added if isinstance(o, RegistrationAdded)] == list(made)
    assert [(to, m.registrations) for to, m in node.port.sent_to(Install)] == [("h", made)]
    node.clusters.commit()
    node.port.hear(Installed("x", ids(made)), peer("h"))
    assert [m.ids for m in node.port.take(Registered)] == [ids(made)]


def test_what_a_host_installs_in_one_turn_it_says_in_one_message() -> None:
    host = HostNode(one_node("h"), Settings())
    made = batch()
    host.port.hear(Install("x", 1, made), peer("p"))
    assert host.port.sent_to(Installed) == [("p", Installed("x", ids(made)))]


def test_a_subscriber_sends_what_is_planned_in_one_turn_in_one_message() -> None:
    port = one_node("s")
    ring = FakeRing(port)
    registrar = Registrar(port, Settings(), 1, ring)
    port.add(registrar)
    ring.learn(cluster_of("o"))
    for n in range(MANY):
        planned = registrar.plan(f"s{n}", compile_selector(f"x > {n}"))
        registrar.subscribe(f"s{n}", planned)
    assert port.sent == []
    port.turn()
    ((_, message),) = port.sent_to(Register)
    assert ids(message.registrations) == tuple(f"s{n}/0" for n in range(MANY))


def test_more_than_a_turn_takes_is_taken_in_the_next_ones() -> None:
    node = owner()
    node.port.hear(Register(1, batch(3 * AT_ONCE)), S)
    sizes = []
    while True:
        sizes.append(sum(len(m.registrations) for m in node.port.take(Install)))
        if not node.port.fire(RegisterMoreDue()):
            break
    assert len(sizes) >= 3
    assert max(sizes) <= AT_ONCE
    assert sum(sizes) == 3 * AT_ONCE


# --- each for itself ---


def test_each_of_a_batch_is_acknowledged_when_the_log_has_it() -> None:
    node = owner()
    made = batch()
    before = len(node.clusters.log) + 1  # the tree is planted first
    node.port.hear(Register(1, made), S)
    node.port.hear(Installed("x", ids(made)), peer("h"))
    assert acknowledged(node) == []
    for count in (1, 2, MANY - 1):
        commit(node, before + count)
        assert acknowledged(node) == list(ids(made)[done(count) : count])
    node.clusters.commit()
    assert acknowledged(node) == [made[-1].id]


def done(count: int) -> int:
    return {1: 0, 2: 1, MANY - 1: 2}[count]


def commit(node: OwnerNode, entries: int) -> None:
    """The standby has so many entries of the log."""
    whole = node.clusters.log
    node.clusters.log = whole[:entries]
    node.clusters.commit()
    node.clusters.log = whole


def test_each_of_a_batch_is_acknowledged_when_every_host_has_it() -> None:
    node = owner(replicas=2)
    made = batch()
    node.port.hear(Register(1, made), S)
    assert {to for to, _ in node.port.sent_to(Install)} == {"h", "g"}
    node.clusters.commit()
    node.port.hear(Installed("x", ids(made)), peer("h"))
    assert acknowledged(node) == []
    node.port.hear(Installed("x", ids(made)[:3]), peer("g"))
    assert acknowledged(node) == list(ids(made)[:3])
    node.port.hear(Installed("x", ids(made)[3:]), peer("g"))
    assert acknowledged(node) == list(ids(made)[3:])


def test_one_of_a_batch_that_no_summary_admits_waits_and_the_others_do_not() -> None:
    node = owner()
    node.port.hear(Register(1, (registration("s/0", "x", "x BETWEEN 0 AND 9", S),)), S)
    node.clusters.commit()
    node.port.hear(Installed("x", ("s/0",)), peer("h"))
    node.port.advance(1.0)
    node.port.hear(AskTree(("x",)), PUB)
    node.clusters.commit()
    acknowledged(node)
    inside = registration("s/1", "x", "x BETWEEN 1 AND 2", S)
    outside = registration("s/2", "x", "x BETWEEN 20 AND 21", S)
    node.port.hear(Register(1, (inside, outside)), S)
    node.clusters.commit()
    node.port.hear(Installed("x", ("s/1", "s/2")), peer("h"))
    assert acknowledged(node) == ["s/1"]
    ((to, recall),) = node.port.sent_to(Invalidate)
    assert to == "pub"
    node.port.hear(Invalidated(*answer(recall)), PUB)
    assert acknowledged(node) == ["s/2"]


def answer(recall: Invalidate) -> tuple[tuple[str, ...], int]:
    return recall.attributes, recall.number


def test_what_a_batch_contradicts_each_publisher_hears_in_one_message() -> None:
    node = owner()
    names, publishers = ("u", "v", "w"), [peer(f"pub{n}") for n in range(4)]
    for publisher in publishers:
        node.port.hear(AskTree(names), publisher)  # there are no subscribers
    node.clusters.commit()
    made = tuple(
        registration(f"s{n}/0", names[n % 3], f"{names[n % 3]} > {n}", S) for n in range(9)
    )
    node.port.hear(Register(1, made), S)
    recalls = node.port.sent_to(Invalidate)
    assert [(to, recall.attributes) for to, recall in recalls] == [
        (publisher.id, names) for publisher in publishers
    ]
    assert all(recall is recalls[0][1] for _, recall in recalls), "encoded once"
    node.clusters.commit()
    for name in names:
        ids_ = tuple(one.id for one in made if one.attribute == name)
        node.port.hear(Installed(name, ids_), peer("h"))
    assert acknowledged(node) == []
    for publisher in publishers[1:]:
        node.port.hear(Invalidated(names, recalls[0][1].number), publisher)
    assert acknowledged(node) == []
    node.port.hear(Invalidated(names, recalls[0][1].number), publishers[0])
    assert sorted(acknowledged(node)) == sorted(one.id for one in made)


def test_what_is_refused_of_a_batch_does_not_hold_up_the_rest() -> None:
    node = owner()
    away = batch(1, "zz")[0]
    node.owner.accepts_registrations = lambda attribute: attribute != "zz"  # type: ignore[method-assign]
    node.port.hear(Register(1, (*batch(3), away)), S)
    assert [m.attributes for m in node.port.take(NotOwner)] == [("zz",)]
    node.clusters.commit()
    node.port.hear(Installed("x", ("s0/0", "s1/0", "s2/0")), peer("h"))
    assert acknowledged(node) == ["s0/0", "s1/0", "s2/0"]


def test_what_does_not_compile_ends_the_link_and_what_came_before_is_taken() -> None:
    node = owner()
    bad = Registration("bad/0", "x", S, "x >", batch(1)[0].interval)
    with pytest.raises(ProtocolError):
        node.port.hear(Register(1, (*batch(3), bad)), S)
    node.port.turn()
    node.clusters.commit()
    node.port.hear(Installed("x", ("s0/0", "s1/0", "s2/0")), peer("h"))
    assert acknowledged(node) == ["s0/0", "s1/0", "s2/0"]


def test_one_registration_twice_in_a_batch_is_one() -> None:
    node = owner()
    (one,) = batch(1)
    other = registration("s0/0", "x", "x > 77", S)
    node.port.hear(Register(1, (one, one, other)), S)
    assert node.owner.trees["x"].tree.registrations == {"s0/0": other}
    added = [decode(entry) for entry in node.clusters.log]
    assert len([o for o in added if isinstance(o, RegistrationAdded)]) == 2


def test_a_batch_that_ends_behind_it_ends_whole() -> None:
    """An end that comes in the same turn finds what was taken before it."""
    node = owner()
    made = batch()
    node.port.hear(Register(1, made[:-1]), S)
    node.port.hear(Unregister("x", ids(made)), S)
    node.clusters.commit()
    assert [m.ids for m in node.port.take(Unregistered)] == [ids(made)]
    assert node.owner.trees["x"].tree.registrations == {}


def test_a_batch_that_was_acknowledged_is_acknowledged_again_in_one_message() -> None:
    node = owner()
    made = batch()
    node.port.hear(Register(1, made), S)
    node.clusters.commit()
    node.port.hear(Installed("x", ids(made)), peer("h"))
    acknowledged(node)
    node.port.hear(Register(1, made), S)
    assert [m.ids for m in node.port.take(Registered)] == [ids(made)]


# --- a batch is its registrations one by one ---

intervals = st.tuples(st.integers(0, 9), st.integers(0, 4)).map(
    lambda pair: f"x BETWEEN {pair[0]} AND {pair[0] + pair[1]}"
)
selectors = st.one_of(
    intervals,
    st.integers(0, 5).map(lambda n: f"y = {n}"),
    st.tuples(intervals, st.integers(0, 5)).map(lambda two: f"{two[0]} AND y >= {two[1]}"),
    st.tuples(intervals, intervals).map(" OR ".join),
    st.just("z IS NULL"),
)


class Overlay:
    """A subscriber, an owner and two hosts, whose messages arrive at once."""

    def __init__(self) -> None:
        self.net = World()
        chosen = settings(tree={"replicas": 2, "split_at": 5})
        self.hosts = {name: HostNode(self.net.node(name), chosen) for name in ("h", "g")}
        self.owner = OwnerNode(self.net.node("p"), chosen, cluster_of("p", *self.hosts))
        self.port = self.net.node("s")
        ring = FakeRing(self.port)
        self.registrar = Registrar(self.port, chosen, 1, ring)
        self.port.add(self.registrar)
        ring.learn(self.owner.clusters.cluster)

    def subscribe(self, selectors: list[tuple[str, str]]) -> None:
        """All of these in one turn."""
        for name, text in selectors:
            self.registrar.subscribe(name, self.registrar.plan(name, compile_selector(text)))
        self.port.turn()

    def end(self, names: list[str]) -> None:
        for name in names:
            self.registrar.unsubscribe(name)
        self.port.turn()

    def settle(self) -> None:
        for _ in range(8):
            self.net.run(0.3)
            self.owner.clusters.commit()
            self.net.flush()

    def ready(self) -> set[str]:
        return {id_ for one in self.port.of(SubscriptionsReady) for id_ in one.subscriptions}

    def registered(self) -> set[str]:
        trees = self.owner.owner.trees.values()
        return {id_ for owned in trees for id_ in owned.tree.registrations}

    def wanted(self, x: int, y: int) -> dict[str, set[str]]:
        """Subscriptions that each host finds for an event in all of its trees."""
        what = event(1, x=x, y=y)
        return {
            name: {
                id_.partition("/")[0]
                for tree in host.hosting.trees.values()
                for id_ in tree.match(what)
            }
            for name, host in self.hosts.items()
        }


@hypothesis_settings(max_examples=30, deadline=None)
@given(st.lists(selectors, min_size=1, max_size=14), st.data())
def test_a_batch_is_what_its_registrations_are_one_by_one(
    texts: list[str], data: st.DataObject
) -> None:
    named = [(f"s{n}", text) for n, text in enumerate(texts)]
    ended = data.draw(st.lists(st.sampled_from([name for name, _ in named]), unique=True))
    together, apart = Overlay(), Overlay()
    together.subscribe(named)
    together.settle()
    for one in named:
        apart.subscribe([one])
        apart.settle()
    names = {name for name, _ in named}
    assert together.ready() == apart.ready() == names
    together.end(ended)
    for name in ended:
        apart.end([name])
        apart.settle()
    for overlay in (together, apart):
        overlay.settle()
        assert overlay.registrar.settled
    assert together.registered() == apart.registered()
    for x in range(-1, 15, 2):
        for y in range(0, 7, 2):
            found = together.wanted(x, y)
            assert found == apart.wanted(x, y)
            assert not set().union(*found.values()) & set(ended)
            expected = {
                name
                for name, text in named
                if name not in ended and compile_selector(text).matches({"x": x, "y": y})
            }
            assert set().union(*found.values()) == expected
