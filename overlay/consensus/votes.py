"""Votes: a node's durable word on who leads in an epoch (the dissertation, 3.4 and 3.6.1).

A vote binds whoever gave it: it takes nothing more of a leader of a lower epoch. So a majority of
votes for an epoch ends all lower ones, and since a voter gives one vote in an epoch, each epoch has
at most one leader. Votes are durable before anybody hears of them.

That the winner has all that was committed is seen to in one of two ways, by those who use this:
voters vote only for a candidate whose log is as far as their own (a cluster), or the candidate
fetches the furthest log of those that have voted before it leads (a shard).
"""

from __future__ import annotations

from typing import Final, Protocol

from overlay.machine import NodeId, Version

EMPTY: Final[Version] = (0, 0)
"""The position of a log without entries, and of a node without a log."""


class Vote(Protocol):
    """The stored last vote of a node."""

    @property
    def epoch(self) -> int:
        """The highest epoch that it has voted in."""

    @property
    def candidate(self) -> NodeId:
        """For whom."""


def may_vote(last: Vote | None, epoch: int, candidate: NodeId) -> bool:
    """Whether a node that has voted as `last` says may vote for `candidate` in `epoch`: in a higher
    one, or for the same candidate once more."""
    if last is None or epoch > last.epoch:
        return True
    return (epoch, candidate) == (last.epoch, last.candidate)


def is_fenced(last: Vote | None, epoch: int) -> bool:
    """Whether a node that has voted as `last` says must take nothing of a leader of `epoch`, nor go
    on leading in it. That it voted for another in the same epoch does not matter: whoever leads has
    the votes of a majority, so that the other cannot."""
    return last is not None and last.epoch > epoch


def is_up_to_date(candidate: Version, mine: Version) -> bool:
    """Whether a log that ends at `candidate` is at least as far as one that ends at `mine`: by the
    epoch of its last entry, and only in the same epoch by how long it is."""
    return candidate >= mine
