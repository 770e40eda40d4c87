"""`read_feed`: detect the format of a feed and read it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import BinaryIO, Final

import msgpack  # type: ignore[import-untyped]

from canopy.cli.constants import DETECT_BYTES, FORMATS, GEOJSON_LIMIT
from canopy.cli.feeds.drafts import BadEventError, Item, Refusal, object_of
from canopy.cli.feeds.geojson import features
from canopy.cli.feeds.jsontext import parse
from canopy.cli.feeds.lines import json_lines
from canopy.cli.feeds.messagepack import maps

COLLECTION: Final = re.compile(rb'^\s*\{.*"type"\s*:\s*"FeatureCollection"', re.DOTALL)


def read_feed(stream: BinaryIO, format: str = "auto") -> Iterator[Item]:
    """Events and refusals of a feed, in its order and as it is read.

    `format` is one of `FORMATS`; "auto" examines the first `DETECT_BYTES`. Raises ValueError for an
    unknown format.
    """
    source = stream if isinstance(stream, io.BufferedReader) else _buffered(stream)
    if format == "auto":
        format = detect(source.peek(DETECT_BYTES)[:DETECT_BYTES])
    if format == "geojson":
        whole = source.read(GEOJSON_LIMIT + 1)
        if len(whole) > GEOJSON_LIMIT:
            return iter((Refusal(0, f"larger than {GEOJSON_LIMIT} bytes"),))
        return features(whole)
    if format == "msgpack":
        return maps(source)
    if format == "cloudevents":
        return json_lines(source, cloudevents=True)
    if format == "jsonl":
        return json_lines(source)
    raise ValueError(f"unknown format {format!r}; expected one of {', '.join(FORMATS)}")


def detect(head: bytes) -> str:
    """The format of a stream that begins with `head`: jsonl, geojson or msgpack.

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
        return "geojson" if COLLECTION.match(text) else "jsonl"


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
