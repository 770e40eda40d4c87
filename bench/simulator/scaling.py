"""Rows of `bench.experiments scaling` for docs/lab: one per load and number of hosts, or the burst.

python -m bench.lab.record scaling -- python -m bench.simulator.scaling --hosts 1,2,4,8,16
python -m bench.lab.record scaling -- python -m bench.simulator.scaling --hosts 32,64 --one 300
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import msgspec

from bench.experiments.scaling.experiment import Scale
from bench.experiments.scaling.plan import ScalingPlan
from canopy.sim.world.cost import collector_at_rest
from canopy.wire.transport.codec import WireCodec


def main() -> None:
    """Print the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="1,2,4,8,16,32,64", help="numbers of hosts")
    parser.add_argument(
        "--load", choices=("one", "zipf", "value", "crowd"), default="one", help="which load"
    )
    parser.add_argument("--per-event", type=int, default=3, help="attributes of an event of zipf")
    parser.add_argument("--shares", default="", help="shares of linear to try, as 0.6,0.7")
    parser.add_argument("--one", default="", help="shares of one host's time to try, as 0.45,0.5")
    parser.add_argument("--burst", action="store_true", help="the burst instead")
    parser.add_argument("--burst-hosts", type=int, default=32, help="nodes of the burst")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    facts: dict[str, Any] = msgspec.to_builtins(ScalingPlan())
    facts["hosts"] = [int(each) for each in chosen.hosts.split(",")]
    facts["per_event"] = chosen.per_event
    facts["burst_hosts"] = chosen.burst_hosts
    for name, text in (("shares", chosen.shares), ("one_host", chosen.one)):
        if text:
            facts[name] = [float(each) for each in text.split(",")]
    facts["seed"] = chosen.seed
    plan = msgspec.convert(facts, ScalingPlan)

    def progress(stage: str, share: float) -> None:
        print(stage, file=sys.stderr, flush=True)

    run = Scale(plan, WireCodec(), progress)
    rows: list[dict[str, Any]]
    with collector_at_rest():
        if chosen.burst:
            burst = run.burst(chosen.load)
            what = "burst" if chosen.load == "one" else f"burst, {chosen.load}"
            rows = [{"load": what, "seed": chosen.seed, **msgspec.to_builtins(burst)}]
        else:
            what = chosen.load
            if chosen.load == "zipf":
                what += f", {plan.per_event} an event"
            points = [
                msgspec.to_builtins(p) for p in run.points(chosen.load) if p.hosts in plan.hosts
            ]
            rows = [{**point, "load": what, "seed": chosen.seed} for point in points]
    for row in rows:
        tried = row.pop("tried", ())
        if tried:
            row["settled_s"] = max(each["settled_s"] for each in tried)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
