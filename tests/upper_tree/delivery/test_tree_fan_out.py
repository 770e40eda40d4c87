"""C11: how recipients are shared out."""

from __future__ import annotations

from math import ceil, log

from hypothesis import given
from hypothesis import strategies as st

from overlay.upper_tree.delivery.fan_out import DELEGATE_RUN, in_turn, rotation, spread


def reached(recipients: tuple[int, ...], most: int, hop: int = 1, whose: int = 0) -> dict[int, int]:
    """Recipient -> messages on its way; no node sends more than `most`, none is reached twice."""
    found: dict[int, int] = {}
    plan = spread(in_turn(recipients, whose), most)
    assert len(plan) <= most
    for delegate, share in plan:
        for each, hops in ((delegate, hop), *reached(share, most, hop + 1, whose).items()):
            assert each not in found
            found[each] = hops
    return found


@given(st.integers(0, 700), st.integers(2, 17), st.integers(0, 2**32 - 1))
def test_each_recipient_is_reached_once_within_the_logarithm(
    count: int, most: int, whose: int
) -> None:
    found = reached(tuple(range(count)), most, whose=whose)
    assert sorted(found) == list(range(count))
    # `h` levels reach most + most^2 + … + most^h; one more for what rounding leaves over.
    assert max(found.values(), default=0) <= (ceil(log(count, most)) + 1 if count > 1 else 1)


@given(st.integers(0, 400), st.integers(1, 20))
def test_shares_are_even(count: int, most: int) -> None:
    sizes = [len(share) for _, share in spread(range(count), most)]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


def test_few_recipients_need_no_delegate() -> None:
    assert spread("abc", 3) == [("a", ()), ("b", ()), ("c", ())]
    assert spread((), 3) == []


def test_each_recipient_is_a_delegate_in_turn() -> None:
    plans = [dict(spread(in_turn(range(5), whose), 2)) for whose in range(5)]
    assert [list(plan) for plan in plans] == [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]]
    assert plans[3] == {3: (0, 2), 4: (1,)}


def test_turns_are_those_of_the_sender_and_stay_for_some_events() -> None:
    one = [rotation("p", 1, sequence, "h") for sequence in range(2 * DELEGATE_RUN)]
    assert one[0] == one[DELEGATE_RUN - 1] != one[DELEGATE_RUN] == one[-1]
    assert (
        len({one[0], rotation("p", 1, 0, "g"), rotation("q", 1, 0, "h"), rotation("p", 2, 0, "h")})
        == 4
    )
