"""`canopy sim replay`: recorded subscriptions and events, run in other configurations.

This module reads files; `canopy.sim.scenario.recorded_run` and `replay` interpret and run them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from canopy.cli.connect import json_option, quiet_option
from canopy.cli.constants import MAX_CONFIGURATIONS, REDRAW_INTERVAL
from canopy.cli.display import Display
from canopy.cli.output import TextTable, show
from canopy.sim.world.cost import resident

if TYPE_CHECKING:
    from canopy.sim.scenario.recorded_run import Expense, RecordedRun
    from canopy.sim.scenario.replay import ReplayConfiguration
    from overlay.settings import Settings


class SimProgress(Display):
    """Shows a step for each stage of a simulation, with its virtual time and this process's memory:
    a large world takes minutes and gigabytes. Implements `canopy.sim.scenario.run.Progress`."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(quiet)
        self._shown_at = 0.0

    def __exit__(self, *exc: object) -> None:
        if exc[0] is None:
            self.done()
        super().__exit__(*exc)

    def __call__(self, stage: str, at: float, share: float) -> None:
        """Show that `stage` is `share` done (0 to 1) at virtual second `at`."""
        if stage != self._text:
            self.step(stage, 1.0)
        elif time.monotonic() - self._shown_at >= REDRAW_INTERVAL:
            self._shown_at = time.monotonic()
            facts = f"{at:8.1f} s of virtual time, {resident() / 1e9:.1f} GB"
            self.update(share, 1.0, facts if self.fancy else f"{share:4.0%}  at {facts.strip()}")


SAME: Final = ("nodes", "routing", "subscriptions", "published", "expected", "delivered")
"""Fields of an expense that are printed as they are."""


