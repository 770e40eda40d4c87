"""The feeds of followers: the events of a selector or of a stream, and the gaps between them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Literal, Protocol

import msgspec
from msgspec.structs import replace

from canopy.client.client import AsyncClient
from canopy.client.consumer import AsyncSubscription
from canopy.client.errors import (
    CommandFailed,
    CommandTimeoutError,
    ControlError,
    NodeFullError,
    SelectorRefusedError,
    UnreachableError,
)
from canopy.client.notices import Disconnected, Notice
from canopy.client.streams.management import newest_stream
from canopy.client.streams.positions import Positions
from canopy.client.streams.reading import AsyncReading, Start, parse_start
from canopy.feeds.objects import delivery_object, stream_object
from canopy.feeds.structured import cloudevent_object
from canopy.gateway.access import Permission, RequestRefused
from canopy.gateway.constants import SUBSCRIBE_TIMEOUT
from matching import SelectorError, compile_selector
from overlay.client import Delivery, StreamEvent

Format = Literal["json", "cloudevents", "event"]


class Item(msgspec.Struct, frozen=True):
    """An item for a follower. `kind`: "event", or "gap" with the known facts about it. `id`: the id
    with which a follower of a stream continues (`FeedRequest.after`), or the event's identity.
    `data`: an object that is written as JSON; for MQTT the `Event` itself."""

    kind: Literal["event", "gap"]
    id: str
    data: Any


class FeedRequest(msgspec.Struct, frozen=True):
    """A follower's request. `stream`: "" for events as they are published. `start` (first, new, an
    offset, a time, an item's id) and `after` (an item's id, which has precedence) are the place in
    a stream at which it begins. `last`: read a stream that captures all events of the selector, the
    newest of each key first. `format`: the form of events: as `canopy sub --json` writes them,
    structured CloudEvents, or the `Event`."""

    selector: str = "TRUE"
    stream: str = ""
    last: bool = False
    start: str = "new"
    after: str = ""
    format: Format = "json"


class OpenFeed(Protocol):
    """An open feed. One task takes from it."""

    @property
    def position(self) -> str:
        """The id at which a stream's follower continues after all taken items; "" for live events,
        which cannot be read again."""
        ...

    async def take(self, timeout: float) -> list[Item]:
        """Return the items that arrive within `timeout` seconds, perhaps none. Raises a
        ControlError."""
        ...

    async def close(self) -> None:
        """End the feed at the node."""
        ...


async def follow(client: AsyncClient, grant: Permission, wanted: FeedRequest) -> OpenFeed:
    """Open the requested feed, confined to the grant's rights. Raises RequestRefused."""
    grant.check("subscribe")
    try:
        compile_selector(wanted.selector)  # by itself, before it is put into parentheses
        selector = grant.confined(wanted.selector)
        if wanted.last:
            name = newest_stream(await client.streams(SUBSCRIBE_TIMEOUT), wanted.selector)
            wanted = replace(wanted, stream=name, start="keys")
        if wanted.stream:
            return await _read(client, wanted, selector)
        source = await client.subscribe(selector, timeout=SUBSCRIBE_TIMEOUT)
        return _Live(source, SHOWN[wanted.format])
    except SelectorError as error:
        raise RequestRefused(400, f"invalid selector\n{error.caret()}") from None
    except ControlError as error:
        raise refusal(error) from None


async def _read(client: AsyncClient, wanted: FeedRequest, selector: str) -> OpenFeed:
    positions = positions_of(wanted.after or (wanted.start if "@" in wanted.start else ""))
    start: Start | int = "first" if positions else "new"
    at = 0
    if not positions:
        try:
            start, at = parse_start(wanted.start)
        except ValueError as error:
            raise RequestRefused(400, f"from: {error}") from None
    reading = await client.read(
        wanted.stream, selector, start=start, at=at, positions=positions, timeout=SUBSCRIBE_TIMEOUT
    )
    return _Stream(reading, wanted.format)


