"""The verdict of a demo: the analysis' numbers, compared with the deliveries received."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from canopy.cli.constants import SUMMARY_REFUSED_LISTED, SUMMARY_REFUSED_PRINTED
from canopy.cli.demo.plan import DemoPlan
from canopy.cli.demo.publisher import PublishedFeed
from canopy.cli.output import Markup, TextTable, label
from overlay.phrases import counted

if TYPE_CHECKING:
    from canopy.traces.analysis import AnalysisSummary


def summarise_demo(
    plan: DemoPlan,
    analysis: AnalysisSummary,
    outcome: PublishedFeed,
    seen: Mapping[str, int],
    notes: list[str],
    dropped: int = 0,
) -> dict[str, Any]:
    """Return the content of summary.json: the analysis' numbers, and those of the demo itself.

    `seen`: received deliveries by subscription; a difference from the analysis becomes a problem.
    `dropped`: deliveries that nodes reported as dropped because programs were too slow. Deliveries
    that other nodes gave up are added from the traces.
    """
    found = dict(analysis.to_dict())
    made = analysis.delivered + analysis.duplicates + analysis.early + analysis.ending
    made += analysis.spurious + analysis.unknown + analysis.discarded
    made += analysis.corrupted
    received = sum(seen.values())
    problems = list(notes)
    wrong = wrong_by_subscription(analysis.by_subscription, seen)
    if outcome.refused and not outcome.published:
        problems.append("no event of the feed could be read; is it in one of the formats?")
    if not made <= received <= made + analysis.unjudged:  # some of these were made as well
        problems.append(f"the traces have {made} deliveries, the subscribers received {received}")
    if outcome.published and outcome.published != analysis.published:
        problems.append(
            f"{outcome.published} events were published, the traces have {analysis.published}"
        )
    if analysis.nodes != plan.nodes:
        problems.append(f"{plan.nodes} nodes were started, the traces have {analysis.nodes}")
    exact = analysis.exact and analysis.delivered == analysis.expected and not problems
    found |= {
        "format": "canopy-demo",
        "exact": exact,
        "nodes": plan.nodes,
        "feed": plan.feed,
        "routing": plan.routing,
        "seed": plan.seed,
        "received": received,
        "dropped": dropped + analysis.dropped,
        "refused_lines": [
            {"line": refusal.number, "reason": refusal.reason}
            for refusal in outcome.refused[:SUMMARY_REFUSED_LISTED]
        ],
        "refused": analysis.refused + len(outcome.refused),
        "problems": problems,
        "per_subscription": {
            wanted.name: seen.get(wanted.name, 0) for wanted in plan.subscriptions
        },
        "wrong_per_subscription": wrong,
        "traces": str((plan.out / "traces").resolve()),
        "report": str((plan.out / "report" / "report.html").resolve()),
    }
    return found


def wrong_by_subscription(
    rows: Sequence[Mapping[str, Any]], seen: Mapping[str, int]
) -> dict[str, dict[str, int]]:
    """Return the faults of each subscription by name, each with its number of deliveries.

    By the traces: missing, dropped (given up by another node), duplicates and spurious. `not
    received` is the number of deliveries that the node made and the subscriber did not take in
    time. Subscriptions and faults without a count are left out.
    """
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        faults = {name: row[name] for name in ("missing", "dropped", "duplicates", "spurious")}
        faults["not received"] = row["made"] - seen.get(row["name"], 0)
        found[row["name"]] = {name: count for name, count in faults.items() if count > 0}
    return {name: faults for name, faults in found.items() if faults}


def write(out: Path, summary: dict[str, Any]) -> None:
    """Write `summary` to summary.json in the folder `out`."""
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
    (out / "summary.json").write_text(text + "\n", encoding="utf-8")


def show(console: Console, plan: DemoPlan, summary: dict[str, Any]) -> None:
    """Print what the demo published, delivered and judged, as tables for people."""
    console.print(_verdict(summary))
    console.print()
    latency, hops = summary["latency_ms"], summary["walk_hops"]
    trees = summary["table_hits"] + summary["walk_hits"] + summary["ring_hits"]
    median, most = _ms(latency.get("p50")), _ms(latency.get("p99"))
    walks = f"{summary['table_hits']:,} in the own table, {summary['walk_hits']:,} by random walk"
    if summary["walk_hits"]:
        walks += f" ({_number(hops.get('mean'))} hops)"
    carrying = summary["messages"] - summary["walk_messages"]
    share = carrying / summary["delivered"] if summary["delivered"] else None
    each_costs = f"{_number(share)} for each delivery"
    once = "once per node and attribute, not per event"
    facts: tuple[tuple[str, str | int, str], ...] = (
        ("nodes", summary["nodes"], f"processes on loopback, {plan.routing}"),
        ("published", summary["published"], f"events of {plan.feed}"),
        ("delivered", summary["delivered"], f"of {summary['expected']:,} expected"),
        ("latency", median, f"in the median; 99 % within {most}"),
        ("trees found", trees, f"times: {walks}, {summary['ring_hits']:,} by the ring"),
        ("messages", carrying, f"that carried events: {each_costs}"),
        ("walk steps", summary["walk_messages"], once),
    )
    console.print(TextTable("", ">", "").of(facts))
    console.print(_by_subscription(plan, summary))
    if summary["refused_lines"]:
        console.print(f"[yellow]refused of the feed: {counted(summary['refused'], 'line')}[/]")
        for line in summary["refused_lines"][:SUMMARY_REFUSED_PRINTED]:
            console.print(f"  line {line['line']}: {escape(line['reason'])}")
        console.print()
    for problem in summary["problems"]:
        console.print(f"[red]![/] {escape(problem)}")
    console.print(f"Report of the analysis: [bold]{escape(summary['report'])}[/]", soft_wrap=True)
    console.print(
        f"[dim]Numbers, deliveries and traces: {escape(str(plan.out))}[/]", soft_wrap=True
    )


def _by_subscription(plan: DemoPlan, summary: dict[str, Any]) -> TextTable:
    """Return the table of subscriptions with their deliveries. Faulty ones come first; the column
    of faults is there only if there are any."""
    wrong = summary["wrong_per_subscription"]
    each = TextTable("subscription", ">deliveries", *(["wrong"] if wrong else []), "selector")
    for wanted in sorted(plan.subscriptions, key=lambda one: one.name not in wrong)[:40]:
        count = summary["per_subscription"][wanted.name]
        faults = ", ".join(f"{n:,} {name}" for name, n in wrong.get(wanted.name, {}).items())
        shown = [Markup(f"[red]{faults}[/]")] if wrong else []
        each.add(wanted.name, count, *shown, Markup(f"[dim]{label(wanted.where)}[/]"))
    return each


def _verdict(summary: dict[str, Any]) -> str:
    if summary["exact"]:
        return (
            f"[bold green]✓ Exact:[/] each of {summary['expected']:,} expected deliveries was made "
            f"once, and nothing else was delivered."
        )
    names = ("missing", "dropped", "discarded", "corrupted", "duplicates", "spurious", "unknown")
    parts = [f"{summary[name]:,} {name}" for name in names if summary[name]]
    if not parts and summary["result"] == "not judged":
        return f"[bold yellow]? Not judged:[/] {escape('; '.join(summary['reasons']))}."
    parts += [] if parts else [escape(problem) for problem in summary["problems"][:1]]
    return f"[bold red]✗ Not exact:[/] {', '.join(parts) or 'see the report'}."


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
