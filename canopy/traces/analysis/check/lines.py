"""Reads the lines of a trace file in this process, by the rules of ``read.py``.

Which line is a record, and why another is not, is the same as in Spark's reading, so that a check
and an analysis of a folder count the same lines as unreadable.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from canopy.traces.analysis.constants import LINE_BYTES
from canopy.traces.analysis.read import NEEDED
from canopy.traces.schema import FIELDS, KINDS, VERSION

PIECE: Final = 1 << 20
"""Bytes that are read at once."""

DAMAGED: Final = (OSError, EOFError, zlib.error)
"""What reading a damaged or protected file raises; `gzip.BadGzipFile` is an OSError."""

INT: Final = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
LONG: Final = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
TYPES: Final[dict[str, Any]] = {"string": str, "int": INT, "long": LONG, "double": float}
"""The types of `FIELDS` in Python."""

Record = msgspec.defstruct(
    "Record",
    [(name, TYPES[kind] | None, None) for name, kind in FIELDS.items()],
    gc=False,  # no field refers to another record
)
"""A record: each field of the schema, None if absent."""

REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    kind: tuple(field for field, needing in NEEDED.items() if kind in needing) for kind in KINDS
}
"""The fields that a record of each kind must have."""

CUT_OFF: Final = "cut off"
NOT_FITTING: Final = "not a JSON object with the fields of a record"

_strict = msgspec.json.Decoder(Record)
_any = msgspec.json.Decoder()
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def parse(line: bytes) -> tuple[Any, str]:
    """The record of a line that is not blank, and ""; or None, and why it is none."""
    if len(line) >= LINE_BYTES:
        return None, f"longer than {LINE_BYTES >> 20} MB"
    if not line.isascii() and not _is_utf8(line):
        return None, "invalid UTF-8"
    try:
        record = _strict.decode(line)
    except msgspec.DecodeError:
        record, problem = _leniently(line)
        if problem:
            return None, problem
    problem = _problem(record)
    return (None, problem) if problem else (record, "")


def is_object(text: str | None) -> bool:
    """Whether this is the JSON text of an object, as the attributes of an event."""
    try:
        _object.decode(text or "")
    except msgspec.DecodeError:
        return False
    return True


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _problem(record: Any) -> str:
    """Why a JSON object with fields of these types is not a record; "" if it is one."""
    kind = record.kind
    if record.v is None or kind is None:
        return "not a trace record"
    if record.v != VERSION:
        return f"schema version {record.v}, not {VERSION}"
    required = REQUIRED.get(kind)
    if required is None:
        return f"unknown kind {kind[:40]}"
    if record.node is None or record.time is None:
        return "no node or no time"
    if record.run is None or (kind != "file" and (record.n is None or record.hlc is None)):
        return "no run, number or hybrid logical clock"
    for field in required:
        if getattr(record, field) is None:
            return f"no {field} in a record of kind {kind}"
    return ""


def _leniently(line: bytes) -> tuple[Any, str]:
    """A line that is not as nodes write it: as a text Spark takes any JSON value."""
    stripped = line.strip()
    if not stripped.startswith(b"{"):
        return None, "not a JSON object"
    try:
        found = _any.decode(stripped)
        texts = {
            name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
            for name, value in found.items()
            if FIELDS.get(name) == "string" and value is not None
        }
        return msgspec.convert(found | texts, Record), ""
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None, NOT_FITTING if stripped.endswith(b"}") else CUT_OFF


def pieces(path: Path) -> Iterator[bytes]:
    """The text of a file, piece by piece. Raises one of `DAMAGED`."""
    with ExitStack() as stack:
        file: BufferedReader | gzip.GzipFile = stack.enter_context(path.open("rb"))
        if path.suffix == ".gz":
            file = stack.enter_context(gzip.GzipFile(fileobj=file))
        # Of a compressed file that is cut `read1` gives all that can be unpacked, `read` nothing.
        while piece := file.read1(PIECE):
            yield piece


def lines_of(texts: Iterator[bytes]) -> Iterator[list[bytes]]:
    """The lines of `texts`, those of a piece together, without their ends; of a line longer than
    `LINE_BYTES` that much. The last list has what follows the last line feed, or nothing."""
    rest = b""
    skipping = False
    for text in texts:
        first, *others = text.split(b"\n")
        if not skipping:
            rest += first
        if not others:
            if len(rest) > LINE_BYTES:
                rest, skipping = rest[:LINE_BYTES], True
            continue
        skipping = False
        yield [rest, *others[:-1]]
        rest = others[-1]
    yield [rest]
