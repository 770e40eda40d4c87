"""Members that lie, over several seeds: what views hold, and what is still delivered.

    python -m bench.simulator.liars --attack poisoning --nodes 40 --newcomers 5 --view 6 --json

`bench.experiments liars` with one seed after the other, a fifth of the nodes liars, and what nodes
with keys do by default. *Fair* is what a perfect sample of all ids would have: liars among all
other nodes, newcomers included.
"""

from __future__ import annotations

import argparse
import json
from statistics import fmean, pstdev
from typing import Any, Final

from msgspec.structs import replace

from bench.experiments.liars.defences import ALL
from bench.experiments.liars.trial import LiarsPlan, Outcome, Trial
from canopy.wire.transport.codec import WireCodec
from harness.attacks import ATTACKS

SHARE: Final = 0.2


def summed_up(plan: LiarsPlan, found: list[Outcome]) -> dict[str, Any]:
    """One row for all seeds."""
    shares = [each.liars_in_views for each in found]
    late = [each.newcomers_delivered for each in found]
    return {
        "attack": plan.attack,
        "nodes": plan.nodes,
        "newcomers": plan.newcomers,
        "view": plan.view,
        "malicious": SHARE,
        "seeds": len(found),
        "fair": round(round(SHARE * plan.nodes) / (plan.nodes + plan.newcomers - 1), 4),
        "in_views": round(fmean(shares), 4),
        "in_views_sd": round(pstdev(shares), 4),
        "in_views_least": min(shares),
        "in_views_most": max(shares),
        "isolated": max(look.isolated for each in found for look in each.looks[1:]),
        "delivered_least": min(each.delivered for each in found),
        "newcomers_least": min((each for each in late if each is not None), default=None),
    }


def main() -> None:
    """Run one trial, and print its row as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--attack", choices=sorted(set(ATTACKS) - {"voter"}), default="poisoning")
    parser.add_argument("--nodes", type=int, default=40, help="liars included, newcomers not")
    parser.add_argument("--newcomers", type=int, default=5, help="honest nodes that come later")
    parser.add_argument("--view", type=int, default=6, help="neighbours of a node")
    parser.add_argument("--trees", type=int, default=10, help="attributes")
    parser.add_argument("--lies", type=float, default=20.0, help="seconds before events")
    parser.add_argument("--events", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="as JSON")
    asked = parser.parse_args()
    plan = LiarsPlan(
        attack=asked.attack,
        nodes=asked.nodes,
        newcomers=asked.newcomers,
        view=asked.view,
        trees=asked.trees,
        lies=asked.lies,
        events=asked.events,
    )
    codec, found = WireCodec(), []
    for seed in range(1, asked.seeds + 1):
        found.append(Trial(replace(plan, seed=seed), ALL, SHARE, codec).run())
    row = summed_up(plan, found)
    print(json.dumps(row) if asked.json else row)


if __name__ == "__main__":
    main()
