"""Quorums: majorities of voters, and what they have reached (the dissertation, 3.4 and 4)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from overlay.machine import NodeId, Peer

Reached = TypeVar("Reached", int, float)

NEVER: Final = float("-inf")
"""The time of who was never heard, and of what never was."""


def majority(voters: int) -> int:
    """The size of a majority of `voters`: the least of which any two sets have one in common."""
    return voters // 2 + 1


def quorum_of_storers(voters: int, one_may_lie: bool) -> int:
    """How many voters have to have stored an entry before it counts as committed. A majority; where
    one may lie, so many that any majority that elects has two of them, but not all, of whom one may
    be silent."""
    least = majority(voters)
    if not one_may_lie:
        return least
    return max(least, min(voters + 2 - least, voters - 1))


def has_majority(voters: Sequence[Peer], nodes: Container[NodeId]) -> bool:
    """Whether a majority of `voters` is among `nodes`. Of no voters there is none."""
    return sum(voter.id in nodes for voter in voters) >= majority(len(voters))


def reached_by(count: int, values: Iterable[Reached]) -> Reached:
    """The highest value that `count` voters have reached, of whom each one's is among `values`.
    IndexError if there are fewer."""
    return sorted(values, reverse=True)[count - 1]


def majority_until(
    voters: Sequence[Peer], until: Mapping[NodeId, float], me: NodeId, own: float
) -> float:
    """The latest time that a majority of `voters` has reached; `until` has the time of each, `own`
    is that of this node. -inf: no majority has any. Of the times until which voters vote for no
    other that is the end of a leader's lease (the dissertation, 6.4.1); of the times when they were
    heard last, since when it may have been replaced (check quorum, 6.2)."""
    times = [own if voter.id == me else until.get(voter.id, NEVER) for voter in voters]
    return reached_by(majority(len(times)), times) if times else NEVER


def majorities_meet(before: Sequence[Peer], after: Sequence[Peer]) -> bool:
    """Whether each majority of `before` has a voter in common with each majority of `after`: so if
    one is added, or one removed."""
    both = {peer.id for peer in before} | {peer.id for peer in after}
    return majority(len(before)) + majority(len(after)) > len(both)
