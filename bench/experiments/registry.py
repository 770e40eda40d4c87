"""All experiments of `python -m bench.experiments`. `bench.papers` and docs/lab name them."""

from __future__ import annotations

from typing import Any, Final

from bench.experiments.figures.experiment import FIGURES
from bench.experiments.frame import Experiment
from bench.experiments.health.experiment import HEALTH
from bench.experiments.liars.experiment import LIARS
from bench.experiments.mass_failure import FAILURE
from bench.experiments.recovery.experiment import RECOVERY
from bench.experiments.regions import REGIONS
from bench.experiments.revocation import REVOKE
from bench.experiments.scaling.experiment import SCALING
from bench.experiments.timeliness.experiment import TIMELINESS

EXPERIMENTS: Final[tuple[Experiment[Any, Any], ...]] = (
    *(FAILURE, HEALTH, LIARS, RECOVERY, REGIONS, REVOKE, SCALING, TIMELINESS),
    *FIGURES,
)
