"""Where a reading begins, as a program says it (canopy/client/streams/reading.py)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from canopy.client.streams.membership import wanted_membership
from canopy.client.streams.reading import started

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        ("first", ("first", 0)),
        ("time", ("time", 7)),
        (17, ("offset", 17)),
        ("17", ("offset", 17)),
        ("2026-11-23T12:00Z", ("time", 1_795_435_200_000_000_000)),
        (NOON, ("time", 1_795_435_200_000_000_000)),
    ],
)
def test_a_reading_begins_at_a_word_an_offset_or_a_time(start: Any, wanted: Any) -> None:
    kind, at = started(start, 7 if start == "time" else 0)
    assert (kind, at) == wanted


@pytest.mark.parametrize("start", [1.5, -1, True, None, "yesterday", b"first", ""])
def test_anything_else_is_refused_with_words(start: Any) -> None:
    with pytest.raises(ValueError, match="first, new, keys, an offset, or a time"):
        started(start, 0)
    with pytest.raises(ValueError, match="is wanted"):
        wanted_membership("s", "g", None, {"start": start})
