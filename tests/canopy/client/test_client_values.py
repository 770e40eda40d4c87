"""What programs may put into events."""

from __future__ import annotations

import datetime
import enum

import msgspec
import pytest

from canopy.client.errors import EventRefusedError
from canopy.client.publishing import Drafting


class Level(enum.IntEnum):
    HIGH = 3


@pytest.mark.parametrize(("value", "kind"), [([1], "list"), (b"x", "bytes"), ({}, "dict")])
def test_values_that_no_attribute_has_are_refused_before_they_are_sent(
    value: object, kind: str
) -> None:
    with pytest.raises(EventRefusedError, match=f"attribute 'x' is a {kind}: a value is") as failed:
        Drafting().draft({"a": 1, "x": value})  # type: ignore[dict-item]
    assert failed.value.code == "event"


def test_values_of_derived_types_are_taken() -> None:
    day = datetime.date(2026, 11, 25)
    draft = Drafting().draft({"a": Level.HIGH, "b": True, "c": 1.5, "d": "x", "e": None, "f": day})  # type: ignore[dict-item]
    encoded = msgspec.msgpack.decode(msgspec.msgpack.encode(draft.attributes))
    assert (encoded["a"], encoded["f"]) == (3, "2026-11-25")
