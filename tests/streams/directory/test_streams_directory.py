"""streams/directory, streams/shard/hosting: streams in overlays of simulated nodes, and who leads
them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from canopy.sim.world.log_disk import HARD_STATE
from canopy.sim.world.world import World
from harness.logs import EventBatch, append_batches
from harness.overlays import grown, wait
from overlay.client import Done, Failed, GetStreams, RemoveStream, Streams
from overlay.info import StreamInfo
from overlay.stream_client import AddStream, EditStream
from streams.directory import stream_owner
from streams.directory.messages import ShardOrder
from streams.directory.supervision import HEARTBEAT, Supervision
from streams.disk import DiskFailed
from streams.log import shard_log
from streams.log.batches import BatchHead, Row
from streams.shard.hosting import shard_hosts
from streams.shard.hosting.shard_hosts import ShardHosts
from streams.shard.leader import ShardLeader
from streams.shard.replica import Replica


def add(world: World, node: str, name: str, **options: object) -> StreamInfo | Failed:
    reply = world.ask(node, AddStream(world.clients.request(), name, **options))  # type: ignore[arg-type]
    if isinstance(reply, Streams):
        return reply.streams[0]
    assert isinstance(reply, Failed)
    return reply


def described(world: World, node: str, name: str = "") -> Streams | Failed:
    reply = world.ask(node, GetStreams(world.clients.request(), name))
    assert isinstance(reply, Streams | Failed)
    return reply


def replicas(world: World, shard: str) -> dict[str, Replica]:
    """The replicas of a shard that run, by the name of their node."""
    found = {name: world.node(name).streams.hosts.replica(shard) for name in world.names()}
    return {name: replica for name, replica in found.items() if replica is not None}


def leaders(world: World, shard: str) -> list[str]:
    return [name for name, replica in replicas(world, shard).items() if replica.serves]


def append(world: World, shard: str, session: int) -> int:
    """Append a row at the leader; returns its chunk's number."""
    (name,) = leaders(world, shard)
    leading = replicas(world, shard)[name].leader
    assert leading is not None
    batch = EventBatch(BatchHead("p", session, 0, 1), (Row({"n": session}),))
    return append_batches(leading, [batch], 0).number


def committed(world: World, shard: str) -> list[int]:
    return sorted(replica.committed for replica in replicas(world, shard).values())


def founded(world: World, name: str, **options: object) -> str:
    """Found a stream and wait for its leader; returns the name of its first shard."""
    info = add(world, "n0", name, **options)
    assert isinstance(info, StreamInfo), info
    shard = f"{info.id}/0"
    wait(world, lambda: len(leaders(world, shard)) == 1, 5.0, "the shard has a leader")
    return shard


def test_a_stream_is_founded_once_found_from_everywhere_and_removed_for_ever() -> None:
    world = grown(5)
    shard = founded(world, "alarms")
    assert len(replicas(world, shard)) == 3
    taken = add(world, "n3", "alarms")
    assert isinstance(taken, Failed)
    assert taken.code == "exists"
    assert "with these options" in taken.reason
    other = add(world, "n3", "alarms", keep_seconds=9.0, key="k")
    assert isinstance(other, Failed)
    assert "other options than these: --keep-for, --key" in other.reason
    for node in world.names():
        found = described(world, node, "alarms")
        assert isinstance(found, Streams)
        (one,) = found.streams[0].shards
        assert one.leader
        assert [r.state for r in one.replicas].count("leads") == 1
        assert [r.state for r in one.replicas].count("follows") == 2
    listed = described(world, "n4")
    assert isinstance(listed, Streams)
    assert [stream.name for stream in listed.streams] == ["alarms"]
    assert isinstance(world.ask("n2", RemoveStream(world.clients.request(), "alarms")), Done)
    wait(world, lambda: not replicas(world, shard), 5.0, "all replicas are gone")
    gone = described(world, "n1", "alarms")
    assert isinstance(gone, Failed)
    assert gone.code == "unknown"


def test_names_and_options_that_make_no_sense_are_refused() -> None:
    world = grown(1)
    for name, options, said in (
        ("", {}, ""),
        ("x" * 201, {}, ""),
        ("a\nb", {}, ""),
        ("x", {"shards": 2}, "--by"),
        ("x", {"replicas": 2}, "odd"),
        ("x", {"shards": 0}, "--shards: at least 1"),
        ("x", {"replicas": 99}, "--replicas: at most 7"),
        ("x", {"keep_seconds": -1.0}, "--keep-for: at least 0"),
        ("x", {"region": "x" * 65}, "--region: at most 64 characters"),
    ):
        refused = add(world, "n0", name, **options)
        assert isinstance(refused, Failed), (name, options)
        assert refused.code == "usage"
        assert said in refused.reason
    assert isinstance(add(world, "n0", "Ä +=/.. b"), StreamInfo)


