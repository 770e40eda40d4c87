"""A token bucket: how much may pass in a while, and how much at once."""

from __future__ import annotations


class Bucket:
    """Fills by `rate` per second up to `most`."""

    __slots__ = ("_at", "_left")

    def __init__(self) -> None:
        self._at = float("-inf")
        self._left = 0.0

    def take(self, wanted: float, rate: float, most: float, now: float) -> bool:
        """Whether so much may pass now; then it is taken out. More than `most` passes when the
        bucket is full."""
        left = min(most, self._left + (now - self._at) * rate) if self._at > float("-inf") else most
        self._at, self._left = now, left
        if left < min(wanted, most):
            return False
        self._left = left - wanted
        return True
