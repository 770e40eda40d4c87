"""Compares this node's wall clock with those of its neighbours, for `canopy doctor`.

Nothing in the protocols rests on wall clocks; people compare the times of logs and events, and
certificates begin and end by them. A question and its answer bound how far two clocks are apart:
the answer was given at some moment between the two, so that the middle is wrong by half of the
round trip at most (Cristian 1989, Probabilistic clock synchronization, Distributed Computing 3).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from overlay.links.links import Links
from overlay.lower_random.messages import AskClock, ClockTold
from overlay.lower_random.view import View
from overlay.machine import Machine, NodeId, Peer, Port, Timer
from overlay.operator_commands import ClockOffset, Clocks, GetClocks

CLOCKS_MOST = 32
"""Neighbours that are asked for their clocks at a time; a view has 20 by default."""

CLOCK_TIMEOUT = 2.0
"""Seconds for which their answers are awaited: a person waits. Guess; to be measured by the round
trips of links where an overlay still works."""


class ClocksDue(Timer, frozen=True):
    """Neighbours have had time to say what their clocks show."""

    number: int


class ClockQuery(msgspec.Struct):
    """A program's question. `found` has an entry for each neighbour, in the order of the view."""

    client: int
    request: int
    asked: float  # monotonic seconds
    found: dict[NodeId, ClockOffset]


class ClockOffsets(Machine):
    """Asks neighbours for their wall clocks, and tells others this node's."""

    def __init__(
        self,
        port: Port,
        view: View,
        links: Links,
        wall: Callable[[], int],
    ) -> None:
        """`wall`: nanoseconds since 1970."""
        super().__init__(port)
        self._view = view
        self._links = links
        self._wall = wall
        self._queries: dict[int, ClockQuery] = {}
        self._number = 0

    def commands(self) -> dict[type, Callable[..., None]]:
        """Commands with the method that carries each out."""
        return {GetClocks: self.get_clocks}

    def get_clocks(self, client: int, command: GetClocks) -> None:
        """Ask the neighbours; the reply comes when all have answered, or in `CLOCK_TIMEOUT`."""
        self._number += 1
        query = ClockQuery(client, command.request, self.port.now, {})
        for peer in self._view.peers()[:CLOCKS_MOST]:
            known = self._links.understands(peer.id, AskClock.capability)
            state = "silent" if known else "older"
            query.found[peer.id] = ClockOffset(peer.id, peer.address, state)
            if known:
                self.port.send(peer, AskClock(self._number))
        self._queries[self._number] = query
        self.port.set_timer(CLOCK_TIMEOUT, ClocksDue(self._number))
        self._answer_if_complete(self._number)

    def on_ask_clock(self, sender: Peer, message: AskClock) -> None:
        """Tell a neighbour what this node's wall clock shows."""
        self.port.send(sender, ClockTold(message.number, self._wall() // 1_000))

    def on_clock_told(self, sender: Peer, message: ClockTold) -> None:
        """A neighbour's clock, as of half a round trip ago."""
        query = self._queries.get(message.number)
        known = None if query is None else query.found.get(sender.id)
        if query is None or known is None or known.state != "silent":
            return  # too late, or never asked
        round_trip = max(0.0, self.port.now - query.asked)
        offset = message.wall / 1e6 - self._wall() / 1e9 + round_trip / 2
        query.found[sender.id] = ClockOffset(
            sender.id, known.address, "answered", offset, round_trip
        )
        self._answer_if_complete(message.number)

    def on_clocks_due(self, timer: ClocksDue) -> None:
        """Answer with the offsets known so far."""
        self._answer(timer.number)

    def _answer_if_complete(self, number: int) -> None:
        if all(each.state != "silent" for each in self._queries[number].found.values()):
            self._answer(number)

    def _answer(self, number: int) -> None:
        query = self._queries.pop(number, None)
        if query is not None:
            self.port.cancel_timer(ClocksDue(number))
            self.port.reply(query.client, Clocks(query.request, tuple(query.found.values())))
