"""The rules by which a line of a trace file is a record.

A killed node leaves an incomplete line, and other tools may have written lines that are not
records. A line is a record of a kind in the schema, with the fields that identify what it is about,
or it is none, with a reason. A check and an analysis of a folder count the same lines as
unreadable, since both go by this file.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, Final

from canopy.traces.analysis.constants import LINE_BYTES
from canopy.traces.schema import COMMON, FIELDS, KINDS, READABLE

PIECE: Final = 1 << 20
"""Bytes that are read at once."""

DAMAGED: Final = (OSError, EOFError, zlib.error)
"""The errors of reading a damaged or protected file; `gzip.BadGzipFile` is an OSError."""

NEEDED: Final[dict[str, tuple[str, ...]]] = {
    "event": (
        *("publish", "visit", "match", "forward", "arrive", "duplicate"),
        *("recheck_failed", "deliver"),
    ),
    "subscription": ("subscribe", "suback", "unsubscribe", "deliver"),
    "walk": ("walk_start", "walk_hop", "walk_blocked", "walk_recovered", "walk_hit", "walk_miss"),
    "attribute": ("walk_start", "walk_hit", "walk_miss", "located", "absent", "unmatched"),
    "size": ("unmatched",),
    **dict.fromkeys(("overlay", "part", "sample", "written", "lost"), ("file",)),
    **dict.fromkeys(("first", "share"), ("sampling",)),
}
"""The kinds of records that need each of these fields."""

REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    kind: tuple(field for field, needing in NEEDED.items() if kind in needing) for kind in KINDS
}
"""The fields that a record of each kind must have."""

CUT_OFF: Final = "cut off"
NOT_FITTING: Final = "not a JSON object with the fields of a record"


class LineParser:
    """Parses one line after another. It is made where it is used: decoders cannot be sent."""

    def __init__(self) -> None:
        import msgspec

        limits = {
            "int": msgspec.Meta(ge=-(2**31), le=2**31 - 1),
            "long": msgspec.Meta(ge=-(2**63), le=2**63 - 1),
        }
        types: dict[str, Any] = {"string": str, "double": float}
        types |= {name: Annotated[int, limit] for name, limit in limits.items()}
        self._record: Any = msgspec.defstruct(
            "Record",
            [(name, types[kind] | None, None) for name, kind in FIELDS.items()],
            gc=False,  # no field refers to another record
        )
        self._strict = msgspec.json.Decoder(self._record)
        self._any = msgspec.json.Decoder()
        self._attributes = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[str])
        self._encode = msgspec.json.encode
        self._convert = msgspec.convert
        self._not_decoded = msgspec.DecodeError  # ValidationError is one, too

    def parse(self, line: bytes) -> tuple[Any, str]:
        """The record of a line that is not blank, and ""; or None, and why it is none."""
        record, problem = self.decode(line)
        return (None, problem) if problem else (record, "")

    def decode(self, line: bytes) -> tuple[Any, str]:
        """The same, but with the fields of a line that is no record, if it can be decoded."""
        if len(line) >= LINE_BYTES:
            return None, f"longer than {LINE_BYTES >> 20} MB"
        if not is_utf8(line):
            return None, "invalid UTF-8"
        try:
            record = self._strict.decode(line)
        except self._not_decoded:
            record, problem = self._leniently(line)
            if problem:
                return None, problem
        return record, _problem(record)

    def are_attributes(self, text: str | None) -> bool:
        """Whether this is JSON as the attributes of an event are recorded: an object, or a list of
        their names where values are redacted."""
        try:
            self._attributes.decode(text or "")
        except self._not_decoded:
            return False
        return True

    def _leniently(self, line: bytes) -> tuple[Any, str]:
        """A line that is not as nodes write it: as a text any JSON value is taken, and a field that
        its kind does not have is left out."""
        stripped = line.strip()
        if not stripped.startswith(b"{"):
            return None, "not a JSON object"
        try:
            found = self._any.decode(stripped)
            kind = found.get("kind")
            if isinstance(kind, str) and kind in KINDS:
                found = {name: found[name] for name in (*COMMON, *KINDS[kind]) if name in found}
            texts = {
                name: value if isinstance(value, str) else self._encode(value).decode()
                for name, value in found.items()
                if FIELDS.get(name) == "string" and value is not None
            }
            return self._convert(found | texts, self._record), ""
        except self._not_decoded:
            return None, NOT_FITTING if stripped.endswith(b"}") else CUT_OFF


def is_utf8(text: bytes) -> bool:
    """Whether `text` can be decoded."""
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _problem(record: Any) -> str:
    """Return why a JSON object with fields of these types is not a record; "" if it is one."""
    kind = record.kind
    if record.v is None or kind is None:
        return "not a trace record"
    if record.v not in READABLE:
        return f"schema version {record.v}, not {READABLE[0]} to {READABLE[-1]}"
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


def pieces(path: Path) -> Iterator[bytes]:
    """The text of a file, piece by piece. Raises one of `DAMAGED`."""
    with ExitStack() as stack:
        file: BufferedReader | gzip.GzipFile = stack.enter_context(path.open("rb"))
        if path.suffix == ".gz":
            file = stack.enter_context(gzip.GzipFile(fileobj=file))
        # Of a compressed file that is cut `read1` gives all that can be unpacked, `read` nothing.
        while piece := file.read1(PIECE):
            yield piece


def blocks_of(texts: Iterator[bytes]) -> Iterator[bytes]:
    """`texts` in blocks of whole lines; of a line longer than `LINE_BYTES` that much, as a block of
    its own. Holds a text and a line of this length at most."""
    rest = b""
    skipping = False  # the rest of a line that is too long
    for text in texts:
        if skipping:
            begin = text.find(b"\n") + 1
            if not begin:
                continue
            skipping = False
            text = text[begin:]
        end = text.rfind(b"\n") + 1
        if end:
            yield rest + text[:end]
            rest = text[end:]
        else:
            rest += text
            if len(rest) > LINE_BYTES:
                yield rest[:LINE_BYTES]
                rest, skipping = b"", True
    if rest:
        yield rest


def lines_of(texts: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of `texts` without their ends, those of a block together, and after them the
    text behind the last line feed, or nothing; of a line longer than `LINE_BYTES` that much."""
    return (block.split(b"\n") for block in blocks_of(texts))
