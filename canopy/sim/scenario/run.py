"""Runs a scenario: grow the overlay, subscribe, publish while faults happen, wait, check.

The whole run is a function of the scenario and the code, so `replay_command` suffices to repeat a
failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from random import Random

import msgspec

from canopy.sim.checks import Violation
from canopy.sim.checks.cluster_logs import check_voters
from canopy.sim.checks.failure_report import LAST, last_records
from canopy.sim.checks.node_state import Watch, check_ring, check_routes, check_trees, led
from canopy.sim.checks.oracle import GRACE
from canopy.sim.checks.ownership import check_arcs, check_chord, check_maps, one_ring
from canopy.sim.checks.trace_rules import (
    check_contents,
    check_copies,
    check_counting,
    check_paths,
    check_walks,
)
from canopy.sim.scenario.fault_injector import FaultInjector
from canopy.sim.scenario.range_load import PaperWorkload
from canopy.sim.scenario.result import Result, summarise_run
from canopy.sim.scenario.scenario import ClientAction, Fault, FaultPhase, Scenario
from canopy.sim.scenario.workload import Workload
from canopy.sim.world.clients import Division, SimulatedSubscription
from canopy.sim.world.cost import collector_at_rest
from canopy.sim.world.driver import NodeBuilder
from canopy.sim.world.world import World
from canopy.traces.writer import OpenFile
from matching import Value, compile_selector
from overlay.client import LEVELS
from overlay.links.events import Codec

READY_WITHIN = 120.0
"""Virtual seconds within which all nodes have to be ready, and all subscriptions acknowledged."""

QUIET_WITHIN = 300.0
"""Virtual seconds after the last event within which the overlay has to come to rest."""

RECOVERY = 25.0
"""Virtual seconds for recovery after the last fault: six until a silent node counts as dead, and
some for moving the trees that it hosted."""

ANEW = 15.0
"""Virtual seconds until everything is registered again after a healed partition
(docs/lab/recovery.md)."""

EAGER_TRIES = 30
"""The most events that are drawn until one matches a selector."""

EAGER_AFTER = 0.000_1
"""Seconds from a SUBACK to an event that tests it: less than any latency."""

SERVING_WITHIN = 60.0
"""Virtual seconds after the last fault within which a majority of its voters follows every primary
(P4)."""

PROBE_REST = 15.0
"""Virtual seconds before the probes, in which maps, members and pointers follow the last change (a
split's recruiting takes longest, 5 s and several rounds)."""

PHASE_REST = 10.0
"""Virtual seconds before a further phase: nodes that were started again have become voters."""

LOOKS, LOOK_AGAIN = 3, 5.0
"""Number of looks that must find a state wrong, and virtual seconds between them: longer than a
message and its retransmission (3 s) take."""

Progress = Callable[[str, float, float], None]
"""Called with the stage, the virtual time, and the completed share (0 to 1)."""


class ScenarioRun:
    """One run of a scenario, stage by stage."""

    def __init__(
        self,
        scenario: Scenario,
        codec: Codec,
        progress: Progress | None = None,
        traces: OpenFile | None = None,
        build: NodeBuilder | None = None,
    ) -> None:
        self.scenario = scenario
        self.world = World(scenario.seed, codec, scenario.settings, build=build, traces=traces)
        if scenario.keys:
            self.world.roles = {}
        self.world.network.conditions = scenario.network
        self.world.disk_conditions = scenario.disk
        self.world.processor = scenario.processor
        self.violations: list[Violation] = []
        self.grown_at = 0.0
        """When all first nodes were ready: the start of a timeline."""
        self.faults_at = 0.0
        """When the first event is published: the start of the faults' times."""
        self.later_faults: list[Fault] = []
        """The faults of later phases with what is done before each, in seconds after the first
        event."""
        self._named: dict[str, SimulatedSubscription] = {}  # of the timeline
        self._progress = progress or (lambda stage, time, share: None)
        self._watch: Watch | None = None
        self._quiet_since: int | None = None  # which record the probes begin with
        self._rng: Random = self.world.generator("run")
        self.population = FaultInjector(
            self.world, self._rng, scenario.clocks, scenario.regions, scenario.tiered
        )
        drawn = self.world.generator("workload")
        self.workload: Workload | PaperWorkload = Workload(drawn, scenario.shape)
        if scenario.load is not None:
            self.workload = PaperWorkload(drawn, scenario.load)
        if scenario.eager:
            self.world.clients.on_suback = self._eager

    def result(self, *, check_state: bool = True) -> Result:
        """Run all stages, and return the results."""
        with collector_at_rest():
            if check_state:
                self._watch = Watch(self.world)
            self.grow()
            self.subscribe()
            self.publish(FaultPhase(self.scenario.faults, self.scenario.one_within))
            self.rest()
            for phase in self.scenario.phases:
                self.recover(check_state=check_state)
                self.publish(phase, again=True)
                self.rest()
            if check_state:
                self.lead()
            if self.scenario.probes:
                self.probe()
            return self.judge(check_state=check_state)

    # --- stages ---

    def grow(self) -> None:
        """Start the nodes: node 0 founds; the others know it and one other, except those that are
        apart."""
        world, scenario = self.world, self.scenario
        for number in range(scenario.nodes):
            self._report_progress("grow", number / scenario.nodes)
            self.population.join(number >= scenario.nodes - scenario.apart)
            world.run(scenario.join_interval)
        self._need(READY_WITHIN, world.ready, lambda: f"ready: {self._not_ready()} are not")
        self.grown_at = world.now
        actions = sorted(self.scenario.timeline, key=lambda action: action.at)
        for (at, _, together), found in groupby(actions, key=_turn):
            for group in (list(found),) if together else ([action] for action in found):
                world.at(self.grown_at + at, self._act, group)

    def subscribe(self) -> None:
        """Make all first subscriptions, and wait for their acknowledgements."""
        world = self.world
        first, names = self.scenario.first_subscriptions, self.population.names
        if isinstance(first, int):
            for number in range(first):
                self._report_progress("subscribe", number / first)
                self._subscribe_one(number)
                world.run(self.scenario.subscribe_interval)
        else:
            for number, wanted in enumerate(first):
                node = number % len(names) if wanted.node is None else wanted.node
                world.subscribe(names[node], wanted.where, wanted.name)
        self._need(READY_WITHIN, world.acknowledged, lambda: "acknowledged: some subscriptions")
        world.run(self.scenario.rest)

    def recover(self, *, check_state: bool = True) -> None:
        """Before a further phase: links, networks and nodes work again, and as many subscriptions
        are there as at first."""
        world, scenario = self.world, self.scenario
        for fault in (
            Fault(0.0, "heal"),
            Fault(0.0, "resume"),
            Fault(0.0, "network", network=scenario.network),
            Fault(0.0, "restart"),
        ):
            self._inject(fault)
        self._need(READY_WITHIN, world.ready, lambda: f"ready again: {self._not_ready()} are not")
        if check_state:
            self.lead()
        wanted = scenario.first_subscriptions
        wanted = wanted if isinstance(wanted, int) else len(wanted)
        for _ in range(wanted - len(self._lasting())):
            self._subscribe_one(len(world.clients.subscriptions))
            world.run(scenario.subscribe_interval)
        self._need(READY_WITHIN, world.acknowledged, lambda: "acknowledged: some subscriptions")
        world.run(max(PHASE_REST, scenario.rest))

    def publish(self, phase: FaultPhase, *, again: bool = False) -> None:
        """Publish events at a steady rate from all nodes in turn, while the faults of a phase
        happen; `again`: of a further phase."""
        world, scenario = self.world, self.scenario
        begin = world.now
        if not again:
            self.faults_at = begin
        for fault in phase.faults:
            world.at(begin + fault.at, self._inject if again else self.population.inject, fault)
        self._divide(begin, phase)
        events = scenario.events
        count = events if isinstance(events, int) else len(events)
        self._plan_late(begin, count / scenario.rate)
        self._publish_all(events, "publish")
        last = max((fault.at for fault in phase.faults), default=0.0)
        ends = (action.at for action in scenario.timeline)
        world.run_to(max(world.now, begin + last, self.grown_at + max(ends, default=0.0)))

    def rest(self) -> None:
        """Wait until nothing is under way."""
        self._report_progress("rest", 0.0)
        if self.scenario.fault_count:
            self.world.run(RECOVERY)
        if not self.world.settle(QUIET_WITHIN):
            pending = {
                name: self.world.status(name).pending
                for name in self.world.names()
                if self.world.status(name).pending
            }
            text = f"not at rest {QUIET_WITHIN:.0f} s after the last event; pending: {pending}"
            self.violations.append(Violation("unanswered", text))

    def lead(self) -> None:
        """Wait until every cluster has a primary that a majority of its voters follows."""
        self._need(SERVING_WITHIN, lambda: led(self.world), lambda: "led: some clusters")

    def probe(self) -> None:
        """Subscribe and publish once more in the quiet after the faults, when every loss is a
        violation: shows damage by the faults that the overlay did not repair."""
        world = self.world
        for name in self.population.serving():
            world.subscribe(name, self.workload.selector(), "probe")
        self._need(READY_WITHIN, world.acknowledged, lambda: "acknowledged: some probes")
        world.run(PROBE_REST)
        self._quiet_since = len(world.recorder.records)
        self._publish_all(self.scenario.probes, "probe")
        self.rest()

    def judge(self, *, check_state: bool = True) -> Result:
        """Check the deliveries against the oracle, and the state with all checks."""
        world = self.world
        self._report_progress("judge", 0.0)
        state = self._lasting_violations() if check_state else []
        for name, driver in world.drivers.items():
            if check_state and driver.node.counters.get("faults_contained"):
                state.append(Violation("fault", f"{name} has contained a fault of its own"))
        clusters = 0
        if check_state:
            clusters = sum(1 for name in world.names() if world.node(name).clusters.is_primary)
        return summarise_run(
            world, self.scenario, self.violations, state, clusters, real=check_state
        )

    # --- helpers ---

    def _inject(self, fault: Fault) -> None:
        """Inject a fault of a further phase now, and note when."""
        at = round(self.world.now - self.faults_at, 6)
        self.later_faults.append(msgspec.structs.replace(fault, at=at))
        self.population.inject(fault)

    def _divide(self, begin: float, phase: FaultPhase) -> None:
        """Note which nodes cannot be expected to reach each other, and when there has to be one
        ring again."""
        world, within = self.world, phase.one_within
        for fault in phase.faults:
            if fault.do in ("meet", "heal") and within:
                world.at(begin + fault.at, one_ring, world, self.violations, within)
        met = [fault.at for fault in phase.faults if fault.do == "meet"]
        if self.scenario.apart and begin == self.faults_at:
            sides = {n: at for at, names in enumerate(self.population.overlays) for n in names}
            until = begin + min(met) + within if met else float("inf")
            world.clients.divisions.append(Division(0.0, until, sides))
        cuts = [f.at for f in phase.faults if f.do == "partition" and f.groups]
        healed = [f.at for f in phase.faults if f.do == "heal"]
        if cuts and within:
            since = begin + min(cuts) - GRACE
            until = begin + max(healed, default=float("inf")) + within + ANEW
            world.clients.divisions.append(Division(since, until, {}, healed=True))

    def _publish_all(self, events: int | tuple[dict[str, Value | None], ...], stage: str) -> None:
        world, begin = self.world, self.world.now
        count = events if isinstance(events, int) else len(events)
        for number in range(count):
            self._report_progress(stage, number / count)
            attributes: Mapping[str, Value | None] = (
                self.workload.event() if isinstance(events, int) else events[number]
            )
            living = self.population.serving()[: self.scenario.publishers]
            if living:
                source = living[number % len(living)]
                world.publish(source, attributes, receipt=self.scenario.receipts)
            world.run_to(begin + (number + 1) / self.scenario.rate)

    def _lasting_violations(self) -> list[Violation]:
        """Return lasting violations of the state. Two nodes may disagree for a moment while a
        message is under way, such as the end of a dead subscriber's lease."""
        found = self._state_violations()
        for _ in range(LOOKS - 1):
            if found:
                self.world.run(LOOK_AGAIN)
                found = self._state_violations()
        return found

    def _state_violations(self) -> list[Violation]:
        world = self.world
        records = list(world.recorder.records)
        calm_since = 0.0 if self._watch is None else self._watch.calm_since
        found = [*check_arcs(world), *check_maps(world), *check_ring(world), *check_chord(world)]
        found += [*check_trees(world, calm_since), *check_routes(world), *check_voters(world)]
        found += [*check_walks(records, world.settings.walk.trace), *check_contents(records)]
        if world.settings.tree.routing == "counting":
            found += check_counting(world)
        if self._quiet_since is not None:
            found += check_paths(records, self._quiet_since)
            if world.settings.tree.routing == "pivot":
                quiet = records[self._quiet_since :]
                found += check_copies(quiet, world.settings.tree.fan_out)
        return [*found, *(() if self._watch is None else self._watch.violations.values())]

    def _eager(self, subscription: SimulatedSubscription) -> None:
        """Publish a matching event right after a SUBACK, which promises its delivery from that
        moment."""
        predicate = compile_selector(subscription.selector)
        for _ in range(EAGER_TRIES):
            event = self.workload.event()
            if predicate.matches(event):
                self.world.after(EAGER_AFTER, self._publish_elsewhere, subscription.node, event)
                return

    def _publish_elsewhere(self, node: str, event: Mapping[str, Value | None]) -> None:
        others = [name for name in self.population.serving() if name != node]
        if others:
            self.world.publish(self._rng.choice(others), event)

    def _act(self, actions: list[ClientAction]) -> None:
        """Carry out the actions of a client of a serving node. Several at once are publications."""
        action, node = actions[0], self.population.names[actions[0].node]
        if node not in self.population.serving():
            return
        if action.publish is not None:
            self.world.publish(node, *(m.publish for m in actions if m.publish is not None))
        elif action.subscribe:
            level = action.level
            found = self.world.subscribe(node, action.subscribe, action.name, level=level)
            self._named[action.name] = found
        elif action.unsubscribe in self._named:
            self._end(self._named[action.unsubscribe])

    def _subscribe_one(self, number: int) -> None:
        living = self.population.serving()
        selector = self.workload.selector()
        if living:
            level = number % (LEVELS + 1)  # all of them, and none
            node = living[number % len(living)]
            self.world.subscribe(node, selector, f"s{number}", level=level)

    def _plan_late(self, begin: float, length: float) -> None:
        """Plan subscriptions that begin and end while events flow, spread over the time."""
        world, scenario = self.world, self.scenario
        first = self._lasting()
        known = len(world.clients.subscriptions)
        self._rng.shuffle(first)
        for number in range(scenario.late_subscriptions):
            at = begin + length * self._rng.random()
            world.at(at, self._subscribe_one, number + known)
        for subscription in first[: scenario.late_unsubscriptions]:
            world.at(begin + length * self._rng.random(), self._end, subscription)

    def _lasting(self) -> list[SimulatedSubscription]:
        """The subscriptions that have not ended and are not about to."""
        return [s for s in self.world.clients.subscriptions if s.ending is None and not s.failed]

    def _end(self, subscription: SimulatedSubscription) -> None:
        if subscription.ending is None and subscription.identity:
            self.world.unsubscribe(subscription)

    def _need(self, most: float, condition: Callable[[], bool], text: Callable[[], str]) -> None:
        if not self.world.run_until(condition, most):
            self.violations.append(
                Violation(
                    "unanswered", f"after {most:.0f} s not yet {text()} (at {self.world.now})"
                )
            )

    def _not_ready(self) -> list[str]:
        return [name for name in self.world.names() if not self.world.node(name).ready]

    def _report_progress(self, stage: str, share: float) -> None:
        self._progress(stage, self.world.now, share)


def _turn(action: ClientAction) -> tuple[float, int, bool]:
    """Return the key of actions that may be one command: publications of one node at one time."""
    return action.at, action.node, action.publish is not None


# A scenario's verdict: what was wrong in it, and what happened. An exception counts as wrong.


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
    """Run it to its end, or to an exception of a node, which is a violation."""
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


def judge_scenario(scenario: Scenario, codec: Codec) -> Verdict:
    """Run a scenario to its end, and return its verdict."""
    return judge_run(ScenarioRun(scenario, codec))


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_qualname}, line {trace.tb_lineno}"
