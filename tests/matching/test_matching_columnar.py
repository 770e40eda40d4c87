"""Columns have the events' values, and exist only for events of one shape."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from matching.columnar import MIN_EVENTS, columns_of

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
