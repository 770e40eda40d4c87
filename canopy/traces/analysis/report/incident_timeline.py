"""The section about losses, elections and recoveries: a timeline and a list.

The timeline has the run's deliveries below the incidents, to show how a loss affected them.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from canopy.traces.analysis.constants import INCIDENTS_SHOWN
from canopy.traces.analysis.load import INCIDENT_KINDS
from canopy.traces.analysis.report.pictures import WIDTH, chart, time_axis
from canopy.traces.analysis.report.sections import name_of, table, wide_section
from canopy.traces.analysis.report.wording import duration
from overlay.phrases import counted

if TYPE_CHECKING:
    from canopy.traces.analysis.summary import Findings

LANE = 20  # height of one lane of the timeline
LABELS = 96  # width of the column of the lanes' names
BARS = 64  # height of the deliveries below the lanes

COLOURS = {"link down": "clay", "silent": "sand", "elected": "leaf", "back": "sky"}
"""CSS classes of incidents' marks; others look like "link down"."""


def incident_timeline(findings: Findings) -> str:
    """The section as HTML; "" without incidents."""
    rows = findings.incidents
    if not rows:
        return ""
    text = (
        f"<p>{summed_up(rows)} A mark is one incident, at the time at which a node saw it first; "
        "the columns are deliveries.</p>"
    )
    if len(rows) >= INCIDENTS_SHOWN:
        text += f"<p>Only the first {INCIDENTS_SHOWN} are shown.</p>"
    lines = [_line(findings, row) for row in rows]
    head = "when | what | node | cluster, epoch | seen by | reason"
    return wide_section("happened", "What happened", text, _picture(findings) + table(head, lines))


def summed_up(rows: Sequence[dict[str, Any]]) -> str:
    """Return a sentence on lost connections and elections."""
    lost = len({row["node"] for row in rows if row["what"] == "link down"})
    elected = sum(row["what"] == "elected" for row in rows)
    first = f"The connections to {counted(lost, 'node')} were lost"
    elections = f"clusters elected a primary {counted(elected, 'time')}"
    if not lost:
        first = "No connection was lost"
    return f"{first}, and {elections if elected else 'no cluster elected a primary'}."


def _line(findings: Findings, row: dict[str, Any]) -> str:
    cluster = f"{row['cluster'][:8]}, {row['epoch']}" if row["cluster"] else ""
    said = row["reason"] or ""
    for node in (row["node"], *findings.names):
        if node and node in said:
            said = said.replace(node, name_of(findings, node))
    return (
        f'<tr><td class="n">{duration((row["time"] - findings.first) * 1_000)}</td>'
        f"<td>{escape(row['what'])}</td><td>{escape(name_of(findings, row['node']))}</td>"
        f"<td>{escape(cluster)}</td><td>{counted(row['seen'], 'node')}</td>"
        f"<td>{escape(said)}</td></tr>"
    )


def _picture(findings: Findings) -> str:
    lanes = [
        kind for kind in INCIDENT_KINDS if any(row["what"] == kind for row in findings.incidents)
    ]
    length = max(findings.summary.seconds, 0.001)
    ground = LANE * len(lanes) + BARS + 10
    title = "Losses, elections and recoveries over the time of the run"
    parts = [chart(2 * WIDTH, ground + 24, title)]
    wide = 2 * WIDTH - LABELS

    def place(seconds: float) -> float:
        return LABELS + wide * min(max(seconds / length, 0.0), 1.0)

    parts += _deliveries(findings, place, ground)
    for number, kind in enumerate(lanes):
        y = LANE * number + LANE / 2
        parts.append(
            f'<text class="axis" x="0" y="{y + 4:.0f}">{escape(kind)}</text>'
            f'<line class="ground" x1="{LABELS}" x2="{2 * WIDTH}" y1="{y}" y2="{y}"/>'
        )
    for row in findings.incidents:
        at = row["time"] - findings.first
        y = LANE * lanes.index(row["what"]) + LANE / 2
        tip = f"{duration(at * 1_000)}: {row['what']} {name_of(findings, row['node'])}"
        colour = COLOURS.get(row["what"], "clay")
        parts.append(
            f'<g><title>{escape(tip)}</title><circle cx="{place(at):.1f}" cy="{y}" r="5.5" '
            f'style="fill:var(--{colour})"/></g>'
        )
    return "".join(parts) + time_axis(length, LABELS, wide, ground + 17) + "</svg>"


def _deliveries(findings: Findings, place: Any, ground: int) -> Sequence[str]:
    """The columns of deliveries below the lanes."""
    details = findings.details
    most = max((row["delivered"] for row in details.timeline), default=0) or 1
    parts = [f'<text class="axis" x="0" y="{ground - 4}">delivered</text>']
    for row in details.timeline:
        left = place(row["bin"] * details.bin_seconds)
        right = place((row["bin"] + 1) * details.bin_seconds)
        tall = BARS * row["delivered"] / most
        parts.append(
            f'<rect class="bar" x="{left:.1f}" y="{ground - tall:.1f}" '
            f'width="{max(0.5, (right - left) * 0.85):.1f}" height="{tall:.1f}" rx="1"/>'
        )
    return parts
