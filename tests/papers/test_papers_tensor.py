"""What Tensor claims of batches, backlogs, health and distribution, claim by claim (T1 to T6).

Zhang, Zheng, Yang, Liu, Yang and Liu, *Tensor: A Transaction-Oriented Low-Latency and Reliable Data
Distribution Scheme for Multi-IDCs Based on Redis*, sections IV and V. Each test says what of the
paper it tests. What the paper measures, `python -m bench.papers tensor` does.
"""

from __future__ import annotations

from typing import Any

from bench.papers.tiers import AWAY, Tiers
from harness.overlays import grown
from harness.simulated_stream import SimulatedReading, SimulatedStream
from overlay.chord.keys import key_of
from overlay.client import Draft
from overlay.health import HealthReport, NodeHealth
from overlay.links.backlog import Backlog
from overlay.stream_client import AddStream
from tests.support.rings import grown as grown_ring

MB = 1 << 20
KEY = key_of("attr:x")


# --- section IV.A: transactions, versions, the scavenger ---


def test_section_iv_a_a_subscriber_gets_the_batches_behind_its_version_whole_and_in_order() -> None:
    """Several commands form one batch, which has a version and is protected by a transaction; a
    subscriber asks for the versions between its own and the newest. Here the version is the offset,
    and commands past their life are not delivered any more (the scavenger)."""
    world = grown(3, 4)
    request = world.clients.request()
    world.ask("n0", AddStream(request, "rules", ttl_seconds=60.0))
    stream = SimulatedStream(world, "n1", "rules", "publisher")
    stream.begin()
    for version in range(3):
        commands = [{"command": word, "version": version} for word in ("ADD", "DEL", "ADD")]
        stream.append([Draft(dict(command)) for command in commands])
    reading = stream.read(3)
    found: list[Any] = []
    while len(found) < 6:
        events = reading.take(5.0)
        assert len(events) % 3 == 0, "a part of a batch"
        found += [(e.attributes["version"], e.attributes["command"]) for e in events]
    assert found == [(v, word) for v in (1, 2) for word in ("ADD", "DEL", "ADD")]
    reading.close()
    world.run(120.0)
    late = SimulatedReading(stream, start="first")
    assert late.take(2.0) == [], "the scavenger has made them ineffective"


# --- section IV.B: the replication backlog ---


def test_section_iv_b_the_backlog_is_sized_by_rate_and_mean_disconnect_and_shrinks_again() -> None:
    """10 MB at first; every 30 seconds it is raised to the product of the rate of writing and the
    mean time of a disconnect, if that is more, and halved with time down to 10 MB. Here what was
    written in one or two times as long as a disconnect counts as well, for bursts."""
    backlog = Backlog(10 * MB, 1_000 * MB, half_life=60.0, assumed=6.0, now=0.0)
    assert backlog.size(0.0) == 10 * MB
    backlog.reconnected(20.0, 0.0)
    backlog.reconnected(40.0, 0.0)
    second = 0
    while second < 120:
        second += 1
        backlog.wrote(2 * MB)
        raised = backlog.size(float(second))
    assert 60 * MB <= raised <= 120 * MB, "2 MB a second, 30 seconds"
    sizes = [backlog.size(float(second + later)) for later in range(30, 900, 30)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 10 * MB


# --- section IV.C: health in failover ---


def test_section_iv_c_nodes_that_are_sub_healthy_do_not_take_over() -> None:
    """Of the slaves those that the decision tree calls sub-healthy are removed, and of the others
    the one with the largest replication offset becomes the master. Here the sub-healthy stand last,
    so that where there is no other one of them leads all the same."""
    world = grown_ring(1, nodes=5, clusters=1, size=5)
    world.write(KEY, "kept")
    world.run(1)
    (master,) = world.primaries()
    cluster = master.clusters.cluster
    assert cluster is not None
    ranked = [world.member(peer.id) for peer in cluster.others()]
    sick = {node.peer.id: NodeHealth(1, "disk") for node in ranked[:2]}
    for node in ranked:
        node.clusters.health.update(HealthReport(sick, 600.0))
    world.crash(master)
    world.run(30)
    (new,) = world.owners(KEY)
    assert new.peer.id not in sick
    assert f"{KEY}:kept".encode() in new.registry.entries


# --- section V.B and V.C: distribution ---


def test_section_v_few_messages_take_the_longest_way_however_many_subscribers_there_are() -> None:
    """Up to 50,000 messages, and for 1,000 messages from 20 to 10,000 subscribers, the time does
    not grow (figures 14 and 15: 12 s, of which the ways are 32 ms). Here it is the ways alone."""
    tiers = Tiers(seed=1, points=3, processor=None)
    tiers.subscribe(6)
    tiers.distribute(3)
    one, some = tiers.distribute(1), tiers.distribute(100)
    tiers.subscribe(24)
    more = tiers.distribute(100)
    for found in (one, some, more):
        assert found["delivered"] == found["expected"]
    longest = max(AWAY.values())
    assert longest < one["distribution_s"] < 8 * longest
    assert more["distribution_s"] < 2 * some["distribution_s"] + longest
