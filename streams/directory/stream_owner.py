"""The owner of streams' names: at the primary of the cluster in whose arc the key of a name lies.

It founds and removes streams by entries of the cluster's log, answers where their shards are, and
sends heartbeats to the nodes that have them (supervision.py). A new primary of the cluster asks all
replicas before it nominates a leader, so that it deposes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from overlay.chord.events import Committed, Elected, ObserversProgressed, Replanted, RoleChanged
from overlay.chord.ring.ring import Ring
from overlay.command_faults import fault_in_stream_name
from overlay.links.events import LinkDown
from overlay.machine import Alarm, Machine, NodeId, Peer, Port, Timer, by_id
from overlay.phrases import no_stream
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.tree_log import DirectoryChanged
from streams.directory.entry import (
    PREFIX,
    ShardPlace,
    StreamEntry,
    StreamOptions,
    choose_replicas,
    decode_entry,
    differing,
    directory_name,
    encode_entry,
    fault_in_entry,
    fault_in_options,
    inside,
    stream_key,
    unfit,
)
from streams.directory.messages import (
    SHARDS_PER_MESSAGE,
    AskStream,
    AskStreams,
    ChangeStream,
    EraseStream,
    FoundStream,
    KeepShards,
    ShardOrder,
    ShardsOrphaned,
    ShardsReport,
    StreamElsewhere,
    StreamFound,
    StreamRefused,
    StreamsReport,
)
from streams.directory.supervision import HEARTBEAT, REFRESH, SILENT, Supervision

STREAMS_MOST: Final = 1_000
"""The limit of streams whose names one cluster owns. Guess; each costs heartbeats."""

DOUBTED: Final = 8.0
"""Seconds after a fork for which a name that this node does not know may be one that its directory
lacks. Nodes that have shards of it say so as soon as they hear of the fork; as long as events wait
for registrations that a copy may lack (`overlay.upper_tree.owner.constants.RESTORE_MOST`)."""

REPORTED: Final = 200
"""Streams in one StreamsReport."""


class KeepShardsDue(Timer, frozen=True):
    """Time for the next heartbeat to the nodes that have shards."""


Orders = dict[NodeId, tuple[Peer, list[ShardOrder], dict[str, StreamEntry]]]
"""The orders for each node, with the streams of their shards."""


class _Settled(NamedTuple):
    """A stream whose nodes get no new orders."""

    entry: StreamEntry
    value: bytes  # the same in the directory
    until: float
    orders: tuple[tuple[Peer, ShardOrder], ...]  # the last ones

    @property
    def is_complete(self) -> bool:
        """Whether no other node may come to have a shard."""
        count = self.entry.options.replicas
        return all(len(place.replicas) >= count for place in self.entry.places)


class StreamOwner(Machine):
    """The streams in the directory of this node's cluster, if it is the primary."""

    def __init__(
        self, port: Port, owner: Owner, ring: Ring, neighbours: Callable[[], Iterable[Peer]]
    ) -> None:
        """`neighbours`: candidates for replicas, beside the members of the own cluster."""
        super().__init__(port)
        self.owner = owner
        self.ring = ring
        self.neighbours = neighbours
        self._decoded: dict[str, tuple[bytes, StreamEntry]] = {}
        self._supervised: dict[str, Supervision] = {}
        self._waiting: list[tuple[int, Peer, int, str]] = []  # (log index, who asked, ticket, name)
        self._removing: dict[str, set[NodeId]] = {}  # by shard, the nodes that have destroyed it
        self._watched: dict[NodeId, Peer] = {}  # receivers of the last heartbeats
        self._settled: dict[str, _Settled] = {}  # by the name in the directory
        self._alive: dict[NodeId, float] = {}  # when each node was heard last
        self._cluster: object = None  # at the last heartbeat
        self._doubted_until = float("-inf")  # the directory may lack streams until then
        self._due = Alarm(port, KeepShardsDue())

    # -- what is known ---------------------------------------------------------------------------

    def entry(self, name: str) -> StreamEntry | None:
        """A stream in the own cluster's directory; None: it has none, or cannot read it."""
        value = self.owner.state.directory.get(directory_name(name))
        if value is None:
            return None
        known = self._decoded.get(name)
        if known is None or known[0] is not value:
            entry = decode_entry(value)
            if entry is None:
                self.port.count("stream_entries_unreadable")
                return None
            known = self._decoded[name] = (value, entry)
        return known[1]

    def entries(self) -> list[StreamEntry]:
        """All streams that this node decides about, in order of name, with tombstones."""
        directory = self.owner.state.directory
        return self._decided(
            sorted(n.removeprefix(PREFIX) for n in directory if n.startswith(PREFIX))
        )

    def _decided(self, names: Iterable[str]) -> list[StreamEntry]:
        """The entries of these streams, as far as this node decides about them."""
        found = (self.entry(name) for name in names if self.decides(name))
        return [entry for entry in found if entry is not None]

    def _is_full(self) -> bool:
        """Whether this node decides about `STREAMS_MOST` streams. It counts them only if the
        directory has that many names, since counting decodes each entry."""
        is_near = len(self.owner.state.directory) >= STREAMS_MOST
        return is_near and len(self.entries()) >= STREAMS_MOST

    def decides(self, name: str) -> bool:
        """Whether this node decides about a stream's name now."""
        return self.owner.decides_key(stream_key(name))

    def _write(self, entry: StreamEntry) -> int:
        change = DirectoryChanged(directory_name(entry.name), encode_entry(entry))
        return self.owner.append(change)

    def _candidates(self, options: StreamOptions) -> dict[NodeId, Peer]:
        """The candidates for replicas of a stream."""
        known = by_id((*self.owner.clusters.members(), *self.neighbours(), self.port.me))
        return inside(options.region, known)

    # -- what others ask -------------------------------------------------------------------------

    def on_found_stream(self, sender: Peer, message: FoundStream) -> None:
        """Found a stream, unless there is another one of that name."""
        if self._is_elsewhere(sender, message.ticket, message.name):
            return
        known = self.entry(message.name)
        refused = fault_in_stream_name(message.name) or fault_in_options(message.options)
        if refused:
            self._refuse(sender, message.ticket, "usage", refused)
        elif known is not None and not known.removed and known.id != message.id:
            others = differing(known.options, message.options)
            how = f"it has other options than these: {others}" if others else "with these options"
            reason = f"there is a stream {message.name} already ({how}), with the id {known.id}"
            self._refuse(sender, message.ticket, "exists", reason)
        elif known is not None and known.id == message.id:
            self._answer_when_committed(sender, message.ticket, known)
        elif known is None and self._is_in_doubt():
            self.port.send(sender, StreamElsewhere(message.ticket, None))
        elif self._is_full():
            reason = f"this part of the directory has {STREAMS_MOST} streams already"
            self._refuse(sender, message.ticket, "full", reason)
        else:
            options = message.options
            candidates = self._candidates(options)
            places = tuple(
                ShardPlace(choose_replicas(message.id, shard, options.replicas, candidates))
                for shard in range(options.shards)
            )
            entry = StreamEntry(message.name, message.id, options, places)
            self.port.count("streams_founded")
            self._answer_when_committed(sender, message.ticket, entry)
            self._beat((entry.name,))

    def on_erase_stream(self, sender: Peer, message: EraseStream) -> None:
        """Remove a stream: its entry becomes a tombstone, for which every node destroys its
        shards."""
        if self._is_elsewhere(sender, message.ticket, message.name):
            return
        known = self.entry(message.name)
        if known is None:
            self._say_unknown(sender, message.ticket, message.name)
            return
        self._answer_when_committed(sender, message.ticket, replace(known, removed=True))

    def on_change_stream(self, sender: Peer, message: ChangeStream) -> None:
        """Change the options of a stream."""
        if self._is_elsewhere(sender, message.ticket, message.name):
            return
        known = self.entry(message.name)
        if known is None or known.removed:
            self._say_unknown(sender, message.ticket, message.name, known)
            return
        try:
            options = changed(known.options, message)
        except msgspec.ValidationError as error:
            self._refuse(sender, message.ticket, "usage", unfit(error))
            return
        if refused := fault_in_options(options):
            self._refuse(sender, message.ticket, "usage", refused)
            return
        self._answer_when_committed(sender, message.ticket, replace(known, options=options))
        self._beat((known.name,))

    def on_ask_stream(self, sender: Peer, message: AskStream) -> None:
        """Answer with a stream's entry and leaders."""
        if self._is_elsewhere(sender, message.ticket, message.name):
            return
        known = self.entry(message.name)
        if known is not None and not known.removed:
            self._answer(sender, message.ticket, known)
            return
        self._say_unknown(sender, message.ticket, message.name, known)

    def on_ask_streams(self, sender: Peer, message: AskStreams) -> None:
        """Answer with the streams of this cluster."""
        cluster = self.owner.clusters.cluster
        if cluster is None or not self.owner.clusters.is_primary:
            return
        found = [e for e in self.entries() if e.name > message.after and not e.removed]
        part = tuple(found[:REPORTED])
        more = len(found) > len(part)
        self.port.send(sender, StreamsReport(message.ticket, cluster.key, part, more))

    def _is_elsewhere(self, sender: Peer, ticket: int, name: str) -> bool:
        if self.decides(name):
            return False
        cluster = self.owner.clusters.cluster
        key = stream_key(name)
        if cluster is None or not cluster.owns(key) or cluster.primary.id == self.port.me.id:
            cluster = self.ring.owner(key)
        if cluster is not None and cluster.primary.id == self.port.me.id:
            cluster = None
        self.port.send(sender, StreamElsewhere(ticket, cluster))
        return True

    def _say_unknown(
        self, sender: Peer, ticket: int, name: str, known: StreamEntry | None = None
    ) -> None:
        """Answer that there is no stream of that name, or that `known` was removed. If this node
        may not have the whole directory yet, the asker is told to ask again."""
        if known is None and self._is_in_doubt():
            self.port.send(sender, StreamElsewhere(ticket, None))
            return
        reason = no_stream(name)
        refused = StreamRefused(ticket, "unknown", reason, removed=known is not None)
        self.port.send(sender, refused)

    def _is_in_doubt(self) -> bool:
        """Return whether this node leads an arc of which it may not have the whole directory
        yet."""
        return self.port.now < self._doubted_until

    def _refuse(self, sender: Peer, ticket: int, code: str, reason: str) -> None:
        self.port.send(sender, StreamRefused(ticket, code, reason))

    def _answer(self, sender: Peer, ticket: int, entry: StreamEntry) -> None:
        leaders, answering = [], []
        for shard, place in zip(entry.shards(), entry.places, strict=True):
            leaders.append(self._leader(shard))
            known = self._supervised.get(shard)
            answering.append(-1 if known is None else known.answering(place, self.port.now))
        self.port.send(sender, StreamFound(ticket, entry, tuple(leaders), tuple(answering)))

    def _leader(self, shard: str) -> Peer | None:
        supervision = self._supervised.get(shard)
        heard = None if supervision is None else supervision.leader(self.port.now)
        return None if heard is None else heard.peer

    def _answer_when_committed(self, sender: Peer, ticket: int, entry: StreamEntry) -> None:
        """Append the entry, even if the log has it, and answer when it is committed: an entry of a
        former primary, or one that is not committed yet, may still be lost."""
        self._waiting.append((self._write(entry), sender, ticket, entry.name))
        self._answer_due()

    # -- the log ---------------------------------------------------------------------------------

    def on_committed(self, event: Committed) -> None:
        """Answer those whose entries are committed; begin heartbeats with the first stream."""
        if self._waiting:
            self._answer_due()
        if self.owner.state.directory:
            self._due.within(HEARTBEAT)

    def on_observers_progressed(self, event: ObserversProgressed) -> None:
        """Answer those whose entries the observers have copied."""
        if self._waiting:
            self._answer_due()

    def on_role_changed(self, event: RoleChanged) -> None:
        """Forget everything when this node is no longer primary: nodes ask the next one."""
        if event.role != "primary":
            self._waiting.clear()
            self._supervised.clear()
            self._settled.clear()
            self._decoded.clear()
            self._removing.clear()
        elif self.owner.state.directory:
            self._due.within(0.0)

    def on_elected(self, event: Elected) -> None:
        """Doubt the directory for a while after a fork, which may lack entries that a majority has
        committed. Nodes with shards of such streams report them."""
        if event.forked:
            self._doubted_until = self.port.now + DOUBTED

    def on_replanted(self, event: Replanted) -> None:
        """Allow the copy of a lost cluster's log to lead as well, if there is one."""
        self._doubted_until = self.port.now + DOUBTED

    def _answer_due(self) -> None:
        owner, left = self.owner, []
        for index, sender, ticket, name in self._waiting:
            if index >= owner.committed or not owner.clusters.is_copied(index):
                left.append((index, sender, ticket, name))
            elif not self._is_elsewhere(sender, ticket, name):
                entry = self.entry(name)
                if entry is not None:
                    self._answer(sender, ticket, entry)
        self._waiting = left

    # -- heartbeats ------------------------------------------------------------------------------

    def on_keep_shards_due(self, timer: KeepShardsDue) -> None:
        """Send heartbeats to all replicas of this node's streams."""
        self._due.rang()
        self._beat()

    def _beat(self, names: Iterable[str] | None = None) -> None:
        """Send heartbeats about these streams to their replicas. None: about all streams that are
        not settled, and to the replicas of all streams. A change of one stream causes a heartbeat
        about that one only, so that it costs the same beside many others."""
        if not self.owner.clusters.is_primary or not self.owner.state.directory:
            return
        self._due.within(HEARTBEAT)
        if not self.owner.clusters.is_followed:
            return
        orders: Orders = {}
        if names is None:
            self._look_at_nodes()
            for entry in self._unsettled(orders):
                self._order(entry, orders)
            self._forget_shards()
            for settled in self._settled.values():
                for peer, _ in settled.orders:
                    if peer.id not in orders:
                        orders[peer.id] = (peer, [], {})
            self._watch({node: peer for node, (peer, _, _) in orders.items()})
        else:
            for entry in self._decided(dict.fromkeys(names)):
                self._order(entry, orders)
            peers = {node: peer for node, (peer, _, _) in orders.items()}
            if not peers.keys() <= self._watched.keys():
                self._watch({**self._watched, **peers})
        for peer, mine, streams in orders.values():
            for first in range(0, max(len(mine), 1), SHARDS_PER_MESSAGE):
                part = tuple(mine[first : first + SHARDS_PER_MESSAGE])
                ids = {order.shard.rpartition("/")[0] for order in part}
                known = tuple(entry for id_, entry in streams.items() if id_ in ids)
                self.port.send(peer, KeepShards(part, known))

    def _unsettled(self, orders: Orders) -> list[StreamEntry]:
        """The streams whose nodes may need new orders, in order of name. Repeats orders of others
        that are due."""
        now, found = self.port.now, []
        for name, value in self.owner.state.directory.items():
            known = self._settled.get(name)
            if known is not None and known.value is value and known.until > now:
                continue
            if known is not None and known.value is value and self._repeat(name, known, orders):
                continue
            self._settled.pop(name, None)
            if name.startswith(PREFIX):
                found.append(name.removeprefix(PREFIX))
        return self._decided(sorted(found))

    def _repeat(self, name: str, known: _Settled, orders: Orders) -> bool:
        """Repeat the last orders for a settled stream. Return whether that was possible without
        checking the stream again."""
        if not known.is_complete or not self.decides(known.entry.name):
            return False
        for peer, order in known.orders:
            _give(orders, peer, order, known.entry)
        self._settled[name] = known._replace(until=self.port.now + REFRESH)
        return True

    def _look_at_nodes(self) -> None:
        """Nothing is settled where a node is silent, nor when the cluster is another one."""
        if self.owner.clusters.cluster != self._cluster:
            self._cluster = self.owner.clusters.cluster
            self._settled.clear()
        late = self.port.now - SILENT
        silent = {node for node in self._watched if self._alive.get(node, 0.0) < late}
        if silent:
            self._unsettle(silent)

    def _unsettle(self, nodes: set[NodeId]) -> None:
        """Check again all streams of which one of these nodes has shards, since new orders may be
        due."""
        for name, settled in list(self._settled.items()):
            if not nodes.isdisjoint([peer.id for peer, _ in settled.orders]):
                del self._settled[name]

    def _forget_shards(self) -> None:
        """Supervise no shards of streams that are gone, or that others decide about."""
        directory = self.owner.state.directory
        for shard, supervision in list(self._supervised.items()):
            name = supervision.name
            if name not in self._settled and (
                name not in directory or shard not in self._shards_of(supervision.stream)
            ):
                del self._supervised[shard]

    def _shards_of(self, name: str) -> tuple[str, ...]:
        entry = self.entry(name) if self.decides(name) else None
        return () if entry is None or entry.removed else entry.shards()

    def _order(self, found: StreamEntry, orders: Orders) -> None:
        """Add the orders of a stream, and write to the log where its shards are."""
        now, entry, is_settled = self.port.now, found, True
        given: list[tuple[Peer, ShardOrder]] = []
        if entry.removed:
            is_settled = not self._order_removal(entry, orders)
        for number, shard in enumerate(() if entry.removed else entry.shards()):
            supervision = self._supervised.get(shard)
            if supervision is None:
                supervision = Supervision(entry, number, now, self._alive)
                self._supervised[shard] = supervision
            place = supervision.place(entry, now)
            if place is not None:
                entry = entry.placed(number, place)
            order = supervision.order(entry, partial(self._candidates, entry.options), now)
            is_settled &= supervision.is_settled(entry.places[number], order, now)
            inside = by_id(entry.places[number].replicas)
            for node, peer in by_id((*inside.values(), *order.replicas)).items():
                if node not in inside and supervision.is_barred(node):
                    # It was removed, and is to come again: not with what it has.
                    _give(orders, peer, ShardOrder(shard, "", (), (), removed=True), entry)
                else:
                    _give(orders, peer, order, entry)
                    given.append((peer, order))
            for peer in supervision.released(entry.places[number], now):
                if peer.id not in inside:
                    _give(orders, peer, ShardOrder(shard, "", (), (), released=(peer.id,)), entry)
        if entry is not found:
            self._write(entry)
        elif is_settled:
            self._settle(entry, given)

    def _settle(self, entry: StreamEntry, given: list[tuple[Peer, ShardOrder]]) -> None:
        """Nothing new is to be said of a stream. Of a removed one there never is."""
        value = self._decoded[entry.name][0]
        until = float("inf") if entry.removed else self.port.now + REFRESH
        settled = _Settled(entry, value, until, tuple(given))
        self._settled[directory_name(entry.name)] = settled

    def _watch(self, peers: dict[NodeId, Peer]) -> None:
        self._watched = peers
        self.port.watch("shards", list(peers.values()))

    def _order_removal(self, entry: StreamEntry, orders: Orders) -> bool:
        """Have the shards of a removed stream destroyed. Returns whether some are not yet."""
        is_left = False
        for shard, place in zip(entry.shards(), entry.places, strict=True):
            gone = self._removing.setdefault(shard, set())
            for peer in place.replicas:
                if peer.id not in gone:
                    is_left = True
                    _give(orders, peer, ShardOrder(shard, "", (), (), removed=True), entry)
        return is_left

    # -- what the nodes report -------------------------------------------------------------------

    def on_shards_report(self, sender: Peer, message: ShardsReport) -> None:
        """Keep a node's reports; send heartbeats at once where they decide something."""
        now = self._alive[sender.id] = self.port.now
        urgent: list[str] = []  # streams whose replicas get heartbeats at once
        for report in message.reports:
            supervision = self._supervised.get(report.shard)
            if report.is_gone:
                self._removing.get(report.shard, set()).add(sender.id)
                if supervision is not None:
                    supervision.destroyed(sender.id)
                    self._settled.pop(supervision.name, None)
            elif supervision is not None:
                moves = supervision.moves_on(sender.id, report)
                if supervision.reported(sender, report, now):
                    self._settled.pop(supervision.name, None)
                elif supervision.name in self._settled:
                    continue
                entry = self.entry(supervision.stream)
                place = None if entry is None else entry.places[supervision.number]
                if moves or (place is not None and supervision.is_decidable(place, now)):
                    urgent.append(supervision.stream)
        if urgent:
            self._beat(urgent)

    def on_link_down(self, event: LinkDown) -> None:
        """Have another replica take over at once where the unreachable node led."""
        led: list[str] = []
        self._alive.pop(event.peer.id, None)
        self._unsettle({event.peer.id})
        for supervision in self._supervised.values():
            leader = supervision.leader(self.port.now)
            if leader is not None and leader.peer.id == event.peer.id:
                led.append(supervision.stream)
            supervision.link_down(event.peer.id)
        if led:
            self._beat(led)

    def on_shards_orphaned(self, sender: Peer, message: ShardsOrphaned) -> None:
        """Add the streams of a node's orphaned shards if they are not known, and order the node to
        destroy shards of removed streams, and those in which it was replaced."""
        for entry in message.entries:
            if not self.decides(entry.name):
                continue
            known = self.entry(entry.name)
            if known is None and (fault_in_entry(entry) or self._is_full()):
                self.port.count("streams_not_taken_in")
            elif known is None:
                self.port.count("streams_taken_in")
                self._write(entry)
            elif known.id != entry.id:
                self.port.count("streams_of_one_name")  # two rings have merged that both had it
            else:
                self._order_stranger(sender, known)

    def _order_stranger(self, node: Peer, entry: StreamEntry) -> None:
        """Order a node to destroy the shards of a stream that it should no longer have."""
        orders = []
        for shard, place in zip(entry.shards(), entry.places, strict=True):
            supervision = self._supervised.get(shard)
            leader = None if supervision is None else supervision.leader(self.port.now)
            is_replaced = (
                leader is not None
                and bool(leader.report.replicas)
                and node.id not in by_id(leader.report.replicas)
                and node.id not in by_id(place.replicas)
            )
            if entry.removed or is_replaced:
                orders.append(ShardOrder(shard, "", (), (), removed=True))
        if orders:
            entries = (entry,) if entry.removed else ()  # for nodes with a fork: they remove it too
            self.port.send(node, KeepShards(tuple(orders), entries))


def _give(orders: Orders, peer: Peer, order: ShardOrder, entry: StreamEntry) -> None:
    _, mine, streams = orders.setdefault(peer.id, (peer, [], {}))
    mine.append(order)
    streams[entry.id] = entry


def changed(options: StreamOptions, message: ChangeStream) -> StreamOptions:
    """The options with the changes of a message. msgspec.ValidationError if they are invalid."""
    fields = (name for name in StreamOptions.__struct_fields__ if hasattr(message, name))
    given = {f: value for f in fields if (value := getattr(message, f)) is not None}
    return msgspec.convert({**msgspec.to_builtins(options), **given}, StreamOptions)
