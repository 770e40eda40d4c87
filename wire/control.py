"""The control socket: how programs on this machine use the node (DESIGN.md, section 6, Faces).

A Unix socket, mode 0600, on which commands come in and replies go out as framed MessagePack. Each
connection is a client with a number; what it subscribed ends with it.

- **Turns.** Publications that were read together are one turn of the node, and so one batch;
  whatever else is asked has a turn of its own.
- **Back-pressure.** The reply to a `Publish` comes when the node has admitted the events. While
  publications of `EVENTS` events or `PUBLISHES` of them are unanswered (or `REQUESTS` of any kind),
  no more is read from it, so a program that publishes faster than the overlay takes is slowed down
  by its own socket.
- **Deliveries** of one turn are sent together. A client that has asked with `Gather` gets an event
  once, however many of its subscriptions it matches. Events for such clients come as a batch that
  they share: each is encoded once, and a client gets its selection of the encoded ones.
- **Slow clients.** What waits for a client is bounded. Replies always fit, for requests are
  bounded; deliveries beyond `QUEUE_LIMIT` are dropped, counted and traced, and the client is told
  how many (a `Failed` with request 0 and the code ``overflow``) as soon as it reads again.
- Garbage ends that client's connection and nothing else.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final, Protocol

import msgspec
import trio

from overlay.client import (
    Command,
    Delivered,
    Delivery,
    Draft,
    Event,
    Failed,
    Gathered,
    Publish,
    Reply,
    Status,
)
from wire.codec import array_header
from wire.driver import TrioDriver
from wire.framing import COMMAND_FRAMES, REPLY_FRAMES, FrameReader
from wire.log import Log
from wire.outlet import Counters, Outlet

READ_SIZE: Final = 256 * 1024  # bytes of one receive; a batch of 256 events has about 64 KiB
PIECE: Final = 256 * 1024  # bytes of deliveries in one frame; wild guess
QUEUE_LIMIT: Final = 16 << 20  # bytes that wait for one client before deliveries drop; wild guess
REQUESTS: Final = 64  # unanswered requests of one client; wild guess
PUBLISHES: Final = 16  # unanswered publishes among them: enough to hide the reply's way. Wild guess
EVENTS: Final = 1_024  # events of unanswered publishes after which no more is read; wild guess
CLIENTS: Final = 256  # connections to the control socket; wild guess
NEWS: Final = 0  # the request number of what was not asked for


class Commands(Protocol):
    """Who carries out the commands: the process, which hands most of them to the node."""

    def commands(self, client: int, commands: Sequence[Command]) -> None:
        """Carry out one command, or several publications, in one turn."""

    def client_gone(self, client: int) -> None:
        """The client's connection ended."""


class Client:
    """One connection to the control socket."""

    def __init__(self, number: int, counters: Counters) -> None:
        self.number = number
        self.dropped = 0  # deliveries since it was last told
        self.outlet = Outlet(counters)
        self.packing = 0  # bytes in `fresh` and `gathered`
        self.unanswered: dict[int, int | None] = {}  # request -> events that it publishes
        self.publishes = self.events = 0  # unanswered
        self.fresh: list[bytes] = []  # encoded deliveries of this turn
        self.gathered: list[bytes] = []  # encoded events of this turn
        self.room = trio.lowlevel.ParkingLot()  # the reader waits here

    @property
    def full(self) -> bool:
        """Whether no more may be read from it now."""
        return (
            self.publishes >= PUBLISHES or self.events >= EVENTS or len(self.unanswered) >= REQUESTS
        )

    def asked(self, command: Command) -> None:
        """A command was read. A number that is still in use would mix up two replies."""
        events = None
        if isinstance(command, Publish):
            events = len(command.events)
            self.publishes += 1
            self.events += events
        self.unanswered[command.request] = events

    def answered(self, request: int) -> None:
        """Its reply is there: more may be read."""
        events = self.unanswered.pop(request, None)
        if events is not None:
            self.publishes -= 1
            self.events -= events
        if not self.full:
            self.room.unpark_all()

    @property
    def waiting(self) -> int:
        """Bytes that its socket has not taken."""
        return self.outlet.waiting + self.packing


