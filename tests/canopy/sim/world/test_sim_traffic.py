"""What the overlay says is counted by purpose: completely, once, and beside the lower bound."""

from __future__ import annotations

import zlib

import msgspec
from click.testing import CliRunner

from canopy.cli.sim.command import sim
from canopy.sim.scenario.run import ScenarioRun
from canopy.sim.scenario.scenario import Scenario
from canopy.sim.world.network import Conditions
from canopy.sim.world.traffic import BATCH_HEAD, DATA, LINKS, MAINTENANCE, OTHER, PURPOSES, Traffic
from canopy.wire.transport.codec import MESSAGES, WireCodec
from canopy.wire.transport.framing import NODE_FRAMES
from overlay.chord.messages import AskNeighbourhood
from overlay.links.messages import Ack, Batch
from overlay.lower_random.messages import StalePoint
from overlay.machine import Message

SMALL = Scenario(nodes=6, subscriptions=20, events=60)


def batch(*messages: Message, compressed: bool = False) -> Batch:
    body = WireCodec().encode(messages)
    if compressed:
        body = zlib.compress(body)
    return Batch(300, 300, 1 << 22, zlib.crc32(body), compressed, body, 1_790_000_000 * 10**9)


def test_every_message_has_one_purpose_and_its_plane_is_the_one_it_is_counted_in() -> None:
    named = [name for table in (DATA, MAINTENANCE) for names in table.values() for name in names]
    assert sorted(named) == sorted(MESSAGES)
    for name, found in MESSAGES.items():
        counts = found.data_units is not Message.data_units
        assert (PURPOSES[name] in DATA) is counts, name


def test_bytes_are_those_of_the_wire() -> None:
    question, stale = AskNeighbourhood(), StalePoint("magnitude", "f" * 16, (1, 2))
    traffic = Traffic()
    frame = batch(question, stale, stale)
    assert abs(traffic.written(frame) - len(NODE_FRAMES.encode(frame))) <= 10
    codec = WireCodec()
    assert traffic.bytes == {
        "AskNeighbourhood": len(codec.encode_one(question)),
        "StalePoint": 2 * len(codec.encode_one(stale)),
        LINKS: BATCH_HEAD,
    }
    assert traffic.written(Ack(1, 1 << 22)) == len(NODE_FRAMES.encode(Ack(1, 1 << 22)))


def test_a_compressed_batch_is_shared_out() -> None:
    messages = [StalePoint("magnitude", "f" * 16, (1, 2))] * 50
    traffic, frame = Traffic(), batch(*messages, compressed=True)
    traffic.written(frame)
    assert 0 < len(frame.body) - traffic.bytes["StalePoint"] < 60
    assert len(frame.body) < 100


def test_a_run_counts_what_its_nodes_count() -> None:
    found = ScenarioRun(SMALL, WireCodec()).result()
    traffic = found.traffic
    assert traffic.data_total.messages == found.messages > 0
    links = traffic.maintenance[LINKS]
    assert traffic.maintenance_total.messages - links.messages == found.other_messages > 0
    assert OTHER not in traffic.maintenance
    assert {"views", "ring", "log_copies", "hosts"} <= set(traffic.maintenance)
    assert 0 < traffic.node_seconds < found.nodes * found.simulated_s
    flow = traffic.data["visit"]
    assert flow.messages_per_node_s == round(flow.messages / traffic.node_seconds, 4)


def test_what_is_sent_again_costs_bytes_and_no_messages() -> None:
    calm = ScenarioRun(SMALL, WireCodec()).result().traffic
    lossy = msgspec.structs.replace(SMALL, network=Conditions(loss=0.1))
    rough = ScenarioRun(lossy, WireCodec()).result().traffic
    each = [t.data_total.bytes / t.data_total.messages for t in (calm, rough)]
    assert each[1] > 1.05 * each[0]


def test_the_command_prints_both_planes() -> None:
    done = CliRunner().invoke(sim, ["run", "--nodes", "3", "--quiet"])
    assert done.exit_code == 0, done.stderr
    for word in ("data plane", "maintenance", "visit", "log_copies", "bytes/node/s"):
        assert word in done.stdout
