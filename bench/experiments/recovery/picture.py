"""The picture of recoveries: seconds until deliveries flow again, over the rate."""

from __future__ import annotations

from typing import Any, BinaryIO

from bench.experiments.recovery.report import PAPER, RecoveryReport, rows_of
from bench.experiments.svg import svg

SIZE = (8.0, 4.8)
"""Inches."""

COLOURS = ("#c0392b", "#1f6f8b", "#7f8c8d", "#8e6c1d", "#4b7f52")
"""The first three are those of the figures (bench/experiments/figures/draw.py)."""

LEAST = 0.01
"""Seconds: what is less is drawn here, since the axis is logarithmic."""


def draw(report: RecoveryReport, out: BinaryIO) -> None:
    """Write an SVG: the same bytes for the same report."""
    with svg(out, SIZE) as picture:
        axes: Any = picture.add_subplot()
        axes.axhspan(*PAPER, color="#e8e4d8", label="the paper's Phoenix")
        for kill, colour in zip(report.parameters.kills, COLOURS, strict=False):
            rows = rows_of(report, kill)
            seen = [row for row in rows if row["all_s"]["median"] is not None]
            middle = [max(LEAST, row["all_s"]["median"]) for row in seen]
            over = [max(0.0, row["all_s"]["most"] - row["all_s"]["median"]) for row in seen]
            axes.errorbar(
                [row["rate"] for row in seen],
                middle,
                yerr=[[0.0] * len(seen), over],
                marker="o",
                capsize=3,
                color=colour,
                label=kill if seen else f"{kill} (did not recover)",
            )
        axes.set_yscale("log")
        axes.set_xlabel("events per second")
        axes.set_ylabel(
            "s until all that needed the lost is delivered again\n(median, and the longest)"
        )
        facts = report.parameters
        how = "machines that fall silent" if facts.silent else "processes that are killed"
        axes.set_title(
            f"Recovery from {how}: {facts.nodes} nodes, {facts.times} seeds", fontsize=10
        )
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend(fontsize=8)
