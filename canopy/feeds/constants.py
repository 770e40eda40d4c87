"""The bounds of feeds. Sizes are bytes."""

from __future__ import annotations

from typing import Final

EVENT_LIMIT: Final = 512 * 1024
"""One event as it stands in the feed: half of the largest frame between nodes (1 MiB,
docs/reference/wire.md), because a batch carries more than the event itself."""

RAW_LIMIT: Final = 8 * EVENT_LIMIT
"""One line of `sub --raw`: JSON takes at most six bytes for one of a text, and less than eight for
one of another value."""

NESTING_LIMIT: Final = 200
"""Levels of a nested value; the interpreter's own stack ends at a thousand. Guess: deeper than any
feed that was seen."""

FORMATS: Final = (
    *("auto", "jsonl", "json", "json-seq", "cloudevents"),
    *("geojson", "csv", "msgpack"),
)
"""What a feed may be; "auto" is found out from its name, or else from its first value or rows."""

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
"""What files are by the ends of their names, before a ``.gz``. ``.json`` is in use for all of JSON,
which is found out."""

SEQUENCE_ATTEMPTS: Final = 8
"""Lines of one text of a JSON text sequence at which it is looked whether it is complete; looking
at each one would take quadratic time."""

TABLE_AHEAD: Final = 2 * EVENT_LIMIT
"""A header and the row below it, which are looked at to find out whether a feed is a table."""

WHOLE_LIMIT: Final = 512 * 1024 * 1024
"""A whole file of GeoJSON, or of JSON that is not one object per line, which is parsed at once; a
month of all earthquakes has 10 MB. Guess; to be measured by the memory that parsing takes."""

MSGPACK_READ: Final = 64 * 1024  # asked for in one read of a MessagePack stream
