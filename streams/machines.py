"""The machines of streams at one node, built and put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from overlay.chord.ring.ring import Ring
from overlay.client import Command
from overlay.info import IntakeInfo
from overlay.machine import Machine, Peer, Port
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner_claims import ClaimsDue, OwnerClaims
from streams.access.locator import StreamLocator
from streams.directory.commands import StreamCommands
from streams.directory.messages import KeepShards
from streams.directory.questions import OwnerQuestions
from streams.directory.stream_owner import StreamOwner
from streams.disk import LogDisk
from streams.log.chunk import NANOSECONDS
from streams.programs.group.members import Members
from streams.programs.producer.producers import Producers
from streams.programs.questions import OperatorQuestions
from streams.programs.reader.readers import Readers
from streams.programs.transaction.transactors import Transactors
from streams.services.append.appender import AppendServer
from streams.services.capture import Captures
from streams.services.copy import Copies
from streams.services.fork.fork_copies import ForkCopies
from streams.services.fork.forks import Forks
from streams.services.group.shard_groups import GroupServer
from streams.services.half import TransactionServer
from streams.services.read.row_facts import RowFactsServer
from streams.services.read.shard_readings import ReadServer
from streams.services.service import Leaderships
from streams.services.table import TableServer
from streams.shard.hosting.log_checks import LogChecks
from streams.shard.hosting.shard_hosts import ShardHosts

# --- the time of day without jumps, for the timestamps and the age of rows ---
#
# If the wall clock is set an hour forward, rows would expire, and retention remove them, an hour
# too early; if it is set back, too late. So a node reads the wall clock at its start, counts on
# with a monotonic clock, and slews towards the wall clock. (The clocks of different nodes may still
# differ: a later leader has its own.)

SLEW: Final = 0.01
"""Seconds of correction per second: an hour in four days. The drift of a clock, some 0.0001, is
below it and corrected at once. Guess."""


class SteadyClock:
    """A callable that returns the time, which never goes back."""

    def __init__(self, port: Port, wall: Callable[[], int]) -> None:
        """`port.now`: seconds by a clock that only goes forward; `wall`: nanoseconds since 1970."""
        self._port = port
        self._wall = wall
        self._read_at = port.now
        self._ahead = wall() - int(self._read_at * NANOSECONDS)

    def __call__(self) -> int:
        """The time of day: nanoseconds since 1970."""
        now = self._port.now
        most = int((now - self._read_at) * SLEW * NANOSECONDS)
        self._read_at = now
        counted = int(now * NANOSECONDS)
        off = self._wall() - counted - self._ahead
        self._ahead += max(-most, min(off, most))
        return counted + self._ahead


class ShardOrdersDue(ClaimsDue, frozen=True):
    """As `ClaimsDue`, of a node that has shards."""


class StreamMachines:
    """All that a node has to do with streams."""

    def __init__(
        self,
        port: Port,
        disk: LogDisk,
        ring: Ring,
        owner: Owner,
        neighbours: Callable[[], Iterable[Peer]],
        incarnation: int,
        wall: Callable[[], int],
        ask: Callable[[int, Command], None],
        close: Callable[[int], None],
        is_keyed: bool = False,
    ) -> None:
        """`neighbours`: nodes that may have shards, beside the members of the own cluster;
        `incarnation` grows with each start of the node; `wall`: nanoseconds since 1970; `ask`
        carries out a command of a client inside of the node (`InnerReply`), `close` ends one;
        `is_keyed`: nodes have keys, so that orders are of those who may give them."""
        wall = SteadyClock(port, wall)
        hosts = self.hosts = ShardHosts(port, disk, ring, wall, is_keyed)
        self.owner = StreamOwner(port, owner, ring, neighbours)
        questions = OwnerQuestions(port, ring)
        locator = StreamLocator(port, questions)
        commands = StreamCommands(port, ring, questions)
        led = self.leaderships = Leaderships(port, hosts.replica, wall)
        forks = self.forks = Forks(led, hosts, locator)
        appends = AppendServer(led, forks.appendable)
        fork_copies = ForkCopies(led, forks.main, appends.flush)
        self.producers = Producers(port, incarnation, locator)
        tables = TableServer(led, forks.main)
        reads = ReadServer(led, hosts.leading, tables.shard)
        self.readers = Readers(port, incarnation, locator)
        groups = GroupServer(led, forks.main)
        members = Members(port, incarnation, locator)
        operators = OperatorQuestions(port, locator)
        row_facts = RowFactsServer(led, hosts.leading, groups.holder)
        self.captures = Captures(led, hosts, ask, close)
        gone = self.readers.client_gone
        self.copies = Copies(led, hosts, locator, questions, ask, gone)
        hosts.report_also(
            lambda shard: (self._intake(shard), tables.keys(shard), forks.status(shard))
        )
        checks = LogChecks(port, hosts.replicas, hosts.entries)
        halves = TransactionServer(led, forks.main)
        self.transactors = Transactors(port, locator)
        self.machines: tuple[Machine, ...] = (
            *(hosts, led, self.owner, questions, locator, commands, appends, self.producers),
            *(tables, reads, self.readers, groups, members, operators, row_facts),
            *(self.captures, self.copies, checks, halves, self.transactors),
            *(forks, fork_copies),
        )
        if is_keyed:
            keep, due = hosts.on_keep_shards, ShardOrdersDue()
            orders = OwnerClaims(port, ring, keep, {KeepShards: None}, due, keys_of=hosts.keys_of)
            self.machines = (*self.machines, orders)

    def _intake(self, shard: str) -> IntakeInfo | None:
        """Return the state of capturing and copying into a shard; None: there is neither."""
        captured, copied = self.captures.status(shard), self.copies.status(shard)
        if captured is None or copied is None:
            return captured or copied
        return replace(captured, gaps=captured.gaps + copied.gaps, origins=copied.origins)

    def client_gone(self, client: int) -> None:
        """Drop what a program that has gone has begun and waits for."""
        for machine in self.machines:
            machine.client_gone(client)

    def leave(self) -> None:
        """The node leaves: programs append and decide nothing new through it, and its shards go on
        at other nodes."""
        self.hosts.leave()
        self.producers.leave()
        self.transactors.leave()

    @property
    def unanswered(self) -> int:
        """Return the number of requests of programs that no leader has answered."""
        return self.producers.unanswered + self.transactors.unanswered

    @property
    def unreleased(self) -> int:
        """Shards that do not go on yet without this node, which leaves."""
        return self.hosts.unreleased
