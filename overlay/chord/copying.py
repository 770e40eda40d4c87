"""The copy of a cluster's operation log at its standby (P1; Tensor T5's hot standby in small).

The primary appends entries and numbers them; the standby gets each in order, applies it and
acknowledges cumulatively; an entry is *committed* when the standby has it, or at once where there
is no standby. A new standby first gets the whole state: the registry writes it as entries
(`copy_state`), which take the next numbers of the same log, so that one sequence of numbers and one
cumulative acknowledgement serve both: what was appended before the copy is contained in it, what is
appended later follows it. Until the copy has arrived, nothing new is committed.

The same messages carry the state of an arc that goes to a cluster of its own (`handover`); that is
a log of its own, from number 0.

(One copy is what this version promises. Majorities come with the election, MECHANISMS P1 and P4.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from overlay.chord.events import Committed, CopyReset, EntryCopied, StateWanted
from overlay.chord.messages import Cluster, LogAck, LogEntries
from overlay.chord.seat import Seat
from overlay.machine import Key, NodeId, Peer

FRAME = 128 * 1024
"""Bytes of entries per LogEntries: half of a link's batch (LinkSettings.frame), so that the rest of
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


class Held:
    """The receiving side: how far the copy of one log has come."""

    def __init__(self, key: Key, epoch: int, following: int) -> None:
        self.key = key
        self.epoch = epoch
        self.next = following


class Log:
    """Both sides of the copy: sending at the primary, holding at the standby."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.port = seat.port
        self.next = 0  # number of the next entry
        self.committed = 0  # all before are
        self.standby: NodeId = ""  # who gets the copy
        self.copied = False  # whether it was sent the whole state
        self.held: Held | None = None  # at a standby or coming primary

    # -- at the primary --------------------------------------------------------------------------

    def lead(self, following: int) -> None:
        """This node is the primary now; its log goes on at `following`."""
        self.next = following
        self.committed = 0
        self.standby = ""
        self.held = None
        self.fit_standby(self._cluster())

    def fit_standby(self, cluster: Cluster) -> None:
        """The description has changed: a new standby gets the state, and where there is none
        everything is committed."""
        standby = "" if cluster.standby is None else cluster.standby.id
        if standby == self.standby and standby:
            return
        self.standby = standby
        self.copied = False
        if standby:
            self.port.emit(StateWanted(cluster.key))
        else:
            self._commit(self.next)

    def copy_again(self) -> None:
        """The epoch has changed: the standby gets the whole state once more."""
        self.standby = ""
        self.fit_standby(self._cluster())

    def append(self, entry: bytes) -> int:
        """Add one entry. Returns its number; Committed follows."""
        index = self.next
        self.next += 1
        if not self.standby:
            self._commit(self.next)
        elif self.copied:
            self._send(index, (entry,))
        return index

    def copy_state(self, entries: Sequence[bytes]) -> None:
        """The answer to StateWanted. One copy is enough if it was asked for twice."""
        if not self.standby or self.copied:
            return
        reset = True
        for run in in_frames(entries):
            self._send(self.next, run, reset)
            self.next += len(run)
            reset = False
        self.copied = True

    def add_soft(self, entries: Sequence[bytes]) -> None:
        """Entries for the standby only, which is about to take over."""
        for run in in_frames(entries):
            self._send(self.next, run)
            self.next += len(run)

    def transfer(self, arc: Cluster, entries: Sequence[bytes]) -> int:
        """Send the state of `arc` to its coming primary. Returns the number of entries."""
        first, reset = 0, True
        for run in in_frames(entries):
            self.port.send(arc.primary, LogEntries(arc.key, arc.version[0], first, run, reset))
            first += len(run)
            reset = False
        return first

    def on_ack(self, sender: Peer, message: LogAck) -> None:
        """The standby has everything before `next`."""
        cluster = self.seat.cluster
        if (
            cluster is None
            or not self.seat.is_primary
            or not self.copied
            or sender.id != self.standby
            or (message.key, message.epoch) != (cluster.key, cluster.version[0])
            or message.next > self.next
        ):
            return
        self._commit(message.next)

    # -- at the standby or coming primary --------------------------------------------------------

    def on_entries(self, sender: Peer, message: LogEntries) -> None:
        """Apply and acknowledge. Only the own primary is listened to."""
        cluster = self.seat.cluster
        if cluster is None or sender.id != cluster.primary.id or self.seat.is_primary:
            self.port.count("log_refused")
            return
        if message.reset:
            self.held = Held(message.key, message.epoch, message.first)
            self.port.emit(CopyReset(message.key))
        held = self.held
        if held is None or (held.key, held.epoch, held.next) != (
            message.key,
            message.epoch,
            message.first,
        ):
            self.port.count("log_refused")  # a piece without its beginning: worth nothing
            return
        for offset, entry in enumerate(message.entries):
            self.port.emit(EntryCopied(message.key, message.first + offset, entry))
        held.next += len(message.entries)
        self.port.send(sender, LogAck(held.key, held.epoch, held.next))

    def forget_copy(self) -> None:
        """The copy held here is of no use any more."""
        if self.held is not None:
            self.port.emit(CopyReset(self.held.key))
            self.held = None

    def _send(self, first: int, entries: tuple[bytes, ...], reset: bool = False) -> None:
        cluster = self._cluster()
        assert cluster.standby is not None
        self.port.send(
            cluster.standby, LogEntries(cluster.key, cluster.version[0], first, entries, reset)
        )

    def _commit(self, following: int) -> None:
        self.committed = max(self.committed, following)
        self.port.emit(Committed(self._cluster().key, self.committed))

    def _cluster(self) -> Cluster:
        cluster = self.seat.cluster
        assert cluster is not None, "only a member has a log"
        return cluster
