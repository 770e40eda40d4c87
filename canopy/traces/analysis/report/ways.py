"""The report's last sections: the ways of the slowest events, and the lines that are no records."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from canopy.traces.analysis.report.pictures import waterfall_row
from canopy.traces.analysis.report.sections import name_of, table, wide_section
from canopy.traces.analysis.report.words import duration, some
from canopy.traces.analysis.slowest import Way

if TYPE_CHECKING:
    from canopy.traces.analysis.findings import Findings

STEPS: Final[dict[str, tuple[str, str]]] = {
    "publish": ("published", "sand"),
    "walk_start": ("walk begins", "sand"),
    "walk_hop": ("walk", "sand"),
    "walk_blocked": ("walk blocked", "clay"),
    "walk_recovered": ("walk goes on", "sand"),
    "walk_hit": ("walk hits", "sand"),
    "walk_miss": ("walk misses", "clay"),
    "located": ("tree known", "sand"),
    "nobody": ("nobody there", "sand"),
    "visit": ("sent to the tree", "sky"),
    "match": ("matched", "leaf"),
    "forward": ("sent on", "sky"),
    "arrive": ("arrived", "sky"),
    "duplicate": ("arrived again", "clay"),
    "recheck_failed": ("no match here", "clay"),
    "drop": ("dropped", "clay"),
    "deliver": ("delivered", "leaf"),
}
"""What a step is called, and the colour of the time that led to it: search, travel, match."""


def slowest(findings: Findings) -> str:
    """The slowest events, each with its way as a waterfall."""
    if not findings.slowest:
        return ""
    cards = "".join(_card(findings, way) for way in findings.slowest)
    text = (
        "<p>The way of each of these events, step by step. A bar spans the time from the step "
        "before to this one, so that the longest bar is where the time went. Times are read from "
        "the clocks of different nodes.</p>"
        '<ul class="legend"><li><i class="sand"></i>looking for the tree</li>'
        '<li><i class="sky"></i>on its way</li><li><i class="leaf"></i>matching, handing over</li>'
        '<li><i class="clay"></i>set back</li></ul>'
    )
    return wide_section("slowest", "The slowest events", text, f'<div class="cards">{cards}</div>')


def _card(findings: Findings, way: Way) -> str:
    extent = max([way.latency_ms, *(step.after_ms for step in way.steps)]) or 1.0
    rows = []
    before = 0.0
    longest, passed = "", 0.0
    for step in way.steps:
        label, phase = STEPS.get(step.kind, (step.kind, "sand"))
        where = name_of(findings, step.node)
        if step.peer is not None and step.kind != "arrive":
            where += f" → {name_of(findings, step.peer)}"
        detail = f"{where} · {step.note}" if step.note else where
        rows.append(
            waterfall_row(
                label,
                detail,
                before / extent,
                step.after_ms / extent,
                duration(step.after_ms) if step.after_ms else "0",
                phase,
            )
        )
        if step.after_ms - before > passed:
            longest, passed = f"{label} ({detail})", step.after_ms - before
        before = max(before, step.after_ms)
    more = f"<p class='quiet'>{some(way.left_out, 'step')} left out.</p>" if way.left_out else ""
    most = (
        f"<p>{duration(passed)} of it passed before: <em>{escape(longest)}</em>.</p>"
        if passed > way.latency_ms / 3
        else ""
    )
    attribute = f" by the tree of <code>{escape(way.attribute)}</code>" if way.attribute else ""
    return (
        f"<article><h3>{duration(way.latency_ms)} <small>event "
        f'<code title="{escape(way.event)}">{escape(way.id or way.event)}</code> to '
        f"{escape(way.name or way.subscription)}{attribute}</small></h3>"
        f'{most}<ol class="waterfall">{"".join(rows)}</ol>{more}</article>'
    )


def corrupt(findings: Findings) -> str:
    """Lines of the trace files that are no records."""
    total = findings.summary.corrupt_lines
    if not total:
        return ""
    details = findings.details
    counts = "".join(
        f"<li>{row['count']:,} {escape(row['problem'])}</li>" for row in details.corrupt
    )
    rows = [
        f"<tr><td>{escape(row['problem'])}</td><td><code>{escape(_short(row['file']))}</code></td>"
        f"<td><code>{escape((row['line'] or '')[:160])}</code></td></tr>"
        for row in details.corrupt_examples
    ]
    text = (
        f"<p>{some(total, 'line')} did not fit and took no part in any number above. A node that "
        "is killed leaves at most one line that is cut off; other lines come from elsewhere.</p>"
        f"<ul>{counts}</ul>"
    )
    head = "<tr><th>why</th><th>file</th><th>line</th></tr>"
    return wide_section("corrupt", "Lines that are no records", text, table(head, rows))


def _short(path: str | None) -> str:
    """The last three parts of a path: date, node and file."""
    return "/".join((path or "").split("/")[-3:])
