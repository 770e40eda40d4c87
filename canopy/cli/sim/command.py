"""The group `canopy sim`, and `canopy sim run`.

Commands print; `canopy.sim` computes. Progress goes to standard error, so that `--json` writes only
one object to standard output.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from canopy.cli.connect import json_option, quiet_option
from canopy.cli.hints import HintingGroup
from canopy.cli.output import TextTable, console
from canopy.cli.sim.replay import replay
from canopy.cli.sim.soak import pairs, report_failure, save_option, shrink_option, soak

if TYPE_CHECKING:
    from canopy.sim.scenario.result import Result
    from canopy.sim.scenario.scenario import Scenario
    from canopy.sim.world.cost import RunCost
    from canopy.traces.writer import OpenFile, TraceFile


@click.group(cls=HintingGroup)
def sim() -> None:
    """Run the overlay in a simulated network."""


for each in (soak, pairs, replay):
    sim.add_command(each)


@sim.command(short_help="Run one scenario, or a built-in workload.")
@click.argument(
    "scenario", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--nodes", type=click.IntRange(1, 100_000), help="Number of nodes (12).")
@click.option("--seed", type=int, help="Seed of the run (1).")
@click.option(
    "--subscriptions",
    type=click.IntRange(0, 10_000_000),
    help="Subscriptions of the built-in workload (two per node, at least 60).",
)
@click.option(
    "--events", type=click.IntRange(0, 10_000_000), help="Events of the built-in workload (300)."
)
@click.option("--routing", type=click.Choice(["pivot", "counting"]), help="How events are routed.")
@click.option(
    "--load",
    type=click.Choice(["mixed", "paper"]),
    default="mixed",
    help="paper: 100 attributes by a Zipf law, 8 each, about 10 interested nodes per event.",
)
@click.option(
    "--publishers", type=click.IntRange(1, 100_000), help="Number of nodes that publish (all)."
)
@click.option(
    "--entries", type=click.IntRange(1, 1_000_000), help="Registrations per host, at most (20,000)."
)
@json_option
@click.option(
    "--traces",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for all trace records, for `canopy trace analyze`.",
)
@shrink_option
@save_option
@quiet_option
def run(
    scenario: Path | None,
    nodes: int | None,
    seed: int | None,
    subscriptions: int | None,
    events: int | None,
    routing: str | None,
    load: str,
    publishers: int | None,
    entries: int | None,
    as_json: bool,
    traces: Path | None,
    shrink: float,
    save: Path | None,
    quiet: bool,
) -> None:
    """Run SCENARIO (a YAML file), or a built-in workload in a network without faults.

    The exit code is 0 if each expected delivery was made once and nothing else was delivered, else
    1.

    \b
    canopy sim run --nodes 30 --seed 7
    canopy sim run --nodes 3000 --subscriptions 5000 --events 200
    canopy sim run lossy.yaml --json
    """
    import msgspec

    from canopy.cli.sim.replay import SimProgress
    from canopy.sim.scenario.run import ScenarioRun, judge_run
    from canopy.sim.scenario.scenario import ScenarioError, parse_scenario
    from canopy.sim.world.cost import Meter
    from canopy.wire.transport.codec import WireCodec

    try:
        text = scenario.read_text(encoding="utf-8") if scenario else ""
        plan = parse_scenario(text, nodes, seed, subscriptions, events)
    except (ScenarioError, OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{scenario}: {error}") from None
    plan = with_options(plan, routing, publishers, entries, load)
    if traces is not None and traces.exists() and any(traces.iterdir()):
        raise click.UsageError(f"{traces} is not empty; name a new folder for the traces")
    meter = Meter()
    codec = WireCodec()
    with SimProgress(quiet) as progress:
        made = ScenarioRun(plan, codec, progress, None if traces is None else opener(traces))
        verdict = judge_run(made)
    result = verdict.result
    cost = meter.read(made.world.steps, len(made.world.drivers))
    counts = {
        "subscriptions": subscriptions,
        "events": events,
        "publishers": publishers,
        "entries": entries,
        "load": None if load == "mixed" else load,
    }
    again = replay_command(scenario, plan.nodes, plan.seed, plan.settings.tree.routing, counts)
    if as_json:
        found = verdict if result is None else result  # no result if a node raised an exception
        facts = msgspec.to_builtins(found) | msgspec.to_builtins(cost)
        facts |= facts.pop("ways", None) or {}  # beside messages and lower_bound
        if not verdict.green:
            facts["replay"] = again
        click.echo(msgspec.json.encode(facts).decode())
    elif result is not None:
        print_result(result, cost)
    if not verdict.green:
        report_failure(verdict, codec, again, shrink, save)
        sys.exit(1)


def with_options(
    plan: Scenario,
    routing: str | None,
    publishers: int | None,
    entries: int | None,
    load: str,
) -> Scenario:
    """Return `plan` with the options of the command line."""
    import msgspec

    from canopy.sim.scenario.range_load import paper_load

    tree: dict[str, Any] = {} if routing is None else {"routing": routing}
    if entries is not None:
        tree |= {"host_entries": entries, "split_at": entries}
    if tree:
        changed = msgspec.structs.replace(plan.settings.tree, **tree)
        settings = msgspec.structs.replace(plan.settings, tree=changed)
        plan = msgspec.structs.replace(plan, settings=settings)
    if publishers is not None:
        plan = msgspec.structs.replace(plan, publishers=publishers)
    if load == "paper":
        first = plan.first_subscriptions
        count = first if isinstance(first, int) else len(first)
        plan = msgspec.structs.replace(plan, load=paper_load(count, plan.nodes, plan.seed))
    return plan


def replay_command(
    scenario: Path | None,
    nodes: int,
    seed: int,
    routing: str,
    counts: Mapping[str, int | str | None],
) -> str:
    """Return the command that repeats the run. `counts`: further options, None if not given."""
    file = "" if scenario is None else f" {shlex.quote(str(scenario))}"
    given = "".join(f" --{name} {count}" for name, count in counts.items() if count is not None)
    return f"canopy sim run{file} --nodes {nodes} --seed {seed} --routing {routing}{given}"


def opener(root: Path) -> OpenFile:
    """Return a function that opens trace files below `root`."""

    def out(path: str) -> TraceFile:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target.open("ab")

    return out


def print_result(result: Result, cost: RunCost) -> None:
    """Print the result as a table."""
    times = result.messages / result.lower_bound if result.lower_bound else 0.0
    rows: list[tuple[str, Any]] = [
        ("seed", result.seed),
        ("nodes", f"{result.nodes} in {result.clusters} clusters"),
        ("simulated", f"{result.simulated_s:.1f} s in {result.steps} steps"),
        ("speed", f"{cost.steps_per_second:,} steps per second of {cost.cpu_s:.1f} s CPU time"),
        ("memory", f"{cost.bytes_per_node:,} bytes per node, at most {cost.peak_bytes:,} in all"),
        ("published", f"{result.published} ({result.refused} refused)"),
        ("expected", result.expected),
        ("delivered", result.delivered),
        ("messages", f"{result.messages}, {times:.2f} times the lower bound {result.lower_bound}"),
        ("other messages", result.other_messages),
        ("frames", f"{result.frames} ({result.frames_lost} lost)"),
        ("trace hash", result.trace_hash),
        ("violations", len(result.violations)),
    ]
    if result.ways is not None:
        found = result.ways
        steady = "-" if found.ratio_steady is None else f"{found.ratio_steady:.3f}"
        state = f"{found.entries_mean} on {found.hosts} hosts, at most {found.entries_max}"
        rows += [
            ("steady", f"{steady} times the lower bound, after a publisher's first events"),
            ("hops", f"{found.hops_p50} in the median, {found.hops_p99} at the 99th percentile"),
            ("copies", f"at most {found.most_copies} of one event by one node"),
            ("index entries", f"{state}, for {found.registrations} registrations"),
        ]
    console().print(TextTable("", "").of((name, str(value)) for name, value in rows))
    print_traffic(result)


def print_traffic(result: Result) -> None:
    """Print messages and bytes by purpose, in total and per node and second."""
    shown = TextTable("", ">messages", ">bytes", ">messages/node/s", ">bytes/node/s")
    found = result.traffic
    for plane, total, flows in (
        ("data plane", found.data_total, found.data),
        ("maintenance", found.maintenance_total, found.maintenance),
    ):
        for name, flow in ((plane, total), *((f"  {name}", flow) for name, flow in flows.items())):
            rates = (f"{flow.messages_per_node_s:.2f}", f"{flow.bytes_per_node_s:.0f}")
            shown.add(name, str(flow.messages), str(flow.bytes), *rates)
    console().print(shown)
