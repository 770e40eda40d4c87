"""`read_feed`: detect the format of a feed and read it."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import PurePath
from typing import Any, BinaryIO, Final

from canopy.feeds.constants import EVENT_LIMIT, FORMATS, SUFFIXES
from canopy.feeds.drafts import FeedEvent, Item, Refusal
from canopy.feeds.lines import MARK, documents, json_feed, json_lines
from canopy.feeds.messagepack import begins_with_map, maps
from canopy.feeds.sequence import SEPARATOR, json_sequence
from canopy.feeds.source import FeedSource
from canopy.feeds.table import is_table, rows

UTF16: Final = "text in UTF-16 (iconv -f utf-16 -t utf-8 makes it readable)"

SIGNATURES: Final = (
    (b"PK\x03\x04", "a zip archive, or a spreadsheet (.xlsx)"),
    (b"PAR1", "Parquet"),
    (b"ARROW1", "Arrow"),
    (b"Obj\x01", "Avro"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"%PDF", "PDF"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"BZh", "a file packed by bzip2"),
    (b"\xfd7zXZ\x00", "a file packed by xz"),
    (b"\x28\xb5\x2f\xfd", "a file packed by zstd"),
    (b"<", "XML or HTML"),
    (b"\xff\xfe", UTF16),
    (b"\xfe\xff", UTF16),
    (b"{\x00", UTF16),
    (b"[\x00", UTF16),
)
"""The first bytes of files in other formats, from the formats' specifications."""


def looks_like(head: bytes) -> str:
    """Return the kind of file that begins with `head`, if it is known not to be one of a feed's
    formats; else ""."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return next((name for begin, name in SIGNATURES if text.startswith(begin)), "")


GZIP: Final = b"\x1f\x8b"
READ: Final = "JSON, JSON lines, CloudEvents, GeoJSON, CSV or MessagePack"


def read_feed(
    stream: BinaryIO,
    format: str = "auto",
    types: Mapping[str, str] | None = None,
    session: str = "",
    name: str = "",
) -> Iterator[Item]:
    """Yield events and refusals of a feed, in its order and as it is read. gzip is unpacked.

    `format`: one of `FORMATS`; "auto" is decided by the end of `name`, the file's name, or else by
    the first value or rows. `types`: types of columns of a CSV file (`table.TYPES`). `session`: the
    prefix of the ids of events without one, before their places. Raises ValueError for an unknown
    format.
    """
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; expected one of {', '.join(FORMATS)}")
    wanted = format_of(name) if format == "auto" else format
    source = FeedSource(io.BufferedReader(stream) if isinstance(stream, io.RawIOBase) else stream)
    packed = source.ahead(1) == GZIP[:1] and source.ahead(2) == GZIP
    items = (_unpacked if packed else _read)(source, wanted, types or {})
    return with_ids(items, f"{session}-" if session else "")


def format_of(name: str) -> str:
    """Return the format of a file by the end of its name, or "auto"."""
    return SUFFIXES.get(PurePath(name.lower().removesuffix(".gz")).suffix, "auto")


def with_ids(items: Iterator[Item], prefix: str) -> Iterator[Item]:
    """Yield the items; each event without an id gets one: `prefix` and its place."""
    for item in items:
        if isinstance(item, FeedEvent) and item.place and item.draft.attributes.get("id") is None:
            item.draft.attributes["id"] = f"{prefix}{item.place}"
        yield item


def _unpacked(source: FeedSource, format: str, types: Mapping[str, str]) -> Iterator[Item]:
    """Read a gzip stream as `read_feed` does."""
    number = 0
    packed: Any = source
    unpacked: Any = gzip.GzipFile(fileobj=packed)
    try:
        for item in _read(FeedSource(unpacked), format, types):
            number = item.number
            yield item
    except (EOFError, OSError, zlib.error) as error:
        yield Refusal(number + 1, f"damaged gzip ({error}); the rest is not read")


def _read(source: FeedSource, format: str, types: Mapping[str, str]) -> Iterator[Item]:
    if format == "auto":
        format = detect(source)
        if not format:
            known = looks_like(_first_line(source))
            return iter((Refusal(0, f"this looks like {known}; what is read is {READ}"),))
    read: dict[str, Callable[[FeedSource], Iterator[Item]]] = {
        "jsonl": json_lines,
        "json": json_feed,
        "json-seq": json_sequence,
        "cloudevents": partial(json_feed, cloudevents=True),
        "geojson": partial(documents, geojson=True),
        "csv": partial(rows, types=types),
        "msgpack": maps,
    }
    return read[format](source)


def detect(source: FeedSource) -> str:
    """Detect the format of a stream by its first bytes, which it waits for and leaves to be read:
    json, json-seq, csv, msgpack or jsonl; "" if it is none of a feed's formats.

    Input that begins with a brace or a bracket is JSON; `json_feed` determines its layout. Whether
    a value is a CloudEvent or GeoJSON is determined for each value.
    """
    if begins_with_map(source):
        return "msgpack"
    first = _first_line(source)
    if looks_like(first):
        return ""
    if first.startswith(SEPARATOR):
        return "json-seq"
    if first.startswith((b"{", b"[")):
        return "json"
    return "csv" if is_table(source) else "jsonl"


def _first_line(source: FeedSource) -> bytes:
    """Return the first line that is not blank, without leading space and byte order mark."""
    lines = (line.removeprefix(MARK).lstrip() for line in source.lines_ahead(EVENT_LIMIT))
    return next(filter(None, lines), b"")
