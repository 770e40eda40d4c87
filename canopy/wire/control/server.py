"""The control socket: how programs on this machine use the node (docs/reference/wire.md).

A Unix socket, mode 0600, for framed MessagePack: commands in, replies out. Each connection is a
client with a number; its subscriptions end with it, unless it has a session. client_output.py
writes the output.

- **Turns.** Publications that were read together are one turn of the node, and so one batch. So are
  subscriptions and unsubscriptions, up to `REGISTERED_TOGETHER`: they are planned, registered and
  stored together. Every other command has a turn of its own. Nothing waits for more to arrive. A
  long selector is compiled before its turn, in steps with other turns in between.
- **Back-pressure.** The reply to a `Publish` is sent when the node has admitted the events. While
  `CLIENT_PUBLISHES` publications, or publications with `CLIENT_EVENTS` events in total, or
  `CLIENT_REQUESTS` requests of any kind are unanswered, the node does not read from that client, so
  a program that publishes faster than the overlay admits is slowed down by its own socket.
- **Sessions** (M5). A client with a session (`OpenSession`) is *parked* when its connection is lost
  without a goodbye: it keeps its number and its subscriptions, and its deliveries wait in its
  queue. A connection that begins with `ResumeSession` becomes that client: unconsumed items are
  sent again after the last one that the program has received
  (canopy/wire/control/client_connection.py), then the waiting ones. The last connection to ask gets
  the session.
- Malformed input ends that client's connection and its session, and nothing else.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import trio

from canopy.wire.config import ClientConfig
from canopy.wire.constants import (
    BACKLOG,
    LONG_SELECTOR,
    READ_SIZE,
    RECHECK,
    REGISTERED_TOGETHER,
    SESSION_BYTES,
    TURNS_TOGETHER,
)
from canopy.wire.control.client_connection import ClientConnection, is_own_user, process_of
from canopy.wire.control.client_output import NO_REQUEST, ClientOutput
from canopy.wire.control.remote import AdmittedProgram, RemoteDoor
from canopy.wire.control.scopes import SCOPE_OF, confined, refusal
from canopy.wire.durable import FolderError, refused
from canopy.wire.log import Log
from canopy.wire.transport.acceptor import accept_all
from canopy.wire.transport.framing import COMMAND_FRAMES, REPLY_FRAMES, FrameReader
from canopy.wire.transport.inlet import Inlet
from canopy.wire.transport.outlet import Counters, Encrypt, Outlet
from canopy.wire.transport.tls import SecureInlet
from matching import SelectorError, compile_in_steps
from overlay.client import (
    DENIED,
    FULL,
    AppendEvents,
    CloseSession,
    Command,
    Draft,
    Failed,
    Grant,
    OpenSession,
    Publish,
    ResumeSession,
    SessionOpened,
    Subscribe,
    Unsubscribe,
)
from overlay.info import ClientInfo

# Sessions whose connection was lost: what is kept for them, for how long, and how many (M5; no
# IO).
#
# A *parked* session keeps its client's number, so that the node goes on with its subscriptions, and
# what comes for them waits in the client's bounded queue (credit_window.py), without credit. It
# ends when its time is over, or when too many are parked: the one that was parked first.


class ParkedSessions:
    """The clients without a connection, in the order in which they lost it. Times are seconds of
    one clock."""

    def __init__(self, settings: ClientConfig) -> None:
        self.settings = settings
        self._parked: dict[int, ClientConnection] = {}  # by number, the first one first

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def is_enabled(self) -> bool:
        """Whether sessions are kept at all."""
        return self.settings.resume > 0 and self.settings.parked > 0

    def park(self, client: ClientConnection, now: float) -> None:
        """Keep the session of a client whose connection is lost."""
        client.park(now)
        self._parked[client.number] = client

    def remove(self, client: ClientConnection) -> None:
        """Remove a client that is connected again."""
        self._parked.pop(client.number, None)

    def take_due(self, now: float) -> list[ClientConnection]:
        """Remove and return the sessions to end: those that have expired, that exceed
        `clients.parked`, or that have too many notices."""
        due = list(self._parked.values())[: max(0, len(self._parked) - self.settings.parked)]
        due += [one for one in self._parked.values() if one not in due and self._end_of(one) <= now]
        for each in due:
            del self._parked[each.number]
        return due

    def next_due(self) -> float | None:
        """Return when the next session expires; None if none is parked."""
        if len(self._parked) > self.settings.parked:
            return -math.inf
        return min(map(self._end_of, self._parked.values()), default=None)

    def _end_of(self, client: ClientConnection) -> float:
        assert client.parked_at is not None, "it is connected"
        return client.parked_at + (0.0 if client.is_overfull else self.settings.resume)


# Which commands of a program are carried out together, and what is done to one before: a long
# selector is compiled, in steps; events are given the time of their arrival.

REGISTERING: Final = frozenset({Subscribe, Unsubscribe})
"""Kinds of commands that are carried out together."""


def fits(command: Command, together: Sequence[Command]) -> bool:
    """Return whether a command is carried out in one turn with those in `together`."""
    kind, first = type(command), together[0]
    if kind is Publish or kind is AppendEvents:
        return type(first) is kind
    if kind not in REGISTERING or type(first) not in REGISTERING:
        return False
    is_long = has_long_selector(command) or has_long_selector(first)
    return not is_long and len(together) < REGISTERED_TOGETHER


def has_long_selector(command: Command) -> bool:
    """Return whether a command has a selector that is compiled before its turn."""
    return isinstance(command, Subscribe) and len(command.selector) > LONG_SELECTOR


async def compile_long(selector: str) -> None:
    """Compile a long selector in steps before the node needs it, so that other inputs are handled
    in between. An invalid one is left for the node to refuse."""
    with contextlib.suppress(SelectorError):
        for _ in compile_in_steps(selector):
            await trio.lowlevel.checkpoint()


def stamp(publish: Publish, now: float) -> Publish:
    """Return `publish` with the time of its arrival in every draft that has no time."""
    if 0.0 not in [draft.time for draft in publish.events]:
        return publish
    now = max(now, 0.0)  # a clock that stands before 1970
    drafts = tuple(
        draft if draft.time else Draft(draft.attributes, draft.payload, draft.payload_type, now)
        for draft in publish.events
    )
    return Publish(publish.request, drafts, publish.receipt)


class ControlServer:
    """Serves the control socket: commands in, replies and deliveries out.

    The process calls `reply`, `share` and `flush` for the node's output (client_output.py).
    `refused` counts programs that exceeded the limit, `sessions_resumed` those that came back,
    `sessions_ended` those that did not. `Draft.time` is filled in here by the wall clock `wall` if
    a program left it 0.
    """

    def __init__(
        self,
        trace: Callable[[str, dict[str, Any]], None],
        commands: Callable[[int, Sequence[Command]], None],
        client_gone: Callable[[int, float], None],
        log: Log,
        settings: ClientConfig,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`trace` writes a trace record of a kind with its fields. `commands` carries out one
        command of a client, or several publications, in one turn; `client_gone` ends the client's
        subscriptions: its connection has ended, or, after so many seconds without one, its session.
        `clock`: monotonic seconds."""
        self.refused = 0
        self.sessions_resumed = 0
        self.sessions_ended = 0
        self._commands, self._client_gone = commands, client_gone
        self._log = log
        self._wall = wall
        self._settings = settings
        self._clock = clock
        self._parked = ParkedSessions(settings)
        self._parked_changed = trio.Event()
        self._clients: dict[int, ClientConnection] = {}
        self._last_number = 0
        self._door: RemoteDoor | None = None
        self._counters = Counters()
        self._output = output = ClientOutput(
            self._clients, trace, log, wall, lambda: self._parked_changed.set()
        )
        self.reply, self.share, self.flush = output.reply, output.share, output.flush

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
                await trio.serve_listeners(self._serve_local, [listener])

    async def serve_remote(self, listeners: list[trio.SocketListener], door: RemoteDoor) -> None:
        """Serve programs on other machines that `door` admits, until cancelled."""
        self._door = door
        async with trio.open_nursery() as nursery:
            for one in listeners:
                nursery.start_soon(accept_all, one, door.admits, self._serve_remote, nursery)
            while True:
                await trio.sleep(RECHECK)
                self.recheck()

    def recheck(self) -> None:
        """End the connections and sessions opened with tokens that are no longer valid."""
        for client in list(self._clients.values()):
            remote = client.remote
            if remote is None or self._door is None:
                continue
            if self._door.is_still_good(remote.token, remote.secret):
                continue
            self._log.info("program_cut_off", client=client.number, token=remote.token.name)
            client.close_session()
            if client.parked_at is None:
                client.scope.cancel()
            else:
                self._parked.remove(client)
                self._end_session(client)

    def configure(self, settings: ClientConfig) -> None:
        """Change the bounds: `queue` for programs that connect from now on, the others for all.
        Sessions that are kept already end `resume` seconds after the loss of their connection."""
        self._settings = self._parked.settings = settings
        self._parked_changed.set()

    def silence(self) -> None:
        """Write nothing more to any client."""
        for client in self._clients.values():
            client.outlet.close()

    async def settle(self) -> None:
        """Wait until all output that is queued for clients was written."""
        while any(c.parked_at is None and (c.outlet or c.window) for c in self._clients.values()):
            await trio.sleep(0.01)

    @property
    def dropped(self) -> int:
        """The number of deliveries that were dropped for slow clients."""
        return self._output.dropped

    @property
    def connected(self) -> int:
        """The number of connected programs."""
        return len(self._clients) - len(self._parked)

    @property
    def clients(self) -> tuple[ClientInfo, ...]:
        """The connected programs and parked sessions, each with its requests under way and waiting
        output."""
        now = self._clock()
        return tuple([client.info(now) for client in self._clients.values()])

    # From the clients.

    async def _serve_local(self, stream: trio.SocketStream) -> None:
        if not is_own_user(stream):
            self._log.seldom("control_refused", reason="a program of another user")
            await stream.aclose()
            return
        await self._serve_client(stream, process_of(stream))

    async def _serve_remote(self, stream: trio.SocketStream, host: str, port: int) -> None:
        assert self._door is not None
        found = await self._door.admit(stream, host, port)
        if found is not None:
            await self._serve_client(stream, 0, found)

    async def _serve_client(
        self, stream: trio.SocketStream, pid: int, remote: AdmittedProgram | None = None
    ) -> None:
        encrypt = None if remote is None else remote.pipe.encrypt
        if self.connected >= self._settings.programs:
            await self._refuse(stream, pid, encrypt)
            return
        self._last_number += 1
        client = ClientConnection(self._last_number, self._counters, self._settings.queue, pid)
        client.remote = remote
        self._clients[client.number] = client
        client.outlet.open(stream, encrypt)
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
            self._client_gone(client.number, 0.0)

    def _connection_lost(self, client: ClientConnection) -> bool:
        """Keep the session of a client whose connection is lost, if it has one. Returns whether its
        subscriptions continue."""
        if self._clients.get(client.number) is not client:
            return True  # another connection has its session
        self._output.forget(client.number)
        if not client.session:
            del self._clients[client.number]
            return False
        self._log.debug("parked", client=client.number, pid=client.pid)
        self._parked.park(client, self._clock())
        self._parked_changed.set()
        return True

    async def _end_parked(self) -> None:
        """End sessions that were parked for too long, or exceed the limit."""
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
        self._output.forget(client.number)
        unread_for = self._clock() - client.parked_at
        self.sessions_ended += 1
        self._log.info("session_ended", client=client.number, pid=client.pid, after=unread_for)
        self._client_gone(client.number, unread_for)

    async def _refuse(self, stream: trio.SocketStream, pid: int, encrypt: Encrypt | None) -> None:
        """Send the reason of the refusal, as far as the socket takes it at once, and close."""
        self.refused += 1
        reason = (
            f"too many programs ({self._settings.programs}) are connected; close one, or raise "
            f"clients.programs in the node's configuration"
        )
        self._log.seldom("refused_client", pid=pid, reason=reason)
        outlet = Outlet(self._counters)
        outlet.open(stream, encrypt)
        outlet.put(REPLY_FRAMES.encode(Failed(NO_REQUEST, FULL, reason)))
        outlet.send_now()
        await trio.aclose_forcefully(stream)

    async def _read(
        self, client: ClientConnection, stream: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        reader = FrameReader(COMMAND_FRAMES)
        inlet: Inlet | SecureInlet = Inlet(stream) if client.remote is None else client.remote.inlet
        data: bytes | bytearray = b"" if client.remote is None else client.remote.first
        turns = 0
        while reader.error is None:
            try:
                data = data or await inlet.read(READ_SIZE)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                break
            if not data:
                break
            together: list[Command] = []
            found, data = reader.feed(data), b""
            for command in found:
                if isinstance(command, Grant):
                    self._grant(client, command)
                    continue
                if isinstance(command, CloseSession):
                    client.close_session()
                    continue
                if together and (client.is_full or not fits(command, together)):
                    self._commands(client.number, together)
                    turns += not isinstance(together[0], Publish) and len(together)
                    together = []
                    if turns >= TURNS_TOGETHER:
                        turns = 0
                        await trio.lowlevel.checkpoint()  # the node's other inputs
                while client.is_full:
                    await client.room.park()
                if client.remote is not None and has_long_selector(command):
                    await compile_long(getattr(command, "selector", ""))  # before it is narrowed
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
                self._commands(client.number, together)
            self.flush()  # what was answered outside of a turn
        if reader.error is not None:
            self._log.seldom("bad_client", client=client.number, reason=reader.error)
            client.close_session()
            self._output.fail(client, NO_REQUEST, reader.error)
            self.flush()
            with trio.move_on_after(1.0):  # a moment for the writer to send it
                while client.outlet:
                    await trio.sleep(0.01)
        scope.cancel()

    def _take(self, client: ClientConnection, command: Command) -> Command | None:
        """Note the request and stamp its events. Returns None if its number is in use (the client
        gets a `Failed`)."""
        if command.request in client.unanswered:
            reason = f"request {command.request} is not answered yet: number requests differently"
            self._output.fail(client, command.request, reason)
            return None
        if client.remote is not None and self._door is not None:
            token = client.remote.token
            if reason := refusal(token, command):
                self._output.fail(client, command.request, reason, DENIED)
                return None
            if SCOPE_OF.get(type(command)) == "admin":
                self._door.note_command(token, command)
            command = confined(token, command)
        client.asked(command)
        return stamp(command, self._wall()) if isinstance(command, Publish) else command

    def _grant(self, client: ClientConnection, grant: Grant) -> None:
        """Handle the client's grant; more may leave at the end of the turn."""
        try:
            client.grant(grant.consumed, grant.credit)
        except ValueError as error:
            self._output.misused(client, str(error))
        else:
            self._output.granted(client)

    def _open_session(self, client: ClientConnection, command: OpenSession) -> None:
        """Begin a session: the client is parked when its connection is lost."""
        if client.session:
            reason = "this client has a session already"
            self.reply(client.number, Failed(command.request, "usage", reason))
            return
        self._output.pack(client)
        if not self._parked.is_enabled:
            self.reply(client.number, SessionOpened(command.request, "", 0.0))
            return
        token = secrets.token_hex(SESSION_BYTES)
        self.reply(client.number, SessionOpened(command.request, token, self._settings.resume))
        client.open_session(token)

    def _resume(self, client: ClientConnection, command: ResumeSession) -> None:
        """Resume a session on this connection, which becomes its client."""
        found = self._find_session(command.session, client.holder)
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
        self._output.forget(number)
        self._clients[client.number] = client
        self.sessions_resumed += 1
        self._log.debug("resumed", client=client.number, pid=client.pid)
        self._commands(client.number, [command])

    def _find_session(self, token: str, holder: str) -> ClientConnection | None:
        """Return the client with this session and the same token; None if there is none."""
        for each in self._clients.values():
            if each.holder != holder:
                continue
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
