"""Sessions whose connection was lost: what is kept for them, for how long, and how many (M5; no
IO).

A *parked* session keeps its client's number, so that the node goes on with its subscriptions, and
what comes for them waits in the client's bounded queue (credit_window.py), without credit. It ends
when its time is over, or when too many are parked: the one that was parked first.
"""

from __future__ import annotations

import math

from canopy.wire.control.client_connection import ClientConnection


class ParkedSessions:
    """The clients without a connection, in the order in which they lost it. Times are seconds of
    one clock."""

    def __init__(self, kept_for: float, most: int) -> None:
        """`kept_for`: seconds until a session ends; `most`: how many are kept."""
        self.kept_for = kept_for
        self.most = most
        self._parked: dict[int, ClientConnection] = {}  # by number, the first one first

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def is_enabled(self) -> bool:
        """Whether sessions are kept at all."""
        return self.kept_for > 0 and self.most > 0

    def park(self, client: ClientConnection, now: float) -> None:
        """The client's connection is lost: keep its session."""
        client.park(now)
        self._parked[client.number] = client

    def remove(self, client: ClientConnection) -> None:
        """The client is connected again."""
        self._parked.pop(client.number, None)

    def take_due(self, now: float) -> list[ClientConnection]:
        """Take the sessions that are over: their time is, or there is no room for them, or for
        what comes for them."""
        due = list(self._parked.values())[: max(0, len(self._parked) - self.most)]
        due += [one for one in self._parked.values() if one not in due and self._end_of(one) <= now]
        for each in due:
            del self._parked[each.number]
        return due

    def next_due(self) -> float | None:
        """When the next session is over; None if none is parked."""
        if len(self._parked) > self.most:
            return -math.inf
        return min(map(self._end_of, self._parked.values()), default=None)

    def _end_of(self, client: ClientConnection) -> float:
        assert client.parked_at is not None, "it is connected"
        return client.parked_at if client.is_overfull else client.parked_at + self.kept_for
