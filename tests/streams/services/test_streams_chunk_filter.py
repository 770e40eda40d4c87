"""Zone maps pass over a chunk only where no row of it can match."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matching import compile_selector
from matching.predicate import built
from streams.log import zones
from streams.log.batches import Row
from streams.log.zones import decode_zones, encode_zones, zone_map
from streams.services.read.history import ChunkFilter
from tests.matching.matching_strategies import PATIENT, verdict, wild, wild_events


@settings(PATIENT, max_examples=300)
@given(tree=wild, rows=st.lists(wild_events, min_size=1, max_size=5), few=st.booleans())
def test_no_chunk_is_passed_over_that_has_a_match(
    tree: Any, rows: list[dict[str, Any]], few: bool
) -> None:
    """`few`: zone maps with so little room that texts are ranges and attributes are left out."""
    predicate = built(tree)
    with pytest.MonkeyPatch.context() as patch:
        if few:
            for name, value in (("ATTRIBUTES_MOST", 2), ("TEXTS_MOST", 1), ("TEXT_LENGTH", 2)):
                patch.setattr(zones, name, value)
        found = decode_zones(encode_zones(zone_map([Row(row) for row in rows])))
    if any(verdict(predicate.tree(), row) for row in rows):
        assert ChunkFilter(predicate).may_match(found)


@pytest.mark.parametrize(
    ("selector", "may_match"),
    [
        ("n = 4", True),
        ("n > 5", False),
        ("n = 'a'", False),
        ("mixed = 'a'", True),
        ("mixed = TRUE", True),
        ("mixed = 3", True),
        ("mixed = 4", False),
        ("mixed > 'b'", False),
        ("mixed IS NULL", True),
        ("n IS NULL", False),
        ("n IS NOT NULL", True),
        ("nowhere IS NULL", True),
        ("nowhere IS NOT NULL", False),
        ("nowhere + n > 0", False),
        ("nowhere > 1 OR n < 2", True),
        ("nowhere > 1 AND n < 2", False),
        ("who LIKE 'a%'", True),
        ("who LIKE 'z%'", False),
        ("n + 1 > 100", True),  # arithmetic is not looked into
    ],
)
def test_what_can_be_told_by_a_zone_map(selector: str, may_match: bool) -> None:
    rows = [
        {"n": 1, "mixed": 3, "who": "abc"},
        {"n": 5, "mixed": "a", "who": "abd"},
        {"n": 2, "mixed": True, "who": "b"},
        {"n": 2, "mixed": None, "who": "b"},
    ]
    found = zone_map([Row(row) for row in rows])
    assert ChunkFilter(compile_selector(selector)).may_match(found) is may_match


def test_without_a_zone_map_only_what_is_never_true_is_passed_over() -> None:
    assert ChunkFilter(compile_selector("n = 1")).may_match(None)
    assert not ChunkFilter(compile_selector("n > 2 AND n < 1")).may_match(None)


def test_a_number_that_is_none_hides_no_other() -> None:
    found = zone_map([Row({"n": float("nan")}), Row({"n": 7})])
    assert ChunkFilter(compile_selector("n = 7")).may_match(found)
