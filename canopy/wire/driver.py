"""The node's driver over trio: TCP, the one timer, and the steps at the end of a turn.

Every input of the node goes through `TrioDriver.turn`, in the one trio thread: the node's handlers
run to completion, queue their output, and flush. Then, in this order:

1. the node's stored records become durable, except those stored behind the turn
   (canopy/wire/state_file.py), of which it is told in a later turn,
2. the frames of the turn go to the peers, since other nodes wait for them,
3. replies and deliveries of the turn go to the control clients, coalesced: a process that a write
   wakes may take the processor,
4. the disk of its shards gets its operations, or carries them out at once: then the node's handling
   of the results is the next turn,
5. the timer is set again if the node's next deadline is earlier than it was,

so that no frame leaves before the records that it depends on are on disk. The methods that the node
calls only queue and return; none calls back.

An exception from a handler is a fault of this program: it ends the process with a traceback in the
log, except while it handles users' data (`contain` in overlay/incidents.py). A peer's behaviour
(closing, garbage, silence) affects only its own connection.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

import trio

from canopy.traces.writer import TraceWriter
from canopy.wire.addresses import is_loopback, split_address
from canopy.wire.admin.turn_times import TurnTimes
from canopy.wire.constants import (
    CONNECTIONS,
    GREETING_SIZE,
    KEY_CONNECTIONS,
    KEY_REASON,
    SHARED_CONNECTIONS,
    STRANGER_REASON,
    STRANGERS,
    TICK_LEAST,
)
from canopy.wire.durable import FolderError
from canopy.wire.folder import DataFolder
from canopy.wire.log import Log
from canopy.wire.shards.log_disk import FileLogDisk
from canopy.wire.state_file import StateCommits
from canopy.wire.transport.accept_limits import whose
from canopy.wire.transport.acceptor import accept_all
from canopy.wire.transport.connection import Connection
from canopy.wire.transport.framing import NODE_FRAMES
from canopy.wire.transport.local_users import LocalUsers
from canopy.wire.transport.outlet import Counters
from canopy.wire.transport.tls import Doorkeeper, TlsError, TlsPipe
from overlay.client import Event, Reply
from overlay.driver import DrivenNode
from overlay.links.hybrid_clock import HybridClock
from overlay.links.messages import Bye, Frame
from overlay.machine import LocalEvent, Named
from overlay.upper_tree.publisher.admission import EventSchemas
from streams.disk import NoLogDisk

# How another thread wakes a task of the node's: a pipe of which the task waits for the end.
#
# trio's own way for other threads (`TrioToken.run_sync_soon`) wakes a task of trio's, which calls
# something that wakes the task: two more rounds of its loop, some 50 µs of a busy node's time each.


class Bell:
    """Wakes one task from any thread. It must be closed."""

    def __init__(self) -> None:
        self._end, self._rope = os.pipe()
        os.set_blocking(self._end, False)
        os.set_blocking(self._rope, False)
        self._open = threading.Lock()
        self._is_open = True

    def ring(self) -> None:
        """Wake the task, now or when it waits next. Does nothing after `close`."""
        with self._open:  # else the descriptor may be another file's by now
            if self._is_open:
                with contextlib.suppress(BlockingIOError):  # it has been rung often enough
                    os.write(self._rope, b"\a")

    async def heard(self) -> None:
        """Wait until `ring` is called, unless it was called since the last return."""
        await trio.lowlevel.wait_readable(self._end)
        with contextlib.suppress(BlockingIOError):
            os.read(self._end, 4096)

    def close(self) -> None:
        """Close the bell. No task may be waiting."""
        with self._open:
            self._is_open = False
            os.close(self._end)
            os.close(self._rope)


CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A monotonic clock that continues while the machine is suspended. On Linux `time.monotonic` reads
another one, which stops then; macOS's continues (clock_gettime(2) and (3))."""


def monotonic() -> float:
    """Return monotonic seconds, including time in which the machine was suspended: the leases that
    a node holds expire meanwhile."""
    return time.clock_gettime(CLOCK)


