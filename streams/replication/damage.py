"""What was wrong with a replica's log, since its node started, and what became of it."""

from __future__ import annotations


class Damage:
    """Counts of one replica."""

    __slots__ = ("ended", "found", "left", "mended", "refused")

    def __init__(self) -> None:
        self.found = 0
        """Holes: places at which there is not what was written."""
        self.mended = 0
        """Chunks that other replicas had, and that were written anew."""
        self.refused = 0
        """Chunks that others sent for these places and that were never there."""
        self.left = 0
        """Holes that stay, since the shard has no other replica."""
        self.ended = 0
        """Times that no other replica had what was missing, so that the log ends before it."""

    def counts(self) -> tuple[int, ...]:
        """Found, mended, refused, left, ended."""
        return self.found, self.mended, self.refused, self.left, self.ended
