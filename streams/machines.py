"""The machines of streams at one node, built and put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
from streams.programs.group.members import Members
from streams.programs.producer.producers import Producers
from streams.programs.questions import OperatorQuestions
from streams.programs.reader.readers import Readers
from streams.programs.transaction.transactors import Transactors
from streams.services.append.append_server import AppendServer
from streams.services.capture.captures import Captures
from streams.services.copy.copies import Copies
from streams.services.fork.fork_copies import ForkCopies
from streams.services.fork.forks import Forks
from streams.services.group.group_server import GroupServer
from streams.services.half.transaction_server import TransactionServer
from streams.services.read.read_server import ReadServer
from streams.services.read.row_facts import RowFactsServer
from streams.services.row_records import RowRecords
from streams.services.service import Leaderships
from streams.services.table.table_server import TableServer
from streams.shard.hosting.asked_checks import AskedChecks
from streams.shard.hosting.log_checks import LogChecks
from streams.shard.hosting.shard_hosts import ShardHosts
from streams.steady_clock import SteadyClock


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
        `incarnation` grows with each start of the node; `wall`: nanoseconds since 1970;
        `ask` carries out a command of a client inside of the node (overlay/inner.py), `close` ends
        one; `is_keyed`: nodes have keys, so that orders are of those who may give them."""
        wall = SteadyClock(lambda: port.now, wall)
        self.hosts = ShardHosts(port, disk, ring, wall, is_keyed)
        orders = OwnerClaims(
            *(port, ring, self.hosts.on_keep_shards, {KeepShards: None}, ShardOrdersDue()),
            keys_of=self.hosts.keys_of,
        )
        self.owner = StreamOwner(port, owner, ring, neighbours)
        self.questions = OwnerQuestions(port, ring)
        self.locator = StreamLocator(port, self.questions)
        self._commands = StreamCommands(port, ring, self.questions)
        led = self.leaderships = Leaderships(port, self.hosts.replica)
        self.forks = Forks(port, led, self.hosts, self.locator)
        appends = AppendServer(port, led, self.forks.appendable, wall, self.forks.join)
        fork_copies = ForkCopies(port, led, self.forks.main, wall, appends.flush)
        self.producers = Producers(port, incarnation, self.locator)
        self.tables = TableServer(port, led, self.forks.main, wall)
        reads = ReadServer(port, led, self.hosts.leading, wall, self.tables.table)
        self.readers = Readers(port, incarnation, self.locator)
        self.groups = GroupServer(port, led, self.forks.main, self.hosts.replica, wall)
        row_facts = RowFactsServer(port, self.hosts.leading, self.groups.holder, wall)
        self.members = Members(port, incarnation, self.locator)
        self._operators = OperatorQuestions(port, self.locator)
        records = RowRecords(port, led, self.hosts.leading, wall)
        self.captures = Captures(port, led, self.hosts, ask, close, wall)
        self.copies = Copies(
            port, led, self.hosts, self.locator, ask, self.readers.client_gone, wall, self.questions
        )
        self.hosts.intake, self.hosts.keys = self._intake, self.tables.keys
        self.hosts.forks = self.forks.status
        self.checks = LogChecks(port, self.hosts.replicas)
        self._asked_checks = AskedChecks(port, self.hosts.replicas, self.hosts.entries)
        halves = TransactionServer(port, led, self.forks.main, wall)
        self.transactors = Transactors(port, self.locator)
        self.machines: tuple[Machine, ...] = (
            *(self.hosts, led, self.owner, self.questions, self.locator, self._commands),
            *(appends, self.producers, self.tables, reads, self.readers),
            *(self.groups, self.members, self._operators),
            *(row_facts, records, self.captures, self.copies, self.checks),
            self._asked_checks,
            *(halves, self.transactors, self.forks, fork_copies),
            *((orders,) if is_keyed else ()),
        )

    def _intake(self, shard: str) -> IntakeInfo | None:
        """What a shard takes in here by itself."""
        captured, copied = self.captures.status(shard), self.copies.status(shard)
        if captured is None or copied is None:
            return captured or copied
        return replace(captured, gaps=captured.gaps + copied.gaps, origins=copied.origins)

    def commands(self) -> dict[type, Callable[..., None]]:
        """Commands with the method that carries each out."""
        return {
            **self._commands.commands(),
            **self.producers.commands(),
            **self.readers.commands(),
            **self.members.commands(),
            **self._operators.commands(),
            **self._asked_checks.commands(),
            **self.transactors.commands(),
        }

    def client_gone(self, client: int) -> None:
        """A program has gone."""
        self.producers.client_gone(client)
        self.readers.client_gone(client)
        self.members.client_gone(client)
        self._operators.client_gone(client)
        self._asked_checks.client_gone(client)
        self.transactors.client_gone(client)

    def leave(self) -> None:
        """The node leaves: programs append and decide nothing new through it, and its shards go on
        at other nodes."""
        self.hosts.leave()
        self.producers.leave()
        self.transactors.leave()

    @property
    def unanswered(self) -> int:
        """What programs have asked for and no leader has answered."""
        return self.producers.unanswered + self.transactors.unanswered

    @property
    def unreleased(self) -> int:
        """Shards that do not go on yet without this node, which leaves."""
        return self.hosts.unreleased
