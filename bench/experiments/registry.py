"""All experiments of `python -m bench.experiments`. `bench.papers` and docs/lab name them."""

from __future__ import annotations

from typing import Any, Final

from bench.experiments.backlog import BACKLOG
from bench.experiments.figures.experiment import FIGURES
from bench.experiments.frame import Experiment
from bench.experiments.health.experiment import HEALTH
from bench.experiments.liars import LIARS
from bench.experiments.lying_voter import VOTER
from bench.experiments.mass_failure import FAILURE
from bench.experiments.one_ring import ONE_RING
from bench.experiments.regions import REGIONS
from bench.experiments.revocation import REVOKE
from bench.experiments.scaling import SCALING
from bench.experiments.timeliness import TIMELINESS
from bench.experiments.walks import WALKS

EXPERIMENTS: Final[tuple[Experiment[Any], ...]] = (
    *(BACKLOG, FAILURE, FIGURES, HEALTH, LIARS, ONE_RING, REGIONS, REVOKE, SCALING),
    *(TIMELINESS, VOTER, WALKS),
)
