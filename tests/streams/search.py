"""Look for seeds at which a shard's replicas break a promise.

    python -m tests.streams.search --seeds 2000          # until one is bad
    python -m tests.streams.search --seed 17 --seeds 1   # this one again
    python -m tests.streams.search --programs            # of those who append, with their nodes
    python -m tests.streams.search --transactions        # of those with transactions, likewise
    python -m tests.streams.search --groups              # of those that share rows
    python -m tests.streams.search --groups --edits 0.3  # … in groups whose options change
    python -m tests.streams.search --tables              # of those that read newest rows
    python -m tests.streams.search --liars --seeds 50    # of overlays whose leaders lie
    python -m tests.streams.search --forks               # of those at both sides of a cut
    make stream-search SEARCH="--seeds 2000"

Each seed is a world of 3 to 5 nodes with crashes, losses of power, cut links, slow, failing and
full disks and flipped bits, judged by the checkers of harness/shard_world.py. With
``CANOPY_FAULT`` a fault is planted first (bench.mutations). Exit code 1 if a seed was bad.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter

from bench.mutations.planting import VARIABLE
from harness.shard_world import WrongError, trial


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--seeds", type=int, default=500, help="how many at most")
    parser.add_argument("--rounds", type=int, default=30, help="faults and pauses of each")
    parser.add_argument("--programs", action="store_true", help="look at programs that append")
    parser.add_argument("--transactions", action="store_true", help="at programs' transactions")
    parser.add_argument("--groups", action="store_true", help="at programs that share rows")
    parser.add_argument("--edits", type=float, default=0.0, help="how often options change")
    parser.add_argument("--tables", action="store_true", help="at programs that read newest rows")
    parser.add_argument("--liars", action="store_true", help="at leaders that answer anything")
    parser.add_argument("--forks", action="store_true", help="at programs, through partitions")
    arguments = parser.parse_args()
    if os.environ.get(VARIABLE):
        from bench.mutations.planted import plant

        plant(os.environ[VARIABLE])
    if arguments.programs:
        return search_programs(arguments.seed, arguments.seeds, arguments.rounds)
    if arguments.transactions:
        return search_transactions(arguments.seed, arguments.seeds, arguments.rounds)
    if arguments.groups:
        seeds = range(arguments.seed, arguments.seed + arguments.seeds)
        return search_groups(seeds, arguments.rounds, arguments.edits)
    if arguments.liars:
        return search_liars(range(arguments.seed, arguments.seed + arguments.seeds))
    if arguments.tables:
        return search_tables(arguments.seed, arguments.seeds, arguments.rounds)
    if arguments.forks:
        return search_forks(arguments.seed, arguments.seeds, arguments.rounds)
    chunks = rows = suspect = truncated = anew = removed = 0
    began = time.process_time()
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        try:
            world = trial(seed, arguments.rounds)
        except WrongError as error:
            print(f"seed {seed}: {error}")
            return 1
        chunks += len(world.truth)
        rows += len(world.acknowledged)
        counters = [port.counters for port in world.ports.values()]
        suspect += sum(each.get("shard_logs_suspect", 0) for each in counters)
        anew += sum(each.get("shard_logs_begun_anew", 0) for each in counters)
        removed += min(replica.log.start for replica in world.alive.values()) > 1
        truncated += sum(each.get("shard_chunks_truncated", 0) for each in counters)
    print(
        f"{arguments.seeds} seeds, none bad: {chunks} chunks committed, {rows} rows acknowledged, "
        f"{suspect} torn or damaged logs, {truncated} truncations, {removed} logs "
        f"whose beginning was removed, {anew} that began anew behind one; "
        f"{time.process_time() - began:.1f} s of CPU"
    )
    return 0


def search_groups(seeds: range, rounds: int, edits: float) -> int:
    """Worlds with programs that share rows (tests/streams/programs/group/groups_world.py)."""
    from tests.streams.programs.group.groups_world import trial_of_groups

    began, done, taken, dead, changed = time.process_time(), 0, 0, 0, 0
    for seed in seeds:
        try:
            world = trial_of_groups(seed, rounds, edits)
        except WrongError as error:
            print(f"seed {seed}: {error}")
            return 1
        done += len(world.confirmed)
        taken += len(world.takes)
        counters = [port.counters for port in world.ports.values()]
        dead += sum(each.get("stream_dead_letters", 0) for each in counters)
        changed += sum(each.get("stream_groups_changed", 0) for each in counters)
    print(
        f"{len(seeds)} seeds, none bad: {taken} rows delivered, {done} acknowledgements confirmed, "
        f"{dead} dead letters, {changed} changes of options; "
        f"{time.process_time() - began:.1f} s of CPU"
    )
    return 0


def search_liars(seeds: range) -> int:
    """Overlays in which answers are others now and then (tests/streams/lying_world.py)."""
    from tests.streams.lying_world import trial_of_liars

    began, lies, refused = time.process_time(), 0, 0
    for seed in seeds:
        try:
            found = trial_of_liars(seed)
        except WrongError as error:
            print(f"seed {seed}: {error}")
            return 1
        lies, refused = lies + found[0], refused + found[1]
    print(
        f"{len(seeds)} seeds, none bad: {lies} answers were others, {refused} of them refused; "
        f"{time.process_time() - began:.1f} s of CPU"
    )
    return 0


def search_tables(first: int, seeds: int, rounds: int) -> int:
    """Worlds with programs that read the newest rows (tests/streams/tables/table_world.py)."""
    from tests.streams.tables.table_world import trial_of_tables

    began, judged, written = time.process_time(), 0, 0
    for seed in range(first, first + seeds):
        try:
            world = trial_of_tables(seed, rounds)
        except WrongError as error:
            print(f"seed {seed}: {error}")
            return 1
        judged += world.tables_judged
        counters = [port.counters for port in world.ports.values()]
        written += sum(each.get("stream_tables_written", 0) for each in counters)
    print(
        f"{seeds} seeds, none bad: {judged} times a program's rows were held against the fold, "
        f"{written} tables written; {time.process_time() - began:.1f} s of CPU"
    )
    return 0


def search_forks(first: int, seeds: int, rounds: int) -> int:
    """Worlds with programs at all sides of partitions (tests/streams/forking/fork_world.py)."""
    from tests.streams.forking.fork_world import trial_of_forks

    began, events, found = time.process_time(), 0, Counter[str]()
    for seed in range(first, first + seeds):
        try:
            world, _ = trial_of_forks(seed, rounds)
        except WrongError as error:
            print(f"seed {seed}: {error}")
            return 1
        events += sum(len(program.acknowledged) for program in world.programs.values())
        for port in world.ports.values():
            found.update({n: v for n, v in port.counters.items() if n.startswith("fork")})
    said = ", ".join(f"{count} {name}" for name, count in sorted(found.items()))
    print(
        f"{seeds} seeds, none bad: {events} events acknowledged; {said}; "
        f"{time.process_time() - began:.1f} s of CPU"
    )
    return 0


def search_programs(first: int, seeds: int, rounds: int) -> int:
    """Worlds with programs that append (tests/support/shards/producing_world.py)."""
    from tests.support.shards.producing_world import trial_of_programs

    began, events, refused = time.process_time(), 0, 0
    for seed in range(first, first + seeds):
        try:
            world = trial_of_programs(seed, rounds)
        except WrongError as error:
            print(f"seed {seed}: {error}")
            return 1
        events += sum(len(program.acknowledged) for program in world.programs.values())
        refused += sum(len(program.refused) for program in world.programs.values())
    seconds = time.process_time() - began
    print(
        f"{seeds} seeds, none bad: {events} events of programs acknowledged, {refused} refused; "
        f"{seconds:.1f} s of CPU"
    )
    return 0


def search_transactions(first: int, seeds: int, rounds: int) -> int:
    """Worlds with programs' transactions (tests/streams/programs/transaction/half_world.py)."""
    from tests.streams.programs.transaction.half_world import trial_of_transactions

    began, found = time.process_time(), Counter[str]()
    for seed in range(first, first + seeds):
        try:
            found.update(trial_of_transactions(seed, rounds))
        except WrongError as error:
            print(f"seed {seed}: {error}")
            return 1
    said = ", ".join(f"{count} {outcome}" for outcome, count in found.items())
    seconds = time.process_time() - began
    print(f"{seeds} seeds, none bad: {said}; {seconds:.1f} s of CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
