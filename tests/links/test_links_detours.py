"""P3: what the links do about a silent peer before it counts as dead, and the way back."""

from __future__ import annotations

import pytest

from harness.link_world import DetourWorld, connected_pair
from overlay.links.constants import SILENT_HEARTBEATS
from overlay.links.events import LinkDown, LinkRecovered, LinkSuspected, LinkUp, SessionEnd
from overlay.links.messages import Hello


def cut(world: DetourWorld, *ways: tuple[str, str]) -> None:
    for sender, receiver in ways or (("a", "b"), ("b", "a")):
        world.network.block(sender, receiver)


CUTS = {"both": (("a", "b"), ("b", "a")), "to b": (("a", "b"),), "to a": (("b", "a"),)}


@pytest.mark.parametrize("how", CUTS)
def test_a_session_goes_on_by_another_way_in_order_and_once(how: str) -> None:
    world, a, b = connected_pair()
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
    world, a, b = connected_pair(pinned=True)
    cut(world)
    began = world.now
    world.run(20.0)
    assert not a.downs()
    assert not b.downs()
    heartbeat = world.settings.heartbeat
    assert world.ways["a"].opened[0][0] <= began + (SILENT_HEARTBEATS + 1) * heartbeat
    assert len(world.ways["a"].opened) == 1, "once another way is found, none is looked for"


def test_a_link_that_was_never_open_is_opened_by_another_way() -> None:
    world = DetourWorld(delay=0.02)
    a, b = world.hosts_with_ways()
    cut(world)
    a.send(b, 1)
    world.run(1.5)
    assert b.numbers(a) == [1]
    world.run(20.0)
    assert not a.downs()


def test_a_peer_that_was_merely_slow_keeps_its_connection() -> None:
    world, a, b = connected_pair()
    world.network.clog("b", "a")  # what b says is late, and nothing is lost
    a.send(b, 2)
    world.run(0.1)
    assert world.run_until(lambda: bool(world.ways["a"].opened), 5.0)
    world.network.unclog("b", "a")
    world.run(5.0)
    assert b.numbers(a) == [1, 2]
    assert a.links.is_direct("b")
    assert b.links.is_direct("a")
    assert a.counts.get("links_detoured", 0) == b.counts.get("links_detoured", 0) == 0
    assert len(world.ways["a"].ends) == len(world.ways["b"].ends) == 0
    assert world.live() == 1, "the connection is the same"


def test_a_dead_peer_is_found_dead_after_the_same_time_and_few_probes() -> None:
    world, a, b = connected_pair()
    cut(world)
    world.ways["a"].reaches = lambda: False
    a.send(b, 2)
    began = world.now
    world.run(0.1)
    assert world.run_until(lambda: bool(a.downs()), 10.0)
    (down,) = a.downs()
    assert (down.end, down.reason) == (SessionEnd.UNREACHABLE, "silent for 6 s")
    assert world.now - began <= world.settings.dead_after + 0.1
    assert len(world.ways["a"].opened) == 3
    assert world.ways["a"].frames == 0
    world.run(20.0)
    assert len(world.ways["a"].opened) == 3, "no session, no probe"
    assert len(world.ways["a"].ends) == 0


def test_the_direct_way_is_taken_again_when_it_carries_both_directions() -> None:
    world, a, b = connected_pair()
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
    assert len(world.ways["a"].ends) == len(world.ways["b"].ends) == 0
    frames = world.ways["a"].frames
    a.send(b, 300)
    world.run(1.0)
    assert b.numbers(a) == list(range(1, 301))
    assert world.ways["a"].frames == frames
    assert not a.downs()
    assert not b.downs()
    assert world.live() == 1


def test_a_helper_that_is_lost_costs_another_search() -> None:
    world, a, b = connected_pair()
    cut(world)
    a.send(b, 2)
    world.run(2.0)
    assert not a.links.is_direct("b")
    for ways in (world.ways["a"], world.ways["b"]):
        ways.ends.clear()  # the helper is gone without a word
    for number in range(3, 20):
        a.send(b, number)
        world.run(0.2)
    assert b.numbers(a) == list(range(1, 20))
    assert not a.downs()


def test_what_waits_is_named_only_once_before_the_other_way_is_found() -> None:
    world, a, b = connected_pair()
    cut(world)
    a.send(b, *range(2, 10))
    world.run(3.0)
    named = [m for event in a.of(LinkSuspected) for m in event.unacknowledged]
    assert len(named) == len(set(named))
    assert b.numbers(a) == list(range(1, 10))


def test_a_greeting_by_another_way_after_the_session_has_ended_begins_none() -> None:
    world, a, b = connected_pair()
    cut(world)
    world.ways["a"].delay = 30.0  # what is under way comes much later
    a.send(b, 2)
    world.run(0.1)
    assert world.run_until(lambda: bool(a.downs()), 10.0)
    world.run(60.0)
    assert a.states() == []
    assert [type(e) for e in b.events if isinstance(e, LinkDown)] == []
    assert b.frames(Hello) == []


def test_a_peer_that_has_forgotten_the_session_meanwhile_begins_another() -> None:
    world = DetourWorld(delay=0.02)
    a = world.host("a", detours=world.ways["a"])
    world.ways["b"].helpers = 0
    b = world.host("b", detours=world.ways["b"], dead_after=1.0)  # gives a up before a does
    b.links.pin("a")
    a.send(b, 1)
    world.run(1.0)
    cut(world)
    world.ways["a"].reaches = lambda: False
    world.run(2.0)
    assert [down.end for down in b.downs()] == [SessionEnd.UNREACHABLE]
    world.ways["a"].reaches = lambda: True
    a.send(b, 2)
    world.run(1.0)
    a.send(b, 3)
    world.run(2.0)
    assert [down.end for down in a.downs()] == [SessionEnd.RESET]
    assert [up.fresh for up in a.of(LinkUp)] == [True, True]
    assert b.numbers(a)[-1] == 3
