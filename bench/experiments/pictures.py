"""Charts of rows, as SVG: of an experiment, and of a paper's figure with the paper's points beside.

matplotlib: it writes the same bytes for the same rows, and needs no browser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from bench.lab.tables import Row, value

HEIGHT: Final = 3.6
WIDTHS: Final = (8.0, 5.0)
"""Inches: of one chart with its legend at its side, and of each of several."""

PAPERS: Final = "#8a8f98"
"""The colour of what is the paper's."""

Series = dict[str, dict[Any, float]]
"""By name, y by x."""


class Picture(NamedTuple):
    """A chart of rows: `y` over `x`, a series for each value of `by`."""

    kind: Literal["bars", "lines"]
    x: str
    y: str
    by: Mapping[str, str]
    """Keys of a row, and what is written behind their value."""
    x_label: str
    y_label: str
    where: Mapping[str, Any] = {}
    log: bool = False
    """Of y; x is logarithmic in lines, unless a row has 0 there."""
    paper: tuple[tuple[Any, float], ...] = ()
    """Points (x, y) of the paper, as far as its text has them."""
    curves: Mapping[str, str] = {}
    """Instead of `y` and `by`: keys of a row, and the names of their series."""


def series_of(picture: Picture, rows: Sequence[Row]) -> Series:
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


def draw(pictures: Sequence[Picture], rows: Sequence[Row], title: str, path: Path) -> bool:
    """Draw charts side by side into an SVG; whether there was anything to draw."""
    if not any(series_of(picture, rows) for picture in pictures):
        return False
    import matplotlib

    path.parent.mkdir(parents=True, exist_ok=True)
    width = WIDTHS[0] if len(pictures) == 1 else len(pictures) * WIDTHS[1]
    with matplotlib.rc_context({"svg.hashsalt": "canopy", "font.size": 9}):
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        figure: Any = Figure(figsize=(width, HEIGHT), layout="constrained")
        charts: Any = figure.subplots(1, len(pictures), squeeze=False)[0]
        for axes, picture in zip(charts, pictures, strict=True):
            ours = series_of(picture, rows)
            (_bars if picture.kind == "bars" else _lines)(axes, ours, picture)
            if picture.log:
                axes.set_yscale("log")
            axes.set_xlabel(picture.x_label)
            axes.set_ylabel(picture.y_label)
            axes.grid(visible=True, axis="y", alpha=0.3)
        charts[0].set_title(title, fontsize=10)
        beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if len(pictures) == 1 else {}
        for axes in charts:
            if axes.get_legend_handles_labels()[0]:
                axes.legend(fontsize=7, **beside)
        canvas: Any = FigureCanvasSVG(figure)
        with path.open("wb") as out:
            canvas.print_svg(out, metadata={"Date": None, "Creator": "canopy"})
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


def _lines(axes: Any, ours: Series, picture: Picture) -> None:
    if picture.paper:
        xs, ys = zip(*picture.paper, strict=True)
        axes.plot(xs, ys, "--", color=PAPERS, label="the paper")
    for name, points in ours.items():
        places = sorted(points)
        axes.plot(places, [points[x] for x in places], "o-", markersize=3, label=name)
    if all(x > 0 for points in ours.values() for x in points):
        axes.set_xscale("log")
