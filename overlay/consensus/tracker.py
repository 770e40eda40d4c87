"""What a leader knows of its followers, and what follows (as `tracker` in etcd/raft).

The states of a follower::

    PROBE ──── where its log ends is known ───► CATCH_UP ──── it was sent the last entry ───┐
      ▲                                                                                     ▼
      └────────────── what it was sent does not follow on its log ───────────────────── REPLICATE

*The commit rule* (the dissertation, 3.6.2): an entry is committed when a quorum of the voters has
it on disk, and only together with an entry of the leader's own epoch. An older one that many have
may still be overwritten by a leader that never had it (figure 3.7), but not with an entry of this
epoch behind it, since that decides who is further.

*Changes of the voters* (section 4): each node uses the newest set in its log, committed or not. A
leader changes the set only when the change before is committed and an entry of its own epoch is
(Ongaro's correction, raft-dev, 2015), so that no set is in use but the last two, and by one voter,
so that their majorities meet. A leader that votes alone may take in several: nobody else commits by
the old set, and itself uses the new one from then on, if that is on its disk before others have it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Generic, TypeVar

from overlay.consensus.quorum import majorities_meet, majority, majority_until, reached_by
from overlay.machine import NodeId, Peer


class ProgressState(Enum):
    """How a leader sends entries to a follower."""

    PROBE = "probe"
    """It was asked where its log ends, and is sent nothing else."""
    CATCH_UP = "catch up"
    """It is brought older entries, or the whole state, by pieces."""
    REPLICATE = "replicate"
    """It was sent everything, and gets entries as they are appended."""


class Progress:
    """One follower, from one leader's point of view."""

    __slots__ = ("heard_at", "inflight", "match", "peer", "reading", "state")

    def __init__(self, peer: Peer, heard_at: float = 0.0) -> None:
        self.peer = peer
        self.state = ProgressState.PROBE
        self.match = 0
        """It has the entries up to this number on disk, as the leader has them."""
        self.inflight: deque[int] = deque()
        """The last entries of pieces that were sent to it and are not acknowledged, in order."""
        self.reading = False
        """Older entries are being read for it, from the leader's disk."""
        self.heard_at = heard_at
        """When it was heard last, by the leader's clock."""

    def change(self, state: ProgressState) -> None:
        """Go on in this state. What is being read for it or in flight does not count any more: it
        may be lost."""
        self.state = state
        self.inflight.clear()
        self.reading = False

    def read(self) -> None:
        """Older entries are being read for it."""
        self.state, self.reading = ProgressState.CATCH_UP, True

    def sent(self, number: int, end: int) -> None:
        """The entries that were read are on their way, up to `number`; the log ends with `end`."""
        self.reading = False
        self.inflight.append(number)
        if number == end:
            self.state = ProgressState.REPLICATE

    def restart(self, state: ProgressState, match: int = 0) -> None:
        """It has said where its log ends: what it has acknowledged before does not count, but for
        the entries up to `match`."""
        self.match = match
        self.change(state)

    def acknowledge(self, number: int, now: float) -> None:
        """It has said at `now` that it has the entries up to `number` on disk."""
        self.heard_at = now
        if number > self.match:
            self.match = number
        while self.inflight and self.inflight[0] <= number:
            self.inflight.popleft()

    def following(self, number: int) -> int:
        """The number of the entry to send next to a follower that has acknowledged `number`: what
        is in flight is not sent twice."""
        return max(number, self.inflight[-1] if self.inflight else 0) + 1


Known = TypeVar("Known", bound=Progress)


class Tracker(Generic[Known]):
    """One leader's knowledge in one epoch."""

    def __init__(self, me: NodeId, first: int) -> None:
        """`first`: number of the first entry of the leader's own epoch."""
        self.me = me
        self.first = first
        self.changed = first
        """Number of the last entry that says who votes."""
        self.followers: dict[NodeId, Known] = {}

    def follow(self, peers: Mapping[NodeId, Peer], make: Callable[[Peer], Known]) -> list[Known]:
        """These are the followers from now on. Returns those that were not, each made by `make`."""
        for node in [node for node in self.followers if node not in peers]:
            del self.followers[node]
        new = [make(peer) for node, peer in peers.items() if node not in self.followers]
        self.followers.update((each.peer.id, each) for each in new)
        return new

    def forget(self, node: NodeId) -> bool:
        """Forget a follower's progress. Returns whether there was any."""
        return self.followers.pop(node, None) is not None

    def committable(self, voters: Sequence[Peer], own: int, quorum: int = 0) -> int:
        """The number up to which entries are committed by what `voters` have, of whom the leader
        has `own` on disk; 0: none of its epoch is. `quorum`: how many are needed, if not a
        majority."""
        followers, me = self.followers, self.me
        reached = []
        for voter in voters:
            known = followers.get(voter.id)
            match = 0 if known is None else known.match
            reached.append(own if voter.id == me else match)
        if not reached:
            return 0
        number = reached_by(quorum or majority(len(reached)), reached)
        return number if number >= self.first else 0

    def holders(self, voters: Sequence[Peer], own: int, number: int) -> tuple[NodeId, ...]:
        """The voters that have entry `number` on disk, as far as the leader knows."""
        has = [node for node, known in self.followers.items() if known.match >= number]
        if own >= number:
            has.append(self.me)
        return tuple([voter.id for voter in voters if voter.id in has])

    def heard_since(self, voters: Sequence[Peer], now: float) -> float:
        """Since when a majority of `voters` has answered, with the leader, which answers itself at
        `now`. If that is long ago, another may lead by now."""
        heard = {node: known.heard_at for node, known in self.followers.items()}
        return majority_until(voters, heard, self.me, now)

    # -- changes of the voters -------------------------------------------------------------------

    def may_change(self, committed: int) -> bool:
        """Whether the voters may change, if entries up to `committed` are."""
        return committed >= self.first and committed >= self.changed

    def check_change(self, before: Sequence[Peer], after: Sequence[Peer]) -> None:
        """ValueError if the voters may not be `after` where they were `before`, since a majority of
        each could decide without the other."""
        alone = [peer.id for peer in before] == [self.me]
        if not majorities_meet(before, after) and not (alone and self.me in {p.id for p in after}):
            raise ValueError("more than one voter is changed at once")

    def change(self, number: int) -> None:
        """Entry `number`, the newest, says who votes."""
        self.changed = number

    def is_caught_up(self, node: NodeId, committed: int) -> bool:
        """Whether a node has all that is committed and is sent what follows: it may vote soon."""
        known = self.followers.get(node)
        return (
            known is not None
            and known.state is ProgressState.REPLICATE
            and known.match >= committed
        )
