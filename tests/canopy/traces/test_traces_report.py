"""Figures of the report that belong together add up, and each names its whole."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from canopy.traces.analysis.output import write_table
from canopy.traces.analysis.report import _begun, drawn
from canopy.traces.analysis.report.downloads import leave_downloads
from canopy.traces.analysis.report.incident_timeline import summed_up
from canopy.traces.analysis.report.pictures import Bar, Mark, columns
from canopy.traces.analysis.report.sections import bins_of, tree_sizes_text, walks_text
from canopy.traces.analysis.report.wording import tree_of_all
from canopy.traces.analysis.walks import WalkCounts

COUNTS = WalkCounts(
    at_once=0, started=124, hits=68, missed=56, unfinished=0, findable=90, hit_rate=68 / 124,
    by_walk=68, by_ring=22, absent=101, blocked=0, recovered=0, messages=300, hops={"mean": 1.5},
    hop_counts=((1, 68),), trees={},
)  # fmt: skip


def test_hits_are_of_the_walks_that_could_hit() -> None:
    text = walks_text(COUNTS)
    assert "124 walks set out" in text
    assert "68 of the 90 for attributes that have a tree hit (75.6 %), after 1.50 hops" in text
    assert "The other 34 could not hit" in text


def test_what_cannot_be_drawn_is_named_and_takes_nothing_along() -> None:
    def the_weather(findings: Any) -> str:
        raise OverflowError("<too> large")

    text = drawn(the_weather, cast(Any, None))
    assert "the weather cannot be drawn: OverflowError: &lt;too&gt; large" in text
    assert _begun(1e300) == "at 1e+300 s"


def test_without_walks_there_is_no_share_of_them() -> None:
    text = walks_text(replace(COUNTS, started=0, hits=0, missed=0, findable=0, by_walk=0))
    assert "No walk was needed" in text
    assert " - " not in text
    assert "0 of" not in text
    without = walks_text(replace(COUNTS, hits=0, findable=0, by_walk=0))
    assert "124 walks set out. The other" not in without


def test_searches_that_end_in_the_own_table_are_no_walks() -> None:
    all_known = walks_text(replace(COUNTS, at_once=68, started=0, hits=0, missed=0, findable=0))
    assert "No walk was needed: all 68 trees that were searched for stood in" in all_known
    some = walks_text(replace(COUNTS, at_once=40))
    assert "40 searches needed no walk: the tree stood in the publisher's own table." in some
    assert "124 walks set out" in some


def test_searches_that_no_walk_came_before_are_named() -> None:
    assert COUNTS.asked_at_once == 0  # 22 walks for trees missed, and the ring found as many
    assert "of the ring" not in walks_text(COUNTS)
    more = walks_text(replace(COUNTS, by_ring=30))
    assert "8 searches of the ring came without a walk: what was known of the tree" in more


def test_the_report_says_how_many_virtual_nodes_trees_had() -> None:
    assert tree_sizes_text({}) == ""
    assert tree_sizes_text({"a": 1}).startswith("The only tree had one")
    assert tree_sizes_text({"a": 3}) == "The only tree had 3 at most."
    assert "Each of the 2 trees had one" in tree_sizes_text({"a": 1, "b": 1})
    some = tree_sizes_text({"a": 1, "<b>": 7, "c": 2})
    assert some == "2 of 3 trees had more than one; that of <code>&lt;b&gt;</code> had most, 7."


def test_no_spreadsheet_calculates_what_is_downloaded(tmp_path: Path) -> None:
    folder = tmp_path / "tables" / "subscriptions"
    rows = pa.table({"name": ["=1+1", "a", None, "=1+1", "\x1b[2J"], "expected": [-5, 1, 2, 3, 4]})
    write_table(folder, rows)
    (found,) = leave_downloads(tmp_path, ("subscriptions", "absent"))
    assert found == ("subscriptions", 5, "tables/subscriptions/part-00000.parquet", found.csv)
    with (tmp_path / found.csv).open(newline="") as file:
        read = [tuple(row.values()) for row in csv.DictReader(file)]
    assert read == [("'=1+1", "-5"), ("a", "1"), ("", "2"), ("'=1+1", "3"), ("\\u001b[2J", "4")]


def test_the_tree_of_every_event_is_explained_where_it_is_shown() -> None:
    assert tree_of_all(["a", None]) == ""
    assert "every event visits" in tree_of_all(["a", "$event"])


def test_labels_of_marks_have_a_line_each_above_the_columns() -> None:
    bars = [Bar("", 10, "") for _ in range(20)]
    drawn = columns(bars, "t", "events", [Mark(14, "half"), Mark(19, "99 %")])
    lines = [float(y) for y in re.findall(r'class="marklabel"[^>]* y="([\d.]+)"', drawn)]
    tops = [float(y) for y in re.findall(r'class="bar" x="[\d.]+" y="([\d.]+)"', drawn)]
    assert len(set(lines)) == 2
    assert max(lines) < min(tops)


def test_a_picture_of_the_run_is_as_long_as_the_run() -> None:
    assert bins_of(90.0, 1.5, [0, 28]) == 60  # nothing was sent in its second half
    assert bins_of(90.0, 1.5, [0, 59]) == 60
    assert bins_of(0.0, 0.001, [0]) == 1
    assert bins_of(0.0, 0.001, []) == 1


def test_what_did_not_happen_is_not_counted() -> None:
    silent = {"what": "silent", "node": "a"}
    assert summed_up([silent]) == "No connection was lost, and no cluster elected a primary."
    down, elected = {"what": "link down", "node": "a"}, {"what": "elected", "node": "b"}
    assert summed_up([down, down, elected]) == (
        "The connections to 1 node were lost, and clusters elected a primary 1 time."
    )
