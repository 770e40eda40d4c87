"""The cluster's operation log and its copies at the voters (P1).

The primary appends entries, each with its epoch and number; the voters get each in order, apply it
and acknowledge cumulatively; an entry is *committed* when a majority of the voters has it, and only
together with one of the primary's own epoch (an older one alone may still be overwritten: Ongaro,
section 3.6.2), which is why a primary begins with an entry of its own.

A follower says how far it is (HELLO, HELLO_REPLY) and gets what follows from the tail, or the whole
state, which counts only when its last piece is there: a voter never has less than before.

Who votes is an entry of the log as well, changed by one voter at a time, and only after the change
before has been committed: so any two majorities that follow each other have a node in common. The
voters are an odd number of the members; the others follow as well, so that they can vote soon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from overlay.chord.consensus.follower_log import EMPTY, FollowerLog
from overlay.chord.consensus.journal import Journal
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
from overlay.chord.events import (
    Committed,
    FollowerSnapshotWanted,
    MemberJoined,
)
from overlay.chord.messages import Cluster
from overlay.chord.role import ClusterRole
from overlay.machine import Key, NodeId, Peer, Version

FRAME = 128 * 1024
"""Bytes of entries per message: half of a link's batch (LinkSettings.frame), so that the rest of
the message and other messages fit beside it."""


def in_frames(entries: Sequence[bytes]) -> Iterator[tuple[bytes, ...]]:
    """Cut into runs of at most FRAME bytes (or one entry); one empty run if there is nothing."""
    run: list[bytes] = []
    size = 0
    for entry in entries:
        if run and size + len(entry) > FRAME:
            yield tuple(run)
            run, size = [], 0
        run.append(entry)
        size += len(entry)
    yield tuple(run)


class FollowerProgress:
    """What the primary knows of another's copy."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.acknowledged = 0  # entries that it has acknowledged
        self.live = False  # it gets entries as they are appended
        self.needs_snapshot = False  # it waits for the whole state


