"""The paths: `/events` (publish, follow), `/api/` (ask the node), `/livez`, and the console."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import trio

from canopy.client.client import AsyncClient
from canopy.client.publication import Drafting
from canopy.gateway.access import GatewayRules, Permission, RequestRefused
from canopy.gateway.constants import KEEP_ALIVE, RECHECK, RETRY_AFTER
from canopy.gateway.events import drafts_of
from canopy.gateway.feeds import FeedRequest, Item, OpenFeed, follow
from canopy.gateway.http.api import answer, dry_run, is_api
from canopy.gateway.http.exchange import LOST, Exchange, Gone, HttpConnection
from canopy.gateway.http.sockets import Socket, is_upgrade, protocol_token
from canopy.gateway.publication import publish
from canopy.wire.log import Log
from overlay.phrases import shown_json

PAGE: Final = Path(__file__).with_name("page")
CLIENT: Final = Path(__file__).parents[1] / "javascript"

SCRIPT: Final = "text/javascript; charset=utf-8"

PARTS: Final = {
    "/": (PAGE / "index.html", "text/html; charset=utf-8"),
    **{
        f"/{name}.js": (PAGE / f"{name}.js", SCRIPT)
        for name in ("console", "asking", "events", "views")
    },
    "/console.css": (PAGE / "console.css", "text/css; charset=utf-8"),
    "/canopy.js": (CLIENT / "canopy.js", SCRIPT),
}
"""The file and media type of each path: the console, and the JavaScript client, which it uses
too."""

POLICY: Final = (
    "Content-Security-Policy",
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
)
"""The content security policy: the page runs only its own script, and connects only to this
gateway."""


def part(path: str) -> tuple[bytes, str] | None:
    """Return content and media type of a part of the page; None if `path` is not one."""
    if path not in PARTS:
        return None
    file, kind = PARTS[path]
    return file.read_bytes(), kind


METHODS: Final = "GET, HEAD, POST, OPTIONS"
YES: Final = ("1", "true", "yes", "")


class HttpDoor:
    """Serves all HTTP connections."""

    def __init__(self, client: AsyncClient, access: GatewayRules, log: Log) -> None:
        self._client = client
        self._access = access
        self._log = log
        self._drafting = Drafting()

    async def serve(
        self, stream: trio.abc.Stream, peer: str, welcome: Callable[[], None] = lambda: None
    ) -> None:
        """Answer the requests of one connection. `peer` is for the log; `welcome` is called when
        the client has shown that it may publish or follow."""
        connection = HttpConnection(stream, welcome)
        try:
            async with aclosing(connection.requests()) as requests:
                async for exchange in requests:
                    await self._answer(exchange, peer)
        except RequestRefused as error:  # it was no request
            self._log.debug("malformed", peer=peer, reason=error.reason)
            with trio.move_on_after(1.0):
                await self._refuse_unread(connection, error)
        except (Gone, *LOST) as error:
            self._log.debug("gone", peer=peer, reason=str(error))

    async def _refuse_unread(self, connection: HttpConnection, error: RequestRefused) -> None:
        text = json.dumps({"error": error.reason}) + "\n"
        about = [("Connection", "close"), ("Content-Length", str(len(text)))]
        try:
            import h11

            await connection.respond(error.status, about)
            await connection.send(h11.Data(data=text.encode()))
            await connection.send(h11.EndOfMessage())
        except (Gone, h11.LocalProtocolError):
            return

    async def _answer(self, exchange: Exchange, peer: str) -> None:
        try:
            origin = exchange.headers.get("origin", "")
            self._access.check_browser(exchange.headers.get("host", ""), origin)
            if self._access.allowed_origin(origin):
                exchange.extra += [("Access-Control-Allow-Origin", origin), ("Vary", "Origin")]
            await self._route(exchange)
        except RequestRefused as error:
            about = {"peer": peer, "status": error.status, "reason": error.reason}
            self._log.info("refused", method=exchange.method, path=exchange.path, **about)
            await exchange.refuse(error)

    async def _route(self, exchange: Exchange) -> None:
        method, path = exchange.method, exchange.path
        if method == "OPTIONS":
            await self._preflight(exchange)
        elif path == "/events" and method == "POST":
            await self._publish(exchange)
        elif path == "/events" and method == "GET":
            await self._follow(exchange)
        elif path == "/api/dry-run" and method == "POST":
            await self._dry_run(exchange)
        elif is_api(path) and method == "GET":
            grant = self._access.grant(exchange.bearer())
            exchange.welcome()
            told = await answer(self._client, grant, path, exchange.query)
            await exchange.answer_json(told)
        elif path == "/livez" and method in ("GET", "HEAD"):
            await exchange.answer(200, b"ok\n", "text/plain; charset=utf-8")
        elif (found := part(path)) is not None and method in ("GET", "HEAD"):
            await exchange.answer(200, *found, headers=[POLICY])
        elif path in ("/events", "/livez") or is_api(path) or found is not None:
            raise RequestRefused(405, f"{method} is not for {path}; it takes {METHODS}")
        else:
            raise RequestRefused(404, f"there is no {path}; try /events, /api/status, /livez or /")

    async def _preflight(self, exchange: Exchange) -> None:
        """Answer a browser's preflight request (CORS)."""
        allowed = "authorization, content-type, last-event-id"
        asked = exchange.headers.get("access-control-request-headers", "").lower().split(",")
        own = [name.strip() for name in asked if name.strip().startswith("ce-")]
        headers = [
            ("Allow", METHODS),
            ("Access-Control-Allow-Methods", METHODS),
            ("Access-Control-Allow-Headers", ", ".join([allowed, *own])),
            ("Access-Control-Max-Age", "600"),
        ]
        await exchange.answer(204, headers=headers)

    async def _publish(self, exchange: Exchange) -> None:
        grant = self._access.grant(exchange.bearer())
        grant.check("publish")  # before the body is taken
        exchange.welcome()
        if name := exchange.repeated("ce-"):
            raise RequestRefused(400, f"the header {name} is given twice")
        body = await exchange.body()
        drafts = drafts_of(exchange.headers, body, self._drafting)
        told = await self._send(grant, drafts, exchange.query)
        await exchange.answer_json(told)

    async def _dry_run(self, exchange: Exchange) -> None:
        grant = self._access.grant(exchange.bearer())
        grant.check_observer()  # before the body is taken
        exchange.welcome()
        drafts = drafts_of(exchange.headers, await exchange.body(), self._drafting)
        await exchange.answer_json(await dry_run(self._client, grant, drafts))

    async def _send(
        self, grant: Permission, drafts: list[Any], query: dict[str, str]
    ) -> dict[str, Any]:
        receipt = query.get("receipt", "no").lower() in YES
        return await publish(self._client, grant, drafts, query.get("stream", ""), receipt)

    async def _follow(self, exchange: Exchange) -> None:
        as_socket = is_upgrade(exchange)
        secret = exchange.bearer() or (protocol_token(exchange) if as_socket else "")
        grant = self._access.grant(secret)
        exchange.welcome()
        wanted = wanted_of(exchange)
        if as_socket:
            await self._serve_socket(exchange, grant, wanted)
            return
        feed = await follow(self._client, grant, wanted)
        try:
            async with trio.open_nursery() as nursery:

                async def until_gone() -> None:
                    await exchange.gone()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(until_gone)
                await send_events(exchange, feed, lambda: self._access.is_still_good(grant))
                nursery.cancel_scope.cancel()
        finally:
            await close_feed(feed)
        raise Gone("it stopped following")

    async def _serve_socket(
        self, exchange: Exchange, grant: Permission, wanted: FeedRequest
    ) -> None:
        """Serve a WebSocket; without `where` and `stream` it only publishes."""
        feed: OpenFeed | None = None
        if {"where", "stream", "last"} & exchange.query.keys():
            feed = await follow(self._client, grant, wanted)
        try:
            socket = Socket(exchange)
            await socket.accept()

            async def take(text: bytes) -> dict[str, Any]:
                grant.check("publish")
                kind = {"content-type": "application/json"}
                drafts = drafts_of(kind, text, self._drafting)
                return await self._send(grant, drafts, exchange.query)

            await socket.serve(feed, lambda: self._access.is_still_good(grant), take)
        finally:
            if feed is not None:
                await close_feed(feed)
        raise Gone("the WebSocket is closed")


