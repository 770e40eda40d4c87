"""How often an owner acts because hosts are busy (C6)."""

from __future__ import annotations

from overlay.upper_tree.owner.constants import GROWN, RELIEF_LEAST, RELIEF_MOST


class Relief:
    """Soon where the load has grown, and less and less often where it keeps hosts busy whatever is
    done, as where they share one machine. Times are the Port's seconds."""

    def __init__(self) -> None:
        self._at = float("-inf")  # when something was done last, …
        self._load = 0.0  # … for what load, …
        self._pause = RELIEF_LEAST  # … and for how long that is to do

    def claim(self, load: float, is_new: bool, now: float) -> bool:
        """Whether to act now, for this load in shares of a host's time. `is_new`: it is another
        load than before, though it may have as much."""
        if now > self._at + RELIEF_MOST:
            self._pause = RELIEF_LEAST
        elif is_new or load > self._load * GROWN:
            self._pause = max(RELIEF_LEAST, self._pause / 4)
        if now < self._at + self._pause:
            return False
        self._at, self._load = now, load
        self._pause = min(2 * self._pause, RELIEF_MOST)
        return True
