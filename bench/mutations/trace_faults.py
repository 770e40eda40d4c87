"""Faults of the trace records, the clock that orders them, the writer that numbers them, and of how
the analysis reads and matches them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.mutations.planting import fault, replace
from canopy.traces.analysis.completeness.claims import share_of
from canopy.traces.analysis.progress import OnProgress, silent
from canopy.traces.analysis.read import trace_files
from canopy.traces.analysis.remote import HadoopFolder
from canopy.traces.analysis.report.sections import tree_sizes_text, walks_text
from canopy.traces.analysis.selection.cover import Conjunction, Range, _both, ranges
from canopy.traces.analysis.selection.matcher import Ints, Matcher
from canopy.traces.analysis.selection.trees import Attributes, Scalar
from canopy.traces.analysis.spark.paths import for_reading, for_writing
from canopy.traces.analysis.spark.sharing import check_shared
from canopy.traces.analysis.tasks import frame_of_table, in_one_task
from canopy.traces.analysis.verdict.numbering import Unseen, unseen
from canopy.traces.analysis.walks import TreeSizes, WalkCounts
from canopy.traces.analysis.window import ALWAYS, Window
from canopy.traces.writer import TraceWriter
from canopy.wire.process.trace_files import secure_traces
from overlay.client import Event
from overlay.hybrid_clock import HybridClock
from overlay.lower_random.policies import Policies
from overlay.upper_tree.content import digest_of

CLOCK = "tests/links/test_links_hybrid_clock.py"
WRITER = "tests/canopy/traces/writing/test_traces_writer.py"
VERDICT = "promise: a verdict is true"
MATCHER = "tests/canopy/traces/test_traces_selectors.py"
REMOTE = "tests/canopy/traces/test_traces_remote.py"
PLACES = "tests/canopy/traces/test_traces_places.py"
LOCAL = "tests/attacks/machine/test_attacks_local.py"
TASKS = "tests/canopy/traces/test_traces_tasks.py"
PLANTED = "tests/canopy/traces/planted/test_traces_planted.py"
RECORDED = "tests/upper_tree/clients/test_tree_recorded.py"
REPORT = "tests/canopy/traces/test_traces_report.py"
JOIN = "test_the_join_finds_what_evaluating_all_pairs_finds"


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


@fault(VERDICT, WRITER, "test_matches_without_recipients_become_counts_by_attribute")
def matches_in_vain_counted_again() -> None:
    """The writer goes on counting matches in vain whose numbers it has written."""
    flush = TraceWriter.flush

    def keeping(self: TraceWriter) -> None:
        counts = dict(self._unmatched)
        flush(self)
        self._unmatched = counts

    replace(flush, keeping)


@fault(VERDICT, WRITER, "test_counts_are_of_one_day_and_lost_with_their_record")
def matches_in_vain_counted_for_the_next_day() -> None:
    """The writer does not write its counts at midnight unless there are other records."""
    count = TraceWriter.count_unmatched

    def late(self: TraceWriter, counts: Mapping[str, int]) -> None:
        if not self._lines:
            self._until = math.inf
        count(self, counts)

    replace(count, late)


@fault(VERDICT, MATCHER, JOIN)
def ranges_decide_alone() -> None:
    """What ranges do not say of a selector (arithmetic, LIKE) is not evaluated."""
    original = Matcher._evaluated

    def evaluated(
        self: Matcher,
        events: Sequence[Attributes],
        at: Ints,
        number: Ints,
        right: npt.NDArray[np.bool_],
        several: npt.NDArray[np.bool_],
    ) -> tuple[Ints, Ints]:
        return original(self, events, at, number, np.ones_like(right), several)

    replace(original, evaluated)


@fault(VERDICT, MATCHER, JOIN)
def large_integers_as_doubles() -> None:
    """A range with a bound beyond 2^53 counts as exact, where doubles are two apart."""

    def rounded(op: str, value: Scalar | None) -> list[tuple[Range, bool]]:
        return [(each, True) for each, _ in original(op, value)]

    original = ranges
    replace(ranges, rounded)


@fault(VERDICT, MATCHER, JOIN)
def second_range_of_an_attribute_wins() -> None:
    """Of two ranges of one attribute in a conjunction the second one replaces the first."""

    def both(one: Conjunction, other: Conjunction) -> Conjunction | None:
        return Conjunction(one.ranges | other.ranges, one.exact and other.exact)

    replace(_both, both)


@fault(VERDICT, PLACES, "test_an_output_that_the_executors_do_not_share_is_found")
def private_folders_unnoticed() -> None:
    """Nothing checks whether the machines of a cluster share the folder of the report."""

    def unchecked(spark: Any, folder: Path) -> None:
        return

    replace(check_shared, unchecked)


@fault(VERDICT, REMOTE, "test_trace_files_are_fetched_by_day_under_their_names")
def days_of_another_file_system_ignored() -> None:
    """Of another file system files of all days are copied, whatever time is wanted."""
    fetch = HadoopFolder.fetch

    def everything(
        self: HadoopFolder, into: Path, window: Window, progress: OnProgress = silent
    ) -> None:
        fetch(self, into, ALWAYS, progress)

    replace(fetch, everything)


@fault(VERDICT, REMOTE, "test_a_report_replaces_an_earlier_one_and_nothing_else")
def foreign_output_unnoticed() -> None:
    """A report replaces whatever is in its folder of another file system."""

    def unchecked(self: HadoopFolder, overwrite: bool) -> None:
        return

    replace(HadoopFolder.check_output, unchecked)


@fault(VERDICT, TASKS, "test_many_files_are_read_whole")
def rows_end_at_an_empty_batch() -> None:
    """Rows in memory are handed to Spark in the batches that they came in, also empty ones."""

    def uncombined(spark: Any, table: Any, schema: Any = None) -> Any:
        return in_one_task(spark.createDataFrame(table, schema))

    replace(frame_of_table, uncombined)


@fault(VERDICT, PLANTED, "test_the_verdict_on_a_planted_fault[losses that a header hides]")
def headers_believed() -> None:
    """The share of the events that a header names is believed, whatever its records are of."""

    def believed(said: float | None, highest: int, events: int) -> tuple[float | None, str]:
        return (1.0, "") if said is None else (said, "")

    replace(share_of, believed)


@fault(VERDICT, PLANTED, "test_the_verdict_on_a_planted_fault[an event without any record]")
def numbers_of_events_unread() -> None:
    """Nothing looks at the numbers of events and subscriptions."""

    def nothing(
        spark: Any, complete: Any, events: Any, subscriptions: Any, since: float
    ) -> dict[str, Unseen]:
        return {}

    replace(unseen, nothing)


@fault(VERDICT, RECORDED, "test_the_digest_is_of_content_and_nothing_else")
def digest_of_the_object() -> None:
    """The digest in trace records is of the object in memory."""

    def partly(event: Event) -> int:
        return len(event.payload) + id(event)

    replace(digest_of, partly)


@fault(VERDICT, RECORDED, "test_what_the_policy_leaves_of_a_tenants_subscription_is_recorded")
def policy_unrecorded() -> None:
    """A tenant's subscription is recorded as if the policy left all of it."""

    def everything(self: Policies, selector: str) -> None:
        return None

    replace(Policies.remainder, everything)


