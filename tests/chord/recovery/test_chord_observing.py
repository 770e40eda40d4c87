"""P5: who would lead if a cluster were lost whole keeps a copy of its log."""

from __future__ import annotations

import msgspec
import pytest

from overlay.chord.cluster.messages import LogEntry
from overlay.chord.constants import (
    OBSERVED_LOG_KEPT,
    OBSERVED_LOGS_MOST,
    OBSERVER_AWAITED,
    OBSERVER_LAG_MOST,
    OBSERVER_SILENT_MOST,
    OBSERVERS,
    SNAPSHOT_PIECE,
)
from overlay.chord.keys import in_arc, key_of
from overlay.chord.recovery.messages import (
    Observe,
    Observed,
    ObserverEntries,
    ObserverSnapshot,
)
from overlay.consensus import EMPTY, ProgressState
from overlay.machine import Key, Peer
from tests.support.examples import seeds
from tests.support.rings import RingNode, RingWorld, grown, middle_of

KEY = key_of("attr:x")


def leader(world: RingWorld, key: Key = KEY) -> RingNode:
    (node,) = world.owners(key)
    return node


def name_of(node: RingNode) -> Key:
    cluster = node.clusters.cluster
    assert cluster is not None
    return cluster.key


def holders(world: RingWorld, key: Key) -> list[RingNode]:
    return [n for n in world.members.values() if n.clusters.observed_logs.position(key) != EMPTY]


def written(world: RingWorld, count: int, pause: float = 0.3) -> None:
    for number in range(count):
        assert world.write(KEY, f"{number}")
        world.run(pause)


def agree(world: RingWorld) -> None:
    """Every cluster's observers have what its primary has."""
    for node in world.primaries():
        key, observers = name_of(node), node.clusters.observers.observers
        assert [h.peer.id for h in holders(world, key)] == sorted(observers)
        for holder in holders(world, key):
            assert holder.registry.observed.get(key, []) == node.registry.entries
            assert holder.clusters.observed_logs.position(key) == node.clusters.log.position
            assert holder.clusters.observed_logs.copies[key].awaited


@pytest.mark.parametrize("seed", seeds(3))
def test_the_ring_successors_primary_and_standby_have_a_copy(seed: int) -> None:
    world = grown(seed, nodes=12, clusters=3, size=3)
    written(world, 20, 0.05)
    world.run(3)
    leading = world.primaries()
    assert len(leading) == 3
    for node, after in zip(leading, [*leading[1:], leading[0]], strict=True):
        cluster = after.clusters.cluster
        assert cluster is not None
        found = {holder.peer.id for holder in holders(world, name_of(node))}
        assert found == {peer.id for peer in cluster.members()[:2]}
    agree(world)


@pytest.mark.parametrize("seed", seeds(3))
def test_in_a_ring_of_one_cluster_idle_nodes_have_a_copy(seed: int) -> None:
    world = grown(seed, nodes=9, clusters=1, size=3)
    written(world, 5)
    world.run(3)
    found = holders(world, name_of(leader(world)))
    assert len(found) == OBSERVERS
    assert all(node.clusters.role == "none" for node in found)
    agree(world)


@pytest.mark.parametrize("seed", seeds(3))
def test_copies_follow_another_primary_and_another_observer(seed: int) -> None:
    world = grown(seed, nodes=9, clusters=1, size=3)
    written(world, 5)
    old = leader(world)
    world.crash(old)
    world.run(8)
    written(world, 5)
    assert leader(world) is not old
    world.crash(holders(world, name_of(leader(world)))[0])
    world.run(5)
    written(world, 2)
    world.run(
        OBSERVED_LOG_KEPT + 20
    )  # what the first primary chose and the second did not is forgotten
    assert len(holders(world, name_of(leader(world)))) == OBSERVERS
    agree(world)


