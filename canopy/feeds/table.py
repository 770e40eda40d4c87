"""CSV (RFC 4180) with a header: a row is an event, its fields are attributes.

Separated by commas, semicolons, tabs or vertical bars, whichever the header has most of. A field's
type is inferred field by field unless `types` names it: an empty one is null; whole numbers without
leading zeros that fit in 64 bits, decimal numbers, and true and false are what they look like;
everything else is text.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import BinaryIO, Final

from canopy.feeds.constants import EVENT_LIMIT
from canopy.feeds.drafts import BadEventError, FeedEvent, Item, Refusal, check_fields, show
from canopy.feeds.flat import flat_draft
from canopy.feeds.lines import bounded_lines
from matching import Value
from overlay.wording import counted

SEPARATORS: Final = ",;\t|"
WHOLE: Final = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,18})")
DECIMAL: Final = re.compile(
    r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*|(?=[eE]))|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
)
TRUTH: Final = {"true": True, "false": False}
LARGEST: Final = 2**63
BROKEN: Final = "invalid UTF-8 (is it Latin-1? iconv -f latin1 -t utf-8 makes it readable)"


def inferred(text: str) -> Value | None:
    """The value that a field looks like."""
    if not text:
        return None
    if WHOLE.fullmatch(text) and -LARGEST <= int(text) < LARGEST:
        return int(text)
    if DECIMAL.fullmatch(text):
        return float(text)
    return TRUTH.get(text.lower(), text)


def _truth(text: str) -> bool:
    return TRUTH[text.lower()]


TYPES: Final[dict[str, Callable[[str], Value]]] = {
    "text": str,
    "int": int,
    "float": float,
    "bool": _truth,
}
"""The types that a column can be given."""


def rows(stream: BinaryIO, types: Mapping[str, str]) -> Iterator[Item]:
    """The events of a stream as they are read, numbered by the line at which their row ends.
    `types`: columns with a name of `TYPES`. A line that is too long ends the reading."""
    csv.field_size_limit(EVENT_LIMIT)  # of the process; else a field has 128 KiB at most
    reader: Iterator[list[str]] | None = None
    header: list[str] = []
    lines = _Lines(stream)
    try:
        for first in lines:
            reader = csv.reader(lines, delimiter=separator(first), strict=True)
            header = next(csv.reader([first], delimiter=separator(first)))
            _check_header(header, types)
            break
    except (BadEventError, csv.Error, StopIteration) as error:
        yield Refusal(1, f"{error}; the rest is not read")
        return
    while reader is not None:
        try:
            row = next(reader)
            if row:
                draft = flat_draft(_fields(header, row, types))
                yield FeedEvent(lines.number, draft, lines.number)
        except StopIteration:
            return
        except (BadEventError, csv.Error) as error:
            reason = str(error).replace("the string has a lone surrogate", BROKEN)
            yield Refusal(lines.number, reason)
            if lines.is_over:
                return


def separator(header: str) -> str:
    """The separator that a header has most of."""
    return max(SEPARATORS, key=header.count)


def is_table(head: str) -> bool:
    """Whether a text begins as a table does: a header of at least two different names, and a row
    that has as many fields."""
    if head.lstrip()[:1] in ("{", "["):
        return False
    lines = (line.rstrip("\r") + "\n" for line in head.split("\n"))
    reader = csv.reader(lines, delimiter=separator(head.partition("\n")[0]))
    try:
        first_rows = list(islice(reader, 2))
    except csv.Error:
        return False
    if len(first_rows) < 2:
        return False
    names, row = first_rows
    return len(names) == len(row) > 1 and len(set(names)) == len(names) and all(names)


def _check_header(header: list[str], types: Mapping[str, str]) -> None:
    """Raises BadEventError for a header that names no columns, or one twice, or lacks one of
    `types`."""
    if not all(header):
        raise BadEventError("a column of the header has no name")
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise BadEventError(f"the column {show(twice)} is there twice")
    missing = next((name for name in types if name not in header), None)
    if missing is not None:
        raise BadEventError(f"there is no column {show(missing)}, which --types names")


def _fields(header: list[str], row: list[str], types: Mapping[str, str]) -> dict[str, Value | None]:
    if len(row) != len(header):
        fields_here = counted(len(row), "field")
        raise BadEventError(f"{fields_here}, where the header has {len(header)}")
    fields: dict[str, Value | None] = {}
    for name, text in zip(header, row, strict=True):
        kind = types.get(name)
        if kind is None:
            fields[name] = inferred(text)
            continue
        try:
            fields[name] = TYPES[kind](text) if text or kind == "text" else None
        except (ValueError, KeyError):
            raise BadEventError(f"{show(name)}: {show(text)} is no {kind}") from None
    check_fields(fields)
    return fields


class _Lines:
    """The lines of a stream as texts with their ends; `number` of the last one."""

    def __init__(self, stream: BinaryIO) -> None:
        self.number = 0
        self.is_over = False  # after a line that was too long
        self._lines = bounded_lines(stream)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.number, line = next(self._lines)
        if line is None:
            self.is_over = True
            raise BadEventError(f"longer than {EVENT_LIMIT} bytes; the rest is not read")
        if self.number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        return line.decode("utf-8", "surrogateescape") + "\n"
