"""Faults in what nodes and their analysis say of load and health, and in what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import trio

from bench.mutations.planting import fault, replace
from canopy.traces.analysis.load import spread_of
from canopy.wire.directory.discovery import Discovery
from overlay.chord.cluster.election import Election
from overlay.chord.messages import Cluster
from overlay.health import Health
from overlay.machine import NodeId, Peer


@fault(
    "T7",
    "tests/canopy/traces/test_traces_load_spread.py",
    "test_each_kind_of_work_has_a_spread_of_its_own",
)
def spread_of_the_messages_only() -> None:
    """The report takes the spread of the messages sent for that of every kind of work."""

    def spread(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
        found = original(rows)
        return dict.fromkeys(found, found["data_messages"])

    original = spread_of
    replace(spread_of, spread)


@fault(
    "T5",
    "tests/canopy/wire/directory/test_wire_directory.py",
    "test_only_what_some_node_looks_up_is_announced",
)
def node_announces_itself() -> None:
    """A node writes an entry of its own into the directory, which none reads."""
    original = Discovery.start

    async def start(
        self: Discovery, nursery: trio.Nursery, me: Peer, bound: tuple[str, int] | None = None
    ) -> None:
        await original(self, nursery, me, bound)
        self.publish(f"node:{me.id}", (me.address,))

    replace(original, start)


@fault(
    "T6",
    "tests/chord/membership/test_chord_health.py",
    "test_a_sub_healthy_standby_leads_only_after_the_healthy",
)
def candidates_by_rank_only() -> None:
    """Candidates have their turns by rank, whatever the health file says."""

    def turn(self: Election, cluster: Cluster) -> int:
        return max(0, [peer.id for peer in cluster.members()].index(self.port.me.id) - 1)

    replace(Election._turn, turn)


@fault(
    "T6",
    "tests/bench/experiments/test_sim_health.py",
    "test_a_sick_node_that_judges_itself_is_not_elected",
)
def nodes_judge_nothing() -> None:
    """A node measures itself and concludes nothing from it."""

    def judge(self: Health, me: NodeId, measured: Mapping[str, float]) -> None:
        self.is_judged = True

    replace(Health.judge, judge)
