"""All experiments of `python -m bench.experiments`. `bench.papers` and docs/lab name them."""

from __future__ import annotations

from typing import Any, Final

from bench.experiments.backlog import BACKLOG
from bench.experiments.figures.experiment import FIGURES
from bench.experiments.frame import Experiment
from bench.experiments.health.experiment import HEALTH
from bench.experiments.scaling import SCALING
from bench.experiments.timeliness import TIMELINESS

EXPERIMENTS: Final[tuple[Experiment[Any], ...]] = (BACKLOG, FIGURES, HEALTH, SCALING, TIMELINESS)
