"""The present summary of an owned tree, and when to make the next one (C9).

Where registrations keep coming, summaries do not last, and giving and recalling them costs more
than they save. So a summary that was contradicted within the time that publishers may cache it
makes the tree wait twice as long before the next one is made.
"""

from __future__ import annotations

from overlay.upper_tree.owner.constants import (
    SUMMARY_PAUSE_LEAST,
    SUMMARY_PAUSE_MOST,
    SUMMARY_STALE_SHARE,
)
from overlay.upper_tree.summary import Summary


class SummaryState:
    """Written by the summaries' machines. Times are the Port's seconds."""

    def __init__(self) -> None:
        self.current: Summary | None = None
        self.digest = 0
        """Of the last summary that was made, by which publishers name it."""
        self._size = 0  # registrations that the summary was made of
        self._made_at = 0.0
        self._contradicted_at = float("-inf")
        self._pause = 0.0

    def replace(self, summary: Summary, digest: int, size: int, now: float) -> None:
        """A summary was made, of `size` registrations."""
        self.current, self.digest = summary, digest
        self._size, self._made_at = size, now

    def is_current(self, size: int) -> bool:
        """Whether there is a summary, of which not too much has ended. `size`: how many
        registrations the tree has now."""
        return self.current is not None and self._size - size <= size // SUMMARY_STALE_SHARE

    def may_rebuild(self, now: float) -> bool:
        """Whether no registration has contradicted a summary for long enough."""
        return self._contradicted_at + self._pause <= now

    def contradicted(self, now: float, term: float) -> None:
        """A new registration lies outside of the summary, which is dropped. `term`: seconds for
        which publishers may cache one."""
        self._contradicted_at = now
        if self.current is not None and now - self._made_at < term:
            self._pause = min(2.0 * self._pause, SUMMARY_PAUSE_MOST)
        elif self.current is not None or not self._pause:
            self._pause = SUMMARY_PAUSE_LEAST
        self.current = None

    def outdated(self, now: float) -> None:
        """Registrations came while a summary was being made, which may not admit them."""
        self._contradicted_at = now
