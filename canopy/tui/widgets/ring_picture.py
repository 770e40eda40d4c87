"""The ring as a circle of arcs, one per cluster, in the order of their keys (P2).

Drawn in half blocks, so that a terminal cell is two square dots. The arcs are numbered as in the
list beside the picture; the selected one is drawn thick. Gaps separate neighbouring arcs without
colour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.color import Color
from rich.style import Style
from rich.text import Text
from textual.widgets import Static

from canopy.tui.model.ring import Arc, arc
from overlay.info import ClusterInfo

# The palette of Okabe and Ito (2008), which colour-blind people can distinguish.
PALETTE = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#999999")
THIN, THICK = 0.80, 0.66  # inner radius of an arc, as a share of the outer one
LABEL_AT = 0.90  # radius at which the numbers stand: in the middle of a thin arc
GAP = 0.06  # dots of arc on each side of a border, as a share of the radius
SMALLEST = 9  # lines below which there is no room for a circle


def colour(number: int) -> str:
    """The colour of the arc `number` (from 0)."""
    return PALETTE[number % len(PALETTE)]


class RingPicture(Static):
    """Shows clusters; `chosen` is the key of the one to draw thick."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._clusters: Sequence[ClusterInfo] = ()
        self._chosen = ""
        self._middle: Sequence[str] = ()

    def show(self, clusters: Sequence[ClusterInfo], chosen: str, middle: Sequence[str]) -> None:
        """Draw if anything changed; `middle` are the lines in the middle of the circle."""
        if (clusters, chosen, middle) != (self._clusters, self._chosen, self._middle):
            self._clusters, self._chosen, self._middle = clusters, chosen, middle
            self.refresh()

    def render(self) -> Text:
        """The circle, or a bar if there is no room for a circle."""
        if not self._clusters:
            return Text("the ring is not known yet", "dim")
        width, height = self.content_region.size
        rows = min(height, width // 2)
        if rows < SMALLEST:
            return bar(self._clusters, self._chosen, max(8, width))
        return circle(self._clusters, self._chosen, rows, self._middle)


def circle(
    clusters: Sequence[ClusterInfo], chosen: str, rows: int, middle: Sequence[str] = ()
) -> Text:
    """The circle in `rows` lines of twice as many cells."""
    arcs = [arc(cluster) for cluster in clusters]
    thick = chosen if len(clusters) > 1 else ""  # a single one is not highlighted
    inner = [THICK if cluster.key == thick else THIN for cluster in clusters]
    size = 2 * rows
    labels = _labels(arcs, size) | _middle(middle, size)
    text = Text(no_wrap=True)
    for row in range(rows):
        for column in range(size):
            label = labels.get((column, row))
            if label is not None:
                text.append(*label)
                continue
            upper = _dot(arcs, inner, column, 2 * row, size)
            lower = _dot(arcs, inner, column, 2 * row + 1, size)
            text.append_text(_half_blocks(upper, lower))
        text.append("\n")
    return text


def bar(clusters: Sequence[ClusterInfo], chosen: str, width: int) -> Text:
    """The ring as one line, from key 0 on."""
    text = Text(no_wrap=True)
    arcs = [arc(cluster) for cluster in clusters]
    last = -1
    for cell in range(width):
        place = (cell + 0.5) / width
        number = next((n for n, a in enumerate(arcs) if a.contains(place)), None)
        if number is None:
            text.append("·", "dim")
            continue
        first = number != last
        last = number
        mark = str(number + 1)[-1] if first else "━" if clusters[number].key == chosen else "─"
        text.append(mark, Style(color=colour(number), bold=first))
    return text


def _dot(
    arcs: Sequence[Arc], inner: Sequence[float], column: int, line: int, size: int
) -> int | None:
    """The arc that covers the dot, None outside of all."""
    x = (column + 0.5) - size / 2
    y = (line + 0.5) - size / 2
    distance = math.hypot(x, y) / (size / 2)
    if distance > 1.0 or distance < THICK:
        return None
    place = (math.atan2(x, -y) / math.tau) % 1.0
    for number, candidate in enumerate(arcs):
        if candidate.contains(place):
            # The same gap everywhere on the border: measured along the circle.
            into = (place - candidate.begin) % 1.0
            edge = min(into, candidate.share - into) * math.tau * distance
            alone = candidate.share >= 1.0
            return number if distance >= inner[number] and (alone or edge > GAP) else None
    return None


def _half_blocks(upper: int | None, lower: int | None) -> Text:
    if upper is None and lower is None:
        return Text(" ")
    if upper is None:
        assert lower is not None
        return Text("▄", Style(color=colour(lower)))
    if lower is None:
        return Text("▀", Style(color=colour(upper)))
    if upper == lower:
        return Text("█", Style(color=colour(upper)))
    style = Style.from_color(Color.parse(colour(upper)), Color.parse(colour(lower)))
    return Text("▀", style)


def _labels(arcs: Sequence[Arc], size: int) -> dict[tuple[int, int], tuple[str, Style]]:
    """Cell → (digit, style): the numbers of the arcs, on the arcs; a number that would overlap
    another is left out."""
    labels: dict[tuple[int, int], tuple[str, Style]] = {}
    for number, one in enumerate(arcs):
        angle = one.middle * math.tau
        name = f" {number + 1} "
        column = round(size / 2 + math.sin(angle) * LABEL_AT * size / 2 - len(name) / 2)
        column = max(0, min(column, size - len(name)))
        row = int(size / 4 - math.cos(angle) * LABEL_AT * size / 4)
        cells = [(column + i, row) for i in range(len(name))]
        if not any(cell in labels for cell in cells):
            style = Style(color="black", bgcolor=colour(number), bold=True)
            labels.update({cell: (digit, style) for cell, digit in zip(cells, name, strict=True)})
    return labels


def _middle(lines: Sequence[str], size: int) -> dict[tuple[int, int], tuple[str, Style]]:
    """Cell → (character, style): lines in the middle of the circle."""
    room = int(size * THICK * 0.8)  # of the inner circle's width, some lines from its middle
    top = size // 4 - len(lines) // 2
    placed = {}
    for row, line in enumerate(lines, top):
        shown = line[:room]
        left = (size - len(shown)) // 2
        for at, character in enumerate(shown):
            placed[left + at, row] = (character, Style(bold=row == top))
    return placed
