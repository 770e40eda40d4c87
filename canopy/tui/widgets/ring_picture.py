"""The ring as a circle of arcs, one per cluster, in the order of their keys (P2).

Drawn in half blocks, so that a terminal cell is two square dots. The arcs are numbered as in the
list beside the picture; the selected one is drawn thick. Gaps separate neighbouring arcs without
colour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rich.color import Color
from rich.style import Style
from rich.text import Text
from textual.widgets import Static

from canopy.tui.model.text import fit, short
from overlay.client import Failed, Located, Reply
from overlay.info import ClusterInfo
from overlay.phrases import counted, visible

# The geometry of the ring (P2): the share of the keys that each cluster owns, and its place.
#
# A cluster owns the keys after its `start` up to and including its `key`; keys are SHA-1, 160 bits.
# Angles are fractions of the circle, clockwise from the top, where key 0 lies.

BITS = 160  # SHA-1
HEX = BITS // 4


class Arc(NamedTuple):
    """A cluster's part of the circle; `begin` + `share` may exceed 1.0, beyond the top."""

    begin: float
    share: float

    def contains(self, place: float) -> bool:
        """Return whether the fraction `place` of the circle is in the arc."""
        return (place - self.begin) % 1.0 < self.share or self.share >= 1.0

    @property
    def middle(self) -> float:
        """The fraction of the circle in the middle of the arc."""
        return (self.begin + self.share / 2) % 1.0


def fraction(key: str) -> float:
    """Return the place of a key of 40 hex digits on the circle, from 0 to 1; 0.0 for any other
    text."""
    try:
        return int(key[:HEX].ljust(HEX, "0"), 16) / (1 << BITS)
    except ValueError:
        return 0.0


def arc(cluster: ClusterInfo) -> Arc:
    """Return the arc of a cluster; the whole circle if its start is its own key."""
    begin = fraction(cluster.start)
    share = (fraction(cluster.key) - begin) % 1.0
    return Arc(begin, share if cluster.start != cluster.key else 1.0)


def members(cluster: ClusterInfo) -> list[tuple[str, str]]:
    """Return (role, node) of all members: primary, standby, then the other brokers, each once."""
    found = [("primary", cluster.primary)]
    if cluster.standby:
        found.append(("standby", cluster.standby))
    named = {cluster.primary, cluster.standby}
    found += [("broker", node) for node in cluster.brokers if node not in named]
    return found


# The palette of Okabe and Ito (2008), which colour-blind people can distinguish.
PALETTE = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#999999")
THIN, THICK = 0.80, 0.66  # inner radius of an arc, as a share of the outer one
LABEL_AT = 0.90  # radius at which the numbers stand: in the middle of a thin arc
GAP = 0.06  # dots of arc on each side of a border, as a share of the radius
SMALLEST = 9  # lines below which there is no room for a circle


def colour(number: int) -> str:
    """Return the colour of the arc `number` (from 0)."""
    return PALETTE[number % len(PALETTE)]


class RingPicture(Static):
    """Draws clusters; the arc of the key `chosen` is thick."""

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
        """Return the circle, or a bar if there is no room for a circle."""
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
    """Return the circle in `rows` lines of twice as many cells."""
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
    """Return the ring as one line, from key 0 on."""
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
    """Return the number of the arc that covers the dot; None outside all arcs."""
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
    """Return the numbers on the arcs, as cell → (digit, style). A number that would overlap another
    is left out."""
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
    """Return the lines in the middle of the circle, as cell → (character, style)."""
    room = int(size * THICK * 0.8)  # of the inner circle's width, some lines from its middle
    top = size // 4 - len(lines) // 2
    placed = {}
    for row, line in enumerate(lines, top):
        shown = line[:room]
        left = (size - len(shown)) // 2
        for at, character in enumerate(shown):
            placed[left + at, row] = (character, Style(bold=row == top))
    return placed


# --- one attribute's tree (C6): the cluster that owns it, and its virtual nodes in order ---

BAR, SHORT_BAR = 24, 8  # cells of the longest bar of registrations, and where room is scarce
WIDE = 70  # cells from which there is room
SHOWN = 200  # virtual nodes that are drawn: more than are scrolled through


class TreePicture(Static):
    """Draws the tree of an attribute, its owner and its virtual nodes with their hosts (the reply
    to `Where`)."""

    def show(self, attribute: str, reply: Reply | None, own: str) -> None:
        """Show `reply`, None before it arrives; `own` is the id of this node."""
        if isinstance(reply, Located):
            self.update(_tree(reply, own, BAR if self.size.width >= WIDE else SHORT_BAR))
        elif isinstance(reply, Failed):
            self.update(Text(f"✗ {visible(attribute)}: {reply.reason}"))
        elif attribute:
            self.update(Text(f"waiting for the tree of {visible(attribute)} …", "dim"))
        else:
            self.update(Text("no attribute is known yet", "dim"))


def _tree(located: Located, own: str, bar: int) -> Text:
    cluster = located.cluster
    nodes = located.virtual_nodes
    total = sum(node.registrations for node in nodes)
    text = Text()
    text.append(visible(located.attribute), "bold").append("\n")
    mark = "▸" if own == cluster.primary else " "
    text.append("owner    ", "dim").append(f"cluster {short(cluster.key)}, epoch {cluster.epoch}\n")
    text.append("primary  ", "dim").append(f"★{mark}{short(cluster.primary)}\n")
    text.append("version  ", "dim").append(f"{located.version[0]}.{located.version[1]}\n")
    text.append("tree     ", "dim")
    text.append(
        f"{counted(len(nodes), 'virtual node')}, height "
        f"{max(0, (len(nodes) - 1).bit_length())}, {total:,} registered\n\n"
    )
    if not nodes:
        text.append("There are no subscriptions to this attribute.\n", "dim")
        return text
    most = max(1, *(node.registrations for node in nodes))
    width = max(len(f"[{fit(n.lo, 18)} … {fit(n.hi, 18)})") for n in nodes[:SHOWN])
    for node in nodes[:SHOWN]:
        interval = f"[{fit(visible(node.lo), 18)} … {fit(visible(node.hi), 18)})"
        length = round(bar * node.registrations / most)
        text.append(f"{interval:<{width}}  ", "bold")
        for host in (node.host, *node.others):
            text.append(f"{'▸' if host == own else ' '}{short(host)}  ")
        text.append("█" * length, "green").append("░" * (bar - length), "dim")
        text.append(f" {node.registrations:,}\n")
    if len(nodes) > SHOWN:
        text.append(f"… {len(nodes) - SHOWN:,} more\n", "dim")
    return text
