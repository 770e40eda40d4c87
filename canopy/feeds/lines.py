"""Feeds of one JSON object per line (or an array of objects), with bounded lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from canopy.feeds.cloudevents import cloudevent_draft, is_cloudevent
from canopy.feeds.constants import EVENT_LIMIT, RAW_LIMIT
from canopy.feeds.drafts import BadEventError, FeedEvent, Item, Refusal
from canopy.feeds.flat import flat_draft
from canopy.feeds.jsontext import parse
from canopy.feeds.raw import BEGIN, is_raw, raw_draft


def bounded_lines(stream: BinaryIO, limit: int = EVENT_LIMIT) -> Iterator[tuple[int, bytes | None]]:
    """(number from 1, line without its end) as soon as each line is complete; None instead of a
    line longer than `limit` bytes, which is skipped without being kept."""
    number = 0
    while line := stream.readline(limit + 1):
        number += 1
        if len(line) > limit and not line.endswith(b"\n"):
            while more := stream.readline(limit + 1):
                if more.endswith(b"\n"):
                    break
            yield number, None
        else:
            yield number, line.rstrip(b"\r\n")


def json_lines(stream: BinaryIO, cloudevents: bool | None = None) -> Iterator[Item]:
    """The events and refusals of JSON lines; empty lines are skipped.

    `cloudevents`: None decides for each line by its `specversion`; True refuses lines that are not
    CloudEvents; False reads every object as a flat one.
    """
    for number, line in bounded_lines(stream, RAW_LIMIT):
        if line is None or (len(line) > EVENT_LIMIT and not line.startswith(BEGIN)):
            yield Refusal(number, f"longer than {EVENT_LIMIT} bytes")
            continue
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line.strip():
            continue
        try:
            value = parse(line)
        except BadEventError as error:
            yield Refusal(number, str(error))
            continue
        for place, element in enumerate(elements(value), 1):
            own = f"{number}.{place}" if isinstance(value, list) else number
            try:
                yield object_event(element, number, own, cloudevents)
            except BadEventError as error:
                yield Refusal(number, str(error))


def elements(value: Any) -> list[Any]:
    """The elements of an array, which are events; another value is the only one."""
    return value if isinstance(value, list) else [value]


def object_event(
    value: Any, number: int, place: int | str, cloudevents: bool | None = None
) -> FeedEvent:
    """The event in an object, a CloudEvent or a flat one as for `json_lines`; `place` as in
    `FeedEvent`. Raises BadEventError."""
    if not isinstance(value, dict):
        raise BadEventError("not an object: an event is a JSON object, {…}")
    if cloudevents is None and is_raw(value):
        return FeedEvent(number, raw_draft(value))
    if cloudevents is not False and is_cloudevent(value):
        return FeedEvent(number, cloudevent_draft(value), place)
    if cloudevents:
        raise BadEventError("not a CloudEvent: it has no specversion")
    return FeedEvent(number, flat_draft(value), place)
