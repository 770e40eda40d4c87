"""How far a cluster of a losing ring is on its way to the winning one (P2); see merging.py."""

from __future__ import annotations

from enum import IntEnum


class MergePhase(IntEnum):
    """In order. Messages carry the number."""

    NONE = 0
    """The ring does not end."""
    UNITED = 1
    """The winning ring's owners have acknowledged all that is registered here. What is registered
    or ended meanwhile waits; events are matched here as before."""
    STOPPED = 2
    """No host serves a tree of this ring, and no publisher has a summary of one. Events wait where
    they are published."""
    ENDED = 3
    """The cluster is no more."""

    def following(self) -> MergePhase:
        """The next phase; ENDED is the last."""
        return MergePhase(min(self + 1, MergePhase.ENDED))
