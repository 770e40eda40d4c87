"""The whole experiment: four modes over rates, and over numbers of matching subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.experiments.running import Progress, no_progress
from bench.experiments.timeliness.plan import MODES, TimelinessPlan
from bench.experiments.timeliness.point import ModeOverlay
from bench.experiments.timeliness.report import Curve, Point, Series, Timeliness
from canopy.sim.world.cost import collector_at_rest
from overlay.links.events import Codec


def experiment(
    plan: TimelinessPlan,
    seed: int,
    codec: Codec,
    progress: Progress = no_progress,
) -> Timeliness:
    """Both series (one without values is left out). All modes get the same events at the same
    times."""
    run = TimelinessExperiment(plan, seed, codec, progress)
    with collector_at_rest():
        series = [run.over_rates(), run.over_matching()]
    return Timeliness(seed, plan, tuple(each for each in series if each.x))


class TimelinessExperiment:
    """Measures the points of both series, each mode in an overlay of its own."""

    def __init__(self, plan: TimelinessPlan, seed: int, codec: Codec, progress: Progress) -> None:
        self.plan = plan
        self.seed = seed
        self.codec = codec
        self._progress = progress
        self._total = len(MODES) * (len(plan.rates) + len(plan.matching))
        self._done = 0

    def over_rates(self) -> Series:
        """The series in which the same subscriptions get more and more events per second."""
        rates = tuple(sorted(self.plan.rates))

        def points(stage: ModeOverlay) -> Iterator[Point]:
            stage.grow(self.plan.matched)
            stage.subscribe(self.plan.matched)
            for rate in rates:
                self._report_progress(stage, rate)
                yield stage.measure(rate)

        return Series("rate", rates, self._curves(points) if rates else ())

    def over_matching(self) -> Series:
        """The series in which events at the same rate match more and more subscriptions."""
        counts = tuple(sorted(self.plan.matching))

        def points(stage: ModeOverlay) -> Iterator[Point]:
            stage.grow(counts[-1])
            for matching in counts:
                stage.subscribe(matching)
                self._report_progress(stage, self.plan.rate)
                yield stage.measure(self.plan.rate)

        return Series("matching", counts, self._curves(points) if counts else ())

    def _curves(self, points: Callable[[ModeOverlay], Iterator[Point]]) -> tuple[Curve, ...]:
        return tuple(
            Curve(mode.name, tuple(points(ModeOverlay(mode, self.plan, self.seed, self.codec))))
            for mode in MODES
        )

    def _report_progress(self, stage: ModeOverlay, rate: int) -> None:
        text = f"{stage.mode.name}, {rate} events/s, {stage.matching} matches"
        self._progress(text, self._done / self._total)
        self._done += 1
