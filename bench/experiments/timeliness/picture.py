"""The picture of timeliness: four modes over rates and over numbers of matches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, BinaryIO

from bench.experiments.svg import svg
from bench.experiments.timeliness.report import Point, Timeliness

SIZE = (10.0, 7.2)
"""Inches."""

COLOURS = ("#7f8c8d", "#b9770e", "#1f6f8b", "#c0392b")
MARKERS = ("^", "D", "o", "s")

LABELS = {"rate": "events per second", "matching": "subscriptions that an event matches"}

ROWS: tuple[tuple[str, Callable[[Point], float]], ...] = (
    ("mean latency by urgency, ms", lambda point: point.urgency_ms),
    ("99 % of level 1 within, ms", lambda point: point.levels[0].p99_ms),
)
"""What is drawn over each load, one row each."""


def draw(found: Timeliness, out: BinaryIO) -> None:
    """Write an SVG: the same bytes for the same experiment."""
    with svg(out, SIZE) as picture:
        panels: Any = picture.subplots(len(ROWS), len(found.series), squeeze=False)
        for row, (label, value) in enumerate(ROWS):
            for column, series in enumerate(found.series):
                axes = panels[row][column]
                for number, curve in enumerate(series.curves):
                    axes.plot(
                        series.x,
                        [value(point) for point in curve.points],
                        label=curve.mode,
                        color=COLOURS[number],
                        marker=MARKERS[number],
                    )
                axes.set_yscale("log")
                axes.set_xlabel(LABELS[series.over])
                axes.set_ylabel(label)
                axes.grid(visible=True, which="major", alpha=0.3)
        panels[0][0].legend(fontsize=9)
        plan = found.parameters
        picture.suptitle(
            f"{plan.replicas} hosts, {plan.publishers} publishers; left: {plan.matched} matching "
            f"subscriptions, right: {plan.rate:,} events per second; seed {found.seed}",
            fontsize=10,
        )
