"""Pictures for docs/lab/papers.md: a figure of a paper as a chart of ours, with the paper's points
where its text has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.experiments.svg import svg
from bench.lab.tables import value
from bench.papers.experiment import Experiment, Picture

SIZE: Final = (8.0, 3.6)
"""Inches."""

PAPERS: Final = "#8a8f98"
"""The colour of what is the paper's."""

Series = dict[str, dict[Any, float]]
"""By name, y by x."""


def series_of(picture: Picture, rows: Sequence[dict[str, Any]]) -> Series:
    """Ours, in the order of the rows; of several rows for a point the last one counts."""
    found: Series = {}
    for row in rows:
        if any(value(row, key) != is_ for key, is_ in picture.where.items()):
            continue
        name = ", ".join(f"{value(row, key)}{unit}" for key, unit in picture.by.items())
        for key, series in (picture.curves or {picture.y: name}).items():
            y = value(row, key)
            if y is not None:
                found.setdefault(series, {})[value(row, picture.x)] = y
    return found


def draw(one: Experiment, rows: Sequence[dict[str, Any]], path: Path) -> bool:
    """Draw an experiment's picture into an SVG; whether there was anything to draw."""
    picture = one.picture
    ours = series_of(picture, rows) if picture is not None else {}
    if picture is None or not ours:
        return False
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as out, svg(out, SIZE) as figure:
        axes: Any = figure.add_subplot()
        (_bars if picture.kind == "bars" else _lines)(axes, ours, picture)
        axes.set_xlabel(picture.x_label)
        axes.set_ylabel(picture.y_label)
        axes.set_title(f"{one.paper}, {one.place}: {one.title}", fontsize=10)
        axes.grid(visible=True, axis="y", alpha=0.3)
        axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return True


def _bars(axes: Any, ours: Series, picture: Picture) -> None:
    every: list[tuple[str, dict[Any, float], str | None]] = [
        *(("the paper", points, PAPERS) for points in [dict(picture.paper)] if points),
        *((name, points, None) for name, points in ours.items()),
    ]
    xs = list(dict.fromkeys(x for _, points, _ in every for x in points))
    width = 0.8 / len(every)
    for place, (name, points, colour) in enumerate(every):
        left = [xs.index(x) + width * (place - (len(every) - 1) / 2) for x in points]
        axes.bar(left, list(points.values()), width=0.92 * width, label=name, color=colour)
    axes.set_xticks(range(len(xs)), [f"{x:,}" if isinstance(x, int) else str(x) for x in xs])
    if picture.log:
        axes.set_yscale("log")


def _lines(axes: Any, ours: Series, picture: Picture) -> None:
    if picture.paper:
        xs, ys = zip(*picture.paper, strict=True)
        axes.plot(xs, ys, "--", color=PAPERS, label="the paper")
    for name, points in ours.items():
        places = sorted(points)
        axes.plot(places, [points[x] for x in places], "o-", markersize=3, label=name)
    axes.set_xscale("log")
    if picture.log:
        axes.set_yscale("log")
