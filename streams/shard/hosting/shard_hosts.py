"""A node's replicas: it makes them, passes their messages on, has them lead, and destroys them.

Orders come from the owner of the stream (streams/directory/), in its heartbeats. They say who is to
have a shard and who is to lead it, and nothing that is acknowledged depends on them: epochs are the
replicas' own votes. A node that is to lead campaigns for an epoch above every one that it has heard
of, and again above the next, until it leads or another is ordered to.

A node whose shards no owner asks for (its cluster was lost with all copies of its log) tells the
owners of the streams' names what it has; and every node does when it hears of a fork, since the
directory there may lack what a majority had committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from overlay.chord.events import ClusterForked, OwnerFound, Replanted
from overlay.chord.ring.ring import Ring
from overlay.info import ConsumerInfo, ForkInfo, HeldShard, IntakeInfo
from overlay.machine import (
    Handlers,
    Key,
    LocalEvent,
    Machine,
    Message,
    NodeId,
    Peer,
    Port,
    ProtocolError,
    Timer,
    handlers_by_name,
    handlers_of,
)
from streams.directory.entry import (
    AVAILABILITY,
    DROP_OLDEST,
    StreamEntry,
    StreamOptions,
    decode_entry,
    encode_entry,
    fault_in_options,
    stream_key,
)
from streams.directory.messages import (
    AskShards,
    KeepShards,
    ShardOrder,
    ShardReport,
    ShardsOrphaned,
    ShardsReport,
    ShardsStatus,
    ShardStatus,
    replica_info,
)
from streams.disk import DiskFailed, LogDisk, Opened
from streams.log.names import split_shard
from streams.log.writers import Access
from streams.shard.messages import ShardFenced
from streams.shard.replica import Replica, ShardLed, ShardUnled
from streams.shard.retention import Keep
from streams.shard.stored_replica import ShardTerms

AGAIN: Final = 1.0
"""Seconds after which a candidate that does not lead tries a higher epoch: three times as long
as it takes to ask all replicas twice (`leader.RETRY`)."""

UNHEARD: Final = 10.0
"""Seconds without a word of its owner after which a shard counts as orphaned: five elections."""

LOOK: Final = 2.0
"""Seconds between looks at what is orphaned, and at what has changed."""


LEAVE_MOST: Final = 5.0
"""Seconds for which a node that leaves waits for its shards' new leaders: ten heartbeats of owners,
which have to elect a leader and to remove a replica. Guess."""

LOOK_AT_LEAVING: Final = 0.25
"""Seconds between two looks at that: half a heartbeat."""

OWNER_AWAY: Final = 2.0
"""Seconds without a word of a shard's owner after which a node that leaves does not wait for it:
four heartbeats."""

EPOCHS_AHEAD: Final = 1 << 32
"""The distance by which an epoch may be higher than that of a replica's vote: more than there are
elections, and a small part of those that there can be."""

SHOWN: Final = 256
"""Shards that a node's status lists: more than a person looks at, and 100 KiB."""

CONSUMERS_SHOWN: Final = 100
"""Durable consumers of a shard that are listed."""

LOST_SHOWN: Final = 8
"""Losses at the end of a shard's log that are listed."""


Offered = tuple[IntakeInfo | None, int | None, tuple[ForkInfo, ...]]
"""The state of what services do for a shard: its intake, the number of keys of its table, and its
forks at this node."""


class LookAtShards(Timer, frozen=True):
    """Time to look at shards without an owner, and at rows to remove."""


class LookAtLeaving(Timer, frozen=True):
    """Time to check whether a node that leaves may go."""


class StreamDescribed(LocalEvent, frozen=True):
    """This node has a new entry of a stream. It may have shards of the stream."""

    id: str


class ShardsReleased(LocalEvent, frozen=True):
    """The node may leave: its shards have other leaders and majorities, or the wait is over."""


@dataclass(eq=False)
class HostedShard:
    """The state of one shard at this node."""

    replica: Replica
    ordered_at: float
    """When the owner was heard last."""
    owner: Peer | None = None
    tried_at: float = float("-inf")
    """When this node last began to take over."""
    fenced: int = 0
    """The highest epoch that others have voted in, as far as they said so."""
    entry: StreamEntry | None = None
    """The stream, as the owner described it last."""
    order: ShardOrder | None = None
    """The owner's last order about it."""
    named: frozenset[NodeId] = frozenset()
    """The nodes that the owner has named for it last: who has it, and who is to lead it."""
    released: bool = False
    """The owner has said that this node, which leaves, is not waited for."""


