"""A stream that prefers availability on real processes (`make faults`): a node is cut off and both
sides append; the holder of the fork is killed before the network is whole again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from canopy.client.blocking import ControlClient
from canopy.client.client import connect
from harness.fault_proxy import FaultProxy
from harness.real_overlay import PATIENCE
from overlay.client import AppendEvents, Draft, EventsAppended, GetStreams, Streams
from overlay.info import AppendReceipt, ForkInfo, ShardInfo
from overlay.stream_client import AddStream
from streams.log.shard_log import parse_name
from streams.log.verify import Receipt, Verifier
from tests.support.real.proxied_overlay import ProxiedOverlay, wait_for

pytestmark = [pytest.mark.process, pytest.mark.faults]
EACH = 40
"""Events of each side."""


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[ProxiedOverlay]:
    with FaultProxy() as proxy:
        found = ProxiedOverlay(tmp_path, proxy)
        try:
            found.grow(4)
            yield found
        finally:
            found.stop()


def shard(client: ControlClient) -> ShardInfo:
    return client.ask(GetStreams(0, "s"), Streams, PATIENCE).streams[0].shards[0]


def append(client: ControlClient, numbers: range) -> list[AppendReceipt]:
    found: list[AppendReceipt] = []
    for number in numbers:
        row = (Draft({"n": number}),)
        found += client.ask(AppendEvents(0, "s", row), EventsAppended, PATIENCE).receipts
    return found


def forks(client: ControlClient) -> list[ForkInfo]:
    return [fork for replica in shard(client).replicas for fork in replica.forks]


def test_what_a_cut_off_node_took_is_in_the_stream_once(overlay: ProxiedOverlay) -> None:
    clients = overlay.clients
    made = clients[0].ask(AddStream(0, "s", prefer="availability"), Streams, PATIENCE)
    wait_for(lambda: bool(shard(clients[0]).leader) and len(shard(clients[0]).replicas) == 3)
    here = shard(clients[0])
    followers = [each.node for each in here.replicas if each.node != here.leader]
    alone, leader = overlay.ids.index(followers[0]), overlay.ids.index(here.leader)
    append(clients[alone], range(EACH))
    overlay.proxy.isolate(str(alone))
    forked = append(clients[alone], range(EACH, 2 * EACH))
    assert {receipt.replicas for receipt in forked if receipt.fork} == {(followers[0],)}
    append(clients[leader], range(2 * EACH, 3 * EACH))
    overlay.proxy.heal()
    wait_for(lambda: [fork.state for fork in forks(clients[leader])] == ["copied"])
    time.sleep(1.0)
    rows: list[int] = []
    with connect(overlay.data(leader)) as client, client.read("s", start="first") as reading:
        while len(rows) < 3 * EACH:
            rows += [event.attributes["n"] for event in reading.take(PATIENCE)]  # type: ignore[misc]
    assert sorted(rows) == list(range(3 * EACH))
    mine = [number for number in rows if number < 2 * EACH]
    assert mine == sorted(mine)
    folder = overlay.data(leader) / "streams" / made.streams[0].id / "0"
    names = [path.name for path in folder.iterdir() if parse_name(path.name)]
    for each in (receipt for receipt in forked if receipt.fork):
        place = (each.shard, each.epoch, each.first, each.count, each.chunk, each.hash)
        proof = Receipt(made.streams[0].id, *place, each.replicas, each.fork)
        found = Verifier(proof.name, proof).run(names, lambda name: (folder / name).read_bytes())
        assert found.receipt == "proved", found.reason