def test_of_an_arc_that_leaves_a_copy_has_nothing_any_more() -> None:
    world = grown(2, nodes=12, clusters=1, size=3)
    node = leader(world)
    cluster = node.clusters.cluster
    assert cluster is not None
    for number in range(20):
        world.write(key_of(f"{number}"), "entry")
    world.run(2)
    node.clusters.request_split(middle_of(cluster))
    world.run(12)
    assert len(world.primaries()) == 2
    left = {name_of(n): len(n.registry.entries) for n in world.primaries()}
    assert all(0 < count < 20 for count in left.values())
    agree(world)


def test_a_copy_that_was_not_followed_while_the_arc_shrank_loses_what_went_with_it() -> None:
    """The primary that chooses this observer sends what comes after its copy."""
    world = grown(2, nodes=9, clusters=1, size=3)
    for number in range(20):
        world.write(key_of(f"{number}"), "entry")
    world.run(2)
    node = leader(world)
    cluster, log = node.clusters.cluster, node.clusters.log
    assert cluster is not None
    copy = holders(world, cluster.key)[0]
    start = middle_of(cluster)
    shrunk = LogEntry(cluster.epoch, config=msgspec.structs.replace(log.config, start=start))
    before = list(copy.registry.observed[cluster.key])
    entries = ObserverEntries(cluster.key, cluster.epoch, log.position, (shrunk,), True)
    copy.clusters.observed_logs.on_entries(node.peer, entries)
    copy.port.turn()
    left = copy.registry.observed[cluster.key]
    assert left == [e for e in before if in_arc(e[:40].decode(), start, cluster.key)]
    assert 0 < len(left) < len(before)


def test_a_suback_waits_for_an_observer_for_a_while_and_then_no_more() -> None:
    world = grown(1, nodes=9, clusters=1, size=3)
    written(world, 1)
    world.run(2)
    node = leader(world)
    clusters = node.clusters
    assert [o.awaited for o in clusters.observers.observers.values()] == [True, True]
    deaf = holders(world, name_of(node))[0]
    deaf.port.ignore(ObserverEntries)  # it hears, and does not answer
    assert world.write(KEY, "last")
    index = clusters.log.next - 1
    world.run(0.5)
    assert clusters.leader_log.committed > index
    assert not clusters.is_copied(index)
    world.run(OBSERVER_AWAITED)
    assert clusters.is_copied(index)
    world.run(OBSERVER_SILENT_MOST)
    assert deaf.peer.id not in clusters.observers.observers
    assert len(clusters.observers.observers) == OBSERVERS


def test_a_copy_is_whole_if_its_primary_was_heard_to_the_last() -> None:
    world = grown(1, nodes=9, clusters=1, size=3)
    written(world, 1)
    world.run(2)
    node = leader(world)
    key, (one, other) = name_of(node), holders(world, name_of(node))
    assert not one.clusters.is_whole(key)  # it is not lost
    world.severed[(node.peer.id, one.peer.id)] = None  # said nothing more, and goes on
    world.run(1.0)
    for peer in node.clusters.members():
        world.crash(world.member(peer.id))
    world.run(1.2)
    assert not one.clusters.is_whole(key)
    assert other.clusters.is_whole(key)


@pytest.mark.parametrize("seed", seeds(4))
def test_of_outsiders_one_that_has_a_copy_goes_on(seed: int) -> None:
    world = grown(seed, nodes=10, clusters=1, size=3)
    written(world, 3)
    world.run(1)
    node = leader(world)
    holding = holders(world, name_of(node))
    for peer in node.clusters.members():
        world.crash(world.member(peer.id))
    world.run(8)
    assert leader(world) in holding