class ShardHosts(Machine):
    """All shards of this node."""

    def __init__(
        self,
        port: Port,
        disk: LogDisk,
        ring: Ring,
        wall: Callable[[], int],
        is_keyed: bool = False,
    ) -> None:
        """`wall`: nanoseconds since 1970. `is_keyed`: nodes have keys, so that it can be looked at
        who speaks: owners' orders come by `take_orders` from who lets them through."""
        super().__init__(port)
        self._is_keyed = is_keyed
        self._wall = wall
        self.disk = disk
        self.ring = ring
        self.hosted: dict[str, HostedShard] = {}
        self.entries: dict[str, StreamEntry] = {}
        """By stream id, from the heartbeats of owners."""
        self._offered: Callable[[str], Offered] = lambda shard: (None, None, ())
        self._owners: dict[NodeId, float] = {}  # when one of them was heard last
        self._lost: dict[str, list[StreamEntry]] = {}  # by the key that is looked up
        self._leaving_since: float | None = None
        self._is_released = False

    def report_also(self, offered: Callable[[str], Offered]) -> None:
        """Include this in the status of a shard. Called once, by the builder of the services."""
        self._offered = offered

    def handlers(self) -> Handlers:
        """The handlers of this machine, and those of a replica, for the one that is meant."""
        found: dict[Any, Callable[..., None]] = {}
        for kind, name in handlers_by_name(Replica).items():
            found[kind] = (
                self._passing_message(name) if issubclass(kind, Message) else (self._passing(name))
            )
        found |= handlers_of(self)
        if self._is_keyed:
            del found[KeepShards]
        return found

    def _may_speak(self, hosted: HostedShard, node: NodeId, message: Any) -> bool:
        """Whether a node has a part in a shard's replication, by the log or by the owner's word,
        and names no epoch from which there would soon be no higher one. Another member could
        promise a shard away, or have its log cut off."""
        if node == self.port.me.id:
            return True
        if node not in hosted.named and all(node != peer.id for peer in hosted.replica.replicas):
            return False
        ahead = getattr(message, "epoch", 0) - hosted.replica.hard_state.epoch
        return bool(ahead <= EPOCHS_AHEAD)

    def _passing_message(self, name: str) -> Callable[..., None]:
        def handle(sender: Peer, message: Any) -> None:
            if hosted := self.hosted.get(message.shard):
                if self._is_keyed and not self._may_speak(hosted, sender.id, message):
                    self.port.count("shard_messages_refused")
                    return
                if isinstance(message, ShardFenced):
                    hosted.fenced = max(hosted.fenced, message.epoch)
                getattr(hosted.replica, name)(sender, message)

        return handle

    def _passing(self, name: str) -> Callable[..., None]:
        def handle(event: Any) -> None:
            if hosted := self.hosted.get(event.shard):
                getattr(hosted.replica, name)(event)

        return handle

    def start(self) -> None:
        """Open the shards on disk."""
        for shard in self.disk.shards():
            self._hold(shard, ())

    def replica(self, shard: str) -> Replica | None:
        """The replica of a shard; None: this node has none."""
        hosted = self.hosted.get(shard)
        return None if hosted is None else hosted.replica

    def replicas(self) -> list[Replica]:
        """The replicas of all shards that this node has."""
        return [hosted.replica for hosted in self.hosted.values()]

    def leading(self, shard: str) -> Replica | None:
        """The replica of a shard that this node leads and may append to; None: it does not."""
        hosted = self.hosted.get(shard)
        return hosted.replica if hosted is not None and hosted.replica.serves else None

    # -- leaving ---------------------------------------------------------------------------------

    def leave(self) -> None:
        """Have others lead this node's shards, and replace it as a replica where a majority needs
        that. `ShardsReleased` follows."""
        self._leaving_since = self.port.now
        for hosted in self.hosted.values():
            self._tell_owner(hosted)
        self._look_at_leaving()

    def on_look_at_leaving(self, timer: LookAtLeaving) -> None:
        """Look again whether the node's shards go on without it, so that it may leave."""
        self._look_at_leaving()

    def _look_at_leaving(self) -> None:
        if self._is_released:
            return
        if self.unreleased:
            self.port.set_timer(LOOK_AT_LEAVING, LookAtLeaving())
        else:
            self._is_released = True
            self.port.emit(ShardsReleased())

    @property
    def unreleased(self) -> int:
        """Shards for which this node, which leaves, is still waited for."""
        now, since = self.port.now, self._leaving_since
        if since is None or now - since > LEAVE_MOST:
            return 0
        return sum(
            not hosted.released
            and hosted.replica.ready
            and len(hosted.replica.replicas) > 1
            and now - self._owner_heard(hosted) < OWNER_AWAY
            for hosted in self.hosted.values()
        )

    def _owner_heard(self, hosted: HostedShard) -> float:
        """Return when the owner of a shard was last heard, about any shard."""
        owner = "" if hosted.owner is None else hosted.owner.id
        return max(hosted.ordered_at, self._owners.get(owner, 0.0))

    # -- forks -----------------------------------------------------------------------------------

    def hold_fork(self, main: str, fork: str) -> None:
        """Have a log of its own, with this node as its only replica, for rows of the shard `main`
        that cannot be replicated. It has the bounds of the shard, and nothing is removed from it
        until it is copied."""
        hosted = self._hold(fork, (self.port.me,))
        entry = self.entries[main.rpartition("/")[0]]
        terms, keep = terms_of(entry), keep_of(entry.options)
        keep = Keep(
            most_bytes=keep.most_bytes, most_rows=keep.most_rows, key=keep.key, deletes=keep.deletes
        )
        hosted.replica.describe(terms._replace(keep=keep))

    # -- orders ----------------------------------------------------------------------------------

    def keys_of(self, message: KeepShards) -> Iterator[Key]:
        """The keys of the streams that these orders are about: whose owner gives them. What a
        stream is called this node knows, or is told with the orders."""
        told = {entry.id: entry for entry in message.entries}
        ids = dict.fromkeys([*told, *(order.shard.rpartition("/")[0] for order in message.orders)])
        for id_ in ids:
            entry = self.entries.get(id_) or told.get(id_)
            if entry is None:
                raise ProtocolError("an order about a stream that nobody has named")
            yield stream_key(entry.name)

    def on_keep_shards(self, sender: Peer, message: KeepShards) -> None:
        """The owner's word on some shards: carry it out, and report. Raises ProtocolError for
        options of a stream that no owner has let pass."""
        if any(fault_in_options(entry.options) for entry in message.entries):
            raise ProtocolError("a stream with options that contradict one another")
        for entry in message.entries:
            if self.entries.get(entry.id) != entry:
                self.entries[entry.id] = entry
                self.port.emit(StreamDescribed(entry.id))
        self._owners[sender.id] = self.port.now
        reports = []
        for order in message.orders:
            if order.removed:
                self.destroy(order.shard)
                reports.append(ShardReport(order.shard, 0, (0, 0), True, (), is_gone=True))
            else:
                reports.append(self._keep(sender, order))
        self.port.send(sender, ShardsReport(tuple(reports)))
        if self._leaving_since is not None:
            self._look_at_leaving()

    def _keep(self, owner: Peer, order: ShardOrder) -> ShardReport:
        hosted = self.hosted.get(order.shard)
        me = self.port.me.id
        mine = bool(order.founders) and any(peer.id == me for peer in order.founders)
        if hosted is None:
            hosted = self._hold(order.shard, order.founders if mine else ())
        elif mine:
            hosted.replica.found(order.founders)
        hosted.ordered_at, hosted.owner = self.port.now, owner
        if order != hosted.order:
            hosted.order, hosted.released = order, me in order.released
            named = (*(peer.id for peer in (*order.founders, *order.replicas)), order.leader)
            hosted.named = frozenset(filter(None, named))
        entry = self.entries.get(order.shard.rpartition("/")[0])
        if entry is not None and hosted.entry is not entry:
            hosted.entry = entry
            hosted.replica.describe(terms_of(entry))
        if order.leader == me:
            self._lead(hosted)
        if hosted.replica.serves and order.replicas:
            self._adjust(hosted.replica, order.replicas)
        return self._report(hosted.replica)

    def _hold(self, shard: str, founders: Sequence[Peer]) -> HostedShard:
        if not self.hosted:
            self.port.set_timer(LOOK, LookAtShards())
        replica = Replica(self.port, self.disk, shard, founders)
        hosted = self.hosted[shard] = HostedShard(replica, self.port.now)
        replica.start()
        return hosted

    def _lead(self, hosted: HostedShard) -> None:
        replica, now = hosted.replica, self.port.now
        if not replica.ready or replica.leader is not None or now < hosted.tried_at + AGAIN:
            return
        hosted.tried_at = now
        replica.lead(max(replica.hard_state.epoch, hosted.fenced) + 1)

    def _adjust(self, replica: Replica, wanted: Sequence[Peer]) -> None:
        """Change the replicas one at a time: first add missing ones, then remove surplus ones, but
        never the leader."""
        leader = replica.leader
        assert leader is not None
        if wanted == replica.replicas and not leader.coming:
            return
        there = {peer.id for peer in replica.replicas}
        missing = [peer for peer in wanted if peer.id not in there]
        leader.forget_coming(peer.id for peer in wanted)
        if missing:
            leader.add_replica(missing[0])
            return
        kept = {peer.id for peer in wanted}
        for node in sorted(there - kept):
            if leader.remove_replica(node):
                return

    def destroy(self, shard: str) -> None:
        """Remove the replica of a shard, with its log: the stream or this replica was removed, or
        all rows of a fork are in the main log."""
        hosted = self.hosted.pop(shard, None)
        if hosted is not None:
            self.port.count("shards_destroyed")
            if hosted.replica.serves:
                self.port.emit(ShardUnled(shard))
        self.disk.destroy(shard)

    # -- reports ---------------------------------------------------------------------------------

    def _report(self, replica: Replica) -> ShardReport:
        leader = replica.leader if replica.serves else None
        is_settled = leader is not None and leader.may_change()
        return ShardReport(
            replica.shard,
            0 if leader is None else leader.epoch,
            replica.log.position,
            replica.takes_part,
            replica.replicas if is_settled else (),
            is_barred=replica.barred,
            is_leaving=self._leaving_since is not None,
        )

    def on_opened(self, event: Opened) -> None:
        """A shard was read: its owner may be waiting to hear how far it is."""
        hosted = self.hosted.get(event.shard)
        if hosted is not None:
            hosted.replica.on_opened(event)
            self._learn(event.found.state.stream)
            self._tell_owner(hosted)

    def _learn(self, value: bytes) -> None:
        """Keep the stream's entry from the log, for its owner if that does not know it."""
        entry = decode_entry(value) if value else None
        if entry is not None and entry.id not in self.entries:
            self.entries[entry.id] = entry
            self.port.emit(StreamDescribed(entry.id))

    def on_leadership(self, event: ShardLed | ShardUnled) -> None:
        """Report to the owner of a shard, at once, that this node leads it, or no longer does, so
        that it finds another leader."""
        if hosted := self.hosted.get(event.shard):
            self._tell_owner(hosted)

    def on_disk_failed(self, event: DiskFailed) -> None:
        """A replica takes part in nothing until its disk is read again."""
        hosted = self.hosted.get(event.shard)
        if hosted is not None:
            hosted.replica.on_disk_failed(event)
            self._tell_owner(hosted)

    def _tell_owner(self, hosted: HostedShard) -> None:
        if hosted.owner is not None:
            self.port.send(hosted.owner, ShardsReport((self._report(hosted.replica),)))

    def on_ask_shards(self, sender: Peer, message: AskShards) -> None:
        """Say how some shards are here."""
        found = [hosted.replica for shard in message.shards if (hosted := self.hosted.get(shard))]
        self.port.send(sender, ShardsStatus(message.ticket, tuple(map(self.status, found))))

    def status(self, replica: Replica) -> ShardStatus:
        """The state of a replica of this node."""
        return _status(replica, *self._offered(replica.shard))

    def held_shards(self) -> tuple[HeldShard, ...]:
        """The shards of this node for people, the first `SHOWN`."""
        found = []
        for shard in sorted(self.hosted)[:SHOWN]:
            id_, _, number = split_shard(shard)[0].rpartition("/")
            entry, replica = self.entries.get(id_), self.hosted[shard].replica
            here = replica_info(self.port.me, self.status(replica))
            name, fork = entry.name if entry else id_, split_shard(shard)[1]
            name = f"{name} (fork {fork})" if fork else name
            found.append(HeldShard(name, int(number), here))
        return tuple(sorted(found, key=lambda each: (each.stream, each.number)))

    # -- shards without an owner -----------------------------------------------------------------

    def on_look_at_shards(self, timer: LookAtShards) -> None:
        """Have leaders remove the rows that retention no longer keeps. Tell the owners of streams
        about local shards that no owner has mentioned for `UNHEARD` seconds."""
        self._retain()
        late = self.port.now - UNHEARD
        unheard = (s for s, hosted in self.hosted.items() if hosted.ordered_at < late)
        for id_ in dict.fromkeys(split_shard(shard)[0].rpartition("/")[0] for shard in unheard):
            entry = self.entries.get(id_)
            if entry is not None:
                self._lost.setdefault(stream_key(entry.name), []).append(entry)
        for key in list(self._lost):
            self.ring.find(key)
        if self.hosted:
            self.port.set_timer(LOOK, timer)

    def on_cluster_forked(self, event: ClusterForked) -> None:
        """The directory there (perhaps this node's own) may lack the streams of this node's shards:
        tell it at once."""
        self._tell_directory(event.cluster.primary, event.cluster.owns)

    def on_replanted(self, event: Replanted) -> None:
        """Tell the directory about local shards after this node has taken the place of a lost
        cluster, since its directory may lack them, too."""
        everything = event.others
        self._tell_directory(self.port.me, lambda key: everything or event.lost.owns(key))

    def _tell_directory(self, primary: Peer, owns: Callable[[Key], bool]) -> None:
        """Tell who leads another directory than before which streams this node has shards of."""
        ids = dict.fromkeys(split_shard(shard)[0].rpartition("/")[0] for shard in self.hosted)
        found = [self.entries[id_] for id_ in ids if id_ in self.entries]
        if entries := tuple(entry for entry in found if owns(stream_key(entry.name))):
            self.port.send(primary, ShardsOrphaned(entries))

    def _retain(self) -> None:
        now = self._wall()
        for hosted in self.hosted.values():
            leader = hosted.replica.leader
            if leader is not None and hosted.entry is not None and hosted.replica.serves:
                leader.retain(hosted.replica.terms.keep, now)

    def on_owner_found(self, event: OwnerFound) -> None:
        """The owner of a name: tell it what this node has."""
        entries = self._lost.pop(event.key, None)
        if entries:
            known = {entry.id: entry for entry in entries}
            self.port.send(event.cluster.primary, ShardsOrphaned(tuple(known.values())))