def positions_of(text: str) -> Positions:
    """Return the positions in the id of a stream's item. Raises RequestRefused."""
    try:
        return Positions.parse(text) if text else Positions()
    except ValueError as error:
        raise RequestRefused(400, str(error)) from None


def refusal(error: ControlError) -> RequestRefused:
    """Return the refusal to send to a client of the gateway for a node's error."""
    if isinstance(error, SelectorRefusedError):
        return RequestRefused(400, f"invalid selector\n{error}")
    if isinstance(error, NodeFullError):
        return RequestRefused(503, str(error))
    if isinstance(error, UnreachableError):
        return RequestRefused(503, f"the node is away: {error}")
    if isinstance(error, CommandTimeoutError):
        return RequestRefused(504, str(error))
    if isinstance(error, CommandFailed):
        known = {"unknown": 404, "usage": 400, "event": 400, "too-large": 413, "quota": 429}
        known |= {"offset-out-of-range": 410, "leaving": 503, "expired": 410, "position-lost": 410}
        known |= {"no-majority": 503, "in-doubt": 504}
        return RequestRefused(known.get(error.code, 409), error.reason, code=error.code)
    return RequestRefused(502, str(error))


class _Live:
    """The events of a selector as they are published."""

    def __init__(self, source: AsyncSubscription, shown: Callable[[Delivery], Any]) -> None:
        self._source = source
        self._shown = shown
        self.position = ""

    async def take(self, timeout: float) -> list[Item]:
        """Return the events and gaps that arrive within `timeout` seconds."""
        return [self._item(one) for one in await self._source.receive(timeout)]

    async def close(self) -> None:
        """End the subscription at the node."""
        self._source.close()

    def _item(self, one: Delivery | Notice) -> Item:
        if isinstance(one, Delivery):
            return Item("event", one.event.identity, self._shown(one))
        if isinstance(one, Disconnected):
            return Item("gap", "", {"cause": "disconnected", "reason": one.reason})
        found = msgspec.to_builtins(one)
        found.pop("subscriptions", None)
        return Item("gap", "", {name: value for name, value in found.items() if value})


class _Stream:
    """The rows of a stream, each with the position after it."""

    def __init__(self, reading: AsyncReading, format_: Format) -> None:
        self._reading = reading
        self._format = format_
        self._positions = reading.positions.copy()
        self._waits = ""

    @property
    def position(self) -> str:
        """The positions after the last row that was taken."""
        return str(self._positions)

    async def take(self, timeout: float) -> list[Item]:
        """Return the rows that arrive within `timeout` seconds, and a gap if none can."""
        items = [self._item(event) for event in await self._reading.take(timeout)]
        self._positions = self._reading.positions.copy()
        if self._reading.waits not in ("", self._waits):
            reason = {"cause": "no-majority", "reason": self._reading.waits}
            items.append(Item("gap", str(self._positions), reason))
        self._waits = self._reading.waits
        return items

    async def close(self) -> None:
        """End the reading at the node."""
        with suppress(ControlError):
            await self._reading.close()

    def _item(self, event: StreamEvent) -> Item:
        self._positions[event.shard] = event.offset + 1
        name = self._reading.stream
        if self._format == "json":
            shown = stream_object(name, event)
        else:
            identity = f"{name}.{event.shard}.{event.offset}"
            whole = (event.attributes, event.payload, event.payload_type)
            shown = cloudevent_object(*whole, identity, f"canopy:/streams/{name}", event.time)
        return Item("event", str(self._positions), shown)


def _live_cloudevent(delivery: Delivery) -> dict[str, Any]:
    event = delivery.event
    whole = (event.attributes, event.payload, event.payload_type)
    source = f"canopy:/nodes/{event.publisher}"
    return cloudevent_object(*whole, event.identity, source, event.time or time.time())


SHOWN: Final[dict[Format, Callable[[Delivery], Any]]] = {
    "json": delivery_object,
    "cloudevents": _live_cloudevent,
    "event": lambda delivery: delivery.event,
}
