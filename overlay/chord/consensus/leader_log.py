"""The primary's side of the replicated log (P1; Raft dissertation, sections 3 and 4).

The primary appends entries, each with its epoch and number; the followers get each in order, apply
it and acknowledge cumulatively. An entry is *committed* when a majority of the voters has it, and
only together with one of the primary's own epoch (an older one alone may still be overwritten,
section 3.6.2), which is why a primary begins with an entry of its own.

A follower says how far it is (HELLO, HELLO_REPLY) and gets what follows from the tail, or a
snapshot of the whole state, which counts only when its last piece has come: a voter never has less
than before.

Who votes is an entry of the log as well, changed by one voter at a time, and only after the change
before has been committed: so any two successive majorities have a node in common. The voters are an
odd number of the members; the others follow as learners, so that they can vote soon.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from overlay.chord.consensus.follower_log import EMPTY, FollowerLog
from overlay.chord.consensus.messages import (
    ClusterHello,
    ClusterHelloReply,
    Configuration,
    LogAck,
    LogEntries,
    LogEntry,
    LogSnapshot,
)
from overlay.chord.consensus.voter_log import VoterLog
from overlay.chord.constants import SNAPSHOT_PIECE
from overlay.chord.events import (
    Committed,
    FollowerSnapshotWanted,
    LogGrown,
    MemberJoined,
)
from overlay.chord.messages import Cluster
from overlay.chord.role import ClusterRole
from overlay.machine import Key, NodeId, Peer, Version


def in_frames(entries: Sequence[bytes]) -> Iterator[tuple[bytes, ...]]:
    """Cut into runs of at most FRAME bytes (or one entry); one empty run if there is nothing."""
    run: list[bytes] = []
    size = 0
    for entry in entries:
        if run and size + len(entry) > SNAPSHOT_PIECE:
            yield tuple(run)
            run, size = [], 0
        run.append(entry)
        size += len(entry)
    yield tuple(run)


class FollowerProgress:
    """What the primary knows of another node's copy of the log."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.acknowledged = 0  # entries that it has on disk
        self.live = False  # it gets entries as they are appended
        self.needs_snapshot = False  # the whole state has been asked for, to be sent to it


class VoterCandidates(Protocol):
    """Who may vote (`membership.departures.Departures`)."""

    def staying(self, cluster: Cluster) -> tuple[Peer, ...]:
        """The members of `cluster` that are not about to go, the primary first."""


class VoterLiveness(Protocol):
    """Which voters answer (`consensus.heartbeat.Heartbeat`)."""

    def is_following(self, node: NodeId) -> bool:
        """Whether this voter answered a heartbeat a short time ago."""


class ConfigurationListener(Protocol):
    """Who waits for changes of the voters (`role_changes.RoleChanges`)."""

    def configuration_committed(self) -> None:
        """The newest configuration of the log is committed."""


