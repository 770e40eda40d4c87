"""The bounds of feeds. Sizes are bytes."""

from __future__ import annotations

from typing import Final

EVENT_LIMIT: Final = 512 * 1024
"""The largest event in a feed: half of the largest frame between nodes (1 MiB,
docs/reference/wire.md), because a batch carries more than the event itself."""

RAW_LIMIT: Final = 8 * EVENT_LIMIT
"""The largest line of `sub --raw`: JSON takes at most six bytes for one byte of a text, and less
than eight for one of another value."""

NESTING_LIMIT: Final = 200
"""The most levels of a nested value; the interpreter's own stack ends at a thousand. Guess: deeper
than any feed that was seen."""

FORMATS: Final = (
    *("auto", "jsonl", "json", "json-seq", "cloudevents"),
    *("geojson", "csv", "msgpack"),
)
"""The formats of feeds; "auto" is detected from the file's name, or else from the first value or
rows."""

SUFFIXES: Final = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".geojsonl": "jsonl",
    ".json-seq": "json-seq",
    ".geojsons": "json-seq",
    ".geojson": "geojson",
    ".csv": "csv",
    ".tsv": "csv",
    ".msgpack": "msgpack",
    ".mpk": "msgpack",
}
"""Formats by the ends of file names, before a ``.gz``. ``.json`` is in use for all layouts of JSON,
so the layout is detected."""

SEQUENCE_ATTEMPTS: Final = 8
"""The most lines of one text of a JSON text sequence after which it is checked for completeness;
checking at each line would take quadratic time."""

TABLE_AHEAD: Final = 2 * EVENT_LIMIT
"""The most bytes that are read ahead to detect a table: a header and the row below it."""

WHOLE_LIMIT: Final = 512 * 1024 * 1024
"""The largest file of GeoJSON, or of JSON that is not one object per line, which is parsed at once;
a month of all earthquakes has 10 MB. Guess; to be measured by the memory that parsing takes."""

MSGPACK_READ: Final = 64 * 1024  # asked for in one read of a MessagePack stream
