"""node.py and overlay/turns.py: one turn at a time, in order; what a node says of itself."""

from __future__ import annotations

from typing import Any

import pytest

from canopy.sim.world.world import World
from canopy.wire.transport.codec import MESSAGES
from harness.overlays import acknowledged, assert_exact, grown, wait
from overlay.client import (
    Command,
    Done,
    Drain,
    Explained,
    Failed,
    GetPeers,
    GetRing,
    GetStatus,
    Located,
    Peers,
    RingClusters,
    Status,
    Where,
    Why,
)
from overlay.machine import (
    Handlers,
    LocalEvent,
    Machine,
    Message,
    Peer,
    ProtocolError,
    Timer,
)
from overlay.turns import Turns


class Word(Message, frozen=True):
    text: str


class Other(Message, frozen=True):
    pass


class Said(LocalEvent, frozen=True):
    text: str


class Bell(Timer, frozen=True):
    name: str


ME, YOU = Peer("me", "me:1"), Peer("you", "you:1")


class Speaker(Machine):
    """Notes what it hears, and says what the test gave it."""

    def __init__(self, turns: Turns, log: list[str], name: str = "", owns: bool = True) -> None:
        self.turns, self.log, self.name, self.owns = turns, log, name, owns
        self.then: dict[str, list[Any]] = {}

    def handlers(self) -> Handlers:
        mine: dict[Any, Any] = {Said: self.on_said}
        if self.owns:
            mine |= {Word: self.on_word, Bell: self.on_bell}
        return mine

    def on_word(self, sender: Peer, message: Word) -> None:
        self.say(f"{sender.id}:{message.text}")

    def on_said(self, event: Said) -> None:
        self.say(f"{self.name}said {event.text}")

    def on_bell(self, timer: Bell) -> None:
        self.say(f"bell {timer.name}")

    def say(self, text: str) -> None:
        self.log.append(text)
        for what in self.then.pop(text, []):
            if isinstance(what, Message):
                self.turns.post(ME, what)
            elif isinstance(what, LocalEvent):
                self.turns.emit(what)
            else:
                self.turns.set_timer(0.0, what)
        self.log.append(f"/{text}")


class Rig:
    """Turns with a clock that goes by hand."""

    def __init__(self) -> None:
        self.time = 10.0
        self.log: list[str] = []
        self.turns = Turns(lambda: self.time)
        self.speaker = Speaker(self.turns, self.log)
        self.turns.build([self.speaker, Speaker(self.turns, self.log, "second ", owns=False)])

    def heard(self) -> list[str]:
        found = [line for line in self.log if not line.startswith("/")]
        self.log.clear()
        return found

    def advance(self, seconds: float) -> None:
        self.time += seconds
        self.turns.begin()
        self.turns.fire_due()
        self.turns.run()


# --- turns ---


def test_how_late_a_node_is_shows_in_the_first_timer_that_is_armed() -> None:
    rig = Rig()
    rig.turns.begin()
    rig.turns.set_timer(1.0, Bell("cancelled"))
    rig.turns.set_timer(2.0, Bell("rings"))
    rig.turns.cancel_timer(Bell("cancelled"))
    rig.time += 9.0
    rig.turns.begin()
    assert rig.turns.fire_due() == 7.0
    assert rig.turns.fire_due() == 0.0


def test_two_owners_of_one_message_or_timer_are_refused() -> None:
    rig = Rig()
    with pytest.raises(TypeError, match="Word has two owners"):
        rig.turns.build([Speaker(rig.turns, rig.log)])


def test_all_machines_get_a_local_event_in_their_order() -> None:
    rig = Rig()
    rig.turns.emit(Said("a"))
    flushed: list[list[str]] = []

    def flush() -> None:
        flushed.append(rig.heard())
        if len(flushed) == 1:
            rig.turns.emit(Said("b"))

    rig.turns.settle(flush)
    assert flushed == [["said a", "second said a"], ["said b", "second said b"]]


