"""How long neighbours take to answer, from the exchanges of views."""

from __future__ import annotations

from collections import deque

from overlay.lower_random.constants import ROUND_TRIP_QUANTILE, ROUND_TRIPS_KEPT


class RoundTrips:
    """The last round trips that were measured, in seconds.

    An upper quantile of them is used and no mean: ways of two regions differ by a hundred times,
    and a single exchange with a neighbour that stood still takes as long as that stood still.
    """

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=ROUND_TRIPS_KEPT)

    def measured(self, seconds: float) -> None:
        """An exchange took so long."""
        self._last.append(seconds)

    def estimate(self) -> float | None:
        """What an exchange takes, if it is one of the slower ones; None: nothing was measured."""
        if not self._last:
            return None
        ordered = sorted(self._last)
        return ordered[int(ROUND_TRIP_QUANTILE * len(ordered))]
