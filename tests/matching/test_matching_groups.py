"""Groups find exactly the groups of the keys that brute force finds, with both engines."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matching import Groups, Predicate, compile_selector, warm
from matching.expression import Expression
from tests.matching.matching_strategies import PATIENT, events, typed, wild, wild_events

steps = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from("abcdefgh"), st.none() | typed | wild),
    min_size=1,
    max_size=25,
)


@pytest.fixture(autouse=True, scope="module")
def _warm() -> None:
    warm()


@settings(PATIENT, max_examples=100)
@given(steps=steps, event=st.one_of(events, wild_events), change_over=st.sampled_from([2, 5, 1000]))
def test_groups_are_those_of_the_keys_that_match_through_any_churn(
    steps: list[tuple[int, str, Expression | None]], event: dict[str, Any], change_over: int
) -> None:
    groups: Groups[int, str] = Groups(change_over)
    model: dict[int, tuple[Predicate, str]] = {}
    for key, group, tree in steps:
        if tree is not None:
            groups.add(key, Predicate(tree), group)
            model[key] = (Predicate(tree), group)
        elif key in model:
            groups.remove(key)
            del model[key]
        found = groups.find(event)
        right = {k: g for k, (predicate, g) in model.items() if predicate.matches(event)}
        assert sorted(found) == sorted(set(right.values()))
        assert all(right[witness] == group for group, witness in found.items())
        assert groups.match(event) == list(right)
        assert len(groups) == len(model)


def test_many_groups_and_labels_find_their_room() -> None:
    groups: Groups[int, int] = Groups(change_over=4)
    for number in range(200):
        groups.add(number, compile_selector(f"x >= {number}"), number // 2)
        assert sorted(groups.find({"x": number})) == list(range(number // 2 + 1))
    for number in range(0, 200, 2):
        groups.remove(number)
    assert groups.find({"x": 0}) == {}
    assert groups.find({"x": 1}) == {0: 1}
    assert groups.group_of(3) == 1
    assert 2 not in groups
