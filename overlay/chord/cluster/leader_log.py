"""The primary's side of the replicated log (P1; Raft dissertation, sections 3 and 4).

The primary appends entries, each with its epoch and number, and sends them while its own disk is
writing them (section 10.2.1); the followers get each in order, apply it and acknowledge
cumulatively, when it is durable. What is committed by that, and when the voters may change, says
`overlay.consensus`; an epoch begins with an entry of the primary's own, as it asks for.

A follower says how far it is (HELLO, HELLO_REPLY) and gets what follows from the tail, or a
snapshot of the whole state, which counts only when its last piece has come: a voter never has less
than before.

Who votes is an entry of the log as well. The voters are an odd number of the members; the others
follow as learners, so that they can vote soon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from overlay.chord.cluster.follower_log import FollowerLog
from overlay.chord.cluster.heartbeat import Heartbeat
from overlay.chord.cluster.messages import (
    ClusterHello,
    ClusterHelloReply,
    Configuration,
    LogAck,
    LogEntries,
    LogEntry,
    LogSnapshot,
)
from overlay.chord.constants import DISCONNECT_LEAST, SNAPSHOT_PIECE
from overlay.chord.events import ArcGone, Committed, FollowerSnapshotWanted, LogGrown, MemberJoined
from overlay.chord.messages import Cluster
from overlay.chord.role import ClusterRole
from overlay.consensus import EMPTY, Progress, ProgressState, Tracker, majority, quorum_of_storers
from overlay.links.events import MessageDropped
from overlay.machine import Key, NodeId, Peer, Version, by_id

CATCH_UP, REPLICATE = ProgressState.CATCH_UP, ProgressState.REPLICATE


def snapshot_pieces(entries: Sequence[bytes]) -> list[tuple[tuple[bytes, ...], bool, bool]]:
    """Cut into runs of at most `SNAPSHOT_PIECE` bytes (or one entry); one empty run if there is
    nothing. With each: whether it is the first, and the last."""
    runs: list[list[bytes]] = [[]]
    size = 0
    for entry in entries:
        if runs[-1] and size + len(entry) > SNAPSHOT_PIECE:
            runs.append([])
            size = 0
        runs[-1].append(entry)
        size += len(entry)
    last = len(runs) - 1
    return [(tuple(run), number == 0, number == last) for number, run in enumerate(runs)]


def log_pieces(
    position: Version, entries: Sequence[LogEntry]
) -> Iterator[tuple[Version, tuple[LogEntry, ...]]]:
    """The entries that follow on `position`, cut in the same way; each run with its position."""
    at = 0
    for run, _, _ in snapshot_pieces([entry.body for entry in entries]):
        piece = tuple(entries[at : at + len(run)])
        yield position, piece
        at += len(piece)
        if piece:
            position = (piece[-1].epoch, position[1] + len(piece))


class FollowerProgress(Progress):
    """The primary's record of one copy of the log."""

    __slots__ = ("asked",)

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer)
        self.asked = 0
        """The number of the last question how far it is."""


class Departures:
    """The primary's lists of the members that are about to leave, and of those that go to a cluster
    that splits off (P1). They go on serving, but should not vote nor become the standby. The lists
    end when another node leads."""

    def __init__(self) -> None:
        self._leaving: dict[NodeId, Peer] = {}
        self._moving: dict[NodeId, None] = {}

    def clear(self) -> None:
        """Forget all departures, because this node begins or ceases to lead."""
        self._leaving.clear()
        self._moving.clear()

    def start_leaving(self, peer: Peer) -> None:
        """Note that `peer` wants to be released, or is lost and only a member until it is voted
        out."""
        self._leaving[peer.id] = peer

    def end_leaving(self, node: NodeId) -> None:
        """Forget that `node` is about to leave, because it no longer serves, or stays after all."""
        self._leaving.pop(node, None)

    def is_leaving(self, node: NodeId) -> bool:
        """Whether `node` has asked to be released."""
        return node in self._leaving

    def start_moving(self, peers: Iterable[Peer]) -> None:
        """Let exactly these members go to a cluster that splits off."""
        self._moving = {peer.id: None for peer in peers}

    def end_moving(self) -> None:
        """Forget which members were to go to a split-off cluster, because the split is done or
        given up."""
        self._moving.clear()

    def is_moving(self, node: NodeId) -> bool:
        """Whether `node` goes to a cluster that splits off."""
        return node in self._moving

    def stays(self, node: NodeId) -> bool:
        """Whether `node` neither leaves nor moves."""
        return node not in self._leaving and node not in self._moving

    def staying(self, cluster: Cluster) -> tuple[Peer, ...]:
        """The members of `cluster` that stay, the primary first: who may vote."""
        return tuple(peer for peer in cluster.members() if self.stays(peer.id))