class ControlServer:
    """Serves the control socket and is the driver's way to the clients.

    `dropped` counts deliveries that slow clients did not get. Times are filled in here, by the
    wall clock `wall`: `Draft.time` where a program left it 0, `Delivery.latency_ms`.
    """

    def __init__(
        self,
        driver: TrioDriver,
        commands: Commands,
        log: Log,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.dropped = 0
        self.fill_status: Callable[[Status], Status] = lambda status: status
        self._driver = driver
        self._commands = commands
        self._log = log
        self._wall = wall
        self._clients: dict[int, Client] = {}
        self._last_number = 0
        self._encode = msgspec.msgpack.Encoder().encode
        self._counters = Counters()
        self._touched: dict[int, Client] = {}  # clients for whom something was queued in this turn
        # Without the empty array at their ends:
        self._delivered = self._encode(Delivered(NEWS, ()))[:-1]
        self._gathered = self._encode(Gathered(NEWS, ()))[:-1]
        driver.replies, driver.shares = self.reply, self.share
        driver.after_turn.append(self.flush)

    async def serve(
        self, path: Path, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen at `path` until cancelled. OSError if the socket cannot be made."""
        sock = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
        with sock:
            before = os.umask(0o177)  # the socket is private from its first moment
            try:
                await sock.bind(str(path))
            finally:
                os.umask(before)
            sock.listen(CLIENTS)
            listener = trio.SocketListener(sock)
            task_status.started()
            await trio.serve_listeners(self._serve_client, [listener])

    async def settle(self) -> None:
        """Wait until every client has got what waits for it."""
        while any(client.outlet for client in self._clients.values()):
            await trio.sleep(0.01)

    # From the node (through the driver).

    def reply(self, client: int, reply: Reply) -> None:
        """Queue an answer, or news. A client that is gone gets nothing."""
        found = self._clients.get(client)
        if found is None:
            return
        if isinstance(reply, Delivered):
            self._deliver(found, reply.deliveries)
            return
        if isinstance(reply, Status):
            reply = self.fill_status(reply)
        try:
            frame = REPLY_FRAMES.encode(reply)
        except (ValueError, OverflowError) as error:
            frame = REPLY_FRAMES.encode(Failed(reply.request, "refused", str(error)))
        self._put(found, frame)
        found.answered(reply.request)

    def share(self, events: Sequence[Event], places: Mapping[int, Sequence[int]]) -> None:
        """Queue for each of several clients the events at its places."""
        encoded = list(map(self._encode, events))
        for number, where in places.items():
            client = self._clients.get(number)
            if client is None:
                continue
            self._touched[number] = client
            is_all = len(where) == len(encoded)
            mine = encoded if is_all else list(map(encoded.__getitem__, where))
            size = sum(map(len, mine))
            if client.waiting + size > QUEUE_LIMIT:
                ends = list(accumulate(map(len, mine), initial=client.waiting))
                kept = bisect_right(ends, QUEUE_LIMIT, 1) - 1
                for place in where[kept:]:
                    self._drop(client, events[place])
                mine, size = mine[:kept], ends[kept] - client.waiting
            client.gathered += mine
            client.packing += size

    def flush(self) -> None:
        """The end of a turn: what was queued leaves, its deliveries together."""
        if not self._touched:
            return
        for client in self._touched.values():
            self._pack(client, self._delivered, client.fresh)
            self._pack(client, self._gathered, client.gathered)
            client.packing = 0
            client.outlet.send_now()
            if client.dropped:
                client.outlet.wake()  # the writer tells it
        self._touched.clear()

    def _put(self, client: Client, frame: bytes) -> None:
        client.outlet.put(frame)
        self._touched[client.number] = client

    def _deliver(self, client: Client, deliveries: tuple[Delivery, ...]) -> None:
        now = self._wall()
        self._touched[client.number] = client
        for found in deliveries:
            if client.waiting > QUEUE_LIMIT:
                self._drop(client, found.event)
                continue
            encoded = self._encode(
                msgspec.structs.replace(found, latency_ms=(now - found.event.time) * 1000)
            )
            client.fresh.append(encoded)
            client.packing += len(encoded)

    def _drop(self, client: Client, event: Event) -> None:
        if not client.dropped:
            self._log.warning("slow_client", client=client.number, waiting=client.waiting)
        client.dropped += 1
        self.dropped += 1
        self._driver.trace("drop", {"event": event.identity, "reason": "slow client", "size": 1})

    def _pack(self, client: Client, head: bytes, fresh: list[bytes]) -> None:
        """Put the news of this turn into as few frames as their sizes allow."""
        start = 0
        while start < len(fresh):
            end = len(fresh) if client.packing <= PIECE else cut(fresh, start)
            parts = [head, array_header(end - start), *fresh[start:end]]
            client.outlet.put(REPLY_FRAMES.join(parts))
            start = end
        fresh.clear()

    # From the clients.

    async def _serve_client(self, stream: trio.SocketStream) -> None:
        if len(self._clients) >= CLIENTS:
            self._log.warning("refused_client", reason="too many clients")
            await trio.aclose_forcefully(stream)
            return
        self._last_number += 1
        client = self._clients[self._last_number] = Client(self._last_number, self._counters)
        client.outlet.open(stream)
        self._log.debug("client", client=client.number)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, client, stream, nursery.cancel_scope)
                nursery.start_soon(self._read, client, stream, nursery.cancel_scope)
        finally:
            del self._clients[client.number]
            self._touched.pop(client.number, None)
            client.outlet.close()
            await trio.aclose_forcefully(stream)
        self._commands.client_gone(client.number)

    async def _read(
        self, client: Client, stream: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        reader = FrameReader(COMMAND_FRAMES)
        while reader.error is None:
            try:
                data = await stream.receive_some(READ_SIZE)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                break
            if not data:
                break
            together: list[Command] = []
            for command in reader.feed(data):
                if together and (client.full or not isinstance(command, Publish)):
                    self._commands.commands(client.number, together)
                    together = []
                while client.full:
                    await client.room.park()
                taken = self._take(client, command)
                if isinstance(taken, Publish):
                    together.append(taken)
                elif taken is not None:
                    self._commands.commands(client.number, [taken])
            if together:
                self._commands.commands(client.number, together)
            self.flush()  # what was answered outside of a turn
        if reader.error is not None:
            self._log.warning("bad_client", client=client.number, reason=reader.error)
            self._put(client, REPLY_FRAMES.encode(Failed(NEWS, "usage", reader.error)))
            self.flush()
            with trio.move_on_after(1.0):  # a moment for the writer to tell it
                while client.outlet:
                    await trio.sleep(0.01)
        scope.cancel()

    def _take(self, client: Client, command: Command) -> Command | None:
        """Note that it was asked; None: that is not possible."""
        if command.request in client.unanswered:
            reason = f"request {command.request} is not answered yet: number requests differently"
            self._put(client, REPLY_FRAMES.encode(Failed(command.request, "usage", reason)))
            return None
        client.asked(command)
        return stamp(command, self._wall()) if isinstance(command, Publish) else command

    async def _write(
        self, client: Client, stream: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        while True:
            if not client.outlet:
                if client.dropped:
                    reason = (
                        f"{client.dropped} deliveries were dropped: this program reads too slowly"
                    )
                    client.dropped = 0
                    client.outlet.put(REPLY_FRAMES.encode(Failed(NEWS, "overflow", reason)))
                    continue
                await client.outlet.idle()
                continue
            try:
                await client.outlet.drain(stream)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                break
        scope.cancel()


def cut(pieces: Sequence[bytes], start: int) -> int:
    """Where a frame ends that begins with a certain piece."""
    size = 0
    for end in range(start, len(pieces)):
        size += len(pieces[end])
        if size >= PIECE:
            return end + 1
    return len(pieces)


def stamp(publish: Publish, now: float) -> Publish:
    """`publish` with the time of its arrival in every draft that has none."""
    if 0.0 not in [draft.time for draft in publish.events]:
        return publish
    drafts = tuple(
        draft if draft.time else Draft(draft.attributes, draft.payload, draft.payload_type, now)
        for draft in publish.events
    )
    return Publish(publish.request, drafts, publish.receipt)
