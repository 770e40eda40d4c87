"""P3: what the links do about a silent peer before it counts as dead, and the way back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from overlay.links.constants import SILENT_HEARTBEATS
from overlay.links.events import LinkDown, LinkRecovered, LinkSuspected, LinkUp, SessionEnd
from overlay.links.messages import Frame, Hello
from overlay.machine import Peer
from tests.support.link_world import Host, LinkWorld


class OtherWays:
    """One host's ways around its links, by nobody in particular: each frame takes `delay`."""

    def __init__(self, world: LinkWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.delay = 0.04
        self.helpers = 3
        self.reaches: Callable[[], bool] = lambda: True
        self.opened: list[tuple[float, str]] = []
        self.frames = 0
        self.ends: dict[int, tuple[str, int]] = {}  # the host and the number at the other end
        self.last = 0

    def open(self, peer: Peer) -> list[int]:
        self.opened.append((self.world.now, peer.id))
        numbers = []
        for _ in range(self.helpers):
            self.last -= 1
            self.ends[self.last] = (peer.id, 0)
            numbers.append(self.last)
        return numbers

    def write(self, connection: int, frame: Frame) -> None:
        end = self.ends.get(connection)
        if end is None or not self.reaches():
            return
        self.frames += 1
        self.world.after(self.delay, self.arrive, connection, frame)

    def arrive(self, connection: int, frame: Frame) -> None:
        name, number = self.ends.get(connection, ("", 0))
        other = self.world.hosts.get(name)
        if other is None or not other.is_alive:
            return
        ways = WAYS[self.world, name]
        if number == 0:
            ways.last -= 1
            number = ways.last
            ways.ends[number] = (self.name, connection)
            self.ends[connection] = (name, number)
            other.links.on_detour_accepted(number)
        if number in ways.ends:
            other._turn(lambda: other.links.on_frame(number, frame))

    def close(self, connection: int, reason: str) -> None:
        self.ends.pop(connection, None)


WAYS: dict[tuple[LinkWorld, str], OtherWays] = {}


@pytest.fixture(autouse=True)
def forget_ways() -> None:
    WAYS.clear()


def pair(*, pinned: bool = False, delay: float = 0.02) -> tuple[LinkWorld, Host, Host]:
    """Hosts a and b, with other ways between them, and a session of a second."""
    world = LinkWorld(delay=delay)
    for name in "ab":
        WAYS[world, name] = OtherWays(world, name)
    a, b = (world.host(name, detours=WAYS[world, name]) for name in "ab")
    if pinned:
        a.links.pin("b")
    a.send(b, 1)
    world.run(1.0)
    return world, a, b


def cut(world: LinkWorld, *ways: tuple[str, str]) -> None:
    for sender, receiver in ways or (("a", "b"), ("b", "a")):
        world.network.block(sender, receiver)


CUTS = {"both": (("a", "b"), ("b", "a")), "to b": (("a", "b"),), "to a": (("b", "a"),)}


@pytest.mark.parametrize("how", CUTS)
def test_a_session_goes_on_by_another_way_in_order_and_once(how: str) -> None:
    world, a, b = pair()
    cut(world, *CUTS[how])
    for number in range(2, 150):
        a.send(b, number)
        b.send(a, number)
        world.run(0.1)
        if number == (20 if how == "to b" else 10):  # who is heard is suspected a second later
            assert b.numbers(a)[-1] >= number - 2
            assert a.numbers(b)[-1] >= number - 2
    world.run(1.0)
    assert b.numbers(a) == list(range(1, 150))
    assert a.numbers(b) == list(range(2, 150))
    assert not a.downs()
    assert not b.downs()
    recovered = [e for e in a.events if isinstance(e, LinkRecovered | LinkUp)]
    assert len(recovered) == 2, "once when it began, once for the detour"
    assert a.links.sessions()[0].reason == "by way of another node"
    assert a.counts["links_detoured"] + b.counts.get("links_detoured", 0) == 2, "no to and fro"


def test_a_quiet_link_that_is_watched_is_not_taken_for_dead() -> None:
    world, a, b = pair(pinned=True)
    cut(world)
    began = world.now
    world.run(20.0)
    assert not a.downs()
    assert not b.downs()
    heartbeat = world.settings.heartbeat
    assert WAYS[world, "a"].opened[0][0] <= began + (SILENT_HEARTBEATS + 1) * heartbeat
    assert len(WAYS[world, "a"].opened) == 1, "once another way is found, none is looked for"


def test_a_link_that_was_never_open_is_opened_by_another_way() -> None:
    world = LinkWorld(delay=0.02)
    for name in "ab":
        WAYS[world, name] = OtherWays(world, name)
    a, b = (world.host(name, detours=WAYS[world, name]) for name in "ab")
    cut(world)
    a.send(b, 1)
    world.run(1.5)
    assert b.numbers(a) == [1]
    world.run(20.0)
    assert not a.downs()


def test_a_peer_that_was_merely_slow_keeps_its_connection() -> None:
    world, a, b = pair()
    world.network.clog("b", "a")  # what b says is late, and nothing is lost
    a.send(b, 2)
    world.run(0.1)
    assert world.run_until(lambda: bool(WAYS[world, "a"].opened), 5.0)
    world.network.unclog("b", "a")
    world.run(5.0)
    assert b.numbers(a) == [1, 2]
    assert a.links.is_direct("b")
    assert b.links.is_direct("a")
    assert a.counts.get("links_detoured", 0) == b.counts.get("links_detoured", 0) == 0
    assert len(WAYS[world, "a"].ends) == len(WAYS[world, "b"].ends) == 0
    assert world.live() == 1, "the connection is the same"


def test_a_dead_peer_is_found_dead_after_the_same_time_and_few_probes() -> None:
    world, a, b = pair()
    cut(world)
    WAYS[world, "a"].reaches = lambda: False
    a.send(b, 2)
    began = world.now
    world.run(0.1)
    assert world.run_until(lambda: bool(a.downs()), 10.0)
    (down,) = a.downs()
    assert (down.end, down.reason) == (SessionEnd.UNREACHABLE, "silent for 6 s")
    assert world.now - began <= world.settings.dead_after + 0.1
    assert len(WAYS[world, "a"].opened) == 3
    assert WAYS[world, "a"].frames == 0
    world.run(20.0)
    assert len(WAYS[world, "a"].opened) == 3, "no session, no probe"
    assert len(WAYS[world, "a"].ends) == 0


def test_the_direct_way_is_taken_again_when_it_carries_both_directions() -> None:
    world, a, b = pair()
    cut(world)
    for number in range(2, 30):
        a.send(b, number)
        world.run(0.1)
    world.network.heal()
    cut(world, ("b", "a"))  # b hears a, but a does not hear b
    for number in range(30, 300):
        a.send(b, number)
        world.run(0.1)
        assert b.numbers(a)[-1] >= number - 2, "the attempts cost nothing"
    assert not a.links.is_direct("b")
    world.network.heal()
    world.run(15.0)
    assert a.links.is_direct("b")
    assert b.links.is_direct("a")
    assert len(WAYS[world, "a"].ends) == len(WAYS[world, "b"].ends) == 0
    frames = WAYS[world, "a"].frames
    a.send(b, 300)
    world.run(1.0)
    assert b.numbers(a) == list(range(1, 301))
    assert WAYS[world, "a"].frames == frames
    assert not a.downs()
    assert not b.downs()
    assert world.live() == 1


def test_a_helper_that_is_lost_costs_another_search() -> None:
    world, a, b = pair()
    cut(world)
    a.send(b, 2)
    world.run(2.0)
    assert not a.links.is_direct("b")
    for ways in (WAYS[world, "a"], WAYS[world, "b"]):
        ways.ends.clear()  # the helper is gone without a word
    for number in range(3, 20):
        a.send(b, number)
        world.run(0.2)
    assert b.numbers(a) == list(range(1, 20))
    assert not a.downs()


def test_what_waits_is_named_only_once_before_the_other_way_is_found() -> None:
    world, a, b = pair()
    cut(world)
    a.send(b, *range(2, 10))
    world.run(3.0)
    named = [m for event in a.of(LinkSuspected) for m in event.unacknowledged]
    assert len(named) == len(set(named))
    assert b.numbers(a) == list(range(1, 10))


def test_a_greeting_by_another_way_after_the_session_has_ended_begins_none() -> None:
    world, a, b = pair()
    cut(world)
    WAYS[world, "a"].delay = 30.0  # what is under way comes much later
    a.send(b, 2)
    world.run(0.1)
    assert world.run_until(lambda: bool(a.downs()), 10.0)
    world.run(60.0)
    assert a.states() == []
    assert [type(e) for e in b.events if isinstance(e, LinkDown)] == []
    assert b.frames(Hello) == []


def test_a_peer_that_has_forgotten_the_session_meanwhile_begins_another() -> None:
    world = LinkWorld(delay=0.02)
    for name in "ab":
        WAYS[world, name] = OtherWays(world, name)
    a = world.host("a", detours=WAYS[world, "a"])
    WAYS[world, "b"].helpers = 0
    b = world.host("b", detours=WAYS[world, "b"], dead_after=1.0)  # gives a up before a does
    b.links.pin("a")
    a.send(b, 1)
    world.run(1.0)
    cut(world)
    WAYS[world, "a"].reaches = lambda: False
    world.run(2.0)
    assert [down.end for down in b.downs()] == [SessionEnd.UNREACHABLE]
    WAYS[world, "a"].reaches = lambda: True
    a.send(b, 2)
    world.run(1.0)
    a.send(b, 3)
    world.run(2.0)
    assert [down.end for down in a.downs()] == [SessionEnd.RESET]
    assert [up.fresh for up in a.of(LinkUp)] == [True, True]
    assert b.numbers(a)[-1] == 3
