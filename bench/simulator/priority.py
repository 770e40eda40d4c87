"""What priority does to the plain mean where hosts are chosen, over several seeds (P6, P7).

    python -m bench.simulator.priority --seeds 8 --json

The paper's measure is the plain mean of all latencies. Where hosts are 93 % busy it differs from
seed to seed by as much as a half, so that one seed says nothing of a mode. A row for each seed:
*choice only* and *both* of `bench.experiments timeliness` under the same events, three hosts that
take 0.7 ms for one, 4,000 a second.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from bench.experiments.timeliness.plan import MODES, TimelinessPlan
from bench.experiments.timeliness.point import ModeOverlay
from canopy.sim.world.cost import collector_at_rest
from canopy.sim.world.processor import Processor
from canopy.wire.transport.codec import WireCodec

RATE: Final = 4_000

PLAN: Final = TimelinessPlan(
    rates=(RATE,),
    matching=(),
    matched=3,
    types=1,
    events=3_000,
    processor=Processor(per_input=0.000_01, per_match=0.000_6, per_recipient=0.000_033),
)

COMPARED: Final = {"choice": "choice only", "both": "both"}
"""Name in a row by the mode's name."""


def row(seed: int) -> dict[str, Any]:
    """What both modes take with this seed, in milliseconds."""
    found: dict[str, Any] = {"seed": seed, "rate": RATE, "events": PLAN.events}
    for name, wanted in COMPARED.items():
        (mode,) = [mode for mode in MODES if mode.name == wanted]
        stage = ModeOverlay(mode, replace(PLAN, seed=seed), WireCodec())
        stage.grow(PLAN.matched)
        stage.subscribe(PLAN.matched)
        point = stage.measure(RATE)
        found |= {f"{name}_ms": point.all.mean_ms, f"{name}_urgency_ms": point.urgency_ms}
        found |= {f"{name}_p99_ms": point.all.p99_ms, f"{name}_served": point.served}
    return found


def mean_of(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A row with the means over all seeds."""
    names = [name for name in rows[0] if name.endswith("_ms")]
    return {
        "seed": "mean",
        **{name: round(sum(each[name] for each in rows) / len(rows), 4) for name in names},
    }


def main(args: Sequence[str] | None = None) -> int:
    """Measure so many seeds and print a row for each, and their mean."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.simulator.priority",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    given = parser.parse_args(args)
    rows: list[dict[str, Any]] = []
    with collector_at_rest():
        for seed in range(1, given.seeds + 1):
            rows.append(row(seed))
            print(rows[-1], file=sys.stderr, flush=True)
    rows.append(mean_of(rows))
    print(json.dumps(rows) if given.json else rows[-1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
