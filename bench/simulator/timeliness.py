"""Phoenix's table 1 and figures 9 and 10: four modes of hosts and publishers, by the plain mean.

    python -m bench.simulator.timeliness --rates 500 4000 --matching 6 26 --json
    python -m bench.simulator.timeliness --rates 4000 --events 200000 --json
    python -m bench.simulator.timeliness --few --rates 4000 --modes choice both --seeds 8 --json
    python -m bench.simulator.timeliness --few --rates 4000 --modes choice both --knows turns exact

The points of `python -m bench.experiments timeliness`, a row for each: figure 9 over `--rates`
(events a second), figure 10 over `--matching` (subscriptions that an event matches, a thousandth of
all), and of each mode the plain mean over all deliveries, which is the paper's measure, the mean by
urgency, the 99th percentile of all deliveries and of the most and the least urgent, and the share
of its time that the busiest host works. `--few` has three subscriptions for an event and a type for
each level, with an event as dear: a third of the work.

`--knows` says by what publishers choose hosts, in *choice only* and *both*:

* `acceptances`, the product: by the loads that hosts report with each acceptance;
* `free`: by the same, but of hosts at which nothing is predicted to wait each gets the next event
  (the product takes the first in the publisher's own order);
* `near`: by the same, but so do all hosts at which hardly more is predicted to wait than at another
  one, less than eight events;
* `exact`: by how many events each host really has to match, those that are on their way included;
* `old`: by how many that were at most five milliseconds ago;
* `turns`: by nothing, each publisher takes them in turn.

`--nudges N` measures each point N times: each time all latencies of the network are a nanosecond
longer. What is different then is chance.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain, product
from typing import Any, Final, NamedTuple

import msgspec

from bench.experiments.timeliness.plan import MODES, Mode, TimelinessPlan
from bench.experiments.timeliness.point import ModeOverlay
from canopy.sim.world.cost import collector_at_rest
from canopy.sim.world.processor import Processor
from canopy.wire.transport.codec import WireCodec
from overlay.machine import NodeId, Peer
from overlay.upper_tree.publisher.load_prediction import LoadPredictor

NAMES: Final = {mode.name.removesuffix(" only"): mode for mode in MODES}
"""The modes, by their names in a row."""

KNOWN: Final = ("acceptances", "free", "near", "exact", "old", "turns")

FREE: Final = 1
"""Events: where fewer are predicted to wait, a host is free."""

NEAR: Final = 8
"""Events."""

OLD: Final = 0.005
"""Seconds: as old as a report is where hosts have a queue of some events."""

NUDGE: Final = 1e-9
"""Seconds."""

FEW: Final = TimelinessPlan(
    matched=3,
    types=1,
    processor=Processor(per_input=0.000_01, per_match=0.000_6, per_recipient=0.000_033),
)


class ExactLoads(LoadPredictor):
    """One publisher's choice by what hosts have still to match: `under_way`, kept for all
    publishers, by name; `names` by identity."""

    def __init__(self, under_way: Counter[str], names: Mapping[NodeId, str]) -> None:
        super().__init__()
        self._under_way = under_way
        self._names = names

    def sent(self, node: NodeId, events: int, now: float) -> None:
        self._under_way[self._names[node]] += events

    def update(self, now: float) -> bool:
        return True

    def best(self, order: Sequence[Peer], now: float) -> Peer:
        return min(order, key=lambda host: self._under_way[self._names[host.id]])


class OldLoads(ExactLoads):
    """… by what they had to match a while ago."""

    def __init__(self, under_way: Counter[str], names: Mapping[NodeId, str]) -> None:
        super().__init__(under_way, names)
        self._all = under_way
        self._taken = 0.0
        self._seen = Counter[str]()

    def sent(self, node: NodeId, events: int, now: float) -> None:
        self._all[self._names[node]] += events

    def update(self, now: float) -> bool:
        if now - self._taken >= OLD:
            self._taken, self._seen = now, Counter(self._all)
        return True

    def best(self, order: Sequence[Peer], now: float) -> Peer:
        return min(order, key=lambda host: self._seen[self._names[host.id]])


class TurnLoads(LoadPredictor):
    """One publisher's choice where each host gets the next of its events."""

    def __init__(self) -> None:
        super().__init__()
        self._sent = 0

    def sent(self, node: NodeId, events: int, now: float) -> None:
        self._sent += events

    def update(self, now: float) -> bool:
        return True

    def best(self, order: Sequence[Peer], now: float) -> Peer:
        return order[self._sent % len(order)]