async def close_feed(feed: OpenFeed) -> None:
    """End a feed at the node, even if this task is being cancelled."""
    with trio.move_on_after(2.0, shield=True):
        await feed.close()


def wanted_of(exchange: Exchange) -> FeedRequest:
    """Return a follower's request from its query and headers. Raises RequestRefused."""
    query = exchange.query
    unknown = query.keys() - {"where", "stream", "last", "from", "format", "receipt"}
    if unknown:
        names = ", ".join(sorted(unknown))
        raise RequestRefused(
            400, f"{names}: unknown; known are where, stream, last, from and format"
        )
    format_ = query.get("format", "json")
    if format_ not in ("json", "cloudevents"):
        raise RequestRefused(400, f"format {format_!r}: json or cloudevents is wanted")
    stream = query.get("stream", "")
    if "from" in query and not stream:
        raise RequestRefused(400, "from: only a stream has events of before; name one with stream")
    last = query.get("last", "no").lower() in YES
    if last and stream:
        raise RequestRefused(400, "last: it finds its stream; give from=keys of one that is named")
    after = exchange.headers.get("last-event-id", "") if stream or last else ""
    selector = query.get("where", "") or "TRUE"
    start = query.get("from", "new")
    return FeedRequest(selector, stream, last, start, after, format_)  # type: ignore[arg-type]


EVENT_STREAM: Final = "text/event-stream; charset=utf-8"


async def send_events(exchange: Exchange, feed: OpenFeed, is_good: Callable[[], bool]) -> None:
    """Write the feed's items as server-sent events (WHATWG HTML, 9.2), until `is_good` returns
    false: the token is no longer valid. Raises Gone.

    Each event has an `id`, from which a follower of a stream continues after a break: browsers send
    it back as `Last-Event-ID`. The position is also sent by itself, before the first event and
    while none arrives; without it a follower whose connection breaks then would skip the events in
    between. A gap is an event of the type `gap`.
    """
    await exchange.begin(EVENT_STREAM)
    await exchange.write(f"retry: {RETRY_AFTER * 1000}\n: subscribed\n{place(feed)}\n".encode())
    silent = 0.0
    while is_good():
        items = await feed.take(RECHECK)
        if items:
            silent = 0.0
            await exchange.write(b"".join(map(written, items)))
            continue
        silent += RECHECK
        if silent >= KEEP_ALIVE:
            silent = 0.0
            await exchange.write(f": waiting\n{place(feed)}\n".encode())
    await exchange.write(b'event: end\ndata: {"reason": "the token is no longer good"}\n\n')


def place(feed: OpenFeed) -> str:
    """Return the line with the follower's position in a stream; "" for live events."""
    return f"id: {feed.position}\n" if feed.position else ""


def written(item: Item) -> bytes:
    """Encode one item in the format of server-sent events."""
    data = shown_json(json.dumps(item.data, ensure_ascii=False))  # one line: it has no line ends
    kind = "" if item.kind == "event" else f"event: {item.kind}\n"
    identity = f"id: {item.id}\n" if item.id else ""
    return f"{kind}{identity}data: {data}\n\n".encode("utf-8", "replace")
