"""Look for seeds at which a shard's replicas, or programs that use them, break a promise.

    python -m tests.streams.search --seeds 2000          # until one is bad
    python -m tests.streams.search --seed 17 --seeds 1   # this one again
    python -m tests.streams.search programs              # of those who append, with their nodes
    python -m tests.streams.search transactions          # of those with transactions, in overlays
    python -m tests.streams.search groups                # of those that share rows
    python -m tests.streams.search groups --edits 0.3    # … in groups whose options change
    python -m tests.streams.search tables                # of those that read newest rows
    python -m tests.streams.search liars --seeds 50      # of overlays whose leaders lie
    python -m tests.streams.search forks                 # of those at both sides of a cut
    make stream-search SEARCH="--seeds 2000"

Each seed is a world of 3 to 5 nodes with crashes, losses of power, cut links, slow, failing and
full disks and flipped bits, judged by the checkers of tests/support/shards/shard_world.py;
programs with transactions, and leaders that lie, are in whole overlays (harness/stream_world.py).
With ``CANOPY_FAULT`` a fault is planted first (bench.mutations). Exit code 1 if a seed was bad.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from bench.mutations.planting import VARIABLE
from harness.logs import WrongError
from tests.support.shards.shard_world import ShardWorld, trial

COUNTED: Final = (
    *("shard_logs_suspect", "shard_logs_begun_again", "shard_chunks_truncated"),
    *("stream_dead_letters", "stream_groups_changed", "stream_tables_written"),
)
"""Counters of nodes that say what a world has been through, and all that begin with "fork"."""


def counters(world: ShardWorld) -> Counter[str]:
    """Those of a world's nodes."""
    found = Counter[str]()
    for port in world.ports.values():
        found.update(
            {n: v for n, v in port.counters.items() if n in COUNTED or n.startswith("fork")}
        )
    return found


def appended(world: Any) -> Counter[str]:
    """What the programs of a world have appended."""
    programs = world.programs.values()
    rows = sum(len(program.acknowledged) for program in programs)
    refused = sum(len(program.refused) for program in programs)
    return Counter(rows=rows, refused=refused) + counters(world)


def of_shards(seed: int, options: argparse.Namespace) -> Counter[str]:
    """Replicas of a shard (tests/support/shards/shard_world.py)."""
    world = trial(seed, options.rounds)
    removed = min(replica.log.start for replica in world.alive.values()) > 1
    facts = Counter(rows=len(world.acknowledged), chunks=len(world.truth), removed=int(removed))
    return facts + counters(world)


def of_programs(seed: int, options: argparse.Namespace) -> Counter[str]:
    """Programs that append (tests/support/shards/producing_world.py)."""
    from tests.support.shards.producing_world import trial_of_programs

    return appended(trial_of_programs(seed, options.rounds))


def of_transactions(seed: int, options: argparse.Namespace) -> Counter[str]:
    """Programs' transactions (tests/streams/programs/transaction/transaction_programs.py)."""
    from tests.streams.programs.transaction.transaction_programs import trial_of_transactions

    found = trial_of_transactions(seed, options.rounds)
    return Counter(found) + Counter(rows=sum(found.values()))


def of_groups(seed: int, options: argparse.Namespace) -> Counter[str]:
    """Programs that share rows (tests/streams/programs/group/groups_world.py)."""
    from tests.streams.programs.group.groups_world import trial_of_groups

    world = trial_of_groups(seed, options.rounds, options.edits)
    return Counter(rows=len(world.takes), confirmed=len(world.confirmed)) + counters(world)


def of_tables(seed: int, options: argparse.Namespace) -> Counter[str]:
    """Programs that read the newest rows (tests/streams/tables/table_world.py)."""
    from tests.streams.tables.table_world import trial_of_tables

    world = trial_of_tables(seed, options.rounds)
    return Counter(rows=len(world.acknowledged), judged=world.tables_judged) + counters(world)


def of_liars(seed: int, options: argparse.Namespace) -> Counter[str]:
    """Overlays in which answers are others now and then (tests/streams/lying_world.py)."""
    from tests.streams.lying_world import trial_of_liars

    lies, refused = trial_of_liars(seed)
    return Counter(rows=lies, refused=refused)


def of_forks(seed: int, options: argparse.Namespace) -> Counter[str]:
    """Programs at all sides of partitions (tests/streams/forking/fork_world.py)."""
    from tests.streams.forking.fork_world import trial_of_forks

    return appended(trial_of_forks(seed, options.rounds)[0])


KINDS: Final[Mapping[str, Callable[[int, argparse.Namespace], Counter[str]]]] = {
    "shards": of_shards,
    "programs": of_programs,
    "transactions": of_transactions,
    "groups": of_groups,
    "tables": of_tables,
    "liars": of_liars,
    "forks": of_forks,
}
"""By name what runs one seed, and says what became of it: `rows` are those that programs know to be
there or were given; of liars the answers that were others. WrongError if a checker fails."""


def search(seeds: Iterable[int], options: argparse.Namespace) -> dict[str, Any]:
    """Run seeds until one is bad, or all with `--keep-going`. An exception is bad as well."""
    found, bad, began = Counter[str](), list[int](), time.process_time()
    for seed in seeds:
        try:
            found.update(KINDS[options.kind](seed, options))
        except Exception as error:
            if not isinstance(error, WrongError):
                traceback.print_exc()
            print(f"seed {seed}: {error}", file=sys.stderr, flush=True)
            bad.append(seed)
            if not options.keep_going:
                break
    return {
        "kind": options.kind,
        "seeds": options.seeds,
        "rounds": options.seeds * options.rounds,
        "rows": found.pop("rows", 0),
        **dict(sorted(found.items())),
        "cpu_s": round(time.process_time() - began, 1),
        "bad": bad,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", nargs="?", choices=KINDS, default="shards", help="(shards)")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--seeds", type=int, default=500, help="how many at most")
    parser.add_argument("--rounds", type=int, default=30, help="faults and pauses of each")
    parser.add_argument("--edits", type=float, default=0.0, help="how often groups' options change")
    parser.add_argument("--keep-going", action="store_true", help="go on after a bad seed")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if os.environ.get(VARIABLE):
        from bench.mutations.planted import plant

        plant(os.environ[VARIABLE])
    report = search(range(options.seed, options.seed + options.seeds), options)
    text = ", ".join(f"{name} {value}" for name, value in report.items())
    print(json.dumps(report) if options.json else text)
    return 1 if report["bad"] else 0


if __name__ == "__main__":
    sys.exit(main())