@fault(
    "promise: a node's files are its user's alone",
    LOCAL,
    "test_a_linked_or_foreign_trace_folder_is_refused",
)
def foreign_trace_folder_taken() -> None:
    """A node writes its traces into whatever folder there is."""

    def unchecked(folder: Path) -> None:
        return

    replace(secure_traces, unchecked)


@fault(VERDICT, PLACES, "test_names_are_given_to_spark_as_they_are")
def brackets_as_patterns() -> None:
    """Spark takes brackets in the name of a trace folder for a pattern."""
    replace(for_reading, for_writing)


@fault(VERDICT, PLACES, "test_compressed_files_count_with_the_text_that_is_in_them")
def compressed_files_skipped() -> None:
    """Trace files that were compressed are passed over."""

    def plain(traces: Path) -> Any:
        return (path for path in original(traces) if path.suffix != ".gz")

    original = trace_files
    replace(trace_files, plain)


@fault(VERDICT, REPORT, "test_searches_that_no_walk_came_before_are_named")
def ring_searches_unexplained() -> None:
    """The report does not say which trees the ring found without a walk before."""

    def silent_text(walks: WalkCounts) -> str:
        return original(dataclasses.replace(walks, by_ring=0))

    original = walks_text
    replace(walks_text, silent_text)


@fault(VERDICT, REPORT, "test_the_report_says_how_many_virtual_nodes_trees_had")
def one_virtual_node_each() -> None:
    """The report takes every tree for one of one virtual node."""

    def undivided(sizes: TreeSizes) -> str:
        return original(dataclasses.replace(sizes, divided=0))

    original = tree_sizes_text
    replace(tree_sizes_text, undivided)
