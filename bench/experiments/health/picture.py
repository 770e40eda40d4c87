"""The picture of `bench.experiments health`: how long each primary after the loss lasted."""

from __future__ import annotations

from typing import Any, BinaryIO

from bench.experiments.health.report import HealthExperiment
from bench.experiments.svg import svg

SIZE = (8.0, 4.0)
"""Inches."""

COLOURS = {"nobody": "#c0392b", "itself": "#d9a441", "file": "#1f6f8b"}


def draw(found: HealthExperiment, out: BinaryIO) -> None:
    """Write an SVG: the same bytes for the same experiment."""
    with svg(out, SIZE) as picture:
        axes: Any = picture.add_subplot()
        most = found.parameters.after
        for place, row in enumerate(found.rows):
            mine = [one for one in found.trials if one.by == row.by]
            lasted = [most if one.failure_s is None else one.failure_s for one in mine]
            axes.bar(
                [one.seed + 0.27 * (place - 1) for one in mine],
                lasted,
                width=0.25,
                color=COLOURS[row.by],
                label=f"judged by {row.by}: {row.failed} of {row.trials} failed",
            )
        axes.set_xlabel("seed")
        axes.set_ylabel("s from the election until the primary fails\n(or the trial ends)")
        axes.set_title(
            "The standby is slow and near its disk's end; the primary is lost", fontsize=10
        )
        axes.grid(visible=True, axis="y", alpha=0.3)
        axes.legend(fontsize=8)