class LoadsInTurn(LoadPredictor):
    """The product's predictions; of hosts that are predicted to be alike each gets the next event:
    of those at which fewer than so many wait than at the one with the least."""

    def __init__(self, alike: int) -> None:
        super().__init__()
        self._alike = alike
        self._sent = 0

    def sent(self, node: NodeId, events: int, now: float) -> None:
        super().sent(node, events, now)
        self._sent += events

    def update(self, now: float) -> bool:
        super().update(now)
        return True

    def best(self, order: Sequence[Peer], now: float) -> Peer:
        waiting = {host: self._queue(host.id, now) for host in order}
        least = min(waiting.values())
        if self._alike == FREE and least >= FREE:
            return super().best(order, now)
        most = least + self._alike if self._alike > FREE else FREE
        alike = [host for host, count in waiting.items() if count < most]
        return alike[self._sent % len(alike)]


class KnowingOverlay(ModeOverlay):
    """An overlay in one mode whose publishers choose by what `knows` says."""

    def __init__(self, mode: Mode, plan: TimelinessPlan, knows: str) -> None:
        super().__init__(mode, plan, WireCodec())
        self._knows = knows
        self._under_way: Counter[str] = Counter()

    def grow(self, subscribers: int) -> None:
        super().grow(subscribers)
        if self._knows == "acceptances" or not self.mode.choice:
            return
        names = self.world.identities
        for name in self._publishers:
            kinds: dict[str, Callable[[], LoadPredictor]] = {
                "free": partial(LoadsInTurn, FREE),
                "near": partial(LoadsInTurn, NEAR),
                "exact": partial(ExactLoads, self._under_way, names),
                "old": partial(OldLoads, self._under_way, names),
                "turns": TurnLoads,
            }
            self.world.node(name).publisher.replicas.predictor = kinds[self._knows]()

    def _note(self, node: str, kind: str, fields: Mapping[str, Any]) -> None:
        super()._note(node, kind, fields)
        if kind == "match":
            self._under_way[node] -= 1


class Series(NamedTuple):
    """What one overlay measures: a figure's points in one mode, with one seed."""

    figure: int
    mode: str
    plan: TimelinessPlan
    knows: str
    nudge: int

    @property
    def is_of(self) -> dict[str, Any]:
        """What tells its rows from others'."""
        about = {"events": self.plan.events, "seed": self.plan.seed, "knows": self.knows}
        return {"figure": self.figure, **about, "nudge": self.nudge}

    def points(self, stage: ModeOverlay) -> Iterator[tuple[int, int]]:
        """The values of x, and the events a second, once the overlay is ready for them."""
        if self.figure == 9:
            stage.grow(self.plan.matched)
            stage.subscribe(self.plan.matched)
            yield from ((rate, rate) for rate in sorted(self.plan.rates))
            return
        counts = sorted(self.plan.matching)
        stage.grow(counts[-1])
        for matching in counts:
            stage.subscribe(matching)
            yield matching, self.plan.rate


def measured(series: Series) -> list[dict[str, Any]]:
    """A row for each point, with one mode."""
    found: list[dict[str, Any]] = []
    stage = KnowingOverlay(NAMES[series.mode], series.plan, series.knows)
    with collector_at_rest():
        for x, rate in series.points(stage):
            began = time.process_time()
            values = in_mode(stage, rate)
            subscribed = len(stage.world.clients.subscriptions)
            about = {"x": x, "rate": rate, "subscriptions": subscribed}
            took = round(time.process_time() - began, 1)
            found.append({**series.is_of, **about, "cpu_s": took, series.mode: values})
            print(found[-1], file=sys.stderr, flush=True)
    return found


def in_mode(stage: ModeOverlay, rate: int) -> dict[str, Any]:
    """What a row has of one mode."""
    drivers = stage.world.drivers
    before, began = {name: driver.worked for name, driver in drivers.items()}, stage.world.now
    point = stage.measure(rate)
    passed = stage.world.now - began
    worked = max(driver.worked - before[name] for name, driver in drivers.items())
    return {
        "mean_ms": point.all.mean_ms,
        "urgency_ms": point.urgency_ms,
        "p99_ms": point.all.p99_ms,
        "urgent_p99_ms": point.levels[0].p99_ms,
        "patient_p99_ms": point.levels[-1].p99_ms,
        "missing": point.expected - point.delivered,
        "busiest": round(worked / passed, 4),
    }