class LeaderLog:
    """What the primary does with the log: append, replicate, commit, change the voters.

    The entries themselves are in this node's own copy (`FollowerLog`), as at any other voter.
    """

    def __init__(
        self,
        role: ClusterRole,
        local: FollowerLog,
        candidates: VoterCandidates,
        liveness: VoterLiveness,
        listener: ConfigurationListener,
        most_voters: int,
    ) -> None:
        self.role = role
        self.port = role.port
        self.local = local
        self.candidates = candidates
        self.liveness = liveness
        self.listener = listener
        self.most_voters = most_voters
        self.committed = 0  # how many entries are committed
        self.followers: dict[NodeId, FollowerProgress] = {}
        self.first_of_epoch = 0  # number of the first entry of the own epoch
        self.config_index = 0  # number of the newest change of the configuration
        self._growth_announced = False  # LogGrown is on its way

    def found(self, cluster: Cluster) -> None:
        """Begin an empty log for a new cluster, whose only voter is this node, and lead it."""
        self.local.begin(cluster)
        self.lead()

    def lead(self, start: Key | None = None) -> None:
        """Go on with the log as the primary of a new epoch, which begins with an entry of its own.
        `start`: where the arc begins from now on, if it has grown."""
        config = self.local.config
        if start is not None:
            config = Configuration(config.voters, start)
        if (
            config.leaving is not None
        ):  # no node can know whether it went: it stays, and is fenced if it did
            config = Configuration(config.voters, config.leaving.start)
        self.followers.clear()
        self.local.drop_staged()
        self.committed = 0
        self.first_of_epoch = self.local.next
        self.configure(config)
        self.reconfigure()

    def forget(self) -> None:
        """This node serves in the cluster no more: its copy of the log ends, nobody follows it."""
        self.local.forget_log()
        self.followers.clear()

    # -- entries ---------------------------------------------------------------------------------

    def append(self, entry: bytes) -> int:
        """Append one entry of the registry. Returns its number; Committed follows."""
        return self._add((LogEntry(self._epoch(), entry),))

    def append_all(self, entries: Sequence[bytes]) -> int:
        """Append several entries in one step. Returns the number of the last."""
        epoch = self._epoch()
        return self._add([LogEntry(epoch, entry) for entry in entries])

    def configure(self, config: Configuration) -> int:
        """Append an entry that changes the configuration. Returns its number."""
        cluster = self._cluster()
        self.local.votes.record(cluster.key, cluster.version[0], self.port.me.id, config.voters)
        return self._add((LogEntry(self._epoch(), config=config),))

    def growth_handled(self) -> None:
        """Those who listen to LogGrown have seen all entries so far."""
        self._growth_announced = False

    def _add(self, entries: Sequence[LogEntry]) -> int:
        """Append `entries`, send them to the followers; returns the number of the last."""
        before = self.local.position
        self.local.append(entries)
        for back, entry in enumerate(reversed(entries), 1):
            if entry.config is not None:
                self.config_index = self.local.next - back
                break
        for follower in self.followers.values():
            if follower.live:
                self._send(follower.peer, before, entries)
        self._commit()
        if not self._growth_announced:
            self._growth_announced = True
            self.port.emit(LogGrown())
        return self.local.next - 1

    # -- who follows, and who votes --------------------------------------------------------------

    @property
    def config_pending(self) -> bool:
        """Whether the newest change of the configuration is not committed yet."""
        return self.committed <= self.config_index

    def reconfigure(self) -> None:
        """The members have changed, or a follower has more of the log: greet new followers, forget
        former ones, and take one step towards the voters that there should be."""
        if self.local.voter_log is None or not self.role.is_primary:
            return
        copies = {p.id: p for p in (*self._cluster().members(), *self.local.voters)}
        copies.pop(self.port.me.id, None)
        self.followers = {n: f for n, f in self.followers.items() if n in copies}
        for peer in copies.values():
            if peer.id not in self.followers:
                self.followers[peer.id] = FollowerProgress(peer)
                self.port.send(peer, ClusterHello(self._cluster()))
        if not self.config_pending:
            self._change_voters()

    def restart_follower(self, peer: Peer) -> None:
        """A voter is reachable again: what was under way to it is lost, so ask how far it is."""
        if self.role.is_primary and self.followers.pop(peer.id, None) is not None:
            self.reconfigure()

    @property
    def is_configured(self) -> bool:
        """Whether all vote who should, and nobody else."""
        wanted = self._wanted_voters()
        return not self.config_pending and {p.id for p in self.local.voters} == set(wanted)

    def has_majority_without(self, node: NodeId) -> bool:
        """Whether a majority of the other voters answers now: otherwise a change that votes `node`
        out might never be committed."""
        rest = [p.id for p in self.local.voters if p.id != node]
        heard = sum(n == self.port.me.id or self.liveness.is_following(n) for n in rest)
        return heard > len(rest) // 2

    def _wanted_voters(self) -> dict[NodeId, Peer]:
        """Who should vote: an odd number, since four voters tolerate no more losses than three and
        two none. A primary that leaves counts the others only."""
        wanted = [p for p in self._staying() if p.id != self.port.me.id]
        wanted[1:] = sorted(wanted[1:], key=lambda p: not self.local.is_voter(p.id))
        if self.role.leaving:
            most = min(self.most_voters, len(wanted))
            others = most - 1 + most % 2 if most else 0
        else:
            others = min(self.most_voters - 1, len(wanted)) // 2 * 2
        return {p.id: p for p in (self.port.me, *wanted[:others])}

    def _change_voters(self) -> None:
        """Vote one in or out (Raft dissertation, section 4), if one should be and can be."""
        config, staying = self.local.config, self._staying()
        voters = list(config.voters)
        wanted = self._wanted_voters()
        coming = [p for p in wanted.values() if not self.local.is_voter(p.id)]
        ready = [p for p in coming if self._is_near(p.id)]
        out = [p for p in voters if p.id not in wanted]
        out.sort(key=lambda p: p in staying)  # the lost ones first
        if len(voters) == 1 and coming:
            # Alone it committed all there is, so that whoever has the entry that names the other
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
        self.configure(msgspec.structs.replace(config, voters=tuple(voters)))

    def _staying(self) -> tuple[Peer, ...]:
        return self.candidates.staying(self._cluster())

    def _is_near(self, node: NodeId) -> bool:
        follower = self.followers.get(node)
        return follower is not None and follower.live and follower.acknowledged >= self.committed

    # -- replication -----------------------------------------------------------------------------

    def on_hello_reply(self, sender: Peer, message: ClusterHelloReply) -> None:
        """A follower says how far it is: send what it lacks, or ask the registry for a snapshot."""
        follower, voter_log = self._follower(sender, message.key, message.epoch), self._log()
        if follower is None or voter_log is None:
            return
        if self.first_of_epoch and not follower.acknowledged and not follower.live:
            self.port.emit(MemberJoined(sender))  # it lives, even if it was taken for lost
        follower.acknowledged = 0
        entries = voter_log.after(message.position) if message.position != EMPTY else None
        if entries is None:
            follower.live = False
            if not follower.needs_snapshot:
                follower.needs_snapshot = True
                self.port.emit(FollowerSnapshotWanted(voter_log.key))
            return
        follower.live, follower.needs_snapshot = True, False
        self._send(follower.peer, message.position, entries)

    def on_ack(self, sender: Peer, message: LogAck) -> None:
        """A follower has everything before `next`: commit what a majority has by now."""
        follower = self._follower(sender, message.key, message.epoch)
        if follower is None or message.next > self.local.next:
            return
        follower.acknowledged = max(follower.acknowledged, message.next)
        self._commit()
        self.reconfigure()

    def send_snapshot(self, entries: Sequence[bytes]) -> None:
        """The answer to FollowerSnapshotWanted: send the whole state to all who need it."""
        voter_log = self._log()
        waiting = [f for f in self.followers.values() if f.needs_snapshot]
        if voter_log is None or not waiting or not self.role.is_primary:
            return
        pieces = _pieces(
            voter_log.key, self._epoch(), voter_log.position, voter_log.config, entries
        )
        for piece in pieces:
            for follower in waiting:
                self.port.send(follower.peer, piece)
        for follower in waiting:
            follower.needs_snapshot, follower.live = False, True

    def transfer(self, arc: Cluster, entries: Sequence[bytes]) -> int:
        """Send the state of `arc` to its coming primary. Returns the number of entries."""
        epoch, config = arc.version[0], Configuration((arc.primary,), arc.start)
        for piece in _pieces(arc.key, epoch, (epoch, len(entries)), config, entries):
            self.port.send(arc.primary, piece)
        return len(entries)

    def _send(self, peer: Peer, position: Version, entries: Sequence[LogEntry]) -> None:
        key, epoch = self._cluster().key, self._epoch()
        at = 0
        for run in in_frames([entry.body for entry in entries]):
            part = tuple(entries[at : at + len(run)])
            self.port.send(peer, LogEntries(key, epoch, position, part))
            at += len(part)
            if part:
                position = (part[-1].epoch, position[1] + len(part))

    def _commit(self) -> None:
        """Commit what a majority of the voters has, from the first entry of the own epoch on."""
        reached = sorted((self._reached(peer.id) for peer in self.local.voters), reverse=True)
        if not reached:
            return
        following = reached[self.local.majority() - 1]
        if following > self.first_of_epoch and following > self.committed:
            settled = self.committed <= self.config_index < following
            self.committed = following
            self.port.emit(Committed(self._cluster().key, following))
            if settled:
                self.listener.configuration_committed()
                self.reconfigure()

    def _reached(self, node: NodeId) -> int:
        """How many entries this voter has on disk, as far as is known."""
        if node == self.port.me.id:
            return 0 if self.local.fenced else self.local.next
        follower = self.followers.get(node)
        return 0 if follower is None else follower.acknowledged

    def _follower(self, sender: Peer, key: Key, epoch: int) -> FollowerProgress | None:
        cluster = self.role.cluster
        if (
            cluster is None
            or not self.role.is_primary
            or (key, epoch) != (cluster.key, cluster.version[0])
        ):
            return None
        return self.followers.get(sender.id)

    def _log(self) -> VoterLog | None:
        return self.local.voter_log

    def _epoch(self) -> int:
        return self._cluster().version[0]

    def _cluster(self) -> Cluster:
        cluster = self.role.cluster
        assert cluster is not None, "only a member has a log"
        return cluster


def _pieces(
    key: Key, epoch: int, position: Version, config: Configuration, entries: Sequence[bytes]
) -> list[LogSnapshot]:
    """The messages that carry a whole state."""
    runs = list(in_frames(entries))
    last = len(runs) - 1
    return [
        LogSnapshot(key, epoch, position, config, run, number == 0, number == last)
        for number, run in enumerate(runs)
    ]
