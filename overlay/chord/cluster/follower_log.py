"""A voter's copy of the cluster's log, its votes, and how it follows the primary (P1, P4).

Entries are applied as they come and acknowledged cumulatively, when they and the vote for their
epoch are durable (`journal`), which is mostly in a later turn; a process that starts again begins
with what its disk has. A snapshot counts only when its last piece has come: a voter never has less
than before. The same message carries the state of an arc that goes to a cluster of its own; that is
staged here until this node is asked to take it over (`taking_over`).

An epoch has one primary, because a voter grants an epoch to one node only. It votes when it grants
an epoch to a candidate, when it is the candidate, and when it takes entries of an epoch: it has
then helped to commit in it and must not help an older one again. A vote is stored before the
message that depends on it leaves, and restored at the next start. Only the vote in the own cluster
matters: a node that is recruited by another cluster has no log of the former one any more, and
without a log it grants nothing there.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from overlay import consensus
from overlay.bounded import BoundedDict
from overlay.chord.cluster.journal import Journal, Snapshot, VoterLog, size_of
from overlay.chord.cluster.messages import (
    ClusterHelloReply,
    Configuration,
    LogAck,
    LogEntries,
    LogEntry,
    LogSnapshot,
    VoteRecord,
)
from overlay.chord.constants import DISCONNECT_ASSUMED, HELLOS_KEPT
from overlay.chord.events import ArcGone, EntryReceived, LogReset
from overlay.chord.keys import in_arc
from overlay.chord.messages import Cluster
from overlay.chord.role import ClusterRole
from overlay.consensus import EMPTY
from overlay.links.backlog import Backlog
from overlay.links.events import MessageDropped
from overlay.machine import Key, NodeId, Peer, Version, by_id
from overlay.settings import ClusterSettings


class StagedSnapshot:
    """A whole state that is still arriving, or that is complete and not adopted yet."""

    def __init__(self, key: Key, epoch: int, position: Version, config: Configuration) -> None:
        self.key = key
        self.epoch = epoch
        self.position = position
        self.config = config
        self.entries: list[bytes] = []
        self.complete = False

    def snapshot(self) -> Snapshot:
        """The entries that have arrived so far, as a snapshot."""
        return Snapshot(self.key, self.position, self.config, tuple(self.entries))


class FollowerLog:
    """This node's copy of the log: its entries and votes, and the handling of the messages to a
    follower."""

    def __init__(self, role: ClusterRole, journal: Journal, settings: ClusterSettings) -> None:
        self.role = role
        self.port = role.port
        self.journal = journal
        self.backlog = Backlog(  # of the tail, for followers that were out of reach
            settings.tail_floor, settings.tail, settings.tail_decay, DISCONNECT_ASSUMED, 0.0
        )
        self.voter_log: VoterLog | None = None
        self.staged: StagedSnapshot | None = None
        self._owed: tuple[Peer, int] | None = None  # whom to acknowledge to, under which epoch
        # HELLOs that wait for an answer: by the primary, its cluster, epoch and number.
        self._hellos = BoundedDict[NodeId, tuple[Key, int, int]](HELLOS_KEPT)
        self._answered = 0  # the number of the last HELLO that was answered
        self._unsaid = False  # what was said to the primary of this copy was not sent

    # -- what is held ----------------------------------------------------------------------------

    @property
    def next(self) -> int:
        """Number of the next entry; 0 without a log."""
        return 0 if self.voter_log is None else self.voter_log.next

    @property
    def durable(self) -> int:
        """The number of entries that are on disk when this turn's messages leave."""
        return self.next - self.journal.unstored

    @property
    def position(self) -> Version:
        """(epoch of the last entry, number of entries); `EMPTY` without a log."""
        return EMPTY if self.voter_log is None else self.voter_log.position

    def is_of(self, key: Key) -> bool:
        """Return whether this node has the log of the cluster `key`."""
        return self.voter_log is not None and self.voter_log.key == key

    @property
    def voters(self) -> tuple[Peer, ...]:
        """The voters by the newest configuration in this node's log."""
        return () if self.voter_log is None else self.voter_log.config.voters

    def is_voter(self, node: NodeId) -> bool:
        """Whether `node` is a voter by the newest configuration in this copy, committed or not."""
        return any(peer.id == node for peer in self.voters)

    def majority(self) -> int:
        """The number of voters that are a majority."""
        return consensus.majority(len(self.voters))

    @property
    def fenced(self) -> bool:
        """Whether this node, as the primary, has voted for a higher epoch. It may then commit
        nothing further in its own epoch."""
        cluster = self.role.cluster
        if cluster is None:
            return False
        return consensus.is_fenced(self.journal.votes.get(cluster.key), cluster.epoch)

    def is_split_off(self, key: Key) -> bool:
        """Whether `key` lies in a part of the arc that may be served by its new cluster already, or
        the whole arc is given away."""
        if self.voter_log is None:
            return False
        leaving = self.voter_log.config.leaving
        return self.is_given or (leaving is not None and leaving.owns(key))

    @property
    def is_given(self) -> bool:
        """Whether the log, committed or not, gives the whole arc to the cluster after this one."""
        return self.voter_log is not None and self.voter_log.config.given is not None

    @property
    def config(self) -> Configuration:
        """The newest configuration in the log, committed or not. AssertionError without a log."""
        assert self.voter_log is not None, "only a member has a log"
        return self.voter_log.config

    # -- votes -----------------------------------------------------------------------------------

    def voted_epoch(self, key: Key) -> int:
        """The highest epoch of the cluster `key` for which this node has voted; 0 if it has not."""
        vote = self.journal.votes.get(key)
        return 0 if vote is None else vote.epoch

    def may_vote(self, key: Key, epoch: int, candidate: NodeId) -> bool:
        """Whether this node may vote for `candidate` in `epoch`."""
        return consensus.may_vote(self.journal.votes.get(key), epoch, candidate)

    def vote(
        self, key: Key, epoch: int, candidate: NodeId, voters: Sequence[Peer] | None = None
    ) -> None:
        """Vote for `candidate` in `epoch`, durably before anything that is sent later. A vote for a
        higher epoch stays. `voters`: those that this node would ask for its cluster after a
        restart, if they are not those of its log."""
        kept = self.journal.votes.get(key)
        if kept is not None and kept.epoch > epoch:  # a vote is never taken back
            epoch, candidate = kept.epoch, kept.candidate
        others = by_id(self.voters if voters is None else voters, besides=self.port.me.id)
        vote = VoteRecord(key, epoch, candidate, tuple(others.values()))
        if kept != vote:
            self.journal.store_vote(vote)

    # -- a whole state that was received ---------------------------------------------------------

    def drop_staged(self) -> None:
        """Drop the pieces of a snapshot that have come."""
        self.staged = None

    def adopt(self, snapshot: Snapshot, start: Key) -> None:
        """Replace the own log by that of a split-off arc, which begins at `start`. Done before this
        node becomes its primary, so that listeners to changes of the role find the state of the
        arc, and nothing of the former cluster's."""
        self._install(snapshot).override(Configuration((self.port.me,), start))

    # -- when this node leads --------------------------------------------------------------------

    def begin(self, cluster: Cluster) -> None:
        """Begin an empty log of a new cluster, whose only voter is this node."""
        config = Configuration((self.port.me,), cluster.start)
        self.voter_log = self._new_log(cluster.key, EMPTY, config)
        self.journal.begin(self.voter_log, ())

    def vote_alone(self) -> None:
        """Make this node the only voter, because the others are lost: it decides alone once it
        leads (P5)."""
        assert self.voter_log is not None
        self.voter_log.override(msgspec.structs.replace(self.config, voters=(self.port.me,)))

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Append the primary's own entries, in memory and on disk; they are applied already.

        One that changes the configuration is durable before anybody else has it. A primary that
        votes alone adds two voters at once: if they had that entry, and this node came back
        without it, both sides could elect."""
        assert self.voter_log is not None
        self._make_room(entries)
        for entry in entries:
            self.voter_log.add(entry)
        self.journal.append(entries, at_once=any(entry.config is not None for entry in entries))

    # -- at the other voters ---------------------------------------------------------------------

    def note_hello(self, sender: Peer, cluster: Cluster, number: int) -> None:
        """HELLO: the primary of `cluster` asks how far this copy is. It asks once, and this node
        may follow it only later: where nodes have keys, others are asked first whether it leads."""
        self._hellos.renew(sender.id, (cluster.key, cluster.epoch, number))

    def answer_hello(self) -> None:
        """Say how far this copy is if the own primary has asked in its present epoch."""
        cluster = self.role.cluster
        asked = None if cluster is None else self._hellos.get(cluster.primary.id)
        if cluster is not None and asked is not None and self._listens(cluster.primary, *asked[:2]):
            self._answered = self._hellos.pop(cluster.primary.id)[2]
            self._say_position(cluster.primary)

    def dropped(self, event: MessageDropped) -> None:
        """Note that a message to the primary was dropped because the link had no room: it is sent
        again when the primary is next heard (`primary_heard`)."""
        if isinstance(event.message, ClusterHelloReply | LogAck):
            self._unsaid = True

    def primary_heard(self, primary: Peer) -> None:
        """Handle a heartbeat of the own primary. Send the position of this copy if it was not sent
        before, so that the primary sends missing entries again."""
        if self._unsaid:
            self._unsaid = False
            self._say_position(primary)

    def on_entries(self, sender: Peer, message: LogEntries) -> None:
        """Apply the next entries, store and acknowledge them; where they do not follow on this log,
        say how far it is."""
        voter_log = self.voter_log
        if not self._listens(sender, message.key, message.epoch):
            self.port.count("log_refused")
            return
        if voter_log is None or voter_log.key != message.key or voter_log.position != message.after:
            self.port.count("log_gaps")
            if voter_log is None or message.after[1] > voter_log.next:
                self._say_position(sender)
            return
        self._make_room(message.entries)
        for item in message.entries:
            self._apply(voter_log, item)
        self.journal.append(message.entries)
        self._acknowledge(sender, message.epoch)

    def on_copy(self, sender: Peer, message: LogSnapshot) -> None:
        """Take one piece of a whole state; the last one installs it, or completes the state of an
        arc that was offered."""
        cluster = self.role.cluster
        mine = cluster is not None and cluster.key == message.key
        if (mine and not self._listens(sender, message.key, message.epoch)) or (
            not mine and (cluster is None or sender.id != cluster.primary.id)
        ):
            self.port.count("log_refused")
            return
        if message.first:
            self.staged = StagedSnapshot(
                message.key, message.epoch, message.position, message.config
            )
        staged = self.staged
        if staged is None or (staged.key, staged.epoch, staged.position) != (
            message.key,
            message.epoch,
            message.position,
        ):
            self.port.count("log_refused")  # a piece without its beginning: worth nothing
            return
        if message.before is not None and message.before != len(staged.entries):
            self.port.count("log_gaps")  # a piece is missing: all of it has to be sent again
            self.staged, self._unsaid = None, mine
            return
        staged.entries += message.entries
        staged.complete = message.last
        if staged.complete and mine:
            self._install(staged.snapshot())
            self._acknowledge(sender, message.epoch)

    def forget_log(self) -> None:
        """Drop this node's copy of the log, in memory and on disk. Without it there is no vote."""
        if self.voter_log is not None:
            self.port.emit(LogReset(self.voter_log.key))
        self.voter_log = None
        self.staged = None
        self.journal.end()

    def resume(self, cluster: Cluster) -> None:
        """Begin with what the disk has of the log of `cluster`, if it has anything."""
        found = self.journal.take_up()
        if found is None or found[0].key != cluster.key:
            self.journal.end()
            return
        snapshot, items = found
        voter_log = self._load(snapshot)
        for item in items:
            self._apply(voter_log, item)

    def _listens(self, sender: Peer, key: Key, epoch: int) -> bool:
        """Whether `sender` is the own primary and speaks in its epoch, which is not fenced."""
        cluster = self.role.cluster
        return (
            cluster is not None
            and not self.role.is_primary
            and (sender.id, key, epoch) == (cluster.primary.id, cluster.key, cluster.epoch)
            and not consensus.is_fenced(self.journal.votes.get(key), epoch)
        )

    def _say_position(self, primary: Peer) -> None:
        cluster = self.role.own
        position = self.position if self.is_of(cluster.key) else EMPTY
        answer = ClusterHelloReply(cluster.key, cluster.epoch, position, self._answered)
        self.port.send(primary, answer)

    def acknowledge_stored(self) -> None:
        """Acknowledge the entries that are durable now, if this node follows that primary."""
        if self._owed is not None:
            (primary, epoch), self._owed = self._owed, None
            if self.voter_log is not None and self._listens(primary, self.voter_log.key, epoch):
                self._say_stored(primary, epoch)

    def _acknowledge(self, primary: Peer, epoch: int) -> None:
        """Acknowledge all entries as soon as they are durable."""
        assert self.voter_log is not None
        self.vote(self.voter_log.key, epoch, primary.id)
        if self.durable == self.next:
            self._say_stored(primary, epoch)
        else:
            self._owed = (primary, epoch)

    def _say_stored(self, primary: Peer, epoch: int) -> None:
        assert self.voter_log is not None
        self._owed = None if self.durable == self.next else (primary, epoch)
        self.port.send(primary, LogAck(self.voter_log.key, epoch, self.durable))

    def _install(self, snapshot: Snapshot) -> VoterLog:
        """`snapshot` takes the place of this node's log, in memory and on disk."""
        voter_log = self._load(snapshot)
        self.staged = None
        self.journal.begin(voter_log, snapshot.entries)
        return voter_log

    def _load(self, snapshot: Snapshot) -> VoterLog:
        voter_log = self._new_log(snapshot.key, snapshot.position, snapshot.config)
        self.voter_log = voter_log
        self.port.emit(LogReset(snapshot.key))
        for index, entry in enumerate(snapshot.entries):
            self.port.emit(EntryReceived(snapshot.key, index, entry))
        # A primary has what it gave away until that is decided; no later entry would take it away.
        if snapshot.config.start != snapshot.key:
            self._emit_gone(snapshot.config.start, snapshot.key)
        return voter_log

    def _new_log(self, key: Key, position: Version, config: Configuration) -> VoterLog:
        return VoterLog(key, position, config, self.backlog.size(self.port.now))

    def _make_room(self, entries: Sequence[LogEntry]) -> None:
        """Adapt how many bytes of entries are kept for followers that are out of reach, now that
        these entries are written (T3)."""
        assert self.voter_log is not None
        self.backlog.wrote(sum(map(size_of, entries)))
        self.voter_log.keep(self.backlog.size(self.port.now))

    def _apply(self, voter_log: VoterLog, item: LogEntry) -> None:
        was = voter_log.config
        index = voter_log.add(item)
        if item.config is None:
            self.port.emit(EntryReceived(voter_log.key, index, item.body))
            return
        start, promised = item.config.start, item.config.promised
        if promised is None and item.config.taken == was.taken:
            promised = was.promised  # it is void
        if promised is not None:  # what has come of its state is not this cluster's
            self._emit_gone(promised.key, promised.start)
        if start not in (was.start, voter_log.key) and in_arc(start, was.start, voter_log.key):
            self._emit_gone(start, was.start)

    def _emit_gone(self, key: Key, start: Key) -> None:
        self.port.emit(ArcGone(Cluster("", key, start, (0, 0), self.port.me)))
