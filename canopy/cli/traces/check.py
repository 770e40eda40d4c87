"""`canopy trace check`: which records trace files have and lack, as text or as JSON."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from canopy.cli.connect import json_option
from canopy.cli.errors import OK, UNDECIDED, WRONG
from canopy.cli.output import Markup, TextTable, console, label, print_json
from overlay.phrases import counted, size

if TYPE_CHECKING:
    from rich.console import Console

    from canopy.traces.analysis import TimeWindow
    from canopy.traces.analysis.check import TraceCheck
    from canopy.traces.analysis.check.result import NodeCheck, OverlayCheck, RunCheck, TraceFinding


# --- `--since` and `--until` ---


def window_of(since: str | None, until: str | None) -> TimeWindow:
    """Return the time window to read. Raises UsageError."""
    from canopy.traces.analysis import TimeWindow, parse_time

    bounds: list[float | None] = []
    for name, text in (("--since", since), ("--until", until)):
        try:
            bounds.append(None if text is None else parse_time(text, end=name == "--until"))
        except ValueError:
            raise click.BadParameter(
                f"{text!r} is no time: write 2026-09-21 or 2026-09-21T06:30 (UTC)", param_hint=name
            ) from None
    window = TimeWindow(*bounds)
    if window.since is not None and window.until is not None and window.since >= window.until:
        raise click.UsageError("--since is not before --until")
    return window


EXAMPLES_PRINTED: Final = 5  # findings of one kind that are printed, beside their number
NODES_PRINTED: Final = 40  # nodes in the table, those with findings first
SIGNS: Final = {"complete": ("✓", "green"), "findings": ("!", "red")}


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--since", metavar="TIME", help="Only files of days from then on (UTC).")
@click.option("--until", metavar="TIME", help="Only files of days before it; of a day: with it.")
@json_option
def check(folder: str, since: str | None, until: str | None, as_json: bool) -> int:
    """Check whether the trace records under DIR are complete, without Spark and without Java.

    Shows for each node its records, how many are absent, how many it lost itself, the share of
    events that it keeps, the offset of its clock, and how each of its processes ended; also absent
    nodes, damaged files, copies of files, and overlays that are mixed in one folder. It does not
    judge deliveries: use `canopy trace analyze`.

    The exit code is 0 if the records are complete; 9 if some are absent, damaged or contradictory;
    5 if an analysis could judge nothing, since no overlay has both an event and a subscription with
    a SUBACK. Findings that do not affect an analysis are notes, without exit code 9: copies, clock
    offsets, different sampling, nodes that still write. DIR is a path or a file: URI. With --since
    and --until only the files of these days are read; a process that ran before or after is no
    finding.

    \b
    canopy trace check ~/.local/share/canopy/default/traces
    canopy trace check traces --json | jq .findings
    """
    from canopy.cli.display import Display
    from canopy.traces.analysis import named
    from canopy.traces.analysis.check import COMPLETE, NOTHING
    from canopy.traces.analysis.check import check as check_traces

    with Display() as display:
        display.step("checking the traces", 1)
        found = check_traces(
            named(folder),
            lambda file, done, total: display.update(
                done, total, f"{done / max(total, 1):.0%} of {size(total)}: {file}"
            ),
            window=window_of(since, until),
        )
        display.done(f"{counted(found.files, 'file')}, {size(found.size)}")
    if as_json:
        print_json(found.to_dict(), indent=2)
    else:
        _print(found)
    return {COMPLETE: OK, NOTHING: UNDECIDED}.get(found.result, WRONG)


def time_text(seconds: float | None, day: bool = True) -> str:
    """Return a time in UTC; "-" for None."""
    if seconds is None:
        return "-"
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):  # a damaged record
        return f"{seconds:g} s"
    return f"{moment:%Y-%m-%d %H:%M:%S}" if day else f"{moment:%H:%M:%S}"


def _print(found: TraceCheck) -> None:
    """Print the result: the verdict in a sentence, findings, notes, overlays and nodes."""
    screen = console()
    sign, colour = SIGNS.get(found.result, ("?", "yellow"))
    nodes = counted(len(found.nodes), "node")
    screen.print(f"[bold {colour}]{sign} {_headline(found)}[/]", soft_wrap=True)
    span = f"{time_text(found.first)} to {time_text(found.last)} UTC" if found.records else "-"
    screen.print(
        f"{counted(found.records, 'record')} of {nodes} in {counted(found.files, 'file')} "
        f"({size(found.size)}), {span}",
        soft_wrap=True,
    )
    names = {each.node: each.name for each in found.nodes if each.name}
    _show_findings(screen, "Findings", found.findings, names)
    _show_findings(screen, "Notes", found.notes, names)
    if len(found.overlays) > 1:
        screen.print("", _overlay_table(found.overlays))
    for overlay in found.overlays:
        for reason in overlay.reasons:
            screen.print(
                f"{label(overlay.name)}: an analysis cannot find it exact: {label(reason)}",
                soft_wrap=True,
            )
    if found.nodes:
        screen.print(_node_table(found))
        left = len(found.nodes) - NODES_PRINTED
        if left > 0:
            screen.print(f"and {counted(left, 'more node')}; --json has all")


def _headline(found: TraceCheck) -> str:
    from canopy.traces.analysis.check import COMPLETE, NOTHING

    if found.result == COMPLETE:
        return "complete: no record is absent or damaged"
    kinds: dict[str, int] = {}
    for finding in found.findings:
        kinds[finding.kind] = kinds.get(finding.kind, 0) + 1
    listed = ", ".join(f"{kind} ({number:,})" for kind, number in kinds.items())
    if found.result == NOTHING:
        why = "nothing to judge: no overlay has both an event and a subscription with a SUBACK"
        return f"{why}; {listed}" if listed else why
    return f"not complete: {listed}"


def _show_findings(
    screen: Console, title: str, findings: tuple[TraceFinding, ...], names: dict[str, str]
) -> None:
    if not findings:
        return
    screen.print(f"\n[bold]{title}[/]")
    kinds: dict[str, list[TraceFinding]] = {}
    for finding in findings:
        kinds.setdefault(finding.kind, []).append(finding)
    for kind, each in kinds.items():
        for finding in sorted(each, key=lambda one: -(one.records or 0))[:EXAMPLES_PRINTED]:
            screen.print(f"  {kind}: {label(_line(finding, names))}", soft_wrap=True)
        if len(each) > EXAMPLES_PRINTED:
            screen.print(f"  {kind}: {len(each) - EXAMPLES_PRINTED:,} more; --json has all")


def _line(finding: TraceFinding, names: dict[str, str]) -> str:
    about = finding.file
    if about is None and finding.node is not None:
        name = names.get(finding.node)
        about = f"{name} ({finding.node})" if name else finding.node
    text = f"{about}: {finding.text}" if about else finding.text
    if finding.until is not None:
        since = time_text(finding.since) if finding.since else "the beginning"
        text += f", from {since} to {time_text(finding.until, day=not finding.since)}"
    elif finding.since is not None:
        text += f", after {time_text(finding.since)}"
    return text


def _overlay_table(overlays: tuple[OverlayCheck, ...]) -> TextTable:
    columns = ("overlay", ">nodes", ">absent nodes", ">events", ">subscriptions", "sampling")
    return TextTable(*columns).of(
        (
            *(each.name, each.nodes, len(each.absent), each.published, each.subscriptions),
            ", ".join(f"{share} ({nodes})" for share, nodes in each.samples.items()),
        )
        for each in overlays
    )


def _node_table(found: TraceCheck) -> TextTable:
    """Return the table of nodes, those with findings first. Columns without differences are left
    out."""
    columns: dict[str, Column] = dict(COLUMNS)
    runs = [run for node in found.nodes for run in node.runs]
    if all(len(node.runs) == 1 for node in found.nodes):
        del columns[">run"]
    if not any(run.absent for run in runs):
        del columns[">absent"]
    if not any(run.lost for run in runs):
        del columns[">lost"]
    if len({run.sample for run in runs}) == 1:
        del columns[">sampling"]
    if not any(note.kind == "clock" for note in found.notes):
        del columns[">clock"]
    chosen = sorted(found.nodes, key=lambda node: (not node.findings, node.overlay, node.node))
    return TextTable(*columns).of(
        (cell(node, run) for cell in columns.values())
        for node in chosen[:NODES_PRINTED]
        for run in node.runs
    )


def _red(number: int) -> str:
    return Markup(f"[red]{number:,}[/]") if number else "0"


Column = Callable[["NodeCheck", "RunCheck"], str | int | None]

COLUMNS: Final[dict[str, Column]] = {
    "=node": lambda node, run: node.node,
    "name": lambda node, run: node.name,
    ">run": lambda node, run: run.run,
    ">records": lambda node, run: run.records,
    ">absent": lambda node, run: _red(run.absent),
    ">lost": lambda node, run: _red(run.lost),
    ">sampling": lambda node, run: "?" if run.sample is None else f"{run.sample * 100:.6g} %",
    ">clock": lambda node, run: "-" if node.ahead is None else f"{node.ahead:+,.3f} s",
    "=last record": lambda node, run: time_text(run.last),
    "=end": lambda node, run: Markup("[red]no end[/]") if run.end == "no end" else run.end,
}
"""Heading and cell of each column of the nodes' table."""
