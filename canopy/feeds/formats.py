"""`read_feed`: detect the format of a feed and read it."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

import msgpack  # type: ignore[import-untyped]

from canopy.feeds.constants import DETECT_BYTES, FORMATS, WHOLE_LIMIT
from canopy.feeds.documents import documents
from canopy.feeds.drafts import BadEventError, FeedEvent, Item, Refusal, object_of
from canopy.feeds.geojson import features
from canopy.feeds.jsontext import parse
from canopy.feeds.lines import json_lines
from canopy.feeds.messagepack import maps
from canopy.feeds.table import is_table, rows
from canopy.feeds.unreadable import looks_like

COLLECTION: Final = re.compile(rb'^\s*\{.*"type"\s*:\s*"FeatureCollection"', re.DOTALL)
GZIP: Final = b"\x1f\x8b"
READ: Final = "JSON, JSON lines, CloudEvents, GeoJSON, CSV or MessagePack"


def read_feed(
    stream: BinaryIO,
    format: str = "auto",
    types: Mapping[str, str] | None = None,
    session: str = "",
) -> Iterator[Item]:
    """Events and refusals of a feed, in its order and as it is read; packed by gzip or not.

    `format` is one of `FORMATS`; "auto" examines the first `DETECT_BYTES`. `types`: of columns of a
    CSV file (`table.TYPES`). `session`: what the ids of events without one begin with, before their
    places. Raises ValueError for an unknown format.
    """
    source = stream if isinstance(stream, io.BufferedReader) else _buffered(stream)
    if source.peek(len(GZIP)).startswith(GZIP):
        items = _unpacked(source, format, types or {})
    else:
        items = _read(source, format, types or {})
    return with_ids(items, f"{session}-" if session else "")


def with_ids(items: Iterator[Item], prefix: str) -> Iterator[Item]:
    """The items; each event without an id gets one, `prefix` and its place."""
    for item in items:
        if isinstance(item, FeedEvent) and item.place and item.draft.attributes.get("id") is None:
            item.draft.attributes["id"] = f"{prefix}{item.place}"
        yield item


def _unpacked(source: BinaryIO, format: str, types: Mapping[str, str]) -> Iterator[Item]:
    """As `read_feed`, of a stream that gzip packed."""
    number = 0
    try:
        unpacked: Any = io.BufferedReader(gzip.GzipFile(fileobj=source))
        for item in _read(unpacked, format, types):
            number = item.number
            yield item
    except (EOFError, OSError, zlib.error) as error:
        yield Refusal(number + 1, f"damaged gzip ({error}); the rest is not read")


def _read(source: io.BufferedReader, format: str, types: Mapping[str, str]) -> Iterator[Item]:
    if format == "auto":
        head = source.peek(DETECT_BYTES)[:DETECT_BYTES]
        known = looks_like(head)
        if known:
            return iter((Refusal(0, f"this looks like {known}; what is read is {READ}"),))
        format = detect(head)
    if format in ("geojson", "json"):
        whole = source.read(WHOLE_LIMIT + 1)
        if len(whole) > WHOLE_LIMIT:
            return iter((Refusal(0, f"larger than {WHOLE_LIMIT} bytes"),))
        return features(whole) if format == "geojson" else documents(whole)
    if format == "csv":
        return rows(source, types)
    if format == "msgpack":
        return maps(source)
    if format == "cloudevents":
        return json_lines(source, cloudevents=True)
    if format == "jsonl":
        return json_lines(source)
    raise ValueError(f"unknown format {format!r}; expected one of {', '.join(FORMATS)}")


def detect(head: bytes) -> str:
    """The format of a stream that begins with `head`: jsonl, json, geojson, csv or msgpack.

    (CloudEvents and flat objects are distinguished line by line.) If the first line is a complete
    JSON value, it decides; else the beginning of a FeatureCollection does, since such a file may
    have many lines. JSON never begins with the first byte of a MessagePack map.
    """
    text = head.removeprefix(b"\xef\xbb\xbf")
    if _begins_with_map(text):
        return "msgpack"
    try:
        first = parse(text.lstrip().partition(b"\n")[0])
        whole = isinstance(first, dict) and first.get("type") == "FeatureCollection"
        return "geojson" if whole and isinstance(first.get("features"), list) else "jsonl"
    except BadEventError:
        if COLLECTION.match(text):
            return "geojson"
        if _continues(text.lstrip()):
            return "json"
        return "csv" if is_table(text.decode("utf-8", "replace")) else "jsonl"


def _continues(text: bytes) -> bool:
    """Whether an array or a pretty-printed object begins in the first line and goes on in the
    second, which a line of its own, after a broken one, would begin with a brace."""
    first, _, rest = text.partition(b"\n")
    if first.startswith(b"["):
        return True
    return first.startswith(b"{") and rest[:1] in (b" ", b"\t", b'"', b"}", b"\r", b"\n")


def _begins_with_map(head: bytes) -> bool:
    """Whether `head` begins with a MessagePack map whose first key is a text, or may do so."""
    if not head or not (0x81 <= head[0] <= 0x8F or head[0] in (0xDE, 0xDF)):
        return False
    unpacker = msgpack.Unpacker(strict_map_key=False, object_pairs_hook=object_of)
    unpacker.feed(head)
    try:
        return bool(unpacker.read_map_header()) and isinstance(unpacker.unpack(), str)
    except msgpack.OutOfData:
        return True
    except (ValueError, msgpack.UnpackException):
        return False


def _buffered(stream: BinaryIO) -> io.BufferedReader:
    """A raw stream or a BytesIO as a stream with `peek`."""
    raw = io.BytesIO(stream.read()) if not isinstance(stream, io.RawIOBase) else stream
    return io.BufferedReader(raw)
