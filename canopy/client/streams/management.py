"""The options with which programs found and change streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from canopy.client.errors import CommandTimeoutError
from overlay.client import Streams
from overlay.info import StreamInfo
from overlay.stream_client import AddStream, EditStream


class StreamChanges(TypedDict, total=False):
    """Keyword arguments of `Client.edit_stream` beside the name: options of `canopy stream edit`,
    times in seconds and sizes in bytes; 0: no limit."""

    keep_seconds: float
    keep_bytes: int
    capture: str
    drop_unread: bool
    expire_consumers: float
    max_bytes: int
    max_rows: int
    when_full: str
    ttl_seconds: float
    ttl_by: str
    prefer: str
    writers: Sequence[str]


class StreamFounding(StreamChanges, total=False):
    """Keyword arguments of `Client.add_stream` beside the name: options of `canopy stream add`.
    `sources`: names of streams, or pairs (name, selector)."""

    shards: int
    by: str
    replicas: int
    sources: Sequence[str | tuple[str, str]]
    mirror: str
    region: str
    key: str
    deletes: str


def founding(name: str, options: StreamFounding) -> AddStream:
    """Return the command for the arguments of `Client.add_stream`. TypeError for an unknown
    option."""
    given: dict[str, object] = dict(options)
    sources = options.get("sources", ())
    given["sources"] = tuple((one, "") if isinstance(one, str) else one for one in sources)
    given["writers"] = tuple(options.get("writers", ()))
    return AddStream(0, name, **given)  # type: ignore[arg-type]


def change(name: str, changes: StreamChanges) -> EditStream:
    """Return the command for the arguments of `Client.edit_stream`. TypeError for an unknown
    option."""
    given: dict[str, object] = dict(changes)
    if "writers" in changes:
        given["writers"] = tuple(changes["writers"])
    return EditStream(0, name, **given)  # type: ignore[arg-type]


def whole(found: Streams) -> tuple[StreamInfo, ...]:
    """Return all streams; CommandTimeoutError if a part of the ring has not answered."""
    if not found.complete:
        raise CommandTimeoutError("a part of the ring did not answer: streams may be missing")
    return found.streams
