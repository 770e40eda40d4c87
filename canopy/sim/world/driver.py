"""One process in the world: a Node, its disk, and the Node's driver.

The same contract as the trio driver in canopy/wire/: inputs are handled one by one, the node
flushes itself, its requests are queued, and after every input its `deadline` is read again. The
clock of every process begins elsewhere, so that a node which compares its monotonic seconds with
another's fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Protocol

from canopy.sim.world.disk import Disk, SimulatedDiskError
from canopy.sim.world.log_disk import SimulatedLogDisk
from canopy.sim.world.network import Network
from canopy.sim.world.processor import CHARGED, Processor
from canopy.sim.world.recorder import Recorder
from canopy.sim.world.traffic import Traffic
from node import Credentials, LocalNode
from overlay.client import Command, Event, Gathered, Reply
from overlay.driver import DrivenNode, Driver
from overlay.links.events import Codec
from overlay.links.hybrid_clock import HybridClock
from overlay.links.messages import Frame
from overlay.machine import LocalEvent, Named, NodeId
from overlay.rights import Principal
from overlay.settings import Settings

CLOCKS = 10_000.0
"""The range, in seconds, in which the processes' clocks begin. Small enough for doubles to stay
exact to the microsecond."""

ROUNDING = 1e-9
"""Seconds by which a tick is delayed if the sum of two doubles is before the deadline: a tick
before it would do nothing, for ever. Far over the last place of `CLOCKS` (2e-12)."""


REVOKED = "its certificate was revoked"
EXPIRED = "its certificate has expired"


class NodeBuilder(Protocol):
    """Makes a Node: `node.Node` itself, or a test's fake."""

    def __call__(
        self,
        local: LocalNode,
        settings: Settings,
        rng: Random,
        codec: Codec,
        driver: Driver,
        seeds: Sequence[str],
        restored: Sequence[bytes],
        credentials: Credentials | None = None,
    ) -> Any:
        """Build the node without starting it."""


class Host(Protocol):
    """The interface of a simulated process to its world."""

    now: float
    network: Network
    recorder: Recorder
    traffic: Traffic
    happened: list[tuple[float, str]]
    copied: dict[str, None]
    audit: list[tuple[str, str, dict[str, Any]]]

    def at(self, time: float, action: Callable[..., object], *arguments: Any) -> None:
        """Run an action at a virtual time."""

    def principal(self, name: str) -> Principal | None:
        """Return the facts in a node's certificate; None if nodes have no keys."""

    def is_revoked(self, name: str, node: NodeId) -> bool:
        """Return whether the node of this name knows that the certificate of `node` is revoked."""

    def certificate_ends(self, name: str) -> float:
        """When the certificate ends with which a node opens connections now."""

    def crash(self, name: str, *, silent: bool = False) -> None:
        """Kill a process: it sends nothing more."""

    def replied(self, driver: SimDriver, client: int, reply: Reply) -> None:
        """Handle a node's reply or notice to a client."""

    def wall(self, name: str) -> float:
        """Return a node's wall clock time, in seconds since 1970."""

    def draining(self, name: str) -> None:
        """Note that a process has been asked to leave."""

    def log_disk(self, disk: Disk, deliver: Callable[[LocalEvent], None]) -> SimulatedLogDisk:
        """Return the disk of a node's shards, which answers its newest process."""

    def directory_put(self, name: str, addresses: tuple[str, ...]) -> None:
        """Publish the node's addresses in the overlay's directory."""


