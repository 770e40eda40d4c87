"""Server-sent events: a follower's answer that does not end (WHATWG HTML, 9.2).

Each event has an `id`, from which a follower of a stream continues after a break: browsers send it
back as `Last-Event-ID`. The position is sent by itself as well, before the first event and while
none comes; without it a follower whose connection breaks then would skip what came meanwhile. A gap
is an event of the type `gap`.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from canopy.gateway.constants import KEEP_ALIVE, RECHECK, RETRY_AFTER
from canopy.gateway.following import Item, OpenFeed
from canopy.gateway.http.exchange import Exchange
from overlay.wording import shown_json

KIND = "text/event-stream; charset=utf-8"


async def send_events(exchange: Exchange, feed: OpenFeed, is_good: Callable[[], bool]) -> None:
    """Write what comes, until `is_good` (whether the token still is) says no. Raises Gone."""
    await exchange.begin(KIND)
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
    """The line that says where in a stream the follower is; "" of live events."""
    return f"id: {feed.position}\n" if feed.position else ""


def written(item: Item) -> bytes:
    """One item in the format of server-sent events."""
    data = shown_json(json.dumps(item.data, ensure_ascii=False))  # one line: it has no line ends
    kind = "" if item.kind == "event" else f"event: {item.kind}\n"
    identity = f"id: {item.id}\n" if item.id else ""
    return f"{kind}{identity}data: {data}\n\n".encode("utf-8", "replace")
