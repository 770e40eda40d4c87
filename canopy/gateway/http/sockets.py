"""WebSockets: events as messages in both directions (RFC 6455, by wsproto)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from canopy.gateway.access import RequestRefused
from canopy.gateway.constants import KEEP_ALIVE, MESSAGE_LIMIT, RECHECK
from canopy.gateway.feeds import Item, OpenFeed
from canopy.gateway.http.exchange import LOST, READ, Exchange, Gone, first_cause, send_all
from overlay.phrases import shown_json

PROTOCOL = "canopy"
"""The subprotocol. A browser cannot set headers for a WebSocket, so it may send its token as a
second subprotocol, ``bearer.TOKEN``, which is never echoed."""

BEARER = "bearer."
NORMAL, PROTOCOL_ERROR, TEXT_ONLY, POLICY, TOO_LARGE = 1000, 1002, 1003, 1008, 1009
"""Codes of closing (RFC 6455, 7.4.1)."""


def is_upgrade(exchange: Exchange) -> bool:
    """Return whether a request asks for a WebSocket."""
    return "websocket" in exchange.headers.get("upgrade", "").lower()


def protocol_token(exchange: Exchange) -> str:
    """Return the token among the subprotocols; "" without one."""
    offered = exchange.headers.get("sec-websocket-protocol", "").split(",")
    found = (name.strip() for name in offered)
    return next((name[len(BEARER) :] for name in found if name.startswith(BEARER)), "")


class Socket:
    """One WebSocket, after its handshake."""

    def __init__(self, exchange: Exchange) -> None:
        self._stream = exchange.stream
        self._wire = WSConnection(ConnectionType.SERVER)
        self._sending = trio.Lock()
        self._closed = False
        self._heard = trio.current_time()
        self._text = bytearray()  # of a message: one object, however many parts it comes in
        try:
            self._wire.initiate_upgrade_connection(exchange.raw_headers, exchange.target)
        except RemoteProtocolError as error:
            raise RequestRefused(400, f"no WebSocket handshake: {error}") from None
        self._trailing = exchange.trailing

    async def accept(self) -> None:
        """Finish the handshake. Raises Gone."""
        offered: list[str] = []
        for event in self._wire.events():
            if isinstance(event, Request):
                offered = list(event.subprotocols)
        chosen = PROTOCOL if PROTOCOL in offered else None
        await self._send(AcceptConnection(subprotocol=chosen))
        if self._trailing:
            self._wire.receive_data(self._trailing)

    async def serve(
        self,
        feed: OpenFeed | None,
        is_good: Callable[[], bool],
        publish: Callable[[bytes], Awaitable[dict[str, Any]]],
    ) -> None:
        """Send the items of `feed`, and call `publish` for messages of the other side, until one
        side closes or `is_good` returns false: the token is no longer valid. Raises Gone."""
        try:
            async with trio.open_nursery() as nursery:

                async def end(job: Callable[[], Awaitable[None]]) -> None:
                    await job()
                    nursery.cancel_scope.cancel()

                async def write() -> None:
                    await self._write(feed, is_good)

                async def read() -> None:
                    await self._read(publish)

                nursery.start_soon(end, read)
                nursery.start_soon(end, write)
        except* Gone as group:
            raise first_cause(group) from None

    async def close(self, code: int, reason: str) -> None:
        """Close with the closing handshake. Raises Gone."""
        if not self._closed:
            self._closed = True
            await self._send(CloseConnection(code=code, reason=reason[:100]))

    async def _write(self, feed: OpenFeed | None, is_good: Callable[[], bool]) -> None:
        pinged = trio.current_time()
        await self._say_place(feed)
        while is_good():
            if feed is None:
                await trio.sleep(RECHECK)
            else:
                for item in await feed.take(RECHECK):
                    await self._say(message(item))
            now = trio.current_time()
            if now - self._heard > 2 * KEEP_ALIVE + RECHECK:
                raise Gone("no answer to pings")
            if now - pinged >= KEEP_ALIVE:
                pinged = now
                await self._send(Ping())
                await self._say_place(feed)
        await self.close(POLICY, "the token is no longer good")

    async def _say_place(self, feed: OpenFeed | None) -> None:
        """Send the follower's position in the stream, as `send_events` does."""
        if feed is not None and feed.position:
            await self._say({"at": feed.position})

    async def _read(self, publish: Callable[[bytes], Awaitable[dict[str, Any]]]) -> None:
        while True:
            try:
                for event in self._wire.events():
                    if await self._on_event(event, publish):
                        return None
                data = bytes(await self._stream.receive_some(READ))
                self._heard = trio.current_time()
                self._wire.receive_data(data or None)
            except RemoteProtocolError as error:
                return await self.close(PROTOCOL_ERROR, str(error))
            except LOST as error:
                raise Gone(str(error)) from None

    async def _on_event(
        self, event: Event, publish: Callable[[bytes], Awaitable[dict[str, Any]]]
    ) -> bool:
        """Handle an event of wsproto. Returns whether the connection has ended."""
        if isinstance(event, Ping):
            await self._send(event.response())
        elif isinstance(event, CloseConnection):
            await self.close(NORMAL, "")
            return True
        elif isinstance(event, BytesMessage):
            await self.close(TEXT_ONLY, "text messages only")
            return True
        elif isinstance(event, TextMessage):
            self._text += event.data.encode("utf-8", "replace")
            if len(self._text) > MESSAGE_LIMIT:
                await self.close(TOO_LARGE, f"more than {MESSAGE_LIMIT} bytes")
                return True
            if event.message_finished:
                text, self._text = bytes(self._text), bytearray()
                try:
                    await self._say(await publish(text))
                except RequestRefused as error:
                    await self._say(error.shown())
        elif not isinstance(event, Pong):
            return True
        return False

    async def _say(self, value: dict[str, Any]) -> None:
        text = shown_json(json.dumps(value, ensure_ascii=False))
        await self._send(TextMessage(data=text))

    async def _send(self, event: Event) -> None:
        async with self._sending:
            try:
                data = self._wire.send(event)
            except LocalProtocolError as error:  # it is closed already
                raise Gone(str(error)) from None
            await send_all(self._stream, data)


def message(item: Item) -> dict[str, Any]:
    """Return an item as a message: ``{"event": …, "at": ID}`` or ``{"gap": …}``."""
    return {"event": item.data, "at": item.id} if item.kind == "event" else {"gap": item.data}
