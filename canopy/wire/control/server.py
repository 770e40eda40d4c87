"""The control socket: how programs on this machine use the node (docs/reference/wire.md).

A Unix socket, mode 0600, on which commands come in and replies go out as framed MessagePack. Each
connection is a client with a number; what it subscribed ends with it, unless it has a session.

- **Turns.** Publications that were read together are one turn of the node, and so one batch. So are
  subscriptions and their ends, up to `REGISTERED_TOGETHER`: they are planned, registered and stored
  together. Whatever else is asked has a turn of its own. Nothing waits for more to come. A long
  selector is compiled before its turn, in steps between which others have theirs.
- **Back-pressure.** The reply to a `Publish` comes when the node has admitted the events. While
  `CLIENT_PUBLISHES` publications, or any with `CLIENT_EVENTS` events in all, or `CLIENT_REQUESTS`
  requests of any kind are unanswered, no more is read from that client, so a program that publishes
  faster than the overlay admits is slowed down by its own socket.
- **Deliveries** of one turn are sent together. A client that has asked with `Gather` gets an event
  once, however many of its subscriptions it matches. Events for such clients come as a batch that
  they share: each is encoded once, a client gets a frame of those that it wants, and all who want
  the whole batch get the very same one.
- **Slow clients.** Deliveries leave within the credit that the client grants (`Grant`) as its
  program consumes them. What is beyond waits in a bounded queue, then it is dropped, counted and
  traced, and the client is notified in its place (`Dropped`; canopy/wire/control/credit_window.py).
  Replies need no credit: requests are bounded, and a program that consumes nothing can still ask
  and unsubscribe. (A reply overtakes what waits: after that to `Unsubscribe` deliveries may still
  come.)
- **Sessions** (M5). A client that has asked with `OpenSession` is *parked* when its connection is
  lost without a goodbye: it keeps its number and its subscriptions, and what comes waits in its
  queue (canopy/wire/control/parked_sessions.py). A connection that begins with `ResumeSession`
  becomes that client: what its program has not consumed is sent again from where it says
  (canopy/wire/control/replay_buffer.py), then what has waited. The last connection to ask has it.
- Garbage ends that client's connection, and its session, and nothing else.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import trio

from canopy.wire.constants import (
    BACKLOG,
    CLIENT_FRAME,
    CLIENTS,
    CONTROL_READ_SIZE,
    LONG_SELECTOR,
    PARKED,
    REGISTERED_TOGETHER,
    RESUME,
    SESSION_BYTES,
    TURNS_TOGETHER,
)
from canopy.wire.control.client_connection import ClientConnection, process_of
from canopy.wire.control.credit_window import QUEUE, DroppedRun, QueuedNotice
from canopy.wire.control.parked_sessions import ParkedSessions
from canopy.wire.durable import FolderError, refused
from canopy.wire.log import Log
from canopy.wire.transport.codec import array_header
from canopy.wire.transport.framing import COMMAND_FRAMES, REPLY_FRAMES, FrameReader
from canopy.wire.transport.inlet import Inlet
from canopy.wire.transport.outlet import Counters, Outlet
from matching import SelectorError, compile_in_steps
from overlay.client import (
    FULL,
    CloseSession,
    Command,
    Delivered,
    Delivery,
    Draft,
    Dropped,
    Event,
    Failed,
    Gathered,
    Grant,
    OpenSession,
    Publish,
    Reply,
    ResumeSession,
    SessionOpened,
    SessionResumed,
    Subscribe,
    Unsubscribe,
)
from overlay.info import ClientInfo

NO_REQUEST: Final = 0  # the request number of what was not asked for: deliveries and notices

DELIVERED, GATHERED = range(2)  # kinds of deliveries

REGISTERING: Final = (Subscribe, Unsubscribe)  # commands that are carried out together


class Commands(Protocol):
    """Carries out commands: the process, which hands most of them to the node."""

    def commands(self, client: int, commands: Sequence[Command]) -> None:
        """Carry out one command, or several publications, in one turn."""

    def client_gone(self, client: int, unread_for: float = 0.0) -> None:
        """End what the client had subscribed: its connection has ended, or, so many seconds later,
        its session."""


class ControlServer:
    """Serves the control socket: commands in, replies and deliveries out.

    The process calls `reply`, `share` and `flush` for what the node says. `dropped` counts the
    deliveries that slow clients did not get, `refused` the programs for which there was no room,
    `sessions_resumed` the programs that came back, `sessions_ended` those that did not.
    Times are filled in here, by the wall clock `wall`: `Draft.time` where a program left it 0, and
    `Delivery.latency_ms`.
    """

    def __init__(
        self,
        trace: Callable[[str, dict[str, Any]], None],
        commands: Commands,
        log: Log,
        wall: Callable[[], float] = time.time,
        queue: int = QUEUE,
        programs: int = CLIENTS,
        resume: float = RESUME,
        parked: int = PARKED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`trace` writes a trace record of a kind with its fields; `queue`: bytes of deliveries
        that may wait for each client's credit; `programs`: clients that may be connected; `resume`:
        seconds for which a session without a connection is kept, and `parked` how many are; `clock`
        is monotonic seconds."""
        self.dropped = 0
        self.refused = 0
        self.sessions_resumed = 0
        self.sessions_ended = 0
        self._trace = trace
        self._commands = commands
        self._log = log
        self._wall = wall
        self._queue = queue
        self._programs = programs
        self._clock = clock
        self._parked = ParkedSessions(resume, parked)
        self._parked_changed = trio.Event()
        self._clients: dict[int, ClientConnection] = {}
        self._last_number = 0
        self._encode = msgspec.msgpack.Encoder().encode
        self._counters = Counters()
        self._touched: dict[
            int, ClientConnection
        ] = {}  # clients for whom something was queued in this turn
        # DELIVERED, GATHERED, without the empty array at their ends:
        self._heads = [self._encode(kind(NO_REQUEST, ()))[:-1] for kind in (Delivered, Gathered)]

    async def serve(
        self, path: Path, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen at `path` until cancelled. FolderError if the socket cannot be made."""
        sock = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
        with sock:
            before = os.umask(0o177)  # the socket is private from its first moment
            try:
                await sock.bind(str(path))
            except OSError as error:
                raise FolderError(f"cannot make the socket {path}: {refused(error)}") from None
            finally:
                os.umask(before)
            sock.listen(BACKLOG)
            listener = trio.SocketListener(sock)
            task_status.started()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_parked)
                await trio.serve_listeners(self._serve_client, [listener])

    def silence(self) -> None:
        """Write nothing more to any client."""
        for client in self._clients.values():
            client.outlet.close()

    async def settle(self) -> None:
        """Wait until everything that is queued for clients was written."""
        while any(c.parked_at is None and (c.outlet or c.window) for c in self._clients.values()):
            await trio.sleep(0.01)

    @property
    def connected(self) -> int:
        """How many programs are connected."""
        return len(self._clients) - len(self._parked)

    @property
    def clients(self) -> tuple[ClientInfo, ...]:
        """The connected programs and parked sessions, with what is under way and waits for each."""
        now = self._clock()
        return tuple([client.info(now) for client in self._clients.values()])

    # From the node (through the driver).

    def reply(self, client: int, reply: Reply) -> None:
        """Queue a reply, deliveries or a notice; nothing for a client that is gone."""
        found = self._clients.get(client)
        if found is None:
            return
        if isinstance(reply, Delivered):
            self._deliver(found, reply.deliveries)
            return
        if isinstance(reply, SessionResumed):
            reply = msgspec.structs.replace(reply, after=found.resumed_after)
        try:
            frame = REPLY_FRAMES.encode(reply)
        except (ValueError, OverflowError) as error:
            frame = REPLY_FRAMES.encode(Failed(reply.request, "refused", str(error)))
        if reply.request == NO_REQUEST and isinstance(reply, Failed):  # of a gap: it has a place
            self._notify(found, frame)
        elif found.wants(reply.request):
            self._put(found, frame)
            found.answered(reply.request)
        if isinstance(reply, SessionResumed):
            found.send_again()

    def _notify(self, client: ClientConnection, frame: bytes) -> None:
        """Send a notice in its place among the deliveries."""
        self._pack(client)
        if not client.window.enqueue_notice(frame):
            client.notify(frame)
            self._touched[client.number] = client
        if client.is_overfull:
            self._parked_changed.set()

    def share(self, events: Sequence[Event], places: Mapping[int, Sequence[int]]) -> None:
        """Queue for each client, by number, the events at its places."""
        encoded = list(map(self._encode, events))
        whole: list[tuple[bytes, int]] = []  # the frames for clients that want all
        for number, where in places.items():
            client = self._clients.get(number)
            if client is None:
                continue
            self._touched[number] = client
            mine = encoded
            if len(where) == len(encoded):
                frames = whole = whole or self._frames(GATHERED, encoded)
            else:
                mine = list(map(encoded.__getitem__, where))
                frames = self._frames(GATHERED, mine)
            if client.window.fits(client.packing + sum(len(frame) for frame, _ in frames)):
                self._send(client, frames)
            else:
                self._enqueue(client, GATHERED, mine, [events[place] for place in where])

    def flush(self) -> None:
        """Write what was queued in this turn, the deliveries of each client together."""
        if not self._touched:
            return
        for client in self._touched.values():
            self._pack(client)
            if client.window:
                self._release(client)
            client.outlet.send_now()
        self._touched.clear()

    def _put(self, client: ClientConnection, frame: bytes) -> None:
        client.outlet.put(frame)
        self._touched[client.number] = client

    def _deliver(self, client: ClientConnection, deliveries: tuple[Delivery, ...]) -> None:
        now = self._wall()
        self._touched[client.number] = client
        encoded = [
            self._encode(msgspec.structs.replace(one, latency_ms=(now - one.event.time) * 1000))
            for one in deliveries
        ]
        size = sum(map(len, encoded))
        if client.window.fits(client.packing + size):
            client.fresh += encoded
            client.packing += size
        else:
            self._enqueue(
                *(client, DELIVERED, encoded, [one.event for one in deliveries]),
                [one.subscription for one in deliveries],
            )

    def _enqueue(
        self,
        client: ClientConnection,
        kind: int,
        encoded: Sequence[bytes],
        events: Sequence[Event],
        subscriptions: Sequence[str] = (),
    ) -> None:
        """Queue deliveries behind those that wait for credit; drop what has no room.
        `subscriptions`: of each the one that it is for, unless it is for all of the client's."""
        self._pack(client)
        window = client.window
        for place, (piece, event) in enumerate(zip(encoded, events, strict=True)):
            size = len(piece)
            if not window.has_room(size) and not window.is_dropping:
                self._release(client)  # a turn with more than the queue: as far as the credit goes
            if window.has_room(size):
                window.enqueue(kind, piece)
            else:
                self._drop(client, event, subscriptions[place] if subscriptions else None)

    def _drop(self, client: ClientConnection, event: Event, subscription: str | None) -> None:
        if client.window.drop(event):
            waiting = client.window.waiting_bytes
            self._log.warning("slow_client", client=client.number, pid=client.pid, waiting=waiting)
        self.dropped += 1
        fields: dict[str, Any] = {"event": event.identity, "client": client.number}
        if subscription is not None:
            fields["subscription"] = subscription
        self._trace("drop", {**fields, "reason": "slow client", "size": 1})

    def _release(self, client: ClientConnection) -> None:
        """Send as much of the queue as the credit allows."""
        while (found := client.window.next_run()) is not None:
            if isinstance(found, DroppedRun):
                client.notify(REPLY_FRAMES.encode(dropped(found)))
            elif isinstance(found, QueuedNotice):
                client.notify(found.frame)
            else:
                self._send(client, self._frames(found.kind, found.encoded))

    def _pack(self, client: ClientConnection) -> None:
        """Send the deliveries of this turn for single subscriptions, which fit the credit."""
        if client.fresh:
            self._send(client, self._frames(DELIVERED, client.fresh))
            client.fresh.clear()
            client.packing = 0

    def _send(self, client: ClientConnection, frames: Sequence[tuple[bytes, int]]) -> None:
        for frame, items in frames:
            client.send(frame, items)

    def _frames(self, kind: int, encoded: Sequence[bytes]) -> list[tuple[bytes, int]]:
        """Encoded events or deliveries in as few frames as their sizes allow; with each how many it
        has."""
        size = sum(map(len, encoded))
        if size <= CLIENT_FRAME:
            return [(self._frame(kind, encoded, size), len(encoded))]
        ends = list(accumulate(map(len, encoded)))
        frames, start, done = [], 0, 0
        while start < len(encoded):
            end = min(bisect_left(ends, done + CLIENT_FRAME) + 1, len(encoded))
            frame = self._frame(kind, encoded[start:end], ends[end - 1] - done)
            frames.append((frame, end - start))
            start, done = end, ends[end - 1]
        return frames

    def _frame(self, kind: int, encoded: Sequence[bytes], size: int) -> bytes:
        """One frame of encoded deliveries, which have `size` bytes in all."""
        head = self._heads[kind] + array_header(len(encoded))
        return REPLY_FRAMES.join([head, *encoded], len(head) + size)

    # From the clients.

    async def _serve_client(self, stream: trio.SocketStream) -> None:
        if self.connected >= self._programs:
            await self._refuse(stream)
            return
        self._last_number += 1
        pid = process_of(stream)
        client = ClientConnection(self._last_number, self._counters, self._queue, pid)
        self._clients[client.number] = client
        client.outlet.open(stream)
        self._log.debug("client", client=client.number)
        try:
            async with trio.open_nursery() as nursery:
                client.scope = nursery.cancel_scope
                nursery.start_soon(self._write, client, nursery.cancel_scope)
                nursery.start_soon(self._read, client, stream, nursery.cancel_scope)
        except BaseException:
            client.close_session()  # the node stops
            raise
        finally:
            client.outlet.close()
            is_parked = self._connection_lost(client)
            await trio.aclose_forcefully(stream)
        if not is_parked:
            self._commands.client_gone(client.number)

    def _connection_lost(self, client: ClientConnection) -> bool:
        """A client has no connection any more: keep its session, if it has one. Returns whether its
        subscriptions go on."""
        if self._clients.get(client.number) is not client:
            return True  # another connection has its session
        self._touched.pop(client.number, None)
        if not client.session:
            del self._clients[client.number]
            return False
        self._log.debug("parked", client=client.number, pid=client.pid)
        self._parked.park(client, self._clock())
        self._parked_changed.set()
        return True

    async def _end_parked(self) -> None:
        """End the sessions that were parked for too long, or are too many."""
        while True:
            due = self._parked.next_due()
            left = math.inf if due is None else max(0.0, due - self._clock())
            with trio.move_on_after(left):
                await self._parked_changed.wait()
            self._parked_changed = trio.Event()
            for client in self._parked.take_due(self._clock()):
                self._end_session(client)

    def _end_session(self, client: ClientConnection) -> None:
        assert client.parked_at is not None
        del self._clients[client.number]
        self._touched.pop(client.number, None)
        unread_for = self._clock() - client.parked_at
        self.sessions_ended += 1
        self._log.info("session_ended", client=client.number, pid=client.pid, after=unread_for)
        self._commands.client_gone(client.number, unread_for)

    async def _refuse(self, stream: trio.SocketStream) -> None:
        """Say why the program may not stay, as far as its empty socket takes it, and close."""
        self.refused += 1
        reason = (
            f"too many programs ({self._programs}) are connected; close one, or raise "
            f"clients.programs in the node's configuration"
        )
        self._log.warning("refused_client", pid=process_of(stream), reason=reason)
        outlet = Outlet(self._counters)
        outlet.open(stream)
        outlet.put(REPLY_FRAMES.encode(Failed(NO_REQUEST, FULL, reason)))
        outlet.send_now()
        await trio.aclose_forcefully(stream)

    async def _read(
        self, client: ClientConnection, stream: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        reader = FrameReader(COMMAND_FRAMES)
        inlet = Inlet(stream)
        turns = 0
        while reader.error is None:
            try:
                data = await inlet.read(CONTROL_READ_SIZE)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                break
            if not data:
                break
            together: list[Command] = []
            for command in reader.feed(data):
                if isinstance(command, Grant):
                    self._grant(client, command)
                    continue
                if isinstance(command, CloseSession):
                    client.close_session()
                    continue
                if together and (client.is_full or not fits(command, together)):
                    self._commands.commands(client.number, together)
                    turns += not isinstance(together[0], Publish) and len(together)
                    together = []
                    if turns >= TURNS_TOGETHER:
                        turns = 0
                        await trio.lowlevel.checkpoint()  # the node's other inputs
                while client.is_full:
                    await client.room.park()
                taken = self._take(client, command)
                if isinstance(taken, OpenSession):
                    self._open_session(client, taken)
                elif isinstance(taken, ResumeSession):
                    self._resume(client, taken)
                elif taken is not None:
                    if isinstance(taken, Subscribe) and has_long_selector(taken):
                        await compile_long(taken.selector)
                    together.append(taken)
            if together:
                self._commands.commands(client.number, together)
            self.flush()  # what was answered outside of a turn
        if reader.error is not None:
            self._log.warning("bad_client", client=client.number, reason=reader.error)
            client.close_session()
            self._put(client, REPLY_FRAMES.encode(Failed(NO_REQUEST, "usage", reader.error)))
            self.flush()
            with trio.move_on_after(1.0):  # a moment for the writer to send it
                while client.outlet:
                    await trio.sleep(0.01)
        scope.cancel()

    def _take(self, client: ClientConnection, command: Command) -> Command | None:
        """Note the request and stamp its events; None where its number is in use (the client
        gets a `Failed`)."""
        if command.request in client.unanswered:
            reason = f"request {command.request} is not answered yet: number requests differently"
            self._put(client, REPLY_FRAMES.encode(Failed(command.request, "usage", reason)))
            return None
        client.asked(command)
        return stamp(command, self._wall()) if isinstance(command, Publish) else command

    def _grant(self, client: ClientConnection, grant: Grant) -> None:
        """Take the client's grant; more may leave at the end of the turn."""
        try:
            client.grant(grant.consumed, grant.credit)
        except ValueError as error:
            client.notify(REPLY_FRAMES.encode(Failed(NO_REQUEST, "usage", str(error))))
            self._touched[client.number] = client
        else:
            self._touched[client.number] = client

    def _open_session(self, client: ClientConnection, command: OpenSession) -> None:
        """From now on the client is parked when its connection is lost."""
        if client.session:
            reason = "this client has a session already"
            self.reply(client.number, Failed(command.request, "usage", reason))
            return
        self._pack(client)
        if not self._parked.is_enabled:
            self.reply(client.number, SessionOpened(command.request, "", 0.0))
            return
        token = secrets.token_hex(SESSION_BYTES)
        self.reply(client.number, SessionOpened(command.request, token, self._parked.kept_for))
        client.open_session(token)

    def _resume(self, client: ClientConnection, command: ResumeSession) -> None:
        """This connection becomes the client that has the session."""
        found = self._find_session(command.session)
        if found is None or not client.is_new:
            code, reason = "unknown", "no session with this name is kept here"
            if found is not None:
                code, reason = "usage", "a session is resumed by the first command of a connection"
            self.reply(client.number, Failed(command.request, code, reason))
            return
        number = client.number
        try:
            client.adopt(found, command.received)
        except ValueError as error:
            self.reply(number, Failed(command.request, "usage", str(error)))
            return
        if found.parked_at is None:  # its end was not noticed yet
            found.scope.cancel()
        self._parked.remove(found)
        del self._clients[number]
        self._touched.pop(number, None)
        self._clients[client.number] = client
        self.sessions_resumed += 1
        self._log.debug("resumed", client=client.number, pid=client.pid)
        self._commands.commands(client.number, [command])

    def _find_session(self, token: str) -> ClientConnection | None:
        """The client with this session."""
        for each in self._clients.values():
            if each.session and secrets.compare_digest(each.session.encode(), token.encode()):
                return each
        return None

    async def _write(self, client: ClientConnection, scope: trio.CancelScope) -> None:
        while True:
            if not client.outlet:
                await client.outlet.idle()
                continue
            try:
                await client.outlet.drain()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                break
        scope.cancel()


def fits(command: Command, together: Sequence[Command]) -> bool:
    """Whether a command is carried out in one turn with those before it."""
    if isinstance(command, Publish):
        return isinstance(together[0], Publish)
    is_alike = isinstance(command, REGISTERING) and isinstance(together[0], REGISTERING)
    is_long = has_long_selector(command) or has_long_selector(together[0])
    return is_alike and not is_long and len(together) < REGISTERED_TOGETHER


def has_long_selector(command: Command) -> bool:
    """Whether a command has a selector that takes a turn of its own."""
    return isinstance(command, Subscribe) and len(command.selector) > LONG_SELECTOR


async def compile_long(selector: str) -> None:
    """Compile a long selector before the node asks for it, with its other inputs in between. One
    that does not compile is the node's to refuse."""
    with contextlib.suppress(SelectorError):
        for _ in compile_in_steps(selector):
            await trio.lowlevel.checkpoint()


def dropped(run: DroppedRun) -> Dropped:
    """The notice to a program of deliveries in a row that were dropped for want of credit (code
    "overflow")."""
    reason = (
        f"{run.count} deliveries were dropped, since this program consumes them too slowly: "
        f"events {run.first} to {run.last}, "
        f"published within {max(0.0, run.until - run.since):.1f} s"
    )
    where = (run.first, run.last, run.since, run.until)
    return Dropped(NO_REQUEST, "overflow", reason, run.count, *where)


def stamp(publish: Publish, now: float) -> Publish:
    """`publish` with the time of its arrival in every draft that has none."""
    if 0.0 not in [draft.time for draft in publish.events]:
        return publish
    drafts = tuple(
        draft if draft.time else Draft(draft.attributes, draft.payload, draft.payload_type, now)
        for draft in publish.events
    )
    return Publish(publish.request, drafts, publish.receipt)