class SimDriver:
    """Drives one node; implements `overlay.links.events.Transport` and `overlay.driver.Driver`."""

    def __init__(self, world: Host, name: str, disk: Disk, clock: float) -> None:
        self.name = name
        self.disk = disk
        self.alive = True
        self.processor: Processor | None = None
        """The cost of its work; None: work takes no time."""
        self.sent = world.traffic.sent
        self._began = world.now
        self._ended = 0.0  # once it is not alive
        self.node: Any = None
        self._world = world
        self._network = world.network
        self._offset = clock - world.now
        self.hybrid = HybridClock(self.clock, world.wall(name))
        self._tick_at = -1.0  # virtual time of the earliest tick on the heap, -1: none
        self._paused = False
        self._syncing = False  # or working: it takes nothing in, and nothing leaves yet
        self._stored = False  # in this turn
        self._ticket = 0  # of what was stored behind a turn
        self._stores_behind = False  # a sync of that is under way
        self._work = 0.0  # seconds that this turn costs
        self.admitted: dict[int, tuple[Principal, float]] = {}
        """Open connections, where nodes have keys: who is at the other end, and when the
        certificate ends that was shown there, in seconds since 1970."""
        self.refused = 0
        """Connections from nodes whose certificate is revoked or has ended."""
        self.worked = 0.0
        """The processor time of all turns so far, in seconds."""
        self._matched = ""  # the event that was matched last
        self._inputs: deque[tuple[str, tuple[Any, ...]]] = deque()  # while it stands still
        self._replies: list[tuple[int, Reply]] = []  # of the present turn
        self.logs = world.log_disk(disk, self._disk_answered)
        self._held: list[tuple[Callable[..., None], tuple[Any, ...]]] | None = None
        # what it does after it has stored something, until that is durable; or all of its turn
        self._doomed: str | None = None  # how it dies at its next sync

    def run(self, node: DrivenNode) -> None:
        """Drive `node`, and start it."""
        self.node = node
        self._world.recorder.begin(self.disk.node, self.disk.incarnation, self.hybrid.read)
        self._network.listen(self.disk.address, self)
        node.start()
        self._after()

    def stop(self, *, silent: bool = False) -> None:
        """End the process now; the disk stays."""
        self.alive = False
        self._ended = self._world.now
        self.disk.tear()
        self.logs.lose_power()
        self._network.vanish(self, silent=silent)

    @property
    def lived(self) -> float:
        """Virtual seconds from the start to the end, or to now."""
        return (self._world.now if self.alive else self._ended) - self._began

    def sum_up(self, reason: str) -> None:
        """Write the last record of a process that ends in order: its counters."""
        counters = self.node.counters
        totals = {
            "data_messages": counters.get("data_messages", 0),
            "other_messages": counters.get("other_messages", 0),
            "bytes": counters.get("link_bytes", 0),
        }
        self.trace("stop", {**totals, "reason": reason, "lost": 0, **self.node.numbered})

    # --- inputs ---

    def opened(self, connection: int) -> None:
        """Handle a successful dial of this process."""
        principal = self._principal(connection)
        self._admit(connection, principal)
        if reason := self._refusal(connection):
            self._network.close(connection, reason)
            self.closed(connection, reason)
        else:
            self._input("on_opened", connection, *principal)

    def accepted(self, connection: int) -> None:
        """Handle a connection that another process dialled (`network.Process`)."""
        principal = self._principal(connection)
        self._admit(connection, principal)
        if reason := self._refusal(connection):
            self.refused += 1
            del self.admitted[connection]
            self._network.close(connection, reason)
        else:
            self._input("on_accepted", connection, *principal)

    def _admit(self, connection: int, principals: tuple[Principal, ...]) -> None:
        other = self._network.opposite(connection)
        for principal in principals:
            assert other is not None
            self.admitted[connection] = principal, self._world.certificate_ends(other.name)

    def _refusal(self, connection: int) -> str:
        """Return why this process does not believe, or no longer, the certificate at the other
        end; empty if it does."""
        if connection not in self.admitted:
            return ""
        principal, ends = self.admitted[connection]
        if self._world.is_revoked(self.name, principal.id):
            return REVOKED
        return EXPIRED if ends < self._world.wall(self.name) else ""

    def recheck(self) -> int:
        """Look at the certificates of all connections, and cut off who is no longer believed.
        Returns how many."""
        cut = {number: why for number in self.admitted if (why := self._refusal(number))}
        for connection, reason in cut.items() if self.alive else ():
            self._network.close(connection, reason)
            self.closed(connection, reason)
        return len(cut)

    def _principal(self, connection: int) -> tuple[Principal, ...]:
        """Return the identity of the other end, as its certificate states it, if nodes have keys;
        else ()."""
        other = self._network.opposite(connection)
        principal = None if other is None else self._world.principal(other.name)
        return () if principal is None else (principal,)

    def arrived(self, connection: int, frame: Frame) -> None:
        """Handle a frame that arrived. (Most inputs are frames, so this skips the general path.)"""
        if self._stands:
            self._input("on_frames", connection, (frame,))
            return
        self._begin()
        self.node.on_frames(connection, (frame,))
        self._after()

    def closed(self, connection: int, reason: str) -> None:
        """Hand the node the end of a connection, or of a dial that failed, as a turn of its own."""
        self.admitted.pop(connection, None)
        self._input("on_closed", connection, reason)

    def command(self, client: int, *commands: Command) -> None:
        """Handle a client's command, or several that were read together, as from the control
        socket."""
        self._input("commands", client, commands)

    def documents_changed(self) -> None:
        """Tell the node that signed documents on its disk have changed."""
        self._input("on_documents")

    def client_gone(self, client: int) -> None:
        """Hand the node the end of a client's connection, as a turn of its own."""
        self._input("client_gone", client)

    def act(self, name: str) -> None:
        """Call the node's method `name` as a turn of its own: experiments use it for actions that
        no node of a process takes."""
        self._input(name)

    def _disk_answered(self, event: LocalEvent) -> None:
        """Handle an answer of the shards' disk."""
        if self.alive:
            self._input("on_disk", (event,))

    def drain(self) -> None:
        """Ask the process to leave in order, as SIGTERM does."""
        self._input("drain")

    def pause(self) -> None:
        """Pause the process (SIGSTOP, a long pause of its machine): inputs wait."""
        self._paused = True

    def doom(self, *, silent: bool, within: float) -> None:
        """Kill the process at its next sync, before anything becomes durable, or after `within`
        virtual seconds if there is none."""
        self._doomed = "silent" if silent else "crash"
        self._world.at(self._world.now + within, self._fall)

    def _fall(self) -> None:
        if self.alive and self._doomed is not None:
            self._world.crash(self.name, silent=self._doomed == "silent")

    @property
    def is_paused(self) -> bool:
        """Whether it is stopped now, paused or waiting for its disk."""
        return self._stands

    def resume(self) -> None:
        """Resume a paused process: it handles everything that arrived meanwhile, and its ticks are
        late."""
        if self._paused:
            self._paused = False
            self._catch_up()

    @property
    def _stands(self) -> bool:
        return self._paused or self._syncing

    def _input(self, name: str, *arguments: Any) -> None:
        if self._stands:
            self._inputs.append((name, arguments))
            return
        if name == "drain":
            self._world.draining(self.name)
        self._begin()
        getattr(self.node, name)(*arguments)
        self._after()

    def _begin(self) -> None:
        """Begin a turn. If turns take time, its output leaves at its end."""
        if self.processor is not None:
            self._work = self.processor.per_input
            if self._held is None:
                self._held = []

    def _catch_up(self) -> None:
        while self._inputs and self.alive and not self._stands:
            name, arguments = self._inputs.popleft()
            self._input(name, *arguments)
        self._after()

    def _after(self) -> None:
        """Finish an input: release its output, end if drained, else schedule the next tick."""
        if not self.alive or self._stands:
            return
        conflict = self.node.conflict
        if conflict is not None and conflict.must_stop:
            assert self.disk.node in self._world.copied, f"{self.name}: a restart taken for a copy"
            self._world.happened.append((self._world.now, f"{self.name} is superseded"))
            self._world.crash(self.name)
            return
        if self._held is not None:
            self._syncing = True
            if self._stored and self._doomed is not None:
                self._fall()
            elif delay := self._work + (self.disk.sync_time() if self._stored else 0.0):
                self._world.at(self._world.now + delay, self._synced)
            else:
                self._synced()
            return
        self._answer()
        if self.node.drained:
            self.node.leave("left")
            self.sum_up("left")
            self.stop()
            return
        deadline = self.node.deadline()
        if deadline is None:
            return
        at = max(deadline - self._offset, self._world.now)
        if at + self._offset < deadline:
            at += ROUNDING
        if self._tick_at < 0 or at < self._tick_at:
            self._tick_at = at
            self._world.at(at, self._tick, at)

    def _synced(self) -> None:
        """Release the waiting output and inputs: the work is done and the disk has synced."""
        self._syncing = False
        if not self.alive:
            return
        self.worked += self._work
        self._work = 0.0
        if self._stored:
            self._stored = False
            if not self._sync():
                return
        held, self._held = self._held or [], None
        self._answer()
        for action, arguments in held:
            action(*arguments)
        self._catch_up()

    def _sync(self) -> bool:
        """Sync the disk. Returns whether that succeeded; otherwise the process has ended."""
        try:
            self.disk.sync()
        except SimulatedDiskError as error:
            self._world.happened.append((self._world.now, f"disk of {self.name}: {error}"))
            self._world.crash(self.name)
            return False
        return True

    def _answer(self) -> None:
        """Pass the turn's replies to the clients, when the records that they depend on are
        durable."""
        if self._replies:
            replies, self._replies = self._replies, []
            for client, reply in replies:
                self._world.replied(self, client, reply)

    def _tick(self, at: float) -> None:
        if not self.alive or at != self._tick_at:
            return  # overtaken by an earlier one
        self._tick_at = -1.0
        if not self._stands:  # else `_catch_up` sees to it
            self._due()

    def _due(self) -> None:
        """Run a tick, unless the deadline was moved meanwhile."""
        deadline = self.node.deadline()
        if deadline is not None and deadline <= self.clock():
            self._begin()
            self.node.on_tick()
        self._after()

    # --- overlay.driver.Driver ---

    schemas = None
    """No schemas: programs may publish any event."""

    processors = 1
    """The number of processors of its machine."""

    def dial(self, address: str) -> int:
        """Dial from this node's host (overlay.links.events.Transport)."""
        return self._network.dial(self, address)

    def write(self, connection: int, frame: Frame) -> None:
        """Write one frame at the end of the turn (overlay.links.events.Transport)."""
        if self._held is None:
            self._network.write(connection, frame)
        else:
            self._held.append((self._network.write, (connection, frame)))

    def close(self, connection: int, reason: str) -> None:
        """Close at the end of the turn (overlay.links.events.Transport)."""
        self.admitted.pop(connection, None)
        if self._held is None:
            self._network.close(connection, reason)
        else:
            self._held.append((self._network.close, (connection, reason)))

    def clock(self) -> float:
        """Return this process's monotonic seconds: the world's time and an offset of its own."""
        return self._world.now + self._offset

    def wall(self) -> int:
        """Return its wall clock time, in nanoseconds since 1970."""
        return int(self._world.wall(self.name) * 1e9)

    def note(self, kind: str, fields: dict[str, Any]) -> None:
        """Write a line of this node's audit file, which the world keeps."""
        self._world.audit.append((self.name, kind, fields))

    def reply(self, client: int, reply: Reply) -> None:
        """Answer a client, at the end of the turn."""
        self._replies.append((client, reply))

    def share(self, events: Sequence[Event], places: Mapping[int, Sequence[int]]) -> None:
        """Pass events to clients that gather, at the end of the turn."""
        for client, where in places.items():
            self.reply(client, Gathered(0, tuple([events[place] for place in where])))

    def trace(self, kind: str, fields: dict[str, Any]) -> None:
        """Write one trace record, and charge the work that it reports."""
        if self.processor is not None and kind in CHARGED:
            event = fields["event"]
            self._work += self.processor.cost(kind, fields, event == self._matched)
            if kind == "match":
                self._matched = event
        for name in ("tree", "permitted"):
            if callable(fields.get(name)):  # to be called when it is written
                fields[name] = fields[name]()
        self._world.recorder.write(self.disk.node, kind, fields)

    def trace_each(
        self, kind: str, name: str, values: Sequence[str], fields: dict[str, Any]
    ) -> None:
        """Write trace records that differ only in the field `name`, and charge each."""
        if self.processor is not None and kind in CHARGED:
            self._work += len(values) * self.processor.cost(kind, fields)
        self._world.recorder.write_each(self.disk.node, kind, name, values, fields)

    def trace_marks(self, incarnation: int, first: int, count: int) -> Sequence[bool] | None:
        """Return None: all events are traced."""
        return None

    def sampled(self, events: Sequence[Named]) -> Sequence[Named]:
        """Return all events: a simulated run is judged by its records."""
        return events

    def row_share(self, kind: str, count: int) -> float:
        """Return 1: all rows get records, since a simulated run is judged by them."""
        return 1.0

    def trace_unmatched(self, counts: Mapping[str, int], alone: int) -> None:
        """Count events that no node wanted, by tree; their work is charged as that of `match`
        records."""
        if self.processor is not None:
            self._work += self.processor.cost_unmatched(sum(counts.values()), alone)
        self._world.recorder.count_unmatched(self.disk.node, counts)

    def store(self, *records: bytes, replace: bool = False) -> None:
        """Store records that are durable at the end of the turn; the node's output from now on
        waits for them."""
        self.disk.store(*records, replace=replace)
        self._stored = True
        if self._held is None:
            self._held = []

    def store_later(self, *records: bytes, replace: bool = False) -> int:
        """Store records that become durable behind the turn, when the disk has synced; the process
        continues meanwhile. Returns a ticket."""
        self.disk.store(*records, replace=replace)
        self._ticket += 1
        if not self._stores_behind:
            self._stores_behind = True
            self._world.at(self._world.now + self.disk.sync_time(), self._stored_behind)
        return self._ticket

    def _stored_behind(self) -> None:
        self._stores_behind = False
        if not self.alive:
            return
        if self._doomed is not None:
            self._fall()
        elif self._sync():
            self._input("on_stored", self._ticket)

    def publish_address(self, name: str, addresses: tuple[str, ...]) -> None:
        """Store the addresses under this name in the simulated directory, in place of earlier
        ones."""
        self._world.directory_put(name, addresses)
