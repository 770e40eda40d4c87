"""A figure as a picture. matplotlib: it is what the report of the traces draws with."""

from __future__ import annotations

from typing import Any, BinaryIO

from bench.experiments.figures.model import Figure
from bench.experiments.svg import svg

COLOURS = ("#c0392b", "#1f6f8b", "#7f8c8d", "#27ae60", "#8e44ad")
MARKERS = ("s", "o", "^", "x", "D")
SIZE = (7.0, 4.4)
"""Inches."""


def draw(figure: Figure, out: BinaryIO) -> None:
    """Write an SVG: the same bytes for the same figure."""
    with svg(out, SIZE, font_size=10) as picture:
        axes: Any = picture.add_subplot()
        for number, series in enumerate(figure.series):
            points = [
                (x, y) for x, y in zip(figure.x, series.y, strict=True) if y is not None and y > 0
            ]
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                label=series.name,
                color=COLOURS[number % len(COLOURS)],
                marker=MARKERS[number % len(MARKERS)],
                linestyle="-" if series.paper else "--",
            )
        axes.set_xlabel(figure.x_label)
        axes.set_ylabel(figure.y_label)
        axes.set_title(f"Figure {figure.figure}: {figure.title}", fontsize=10)
        if figure.x_log:
            axes.set_xscale("log")
        if figure.y_log:
            axes.set_yscale("log")
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend(fontsize=9)
