"""LIKE: the matcher without backtracking agrees with a naive one, and the cover with both."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matching.selector.like import cover, matcher
from tests.matching.matching_strategies import PATIENT, like

few = st.text(alphabet="ab", max_size=6)
patterns = st.text(alphabet="ab%%_!", max_size=6)
escapes = st.sampled_from([None, "!", "a", "%", "_"])


@settings(PATIENT, max_examples=400)
@given(value=few, pattern=patterns, escape=escapes)
def test_matcher_and_cover_agree_with_the_naive_reading(
    value: str, pattern: str, escape: str | None
) -> None:
    matches = matcher(pattern, escape)(value)
    assert matches == like(value, pattern, escape)
    intervals, exact = cover(pattern, escape)
    inside = any(interval.contains(value) for interval in intervals)
    assert inside == matches if exact else inside >= matches


@pytest.mark.parametrize(
    ("pattern", "value", "expected"),
    [
        ("ab%ba", "aba", False),  # head and tail must not share characters
        ("ab%ba", "abba", True),
        ("a%b%b", "ab", False),
        ("%a_c%c", "xabcc", True),
        ("%a_c%c", "xabc", False),
        ("a%%%b", "ab", True),
        ("", "", True),
        ("%", "", True),
        ("_", "\U0001f333", True),
        ("%_", "", False),
        ("[a-c]*", "b", False),  # no other character means anything
        (".", "b", False),
        ("_.", "b.", True),
    ],
)
def test_like_by_example(pattern: str, value: str, expected: bool) -> None:
    assert matcher(pattern, None)(value) is expected


def test_many_wildcards_do_not_explode() -> None:
    # A backtracking matcher would need longer than the test's time limit, by far.
    assert not matcher("%a" * 200 + "b", None)("a" * 5000)
    assert not matcher("%a_" * 200 + "b", None)("a" * 5000)
