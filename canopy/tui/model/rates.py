"""Events per second, smoothed, from exact counts."""

from __future__ import annotations

from canopy.tui.constants import RATE_WINDOW


class Rate:
    """An exponentially weighted average over about `RATE_WINDOW` seconds. Call `add` for each
    count, and `update` about once a second."""

    def __init__(self) -> None:
        self.total = 0
        self.per_second = 0.0
        self._fresh = 0
        self._since: float | None = None

    def add(self, count: int) -> None:
        """Count `count` more events."""
        self.total += count
        self._fresh += count

    def update(self, now: float) -> None:
        """Include the counts since the last update; `now` in monotonic seconds."""
        if self._since is None:
            self._since = now
            return
        elapsed = now - self._since
        if elapsed <= 0:
            return
        weight = min(1.0, elapsed / RATE_WINDOW)
        self.per_second += weight * (self._fresh / elapsed - self.per_second)
        if self.per_second < 0.05:  # would be shown as 0.0
            self.per_second = 0.0
        self._fresh = 0
        self._since = now


class Rates:
    """Rates of the node's counters, by name."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._at: float | None = None
        self.per_second: dict[str, float] = {}

    def update(self, totals: dict[str, int], now: float) -> dict[str, float]:
        """Return the rates since the last update; 0 for a total that has decreased (after a
        restart)."""
        elapsed = None if self._at is None else now - self._at
        if elapsed is not None and elapsed > 0:
            self.per_second = {
                name: max(0.0, (total - self._last.get(name, total)) / elapsed)
                for name, total in totals.items()
            }
        self._last = dict(totals)
        self._at = now
        return self.per_second


def show_rate(per_second: float) -> str:
    """Return a rate as text: ``12.3/s``, ``1,204/s``."""
    return f"{per_second:.1f}/s" if per_second < 100 else f"{per_second:,.0f}/s"
