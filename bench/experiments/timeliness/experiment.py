"""The timeliness experiment of the Phoenix paper (P6, P7): four modes over two kinds of loads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from bench.experiments.frame import Experiment, Panel, Picture, Table
from bench.experiments.running import Progress, no_progress
from bench.experiments.timeliness.plan import MODES, TimelinessPlan
from bench.experiments.timeliness.point import ModeOverlay, Point
from canopy.sim.world.cost import collector_at_rest
from overlay.links.events import Codec


class Curve(msgspec.Struct, frozen=True):
    """One mode over all loads of a series."""

    mode: str
    points: tuple[Point, ...]


class Series(msgspec.Struct, frozen=True):
    """The results of all modes over the values of what is varied."""

    over: str  # rate or matching
    x: tuple[int, ...]
    curves: tuple[Curve, ...]


class Timeliness(msgspec.Struct, frozen=True):
    """The results of all series of an experiment, a point per load."""

    parameters: TimelinessPlan
    series: tuple[Series, ...]


def measure(plan: TimelinessPlan, codec: Codec, progress: Progress = no_progress) -> Timeliness:
    """Both series (one without values is left out). All modes get the same events at the same
    times."""
    run = TimelinessRun(plan, codec, progress)
    with collector_at_rest():
        series = [run.over_rates(), run.over_matching()]
    return Timeliness(plan, tuple(each for each in series if each.x))


class TimelinessRun:
    """Measures the points of both series, each mode in an overlay of its own."""

    def __init__(self, plan: TimelinessPlan, codec: Codec, progress: Progress) -> None:
        self.plan = plan
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
            Curve(mode.name, tuple(points(ModeOverlay(mode, self.plan, self.codec))))
            for mode in MODES
        )

    def _report_progress(self, stage: ModeOverlay, rate: int) -> None:
        text = f"{stage.mode.name}, {rate} events/s, {stage.matching} matches"
        self._progress(text, self._done / self._total)
        self._done += 1


def panel(over: str, label: str, y: str, y_label: str) -> Panel:
    """One value of all modes over one kind of load."""
    return Panel(
        over,
        y,
        "mode",
        label,
        y_label,
        each=("series", "curves", "points"),
        where={"over": over},
        y_log=True,
    )


TIMELINESS = Experiment(
    "timeliness",
    "Run the timeliness experiment of the Phoenix paper.",
    """Four modes (neither, priority only, choice only, both) over rates of events, and over numbers
    of matching subscriptions, with the product's own nodes. docs/lab/timeliness.md has the results,
    and the choices where the paper says nothing or cannot be read. Takes some minutes.""",
    TimelinessPlan(),
    measure,
    tables=(
        Table(
            "rate ,: events per second | matching: matches | mode: mode"
            " | urgency_ms .2f: by urgency | all.mean_ms .2f: mean | all.p99_ms .2f: p99"
            " | levels.0.mean_ms .2f: level 1, mean | levels.0.p99_ms .2f: p99"
            " | levels.4.mean_ms .2f: level 5, mean | levels.4.p99_ms .2f: p99",
            each=("series", "curves", "points"),
            by="over",
            title="latency in ms over {over}",
        ),
    ),
    picture=Picture(
        tuple(
            tuple(
                panel(over, label, y, y_label)
                for over, label in (
                    ("rate", "events per second"),
                    ("matching", "subscriptions that an event matches"),
                )
            )
            for y, y_label in (
                ("urgency_ms", "mean latency by urgency, ms"),
                ("levels.0.p99_ms", "99 % of level 1 within, ms"),
            )
        ),
        "{parameters.replicas} hosts, {parameters.publishers} publishers; left: "
        "{parameters.matched} matching subscriptions, right: {parameters.rate:,} events per "
        "second; seed {parameters.seed}",
        (10.0, 7.2),
    ),
)
