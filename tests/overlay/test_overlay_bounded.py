"""BoundedDict: a dict that evicts its oldest entry."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlay.bounded import BoundedDict


def filled(capacity: int, keys: str) -> BoundedDict[str, int]:
    bounded: BoundedDict[str, int] = BoundedDict(capacity)
    for number, key in enumerate(keys):
        bounded[key] = number
    return bounded


def test_the_oldest_entry_is_evicted() -> None:
    assert list(filled(3, "abcde").items()) == [("c", 2), ("d", 3), ("e", 4)]


def test_assigning_to_a_present_key_keeps_its_place_and_evicts_nothing() -> None:
    bounded = filled(3, "abc")
    bounded["a"] = 9
    assert list(bounded.items()) == [("a", 9), ("b", 1), ("c", 2)]
    bounded["d"] = 3
    assert list(bounded) == ["b", "c", "d"]


def test_a_renewed_entry_is_the_newest() -> None:
    bounded = filled(3, "abc")
    bounded.renew("a", 9)
    bounded.renew("d", 3)
    assert list(bounded.items()) == [("c", 2), ("a", 9), ("d", 3)]


def test_a_reader_that_moves_what_it_uses_makes_it_evict_the_least_recently_used() -> None:
    bounded = filled(3, "abc")
    bounded.move_to_end("a")
    bounded["d"] = 3
    assert "a" in bounded
    assert "b" not in bounded


def test_every_way_of_inserting_respects_the_bound() -> None:
    bounded = filled(2, "ab")
    assert bounded.setdefault("c", 2) == 2
    assert list(bounded) == ["b", "c"]
    bounded.update({"d": 3, "e": 4, "f": 5})
    assert list(bounded) == ["e", "f"]
    bounded |= {"g": 6}
    assert list(bounded) == ["f", "g"]


def test_the_callback_hears_of_evictions_and_of_nothing_else() -> None:
    heard: list[tuple[str, int]] = []
    bounded: BoundedDict[str, int] = BoundedDict(2, lambda key, value: heard.append((key, value)))
    bounded["a"] = 0
    bounded["b"] = 1
    bounded["b"] = 2
    del bounded["a"]
    bounded["c"] = 3
    assert not heard
    bounded["d"] = 4
    bounded.renew("e", 5)
    assert heard == [("b", 2), ("c", 3)]


def test_a_capacity_of_zero_keeps_nothing_and_a_negative_one_is_refused() -> None:
    bounded = filled(0, "ab")
    bounded.renew("c", 2)
    assert not bounded
    with pytest.raises(ValueError, match="at least 0"):
        BoundedDict(-1)


STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "renew", "delete", "use"]), st.integers(0, 9)), max_size=60
)


@given(st.integers(0, 5), STEPS)
def test_it_behaves_as_an_ordered_dict_that_is_trimmed_by_hand(
    capacity: int, steps: list[tuple[str, int]]
) -> None:
    plain: OrderedDict[int, int] = OrderedDict()
    bounded: BoundedDict[int, int] = BoundedDict(capacity)
    for number, (step, key) in enumerate(steps):
        if step == "delete":
            plain.pop(key, None)
            bounded.pop(key, None)
        elif step == "use" and key in plain:
            plain.move_to_end(key)
            bounded.move_to_end(key)
        elif step == "renew":
            plain.pop(key, None)
            plain[key] = number
            bounded.renew(key, number)
        elif step == "set":
            plain[key] = number
            bounded[key] = number
        while len(plain) > capacity:
            plain.popitem(last=False)
        assert list(bounded.items()) == list(plain.items())
