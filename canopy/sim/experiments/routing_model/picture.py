"""The picture of `canopy sim routing`: what each style costs, keeps and loads, side by side."""

from __future__ import annotations

from typing import Any, BinaryIO

from canopy.sim.experiments.routing_model.report import RoutingReport, StyleReport

SIZE = (10.0, 4.6)
"""Inches."""

COLOURS = ("#c0392b", "#1f6f8b", "#7f8c8d")
"""Those of the figures (canopy/sim/experiments/figures/draw.py)."""


def draw(report: RoutingReport, out: BinaryIO) -> None:
    """Write an SVG: the same bytes for the same report."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "canopy", "font.size": 9}):
        _draw(report, out)


def _draw(report: RoutingReport, out: BinaryIO) -> None:
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Picture

    picture: Any = Picture(figsize=SIZE, layout="constrained")
    panels: Any = picture.subplots(1, 3, sharey=True)
    names = [style.name for style in report.styles]
    columns: tuple[tuple[str, list[float | None], str], ...] = (
        ("messages / lower bound", [style.ratio for style in report.styles], "{:.2f}"),
        ("index entries per host", [_mean(style) for style in report.styles], "{:,.0f}"),
        ("load of the busiest host / mean", [_peak(style) for style in report.styles], "{:.1f}"),
    )
    for axes, (title, values, form), colour in zip(panels, columns, COLOURS, strict=True):
        bars = axes.barh(names, [value or 0.0 for value in values], color=colour)
        axes.bar_label(bars, [form.format(v) if v else "-" for v in values], padding=3)
        axes.set_title(title, fontsize=10)
        axes.margins(x=0.25)
        axes.grid(visible=True, axis="x", alpha=0.3)
    panels[0].set_xscale("log")
    panels[0].axvline(1.0, color="black", linewidth=0.8)
    panels[0].invert_yaxis()
    facts = report.parameters
    picture.suptitle(
        f"{facts['nodes']:,} nodes, {facts['subscriptions']:,} subscriptions, "
        f"{report.interested_per_event:.1f} interested per event, {report.dead:,} dead",
        fontsize=10,
    )
    canvas: Any = FigureCanvasSVG(picture)
    canvas.print_svg(out, metadata={"Date": None, "Creator": "canopy"})


def _mean(style: StyleReport) -> float | None:
    return None if style.entries is None else style.entries.mean


def _peak(style: StyleReport) -> float | None:
    return None if style.hosting is None else style.hosting.max_over_mean
