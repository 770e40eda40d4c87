"""Elections with and without the health file: the rows of `bench.experiments health`.

python -m bench.health.elections [--trials 10] [--seed 1]
"""

from __future__ import annotations

import json
import sys

import msgspec

from bench.command import SEED, parser
from bench.experiments.health.experiment import analyses, measure
from bench.experiments.health.trial import HealthPlan
from canopy.wire.transport.codec import WireCodec


def main() -> None:
    """Run the trials and print the rows."""
    options = parser(__doc__, trials=(10, "of each way"), seed=SEED).parse_args()
    plan = HealthPlan(trials=options.trials, seed=options.seed)
    with analyses() as make:
        found = measure(
            plan,
            WireCodec(),
            make,
            lambda stage, share: print(f"{share:4.0%}  {stage}", file=sys.stderr),
        )
    print(json.dumps(msgspec.to_builtins(found.rows), indent=1))


if __name__ == "__main__":
    main()