@dataclass(eq=False)
class LeaderLog:
    """The log at the primary: it appends, replicates, commits, and changes the voters.

    The entries themselves are in this node's own copy (`FollowerLog`), as at any other voter.
    """

    role: ClusterRole
    local: FollowerLog
    departures: Departures
    heartbeat: Heartbeat
    most_voters: int
    one_may_lie: bool = False
    """Whether to lose nothing by one voter that lies (`cluster.commit`)."""

    def __post_init__(self) -> None:
        self.port = self.role.port
        self.committed = 0  # how many entries are committed
        self._questions = 0
        self.tracker = Tracker[FollowerProgress](self.port.me.id, 1)
        """The followers' progress in the present epoch. (A follower that catches up waits for the
        whole state, which the registry was asked for.)"""
        self._growth_announced = False  # LogGrown is on its way
        self._settled: Cluster | None = None  # the members of which all vote who should
        self._when_configured: Callable[[], None] | None = None

    def when_configured(self, call: Callable[[], None]) -> None:
        """Call this whenever the newest configuration has been committed."""
        self._when_configured = call

    def found(self, cluster: Cluster) -> None:
        """Begin an empty log for a new cluster, whose only voter is this node, and lead it."""
        self.local.begin(cluster)
        self.lead()

    def lead(self, start: Key | None = None) -> None:
        """Go on with the log as the primary of a new epoch, which begins with an entry of its own.
        `start`: where the arc begins from now on, if it has grown."""
        config, promised = self.local.config, self.local.config.promised
        if promised is not None:
            # Its state may have come in part. All who apply the entry below drop that.
            self.port.emit(ArcGone(promised))
        if start is not None:  # the cluster before this one is lost, or the one after it
            config = replace(config, start=start, given=None, promised=None)
        if config.leaving is not None:
            # No node can know whether that part went: it stays, and is fenced if it did.
            config = replace(config, start=config.leaving.start, leaving=None)
        self.tracker = Tracker(self.port.me.id, self.local.next + 1)
        self.local.drop_staged()
        self.committed = 0
        self.configure(config)
        self.reconfigure()

    def forget(self) -> None:
        """End the log and forget its followers, because this node no longer serves in the
        cluster."""
        self.local.forget_log()
        self.tracker = Tracker(self.port.me.id, self.tracker.first)

    # -- entries ---------------------------------------------------------------------------------

    def append(self, entries: Sequence[bytes]) -> int:
        """Append entries of the registry in one step. Returns the number of the last; Committed
        follows."""
        epoch = self.role.own.epoch
        return self._add([LogEntry(epoch, entry) for entry in entries])

    def configure(self, config: Configuration) -> int:
        """Append an entry that changes the configuration. Returns its number."""
        own = self.role.own
        self.local.vote(own.key, own.epoch, self.port.me.id, config.voters)
        self._settled = None
        self.tracker.check_change(self.local.voters, config.voters)
        self.tracker.change(self.local.next + 1)
        return self._add((LogEntry(own.epoch, config=config),))

    def growth_handled(self) -> None:
        """Note that the listeners to LogGrown have handled all entries so far."""
        self._growth_announced = False

    def _add(self, entries: Sequence[LogEntry]) -> int:
        """Append `entries`, send them to the followers; returns the number of the last."""
        before = self.local.position
        self.local.append(entries)
        for follower in self.tracker.followers.values():
            if follower.state is REPLICATE:
                self._send(follower.peer, before, entries)
        self._commit()
        if not self._growth_announced:
            self._growth_announced = True
            self.port.emit(LogGrown())
        return self.local.next - 1

    def commit_stored(self) -> None:
        """Commit what this node's own copy completes a majority of: more of it is durable."""
        if self.role.is_primary:
            self._commit()

    # -- who follows, and who votes --------------------------------------------------------------

    @property
    def followers(self) -> Mapping[NodeId, FollowerProgress]:
        """The nodes that are sent the log: the other members and voters."""
        return self.tracker.followers

    @property
    def config_pending(self) -> bool:
        """Whether the newest change of the configuration is not committed yet."""
        return not self.tracker.may_change(self.committed)

    def reconfigure(self) -> None:
        """Greet new followers, forget former ones, and take one step towards the intended voters.
        Called when the members have changed, or a follower has more of the log."""
        own = self.role.led
        if own is None or self.local.voter_log is None:
            return
        copies = by_id((*own.members(), *self.local.voters), besides=self.port.me.id)
        for follower in self.tracker.follow(copies, FollowerProgress):
            self._questions += 1
            follower.asked = self._questions
            self.port.send(follower.peer, ClusterHello(own, self._questions))
        if not self.config_pending or self._awaits_lost_voters():
            self._change_voters()

    def restart_follower(self, peer: Peer) -> None:
        """Ask a voter that is reachable again how far its copy is, since messages that were on the
        way to it are lost."""
        if self.role.is_primary and self.tracker.forget(peer.id):
            self.reconfigure()

    def has_answered(self, node: NodeId) -> bool:
        """Whether this member has said how far its copy of the log is since this node leads."""
        follower = self.followers.get(node)
        return follower is not None and (follower.state is REPLICATE or follower.match > 0)

    def _awaits_lost_voters(self) -> bool:
        """Whether a majority has the newest change of the configuration, as Raft asks for before
        the next one, but too few voters answer to commit it where one may lie. Then those that are
        lost have to be voted out first: nothing would be committed any more."""
        voters = self.local.voters
        heard = sum(p.id == self.port.me.id or self.heartbeat.is_following(p.id) for p in voters)
        stored = self.tracker.committable(voters, self._own_durable())
        return heard < self._quorum(voters) and self.tracker.may_change(stored)

    def _quorum(self, voters: Sequence[Peer]) -> int:
        return quorum_of_storers(len(voters), self.one_may_lie)

    def _own_durable(self) -> int:
        return 0 if self.local.fenced else self.local.durable

    @property
    def is_configured(self) -> bool:
        """Whether all vote who should, and no others."""
        wanted = self._wanted_voters()
        return not self.config_pending and {p.id for p in self.local.voters} == set(wanted)

    def has_majority_without(self, node: NodeId) -> bool:
        """Whether a majority of the other voters answers now: otherwise a change that votes `node`
        out might never be committed."""
        rest = [p.id for p in self.local.voters if p.id != node]
        heard = sum(n == self.port.me.id or self.heartbeat.is_following(n) for n in rest)
        return heard >= majority(len(rest))

    def _wanted_voters(self) -> dict[NodeId, Peer]:
        """Return the members that should vote. Their number is odd, since four voters tolerate
        no more losses than three, and two tolerate none. A primary that leaves counts only the
        others."""
        me = self.port.me
        wanted = [p for p in self.departures.staying(self.role.own) if p.id != me.id]
        voting = {p.id for p in self.local.voters}
        wanted[1:] = sorted(wanted[1:], key=lambda p: p.id not in voting)
        if self.role.leaving:
            most = min(self.most_voters, len(wanted))
            others = most - 1 + most % 2 if most else 0
        else:
            others = min(self.most_voters - 1, len(wanted)) // 2 * 2
        return {p.id: p for p in (me, *wanted[:others])}

    def _change_voters(self) -> None:
        """Vote one in or out (Raft dissertation, section 4), if one should be and can be."""
        config, wanted = self.local.config, self._wanted_voters()
        voters = list(config.voters)
        voting = {p.id for p in voters}
        coming = [p for p in wanted.values() if p.id not in voting]
        ready = [p for p in coming if self.tracker.is_caught_up(p.id, self.committed)]
        out = [p for p in voters if p.id not in wanted]
        if not coming and not out:
            self._settled = self.role.own
            return
        staying = self.departures.staying(self.role.own)
        out.sort(key=lambda p: p in staying)  # the lost ones first
        if len(voters) == 1 and coming:
            # Alone it committed all there is, so that each node with the entry that names the other
            # voters has everything before it: they need not come one by one.
            if len(ready) < min(2, len(coming)):
                return
            voters += ready[: max(1, len(ready) // 2 * 2)]
        elif ready and len(voters) <= len(wanted):
            voters.append(ready[0])
        elif out and not coming and self.has_majority_without(out[0].id):
            voters.remove(out[0])
        else:
            return
        self.port.count("voters_changed")
        self.configure(replace(config, voters=tuple(voters)))

    # -- replication -----------------------------------------------------------------------------

    def on_hello_reply(self, sender: Peer, message: ClusterHelloReply) -> None:
        """Handle a follower's position: send the entries that it lacks, or ask the registry for a
        snapshot. Ignore an answer to an older question than the last, because the follower may have
        been sent entries, or the whole state, since then."""
        follower = self._follower(sender, message.key, message.epoch)
        voter_log = self.local.voter_log
        if follower is None or voter_log is None:
            return
        if message.number not in (0, follower.asked):
            self.port.count("hello_replies_stale")
            return
        if self.tracker.first > 1 and not follower.match and follower.state is not REPLICATE:
            self.port.emit(MemberJoined(sender))  # it lives, even if it was taken for lost
        entries = None
        if message.position != EMPTY:
            silent = self.heartbeat.silent_for(sender.id)
            if silent >= DISCONNECT_LEAST:
                self.local.backlog.reconnected(silent, self.port.now)
            entries = voter_log.after(message.position)
            self.port.count("followers_copied" if entries is None else "followers_caught_up")
        if entries is None:
            if follower.state is not CATCH_UP:
                self.port.emit(FollowerSnapshotWanted(voter_log.key))
            follower.restart(CATCH_UP)
            return
        follower.restart(REPLICATE)
        self._send(follower.peer, message.position, entries)

    def dropped(self, event: MessageDropped) -> None:
        """Handle that a message to a follower was dropped because its link had no room. The next
        round of recruiting greets the follower again, and it is then sent the entries that it
        lacks."""
        message = event.message
        if isinstance(message, ClusterHello):
            key, epoch = message.cluster.key, message.cluster.epoch
        elif isinstance(message, LogEntries | LogSnapshot):
            key, epoch = message.key, message.epoch
        else:
            return
        if self._follower(event.peer, key, epoch) is not None:
            self.tracker.forget(event.peer.id)
            self._settled = None

    def on_ack(self, sender: Peer, message: LogAck) -> None:
        """A follower has everything before `next`: commit what a majority has by now."""
        follower = self._follower(sender, message.key, message.epoch)
        if follower is None or message.next > self.local.next:
            return
        follower.acknowledge(message.next, self.port.now)
        self._commit()
        if self._settled is not self.role.cluster:
            self.reconfigure()

    def send_snapshot(self, entries: Sequence[bytes]) -> None:
        """Send the whole state to all followers that need it: the answer to
        FollowerSnapshotWanted."""
        voter_log = self.local.voter_log
        waiting = [f for f in self.followers.values() if f.state is CATCH_UP]
        if voter_log is None or not waiting or not self.role.is_primary:
            return
        peers = [follower.peer for follower in waiting]
        position, config = voter_log.position, voter_log.config
        self._send_snapshot(peers, voter_log.key, self.role.own.epoch, position, config, entries)
        for follower in waiting:
            follower.change(REPLICATE)

    def transfer(self, arc: Cluster, entries: Sequence[bytes]) -> int:
        """Send the state of `arc` to its coming primary. Returns the number of entries."""
        position, config = (arc.epoch, len(entries)), Configuration((arc.primary,), arc.start)
        self._send_snapshot([arc.primary], arc.key, arc.epoch, position, config, entries)
        return len(entries)

    def _send_snapshot(
        self,
        peers: Sequence[Peer],
        key: Key,
        epoch: int,
        position: Version,
        config: Configuration,
        entries: Sequence[bytes],
    ) -> None:
        before = 0
        for run, first, last in snapshot_pieces(entries):
            piece = LogSnapshot(key, epoch, position, config, run, first, last, before)
            before += len(run)
            for peer in peers:
                self.port.send(peer, piece)

    def _send(self, peer: Peer, position: Version, entries: Sequence[LogEntry]) -> None:
        own = self.role.own
        for after, piece in log_pieces(position, entries):
            self.port.send(peer, LogEntries(own.key, own.epoch, after, piece))

    def _commit(self) -> None:
        """Commit what enough voters have, from the first entry of the own epoch on."""
        voters = self.local.voters
        number = self.tracker.committable(voters, self._own_durable(), self._quorum(voters))
        if number > self.committed:
            was_pending = self.config_pending
            self.committed = number
            self.port.emit(Committed(self.role.own.key, number))
            if was_pending and not self.config_pending:
                if self._when_configured is not None:
                    self._when_configured()
                self.reconfigure()

    def _follower(self, sender: Peer, key: Key, epoch: int) -> FollowerProgress | None:
        return self.tracker.followers.get(sender.id) if self.role.leads(key, epoch) else None
