"""Faults in what nodes and their analysis say of load and health, and in what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import trio

from bench.mutations.planting import fault, replace
from canopy.traces.analysis.load import spread_of
from canopy.wire.directory.discovery import Discovery
from overlay.machine import Peer


@fault(
    "T7",
    "tests/canopy/traces/test_traces_analysis.py",
    "test_mean_variance_and_deviation_are_of_what_the_tables_have",
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

    async def start(self: Discovery, nursery: trio.Nursery, me: Peer) -> None:
        await original(self, nursery, me)
        self.publish(f"node:{me.id}", (me.address,))

    replace(original, start)
