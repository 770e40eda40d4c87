"""How long an event takes to find its matches, beside counting; the engine of `matching`.

`python -m bench.matching.compare --json` prints one list of rows. Timed is the Python call
`Index.match_labels`, from the event's dictionary to an array of labels of its own, and
`Counting.match`. They take turns: all events through one, then the same through the other, and so
on, so that a busy machine slows both, and each finds in the caches what its own last events left
there, as it would in a program that uses one of them. Medians over the events, of each event's
median over the runs. `us_after_counting` is the engine with every event just after counting has
done the same one, and has filled the caches with its own. `us_per_key_match` is `Index.match`: keys
as a list, in order.
`us_per_build` is for `Index.add_many` from compiled conjunctions, `us_per_add` and `us_per_remove`
are means at full size, `us_longest_change` the longest single one of these.
`bytes_per_subscription` is what the process has grown by, per subscription, keys included.
`--churn` replaces every subscription once and measures again.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Final

import numpy as np
import psutil

from bench.command import SEED, parser, say, show
from bench.matching.counting import Counting
from bench.matching.workloads import WORKLOADS, Table
from matching import Index, warm
from matching.conjunction import Conjunction

SIZES: Final = (10_000, 100_000, 1_000_000)
CHECKED: Final = 20  # events compared with brute force, before and after changes
RUNS: Final = 3  # of all events through each of what is compared
CHANGED: Final = 2000  # subscriptions taken out and put in again
Row = dict[str, Any]


def timed(call: Callable[[], Any]) -> float:
    """Microseconds that one call takes."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e6


def numbered(table: Table) -> Iterator[tuple[int, Conjunction]]:
    return zip(range(len(table)), table.conjunctions(range(len(table))), strict=True)


def is_exact(index: Index[int], table: Table, values: Any, events: list[Row]) -> bool:
    for row, event in zip(values, events, strict=True):
        expected = table.brute_force(row).tolist()
        if sorted(index.keys_of(index.match_labels(event).tolist())) != expected:
            return False
        if sorted(index.match(event)) != expected:
            return False
    return True


def change(index: Index[int], table: Table, numbers: Sequence[int]) -> tuple[Any, Any]:
    """Take some out and put them in again: microseconds of each."""
    fresh = [(n, next(table.conjunctions(range(n, n + 1)))) for n in numbers]
    gc.collect()
    gc.freeze()  # a pause for the sake of all these new conjunctions is not the index's
    removed = [timed(lambda n=n: index.remove(n)) for n in numbers]  # type: ignore[misc]
    added = [timed(lambda p=p: index.add(*p)) for p in fresh]  # type: ignore[misc]
    gc.unfreeze()
    return np.array(added), np.array(removed)


def run(call: Callable[[Any], Any], events: Iterable[Any]) -> list[float]:
    """Microseconds for each event of one run."""
    return [timed(lambda e=event: call(e)) for event in events]  # type: ignore[misc]


def match_times(index: Index[int], counting: Counting, values: Any, events: list[Row]) -> Any:
    """Median microseconds of (labels, counting, keys), each in runs of its own."""
    calls: tuple[tuple[Callable[[Any], Any], Any], ...] = (
        (index.match_labels, events),
        (counting.match, values),
        (index.match, events),
    )
    times = [[run(call, arguments) for call, arguments in calls] for _ in range(RUNS)]
    return np.median(np.median(np.array(times), axis=0), axis=1)


def after_counting(index: Index[int], counting: Counting, values: Any, events: list[Row]) -> float:
    """Median microseconds of labels, each event just after counting has done it."""
    times = []
    for row, event in zip(values, events, strict=True):
        counting.match(row)
        times += run(index.match_labels, [event])
    return float(np.median(times))


def build(table: Table) -> tuple[Index[int], float, float]:
    """An index with everything in it; microseconds and bytes per subscription."""
    index: Index[int] = Index()
    start = time.perf_counter()
    for _ in table.conjunctions(range(len(table))):
        pass
    making = time.perf_counter() - start  # of the conjunctions, which is not the index's work
    gc.collect()
    before = psutil.Process().memory_info().rss
    start = time.perf_counter()
    index.add_many(numbered(table))
    took = time.perf_counter() - start - making
    gc.collect()
    grown = psutil.Process().memory_info().rss - before
    return index, took * 1e6 / len(table), grown / len(table)


def measure(name: str, size: int, options: argparse.Namespace) -> Row:
    warm()
    say(f"{name}, {size:,}: making subscriptions")
    table = Table(WORKLOADS[name], size, options.seed, options.skew)
    values, events = table.events(options.events)
    index, us_per_build, bytes_each = build(table)
    say("  comparing with brute force")
    exact = is_exact(index, table, values[:CHECKED], events[:CHECKED])
    counting = Counting(table)
    match_times(index, counting, values[:3], events[:3])
    say("  measuring")
    labels, counted, keys = match_times(index, counting, values, events)
    after = after_counting(index, counting, values, events)
    rng = np.random.default_rng(options.seed)
    numbers = rng.permutation(size)[: size if options.churn else min(CHANGED, size)].tolist()
    added, removed = change(index, table, numbers)
    exact &= is_exact(index, table, values[-CHECKED:], events[-CHECKED:])
    row = {
        "size": size,
        "workload": name,
        "us_per_event": round(labels, 2),
        "ratio_to_counting": round(counted / labels, 1),
        "bytes_per_subscription": round(bytes_each),
        "us_per_add": round(float(added.mean()), 2),
        "us_per_remove": round(float(removed.mean()), 2),
        "exact": bool(exact),
        "us_counting": round(counted, 1),
        "us_after_counting": round(after, 2),
        "us_per_key_match": round(keys, 2),
        "us_per_build": round(us_per_build, 2),
        "us_longest_change": round(float(max(added.max(), removed.max())), 1),
        "matches": float(np.median([len(index.match_labels(event)) for event in events])),
    }
    if options.churn:
        labels, counted, _ = match_times(index, counting, values, events)
        row |= {
            "us_per_event_after_churn": round(labels, 2),
            "ratio_to_counting_after_churn": round(counted / labels, 1),
        }
    return row


def main(arguments: Sequence[str] | None = None) -> None:
    made = parser(
        __doc__,
        sizes=(list(SIZES), "subscriptions"),
        events=(200, "to match"),
        seed=SEED,
        skew=(0.8, "Zipf's exponent over attributes"),
        churn=(False, "replace everything, measure again"),
    )
    made.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    options = made.parse_args(arguments)
    say("compiling")
    warm()
    rows = []
    for size in options.sizes:
        for name in options.workloads:
            # Each in a process of its own: memory that one row freed must not hide the next one's.
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                rows.append(process.submit(measure, name, size, options).result())
            say("  " + json.dumps(rows[-1]))
    show(rows, options)


if __name__ == "__main__":
    main()
