"""The picture of scaling: events per second over hosts, beside what is linear."""

from __future__ import annotations

from typing import Any, BinaryIO

from bench.experiments.scaling.report import Scaling
from bench.experiments.svg import svg

SIZE = (6.0, 4.4)
"""Inches."""

COLOURS = ("#1f6f8b", "#c0392b")
MARKERS = ("o", "s")


def draw(found: Scaling, out: BinaryIO) -> None:
    """Write an SVG: the same bytes for the same experiment."""
    with svg(out, SIZE) as picture:
        axes: Any = picture.subplots()
        for number, load in enumerate(found.parameters.loads):
            points = [point for point in found.points if point.load == load]
            hosts = [point.hosts for point in points]
            colour, marker = COLOURS[number % 2], MARKERS[number % 2]
            rates = [point.events_per_second for point in points]
            axes.plot(hosts, rates, label=load, color=colour, marker=marker)
            linear = [count * rates[0] for count in hosts]
            axes.plot(hosts, linear, color=colour, linestyle=":", label=f"{load}, linear")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("nodes that may host")
        axes.set_ylabel(f"events per second, 99 % within {found.parameters.p99_ms:g} ms")
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend()
        picture.suptitle(f"seed {found.seed}", fontsize=10)
