"""Sections on parts of a run: each overlay, attribute, host and link; SUBACKs; what the policy
withheld."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from canopy.traces.analysis.constants import ATTRIBUTES_SHOWN, SLOW_SHOWN
from canopy.traces.analysis.report.pictures import meter
from canopy.traces.analysis.report.sections import cells, name_of, row, table, titled, wide_section
from canopy.traces.analysis.report.wording import (
    FAULT_NAMES,
    duration,
    number,
    percent,
    tree_of_all,
)
from overlay.phrases import counted

if TYPE_CHECKING:
    from canopy.traces.analysis.summary import Findings


def overlays(findings: Findings) -> str:
    """A line for each overlay, where the folder has records of several."""
    rows = findings.summary.overlays
    if len(rows) < 2:
        return ""
    lines = []
    for each in rows:
        faults = ", ".join(
            f"{count:,} {FAULT_NAMES[name]}" for name, count in each["faults"].items()
        )
        why = "; ".join(each["reasons"]) if each["result"] != "exact" else ""
        said = "; ".join(filter(None, (faults, why)))
        kind = {"exact": "", "not exact": "flag"}.get(each["result"], "open")
        counts = ("nodes", "expected", "delivered", "withheld", "unjudged")
        numbers = cells(
            *(number(each[name]) for name in counts),
            *(duration(each["latency_ms"][name]) for name in ("p50", "p99")),
        )
        result = f'<td class="w"><b class="{kind}">{escape(each["result"])}</b></td>'
        more = f"{result}{numbers}<td>{escape(said)}</td>"
        lines.append(row(escape(each["name"] or "?"), more=more))
    text = (
        "<p>Nodes of different overlays never connect, so each is judged by itself: by its name, "
        "and by which nodes met.</p>"
    )
    head = (
        "overlay | result | nodes | expected | delivered | "
        "withheld | not judged | half within | 99 % | why"
    )
    return wide_section("overlays", "Overlays", text, table(head, lines))


def attributes(findings: Findings) -> str:
    """The attributes by whose trees events travelled, the hottest first."""
    rows = findings.latencies.attributes
    if not rows:
        return ""
    most = max(row["visits"] for row in rows)
    counts = ("matches", "recipients", "tree_hops", "virtual_nodes", "deliveries")
    lines = [
        row(
            f"<code>{escape(each['attribute'] or '?')}</code>",
            f"{each['visits']:,}{meter(each['visits'], most, 'sky')}",
            *(number(each[name]) for name in counts),
            *(duration(each[name]) for name in ("p50_ms", "p99_ms")),
        )
        for each in rows[:ATTRIBUTES_SHOWN]
    ]
    text = (
        "<p>An event visits the tree of each of its attributes to which there are subscriptions. "
        "<em>Matches</em> are by virtual nodes that found somebody interested, and "
        "<em>recipients</em> the nodes that they found; <em>deliveries</em> are those first made "
        "by this tree.</p>"
    )
    text += f"<p>{tree_of_all(row['attribute'] for row in rows)}</p>"
    if len(rows) > ATTRIBUTES_SHOWN:
        text += f"<p>The first {ATTRIBUTES_SHOWN} of {len(rows):,} are shown.</p>"
    head = (
        "attribute | visits | matches | recipients | "
        "hops | virtual nodes | deliveries | half within | 99 %"
    )
    return wide_section("attributes", "The hottest attributes", text, table(head, lines))


def slow_places(findings: Findings) -> str:
    """The slowest hosts and links."""
    found = findings.latencies
    if not found.hosts and not found.links:
        return ""
    clock = "wall clocks" if findings.summary.clocks_agree else "the hybrid logical clock"
    text = (
        "<p>A <em>host</em> took from the moment at which an event was sent to it until it had "
        "found who is interested: the link, its queue and the matching. A <em>link</em> took from "
        "the host's sending until the event arrived at the subscriber's node. Times are by "
        f"{clock} of both nodes; slow is whoever nine in ten took longest at.</p>"
    )
    if found.compared < 1:
        text += f"<p>They are of {percent(found.compared)} of the events.</p>"
    for title, head, rows in (
        ("Slow hosts", "host", found.hosts),
        ("Slow links", "link", found.links),
    ):
        if rows:
            every = f", of {len(rows):,}" if len(rows) > SLOW_SHOWN else ""
            text += f"<h3>{title}{every}</h3>" + _places(findings, head, rows[:SLOW_SHOWN])
    return wide_section("slow", "Slow hosts and links", text, "")


def _places(findings: Findings, head: str, rows: Sequence[dict[str, Any]]) -> str:
    longest = max(row["p90_ms"] for row in rows)
    lines = []
    for each in rows:
        name = name_of(findings, each["node"])
        if "sender" in each:
            name = f"{name_of(findings, each['sender'])} → {name}"
        slow = duration(each["p90_ms"]) + meter(each["p90_ms"], longest, "sand")
        times = (duration(each["p50_ms"]), slow, duration(each["max_ms"]))
        lines.append(row(escape(name), f"{each['count']:,}", *times))
    return table(f"{head} | events | half within | 90 % | slowest", lines)


def subacks(findings: Findings) -> str:
    """Render the waiting times of subscriptions for their SUBACKs, and the deliveries before
    these."""
    waits = findings.details.waits
    if not waits.acked:
        return ""
    early = findings.summary.early
    text = (
        f"<p>A subscription counts from its SUBACK on, which says that all hosts have it. Half of "
        f"{counted(waits.acked, 'subscription')} had it within {duration(waits.p50)}, the slowest "
        f"after {duration(waits.most)}. "
        + (
            f"{counted(early, 'event')} published before it was delivered all the same"
            if early == 1
            else f"{early:,} events that were published before it were delivered all the same"
            if early
            else "No event that was published before it was delivered"
        )
        + ": that is allowed and not required.</p>"
    )
    if waits.unacked:
        text += f"<p>{counted(waits.unacked, 'subscription')} had none in the records.</p>"
    lines = [
        row(
            titled(findings, each),
            duration(each["waited_ms"]) + meter(each["waited_ms"], waits.most or 0),
            number(each["early"]),
        )
        for each in waits.slowest
    ]
    head = "subscription | SUBACK after | delivered before"
    return wide_section("subacks", "Before the SUBACK", text, table(head, lines))


def withheld(findings: Findings) -> str:
    """Render the withheld pairs by subscription; "" without any."""
    rows, total = findings.details.withheld, findings.summary.withheld
    if not rows:
        return ""
    most = max(row["withheld"] for row in rows)
    text = (
        f"<p>For {counted(total, 'pair')} of event and subscription the selector is true, and the "
        "policy of the subscriber's tenant does not let it see the event, or its host refused the "
        "event. That is no loss. What a policy leaves of a selector is what the tenant's node has "
        "recorded.</p>"
    )
    lines = [
        row(
            titled(findings, each, selector=True),
            f"{each['withheld']:,}{meter(each['withheld'], most, 'sand')}",
            number(each["expected"]),
        )
        for each in rows
    ]
    head = "subscription | withheld | expected"
    return wide_section("withheld", "Withheld by the policy", text, table(head, lines))
