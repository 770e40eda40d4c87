"""A smaller scenario with the same fault (delta debugging: Zeller and Hildebrandt, "Simplifying and
isolating failure-inducing input", IEEE TSE 2002).

Theory of operation. A failing scenario is changed in one place at a time, so that less happens in
it: fewer nodes, events, subscriptions, faults, settings at their defaults. A change is kept if a
violation of the same kind remains. Whole stages come first, since a smaller scenario makes all
further tries cheaper. When none of that helps any longer, the clients' actions are written down one
by one (`Scenario.timeline`), and lists of actions and faults are thinned out: halves first, then
smaller pieces. Each try is a whole run, so the caller decides when to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from canopy.sim.checks import Violation
from canopy.sim.checks.failure_report import explainable_first, trace_violation
from canopy.sim.scenario.run import ScenarioRun, Verdict, judge_run
from canopy.sim.scenario.scenario import (
    ClientAction,
    Fault,
    FaultPhase,
    Scenario,
    ScenarioError,
    check_nodes,
)
from canopy.sim.scenario.workload import WorkloadShape
from canopy.sim.world.disk import DiskConditions
from canopy.sim.world.network import Conditions
from overlay.links.events import Codec
from overlay.settings import Settings

replace = msgspec.structs.replace

MOST_SINGLE = 12
"""The most nodes that are removed one at a time; in a large overlay, only the last ones."""


def signature(violation: Violation) -> str:
    """Return the part of a violation that must stay the same: the checker, and for an exception its
    type and place."""
    text = violation.text
    if violation.kind == "exception":
        return f"{text.split(':')[0]} {text.rpartition('(')[2].partition(')')[0]}"
    if violation.kind == "unanswered":  # not ready, no SUBACK, not at rest …
        return " ".join(text.split()[:2])
    return violation.kind


class Shrinker:
    """Makes the scenario of a bad verdict smaller."""

    def __init__(self, verdict: Verdict, codec: Codec, more: Callable[[], bool]) -> None:
        """`more`: returns whether there is time for another run."""
        self.best = verdict
        self.runs = 0
        self._wanted = signature(explainable_first(verdict.violations)[0])
        self._codec = codec
        self._more = more
        self._run: ScenarioRun | None = None  # of the best verdict, once there was one

    def shrink(self) -> Verdict:
        """Return the verdict of the smallest scenario found. Its first story is of a violation of
        the same kind."""
        while self._any(coarse(self.best.scenario)):
            pass
        if self._run is None:
            self._try(self.best.scenario)
        if self._run is not None and self._try(written_down(self._run)):
            self._thin("timeline")
        self._thin("faults")
        while self._any(fewer_nodes(self.best.scenario)):
            pass
        return self.best

    def _any(self, candidates: Iterator[Scenario]) -> bool:
        return any(self._try(candidate) for candidate in candidates)

    def _thin(self, field: str) -> None:
        """Remove pieces of a list, while that helps: halves, quarters, … single ones."""
        size = len(getattr(self.best.scenario, field))
        piece = max(1, size // 2)
        while size:
            start = 0
            while start < len(items := getattr(self.best.scenario, field)):
                less = (*items[:start], *items[start + piece :])
                if not self._try(replace(self.best.scenario, **{field: less})):
                    start += piece
                if not self._more():
                    return
            if piece == 1:
                return
            piece = max(1, piece // 2)

    def _try(self, candidate: Scenario) -> bool:
        """Run the candidate. If it fails in the same way it becomes the best. Returns whether it
        does."""
        if not self._more():
            return False
        try:
            check_nodes(candidate)
        except ScenarioError:
            return False
        self.runs += 1
        run = ScenarioRun(candidate, self._codec)
        verdict = judge_run(run)
        same = [found for found in verdict.violations if signature(found) == self._wanted]
        if not same:
            return False
        if verdict.result is not None:
            verdict = replace(
                verdict, stories=(trace_violation(run.world, same[0]), *verdict.stories)
            )
        self.best = verdict
        self._run = run
        return True


def coarse(scenario: Scenario) -> Iterator[Scenario]:
    """Yield simpler scenarios, each without or with half of one part, those that save most
    first."""
    phases = scenario.phases
    if len(phases) > 1:
        yield replace(scenario, phases=phases[: len(phases) // 2])
    for number in range(len(phases)):
        yield replace(scenario, phases=(*phases[:number], *phases[number + 1 :]))
    events, subscriptions = scenario.events, scenario.first_subscriptions
    if isinstance(events, int) and events > 1:
        yield replace(scenario, events=events // 2)
    if isinstance(subscriptions, int) and subscriptions > 1:
        yield replace(scenario, subscriptions=subscriptions // 2)
    yield from fewer_nodes(scenario)
    calm = {
        "probes": 0,
        "late_subscriptions": 0,
        "late_unsubscriptions": 0,
        "eager": False,
        "network": Conditions(),
        "disk": DiskConditions(),
        "settings": Settings(),
        "shape": WorkloadShape(),
        "faults": (),
    }
    for field, value in calm.items():
        if getattr(scenario, field) != value:
            yield replace(scenario, **{field: value})
    for group in Settings.__struct_fields__:
        if getattr(scenario.settings, group) != getattr(Settings(), group):
            settings = replace(scenario.settings, **{group: getattr(Settings(), group)})
            yield replace(scenario, settings=settings)
    for number in range(len(scenario.faults)):
        faults = (*scenario.faults[:number], *scenario.faults[number + 1 :])
        yield replace(scenario, faults=faults)
    if isinstance(events, int) and events > 4:
        yield replace(scenario, events=events - events // 4)
    if isinstance(subscriptions, int) and subscriptions > 4:
        yield replace(scenario, subscriptions=subscriptions - subscriptions // 4)


def fewer_nodes(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the scenario with half of the nodes, or without one of the last, and without the faults
    and actions of removed nodes."""
    half = scenario.nodes // 2
    if half > 1:
        yield without(scenario, range(scenario.nodes - half, scenario.nodes))
    for node in range(scenario.nodes - 1, max(-1, scenario.nodes - 1 - MOST_SINGLE), -1):
        if scenario.nodes > 1:
            yield without(scenario, range(node, node + 1))


