"""One walk of a run, drawn: the nodes in the order in which it first came to them, on a circle."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from math import cos, pi, sin
from typing import TYPE_CHECKING

from canopy.traces.analysis.report.pictures import WIDTH, chart
from overlay.wording import counted

if TYPE_CHECKING:
    from canopy.traces.analysis.walks import ExampleWalk

HEIGHT = 330
RADIUS = 115
DOT = 7

Place = tuple[float, float]


def walk_picture(walk: ExampleWalk | None, names: Mapping[str, str]) -> str:
    """A walk as SVG with a sentence below it; "" if there is none. `names` by node id."""
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
    """What the picture shows, in words."""

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
