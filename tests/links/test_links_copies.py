"""Two processes with one id (a copied data folder): one of them hears of it, and always the same;
a restart is never taken for that."""

from __future__ import annotations

import itertools

import pytest

from harness.link_world import Host, LinkWorld
from overlay.links.events import IdentityConflict
from overlay.links.messages import PROTOCOL, Hello, Superseded
from overlay.machine import Peer
from tests.support.examples import seeds


def stopped(*hosts: Host) -> list[Host]:
    """Those that have to stop."""
    return [host for host in hosts if any(event.must_stop for event in host.of(IdentityConflict))]


@pytest.mark.parametrize("dials", ["node", "peer"])
def test_a_copy_that_starts_later_ends_the_node_that_it_was_copied_from(dials: str) -> None:
    """As with a restart the later process counts; but the former one is there to hear it."""
    world = LinkWorld()
    a, b = world.host("a", incarnation=5), world.host("b")
    (a if dials == "node" else b).send(b if dials == "node" else a, 1)
    world.run(1.0)
    copy = world.copy(a, incarnation=6)
    copy.send(b, 2)
    world.run(1.0)
    assert stopped(a, copy) == [a]
    (conflict, *_) = a.of(IdentityConflict)
    assert (conflict.peer, conflict.incarnation) == (copy.peer, 6)
    assert not copy.of(IdentityConflict)
    assert b.numbers(a) == ([1, 2] if dials == "node" else [2])


def test_a_process_that_sends_when_a_later_one_is_known_is_informed() -> None:
    """It had no link when the later one came."""
    world = LinkWorld()
    a, b = world.host("a", incarnation=5), world.host("b")
    copy = world.copy(a, incarnation=6)
    copy.send(b, 1)
    world.run(1.0)
    a.send(b, 2)
    world.run(1.0)
    assert stopped(a, copy) == [a]
    assert b.numbers(a) == [1], "nothing of the earlier one is taken"


def test_a_process_that_is_dialled_in_the_place_of_a_later_one_is_informed() -> None:
    world = LinkWorld()
    a, b = world.host("a", incarnation=5), world.host("b")
    copy = world.copy(a, incarnation=6)
    copy.send(b, 1)
    world.run(1.0)
    world.kill(copy)
    world.network.listen(copy.peer.address, a)  # its address leads to the other one now
    b.send(copy, 2)
    world.run(3.0)
    assert stopped(a) == [a]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_of_two_with_one_incarnation_always_the_same_one_has_to_stop(
    order: tuple[int, ...],
) -> None:
    """Both were started from copies of a stopped node's folder, and have some peers in common."""
    world = LinkWorld()
    a, b, c = world.host("a", incarnation=6), world.host("b"), world.host("c")
    copy = world.copy(a, incarnation=6)
    steps = [(a, b), (copy, b), (a, c), (copy, c)]
    for number in order:
        sender, to = steps[number]
        sender.send(to, number)
        world.run(0.5)
    world.run(2.0)
    (loser,) = stopped(a, copy)
    assert loser.peer == min((a.peer, copy.peer), key=lambda peer: boot(world, peer))


def boot(world: LinkWorld, peer: Peer) -> int:
    (host,) = [host for host in world.hosts.values() if host.peer == peer]
    return host.frames(Hello)[0].boot


@pytest.mark.parametrize("dialler", ["node", "copy"])
def test_two_that_meet_each_other_know_it_both(dialler: str) -> None:
    world = LinkWorld()
    a = world.host("a", incarnation=5)
    copy = world.copy(a, incarnation=6)
    one, two = (a, copy) if dialler == "node" else (copy, a)
    one.links.add_seed(two.peer.address)
    world.run(1.0)
    assert stopped(a, copy) == [a]
    (conflict, *_) = copy.of(IdentityConflict)
    assert (conflict.peer, conflict.incarnation, conflict.must_stop) == (a.peer, 5, False)


@pytest.mark.parametrize("seed", seeds(12))
def test_a_restart_is_no_conflict_however_it_came_about(seed: int) -> None:
    """Killed with or without a word, again and again, on a network that loses and delays."""
    world = LinkWorld(seed, loss=0.1, delay=0.01, jitter=0.4)
    others = [world.host(name) for name in "bcd"]
    everyone: list[Host] = [*others]
    for incarnation in range(1, 8):
        a = world.host("a", incarnation=incarnation)
        everyone.append(a)
        for other in others:
            a.send(other, incarnation)
            other.send(a, incarnation)
        world.run(0.3 * (1 + (seed + incarnation) % 8))
        world.kill(a, reset=(seed + incarnation) % 2 == 0)
    assert not [event for host in everyone for event in host.of(IdentityConflict)]


def test_a_node_at_another_name_of_its_own_address_is_no_conflict() -> None:
    world = LinkWorld()
    a = world.host("a")
    world.network.listen("alias:1", a)
    a.links.add_seed("alias:1")
    world.run(5.0)
    assert not a.of(IdentityConflict)


def test_superseded_is_believed_of_a_later_process_of_this_node_only() -> None:
    world = LinkWorld()
    a, b = world.host("a", incarnation=5), world.host("b")
    a.send(b, 1)
    world.run(1.0)
    (number, *_) = b.links.connections()
    b.write(number, Superseded(a.peer, 4, 1 << 60))
    world.run(1.0)
    assert not a.of(IdentityConflict), "of a former one: it was restarted itself"
    b.write(number, Superseded(Peer("x", "x:1"), 9, 9))
    world.run(1.0)
    assert not a.of(IdentityConflict)
    assert a.counts["link_errors"] == 1
    a.links.on_accepted(900)
    a.links.on_frame(900, Hello(PROTOCOL, "test", b.peer, 9, 0, 0, 1, "a", 9, 0, 1, 1))
    a.links.on_frame(900, Superseded(Peer("a", "y:1"), 5, 1 << 60))
    assert stopped(a) == [a]
