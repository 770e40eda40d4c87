"""CSV (RFC 4180) with a header: a row is an event, its fields are attributes.

The separator is a comma, semicolon, tab or vertical bar, whichever the header has most of. A
field's type is inferred for each field unless `types` names it: an empty field is null; whole
numbers without leading zeros that fit in 64 bits, decimal numbers, and true and false become such
values; other fields are texts.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from canopy.feeds.constants import EVENT_LIMIT, TABLE_AHEAD
from canopy.feeds.drafts import BadEventError, FeedEvent, Item, Refusal, check_fields, show
from canopy.feeds.jsontext import flat_draft
from canopy.feeds.lines import MARK, bounded_lines
from canopy.feeds.source import FeedSource
from matching import Value
from overlay.phrases import counted

SEPARATORS: Final = ",;\t|"
QUOTED: Final = re.compile(r'"(?:[^"]|"")*("|$)')
WHOLE: Final = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,18})")
DECIMAL: Final = re.compile(
    r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*|(?=[eE]))|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
)
TRUTH: Final = {"true": True, "false": False}
LARGEST: Final = 2**63
BROKEN: Final = "invalid UTF-8 (is it Latin-1? iconv -f latin1 -t utf-8 makes it readable)"


def inferred(text: str) -> Value | None:
    """Return the value of a field whose type is not given."""
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
"""The types for columns, by name."""


def rows(source: FeedSource, types: Mapping[str, str]) -> Iterator[Item]:
    """Yield the events of a stream as they are read, numbered by the last line of their row.
    `types`: names of `TYPES` by column. A line that is too long ends the reading."""
    csv.field_size_limit(EVENT_LIMIT)  # of the process; else a field has 128 KiB at most
    lines = _Lines(bounded_lines(source))
    try:
        reader = csv.reader(lines, delimiter=separator(lines.first()), strict=True)
        header = next(reader)
        _check_header(header, types)
    except StopIteration:
        return
    except (BadEventError, csv.Error) as error:
        yield Refusal(1, f"{error}; the rest is not read")
        return
    while True:
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
    """Return the separator that occurs most in the header's first line, outside quotes."""
    plain = QUOTED.sub("", header)
    return max(SEPARATORS, key=plain.count)


def is_table(source: FeedSource) -> bool:
    """Return whether a stream begins like a table: a header of at least two different names, and a
    row with as many fields. Waits for both."""
    csv.field_size_limit(EVENT_LIMIT)
    lines = _Lines(enumerate(source.lines_ahead(TABLE_AHEAD), 1))
    try:
        reader = csv.reader(lines, delimiter=separator(lines.first()))
        names, row = islice((row for row in reader if row), 2)
    except (BadEventError, csv.Error, StopIteration, ValueError):
        return False
    return len(names) == len(row) > 1 and len(set(names)) == len(names) and all(names)


def _check_header(header: list[str], types: Mapping[str, str]) -> None:
    """Raise BadEventError for a header with an empty or repeated name, or without a column of
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
    """Lines as texts with their ends, which may be within a quoted field; `number`: that of the
    last line."""

    def __init__(self, lines: Iterator[tuple[int, bytes | None]]) -> None:
        self.number = 0
        self.is_over = False  # after a line that was too long
        self._lines = lines
        self._first: str | None = None

    def __iter__(self) -> Iterator[str]:
        return self

    def first(self) -> str:
        """Return the first line that is not blank; it is read again. Raises StopIteration."""
        while not (line := next(self)).strip():
            pass
        self._first = line
        return line

    def __next__(self) -> str:
        first, self._first = self._first, None
        if first is not None:
            return first
        self.number, line = next(self._lines)
        if line is None:
            self.is_over = True
            raise BadEventError(f"longer than {EVENT_LIMIT} bytes; the rest is not read")
        text = line.removeprefix(MARK) if self.number == 1 else line
        return text.decode("utf-8", "surrogateescape")
