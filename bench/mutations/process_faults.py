"""Faults in the process around a node: its control socket, its data folder, its counters."""

from __future__ import annotations

import trio

from bench.mutations.planting import fault, replace
from canopy.wire.control.server import ControlServer


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