@click.command(short_help="Run recorded traces in other configurations.")
@click.argument("traces", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--nodes", multiple=True, type=click.IntRange(1, 10_000), help="Number of nodes (as recorded)."
)
@click.option(
    "--routing",
    multiple=True,
    type=click.Choice(["pivot", "counting"]),
    help="How events are routed (as recorded, or as in the settings).",
)
@click.option(
    "--settings",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A YAML file with groups of settings, as in a node's configuration.",
)
@click.option("--seed", type=int, default=1, help="Seed of the runs.")
@json_option
@quiet_option
def replay(
    traces: Path,
    nodes: tuple[int, ...],
    routing: tuple[str, ...],
    files: tuple[Path, ...],
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run the subscriptions and events of a trace folder once more, in other configurations.

    TRACES is a folder of trace records (build/demo/traces, or a node's data folder). Each option
    may be given several times; every combination is run. The exit code is 1 if one was not exact.

    \b
    canopy sim replay build/demo/traces --routing pivot --routing counting
    canopy sim replay traces --nodes 12 --nodes 48 --settings small-trees.yaml --json
    """
    import msgspec

    from canopy.sim.scenario.recorded_run import RecordedRun
    from canopy.sim.scenario.replay import replay as run
    from canopy.wire.transport.codec import WireCodec

    recorded = RecordedRun(trace_lines(traces))
    print_unread(recorded)
    expenses, violations = [recorded.expense()], []
    for configuration in configurations(recorded, nodes, routing, files, seed):
        with SimProgress(quiet) as progress:
            if not quiet:
                click.echo(f"{configuration.name}:", err=True)
            expense, found = run(recorded, configuration, WireCodec(), progress)
        expenses.append(expense)
        violations += [f"{configuration.name}: {one.kind}: {one.text}" for one in found]
    facts = {
        "recorded": expenses[0],
        "configurations": expenses[1:],
        "sampled": recorded.sampled,
        "unread_lines": recorded.unread,
        "violations": violations,
    }
    show(msgspec.to_builtins(facts), as_json, expenses_table(expenses))
    for text in violations[:20]:
        click.echo(text, err=True)
    if violations:
        sys.exit(1)


def trace_lines(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (file:line, text) of all trace files below a folder. TracesError if there are none."""
    from canopy.sim.scenario.recorded_run import TracesError

    files = sorted(folder.rglob("*.jsonl"))
    if not files:
        raise TracesError(
            f"no trace files (*.jsonl) below {folder}; a node with `trace` in its configuration, "
            f"`canopy demo` and `canopy sim run --traces` write them"
        )
    for path in files:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                yield f"{path.relative_to(folder)}:{number}", line


def print_unread(recorded: RecordedRun) -> None:
    """Print unreadable lines, and a warning about sampled traces, on standard error."""
    for text in recorded.unreadable:
        click.echo(f"! not read: {text}", err=True)
    if recorded.unread > len(recorded.unreadable):
        click.echo(f"! … and {recorded.unread - len(recorded.unreadable)} more lines", err=True)
    if recorded.sampled < 1:
        click.echo(
            f"! the nodes kept {recorded.sampled:.0%} of their events; only those are replayed",
            err=True,
        )


def configurations(
    recorded: RecordedRun,
    nodes: tuple[int, ...],
    routing: tuple[str, ...],
    files: tuple[Path, ...],
    seed: int,
) -> list[ReplayConfiguration]:
    """Return every combination of the options, with a name. Raises UsageError if there are too
    many."""
    import msgspec

    from canopy.sim.scenario.replay import ReplayConfiguration

    found = []
    choices = product(nodes or (len(recorded.nodes),), files or (None,), routing or ("",))
    for count, file, way in choices:
        settings = read_settings(file, recorded.tally.routing)
        if way:
            tree = msgspec.structs.replace(settings.tree, routing=way)
            settings = msgspec.structs.replace(settings, tree=tree)
        name = [settings.tree.routing, f"{count} nodes", *([file.name] if file else [])]
        found.append(ReplayConfiguration(", ".join(name), count, settings, seed))
    if len(found) > MAX_CONFIGURATIONS:
        raise click.UsageError(
            f"{len(found)} combinations; at most {MAX_CONFIGURATIONS} are run by one command"
        )
    return found


def read_settings(file: Path | None, routing: str) -> Settings:
    """Return the settings of a YAML file over the defaults, with the recorded routing unless the
    file sets one. Raises UsageError."""
    import msgspec
    import yaml

    from overlay.settings import Settings

    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8")) if file else {}
        found = {} if found is None else found
        if isinstance(found, dict) and routing and "routing" not in (found.get("tree") or {}):
            found["tree"] = {**(found.get("tree") or {}), "routing": routing}
        return msgspec.convert(found, Settings)
    except (yaml.YAMLError, OSError, UnicodeDecodeError, TypeError, ValueError) as error:
        raise click.UsageError(f"{file}: {error}") from None


def expenses_table(expenses: list[Expense]) -> TextTable:
    """Return a table with a column for each expense."""

    def of_kind(kind: str) -> Callable[[Expense], object]:
        return lambda expense: expense.by_kind[kind]

    rows: dict[str, Callable[[Expense], object]] = {
        **{name: attrgetter(name) for name in SAME},
        "missing, twice": lambda e: f"{e.missing}, {e.duplicates}",
        "messages": lambda e: e.messages,
        **{f"  {kind}": of_kind(kind) for kind in expenses[0].by_kind},
        "lower bound": lambda e: e.lower_bound,
        "  times that": lambda e: f"{e.times_lower_bound:.2f}",
        "other messages": lambda e: e.other_messages,
        "hops, median, 99 %": lambda e: f"{e.hops_median}, {e.hops_99}",
        "latency, median ms": lambda e: f"{e.latency_median_ms:.1f}",
        "sent/node, mean, most": lambda e: f"{e.sent.mean:.0f}, {e.sent.most}",
        "matched/node, mean, most": lambda e: f"{e.matched.mean:.0f}, {e.matched.most}",
    }
    shown = TextTable("=", *(f">{expense.name}" for expense in expenses))
    for name, value in rows.items():
        values = map(value, expenses)
        shown.add(name, *("?" if found is None else str(found) for found in values))
    return shown