def processor_time() -> float:
    """Return the processor time of this thread in seconds. (`time.thread_time` also asks for the
    clock's resolution, which takes half as long again.)"""
    return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)


def hybrid_clock() -> HybridClock:
    """Return a hybrid logical clock that begins at the present wall-clock time."""
    return HybridClock(monotonic, time.time())


class NodeOutputs(Protocol):
    """The receiver of a node's output other than messages to its peers: the process, which passes
    it to the control socket and the directory."""

    def reply(self, client: int, reply: Reply) -> None:
        """Queue a reply, deliveries or a notice for a client."""

    def share(self, events: Sequence[Event], places: Mapping[int, Sequence[int]]) -> None:
        """Queue for clients that gather, by number, the events at their places."""

    def announce(self, name: str, addresses: tuple[str, ...]) -> None:
        """Announce in the directory at which addresses `name` is reached."""

    def check_turn(self) -> None:
        """Handle that the records stored in this turn are durable. Raises FolderError if no output
        of this turn may leave nevertheless."""

    def end_turn(self) -> None:
        """Send the queued output."""

    def silence(self) -> None:
        """Send nothing more, even if it is queued: it may depend on records that could not be
        stored."""


class TrioDriver:
    """Implements `overlay.links.events.Transport` and `overlay.driver.Driver` over trio."""

    clock = staticmethod(monotonic)
    """The time in monotonic seconds."""

    def __init__(
        self,
        log: Log,
        folder: DataFolder | None = None,
        traces: TraceWriter | None = None,
        connect_timeout: float = 5.0,
        hybrid: HybridClock | None = None,
        shards: FileLogDisk | None = None,
        security: Doorkeeper | None = None,
        users: LocalUsers | None = None,
        schemas: EventSchemas | None = None,
    ) -> None:
        """`users`: the users of this machine whose programs are served; None: all."""
        self.counters = Counters()
        self.hybrid = hybrid or hybrid_clock()
        self.logs: FileLogDisk | NoLogDisk = shards or NoLogDisk()
        """The disk of the node's shards; without one its replicas never become ready."""
        self.schemas = schemas
        """The schemas that events of the node's programs must satisfy; None: any event is valid."""
        self._outputs: NodeOutputs
        self._log = log
        self._folder = folder
        self._traces = traces
        self._connect_timeout = connect_timeout
        self._security = security
        self._users = users
        self._strangers = 0  # who have dialled, and have not said anything yet
        self._unknown: OrderedDict[object, Callable[[], None]] = OrderedDict()
        """Connections that are not authenticated, oldest first, each with the function that closes
        it."""
        self._node: DrivenNode | None = None
        self._nursery: trio.Nursery | None = None
        self._connections: dict[int, Connection] = {}
        self._written: dict[int, Connection] = {}  # in this turn
        self._last_number = 0
        self._alarm = math.inf  # when the timer task wakes up, by this clock …
        self._sleep = trio.CancelScope()  # … whose sleep this ends, by trio's
        self._turns = 0
        self.turn_times = TurnTimes()
        """The durations of all turns, those before it listened included."""
        self.longest_turn = 0.0
        """The longest turn since the node listens, in seconds, disk included: the node did nothing
        else then."""
        self.longest_turn_cpu = 0.0
        """The most processor time of a turn since the node listens, in seconds, with the time since
        the turn before; less than the duration if the turn waited for the disk or other
        processes."""
        self._spent = 0.0  # processor time up to the end of the last turn

    # What the node calls: every method queues and returns.

    def dial(self, address: str) -> int:
        """Begin to connect to ``HOST:PORT``. Returns the connection's number; `on_opened` or
        `on_closed` is called later."""
        connection = self._connection(address)
        self._spawn(self._dial, connection)
        return connection.number

    def write(self, connection: int, frame: Frame) -> None:
        """Queue one frame, which leaves at the end of the turn."""
        found = self._connections.get(connection)
        if found is not None:  # else it ended, and `on_closed` is on its way
            found.write(frame)
            self._written[connection] = found

    def close(self, connection: int, reason: str) -> None:
        """Close when everything queued has left. No `on_closed` follows."""
        found = self._connections.get(connection)
        if found is not None:
            self._log.debug("close", address=found.address, reason=reason)
            found.close()

    @property
    def processors(self) -> int:
        """The number of the machine's processors that this process may use."""
        if hasattr(os, "sched_getaffinity"):  # not on macOS
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1

    def wall(self) -> int:
        """Return the time of the machine's wall clock, in nanoseconds since 1970."""
        return time.time_ns()

    def reply(self, client: int, reply: Reply) -> None:
        """Queue a reply, deliveries or a notice for a client."""
        self._outputs.reply(client, reply)

    def share(self, events: Sequence[Event], places: Mapping[int, Sequence[int]]) -> None:
        """Queue for clients that gather, by number, the events at their places."""
        self._outputs.share(events, places)

    def note(self, kind: str, fields: dict[str, Any]) -> None:
        """Write a line of the log, and of the audit file if the node has keys."""
        self._log.warning(kind.replace(" ", "_"), **fields)
        if self._security is not None:
            self._security.note(kind, **fields)

    def trace(self, kind: str, fields: dict[str, Any]) -> None:
        """Write one trace record. `since` (the publisher's wall clock, seconds) becomes
        `latency_ms`: a machine has no wall clock."""
        if self._traces is None:
            return
        _complete_latency(fields)
        self._traces.write(kind, fields)

    def trace_each(
        self, kind: str, name: str, values: Sequence[str], fields: dict[str, Any]
    ) -> None:
        """Write trace records that differ only in the field `name`."""
        if self._traces is not None:
            _complete_latency(fields)
            self._traces.write_each(kind, name, values, fields)

    def trace_marks(self, incarnation: int, first: int, count: int) -> Sequence[bool] | None:
        """Return for each event that this node publishes now whether it is traced; None: all
        are."""
        return None if self._traces is None else self._traces.trace_marks(incarnation, first, count)

    def sampled(self, events: Sequence[Named]) -> Sequence[Named]:
        """Return those of the events whose trace records are kept; none without traces."""
        return () if self._traces is None else self._traces.sampled(events)

    def row_share(self, kind: str, count: int) -> float:
        """Return the share of `count` rows of streams that get records of a kind; 0 without
        traces."""
        return 0.0 if self._traces is None else self._traces.row_share(kind, count)

    def trace_unmatched(self, counts: Mapping[str, int], alone: int) -> None:
        """Count events for which trees, by attribute, found no interested node."""
        if self._traces is not None:
            self._traces.count_unmatched(counts)

    def store(self, *records: bytes, replace: bool = False) -> None:
        """Append to the state file. The records are durable before the frames of this turn
        leave."""
        assert self._folder is not None, "this driver has no data folder"
        self._folder.state.store(*records, replace=replace)

    def store_later(self, *records: bytes, replace: bool = False) -> int:
        """Append to the state file behind the turn. Returns a ticket; the node's `on_stored` is
        called with that ticket or a later one when the records are durable."""
        assert self._folder is not None, "this driver has no data folder"
        return self._folder.state.store_later(*records, replace=replace)

    def publish_address(self, name: str, addresses: tuple[str, ...]) -> None:
        """Announce in the directory the addresses at which `name` is reached."""
        self._outputs.announce(name, addresses)

    # What reaches the node.

    @property
    def node(self) -> DrivenNode:
        """The node that this driver drives."""
        assert self._node is not None, "attach comes first"
        return self._node

    def attach(self, node: DrivenNode, outputs: NodeOutputs) -> None:
        """Drive `node`, and pass its output to `outputs`. Called once, before `run`."""
        assert self._node is None
        self._node = node
        self._outputs = outputs

    @property
    def connections(self) -> int:
        """The number of connections that exist or are being dialled."""
        return len(self._connections)

    def turn(self, handler: Callable[..., None], *arguments: Any) -> None:
        """Give the node one input by calling `handler`, then do the steps at the end of a turn."""
        self._turns += 1
        began = self.clock()
        handler(*arguments)
        try:
            if self._folder is not None:
                self._folder.state.sync()
            self._outputs.check_turn()
        except FolderError:
            self._silence()
            raise
        if self._written:
            for connection in self._written.values():
                connection.send_now()
            self._written.clear()
        self._outputs.end_turn()
        written: Sequence[LocalEvent] = ()
        if isinstance(self.logs, FileLogDisk):
            written = self.logs.hand_over(self.turn_times.idle)
        now = self.clock()
        took = now - began
        self.turn_times.observe(took)
        self.longest_turn = max(self.longest_turn, took)
        spent = processor_time()  # read once for each turn: it is a call of the system
        self.longest_turn_cpu = max(self.longest_turn_cpu, min(took, spent - self._spent))
        self._spent = spent
        self.turn_times.measure(now, spent)
        deadline = self.node.deadline()
        if deadline is not None and deadline < self._alarm:
            self._alarm = deadline
            if deadline <= now:
                self._sleep.cancel()
            else:  # without waking the timer's task, which takes a round of trio's loop
                self._sleep.deadline = trio.current_time() + max(deadline - now, TICK_LEAST)
        if written:
            self.turn(self.node.on_disk, written)

    def _silence(self) -> None:
        """Stop all writing at once, so that no output of a turn that is not durable leaves before
        the tasks have ended."""
        self._outputs.silence()
        for connection in self._connections.values():
            connection.silence()

    async def run(
        self,
        listeners: Sequence[trio.SocketListener],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Start the node, accept connections and tick until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self.turn(self.node.start)
            self.longest_turn = self.longest_turn_cpu = 0.0  # nobody has waited: it did not listen
            task_status.started()
            nursery.start_soon(self._tick)
            if self._folder is not None:
                state = self._folder.state
                nursery.start_soon(self._hear, state.on_durable, partial(self._stored, state))
            if isinstance(self.logs, FileLogDisk):
                answers = partial(self._disk_answered, self.logs)
                nursery.start_soon(self._hear, self.logs.on_answers, answers)
            for listener in listeners:
                nursery.start_soon(accept_all, listener, self._admits, self._accept, nursery)

    async def _hear(
        self, listen: Callable[[Callable[[], None]], None], handle: Callable[[], None]
    ) -> None:
        """Call `handle` whenever another thread rings, by the function that `listen` gets."""
        with contextlib.closing(Bell()) as bell:
            listen(bell.ring)
            bell.ring()  # for what happened before
            while True:
                await bell.heard()
                handle()

    def _stored(self, state: StateCommits) -> None:
        """Tell the node which records have become durable behind its turns."""
        try:
            ticket = state.take()
        except FolderError:
            self._silence()
            raise
        if ticket:
            self.turn(self.node.on_stored, ticket)

    def _disk_answered(self, shards: FileLogDisk) -> None:
        """Pass the results of its shards' disk to the node, all that are there in one turn."""
        if events := shards.take():
            self.turn(self.node.on_disk, events)

    def recheck(self) -> None:
        """Check the node at the other end of each connection again, whose certificate may have
        expired or been revoked. Connections to nodes that are no longer trusted are closed."""
        for connection in list(self._connections.values()):
            tls = connection.tls
            if self._security is None or tls is None or not tls.chain:
                continue
            try:
                self._security.identify(tls.chain)
            except TlsError as error:
                self._log.warning("cut_off", address=connection.address, reason=error)
                connection.cut_off(str(error))

    async def settle(self) -> None:
        """Wait until the node has closed its connections and the written bytes have left."""
        while self._connections:
            await trio.sleep(0.01)

    def _spawn(self, job: Callable[[Connection], Any], connection: Connection) -> None:
        assert self._nursery is not None, "a node may dial only after start"
        self._nursery.start_soon(job, connection)

    def _connection(self, address: str, is_server: bool = False) -> Connection:
        self._last_number += 1
        tls = None if self._security is None else TlsPipe(self._security, is_server)
        connection = Connection(
            self._last_number, address, self.counters, self._on_frames, self._on_garbage, tls
        )
        self._connections[connection.number] = connection
        return connection

    def _on_frames(self, connection: int, frames: list[Frame]) -> None:
        self.turn(self.node.on_frames, connection, frames)

    def _on_garbage(self, connection: int, reason: str) -> None:
        self._log.seldom("garbage", connection=connection, reason=reason)
        self.turn(self.node.on_garbage, connection, reason)

    async def _dial(self, connection: Connection) -> None:
        async def connect() -> trio.SocketStream:
            if len(self._connections) > CONNECTIONS:
                raise OSError(0, "this node has too many connections")
            host, port = split_address(connection.address)
            with trio.move_on_after(self._connect_timeout):
                stream = await trio.open_tcp_stream(host, port)
                if reason := self._user_refusal(stream, connection.address, is_server=False):
                    await trio.aclose_forcefully(stream)
                    raise OSError(0, reason)
                return stream
            raise OSError(0, f"no answer within {self._connect_timeout:g} s")

        opened = partial(self._opened, connection, self.node.on_opened)
        self._ended(connection, await connection.run(connect, opened, self._connect_timeout))

    def _opened(self, connection: Connection, handler: Callable[..., None], number: int) -> None:
        principal = connection.principal
        self.turn(handler, number, *(() if principal is None else (principal,)))

    def _admits(self, host: str) -> bool:
        """Return whether one more connection from `host` is accepted; `_accept` must follow
        then."""
        if self._security is None or self._security.limits(host).admits(host, self.clock()):
            return True
        self.counters.accepts_refused += 1
        return False

    async def _accept(self, stream: trio.SocketStream, host: str, port: int) -> None:
        security, waits, place = self._security, True, object()

        def authenticated() -> None:
            nonlocal waits
            if waits and security is not None:
                waits = False
                self._unknown.pop(place, None)
                security.limits(host).done(host)

        try:
            if len(self._connections) + self._strangers >= CONNECTIONS:
                self._log.seldom("refused", address=f"{host}:{port}", reason="too many connections")
            elif security is None:
                if reason := self._user_refusal(stream, f"{host}:{port}", is_server=True):
                    with (
                        trio.move_on_after(self._connect_timeout),
                        suppress(trio.BrokenResourceError),
                    ):
                        await stream.send_all(NODE_FRAMES.encode(Bye(reason)))
                else:
                    await self._serve(stream, f"{host}:{port}", b"")
            else:
                await self._greet(stream, f"{host}:{port}", security, authenticated, place)
        finally:
            authenticated()

    def _user_refusal(self, stream: trio.SocketStream, address: str, is_server: bool) -> str:
        """Return why the program at the other end, whose user is not this process's, is not served;
        "" if it is."""
        try:
            reason = self._users.refusal(stream.socket, is_server) if self._users else ""
        except OSError as error:
            reason = f"gone: {error}"
        if reason:
            self.counters.users_refused += 1
            self._log.seldom("user_refused", address=address, reason=reason)
        return reason

    async def _greet(
        self,
        stream: trio.SocketStream,
        address: str,
        security: Doorkeeper,
        authenticated: Callable[[], None],
        place: object,
    ) -> None:
        """Authenticate a new connection. `place` is its key in `_unknown`."""
        first = b""
        with trio.CancelScope() as scope:
            self._unknown[place] = scope.cancel
            if len(self._unknown) > STRANGERS:
                _, end_oldest = self._unknown.popitem(last=False)
                end_oldest()
            self._strangers += 1
            try:
                with trio.move_on_after(self._connect_timeout), suppress(trio.BrokenResourceError):
                    said = await stream.receive_some(GREETING_SIZE)
                    await security.turn(address.rpartition(":")[0])
                    first = said
            finally:
                self._strangers -= 1
            if first and security.is_join(first):
                await security.serve_join(stream, first)
                return
        if not first:
            self.counters.tls_refused += 1
        elif place in self._unknown:  # else it was ended in the moment in which it said something
            await self._serve(stream, address, first, authenticated, place)

    async def _serve(
        self,
        stream: trio.SocketStream,
        address: str,
        first: bytes,
        authenticated: Callable[[], None] = lambda: None,
        place: object = None,
    ) -> None:
        async def connect() -> trio.SocketStream:
            return stream

        def accepted(number: int) -> None:
            authenticated()
            self._bound_key(connection)
            self._bound_shared(connection, address.rpartition(":")[0])
            self._opened(connection, self.node.on_accepted, number)

        connection = self._connection(address, is_server=True)
        connection.first, connection.is_server = first, True
        if place is not None:
            self._unknown[place] = partial(connection.cut_off, STRANGER_REASON)
        self._ended(connection, await connection.run(connect, accepted, self._connect_timeout))

    def _bound_key(self, new: Connection) -> None:
        """Bound the connections of one key. A node dials once, but earlier connections may not be
        known to be broken yet. If there are more than `KEY_CONNECTIONS`, the oldest are closed, so
        that an honest node can connect."""
        if new.principal is None:
            return
        same = [
            one
            for one in self._connections.values()
            if one.is_server and one.was_open and one.principal is not None
            if one.principal.id == new.principal.id
        ]
        for former in same[: max(0, len(same) - KEY_CONNECTIONS)]:
            self.counters.key_refused += 1
            self._log.seldom("cut_off", address=former.address, reason=KEY_REASON)
            former.cut_off(KEY_REASON)

    def _bound_shared(self, new: Connection, host: str) -> None:
        """Bound the connections that share an address or a tenant: beyond `SHARED_CONNECTIONS` one
        of the others is closed, whatever keys they have."""
        if new.principal is None:
            return
        whose_host, tenant = whose(host), new.principal.tenant
        of_host = of_tenant = 0
        for one in self._connections.values():
            if one.is_server and one.was_open and one.principal is not None:
                of_host += whose(one.address.rpartition(":")[0]) == whose_host
                of_tenant += one.principal.tenant == tenant
        reason = ""
        if of_host > SHARED_CONNECTIONS and not is_loopback(host):
            reason = f"more than {SHARED_CONNECTIONS} connections of one address"
        elif tenant and of_tenant > SHARED_CONNECTIONS:
            reason = f"more than {SHARED_CONNECTIONS} connections of the tenant {tenant}"
        if reason:
            self.counters.shared_refused += 1
            self._log.seldom("cut_off", address=new.address, reason=reason)
            new.cut_off(reason)

    def _ended(self, connection: Connection, reason: str | None) -> None:
        del self._connections[connection.number]
        if reason is None:
            return
        if connection.is_server and connection.tls is not None and not connection.was_open:
            self._log.seldom("not_let_in", address=connection.address, reason=reason)
        self._log.debug("closed", address=connection.address, reason=reason)
        if connection.was_open or not connection.is_server:  # else the node has not heard of it
            self.turn(self.node.on_closed, connection.number, reason)

    async def _tick(self) -> None:
        last = 0  # number of the turn of the last tick
        while True:
            deadline, now = self.node.deadline(), self.clock()
            if deadline is None or deadline > now:
                self._alarm = math.inf if deadline is None else deadline
                with trio.move_on_after(max(self._alarm - now, TICK_LEAST)) as self._sleep:
                    await trio.sleep_forever()
                continue
            self._alarm = -math.inf  # awake: no wake-up needed
            is_alone = self._turns == last
            self.turn(self.node.on_tick)
            last = self._turns
            deadline = self.node.deadline()
            if deadline is not None and deadline <= self.clock():
                rest = TICK_LEAST - (self.clock() - now)
                await trio.sleep(rest if is_alone and rest > 0 else 0)


def _complete_latency(fields: dict[str, Any]) -> None:
    if "since" in fields:
        fields["latency_ms"] = (time.time() - fields.pop("since")) * 1000