def terms_of(entry: StreamEntry) -> ShardTerms:
    """A stream's entry, as its replicas need it."""
    access = Access(entry.name, entry.options.writers)
    return ShardTerms(encode_entry(entry), access, keep_of(entry.options))


def keep_of(options: StreamOptions) -> Keep:
    """The part of a stream's options that says which rows are kept and taken."""
    return Keep(
        int(options.keep_seconds * 1e9),
        options.keep_bytes,
        options.drop_unread,
        int(options.expire_consumers),
        options.max_bytes,
        options.max_rows,
        options.when_full == DROP_OLDEST,
        options.key,
        options.deletes,
        int(options.ttl_seconds * 1e9),
        options.ttl_by,
        options.prefer == AVAILABILITY,
    )


def _status(
    replica: Replica, intake: IntakeInfo | None, keys: int | None, forks: tuple[ForkInfo, ...]
) -> ShardStatus:
    log, leader = replica.log, replica.leader if replica.serves else None
    behind: list[tuple[NodeId, int]] = []
    consumers: list[ConsumerInfo] = []
    if leader is not None:
        for follower in leader.tracker.followers.values():
            behind.append((follower.peer.id, log.end.number - follower.match))
        for name in sorted(replica.state.consumers)[:CONSUMERS_SHOWN]:
            known = replica.state.consumers[name]
            about = (known.selector, known.position, known.dropped, known.was_at)
            consumers.append(ConsumerInfo(name, *about))
    not_ready = "opening" if replica.repair is None else "mending"
    state = "barred" if replica.barred else "follows" if replica.ready else not_ready
    halves = replica.state.transactions.halves.values()
    first = max(replica.state.floor, log.first_offset)
    lost = [(one.offset, one.end) for one in replica.state.lost if one.offset >= first]
    return ShardStatus(
        replica.shard,
        "leads" if replica.serves else state,
        replica.hard_state.epoch,
        first,
        log.next_offset,
        log.end.number,
        replica.durable,
        replica.committed,
        sum(segment.size for segment in log.segments),
        log.time,
        intake,
        replica.hard_state.suspect,
        tuple(behind),
        tuple(consumers),
        len(halves),
        sum(half.parked for half in halves),
        keys,
        forks,
        tuple(lost[-LOST_SHOWN:]) if leader is not None else (),
    )
