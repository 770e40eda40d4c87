"""The results of an analysis, from which the report is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from canopy.traces.analysis import details, latencies, output, slowest, walks, wrong
from canopy.traces.analysis.summary import AnalysisSummary
from canopy.traces.analysis.verdict import deliveries


@dataclass(frozen=True)
class Findings:
    """All results of an analysis."""

    summary: AnalysisSummary
    counts: deliveries.VerdictCounts
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
