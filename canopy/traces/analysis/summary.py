"""The results of one analysis: its numbers, as `summary.json` has them, and what its report is made
from."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from canopy.traces.analysis import details, latencies, output, slowest, walks, wrong
from canopy.traces.analysis.output import FORMAT
from canopy.traces.analysis.verdict.deliveries import VerdictCounts
from canopy.traces.analysis.verdict.outcome import EXACT


@dataclass(frozen=True)
class AnalysisSummary(VerdictCounts):
    """The results in numbers. Messages are data-plane messages; latencies are in milliseconds.

    A share or percentile of nothing is None. `delivered` counts expected pairs that were
    delivered, so that missing = expected - delivered - dropped - discarded - corrupted.
    """

    version: int
    nodes: int
    published: int
    unjudged_share: float | None  # of all pairs that should be judged
    result: str  # "exact", "not exact" or "not judged"
    faults: dict[str, int]  # what is wrong, by kind (`outcome.FAULTS`)
    reasons: list[str]  # why it is not judged
    overlays: list[dict[str, Any]]
    """A row for each overlay in the folder: `name`, `nodes`, `result`, `faults`, `reasons`,
    `expected`, `delivered`, `withheld`, `unjudged`, `latency_ms`."""
    clocks: dict[str, float]
    """By node, seconds by which its wall clock was ahead of the median node's."""
    clock_steps: dict[str, float]
    """By node, seconds by which its wall clock was set while it ran, at most."""
    clocks_agree: bool
    """Whether latencies are differences of wall clocks; else of the hybrid logical clock."""
    absent_nodes: list[str]
    """Nodes that others name and that have no records."""
    incomplete: list[dict[str, Any]]
    """Stretches of records that are absent: `node`, `run`, `records` (or None), `cause`."""
    copies: int  # records that are there more than once, and were counted once
    refused: int  # events that were not accepted for publishing
    drops: int
    subscriptions: int
    unreadable_subscriptions: int
    table_hits: int
    """Trees that publishers had in their own tables of access points: no walk was needed."""
    walks: int
    walk_hits: int
    ring_hits: int
    absent: int
    walk_hit_rate: float | None
    walks_findable: int
    """Walks for an attribute that has a tree; without subscriptions no walk can hit."""
    walk_hops: dict[str, float | None]
    blocked: int
    recovered: int
    walk_messages: int
    """Number of the `messages` that are steps of walks, which carry an attribute and no event."""
    tree_hops: dict[str, float | None]
    messages: int
    other_messages: int
    messages_per_delivery: float | None
    effective_distribution_cost: float | None
    load: list[dict[str, Any]]
    load_spread: dict[str, dict[str, float | None]]
    """The distribution of the work over nodes (`load.spread_of`)."""
    corrupt_lines: int
    sample: float
    seconds: float
    """From the first to the last record."""
    report: str
    wrong: list[dict[str, Any]] = field(default_factory=list)
    """Wrong deliveries by kind, node, cause and time (`wrong.WrongPairs.groups`)."""
    by_subscription: list[dict[str, Any]] = field(default_factory=list)
    """Of the first subscriptions, those with faults and with most events first: `subscription`,
    `name`, `expected`, `delivered`, `missing`, `dropped`, `spurious`, `duplicates`, `made` (all
    deliveries); and `selector` and `tree` of one whose tree is not that of its selector."""
    days: list[dict[str, Any]] = field(default_factory=list)
    """A line for each day (`days.trends`), if there are several."""
    since: float | None = None
    """Seconds since 1970: days before were closed (`prune.close_days`). Only their lines are left,
    and all other numbers are of the time since."""
    undrawn: list[str] = field(default_factory=list)
    """Parts of the report that could not be computed, each with the reason."""
    late_records: int = 0  # of closed days, which came later and were left out
    format: str = field(default=FORMAT)
    complete: bool = field(default=True)

    @property
    def exact(self) -> bool:
        """Whether the records prove that each expected delivery was made once, and no others."""
        return self.result == EXACT

    def to_dict(self) -> dict[str, Any]:
        """The content of summary.json."""
        return {"format": self.format, **asdict(self), "exact": self.exact}


@dataclass(frozen=True)
class Findings:
    """All results of an analysis."""

    summary: AnalysisSummary
    walk_counts: walks.WalkCounts
    walk: walks.ExampleWalk | None
    tree: walks.TreeHops
    details: details.Details
    wrong: wrong.WrongPairs
    slowest: list[slowest.DeliveryPath]
    names: dict[str, str]  # by node id
    routing: str | None
    first: float  # time of the first record
    incidents: list[dict[str, Any]]
    latencies: latencies.Latencies
    downloads: list[output.Download] = field(default_factory=list)
