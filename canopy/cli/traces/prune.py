"""`canopy trace prune`: remove trace files, or the state, of old days."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import click

from canopy.cli.connect import json_option
from canopy.cli.errors import OK
from canopy.cli.output import show
from overlay.phrases import counted, size

if TYPE_CHECKING:
    from canopy.traces.analysis.prune import Pruned


@click.command()
@click.argument("folder", metavar="DIR")
@click.option(
    "--keep", type=click.IntRange(min=0), metavar="DAYS", help="Keep this many days before today."
)
@click.option("--before", metavar="DATE", help="The first day (UTC) that is kept.")
@click.option("--state", metavar="DIR", help="Remove only days that this state has analyzed.")
@click.option("--node", "nodes", multiple=True, metavar="ID", help="Only this node's; repeatable.")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@json_option
def prune(
    folder: str,
    keep: int | None,
    before: str | None,
    state: str | None,
    nodes: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> int:
    """Remove the trace files under DIR of days before the last DAYS, or before DATE.

    Names each removed day, with its size. Files that may still be written stay (those of today, and
    those that were written to within the last hour), and with --state those that the state of
    `canopy trace analyze --state` does not have. Files in no date= folder are left alone.

    If DIR is such a state, its days are closed: records and pairs of these days are removed, and
    later analyses neither read nor judge them again. Their lines in the report stay, and so do
    subscriptions that may still be active.

    \b
    canopy trace prune traces --keep 30 --state state --dry-run
    canopy trace prune traces --before 2026-09-01
    canopy trace prune state --keep 90
    """
    from canopy.traces.analysis import named
    from canopy.traces.analysis.prune import close_days
    from canopy.traces.analysis.prune import prune as prune_traces

    now = time.time()
    first = _first_kept(keep, before, now)
    if (named(folder) / "state.json").is_file():
        if state is not None or nodes:
            raise click.UsageError(
                f"{folder} is a state: close its days without --state and --node"
            )
        found, done = close_days(named(folder), first, now, dry_run=dry_run), "closed"
    else:
        held = None if state is None else named(state)
        found = prune_traces(named(folder), first, now, state=held, nodes=nodes, dry_run=dry_run)
        done = "removed"
    show(_plain(found), as_json, *_said(found, f"would be {done}" if dry_run else done), indent=2)
    return OK


def _first_kept(keep: int | None, before: str | None, now: float) -> date:
    """Return the first day that is kept. Raises UsageError."""
    if (keep is None) == (before is None):
        raise click.UsageError("say what is kept: either --keep DAYS or --before DATE")
    if before is None:
        today = datetime.fromtimestamp(now, UTC).date()
        try:
            return today - timedelta(days=keep or 0)
        except OverflowError:
            return date.min
    try:
        return date.fromisoformat(before)
    except ValueError:
        raise click.BadParameter(
            f"{before!r} is no day: write 2026-09-21", param_hint="--before"
        ) from None


def _plain(found: Pruned) -> dict[str, object]:
    return {
        "dry_run": found.dry_run,
        "before": str(found.before),
        "files": found.files,
        "bytes": found.size,
        "days": [
            {"day": str(day.day), "files": day.files, "bytes": day.size} for day in found.days
        ],
        "kept": found.kept,
    }


def _said(found: Pruned, verb: str) -> Iterator[str]:
    from canopy.traces.analysis.prune import NOT_JUDGED

    for day in found.days:
        files = f"{counted(day.files, 'file')}, " if day.files else ""
        yield f"{day.day}  {files}{size(day.size)} {verb}"
    for why, kept in found.kept.items():
        if why == NOT_JUDGED:
            what, advice = "day", ": run canopy trace analyze with this state first"
        else:
            what, advice = "file", ""
        yield f"kept: {counted(len(kept), what)} {why}, such as {kept[0]}{advice}"
    if found.days:
        whole = counted(found.files, "file") if found.files else counted(len(found.days), "day")
        yield f"{whole}, {size(found.size)} {verb}"
    else:
        yield f"nothing of before {found.before} {verb}"
