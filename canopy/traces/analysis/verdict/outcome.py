"""The result of a run: exact, not exact, or not judged.

*Not exact*: something is wrong, and the records prove it. *Not judged*: nothing is proved to be
wrong, but too much is absent to say that nothing is; or nothing was expected, which proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from canopy.traces.analysis.completeness.overlays import OverlayFacts
from canopy.traces.analysis.constants import UNJUDGED_LIMIT
from canopy.traces.analysis.verdict.deliveries import VerdictCounts

EXACT: Final = "exact"
NOT_EXACT: Final = "not exact"
NOT_JUDGED: Final = "not judged"

REASONS_MOST: Final = 5  # doubts that are named of an overlay. Guess, as the lists of the report

FAULTS: Final = (
    *("missing", "dropped", "discarded", "corrupted", "duplicates", "spurious", "unknown"),
    *("unreadable", "altered", "republished", "unpublished", "contradictions"),
)
"""The kinds of faults; an exact run has none."""


@dataclass(frozen=True)
class OverlayOutcome:
    """The result for one overlay, or for all of them."""

    name: str
    result: str  # EXACT, NOT_EXACT or NOT_JUDGED
    faults: dict[str, int]  # of FAULTS, those that are there
    reasons: tuple[str, ...]  # why it is not judged
    counts: VerdictCounts
    unjudged: int
    """Pairs that could not be judged, and events that may have been in one."""

    @property
    def unjudged_share(self) -> float | None:
        """The share of all pairs that should be judged; None without any."""
        every = self.counts.expected + self.unjudged
        return self.unjudged / every if every else None


def outcome_of(
    overlay: OverlayFacts,
    counts: VerdictCounts,
    found: Mapping[str, int],
    unjudged: int,
    doubts: Sequence[str] = (),
) -> OverlayOutcome:
    """The result for one overlay. `found` are the faults that are not in `counts`, `unjudged` what
    could not be judged beside pairs that are in `counts`; `doubts` why it is not exact at best."""
    numbers = {**vars(counts), **found}
    faults = {name: numbers[name] for name in FAULTS if numbers.get(name)}
    unjudged += counts.unjudged + overlay.forwards
    reasons = []
    every = counts.expected + unjudged
    if not counts.expected:
        reasons.append("no delivery was expected, which proves nothing")
    if unjudged > UNJUDGED_LIMIT * every:
        reasons.append(f"{unjudged:,} of {every:,} pairs cannot be judged")
    reasons += [*absences(overlay), *doubts[:REASONS_MOST]]
    result = NOT_EXACT if faults else NOT_JUDGED if reasons else EXACT
    return OverlayOutcome(overlay.name, result, faults, tuple(reasons), counts, unjudged)


def absences(overlay: OverlayFacts) -> list[str]:
    """Why the records of an overlay cannot prove it right, however few pairs are left open."""
    reasons = []
    torn = [run for run in overlay.runs if not run.explained]
    if torn:
        absent = sum(hole.records or 0 for run in torn for hole in run.holes)
        where = some_of([run.node for run in torn])
        reasons.append(f"{absent:,} records are absent that no node counts as lost, of {where}")
    if overlay.absent:
        reasons.append(f"there are no records at all of {some_of(overlay.absent)}")
    for doubt in sorted({doubt for run in overlay.runs for doubt in run.doubts})[:REASONS_MOST]:
        reasons.append(doubt)
    if overlay.strangers:
        reasons.append(
            f"{some_of(overlay.strangers)} met nodes whose headers name another overlay than theirs"
        )
    if overlay.apart:
        reasons.append("other nodes of the same overlay's name never met these")
    return reasons


def some_of(nodes: Iterable[str]) -> str:
    """Name the first of these nodes, and the number of the others."""
    named = sorted(dict.fromkeys(nodes))
    more = f" and {len(named) - 3:,} more" if len(named) > 3 else ""
    return ", ".join(named[:3]) + more


def overall(outcomes: Mapping[str, OverlayOutcome], counts: VerdictCounts) -> OverlayOutcome:
    """The result for all overlays of a folder: the worst of them."""
    each = list(outcomes.values())
    faults: dict[str, int] = {}
    for one in each:
        for name, number in one.faults.items():
            faults[name] = faults.get(name, 0) + number
    for name in FAULTS:  # pairs of no overlay: neither event nor subscription is known
        if getattr(counts, name, 0):
            faults[name] = getattr(counts, name)
    reasons = [
        reason if len(each) == 1 else f"{one.name}: {reason}"
        for one in each
        for reason in one.reasons
    ]
    result = NOT_EXACT if faults else NOT_JUDGED if reasons else EXACT
    open_pairs = sum(one.unjudged for one in each)
    return OverlayOutcome("", result, faults, tuple(reasons), counts, open_pairs)
