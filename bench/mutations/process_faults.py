"""Faults in the process around a node: its control socket, its data folder, its counters."""

from __future__ import annotations

import trio

from bench.mutations.planting import fault, replace
from canopy.wire.control.server import ControlServer
from node import Node
from overlay.incidents import IncidentLog
from overlay.links.events import LinkDown

LOSS_TEST = (
    "tests/overlay/test_overlay_loss_counters.py",
    "test_links_that_break_without_a_loss_leave_every_loss_counter_at_zero",
)


@fault(
    "clients: bounded",
    "tests/canopy/wire/control/test_wire_programs.py",
    "test_one_program_too_many_hears_why_and_those_before_it_are_served",
)
def program_refused_in_silence() -> None:
    """A node closes the connection of one program too many without saying why."""

    async def _refuse(self: ControlServer, stream: trio.SocketStream) -> None:
        self.refused += 1
        await trio.aclose_forcefully(stream)

    replace(ControlServer._refuse, _refuse)


@fault("counters", *LOSS_TEST)
def unacknowledged_counts_as_lost() -> None:
    """A node counts deliveries as lost that a broken link left unacknowledged."""
    original = Node._on_link_down

    def _on_link_down(self: Node, event: LinkDown) -> None:
        original(self, event)
        self.count("deliveries_lost", sum(message.data_units() for message in event.lost))

    replace(original, _on_link_down)


@fault("counters", *LOSS_TEST)
def incident_with_each_dial() -> None:
    """A node notes an incident with each attempt to reach a peer whose link is down."""
    original = IncidentLog.on_link_down

    def on_link_down(self: IncidentLog, event: LinkDown) -> None:
        self._down.pop(event.peer.id, None)
        original(self, event)

    replace(original, on_link_down)