def test_a_handler_runs_to_its_end_before_anything_that_it_said_is_heard() -> None:
    rig = Rig()
    rig.speaker.then["you:a"] = [Word("b"), Said("c")]
    rig.turns.dispatch(YOU, Word("a"))
    order = [line for line in rig.log if "second" not in line]
    assert order == ["you:a", "/you:a", "said c", "/said c", "me:b", "/me:b"]


def test_what_was_said_first_is_heard_first() -> None:
    rig = Rig()
    rig.speaker.then["you:a"] = [Said("1"), Said("2"), Word("3"), Word("4")]
    rig.speaker.then["me:3"] = [Said("5")]
    rig.turns.dispatch(YOU, Word("a"))
    order = [line for line in rig.heard() if "second" not in line]
    assert order == ["you:a", "said 1", "said 2", "me:3", "said 5", "me:4"]


def test_a_message_without_an_owner_is_an_error_of_the_sender() -> None:
    with pytest.raises(ProtocolError, match="Other"):
        Rig().turns.dispatch(YOU, Other())


def test_timers_fire_in_order_of_time_then_of_setting() -> None:
    rig = Rig()
    for delay, name in [(2.0, "late"), (1.0, "b"), (1.0, "c"), (0.5, "a")]:
        rig.turns.set_timer(delay, Bell(name))
    assert rig.turns.deadline() == 10.5
    rig.advance(1.0)
    assert rig.heard() == ["bell a", "bell b", "bell c"]
    assert rig.turns.deadline() == 12.0


def test_a_timer_that_is_set_again_is_moved_and_one_that_is_cancelled_is_gone() -> None:
    rig = Rig()
    rig.turns.set_timer(1.0, Bell("moved"))
    rig.turns.set_timer(1.0, Bell("gone"))
    rig.turns.set_timer(3.0, Bell("moved"))
    rig.turns.cancel_timer(Bell("gone"))
    rig.turns.cancel_timer(Bell("never set"))
    rig.advance(2.0)
    assert rig.heard() == []
    assert rig.turns.deadline() == 13.0
    rig.advance(1.0)
    assert rig.heard() == ["bell moved"]
    assert rig.turns.deadline() is None


def test_what_a_timer_sets_again_fires_in_a_later_turn() -> None:
    rig = Rig()
    rig.turns.set_timer(1.0, Bell("a"))
    rig.speaker.then["bell a"] = [Bell("a"), Bell("b")]
    rig.advance(1.0)
    assert rig.heard() == ["bell a"]
    rig.advance(0.0)
    assert rig.heard() == ["bell a", "bell b"]


def test_a_timer_that_an_earlier_one_cancels_does_not_fire() -> None:
    rig = Rig()
    rig.turns.set_timer(1.0, Bell("a"))
    rig.turns.set_timer(1.0, Bell("b"))
    rig.turns.listen(Said, lambda event: rig.turns.cancel_timer(Bell("b")))
    rig.speaker.then["bell a"] = [Said("stop")]
    rig.advance(1.0)
    assert "bell b" not in rig.heard()


def test_time_stands_still_within_a_turn() -> None:
    rig = Rig()
    rig.turns.begin()
    rig.time += 5
    assert rig.turns.now == 10.0
    rig.turns.begin()
    assert rig.turns.now == 15.0


# --- a whole node ---


@pytest.fixture(scope="module")
def world() -> World:
    """Three nodes with one tree; the tests only look."""
    made = grown(3)
    made.subscribe("n1", "x > 1", "big")
    acknowledged(made)
    made.publish("n2", {"x": 5, "id": "quake"})
    made.run(2)
    return made


def ids(world: World) -> list[str]:
    return [world.drivers[name].disk.node for name in world.names()]


def test_every_message_and_timer_has_one_owner(world: World) -> None:
    node = world.node("n0")
    owners: dict[type, Machine] = {}
    for machine in node.machines:
        for kind in machine.handlers():
            if not issubclass(kind, LocalEvent):
                assert kind not in owners
                owners[kind] = machine


def test_every_message_of_the_wire_has_an_owner(world: World) -> None:
    known = {kind for machine in world.node("n0").machines for kind in machine.handlers()}
    assert [name for name, kind in MESSAGES.items() if kind not in known] == []


