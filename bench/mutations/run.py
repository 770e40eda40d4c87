"""The `canopy` command with a fault planted first.

python -m bench.mutations.run walk-ignores-trace sim soak --seeds 40
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import canopy.sim.soak.soak  # noqa: F401  imports all that a fault replaces
from bench.mutations.planted import FAULTS, plant
from canopy.cli.main import main as canopy_main


def main(arguments: Sequence[str]) -> None:
    """Plant the fault that the first argument names; the rest is `canopy`'s."""
    if not arguments or arguments[0] not in FAULTS:
        sys.exit("the first argument names a fault: " + ", ".join(FAULTS))
    plant(arguments[0])
    sys.argv = ["canopy", *arguments[1:]]
    canopy_main()


if __name__ == "__main__":
    main(sys.argv[1:])