def test_a_leader_that_is_lost_is_replaced_and_what_was_committed_stays() -> None:
    world = grown(6)
    shard = founded(world, "alarms")
    number = append(world, shard, 1)
    wait(world, lambda: committed(world, shard)[1] >= number, 2.0, "the row is committed")
    (lost,) = leaders(world, shard)
    world.crash(lost)
    began = world.now
    wait(world, lambda: bool(leaders(world, shard)), 5.0, "another leads")
    assert world.now - began < 3.0
    assert append(world, shard, 2) > number


def test_of_an_idle_stream_nodes_are_told_seldom_and_say_at_once_what_changes() -> None:
    """Here the leader's disk fails, while its node goes on answering."""
    world = grown(4)
    shard = founded(world, "alarms")
    append(world, shard, 1)
    world.run(20.0)
    (name,) = leaders(world, shard)
    node = world.node(name)
    ordered = []
    for _ in range(24):
        ordered.append(node.streams.hosts.hosted[shard].ordered_at)
        world.run(HEARTBEAT)
    assert len(set(ordered)) <= 4, "in 24 heartbeats"
    epoch = node.streams.hosts.replica(shard).hard_state.epoch
    node.turns.begin()
    node.emit(DiskFailed(shard, 2**50, "broken", False))
    node._finish_turn()
    assert not leaders(world, shard)
    wait(world, lambda: bool(leaders(world, shard)), 4.0, "a leader")
    (found,) = leaders(world, shard)
    assert world.node(found).streams.hosts.replica(shard).hard_state.epoch > epoch


@pytest.mark.parametrize("nodes", [3, 4])
def test_who_has_lost_its_vote_is_replaced_or_begins_again(nodes: int) -> None:
    world = grown(nodes)
    shard = founded(world, "alarms")
    number = append(world, shard, 1)
    lost = next(name for name, replica in replicas(world, shard).items() if not replica.serves)
    world.crash(lost)
    del world.drivers[lost].logs.durable[shard][HARD_STATE]
    world.restart(lost)

    def whole() -> bool:
        found = replicas(world, shard)
        (leader,) = leaders(world, shard) or [""]
        inside = {peer.id for peer in found[leader].replicas} if leader else set()
        there = {r.port.me.id for r in found.values() if r.ready and not r.barred}
        return len(inside) == 3 and inside <= there and min(committed(world, shard)[-3:]) >= number

    wait(world, lambda: lost in replicas(world, shard), 5.0, "it is back")
    wait(world, whole, 10.0, "three have it again")
    wait(
        world,
        lambda: not any(replica.barred for replica in replicas(world, shard).values()),
        20.0,
        "nobody has what is of no use",
    )
    assert append(world, shard, 2) > number


def test_a_restarted_owner_asks_before_it_nominates() -> None:
    world = grown(6)
    shard = founded(world, "alarms")
    (leader,) = leaders(world, shard)
    epoch = replicas(world, shard)[leader].hard_state.epoch
    owners = [n for n in world.names() if world.node(n).streams.owner.entries()]
    assert len(owners) == 1
    if owners[0] != leader:
        world.crash(owners[0])
    world.run(20.0)
    if owners[0] != leader:
        assert leaders(world, shard) == [leader]
        assert replicas(world, shard)[leader].hard_state.epoch == epoch


def test_a_node_that_is_gone_for_long_is_replaced_by_another() -> None:
    world = grown(6)
    shard = founded(world, "alarms")
    (leader,) = leaders(world, shard)
    lost = next(name for name in replicas(world, shard) if name != leader)
    number = append(world, shard, 1)
    world.crash(lost)

    def is_whole() -> bool:
        there = replicas(world, shard)
        return len(there) == 3 and all(r.committed >= number for r in there.values())

    wait(world, is_whole, 60.0, "three replicas have everything")
    wait(world, lambda: len(next(iter(replicas(world, shard).values())).replicas) == 3, 10.0, "3")


def test_a_stream_of_one_node_gets_replicas_when_others_come() -> None:
    world = grown(1)
    shard = founded(world, "alarms")
    number = append(world, shard, 1)
    for _ in range(3):
        world.add_node(seeds=["n0"])

    def is_copied() -> bool:
        there = replicas(world, shard)
        return len(there) == 3 and all(r.committed >= number for r in there.values())

    wait(world, is_copied, 60.0, "three replicas have everything")


