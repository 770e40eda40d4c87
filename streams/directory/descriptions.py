"""Descriptions of streams, shards and replicas for people and programs (overlay/info.py)."""

from __future__ import annotations

from typing import Final

from overlay.consensus.quorum import majority
from overlay.info import ReplicaInfo, ShardInfo, StreamInfo
from overlay.machine import NodeId, Peer
from streams.directory.entry import StreamEntry
from streams.directory.messages import ShardStatus

CAPTURES: Final = "captures"
"""State of a replica whose capture is acknowledged (`overlay.info.IntakeInfo`)."""


def stream_info(
    entry: StreamEntry,
    leaders: tuple[Peer | None, ...],
    heard: dict[NodeId, dict[str, ShardStatus]] | None,
) -> StreamInfo:
    """A stream for people and programs. `heard`: the answers of its nodes; None: they were not
    asked."""
    shards = []
    for number, place in enumerate(entry.places):
        leader = leaders[number] if number < len(leaders) else None
        shard = entry.shard(number)
        replicas = tuple(
            replica_info(peer, None if heard is None else heard.get(peer.id, {}).get(shard))
            for peer in place.replicas
        )
        shards.append(ShardInfo(number, "" if leader is None else leader.id, replicas))
    options = entry.options
    return StreamInfo(
        *(entry.name, entry.id, options.by, options.replicas),
        *(options.keep_seconds, options.keep_bytes, tuple(shards), options.capture),
        tuple((source.stream, source.where) for source in options.sources),
        *(options.mirror, options.region),
        *(options.drop_unread, options.expire_consumers),
        *(options.max_bytes, options.max_rows),
        *(options.when_full, options.key, options.deletes),
        *(options.ttl_seconds, options.ttl_by),
        options.prefer,
        options.writers,
    )


def takes_in(info: StreamInfo) -> bool:
    """Whether each shard has a leader and a majority of replicas that answer, and all of these
    capture with the stream's selector."""
    for shard in info.shards:
        there = [r for r in shard.replicas if r.state in ("leads", "follows")]
        if len(there) < majority(len(shard.replicas)) or all(r.state != "leads" for r in there):
            return False
        for one in there:
            intake = one.intake
            if intake is None or (intake.state, intake.selector) != (CAPTURES, info.capture):
                return False
    return True


def replica_info(peer: Peer, status: ShardStatus | None) -> ReplicaInfo:
    """A replica for people; `status` None: it has not answered."""
    if status is None:
        return ReplicaInfo(peer.id, peer.address, "silent", region=peer.region)
    return ReplicaInfo(
        *(peer.id, peer.address, status.state, status.epoch, status.first, status.next),
        *(status.durable, status.committed, status.size, status.time / 1e9, status.intake),
        *(status.damaged, status.behind, status.consumers, status.halves, status.parked),
        *(status.keys, status.forks, peer.region, status.lost),
    )
