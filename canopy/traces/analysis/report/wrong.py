"""The section on what went wrong: groups by node, cause and time, and examples of each kind."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

from canopy.traces.analysis.report.sections import name_of, table, wide_section
from canopy.traces.analysis.report.wording import NONE, WRONG_KINDS
from overlay.phrases import counted

if TYPE_CHECKING:
    from canopy.traces.analysis.findings import Findings


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
