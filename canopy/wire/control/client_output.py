"""Output to programs: replies, deliveries and notices (docs/reference/wire.md).

- Replies need no credit: requests are bounded, and a program that consumes nothing can still ask
  and unsubscribe. (A reply overtakes waiting deliveries: some may arrive after the reply to
  `Unsubscribe`.)
- **Deliveries** of one turn are sent together. A client that has asked with `Gather` gets an event
  once, however many of its subscriptions match it. Events for such clients are a batch that they
  share: each event is encoded once, a client gets a frame of the events that it wants, and all
  clients that want the whole batch get the same frame.
- **Slow clients.** Deliveries leave within the credit that the client grants (`Grant`) as its
  program consumes them. Further ones wait in a bounded queue; beyond it they are dropped, counted
  and traced, and the client is notified in their place (`Dropped`; credit_window.py).

Output that is queued in a turn leaves with `flush`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec

from canopy.wire.constants import CLIENT_FRAME
from canopy.wire.control.client_connection import ClientConnection
from canopy.wire.control.credit_window import DroppedRun, QueuedNotice
from canopy.wire.log import Log
from canopy.wire.transport.codec import array_header
from canopy.wire.transport.framing import REPLY_FRAMES
from overlay.client import (
    LAPSED,
    CompleteUntil,
    Delivered,
    Delivery,
    Dropped,
    Event,
    Failed,
    Gathered,
    Lapsed,
    Reply,
    SessionResumed,
)

NO_REQUEST: Final = 0  # the request number of what was not asked for: deliveries and notices

DELIVERED, GATHERED = range(2)  # kinds of deliveries


class ClientOutput:
    """Queues and writes the node's output to its clients.

    `dropped` counts the deliveries that were dropped for slow clients. `Delivery.latency_ms` is
    filled in here.
    """

    def __init__(
        self,
        clients: Mapping[int, ClientConnection],
        trace: Callable[[str, dict[str, Any]], None],
        log: Log,
        wall: Callable[[], float],
        overfull: Callable[[], None],
    ) -> None:
        """`clients`: all clients, by number. `trace` writes a trace record of a kind with its
        fields. `wall`: seconds since 1970. `overfull` is called when a client without a connection
        has too many notices for its session to be kept."""
        self.dropped = 0
        self._clients = clients
        self._trace = trace
        self._log = log
        self._wall = wall
        self._overfull = overfull
        self._encode = msgspec.msgpack.Encoder().encode
        self._touched: dict[int, ClientConnection] = {}  # for whom something was queued lately
        # DELIVERED, GATHERED, without the empty array at their ends:
        self._heads = [self._encode(kind(NO_REQUEST, ()))[:-1] for kind in (Delivered, Gathered)]

    def reply(self, client: int, reply: Reply) -> None:
        """Queue a reply, deliveries or a notice; a client that is gone gets nothing."""
        found = self._clients.get(client)
        if found is None:
            return
        if isinstance(reply, Delivered):
            self._deliver(found, reply.deliveries)
            return
        if isinstance(reply, CompleteUntil):
            self._mark(found, reply)
            return
        if isinstance(reply, SessionResumed):
            reply = msgspec.structs.replace(reply, after=found.resumed_after)
        elif isinstance(reply, Dropped | Lapsed):
            reply = timed(reply, self._wall())
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

    def _mark(self, client: ClientConnection, mark: CompleteUntil) -> None:
        """Send a mark after the deliveries, unless some still wait: then the mark would be
        wrong."""
        self.pack(client)
        if not client.window and not client.window.is_held:
            self._put(client, REPLY_FRAMES.encode(mark))

    def _notify(self, client: ClientConnection, frame: bytes) -> None:
        """Send a notice in its place among the deliveries."""
        self.pack(client)
        if not client.window.enqueue_notice(frame):
            client.notify(frame)
            self._touched[client.number] = client
        if client.is_overfull:
            self._overfull()

    def share(self, events: Sequence[Event], places: Mapping[int, Sequence[int]]) -> None:
        """Queue events for clients: each client, by number, gets the events at its places."""
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
        """Write the output queued in this turn, the deliveries of each client together."""
        if not self._touched:
            return
        for client in self._touched.values():
            self.pack(client)
            if client.window:
                self._release(client)
            client.outlet.send_now()
        self._touched.clear()

    def fail(
        self, client: ClientConnection, request: int, reason: str, code: str = "usage"
    ) -> None:
        """Answer a request that did not reach the node, or (0) input that was not a request."""
        client.outlet.put(REPLY_FRAMES.encode(Failed(request, code, reason)))
        self._touched[client.number] = client

    def misused(self, client: ClientConnection, reason: str) -> None:
        """Notify the client of an error that answers no request."""
        client.notify(REPLY_FRAMES.encode(Failed(NO_REQUEST, "usage", reason)))
        self._touched[client.number] = client

    def granted(self, client: ClientConnection) -> None:
        """Note that the client has granted more credit: waiting deliveries may leave with
        `flush`."""
        self._touched[client.number] = client

    def forget(self, number: int) -> None:
        """Write nothing more to this client on its present connection."""
        self._touched.pop(number, None)

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
                client,
                DELIVERED,
                encoded,
                [one.event for one in deliveries],
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
        """Queue deliveries behind those that wait for credit; drop those for which there is no
        room. `subscriptions`: the subscription of each delivery, unless it is for all subscriptions
        of the client."""
        self.pack(client)
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

    def pack(self, client: ClientConnection) -> None:
        """Send the deliveries that were queued so far and fit the credit, before any later
        output."""
        if client.fresh:
            self._send(client, self._frames(DELIVERED, client.fresh))
            client.fresh.clear()
            client.packing = 0

    def _send(self, client: ClientConnection, frames: Sequence[tuple[bytes, int]]) -> None:
        for frame, items in frames:
            client.send(frame, items)

    def _frames(self, kind: int, encoded: Sequence[bytes]) -> list[tuple[bytes, int]]:
        """Return encoded events or deliveries in as few frames as their sizes allow, each with its
        number of items."""
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
        """Return one frame of encoded deliveries, which have `size` bytes in total."""
        head = self._heads[kind] + array_header(len(encoded))
        return REPLY_FRAMES.join([head, *encoded], len(head) + size)


def dropped(run: DroppedRun) -> Dropped:
    """Return the notice for a run of deliveries that were dropped for want of credit (code
    "overflow")."""
    reason = (
        f"{run.count} deliveries were dropped, since this program consumes them too slowly: "
        f"events {run.first} to {run.last}, "
        f"published within {max(0.0, run.until - run.since):.1f} s"
    )
    where = (run.first, run.last, run.since, run.until)
    return Dropped(NO_REQUEST, "overflow", reason, run.count, *where)


def timed(notice: Dropped | Lapsed, wall: float) -> Dropped | Lapsed:
    """Return the notice with its time filled in, since it may be read much later."""
    if isinstance(notice, Lapsed):
        return msgspec.structs.replace(notice, at=wall)
    if notice.code != LAPSED:
        return notice
    since = min(wall - notice.seconds, notice.since or wall) if notice.seconds else 0.0
    return msgspec.structs.replace(notice, since=since, seconds=0.0)