class LeaderLog(FollowerLog):
    """A copy of the log, and what its primary does with it."""

    def __init__(self, role: ClusterRole, journal: Journal, most_voters: int) -> None:
        super().__init__(role, journal)
        self.most_voters = most_voters
        self.committed = 0  # at the primary: all before are
        self.followers: dict[NodeId, FollowerProgress] = {}
        self.first_of_epoch = 0  # number of the first entry of the own epoch
        self.config_index = 0  # number of the newest change of voters
        self.candidates: Callable[[], tuple[Peer, ...]] = tuple  # who shall vote, the first first
        self.hears: Callable[[NodeId], bool] = lambda node: True  # whether it answered lately
        self.on_settled: Callable[[], None] = lambda: None  # a change of voters is committed
        self.on_grown: Callable[[], None] = lambda: None  # there are more entries

    # -- at the primary --------------------------------------------------------------------------

    def found(self, cluster: Cluster) -> None:
        """An empty log of a new cluster, whose only voter is this node."""
        self.voter_log = VoterLog(cluster.key, EMPTY, Configuration((self.port.me,), cluster.start))
        self.journal.begin(self.voter_log, ())
        self.lead()

    def adopt_staged(self, cluster: Cluster) -> None:
        """The log of a split-off arc becomes the own one, before this node becomes its primary:
        whoever hears of the role finds the arc's state and nothing of the former cluster's."""
        staged = self.staged
        assert staged is not None
        self._install(staged)
        assert self.voter_log is not None
        self.voter_log.config = Configuration((self.port.me,), cluster.start)

    def forget_log(self) -> None:
        """As at any voter; nobody follows any more."""
        super().forget_log()
        self.followers.clear()

    def vote_alone(self) -> None:
        """The other voters are lost: this one decides alone, once it leads."""
        assert self.voter_log is not None
        self.voter_log.config = msgspec.structs.replace(
            self.voter_log.config, voters=(self.port.me,)
        )

    def lead(self, start: Key | None = None) -> None:
        """This node is the primary of a new epoch now: the log goes on with an entry of it.
        `start`: where the arc begins from now on, if it has grown."""
        assert self.voter_log is not None
        config = self.voter_log.config
        if start is not None:
            config = Configuration(config.voters, start)
        if config.leaving is not None:  # nobody can know whether it went: it stays, and is fenced
            config = Configuration(config.voters, config.leaving.start)
        self.followers.clear()
        self.staged = None
        self.committed = 0
        self.first_of_epoch = self.next
        self.votes.record(
            self.voter_log.key, self._cluster().version[0], self.port.me.id, config.voters
        )
        self._add((LogEntry(self._epoch(), config=config),))
        self.reconfigure()

    def append(self, entry: bytes) -> int:
        """Add one entry. Returns its number; Committed follows."""
        return self._add((LogEntry(self._epoch(), entry),))

    def append_all(self, entries: Sequence[bytes]) -> int:
        """Add some. Returns the last one's number."""
        epoch = self._epoch()
        return self._add([LogEntry(epoch, entry) for entry in entries])

    def configure(self, config: Configuration) -> int:
        """Change what the log says of the cluster; the entry's number."""
        assert self.voter_log is not None
        self.votes.record(self.voter_log.key, self._epoch(), self.port.me.id, config.voters)
        return self._add((LogEntry(self._epoch(), config=config),))

    @property
    def config_pending(self) -> bool:
        """Whether the newest change of the configuration is not committed yet."""
        return self.committed <= self.config_index

    def reconfigure(self) -> None:
        """The members have changed, or a follower is further: see to followers and voters."""
        if self.voter_log is None or not self.role.is_primary:
            return
        copies = {p.id: p for p in (*self._cluster().members(), *self.voters)}
        copies.pop(self.port.me.id, None)
        self.followers = {n: f for n, f in self.followers.items() if n in copies}
        for peer in copies.values():
            if peer.id not in self.followers:
                self.followers[peer.id] = FollowerProgress(peer)
                self.port.send(peer, ClusterHello(self._cluster()))
        if not self.config_pending:
            self._change_voters()

    def restart_follower(self, peer: Peer) -> None:
        """A voter shows up again: what was under way to it is lost."""
        if self.role.is_primary and self.followers.pop(peer.id, None) is not None:
            self.reconfigure()

    def _wanted_voters(self) -> dict[NodeId, Peer]:
        """Who shall vote: an odd number, since two of four decide no more than two of three, and of
        two none may be lost. A primary that leaves counts the others only."""
        wanted = [p for p in self.candidates() if p.id != self.port.me.id]
        wanted[1:] = sorted(wanted[1:], key=lambda p: not self.is_voter(p.id))  # the heir votes
        if self.role.leaving:
            most = min(self.most_voters, len(wanted))
            others = most - 1 + most % 2 if most else 0
        else:
            others = min(self.most_voters - 1, len(wanted)) // 2 * 2
        return {p.id: p for p in (self.port.me, *wanted[:others])}

    @property
    def is_configured(self) -> bool:
        """Whether all vote who shall, and nobody else."""
        return not self.config_pending and {p.id for p in self.voters} == set(self._wanted_voters())

    def _change_voters(self) -> None:
        """One step towards those who shall vote."""
        assert self.voter_log is not None
        config = self.voter_log.config
        voters = list(config.voters)
        keep = self._wanted_voters()
        coming = [p for p in keep.values() if not self.is_voter(p.id)]
        ready = [p for p in coming if self._is_near(p.id)]
        out = [p for p in voters if p.id not in keep]
        out.sort(key=lambda p: p in self.candidates())  # the lost ones first
        if len(voters) == 1 and coming:
            # Alone it committed all there is, so that whoever has the entry that names the other
            # voters has everything before it: they need not come one by one.
            if len(ready) < min(2, len(coming)):
                return
            voters += ready[: max(1, len(ready) // 2 * 2)]
        elif ready and len(voters) <= len(keep):
            voters.append(ready[0])
        elif out and not coming and self.has_majority_without(out[0].id):
            voters.remove(out[0])
        else:
            return
        self.port.count("voters_changed")
        self.configure(msgspec.structs.replace(config, voters=tuple(voters)))

    def has_majority_without(self, node: NodeId) -> bool:
        """Whether a majority of the other voters is heard now: else the last change of voters may
        be the one that nobody can ever confirm."""
        rest = [p.id for p in self.voters if p.id != node]
        heard = sum(n == self.port.me.id or self.hears(n) for n in rest)
        return heard > len(rest) // 2

    def _is_near(self, node: NodeId) -> bool:
        follower = self.followers.get(node)
        return follower is not None and follower.live and follower.acknowledged >= self.committed

    def send_snapshot(self, entries: Sequence[bytes]) -> None:
        """The answer to FollowerSnapshotWanted: the whole state as of now."""
        voter_log, waiting = (
            self.voter_log,
            [f for f in self.followers.values() if f.needs_snapshot],
        )
        if voter_log is None or not waiting or not self.role.is_primary:
            return
        runs = list(in_frames(entries))
        for number, run in enumerate(runs):
            piece = LogSnapshot(
                voter_log.key,
                self._epoch(),
                voter_log.position,
                voter_log.config,
                run,
                number == 0,
                number == len(runs) - 1,
            )
            for follower in waiting:
                self.port.send(follower.peer, piece)
        for follower in waiting:
            follower.needs_snapshot, follower.live = False, True

    def transfer(self, arc: Cluster, entries: Sequence[bytes]) -> int:
        """Send the state of `arc` to its coming primary. Returns the number of entries."""
        runs = list(in_frames(entries))
        position = (arc.version[0], len(entries))
        config = Configuration((arc.primary,), arc.start)
        for number, run in enumerate(runs):
            first, last = number == 0, number == len(runs) - 1
            piece = LogSnapshot(arc.key, arc.version[0], position, config, run, first, last)
            self.port.send(arc.primary, piece)
        return len(entries)

    def on_hello_reply(self, sender: Peer, message: ClusterHelloReply) -> None:
        """How far a follower is: it gets what it lacks."""
        follower = self._follower(sender, message.key, message.epoch)
        if follower is None or self.voter_log is None:
            return
        if self.first_of_epoch and not follower.acknowledged and not follower.live:
            self.port.emit(MemberJoined(sender))  # it lives, whatever was thought of it
        follower.acknowledged = 0
        entries = self.voter_log.after(message.position) if message.position != EMPTY else None
        if entries is None:
            follower.live = False
            if not follower.needs_snapshot:
                follower.needs_snapshot = True
                self.port.emit(FollowerSnapshotWanted(self.voter_log.key))
            return
        follower.live, follower.needs_snapshot = True, False
        self._send(follower.peer, message.position, entries)

    def on_ack(self, sender: Peer, message: LogAck) -> None:
        """A follower has everything before `next`."""
        follower = self._follower(sender, message.key, message.epoch)
        if follower is None or message.next > self.next:
            return
        follower.acknowledged = max(follower.acknowledged, message.next)
        self._commit()
        self.reconfigure()

    def _add(self, entries: Sequence[LogEntry]) -> int:
        """The number of the last."""
        assert self.voter_log is not None
        before = self.voter_log.position
        for item in entries:
            index = self.voter_log.add(item)
            if item.config is not None:
                self.config_index = index
        self.journal.append(entries)
        for follower in self.followers.values():
            if follower.live:
                self._send(follower.peer, before, entries)
        self._commit()
        self.on_grown()
        return self.next - 1

    def _send(self, peer: Peer, position: Version, entries: Sequence[LogEntry]) -> None:
        voter_log = self.voter_log
        assert voter_log is not None
        at = 0
        for run in in_frames([item.body for item in entries]):
            part = tuple(entries[at : at + len(run)])
            self.port.send(peer, LogEntries(voter_log.key, self._epoch(), position, part))
            at += len(part)
            if part:
                position = (part[-1].epoch, position[1] + len(part))

    def _commit(self) -> None:
        """Commit what a majority has."""
        reached = sorted(
            (self._acknowledged(peer.id) for peer in self.voters),
            reverse=True,
        )
        if not reached:
            return
        following = reached[self.majority() - 1]
        if following > self.first_of_epoch and following > self.committed:
            settled = self.committed <= self.config_index < following
            self.committed = following
            self.port.emit(Committed(self._cluster().key, following))
            if settled:
                self.on_settled()
                self.reconfigure()

    def _acknowledged(self, node: NodeId) -> int:
        if node == self.port.me.id:
            return 0 if self.fenced else self.next
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
