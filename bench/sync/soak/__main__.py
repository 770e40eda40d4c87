"""`python -m bench.sync.soak --seed 1 --seeds 20`: random schemas, work, DDL and kills."""

from __future__ import annotations

import itertools
import sys

from bench.command import parser
from bench.sync.soak.seeds import Servers, run_seed


def main() -> int:
    args = parser(
        "Keep random databases in sync while processes and servers are killed, and compare both "
        "sides by their own drivers. Ends with the first seed that is bad.",
        seed=(1, "the first seed"),
        seeds=(0, "how many; 0: until one is bad"),
        steps=(120, "of each seed"),
        go_on=(False, "go on behind a seed that is bad"),
        verbose=(False, "say each kill and DDL"),
    ).parse_args()
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