def test_a_stream_of_which_no_directory_knows_is_brought_back_by_who_has_it() -> None:
    world = grown(6)
    shard = founded(world, "alarms")
    number = append(world, shard, 1)
    wait(world, lambda: committed(world, shard)[0] >= number, 2.0, "the row is everywhere")
    for name in world.names():
        world.node(name).owner.state.directory.clear()
        hosts = world.node(name).streams.hosts
        if hosts.hosted:
            world.crash(name)
            world.restart(name)
    wait(world, lambda: len(leaders(world, shard)) == 1, 40.0, "the shard has a leader again")
    again = described(world, "n0", "alarms")
    assert isinstance(again, Streams)
    wait(world, lambda: committed(world, shard)[0] >= number, 2.0, "the row is everywhere again")


@pytest.mark.parametrize("lost", ["the doubt", "the word of who has shards"])
def test_a_fork_without_the_entry_of_a_stream_does_not_say_that_there_is_none(
    lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either by itself is enough: to ask again meanwhile, and to be told at once."""
    if lost == "the doubt":
        monkeypatch.setattr(stream_owner, "DOUBTED", 0.0)
        monkeypatch.setattr(shard_hosts, "UNHEARD", 1e9)
    else:
        monkeypatch.setattr(ShardHosts, "_tell_directory", lambda self, primary, owns: None)
    world = grown(3)
    shard = founded(world, "alarms")
    left = next(name for name in world.names() if not world.node(name).clusters.is_primary)
    world.node(left).owner.state.directory.clear()  # as if its log had not come so far
    for name in set(world.names()) - {left}:
        world.crash(name)
    wait(world, lambda: world.node(left).clusters.is_primary, 40.0, "the last node has forked")
    again = add(world, left, "alarms")
    assert isinstance(again, Failed)
    assert again.code == "exists"
    found = described(world, left, "alarms")
    assert isinstance(found, Streams)
    assert found.streams[0].id == shard.partition("/")[0]
    world.run(stream_owner.DOUBTED)
    none = described(world, left, "other")
    assert isinstance(none, Failed)
    assert none.code == "unknown"


def test_what_a_stream_is_not_to_keep_is_removed_at_all_its_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shard_log, "SEGMENT_BYTES", 2_000)
    world = grown(4)
    bounded, whole = founded(world, "bounded", keep_bytes=6_000), founded(world, "whole")
    for number in range(100):
        for shard in (bounded, whole):
            append(world, shard, number)
    world.run(5.0)
    found = described(world, "n3", "bounded")
    assert isinstance(found, Streams)
    for replica in found.streams[0].shards[0].replicas:
        assert replica.first > 0
        assert 6_000 <= replica.bytes < 10_000
        assert replica.next == 100
    assert {replica.log.segments[0].offset for replica in replicas(world, whole).values()} == {0}


def test_nodes_that_restart_before_the_log_has_begun_still_found_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = grown(3)
    with monkeypatch.context() as before:
        before.setattr(ShardLeader, "begin", lambda self: None)
        info = add(world, "n0", "alarms")
        assert isinstance(info, StreamInfo)
        world.run(3.0)
        found = replicas(world, f"{info.id}/0")
        assert len(found) == 3
        assert {replica.log.end.number for replica in found.values()} == {0}
        assert any(replica.hard_state.epoch for replica in found.values())
        for name in list(world.names()):
            world.crash(name)
    for name in list(world.drivers):
        world.restart(name)
    shard = f"{info.id}/0"
    wait(world, lambda: len(leaders(world, shard)) == 1, 30.0, "the shard has a leader")


def test_a_stream_is_founded_and_changed_at_the_same_cost_beside_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others are spoken of in heartbeats only, which are as many as their time has room for."""
    world = grown(3)
    others = {founded(world, f"s{number}") for number in range(12)}
    world.run(2.0)
    orders: Counter[str] = Counter()
    original = Supervision.order

    def order(self: Supervision, *arguments: Any) -> ShardOrder:
        orders[self.shard] += 1
        return original(self, *arguments)

    monkeypatch.setattr(Supervision, "order", order)
    start = world.now
    for number in range(12, 18):
        assert isinstance(add(world, "n1", f"s{number}"), StreamInfo)
        change = EditStream(world.clients.request(), f"s{number}", keep_seconds=9.0)
        assert isinstance(world.ask("n1", change), Streams)
    beats = int((world.now - start) / HEARTBEAT) + 1
    assert max(orders[shard] for shard in others) <= beats < 6
