"""A scenario's verdict: what was wrong in it, and what happened. An exception counts as wrong."""

from __future__ import annotations

import msgspec

from canopy.sim.checks.failure_report import LAST, last_records
from canopy.sim.checks.violation import Violation
from canopy.sim.scenario.result import Result
from canopy.sim.scenario.run import Progress, ScenarioRun
from canopy.sim.scenario.scenario import Scenario
from canopy.traces.writer import OpenFile
from overlay.links.events import Codec


class Verdict(msgspec.Struct, frozen=True):
    """The result of a scenario, or the exception that ended it."""

    seed: int
    scenario: Scenario
    result: Result | None  # None: a node raised
    violations: tuple[Violation, ...]
    stories: tuple[tuple[str, ...], ...]  # the records that explain the first of them
    simulated_s: float

    @property
    def green(self) -> bool:
        """Whether there was neither a violation nor an exception."""
        return not self.violations


def judge_run(run: ScenarioRun) -> Verdict:
    """Run it to its end, or to the exception of a node: whatever one raises is a finding."""
    scenario = run.scenario
    try:
        result = run.result()
    except Exception as error:
        place = _place(error)
        text = f"{type(error).__name__}: {error} ({place}) at {run.world.now:.3f} s"
        story = (text, *last_records(run.world, LAST))
        return Verdict(
            scenario.seed, scenario, None, (Violation("exception", text),), (story,), run.world.now
        )
    return Verdict(
        scenario.seed, scenario, result, result.violations, result.stories, result.simulated_s
    )


def judge_scenario(
    scenario: Scenario,
    codec: Codec,
    progress: Progress | None = None,
    traces: OpenFile | None = None,
) -> Verdict:
    """Run a scenario to its end, and return its verdict."""
    return judge_run(ScenarioRun(scenario, codec, progress, traces))


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_qualname}, line {trace.tb_lineno}"
