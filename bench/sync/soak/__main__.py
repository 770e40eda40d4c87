"""`python -m bench.sync.soak --seed 1 --seeds 20`: random schemas, work, DDL and kills."""

from __future__ import annotations

import argparse
import itertools
import sys

from bench.sync.soak.seeds import Servers, run_seed


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.sync.soak",
        description="Keep random databases in sync while processes and servers are killed, and "
        "compare both sides by their own drivers. Ends with the first seed that is bad.",
    )
    parser.add_argument("--seed", type=int, default=1, help="The first seed.")
    parser.add_argument("--seeds", type=int, default=0, help="How many; 0: until one is bad.")
    parser.add_argument("--steps", type=int, default=120, help="Steps of each seed.")
    parser.add_argument("--go-on", action="store_true", help="Go on behind a seed that is bad.")
    parser.add_argument("--verbose", action="store_true", help="Say each kill and DDL.")
    args = parser.parse_args()
    numbers = itertools.count(args.seed)
    servers, bad = Servers(), 0
    try:
        for number in itertools.islice(numbers, args.seeds or None):
            if wrong := run_seed(number, args.steps, servers, args.verbose):
                print(wrong, flush=True)
                bad += 1
                if not args.go_on:
                    break
    except KeyboardInterrupt:
        pass
    finally:
        servers.stop()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
