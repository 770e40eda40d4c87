"""Faults of the trace records: the clock that orders them, and the writer that numbers them."""

from __future__ import annotations

from bench.mutations.planting import fault, replace
from canopy.traces.writer import TraceWriter
from overlay.hybrid_clock import HybridClock

CLOCK = "tests/links/test_links_hybrid_clock.py"
WRITER = "tests/canopy/traces/test_traces_writer.py"
VERDICT = "promise: a verdict is true"


@fault(VERDICT, CLOCK, "test_a_batch_brings_its_senders_time")
def clock_not_taken_over() -> None:
    """A node goes on by its own clock though a batch shows a later time."""

    def observe(self: HybridClock, seen: int) -> None:
        return

    replace(HybridClock.observe, observe)


@fault(VERDICT, CLOCK, "test_a_damaged_time_uses_nothing_up")
def clock_without_bound() -> None:
    """A node takes over whatever time a batch shows."""

    def observe(self: HybridClock, seen: int) -> None:
        self._last = max(self._last, seen)

    replace(HybridClock.observe, observe)


@fault(VERDICT, CLOCK, "test_a_node_an_hour_ahead_pulls_the_others_and_time_goes_on_at_its_pace")
def clock_counts_instead_of_moving() -> None:
    """A node that heard of a later time counts upwards from it until its own clock is there."""

    def observe(self: HybridClock, seen: int) -> None:
        if self._last < seen < 1 << 62:
            self._last = seen

    replace(HybridClock.observe, observe)


@fault(
    VERDICT,
    WRITER,
    "test_a_lost_record_keeps_its_number_and_the_next_file_says_how_many_there_were",
)
def lost_records_leave_no_gap() -> None:
    """The writer gives the number of a record that it lost to the next one."""
    lose = TraceWriter._lose

    def forgetful(self: TraceWriter, records: int, error: Exception) -> None:
        self._number -= records
        lose(self, records, error)

    replace(TraceWriter._lose, forgetful)
