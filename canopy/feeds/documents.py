"""A whole JSON file: values of any layout, one after another; an array holds one event each.

For what is not one object per line: pretty-printed objects, arrays of objects or CloudEvents (the
JSON Batch Format of CloudEvents 1.0) and collections of GeoJSON that extend over many lines.
"""

from __future__ import annotations

from collections.abc import Iterator

from canopy.feeds.constants import WHOLE_LIMIT
from canopy.feeds.drafts import BadEventError, FeedEvent, Item, Refusal
from canopy.feeds.elements import elements
from canopy.feeds.geojson import is_collection, is_feature
from canopy.feeds.jsontext import values
from canopy.feeds.source import FeedSource

NO_GEOJSON = "not GeoJSON: expected a FeatureCollection with a list of features, or a Feature"


def documents(
    source: FeedSource, cloudevents: bool = False, geojson: bool = False, before: int = 0
) -> Iterator[Item]:
    """The events of a whole file, numbered by their place in it, from `before` + 1. After malformed
    JSON, which is one refusal, the rest is not read. With `cloudevents` or `geojson` other values
    are refused; of a value that is no GeoJSON the number is that of what came before."""
    raw = source.read(WHOLE_LIMIT + 1)
    if len(raw) > WHOLE_LIMIT:
        yield Refusal(0, f"larger than {WHOLE_LIMIT} bytes")
        return
    number = before
    try:
        for value in values(raw.removeprefix(b"\xef\xbb\xbf")):
            if geojson and not (is_collection(value) or is_feature(value)):
                yield Refusal(number, NO_GEOJSON)
                continue
            for found in elements(value, cloudevents):
                number += 1
                if isinstance(found, BadEventError):
                    yield Refusal(number, str(found))
                else:
                    yield FeedEvent(number, found.draft, number if found.may_have_id else "")
    except BadEventError as error:
        yield Refusal(number + 1, f"{error}; the rest is not read")
