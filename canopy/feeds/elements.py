"""The events in one JSON value: an object is one event; an array or a collection has one per
member.

All inputs share this: lines and documents of `canopy pub`, and requests to the gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from canopy.feeds.cloudevents import cloudevent_draft, is_cloudevent
from canopy.feeds.drafts import BadEventError, Faulty, FeedEvent, Item, Refusal, check_size
from canopy.feeds.geojson import feature_draft, is_collection, is_feature
from canopy.feeds.jsontext import flat_draft
from canopy.feeds.raw import is_raw, raw_draft
from overlay.client import Draft


class Element(NamedTuple):
    """An event. `may_have_id`: whether it gets an id if it has none."""

    draft: Draft
    may_have_id: bool = True


Found: TypeAlias = Element | BadEventError


def item_of(found: Found, number: int, place: int | str) -> Item:
    """Return the item with this number in its feed; `place`: as of a `FeedEvent`."""
    if isinstance(found, BadEventError):
        return Refusal(number, str(found))
    return FeedEvent(number, found.draft, place if found.may_have_id else "")


def is_many(value: Any) -> bool:
    """Return whether a value is an array or a collection, perhaps an empty one."""
    return isinstance(value, list) or is_collection(value)


def elements(value: Any, cloudevents: bool = False) -> Iterator[Found]:
    """Yield the events in a value, or the reason why one is invalid. `cloudevents`: refuse
    others."""
    if not cloudevents and is_collection(value):
        for feature in value["features"]:
            yield _made(feature, feature_element)
    elif isinstance(value, list):
        for inner in value:
            if not cloudevents and is_collection(inner):
                yield from elements(inner)
            else:
                yield _made(inner, only_cloudevent if cloudevents else object_element)
    else:
        yield _made(value, only_cloudevent if cloudevents else object_element)


def feature_element(value: Any) -> Element:
    """Return the event in a member of a collection. Raises BadEventError."""
    return Element(feature_draft(value))


def only_cloudevent(value: Any) -> Element:
    """Return the event in an object, which has to be a CloudEvent. Raises BadEventError."""
    if not isinstance(value, Mapping) or not is_cloudevent(value):
        raise BadEventError("not a CloudEvent: it has no specversion")
    return Element(cloudevent_draft(value))


def object_element(value: Any) -> Element:
    """Return the event in an object of any form. Raises BadEventError."""
    if not isinstance(value, Mapping):
        raise BadEventError("not an object: an event is a JSON object, {…}")
    if isinstance(value, Faulty):
        raise BadEventError(value.fault)
    if is_raw(value):
        return Element(raw_draft(value), may_have_id=False)
    if is_cloudevent(value):
        return Element(cloudevent_draft(value))
    if is_feature(value):
        return Element(feature_draft(value))
    return Element(flat_draft(value))


def _made(value: Any, read: Callable[[Any], Element]) -> Found:
    try:
        found = read(value)
        if found.may_have_id:  # a whole event has bounds of its own
            check_size(found.draft)
    except BadEventError as error:
        return error
    return found
