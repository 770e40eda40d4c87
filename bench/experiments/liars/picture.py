"""The picture of the lies: what is delivered, and what views hold, over the share of liars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, BinaryIO

from bench.experiments.liars.report import LiarsExperiment
from bench.experiments.liars.trial import Outcome
from bench.experiments.svg import svg

SIZE = (10.0, 3.6)
"""Inches."""

COLOURS = ("#c0392b", "#b9770e", "#7f8c8d", "#1f6f8b")
MARKERS = ("x", "^", "D", "o")

PANELS: tuple[tuple[str, Callable[[Outcome], float | None]], ...] = (
    ("% delivered within 10 s", lambda row: row.delivered),
    ("% of walks that hit", lambda row: row.walk_hits),
    ("% of honest nodes' views that lies", lambda row: row.liars_in_views),
)
"""What is drawn, one panel each."""


def draw(found: LiarsExperiment, out: BinaryIO) -> None:
    """Write an SVG: the same bytes for the same experiment."""
    with svg(out, SIZE) as picture:
        panels: Any = picture.subplots(1, len(PANELS))
        for axes, (label, value) in zip(panels, PANELS, strict=True):
            for number, name in enumerate(dict.fromkeys(row.defence for row in found.rows)):
                rows = [row for row in found.rows if row.defence == name]
                shown = [(row.malicious, value(row)) for row in rows]
                axes.plot(
                    [100 * share for share, one in shown if one is not None],
                    [100 * one for _, one in shown if one is not None],
                    label=name,
                    color=COLOURS[number % len(COLOURS)],
                    marker=MARKERS[number % len(MARKERS)],
                )
            axes.set_ylim(-3, 103)
            axes.set_xlabel("% of nodes that lie")
            axes.set_ylabel(label)
            axes.grid(visible=True, alpha=0.3)
        panels[0].legend(fontsize=8)
        plan = found.parameters
        picture.suptitle(f"{plan.attack}: {plan.nodes} nodes, seed {plan.seed}", fontsize=10)