def all_series(given: argparse.Namespace) -> Iterator[Series]:
    """Whatever is asked for."""
    plan = FEW if given.few else TimelinessPlan()
    plan = msgspec.structs.replace(
        plan, rates=tuple(given.rates), matching=tuple(given.matching), events=given.events
    )
    figures = [number for number, wanted in ((9, given.rates), (10, given.matching)) if wanted]
    seeds = range(given.seed, given.seed + given.seeds)
    runs = product(given.knows, figures, seeds, range(given.nudges), given.modes)
    for knows, figure, seed, nudge, mode in runs:
        longer = nudge * NUDGE
        network = msgspec.structs.replace(
            plan.network,
            latency_low=plan.network.latency_low + longer,
            latency_high=plan.network.latency_high + longer,
        )
        nudged = msgspec.structs.replace(plan, network=network, seed=seed)
        yield Series(figure, mode, nudged, knows, nudge)


def joined(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for all modes of a point."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for one in found:
        is_of = tuple(one[key] for key in ("figure", "x", "events", "knows", "seed", "nudge"))
        row = rows.setdefault(is_of, {**one, "cpu_s": 0.0})
        cpu_s = round(row["cpu_s"] + one["cpu_s"], 1)
        row |= {**one, "cpu_s": cpu_s}
    return list(rows.values())


def compared(found: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Where *choice only* and *both* were measured more than once under the same load: a row with
    their means over all runs, the mean of their differences, and its standard error."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in found:
        if "choice" in row and "both" in row:
            is_of = (row["figure"], row["x"], row["events"], row["knows"])
            groups.setdefault(is_of, []).append(row)
    for (figure, x, events, knows), runs in groups.items():
        if len(runs) < 2:
            continue
        differences = [row["both"]["mean_ms"] - row["choice"]["mean_ms"] for row in runs]
        yield {
            "figure": figure,
            "x": x,
            "events": events,
            "knows": knows,
            "seed": "mean",
            "runs": len(runs),
            **{mode: means([row[mode] for row in runs]) for mode in ("choice", "both")},
            "difference_ms": round(statistics.mean(differences), 4),
            "error_ms": round(statistics.stdev(differences) / len(runs) ** 0.5, 4),
            "worse": sum(difference > 0 for difference in differences),
        }


def means(modes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The mean of each value over all runs, and the standard deviation of the plain means."""
    names = ("mean_ms", "urgency_ms", "p99_ms", "busiest")
    found = {name: round(statistics.mean(each[name] for each in modes), 4) for name in names}
    spread = statistics.stdev(each["mean_ms"] for each in modes)
    return {**found, "spread_ms": round(spread, 4)}


def main(args: Sequence[str] | None = None) -> int:
    """Measure what is asked for; the exit code is 1 if a delivery is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.simulator.timeliness",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--rates", nargs="+", type=int, default=[], metavar="N", help="points of figure 9")
    add("--matching", nargs="+", type=int, default=[], metavar="N", help="points of figure 10")
    add("--events", type=int, default=2_000, help="of a point (2,000; the paper has 200,000)")
    add("--modes", nargs="+", choices=NAMES, default=list(NAMES))
    add("--knows", nargs="+", choices=KNOWN, default=["acceptances"])
    add("--few", action="store_true", help="few subscriptions, and an event as dear")
    add("--seed", type=int, default=1, help="the first")
    add("--seeds", type=int, default=1, help="how many")
    add("--nudges", type=int, default=1, help="runs of each point with other latencies")
    add("--jobs", type=int, default=1, help="modes at a time, each in a process (1)")
    add("--json", action="store_true", help="print one JSON list")
    given = parser.parse_args(args)
    if not given.rates and not given.matching:
        parser.error("name some --rates or some --matching")
    with ProcessPoolExecutor(given.jobs) as pool:
        found = joined(chain.from_iterable(pool.map(measured, all_series(given))))
    found += compared(found)
    print(json.dumps(found, indent=None if given.json else 1))
    missing = sum(row.get(mode, {}).get("missing", 0) for row in found for mode in NAMES)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
