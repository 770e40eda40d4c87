"""Which events are traced: all of a quiet node, a share of a busy one, the same at all nodes."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canopy.traces.writer import WINDOW, AdaptiveShare, TraceOptions, TraceWriter, is_sampled
from overlay.client import Event
from streams.log.names import sampled


class Memory:
    """One trace file."""

    def __init__(self) -> None:
        self.data = b""

    def open(self, path: str) -> Memory:
        return self

    def write(self, data: bytes, /) -> int:
        self.data += data
        return len(data)

    def flush(self) -> None: ...

    close = flush

    def of_kind(self, kind: str) -> list[dict[str, object]]:
        found = [json.loads(line) for line in self.data.split(b"\n") if line]
        return [record for record in found if record["kind"] == kind]


class Clock:
    def __init__(self) -> None:
        self.now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


def writer_of(file: Memory, clock: Clock, sample: float, rate: float) -> TraceWriter:
    options = TraceOptions(sample, rate, check=True)
    return TraceWriter(file.open, "n1", clock, options, hybrid=lambda: 0)


def test_a_quiet_node_traces_everything() -> None:
    share = AdaptiveShare(rate=100.0)
    for step in range(1_000):
        assert not share.publishes(9, step / 10)
        assert share.share == 1.0


@pytest.mark.parametrize("per_second", [1_000, 15_000, 200_000])
def test_a_busy_node_traces_about_its_rate(per_second: int) -> None:
    """Between a quarter of it, since shares are halves and grow by steps, and all of it once the
    share is found."""
    share, kept, seconds = AdaptiveShare(rate=100.0), 0.0, 60
    for step in range(seconds * 100):
        share.publishes(per_second // 100, step / 100)
        kept += share.share * (per_second // 100)
    assert 25 * seconds <= kept <= 100 * (seconds + 10)


def test_a_burst_is_sampled_from_its_first_batch_on_and_what_comes_later_is_not() -> None:
    share = AdaptiveShare(rate=100.0)
    assert share.publishes(10_000, 0.0)
    assert share.share * 10_000 <= 100
    for step in range(1, 20):
        share.publishes(1, step * WINDOW)
    assert share.share == 1.0
    share.publishes(10_000, 30.0)
    share.publishes(1, 40.0)
    assert share.share == 1.0, "a pause is the end of a burst"


@settings(max_examples=100, deadline=None)
@given(
    rate=st.sampled_from([0.0, 1.0, 30.0]),
    sample=st.sampled_from([0.0, 0.3, 1.0]),
    batches=st.lists(st.tuples(st.integers(0, 300), st.floats(-0.5, 3.0)), max_size=20),
)
def test_what_is_traced_can_be_worked_out_from_the_records(
    rate: float, sample: float, batches: list[tuple[int, float]]
) -> None:
    """By who reads only the traces: the file's share, then each `sampling` record's from its first
    event on. And no batch keeps more than its second may."""
    file, clock = Memory(), Clock()
    writer = writer_of(file, clock, sample, rate)
    kept: list[int] = []
    first = 1
    for count, pause in batches:
        clock.now += pause
        traced = writer.trace_marks(7, first, count)
        flags = [True] * count if traced is None else traced
        assert len(flags) == count
        kept += [first + place for place, flag in enumerate(flags) if flag]
        first += count
    writer.write("ready", {})
    writer.close()
    said = [(0, sample)]
    said += [(int(str(r["first"])), float(str(r["share"]))) for r in file.of_kind("sampling")]
    should = []
    for number in range(1, first):
        share = [share for since, share in said if since <= number][-1]
        should += [number] if is_sampled(f"n1.7.{number}", share) else []
    assert kept == should


def test_nodes_write_records_of_the_events_that_their_publisher_has_marked() -> None:
    """Also where one of them keeps a share: of these it keeps those of its hash."""
    rng = Random(1)
    events = [Event("p", 1, n, 0.0, {}, traced=rng.random() < 0.5) for n in range(1, 400)]
    marked = [event for event in events if event.traced]
    assert list(writer_of(Memory(), Clock(), 1.0, 1.0).sampled(events)) == marked
    some = list(writer_of(Memory(), Clock(), 0.25, 1.0).sampled(events))
    assert some == [event for event in marked if is_sampled(event.identity, 0.25)]


def test_rows_have_a_share_of_their_own_for_each_kind_of_record() -> None:
    """A node that commits many and hands out few records all that it hands out; events have
    another share still."""
    clock = Clock()
    writer = writer_of(Memory(), clock, 0.5, 100.0)
    kept = 0.0
    for _ in range(600):
        clock.now += 0.1
        kept += 5_000 * writer.row_share("row", 5_000)
        assert writer.row_share("take", 5) == 0.5
        assert writer.trace_marks(7, 1, 1) is not None
    assert 25 * 60 <= kept <= 100 * 70


@given(share=st.sampled_from([0.0, 1e-3, 0.3, 0.5, 1.0]), first=st.integers(0, 2**53))
def test_rows_are_chosen_as_events_are(share: float, first: int) -> None:
    offsets = range(first, first + 50)
    kept = list(sampled("5f1e/0", offsets, share))
    assert kept == [offset for offset in offsets if is_sampled(f"5f1e/0/{offset}", share)]
