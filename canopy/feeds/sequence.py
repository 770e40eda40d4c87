"""JSON text sequences (RFC 7464): each text stands between a record separator and a line end.

A text may extend over many lines. It is handed out with the line that completes it, or else with
the next separator; a truncated or malformed text is refused, and the reading continues.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from canopy.feeds.constants import EVENT_LIMIT, RAW_LIMIT, SEQUENCE_ATTEMPTS
from canopy.feeds.drafts import BadEventError, Item, Refusal
from canopy.feeds.elements import elements, is_many, item_of
from canopy.feeds.jsontext import parse
from canopy.feeds.lines import MARK
from canopy.feeds.raw import BEGIN
from canopy.feeds.source import FeedSource

SEPARATOR: Final = b"\x1e"
OUTSIDE: Final = "text that no record separator (U+001E) precedes"


def json_sequence(source: FeedSource) -> Iterator[Item]:
    """Yield the events and refusals of a sequence, numbered from 1 by the position of their
    text."""
    for number, (text, fault) in enumerate(_texts(source), 1):
        try:
            if fault:
                raise BadEventError(fault)
            value = parse(text)
        except BadEventError as error:
            yield Refusal(number, str(error))
            continue
        for place, found in enumerate(elements(value), 1):
            yield item_of(found, number, f"{number}.{place}" if is_many(value) else number)


def _texts(source: FeedSource) -> Iterator[tuple[bytes, str]]:
    """Yield the texts, each with the reason why it is invalid, or "". Several separators in a row
    count as one (section 2.2)."""
    record = _Record(is_open=False)
    is_first = True
    while line := source.readline(RAW_LIMIT):
        line, is_first = (line.removeprefix(MARK) if is_first else line), False
        *ended, rest = line.split(SEPARATOR)
        for part in ended:
            record.add(part)
            yield from record.end()
            record = _Record()
        record.add(rest)
        if record.is_complete(rest):
            yield from record.end()
            record = _Record(is_open=False)
    yield from record.end()


class _Record:
    """The text between two separators. `is_open`: whether further parts may follow."""

    def __init__(self, is_open: bool = True) -> None:
        self._is_open = is_open
        self._attempts = 0
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, part: bytes) -> None:
        """Add the next part. A text that is too long is not kept."""
        self._size += len(part)
        if self._size <= RAW_LIMIT:
            self._parts.append(part)

    def is_complete(self, line: bytes) -> bool:
        """Return whether the text ends with the last line. Only some lines are checked: a line of a
        nested value begins with space."""
        may_end = len(self._parts) == 1 or line[:1] in (b"}", b"]")
        if not self._is_open or not may_end or self._attempts >= SEQUENCE_ATTEMPTS:
            return False
        self._attempts += 1
        try:
            return isinstance(parse(b"".join(self._parts)), list | dict)
        except BadEventError:
            return False

    def end(self) -> Iterator[tuple[bytes, str]]:
        """Yield the text and the reason of its refusal ("": valid); nothing if it has only
        space."""
        text = b"".join(self._parts)
        most = RAW_LIMIT if text.startswith(BEGIN) else EVENT_LIMIT
        if self._size > most:
            yield b"", f"longer than {EVENT_LIMIT} bytes"
        elif text.strip():
            yield text, "" if self._is_open else OUTSIDE
