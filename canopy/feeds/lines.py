"""Feeds of JSON: one value per line, with bounded lines, and whole files of any layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from canopy.feeds.constants import EVENT_LIMIT, RAW_LIMIT, WHOLE_LIMIT
from canopy.feeds.drafts import BadEventError, Item, Refusal
from canopy.feeds.elements import elements, is_many, item_of
from canopy.feeds.geojson import is_collection, is_feature
from canopy.feeds.jsontext import IncompleteError, parse, values
from canopy.feeds.raw import BEGIN
from canopy.feeds.source import FeedSource

MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8, which some programs write before a text (RFC 8259, section 8.1)."""
NO_GEOJSON: Final = (
    "not GeoJSON: expected a FeatureCollection with a list of features, or a Feature"
)


def bounded_lines(
    source: FeedSource, limit: int = EVENT_LIMIT, first: int = 0
) -> Iterator[tuple[int, bytes | None]]:
    """Yield (number from 1, line with its end) as soon as each line is complete; None instead of a
    line longer than `limit` bytes, which is skipped without being kept. The first line that is not
    blank may have `first` bytes, if that is more. A byte order mark is not part of the first
    line."""
    number = 0
    most = max(first, limit)
    while line := source.readline(most + 1):
        number += 1
        if len(line) > most and not line.endswith(b"\n"):
            while more := source.readline(limit + 1):
                if more.endswith(b"\n"):
                    break
            yield number, None
        else:
            yield number, line.removeprefix(MARK) if number == 1 else line
        if line.strip():
            most = limit


def json_lines(
    source: FeedSource, cloudevents: bool = False, extending: bool = False
) -> Iterator[Item]:
    """Yield the events and refusals of JSON lines. Empty lines are skipped; `cloudevents`: refuse
    other events. They are numbered by their lines; after a first line that is a collection, by
    position.

    The first line may be as long as a whole file if it has many events: a collection or an array on
    one line. `extending`: from the first value that extends over several lines, the rest is read as
    `documents`.
    """
    count = 0  # of places
    is_first, by_place = True, False
    for line_number, line in bounded_lines(source, RAW_LIMIT, WHOLE_LIMIT):
        number = count + 1 if by_place else line_number
        if line is not None and not line.strip():
            continue
        try:
            value = _value(line, is_first)
        except BadEventError as error:
            if extending and line is not None and _goes_on(source, line, error):
                yield from documents(source, cloudevents, before=number - 1)
                return
            is_first = False
            count += 1
            yield Refusal(number, str(error))
            continue
        by_place = by_place or (is_first and is_collection(value))
        is_first = False
        for place, found in enumerate(elements(value, cloudevents), 1):
            count += 1
            number = count if by_place else line_number
            own = number if by_place or not is_many(value) else f"{number}.{place}"
            yield item_of(found, number, own)


def _goes_on(source: FeedSource, line: bytes, error: BadEventError) -> bool:
    """Return whether the last line is only the start of a value; if so it is put back. `error`: why
    the line alone is invalid."""
    if not isinstance(error, IncompleteError) and not line.startswith(b"["):
        return False
    source.put_back(line)
    if extends(source):
        return True
    source.readline(len(line))
    return False


def _value(line: bytes | None, is_first: bool) -> object:
    """Return the value in a line. Raises BadEventError, also for a line that is too long for its
    event."""
    long = BadEventError(f"longer than {EVENT_LIMIT} bytes")
    if line is None:
        raise long
    may_be_long = line.startswith(BEGIN) and len(line) <= RAW_LIMIT
    if len(line.rstrip(b"\r\n")) <= EVENT_LIMIT or may_be_long:
        return parse(line)
    if not is_first:
        raise long
    value = parse(line)
    if not is_many(value):
        raise long
    return value


def json_feed(source: FeedSource, cloudevents: bool = False) -> Iterator[Item]:
    """Yield the events and refusals of JSON with one value per line, or of any layout."""
    return json_lines(source, cloudevents, extending=True)


def extends(source: FeedSource) -> bool:
    """Return whether the next value extends over several lines: the first line is only its
    beginning, and the value goes on with the second line, or ends there. A line that was cut off is
    instead followed by another value."""
    seen = b""
    for line in source.lines_ahead(WHOLE_LIMIT):
        if not line.removeprefix(MARK).strip():
            continue
        is_second, seen = bool(seen), (seen or b"") + line.removeprefix(MARK)
        try:
            parse(seen)
            return is_second
        except IncompleteError:
            if is_second:
                return True
        except BadEventError:
            return seen.lstrip().startswith(b"[") or (is_second and not _is_value(line))
    return False


def _is_value(line: bytes) -> bool:
    try:
        parse(line)
    except BadEventError:
        return False
    return True


def documents(
    source: FeedSource, cloudevents: bool = False, geojson: bool = False, before: int = 0
) -> Iterator[Item]:
    """Yield the events of a whole file, whose values follow one another; each element of an array
    is an event (the JSON Batch Format of CloudEvents 1.0). They are numbered by their position,
    from `before` + 1. Malformed JSON is one refusal, and ends the reading. With `cloudevents` or
    `geojson` other values are refused; a value that is not GeoJSON has the number of the last
    event."""
    raw = source.read(WHOLE_LIMIT + 1)
    if len(raw) > WHOLE_LIMIT:
        yield Refusal(0, f"larger than {WHOLE_LIMIT} bytes")
        return
    number = before
    try:
        for value in values(raw.removeprefix(MARK)):
            if geojson and not (is_collection(value) or is_feature(value)):
                yield Refusal(number, NO_GEOJSON)
                continue
            for found in elements(value, cloudevents):
                number += 1
                yield item_of(found, number, number)
    except BadEventError as error:
        yield Refusal(number + 1, f"{error}; the rest is not read")
