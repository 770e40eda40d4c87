"""The paths of the slowest events; what went wrong, in groups by node, cause and time with examples
of each kind; and corrupt lines."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, Final

from canopy.traces.analysis.report.pictures import waterfall_row
from canopy.traces.analysis.report.sections import name_of, table, wide_section
from canopy.traces.analysis.report.wording import NONE, WRONG_KINDS, duration
from canopy.traces.analysis.slowest import DeliveryPath
from overlay.phrases import counted

if TYPE_CHECKING:
    from canopy.traces.analysis.summary import Findings


STEPS: Final[dict[str, tuple[str, str]]] = {
    "publish": ("published", "sand"),
    "walk_start": ("walk begins", "sand"),
    "walk_hop": ("walk", "sand"),
    "walk_blocked": ("walk blocked", "clay"),
    "walk_recovered": ("walk goes on", "sand"),
    "walk_hit": ("walk hits", "sand"),
    "walk_miss": ("walk misses", "clay"),
    "located": ("tree found", "sand"),
    "absent": ("no subscriptions", "sand"),
    "visit": ("sent to the tree", "sky"),
    "match": ("matched", "leaf"),
    "forward": ("sent to subscriber", "sky"),
    "arrive": ("arrived", "sky"),
    "duplicate": ("arrived again", "clay"),
    "recheck_failed": ("no match here", "clay"),
    "drop": ("dropped", "clay"),
    "deliver": ("delivered", "leaf"),
}
"""The name of each kind of step, and the colour of the time before it: search, transfer, match."""


def slowest(findings: Findings) -> str:
    """The slowest events, each with its path as a waterfall."""
    if not findings.slowest:
        return ""
    cards = "".join(_card(findings, path) for path in findings.slowest)
    text = (
        "<p>The path of each of these events, step by step. A bar spans the time from the previous "
        "step to this one, so the longest bar shows where the time was spent. Times are from the "
        "clocks of different nodes.</p>"
        '<ul class="legend"><li><i class="sand"></i>searching for the tree</li>'
        '<li><i class="sky"></i>sent between nodes</li>'
        '<li><i class="leaf"></i>matching, delivering</li>'
        '<li><i class="clay"></i>delayed or failed</li></ul>'
    )
    return wide_section("slowest", "The slowest events", text, f'<div class="cards">{cards}</div>')


def _card(findings: Findings, path: DeliveryPath) -> str:
    extent = max([path.latency_ms, *(step.after_ms for step in path.steps)]) or 1.0
    rows = []
    before = 0.0
    longest, passed = "", 0.0
    for step in path.steps:
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
    more = (
        f"<p class='quiet'>{counted(path.left_out, 'step')} left out.</p>" if path.left_out else ""
    )
    most = (
        f"<p>{duration(passed)} of it were spent before: <em>{escape(longest)}</em>.</p>"
        if passed > path.latency_ms / 3
        else ""
    )
    attribute = (
        f" through the tree of <code>{escape(path.attribute)}</code>" if path.attribute else ""
    )
    return (
        f"<article><h3>{duration(path.latency_ms)} <small>event "
        f'<code title="{escape(path.event)}">{escape(path.id or path.event)}</code> to '
        f"{escape(path.name or path.subscription)}{attribute}</small></h3>"
        f'{most}<ol class="waterfall">{"".join(rows)}</ol>{more}</article>'
    )


def corrupt(findings: Findings) -> str:
    """The corrupt lines of the trace files."""
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
        f"<p>{counted(total, 'line')} did not fit the schema and are in none of the numbers above. "
        "A node that is killed leaves at most one incomplete line; others come from elsewhere.</p>"
        f"<ul>{counts}</ul>"
    )
    head = "problem | file | line"
    return wide_section("corrupt", "Corrupt lines", text, table(head, rows))


def _short(path: str | None) -> str:
    """The last three parts of a path: date, node and file."""
    return "/".join((path or "").split("/")[-3:])


def wrong(findings: Findings) -> str:
    """The groups of wrong pairs and some pairs of each kind; "" without any."""
    groups = findings.wrong.groups
    if not groups:
        return ""
    text = (
        "<p>Deliveries of one subscriber's node and one cause, published at most a minute one "
        "after another, are one line. How far a missing one got is read from the records that "
        "the event left behind, so it shows where to look.</p>"
    )
    head = "what | deliveries | of node | cause | when"
    body = table(head, [_group(findings, row) for row in groups])
    shown = {kind: [row for row in groups if row["kind"] == kind] for kind in WRONG_KINDS}
    left = [
        f"{WRONG_KINDS[kind]} {rows[0]['groups'] - len(rows):,}"
        for kind, rows in shown.items()
        if rows and rows[0]["groups"] > len(rows)
    ]
    if left:
        body += f"<p class='quiet'>More lines that are not shown: {', '.join(left)}.</p>"
    body += "<h3>Examples</h3>"
    for kind, word in WRONG_KINDS.items():
        rows = [row for row in findings.wrong.examples if row["kind"] == kind]
        if rows:
            body += _examples(findings, word, rows)
    if findings.wrong.examples:
        body += "<p class='quiet'>All of them are in the table <code>deliveries</code>.</p>"
    judged = any(row["kind"] != "unjudged" for row in groups)
    title = "What went wrong" if judged else "What could not be judged"
    return wide_section("wrong", title, text, body)


def _group(findings: Findings, row: dict[str, Any]) -> str:
    kind = "open" if row["kind"] == "unjudged" else "flag"
    cause = row["cause"] or ""
    if row["by"]:
        cause = f"given up by {name_of(findings, row['by'])}: {cause}"
    events = counted(row["events"], "event")
    subscriptions = counted(row["subscriptions"], "subscription")
    return (
        f'<tr><td class="w"><b class="{kind}">{escape(WRONG_KINDS[row["kind"]])}</b></td>'
        f'<td class="n">{row["count"]:,}<br><small>{events}, {subscriptions}</small></td>'
        f'<td class="w">{escape(name_of(findings, row["node"]))}</td>'
        f"<td>{escape(cause)}</td>"
        f'<td class="n">{period(row["first"], row["last"])}</td></tr>'
    )


def period(first: float | None, last: float | None) -> str:
    """The time in which the events were published, in UTC."""
    if first is None or last is None:
        return NONE
    begin, end = (datetime.fromtimestamp(at, UTC) for at in (first, last))
    text = f"{begin:%-d %b %H:%M:%S}"
    if int(first) == int(last):
        return text
    return (
        f"{text} to {end:%H:%M:%S}"
        if begin.date() == end.date()
        else (f"{text} to {end:%-d %b %H:%M:%S}")
    )


def _examples(findings: Findings, word: str, rows: list[dict[str, Any]]) -> str:
    cells = []
    for row in rows:
        what = f"{row['copies']} times" if row["kind"] == "duplicates" else word
        cells.append(
            f'<tr><td><b class="flag">{escape(what)}</b></td>'
            f'<td><code title="{escape(row["event"])}">{escape(row["id"] or row["event"])}</code>'
            f"<br><small>from {escape(name_of(findings, row['publisher']))}, "
            f"{period(row['published'], row['published'])}</small></td>"
            f"<td>{escape(row['name'] or row['subscription'])}"
            f"<br><small>on {escape(name_of(findings, row['node']))}</small></td>"
            f"<td>{escape(row['cause'] or '')}<details><summary>event and selector</summary>"
            f"<code>{escape(row['selector'] or 'no selector')}</code><br>"
            f"<code>{escape(row['attributes'] or 'no attributes')}</code></details></td></tr>"
        )
    head = "what | event | subscription | cause"
    title = f"{counted(len(rows), 'example')}: {word}"
    return f"<details><summary>{escape(title)}</summary>{table(head, cells)}</details>"
