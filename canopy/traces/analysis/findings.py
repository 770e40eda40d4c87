"""What an analysis found: everything that the report is drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from canopy.traces.analysis import deliveries, details, slowest, walks
from canopy.traces.analysis.summary import Summary


@dataclass(frozen=True)
class Findings:
    """Everything that the report is drawn from."""

    summary: Summary
    counts: deliveries.Counts
    ways: walks.Ways
    tree: walks.TreeHops
    details: details.Details
    slowest: list[slowest.Way]
    names: dict[str, str]  # node -> what people call it
    routing: str | None
    first: float  # time of the first record
    incidents: list[dict[str, Any]]
