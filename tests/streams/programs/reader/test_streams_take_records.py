"""streams/programs/reader/cursor.py: the share that a stretch of confirmed rows names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streams.programs.reader.cursor import DurablePosition

SHARES = st.sampled_from([1.0, 0.5, 0.25])


@given(st.lists(st.tuples(SHARES, st.integers(1, 5)), max_size=12), st.data())
def test_a_stretch_names_the_least_share_by_which_its_rows_were_recorded(
    taken: list[tuple[float, int]], data: st.DataObject
) -> None:
    """Also where it ends amid what was taken by one share, and what is behind it was taken before
    the stretch was confirmed."""
    records = DurablePosition()
    by_row: list[float] = []
    recorded = 0
    for share, count in taken:
        records.note_share(len(by_row), share)
        by_row += [share] * count
        position = data.draw(st.integers(recorded, len(by_row)))
        if position > recorded:
            assert records.record(position) == min(by_row[recorded:position])
            recorded = position