def without(scenario: Scenario, gone: range) -> Scenario:
    """Return the scenario without the nodes `gone`; the others are renumbered."""

    def new(node: int) -> int:
        return node - len(gone) if node >= gone.stop else node

    def fault(old: Fault) -> Fault:
        groups = tuple(tuple(new(n) for n in group if n not in gone) for group in old.groups)
        return replace(old, nodes=tuple(new(n) for n in old.nodes), groups=groups)

    def kept(faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
        return tuple(fault(f) for f in faults if not any(node in gone for node in f.nodes))

    actions = (m for m in scenario.timeline if m.node not in gone)
    return replace(
        scenario,
        nodes=scenario.nodes - len(gone),
        faults=kept(scenario.faults),
        phases=tuple(replace(phase, faults=kept(phase.faults)) for phase in scenario.phases),
        timeline=tuple(replace(action, node=new(action.node)) for action in actions),
    )


def written_down(run: ScenarioRun) -> Scenario:
    """Return the scenario of a run with its clients' actions as a timeline."""
    scenario, clients = run.scenario, run.world.clients
    number = {name: place for place, name in enumerate(run.population.names)}
    actions = []
    for place, s in enumerate(clients.subscriptions):
        at, name = round(s.asked - run.grown_at, 6), f"s{place}"
        actions.append(ClientAction(at, number[s.node], subscribe=s.selector, name=name))
        if s.ending is not None and s.ending != s.ended:  # by its client, not with its node
            actions.append(
                ClientAction(round(s.ending - run.grown_at, 6), number[s.node], unsubscribe=name)
            )
    for p in clients.publications:
        at = round(p.published - run.grown_at, 6)
        actions.append(ClientAction(at, number[p.node], publish=p.attributes))
    waited = run.faults_at - run.grown_at
    faults = (*scenario.faults, *run.later_faults)
    within = max((phase.one_within for phase in scenario.phases), default=0.0)
    return replace(
        scenario,
        subscriptions=0,
        events=0,
        late_subscriptions=0,
        late_unsubscriptions=0,
        eager=False,
        probes=0,
        timeline=tuple(sorted(actions, key=lambda action: action.at)),
        faults=tuple(replace(fault, at=round(fault.at + waited, 6)) for fault in faults),
        one_within=max(scenario.one_within, within),
        phases=(),
    )


def non_defaults(scenario: Scenario) -> dict[str, object]:
    """Return the fields of a scenario that differ from the defaults, in YAML's types."""

    def differing(found: msgspec.Struct, usual: msgspec.Struct) -> dict[str, object]:
        facts: dict[str, object] = {}
        for name in found.__struct_fields__:
            value, default = getattr(found, name), getattr(usual, name)
            if value == default:
                continue
            if isinstance(value, msgspec.Struct) and isinstance(default, msgspec.Struct):
                facts[name] = differing(value, default)
            elif isinstance(value, tuple):
                facts[name] = [_short(item) for item in value]
            else:
                facts[name] = msgspec.to_builtins(value)
        return facts

    return {"nodes": scenario.nodes, "seed": scenario.seed, **differing(scenario, Scenario())}


def _short(item: object) -> object:
    if isinstance(item, FaultPhase):
        faults = [_short(fault) for fault in item.faults]
        return {"faults": faults, **({"one_within": item.one_within} if item.one_within else {})}
    if not isinstance(item, Fault | ClientAction):
        return msgspec.to_builtins(item)
    default = Fault(0, "heal") if isinstance(item, Fault) else ClientAction(0, 0)
    facts = {}
    for name in item.__struct_fields__:
        value = getattr(item, name)
        if name in ("at", "do", "node") or value != getattr(default, name):
            facts[name] = msgspec.to_builtins(value)
    return facts