def test_status_shows_this_node(world: World) -> None:
    status = world.status("n1")
    assert status.node == ids(world)[1]
    assert status.ready
    assert not status.draining
    assert (status.name, status.routing, status.pending) == ("n1", "pivot", 0)
    assert status.subscriptions == 1
    assert status.role in ("primary", "standby", "broker")
    assert list(status.seeds.values()) == ["reached"]
    assert status.counters["delivered"] == 1
    assert sum(world.status(name).trees for name in world.names()) >= 1


def test_peers_shows_neighbours_and_links(world: World) -> None:
    answer = world.ask("n0", GetPeers(world.clients.request()))
    assert isinstance(answer, Peers)
    assert sorted(p.node for p in answer.peers) == sorted(ids(world)[1:])
    assert all(p.neighbour and p.age >= 0 for p in answer.peers)


def test_ring_where_and_why_work_from_every_node(world: World) -> None:
    for name in world.names():
        ring = world.ask(name, GetRing(world.clients.request()))
        assert isinstance(ring, RingClusters)
        assert ring.complete
        assert [c.attributes for c in ring.clusters] == [("x",)]
        where = world.ask(name, Where(world.clients.request(), "x"))
        assert isinstance(where, Located)
        assert where.cluster.primary == ring.clusters[0].primary
        assert [v.registrations for v in where.virtual_nodes] == [1]
        why = world.ask(name, Why(world.clients.request(), "quake"))
        assert isinstance(why, Explained)
        assert [r.delivered for r in why.reasons] == ([True] if name == "n1" else [])


def test_messages_are_counted_in_two_kinds(world: World) -> None:
    """One event leaves its publisher, one copy reaches the subscriber (docs/design/traces.md)."""
    totals = [world.status(name).counters for name in world.names()]
    traces = [r.kind for r in world.recorder.records if r.kind in ("visit", "forward", "walk")]
    data = sum(counters.get("data_messages", 0) for counters in totals)
    assert data >= len(traces) >= 1
    assert sum(counters["other_messages"] for counters in totals) > data


def test_an_unknown_command_is_refused() -> None:
    class Dance(Command, frozen=True):
        pass

    world = grown(1)
    answer = world.ask("n0", Dance(world.clients.request()))
    assert isinstance(answer, Failed)
    assert (answer.code, "Dance" in answer.reason) == ("usage", True)


def test_watched_links_replace_those_of_the_same_group() -> None:
    world = grown(3)
    node = world.node("n0")
    pins: list[str] = []
    node.links.pin = lambda peer: pins.append(f"+{peer}")
    node.links.unpin = lambda peer: pins.append(f"-{peer}")
    a, b = Peer("a", "a:1"), Peer("b", "b:1")
    node.watch("test", [a, node.me])
    node.watch("other", [a])
    node.watch("test", [b])
    assert pins == ["+a", "+a", "+b", "-a"]


def test_a_node_that_drains_ends_its_subscriptions_hands_over_and_is_done() -> None:
    world = grown(3)
    gone = world.subscribe("n0", "x > 1")
    stays = world.subscribe("n1", "x > 1")
    acknowledged(world)
    assert isinstance(world.ask("n0", Drain(world.clients.request())), Done)
    node = world.node("n0")
    wait(world, lambda: node.drained, 60, "drained")
    assert not node.ready
    assert node.clients.subscriptions == {}
    wait(world, lambda: "n0" not in world.names(), 10, "its process ends")
    assert gone.acknowledged is not None
    world.publish("n2", {"x": 5})
    world.run(5)
    assert [shown.delivery.subscription for shown in world.clients.deliveries] == [stays.identity]


def test_a_single_node_serves_itself() -> None:
    world = grown(1)
    world.subscribe("n0", "x > 1")
    acknowledged(world)
    world.publish("n0", {"x": 5}, {"x": 0})
    assert_exact(world)
    status = world.status("n0")
    assert isinstance(status, Status)
    assert (status.role, status.counters.get("data_messages", 0)) == ("primary", 0)
    assert isinstance(world.ask("n0", GetStatus(world.clients.request())), Status)
