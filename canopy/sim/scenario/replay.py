"""Runs the contents of a trace folder again, in another configuration, and measures the cost.

Theory of operation. Subscriptions and events of the recorded run become the timeline of a scenario
without faults: the same clients' nodes (numbered in the order of their first record, modulo the
number of nodes), the same distances in time. Subscriptions that were acknowledged before the first
event are acknowledged before it again: the events begin SETTLE seconds after the last of those.

Events of one node within a millisecond are published together, as a program that pipes a file does.
"""

from __future__ import annotations

import msgspec

from canopy.sim.checks import Violation
from canopy.sim.scenario.recorded_run import Expense, RecordedRun, RunTally
from canopy.sim.scenario.run import Progress, ScenarioRun
from canopy.sim.scenario.scenario import ClientAction, Scenario
from overlay.links.events import Codec
from overlay.settings import Settings

SETTLE = 20.0
"""Virtual seconds between the last of the first subscriptions and the first event: a split takes 5
s and several rounds."""


class ReplayConfiguration(msgspec.Struct, frozen=True):
    """The nodes, routing and settings under which a recorded run is replayed."""

    name: str
    nodes: int
    settings: Settings
    seed: int = 1


def replay_scenario(recorded: RecordedRun, configuration: ReplayConfiguration) -> Scenario:
    """Return the recorded run as a scenario."""
    return Scenario(
        nodes=configuration.nodes,
        seed=configuration.seed,
        subscriptions=0,
        events=0,
        settings=configuration.settings,
        timeline=_timeline(recorded, configuration.nodes),
    )


def replay(
    recorded: RecordedRun,
    configuration: ReplayConfiguration,
    codec: Codec,
    progress: Progress | None = None,
) -> tuple[Expense, tuple[Violation, ...]]:
    """Run it. Returns the cost, and the violations."""
    run = ScenarioRun(replay_scenario(recorded, configuration), codec, progress)
    tally = RunTally()
    run.world.recorder.listen = tally.add
    result = run.result()
    expense = tally.expense(configuration.name, configuration.nodes, run.world.clients)
    return expense, result.violations


def _timeline(recorded: RecordedRun, nodes: int) -> tuple[ClientAction, ...]:
    clients = recorded.clients
    number = {node: place % nodes for place, node in enumerate(recorded.nodes)}
    events = clients.publications
    first = events[0].published
    early = [
        s for s in clients.subscriptions if s.acknowledged is not None and s.acknowledged < first
    ]
    begin = min((s.asked for s in early), default=first)
    settled = max((s.asked for s in early), default=first)
    shift = (settled - begin + SETTLE - first) if early else -first

    def when(time: float) -> float:
        return max(0.0, round(time + shift, 3))

    actions = []
    for place, s in enumerate(clients.subscriptions):
        name = f"s{place}"
        asked = round(s.asked - begin, 3) if s in early else when(s.asked)
        actions.append(
            ClientAction(asked, number[s.node], subscribe=s.selector, level=s.level, name=name)
        )
        if s.ended is not None:
            actions.append(ClientAction(when(s.ended), number[s.node], unsubscribe=name))
    for event in events:
        actions.append(
            ClientAction(when(event.published), number[event.node], publish=event.attributes)
        )
    return tuple(sorted(actions, key=lambda action: (action.at, action.node)))
