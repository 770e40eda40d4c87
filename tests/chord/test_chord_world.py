"""Everything at once, by seed: splits, lost and leaving members, leaving primaries (P1, P2).

What must hold at every moment: no key is served twice. What must hold when it is quiet again: the
arcs cover the ring, the pointers are those of an ideal ring, lookups find the one true owner, every
standby has its primary's log, and what was committed is still there. (Any node may crash, primaries
too; clusters lose no majority here, which is another mechanism's matter, P5.)
"""

from __future__ import annotations

import pytest

from overlay.chord.cluster.messages import ClusterHeartbeat, ClusterHeartbeatReply
from overlay.chord.events import OwnerFound
from overlay.chord.keys import key_of
from tests.support.examples import seeds
from tests.support.rings import RingNode, RingWorld, ServedOnce, grown, middle_of

KEYS = [key_of(f"attr:{n}") for n in range(40)]


def churn(world: RingWorld, node: RingNode) -> None:
    """Something happens to `node`."""
    what = world.rng.randrange(10)
    if what < 3 and majority_stays(world, node):
        world.crash(node)
    elif what < 6 and majority_stays(world, node):  # a cluster that leaves as a whole takes all
        node.clusters.leave()
    elif what < 8 and node.clusters.cluster is not None:
        node.clusters.request_split(middle_of(node.clusters.cluster))
    if node.peer.id in world.members:
        node.port.turn()


def majority_stays(world: RingWorld, gone: RingNode) -> bool:
    """Whether every cluster has a majority of voters without `gone`, by every log that is left; and
    nothing is lost with `gone` that no other node has: the state of an arc that it was offered."""
    if gone.clusters.journal.offered.arc is not None:
        return False
    for node in world.members.values():
        voters = [p.id for p in node.clusters.log.voters]
        if node is not gone and gone.peer.id in voters:
            alive = [world.member(v) for v in voters if v in world.members and v != gone.peer.id]
            holding = [
                one
                for one in alive
                if one.clusters.log.voter_log is not None and not one.clusters.cluster_role.leaving
            ]
            if len(holding) <= len(voters) // 2:
                return False
    return True


def reap(world: RingWorld) -> None:
    for node in list(world.members.values()):
        if node.clusters.left:
            world.crash(node, left=True)


@pytest.mark.parametrize("seed", seeds(8))
def test_whatever_happens_every_key_ends_with_one_owner_and_nothing_committed_is_lost(
    seed: int,
) -> None:
    world = grown(seed, nodes=24, clusters=2, size=4)
    durable: dict[bytes, None] = {}

    def note_durable() -> None:
        for node in world.members.values():
            while node.registry.durable:
                durable[node.registry.durable.pop()] = None

    world.checks += [ServedOnce(world, KEYS[:8]), note_durable]
    for step in range(40):
        churn(world, world.rng.choice(list(world.members.values())))
        for key in KEYS:
            if world.rng.random() < 0.3:
                world.write(key, str(step))
        for node in world.members.values():
            node.port.turn()
        while len(world.members) < 20:
            world.add(degree=12)
        world.run(world.rng.random())
        reap(world)
    world.run(30)
    reap(world)
    world.run(15)
    world.ring_is_whole()
    world.members_agree()
    world.copies_agree()
    assert len(durable) > 100
    kept = {entry: None for node in world.primaries() for entry in node.registry.entries}
    assert not [entry for entry in durable if entry not in kept]
    for node in world.members.values():
        node.events.clear()
        for key in KEYS[:10]:
            node.ring.find(key)
        node.port.turn()
    world.run(5)
    for key in KEYS[:10]:
        (owner,) = world.owners(key)
        for node in world.members.values():
            (answer,) = node.answers(key)
            assert isinstance(answer, OwnerFound)
            assert answer.cluster.primary.id == owner.peer.id


@pytest.mark.parametrize("seed", seeds(3))
def test_the_same_seed_gives_the_same_world(seed: int) -> None:
    def run() -> list[str]:
        world = grown(seed, nodes=16, clusters=3)
        return [f"{sender} {to} {message}" for sender, to, message in world.sent]

    assert run() == run()


def test_a_quiet_ring_costs_few_messages() -> None:
    world = grown(1, nodes=30, clusters=5)
    world.run(10)
    world.sent.clear()
    world.run(60)
    # One question and one answer per primary and round, word to the members, fingers once per five.
    beats = [m for _, _, m in world.sent if isinstance(m, ClusterHeartbeat | ClusterHeartbeatReply)]
    copies = 5 * 60 * 2 * 2 * 2  # two observers, twice a second, and back
    assert len(world.sent) - len(beats) <= 5 * 60 * (2 + 4) * 1.4 + copies
    assert len(beats) <= 5 * 4 * 60 * 4 * 2  # four others, four times a second, and back
