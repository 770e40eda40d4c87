"""The verdict of a demo: the analysis' numbers, compared with the deliveries received."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from canopy.cli.constants import SUMMARY_REFUSED_LISTED, SUMMARY_REFUSED_PRINTED
from canopy.cli.demo.plan import DemoPlan
from canopy.cli.demo.publisher import PublishResult
from canopy.cli.output import table
from overlay.wording import counted

if TYPE_CHECKING:
    from canopy.traces.analysis import AnalysisSummary


def summarise(
    plan: DemoPlan,
    analysis: AnalysisSummary,
    outcome: PublishResult,
    seen: Mapping[str, int],
    notes: list[str],
    dropped: int = 0,
) -> dict[str, Any]:
    """The content of summary.json: the analysis' numbers, and those of the demo itself.

    `seen` are the received deliveries by subscription; a difference becomes a problem. `dropped`
    are deliveries of which nodes said that they dropped them, since programs were too slow; those
    that other nodes gave up are added from the traces.
    """
    found = dict(analysis.to_dict())
    made = analysis.delivered + analysis.duplicates + analysis.early + analysis.ending
    made += analysis.spurious + analysis.unknown
    received = sum(seen.values())
    problems = list(notes)
    if outcome.refused and not outcome.published:
        problems.append("no event of the feed could be read; is it in one of the formats?")
    if received != made:
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
        "traces": str((plan.out / "traces").resolve()),
        "report": str((plan.out / "report" / "report.html").resolve()),
    }
    return found


def write(out: Path, summary: dict[str, Any]) -> None:
    """Write `summary` to summary.json in the folder `out`."""
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
    (out / "summary.json").write_text(text + "\n", encoding="utf-8")


def show(console: Console, plan: DemoPlan, summary: dict[str, Any]) -> None:
    """Print what the demo published, delivered and judged, as tables for people."""
    console.print(_verdict(summary))
    console.print()
    overview = table("", ">", "")
    overview.show_header = False
    latency, hops = summary["latency_ms"], summary["walk_hops"]
    trees = summary["walk_hits"] + summary["ring_hits"]
    median, most = _ms(latency.get("p50")), _ms(latency.get("p99"))
    walks = f"{summary['walk_hits']:,} by random walk ({_number(hops.get('mean'))} hops)"
    each_costs = f"{_number(summary['messages_per_delivery'])} for each delivery"
    for row in (
        ("nodes", f"{summary['nodes']}", f"processes on loopback, {plan.routing}"),
        ("published", f"{summary['published']:,}", f"events of {escape(plan.feed)}"),
        ("delivered", f"{summary['delivered']:,}", f"of {summary['expected']:,} expected"),
        ("latency", median, f"in the median; 99 % within {most}"),
        ("trees found", f"{trees:,}", f"{walks}, {summary['ring_hits']:,} by the ring"),
        ("messages", f"{summary['messages']:,}", f"that carried events: {each_costs}"),
    ):
        overview.add_row(*row)
    console.print(overview)
    each = table("subscription", ">deliveries", "selector")
    for wanted in plan.subscriptions[:40]:
        count = summary["per_subscription"][wanted.name]
        each.add_row(escape(wanted.name), f"{count:,}", f"[dim]{escape(wanted.where)}[/]")
    console.print(each)
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


def _verdict(summary: dict[str, Any]) -> str:
    if summary["exact"] and not summary["expected"]:
        return "[bold green]✓ Exact:[/] no delivery was expected, and none was made."
    if summary["exact"]:
        return (
            f"[bold green]✓ Exact:[/] each of {summary['expected']:,} expected deliveries was made "
            f"once, and nothing else was delivered."
        )
    names = ("missing", "dropped", "duplicates", "spurious", "unknown")
    parts = [f"{summary[name]:,} {name}" for name in names if summary[name]]
    parts += [] if parts else [escape(problem) for problem in summary["problems"][:1]]
    return f"[bold red]✗ Not exact:[/] {', '.join(parts) or 'see the report'}."


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
