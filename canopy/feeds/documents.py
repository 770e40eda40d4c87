"""A whole JSON file: values of any layout, one after another; an array holds one event each.

For what is not one object per line: pretty-printed objects, and arrays of objects or CloudEvents
(the JSON Batch Format of CloudEvents 1.0) that extend over many lines.
"""

from __future__ import annotations

from collections.abc import Iterator

from canopy.feeds.constants import EVENT_LIMIT
from canopy.feeds.drafts import BadEventError, Item, Refusal, weight
from canopy.feeds.jsontext import values
from canopy.feeds.lines import elements, object_event


def documents(raw: bytes) -> Iterator[Item]:
    """The events of a whole file, numbered from 1 by their place in it. After malformed JSON, which
    is one refusal, the rest is not read."""
    number = 0
    try:
        for value in values(raw.removeprefix(b"\xef\xbb\xbf")):
            for element in elements(value):
                number += 1
                try:
                    event = object_event(element, number, number)
                    if weight(event.draft) > EVENT_LIMIT:
                        raise BadEventError(f"larger than {EVENT_LIMIT} bytes")
                    yield event
                except BadEventError as error:
                    yield Refusal(number, str(error))
    except BadEventError as error:
        yield Refusal(number + 1, f"{error}; the rest is not read")
