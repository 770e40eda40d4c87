"""The report's pictures as small SVG and HTML.

They are not made with matplotlib, because they follow the reader's light or dark mode, have
tooltips, are legible on a phone and have a few kilobytes: their colours are the page's CSS
variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, cos, floor, log10, pi, sin
from typing import TYPE_CHECKING

from canopy.traces.analysis.constants import LEAST_MS
from canopy.traces.analysis.report.wording import duration
from overlay.phrases import counted

if TYPE_CHECKING:
    from canopy.traces.analysis.latencies import Spread
    from canopy.traces.analysis.walks import ExampleWalk


WIDTH = 480
"""The width of a picture's coordinates; on a phone with 360 points 13-point text is still 10 points
high."""


@dataclass(frozen=True)
class Bar:
    """A column: its label (may be empty), its height, and its tooltip."""

    label: str
    value: float
    tip: str


@dataclass(frozen=True)
class Mark:
    """A dashed line across the columns at `place` (counted in columns)."""

    place: float
    label: str


def chart(width: float, height: float, title: str) -> str:
    """The beginning of a picture as SVG; `title` is for screen readers."""
    return (
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>'
    )


def time_axis(seconds: float, left: float, width: float, y: float) -> str:
    """The labels of an axis of `seconds` at its beginning, middle and end."""
    return "".join(
        f'<text class="axis" text-anchor="{side}" x="{left + share * width:.0f}" y="{y}">'
        f"{share * seconds:.3g} s</text>"
        for share, side in ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
    )


def columns(
    bars: Sequence[Bar],
    title: str,
    unit: str,
    marks: Sequence[Mark] = (),
    height: int = 210,
    line: Sequence[float] = (),
) -> str:
    """A column chart as SVG, with a `line` of values for the same columns; `title` is for screen
    readers."""
    top, bottom = 22 + 15 * len(marks), 26  # a line above the columns for each mark
    most = max((*(bar.value for bar in bars), *line), default=0) or 1
    step = WIDTH / max(len(bars), 1)
    inner = height - top - bottom
    parts = [
        chart(WIDTH, height, title),
        f'<text class="axis" x="0" y="12">{escape(unit)}, {most:,.0f} at most</text>',
        f'<line class="ground" x1="0" x2="{WIDTH}" y1="{height - bottom}" y2="{height - bottom}"/>',
    ]
    width = min(step * 0.82, 46)
    for place, bar in enumerate(bars):
        tall = max(inner * bar.value / most, 1.5 if bar.value else 0)
        x = place * step + (step - width) / 2
        parts.append(
            f"<g><title>{escape(bar.tip)}</title>"
            f'<rect class="hit" x="{place * step:.1f}" y="{top}" width="{step:.1f}" '
            f'height="{inner}"/>'
            f'<rect class="bar" x="{x:.1f}" y="{height - bottom - tall:.1f}" '
            f'width="{width:.1f}" height="{tall:.1f}" rx="2"/></g>'
        )
        if bar.label:
            parts.append(
                f'<text class="axis" text-anchor="middle" x="{place * step + step / 2:.1f}" '
                f'y="{height - 9}">{escape(bar.label)}</text>'
            )
    if line:
        points = (
            f"{(place + 0.5) * step:.1f},{height - bottom - inner * value / most:.1f}"
            for place, value in enumerate(line)
        )
        parts.append(f'<polyline class="line" points="{" ".join(points)}"/>')
    for row, mark in enumerate(marks):
        x = min(max(mark.place * step, 1), WIDTH - 1)
        side = "end" if x > WIDTH * 0.7 else "start"
        label = top - 4 - 15 * (len(marks) - 1 - row)
        parts.append(
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{label - 10}" '
            f'y2="{height - bottom}"/>'
            f'<text class="marklabel" text-anchor="{side}" '
            f'x="{x + (-5 if side == "end" else 5):.1f}" y="{label}">'
            f"{escape(mark.label)}</text>"
        )
    return "".join(parts) + "</svg>"


@dataclass(frozen=True)
class BarShare:
    """A share of a bar: its name, its size, and the CSS class of its colour."""

    name: str
    value: float
    colour: str


def stacked(parts: Sequence[BarShare], of: str) -> str:
    """One bar divided into shares, with a legend that has the numbers."""
    total = sum(part.value for part in parts)
    if not total:
        return f'<p class="quiet">No {escape(of)}.</p>'
    cuts = "".join(
        f'<span class="{part.colour}" style="flex-grow:{part.value}" '
        f'title="{escape(part.name)}: {part.value:,.0f}"></span>'
        for part in parts
        if part.value
    )
    legend = "".join(
        f'<li><i class="{part.colour}"></i><b>{part.value:,.0f}</b> {escape(part.name)}</li>'
        for part in parts
    )
    return f'<div class="stack" aria-hidden="true">{cuts}</div><ul class="legend">{legend}</ul>'


def meter(value: float, most: float, colour: str = "leaf") -> str:
    """A thin horizontal bar, as long as `value` is of `most`."""
    share = 100 * value / most if most else 0
    return (
        f'<span class="meter" aria-hidden="true"><span class="{colour}" '
        f'style="width:{min(max(share, 0.6 if value else 0), 100):.1f}%"></span></span>'
    )


def waterfall_row(label: str, detail: str, begin: float, end: float, text: str, phase: str) -> str:
    """One step of a path: a bar from `begin` to `end` (shares of the whole), and its time."""
    left = min(max(begin, 0.0), 1.0) * 100
    wide = max(min(max(end, 0.0), 1.0) * 100 - left, 0.0)
    return (
        f'<li><span class="what"><b>{escape(label)}</b> <span>{escape(detail)}</span></span>'
        f'<span class="track" aria-hidden="true"><span class="{phase}" '
        f'style="left:{left:.2f}%;width:max(3px,{wide:.2f}%)"></span></span>'
        f'<span class="when">{escape(text)}</span></li>'
    )


def spread_over_time(points: Sequence[Spread | None], bin_seconds: float, title: str) -> str:
    """The median and the 99th percentile in each time bin as lines over a logarithmic scale, as
    SVG; where nothing was delivered the lines are interrupted."""
    height, top, bottom = 190, 22, 26
    known = [each for each in points if each is not None]
    low = floor(log10(max(min(each.p50 for each in known), LEAST_MS)))
    high = max(ceil(log10(max(max(each.p99 for each in known), LEAST_MS))), low + 1)
    step = WIDTH / max(len(points), 1)
    inner, ground = height - top - bottom, height - bottom

    def y(ms: float) -> float:
        return ground - inner * (log10(max(ms, LEAST_MS)) - low) / (high - low)

    parts = [chart(WIDTH, height, title)]
    for power in range(low, high + 1):
        parts.append(
            f'<line class="ground" x1="0" x2="{WIDTH}" y1="{y(10**power):.1f}" '
            f'y2="{y(10**power):.1f}"/><text class="axis" x="0" y="{y(10**power) - 3:.1f}">'
            f"{escape(duration(10**power).replace('.00', '').replace('.0', ''))}</text>"
        )
    for place, each in enumerate(points):
        if each is not None:
            tip = (
                f"{place * bin_seconds:.1f} s: {counted(each.number, 'delivery', 'deliveries')}, "
                f"half within {duration(each.p50)}, 99 % within {duration(each.p99)}"
            )
            parts.append(
                f"<g><title>{escape(tip)}</title>"
                f'<rect class="hit" x="{place * step:.1f}" y="{top}" width="{step:.1f}" '
                f'height="{inner}"/></g>'
            )
    for line, name in (("line", "p99"), ("line half", "p50")):
        for stretch in _stretches(points):
            drawn = [((at + 0.5) * step, y(getattr(each, name))) for at, each in stretch]
            if len(drawn) == 1:  # a line of one point is not seen
                drawn = [
                    (drawn[0][0] - step / 4, drawn[0][1]),
                    (drawn[0][0] + step / 4, drawn[0][1]),
                ]
            dots = " ".join(f"{x:.1f},{height_:.1f}" for x, height_ in drawn)
            parts.append(f'<polyline class="{line}" points="{dots}"/>')
    length = bin_seconds * len(points)
    return "".join(parts) + time_axis(length, 0, WIDTH, height - 7) + "</svg>"


def _stretches(points: Sequence[Spread | None]) -> list[list[tuple[int, Spread]]]:
    """The stretches of neighbouring bins in which there is something, each bin with its place."""
    found: list[list[tuple[int, Spread]]] = [[]]
    for place, each in enumerate(points):
        if each is not None:
            found[-1].append((place, each))
        elif found[-1]:
            found.append([])
    return [stretch for stretch in found if stretch]


# One walk of a run, drawn: the nodes in the order in which it first came to them, on a circle.

HEIGHT = 330
RADIUS = 115
DOT = 7

Place = tuple[float, float]


def walk_picture(walk: ExampleWalk | None, names: Mapping[str, str]) -> str:
    """Draw a walk as SVG with a sentence below it; "" without a walk. `names` by node id."""
    if walk is None:
        return ""
    visited = list(dict.fromkeys([walk.steps[0].node, *(step.peer for step in walk.steps)]))
    nodes = visited if walk.host is None or walk.host in visited else [*visited, walk.host]
    places = {node: _place(at, len(nodes)) for at, node in enumerate(nodes)}
    title = f"A walk for the tree of {walk.attribute}"
    parts = [chart(WIDTH, HEIGHT, title), _TIPS]
    labels = _labels(walk)
    for step in walk.steps:
        kind = "again" if step.again else "step"
        label = labels.pop((step.node, step.peer), "")  # once, for all steps along this line
        parts.append(_arrow(places[step.node], places[step.peer], kind, label))
    last = walk.steps[-1].peer
    if walk.host is not None and walk.host != last:
        parts.append(_arrow(places[last], places[walk.host], "named", ""))
    for node, place in places.items():
        kind = "host" if node == walk.host else "origin" if node == nodes[0] else "node"
        parts.append(_dot(place, kind, _name(names, node)))
    return "".join(parts) + f"</svg><p>{escape(_story(walk, names))}</p>"


def _labels(walk: ExampleWalk) -> dict[tuple[str, str], str]:
    """The numbers of the steps from one node to another, in one text."""
    hops: dict[tuple[str, str], list[str]] = {}
    for step in walk.steps:
        hops.setdefault((step.node, step.peer), []).append(str(step.hop))
    return {way: ", ".join(numbers) for way, numbers in hops.items()}


def _name(names: Mapping[str, str], node: str) -> str:
    return names.get(node) or node[:8]


def _story(walk: ExampleWalk, names: Mapping[str, str]) -> str:
    """Describe the picture in words."""

    def name(node: str) -> str:
        return _name(names, node)

    again = [step for step in walk.steps if step.again]
    text = f"{name(walk.steps[0].node)} walked for the tree of {walk.attribute}, "
    text += f"{counted(walk.limit, 'step')} at most"
    if again:
        further = counted(max(1, walk.limit // 2), "step")
        text += f". Blocked at {name(again[0].node)}, it went back to {name(again[0].peer)} "
        text += f"(dashed), from where it might go on for {further}"
        if len(again) > 1:
            text += f", and for half as many each time after that ({len(again)} recoveries)"
    text += f": {counted(len(walk.steps), 'step')} in all"
    last = name(walk.steps[-1].peer)
    if walk.host is None:
        return f"{text}. At {last} it ended without a hit, and the owner was asked."
    if walk.host == walk.steps[-1].peer:
        return f"{text}. {last} serves the tree itself."
    return f"{text}. {last} knew that {name(walk.host)} serves the tree."


def _place(at: int, of: int) -> Place:
    angle = 2 * pi * at / of - pi / 2
    return WIDTH / 2 + 1.45 * RADIUS * cos(angle), HEIGHT / 2 + RADIUS * sin(angle)


def _arrow(start: Place, end: Place, kind: str, label: str) -> str:
    """A line that ends at the rim of a node's dot, with its number beside the middle."""
    (x, y), (u, v) = start, end
    length = max(1.0, ((u - x) ** 2 + (v - y) ** 2) ** 0.5)
    short = (length - DOT - 4) / length
    middle, side = ((x + u) / 2, (y + v) / 2), (-(v - y) / length * 9, (u - x) / length * 9)
    text = (
        f'<text class="hop" text-anchor="middle" x="{middle[0] + side[0]:.1f}" '
        f'y="{middle[1] + side[1] + 4:.1f}">{escape(label)}</text>'
    )
    return (
        f'<line class="way {kind}" x1="{x:.1f}" y1="{y:.1f}" x2="{x + (u - x) * short:.1f}" '
        f'y2="{y + (v - y) * short:.1f}" marker-end="url(#tip)"/>{text if label else ""}'
    )


def _dot(place: Place, kind: str, name: str) -> str:
    x, y = place
    anchor = "middle" if abs(x - WIDTH / 2) < 20 else "start" if x > WIDTH / 2 else "end"
    beside = {"start": 13, "end": -13, "middle": 0}[anchor]
    below = 5 if anchor != "middle" else 24 if y > HEIGHT / 2 else -14
    return (
        f'<circle class="spot {kind}" cx="{x:.1f}" cy="{y:.1f}" r="{DOT}"/>'
        f'<text class="marklabel" text-anchor="{anchor}" x="{x + beside:.1f}" y="{y + below:.1f}">'
        f"{escape(name)}</text>"
    )


_TIPS = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>'
)
