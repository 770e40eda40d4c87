"""HTTP/1.1 on one connection: requests within their limits, and answers."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs, unquote

import h11
import trio

from canopy.gateway.access import RequestRefused
from canopy.gateway.constants import (
    BODY_LIMIT,
    BODY_TIMEOUT,
    HEAD_LIMIT,
    HEAD_TIMEOUT,
    IDLE_TIMEOUT,
    RETRY_AFTER,
    SEND_TIMEOUT,
)
from overlay.phrases import shown_json

READ: Final = 64 * 1024
LOST: Final = (trio.BrokenResourceError, trio.ClosedResourceError)
SECURITY: Final = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
)

Headers = list[tuple[str, str]]


class Gone(Exception):  # noqa: N818 - what happened
    """The other side has closed the connection, or has stopped reading."""


def first_cause(error: BaseException) -> BaseException:
    """Return the first exception in nested groups; the error itself if it is not a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class Exchange:
    """One request, and its answer. `path` is decoded; `query` has the last value of each name."""

    def __init__(self, wire: HttpConnection, request: h11.Request) -> None:
        self._wire = wire
        self.method = request.method.decode("ascii")
        target = request.target.decode("latin-1")
        path, _, query = target.partition("?")
        self.path = unquote(path)
        self.target = target
        try:
            fields = parse_qs(query, keep_blank_values=True, max_num_fields=32)
        except ValueError:
            raise RequestRefused(400, "a query with more than 32 fields") from None
        self.query = {name: values[-1] for name, values in fields.items()}
        self.headers: dict[str, str] = {}
        for raw, value in request.headers:
            name = raw.decode("ascii")
            text = value.decode("latin-1")
            self.headers[name] = f"{self.headers[name]}, {text}" if name in self.headers else text
        if {"content-length", "transfer-encoding"} <= self.headers.keys():
            # What the sender, or a proxy, takes for the end may be elsewhere (RFC 9112, 6.1).
            raise RequestRefused(400, "both Content-Length and Transfer-Encoding")
        self.raw_headers = list(request.headers)
        self.extra: Headers = []
        """Headers that every answer to this request gets."""

    def repeated(self, prefix: str) -> str:
        """Return the name of a header that begins with `prefix` and occurs more than once, else
        ""."""
        names = [name.decode("ascii") for name, _ in self.raw_headers]
        found = (name for name in names if name.startswith(prefix) and names.count(name) > 1)
        return next(found, "")

    @property
    def stream(self) -> trio.abc.Stream:
        """The connection's stream, for another protocol to continue on."""
        return self._wire.stream

    @property
    def trailing(self) -> bytes:
        """The bytes that were received after the request."""
        return self._wire.h11.trailing_data[0]

    def bearer(self) -> str:
        """The token in the header `Authorization`; "" without one."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    def welcome(self) -> None:
        """Note that the client may use the gateway, so that its connection is not closed to make
        room for others."""
        self._wire.welcome()

    async def body(self) -> bytes:
        """Return the request's body. Raises RequestRefused if it is too large or does not
        arrive."""
        if int(self.headers.get("content-length", "0") or 0) > BODY_LIMIT:
            raise RequestRefused(413, f"the body is larger than {BODY_LIMIT} bytes")
        if self.headers.get("expect", "").lower() == "100-continue":
            waiting = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            await self._wire.send(waiting)
        whole = bytearray()  # one object, however small the parts
        with trio.move_on_after(BODY_TIMEOUT) as scope:
            async with aclosing(self._wire.body()) as parts:
                async for part in parts:
                    whole += part
                    if len(whole) > BODY_LIMIT:
                        raise RequestRefused(413, f"the body is larger than {BODY_LIMIT} bytes")
        if scope.cancelled_caught:
            raise RequestRefused(408, f"the body did not come within {BODY_TIMEOUT:g} s")
        return bytes(whole)

    async def answer(
        self, status: int, content: bytes = b"", kind: str = "", headers: Headers | None = None
    ) -> None:
        """Answer with a complete body."""
        if self._wire.h11.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return  # an answer was begun before this became known
        about = [("Content-Type", kind)] if kind else []
        about += [("Content-Length", str(len(content)))]
        if self._wire.has_unread:  # what is left of the body would be taken for the next request
            about.append(("Connection", "close"))
        await self._wire.respond(status, [*about, *(headers or []), *self.extra])
        if content and self.method != "HEAD":
            await self._wire.send(h11.Data(data=content))
        await self._wire.send(h11.EndOfMessage())

    async def answer_json(self, value: Mapping[str, Any]) -> None:
        """Answer 200 with a JSON object."""
        text = shown_json(json.dumps(value, ensure_ascii=False)) + "\n"
        await self.answer(200, text.encode("utf-8", "replace"), "application/json")

    async def refuse(self, error: RequestRefused) -> None:
        """Answer with an error and its reason."""
        headers: Headers = []
        if error.status == 401:
            headers.append(("WWW-Authenticate", 'Bearer realm="canopy"'))
        if error.status in (429, 503):
            headers.append(("Retry-After", str(RETRY_AFTER)))
        text = shown_json(json.dumps(error.shown(), ensure_ascii=False)) + "\n"
        whole = text.encode("utf-8", "replace")
        await self.answer(error.status, whole, "application/json", headers)

    async def begin(self, kind: str, headers: Headers | None = None) -> None:
        """Begin an answer without an end: it lasts until one side closes the connection."""
        about = [("Content-Type", kind), ("Connection", "close"), ("X-Accel-Buffering", "no")]
        await self._wire.respond(200, [*about, *(headers or []), *self.extra])

    async def write(self, data: bytes) -> None:
        """Send the next part of an answer that was begun. Raises Gone."""
        await self._wire.send(h11.Data(data=data))

    async def gone(self) -> None:
        """Wait until the other side closes the connection (or sends more, which closes it)."""
        with suppress(*LOST):
            await self._wire.stream.receive_some(1)


class HttpConnection:
    """One connection, whose requests are answered one after another."""

    def __init__(self, stream: trio.abc.Stream, welcome: Callable[[], None] = lambda: None) -> None:
        self.stream = stream
        self.welcome = welcome
        """Called when the client has shown that it may use the gateway."""
        self.h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT)

    @property
    def has_unread(self) -> bool:
        """Whether a part of the request's body was not read."""
        return self.h11.their_state is h11.SEND_BODY

    async def requests(self) -> AsyncGenerator[Exchange, None]:
        """Yield the requests, each after the one before was answered, until the connection ends."""
        timeout = HEAD_TIMEOUT
        while True:
            with trio.move_on_after(timeout) as scope:
                event = await self._next()
            if scope.cancelled_caught or not isinstance(event, h11.Request):
                return
            yield Exchange(self, event)
            if self.h11.our_state is not h11.DONE or self.h11.their_state is not h11.DONE:
                return
            self.h11.start_next_cycle()
            timeout = IDLE_TIMEOUT

    async def body(self) -> AsyncGenerator[bytes, None]:
        """Yield the parts of the current request's body. Raises RequestRefused."""
        while True:
            event = await self._next()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return
            else:
                raise RequestRefused(400, "the body ended before its length")

    async def respond(self, status: int, headers: Headers) -> None:
        """Send the head of an answer. Raises Gone."""
        whole = [("Date", formatdate(usegmt=True)), *SECURITY, *headers]
        reason = HTTPStatus(status).phrase.encode("ascii")
        await self.send(h11.Response(status_code=status, headers=whole, reason=reason))

    async def send(self, event: Any) -> None:
        """Send one event of h11. Raises Gone."""
        data = self.h11.send(event)
        if data:
            await send_all(self.stream, data)

    async def _next(self) -> Any:
        """Return the next event of h11. Raises RequestRefused for bytes that are not HTTP."""
        while True:
            try:
                event = self.h11.next_event()
            except h11.RemoteProtocolError as error:
                raise RequestRefused(error.error_status_hint, f"not HTTP/1.1: {error}") from None
            if event is not h11.NEED_DATA:
                return event
            try:
                self.h11.receive_data(bytes(await self.stream.receive_some(READ)))
            except LOST:
                return h11.ConnectionClosed()


async def send_all(stream: trio.abc.Stream, data: bytes) -> None:
    """Send data within `SEND_TIMEOUT`. Raises Gone."""
    with trio.move_on_after(SEND_TIMEOUT) as scope:
        try:
            await stream.send_all(data)
        except LOST as error:
            raise Gone(str(error)) from None
    if scope.cancelled_caught:
        raise Gone(f"nothing was read for {SEND_TIMEOUT:g} s")
