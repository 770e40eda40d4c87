"""A small HTTP/1.1 server for questions with short answers.

h11 parses; this module bounds the cost of a caller: `CALLERS` connections, `HEAD_LIMIT` bytes of a
request's head, `PATIENCE` seconds for each request and answer. Requests have no body: a caller that
sends one is answered and disconnected.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs

import h11
import trio

from canopy.wire.log import Log

CALLERS: Final = 32
"""The most connections at a time. One more closes the one that has been silent for longest, so that
idle connections cannot keep probes out. Guess: a few Prometheus servers and probes."""

HEAD_LIMIT: Final = 8 * 1024  # bytes of a request's line and headers: what servers commonly accept

PATIENCE: Final = 10.0
"""Seconds to receive one request, and to send its answer: Prometheus's own time-out."""

IDLE: Final = 120.0
"""Seconds for which a connection is kept between two requests: two scrapes a minute apart."""

READ: Final = 4 * 1024

OK: Final = 200
NOT_FOUND: Final = 404
NOT_ALLOWED: Final = 405
PLAIN: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Request:
    """A request. `accept`: the header, or ""."""

    path: str
    query: str
    accept: str


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Status, body and the body's type."""

    status: int
    body: bytes
    kind: str = PLAIN


Route = Callable[[Request], Awaitable[HttpAnswer]]


class AdminServer:
    """Answers GET and HEAD requests, by the first word of the path."""

    def __init__(self, routes: Mapping[str, Route], log: Log) -> None:
        """`routes`: the function that answers, by the first word of the path, without slashes."""
        self._routes = routes
        self._log = log
        self._callers = 0
        self._silent: OrderedDict[trio.SocketStream, trio.CancelScope] = OrderedDict()
        """Connections without a request in progress, the one that has been silent for longest
        first."""

    async def serve(
        self,
        listeners: list[trio.SocketListener],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Answer at these listeners until cancelled."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            await trio.serve_listeners(self._serve, listeners, handler_nursery=nursery)

    async def _serve(self, stream: trio.SocketStream) -> None:
        if self._callers >= CALLERS:
            if not self._silent:
                await trio.aclose_forcefully(stream)
                return
            _, oldest = self._silent.popitem(last=False)
            oldest.cancel()
        self._callers += 1
        try:
            connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT)
            while await self._serve_one(stream, connection):
                connection.start_next_cycle()
        except (h11.LocalProtocolError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the caller has gone
        finally:
            self._callers -= 1
            await trio.aclose_forcefully(stream)

    async def _serve_one(self, stream: trio.SocketStream, connection: h11.Connection) -> bool:
        """Answer one request. Returns whether another may follow."""
        try:
            request = await self._read(stream, connection)
        except h11.RemoteProtocolError as error:
            self._log.debug("admin_refused", reason=error)
            if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                status = error.error_status_hint or 400
                await self._send(
                    stream, connection, HttpAnswer(status, f"{error}\n".encode()), b"GET"
                )
            return False
        if request is None:
            return False
        method = request.method
        with trio.move_on_after(PATIENCE):
            await self._send(stream, connection, await self._answer(request), method)
            return bool(connection.our_state is h11.DONE and connection.their_state is h11.DONE)
        return False

    async def _read(
        self, stream: trio.SocketStream, connection: h11.Connection
    ) -> h11.Request | None:
        """Return the next request, with nothing after it; None if the caller has gone or is too
        slow."""
        request: h11.Request | None = None
        deadline = trio.current_time() + IDLE
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.EndOfMessage | h11.Data) and request is not None:
                return request  # with a body h11 is not done with the request: the last one
            elif isinstance(event, h11.ConnectionClosed):
                return None
            elif event is h11.NEED_DATA:
                with trio.move_on_at(deadline) as scope:
                    self._silent[stream] = scope
                    try:
                        data = await stream.receive_some(READ)
                    finally:
                        self._silent.pop(stream, None)
                if scope.cancelled_caught:
                    return None
                if request is None and not connection.trailing_data[0]:
                    deadline = trio.current_time() + PATIENCE  # it has begun to ask
                connection.receive_data(data)

    async def _answer(self, request: h11.Request) -> HttpAnswer:
        path, _, query = request.target.decode("ascii", "replace").partition("?")
        route = self._routes.get(path.strip("/").partition("/")[0])
        if route is None:
            known = ", ".join(f"/{name}" for name in self._routes)
            return HttpAnswer(NOT_FOUND, f"there are {known}\n".encode())
        if request.method not in (b"GET", b"HEAD"):
            return HttpAnswer(NOT_ALLOWED, b"only GET and HEAD\n")
        headers = dict(request.headers)
        accept = headers.get(b"accept", b"").decode("latin-1")
        return await route(Request(path, query, accept))

    async def _send(
        self,
        stream: trio.SocketStream,
        connection: h11.Connection,
        answer: HttpAnswer,
        method: bytes,
    ) -> None:
        headers = [
            ("content-type", answer.kind),
            ("content-length", str(len(answer.body))),
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
        ]
        if answer.status == NOT_ALLOWED:
            headers.append(("allow", "GET, HEAD"))
        response = h11.Response(
            status_code=answer.status, headers=headers, reason=HTTPStatus(answer.status).phrase
        )
        pieces = [connection.send(response)]
        if method != b"HEAD":
            pieces.append(connection.send(h11.Data(data=answer.body)))
        pieces.append(connection.send(h11.EndOfMessage()))
        with trio.move_on_after(PATIENCE):
            await stream.send_all(b"".join(piece for piece in pieces if piece))


# --- /livez and /readyz, as Kubernetes and etcd have them: one line for each check ---
#
# *Live* means that the process works: its event loop turns. A process that is not is to be killed
# and started again. *Ready* means that programs of this node are served: a node that is not may
# become so by itself, and a restart does not help.
#
# ``/readyz`` answers 200 ``ok``, or 503 and a line for each check (``[+]disk ok``, ``[-]owner
# failed: …``); ``?verbose`` names all of them in any case, ``?exclude=NAME`` leaves one out, and
# ``/readyz/NAME`` asks for one.

FAILING: Final = 503

Checks = Mapping[str, Callable[[], str]]
"""Checks by name. Each returns its fault in words, or ""."""


def answer_checks(name: str, checks: Checks, request: Request) -> HttpAnswer:
    """Return the answer to ``/NAME`` or ``/NAME/CHECK``."""
    asked = request.path.removeprefix(f"/{name}").strip("/")
    query = parse_qs(request.query, keep_blank_values=True)
    if asked and asked not in checks:
        return HttpAnswer(
            NOT_FOUND, f"no check {asked!r}; there are: {', '.join(checks)}\n".encode()
        )
    left_out = query.get("exclude", [])
    chosen = [asked] if asked else [each for each in checks if each not in left_out]
    found = {each: checks[each]() for each in chosen}
    is_fine = not any(found.values())
    if is_fine and "verbose" not in query:
        return HttpAnswer(OK, b"ok\n")
    lines = [
        f"[-]{each} failed: {reason}" if reason else f"[+]{each} ok"
        for each, reason in found.items()
    ]
    lines += [f"[+]{each} excluded: ok" for each in left_out if each in checks and not asked]
    lines.append(f"{name} check {'passed' if is_fine else 'failed'}")
    return HttpAnswer(OK if is_fine else FAILING, ("\n".join(lines) + "\n").encode())
