"""Counts of the damage of a replica's log since its node started, and of the repairs."""

from __future__ import annotations


class Damage:
    """Counts of one replica."""

    __slots__ = ("ended", "found", "left", "mended", "refused")

    def __init__(self) -> None:
        self.found = 0
        """Holes: places without the bytes that were written."""
        self.mended = 0
        """Chunks rewritten from other replicas."""
        self.refused = 0
        """Chunks from other replicas with a wrong hash."""
        self.left = 0
        """Holes that stay, since the shard has no other replica."""
        self.ended = 0
        """Holes whose chunks no other replica had: the log was cut before each."""

    def counts(self) -> tuple[int, ...]:
        """Found, mended, refused, left, ended."""
        return self.found, self.mended, self.refused, self.left, self.ended
