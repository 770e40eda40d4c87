"""What the simulator costs: `canopy sim run` at several sizes, each in a process of its own.

`python -m bench.simulator.cost --nodes 100,1000,3000 --json` prints one row per size: steps
(frames, ticks, dials …) per second of processor time, and resident memory per node, both as the run
itself measures them (canopy/sim/world/cost.py), beside the time on the wall. A run with a violation
is reported and makes the exit code 1. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

TAKEN = (
    *("nodes", "subscriptions", "published", "expected", "delivered", "clusters", "trace_hash"),
    *("steps", "simulated_s", "cpu_s", "steps_per_second", "bytes_per_node", "peak_bytes"),
)
"""Facts of a run that a row has."""


def sizes(text: str) -> list[int]:
    """Parse a list of sizes such as `100,1000`."""
    return [int(part) for part in text.split(",")]


def measure(nodes: int, extra: Sequence[str]) -> dict[str, Any]:
    """One run. RuntimeError with its words if it prints nothing."""
    command = ["-m", "canopy", "sim", "run", "--nodes", str(nodes), "--json", "--quiet", *extra]
    began = time.monotonic()
    done = subprocess.run([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    wall = time.monotonic() - began
    if not done.stdout:
        raise RuntimeError(f"canopy {' '.join(command[2:])} ended with code {done.returncode}")
    facts = json.loads(done.stdout)
    row = {name: facts[name] for name in TAKEN}
    return {**row, "violations": len(facts["violations"]), "wall_s": round(wall, 1)}


def main(args: Sequence[str] | None = None) -> int:
    """Measure each size in a process of its own and print a row for each."""
    parser = argparse.ArgumentParser(prog="python -m bench.simulator.cost", description=__doc__)
    parser.add_argument("--nodes", type=sizes, default=[100, 300, 1000], help="100,300,1000")
    parser.add_argument("--subscriptions", type=int, help="for every size (two a node)")
    parser.add_argument("--events", type=int, default=300, help="to publish (300)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    options = parser.parse_args(args)
    extra = ["--events", str(options.events), "--seed", str(options.seed)]
    if options.subscriptions is not None:
        extra += ["--subscriptions", str(options.subscriptions)]
    rows = []
    for nodes in options.nodes:
        print(f"{nodes} nodes …", file=sys.stderr, flush=True)
        rows.append(measure(nodes, extra))
        if not options.json:
            print(
                f"{nodes:>6} nodes  {rows[-1]['subscriptions']:>6} subscriptions  "
                f"{rows[-1]['cpu_s']:>8.1f} CPU s for {rows[-1]['simulated_s']:.0f} s simulated  "
                f"{rows[-1]['steps_per_second']:>8,} steps/s  "
                f"{rows[-1]['bytes_per_node']:>10,} bytes/node"
            )
    if options.json:
        print(json.dumps(rows, indent=2))
    return 1 if any(row["violations"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
