"""Columns have the events' values, and exist only for events of one shape."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from matching.columnar import MIN_EVENTS, columns_again, columns_of, hand_on, part_of

rows = st.lists(st.tuples(st.integers(), st.none() | st.text()), min_size=MIN_EVENTS, max_size=9)


@given(rows=rows)
def test_columns_have_each_value_at_its_event(rows: list[tuple[int, str | None]]) -> None:
    columns = columns_of([{"n": number, "s": text} for number, text in rows])
    assert columns == {"n": tuple(n for n, _ in rows), "s": tuple(s for _, s in rows)}


@given(
    batch=st.lists(
        st.lists(st.sampled_from("ab"), unique=True).map(lambda names: dict.fromkeys(names, 1)),
        max_size=8,
    )
)
def test_other_attributes_or_another_order_have_no_columns(batch: list[dict[str, Any]]) -> None:
    are_alike = len({tuple(event) for event in batch}) == 1
    assert (columns_of(batch) is not None) == (are_alike and len(batch) >= MIN_EVENTS)


@given(rows=rows, start=st.integers(0, 9), end=st.integers(0, 9))
def test_columns_are_handed_on_with_the_very_events_only(
    rows: list[tuple[int, str | None]], start: int, end: int
) -> None:
    batch = [{"n": number, "s": text} for number, text in rows]
    columns = columns_of(batch)
    assert columns is not None
    hand_on(batch, columns)
    assert columns_again(list(batch)) is columns
    assert part_of(columns, start, end) == {
        "n": tuple(event["n"] for event in batch[start:end]),
        "s": tuple(event["s"] for event in batch[start:end]),
    }
    others = [dict(event) for event in batch]
    others[-1]["n"] = 1 + rows[-1][0]
    for other in (others, batch[1:], batch[::-1], [*batch[1:], batch[0]], []):
        assert columns_again(other) == columns_of(other)
        assert columns_again(other) is not columns
    assert part_of(None, 0, 1) is None