def test_observers_stay_while_views_and_links_of_a_busy_machine_waver() -> None:
    """Each change of them would cost the whole state."""
    world = grown(1, nodes=12, clusters=1, size=3)
    written(world, 3)
    world.run(2)
    node = leader(world)
    observers = node.clusters.observers
    before = list(observers.observers)
    world.sent.clear()
    reachable = observers.ring.is_reachable
    observers.ring.is_reachable = lambda peer: peer.id not in before and reachable(peer)  # type: ignore[method-assign]
    node.view.neighbours[:] = [peer for peer in node.view.neighbours if peer.id not in before]
    written(world, 3, 1.0)
    observers.ring.is_reachable = reachable  # type: ignore[method-assign]
    written(world, 3, 1.0)
    assert list(observers.observers) == before
    assert not any(isinstance(m, ObserverSnapshot) for _, _, m in world.sent)
    agree(world)


def test_a_node_keeps_few_copies_and_only_what_its_primary_says() -> None:
    world = grown(1, nodes=6, clusters=1, size=3)
    outsider = next(n for n in world.members.values() if n.clusters.role == "none")
    observed_logs = outsider.clusters.observed_logs
    cluster = leader(world).clusters.cluster
    assert cluster is not None
    many = [
        msgspec.structs.replace(
            cluster, key=key_of(f"{n}"), version=(9, 0), primary=Peer(f"{n}", "host:1")
        )
        for n in range(OBSERVED_LOGS_MOST + 3)
    ]
    for each in many:
        observed_logs.on_observe(each.primary, Observe(each))
    assert len(observed_logs.copies) == OBSERVED_LOGS_MOST
    kept = next(c for c in many if c.key in observed_logs.copies)
    stranger = Peer("stranger", "host:2")
    observed_logs.on_entries(stranger, ObserverEntries(kept.key, 9, (1, 1), (), True))
    assert not observed_logs.copies[kept.key].awaited
    older = msgspec.structs.replace(kept, version=(8, 0), primary=stranger)
    observed_logs.on_observe(stranger, Observe(older))
    assert observed_logs.copies[kept.key].cluster == kept


def test_an_observer_that_is_far_behind_gets_no_more_until_it_answers() -> None:
    world = grown(1, nodes=9, clusters=1, size=3)
    written(world, 1)
    world.run(2)
    node = leader(world)
    slow = node.clusters.observers.observers[holders(world, name_of(node))[0].peer.id]
    world.member(slow.peer.id).port.ignore(ObserverEntries)
    for number in range(OBSERVER_LAG_MOST + 2):
        node.registry.write(KEY, f"more {number}")
        node.port.turn()
    world.sent.clear()
    node.registry.write(KEY, "too much")
    node.port.turn()
    sent = [m for _, to, m in world.sent if to == slow.peer.id]
    assert not any(isinstance(m, ObserverEntries) for m in sent)
    assert slow.state is ProgressState.PROBE
    node.clusters.observers.on_observed(slow.peer, Observed(name_of(node), 1, EMPTY))
    node.port.turn()
    assert slow.state is ProgressState.REPLICATE  # it has been sent everything again


@pytest.mark.parametrize("apart", [0.0, 0.02, 0.06])
def test_answers_to_what_was_sent_before_a_copy_began_again_ask_for_no_other(apart: float) -> None:
    """Answers come in the order of what they answer: those to entries and pieces before the copy
    that is under way say nothing about it. Taken for answers to it they would have it sent again,
    and those to that one again, for as long as there are pieces."""
    world = grown(1, nodes=9, clusters=1, size=3)
    for number in range(8):
        assert world.write(KEY, f"{number}" + SNAPSHOT_PIECE // 2 * "x")
        world.run(0.3)
    world.run(2)
    node = leader(world)
    observers = node.clusters.observers
    world.sent.clear()
    for number in range(3):  # the arc changes while its copies are on their way
        assert world.write(KEY, f"more {number}")
        node.port.turn()
        world.run(0.01)
        observers._begin_again()
        node.port.turn()
        world.run(apart)
    world.run(10)
    copies = [m for _, _, m in world.sent if isinstance(m, ObserverSnapshot) and m.first]
    assert len(copies) == 3 * len(observers.observers) == 6
    agree(world)
