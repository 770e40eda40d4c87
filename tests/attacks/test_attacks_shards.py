"""Who orders a node to have or destroy shards of streams, and who speaks among their replicas."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from harness.overlays import READY, settings, wait
from overlay.client import AppendEvents, Draft, EventsAppended, Streams
from overlay.machine import Message, ProtocolError
from overlay.rights import Role
from overlay.stream_client import AddStream
from streams.directory.entry import StreamOptions
from streams.directory.messages import KeepShards, ShardOrder
from streams.shard.hosting.shard_hosts import EPOCHS_AHEAD
from streams.shard.messages import RequestShardVote, ShardAppend, ShardFenced


def overlay() -> tuple[World, str, str]:
    """An overlay with keys and a stream; its shard, and a voter that has no part in it."""
    world = World(7, WireCodec(), settings(cluster={"size": 3}))
    world.roles = {f"n{number}": Role.VOTER for number in range(6)}
    for number in range(6):
        world.add_node(seeds=["n0"] if number else [])
        world.run(0.2)
    wait(world, world.ready, READY, "all ready")
    world.run(5)
    assert isinstance(world.ask("n0", AddStream(world.clients.request(), "s")), Streams)
    wait(world, lambda: bool(leaders(world)), READY, "a leader")
    (shard,) = led(world, leaders(world)[0])
    append(world, 1)
    having = [name for name in world.names() if shard in world.node(name).streams.hosts.hosted]
    assert len(having) == 3
    primaries = [name for name in world.names() if world.node(name).clusters.role == "primary"]
    liar = next(name for name in world.names() if name not in (*having, *primaries))
    return world, shard, liar


def leaders(world: World) -> list[str]:
    return [name for name in world.names() if led(world, name)]


def led(world: World, name: str) -> list[str]:
    hosts = world.node(name).streams.hosts
    return [shard for shard in hosts.hosted if hosts.leading(shard) is not None]


def append(world: World, number: int) -> None:
    request = world.clients.request()
    reply = world.ask("n0", AppendEvents(request, "s", (Draft({"x": number}),)))
    assert isinstance(reply, EventsAppended)


def said(world: World, liar: str, message: Message) -> None:
    """All others hear it."""
    node = world.node(liar)
    for name in world.names():
        if name != liar:
            node.turns.begin()
            node.links.send(world.node(name).me, message)
            node.links.flush()
    world.run(12)


LIES: dict[str, Any] = {
    "destroy": lambda shard, entry: KeepShards(
        (ShardOrder(shard, "", (), (), removed=True),), (entry,)
    ),
    "destroy, by another name": lambda shard, entry: KeepShards(
        (ShardOrder(shard, "", (), (), removed=True),),
        (msgspec.structs.replace(entry, name="another"),),
    ),
    "seal": lambda shard, entry: RequestShardVote(shard, 1_000),
    "append": lambda shard, entry: ShardAppend(shard, 1_000, (0, bytes(32)), 0, 0, (), 1),
    "fenced": lambda shard, entry: ShardFenced(shard, 1_000),
}


@pytest.mark.parametrize("lie", LIES)
def test_who_has_no_part_in_a_shard_neither_destroys_nor_stops_it(lie: str) -> None:
    world, shard, liar = overlay()
    hosts = world.node(leaders(world)[0]).streams.hosts
    epoch, led = hosts.hosted[shard].replica.hard_state.epoch, leaders(world)
    said(world, liar, LIES[lie](shard, hosts.entries[shard.rpartition("/")[0]]))
    having = [name for name in world.names() if shard in world.node(name).streams.hosts.hosted]
    assert len(having) == 3
    assert leaders(world) == led
    assert hosts.hosted[shard].replica.hard_state.epoch == epoch
    append(world, 2)
    refused = ("orders_refused", "shard_messages_refused")
    counted = [world.node(n).counters.get(each, 0) for n in having for each in refused]
    assert sum(counted) >= 3


def test_not_even_a_replica_names_an_epoch_behind_which_there_is_none() -> None:
    world, shard, _ = overlay()
    having = [name for name in world.names() if shard in world.node(name).streams.hosts.hosted]
    liar = next(name for name in having if name not in leaders(world))
    epoch = world.node(leaders(world)[0]).streams.hosts.hosted[shard].replica.hard_state.epoch
    said(world, liar, RequestShardVote(shard, epoch + EPOCHS_AHEAD + 1))
    append(world, 2)
    promised = [world.node(n).streams.hosts.hosted[shard].replica.hard_state.epoch for n in having]
    assert max(promised) < epoch + 100


def test_a_stream_s_options_are_looked_at_where_its_shards_are() -> None:
    """A selector that does not compile ended the node that was to lead the shard."""
    world, shard, _ = overlay()
    hosts = world.node(leaders(world)[0]).streams.hosts
    entry = hosts.entries[shard.rpartition("/")[0]]
    bad = msgspec.structs.replace(entry, options=StreamOptions(key="k", deletes="x >"))
    with pytest.raises(ProtocolError, match="options"):
        hosts.on_keep_shards(world.node("n1").me, KeepShards((), (bad,)))
