"""The rules of a replicated log: Raft, as far as it is the same for every log here.

*Promises*: any two quorums have a voter in common; a vote is given once in an epoch; a leader
commits entries by counting only from the first of its own epoch on; the voters change so that the
quorums before and after a change have a voter in common. Whoever keeps to these rules keeps what is
committed (Ongaro, *Consensus: bridging theory and practice*, 3.6; here "the dissertation").

*Called by*: `overlay.chord.cluster`, the log of a cluster's registry, and `streams.shard`, a
shard's log. They have two loops, for the reasons in docs/design/two-logs.md; what is decided in
both is decided here. There is no IO, no clock, no message, and no notion of clusters, shards or
disks: entries are numbers, voters are peers, and times are what the caller's clock says.

*In this order*: quorums, and what they have reached; who gets a vote, and who may still act on one;
`Tracker`: what a leader knows of each follower and of all, and what follows: what is committed,
whether voters may change; `DurableQueue`: what waits for the disk.

*Words*: a *position* is (epoch of the last entry, its number); the first entry has number 1, an
empty log is at (0, 0). Of two logs the one with the higher position is *further*. An *epoch* is
Raft's term, a *leader* leads in one epoch, a *candidate* wants to, *followers* are all others that
have the log, and the *voters* are those that count. (A cluster's leader is its *primary*, as in
Phoenix; a shard's voters are its *replicas*.)

A leader's use::

    tracker = Tracker(me, first=log.end + 1)  # its own epoch begins with the next entry
    tracker.change(log.append(voters))  # which says who votes
    ...
    tracker.followers[sender].acknowledge(number)  # a follower has it on disk
    committed = max(committed, tracker.committable(voters, own=log.durable))
    if tracker.may_change(committed):
        tracker.check_change(voters, (*voters, another))
        tracker.change(log.append((*voters, another)))

and a voter's::

    if may_vote(vote, epoch, candidate) and position >= mine:
        store(vote), then answer
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

from overlay.machine import NodeId, Peer, Version

# --- quorums: majorities of voters, and what they have reached (the dissertation, 3.4 and 4) ---

Reached = TypeVar("Reached", int, float)

NEVER: Final = float("-inf")
"""The time of who was never heard, and of what never was."""


def majority(voters: int) -> int:
    """Return the size of a majority of `voters`: the least number such that any two sets of this
    size share a voter."""
    return voters // 2 + 1


def quorum_of_storers(voters: int, one_may_lie: bool) -> int:
    """Return how many voters have to have stored an entry before it counts as committed. This is a
    majority. If one voter may lie, it is enough that any electing majority contains two of them,
    but not all voters, since one may be silent."""
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


# --- votes: a node's durable word on who leads in an epoch (the dissertation, 3.4 and 3.6.1) ---
#
# A vote binds whoever gave it: it takes nothing more of a leader of a lower epoch. So a majority of
# votes for an epoch ends all lower ones, and since a voter gives one vote in an epoch, each epoch
# has at most one leader. Votes are durable before anybody hears of them.
#
# That the winner has all that was committed is seen to in one of two ways, by those who use this:
# voters vote only for a candidate whose log is as far as their own (a cluster), or the candidate
# fetches the furthest log of those that have voted before it leads (a shard).

EMPTY: Final[Version] = (0, 0)
"""The position of a log without entries, and of a node without a log."""


class Vote(Protocol):
    """The stored last vote of a node."""

    @property
    def epoch(self) -> int:
        """The highest epoch that it has voted in."""

    @property
    def candidate(self) -> NodeId:
        """The candidate that the vote was given to."""


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


# --- what a leader knows of its followers, and what follows (as `tracker` in etcd/raft) ---
#
# The states of a follower::
#
#     PROBE ──── where its log ends is known ───► CATCH_UP ──── it was sent the last entry ───┐
#       ▲                                                                                     ▼
#       └────────────── what it was sent does not follow on its log ───────────────────── REPLICATE
#
# *The commit rule* (the dissertation, 3.6.2): an entry is committed when a quorum of the voters has
# it on disk, and only together with an entry of the leader's own epoch. An older one that many have
# may still be overwritten by a leader that never had it (figure 3.7), but not with an entry of this
# epoch behind it, since that decides who is further.
#
# *Changes of the voters* (section 4): each node uses the newest set in its log, committed or not. A
# leader changes the set only when the change before is committed and an entry of its own epoch is
# (Ongaro's correction, raft-dev, 2015), so that no set is in use but the last two, and by one
# voter, so that their majorities meet. A leader that votes alone may take in several: nobody else
# commits by the old set, and itself uses the new one from then on, if that is on its disk before
# others have it.


class ProgressState(Enum):
    """The modes in which a leader sends entries to a follower."""

    PROBE = "probe"
    """It was asked where its log ends, and is sent nothing else."""
    CATCH_UP = "catch up"
    """It is brought older entries, or the whole state, by pieces."""
    REPLICATE = "replicate"
    """It was sent everything, and gets entries as they are appended."""


class Progress:
    """One follower, as its leader sees it."""

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
        """Change to this state. Reads and messages under way for the follower no longer count,
        since they may be lost."""
        self.state = state
        self.inflight.clear()
        self.reading = False

    def read(self) -> None:
        """Older entries are being read for it."""
        self.state, self.reading = ProgressState.CATCH_UP, True

    def sent(self, number: int, end: int) -> None:
        """Note that the entries that were read are on their way, up to `number`; the log ends with
        `end`."""
        self.reading = False
        self.inflight.append(number)
        if number == end:
            self.state = ProgressState.REPLICATE

    def restart(self, state: ProgressState, match: int = 0) -> None:
        """Restart after the follower has stated where its log ends. Its earlier acknowledgements no
        longer count, except those of entries up to `match`."""
        self.match = match
        self.change(state)

    def acknowledge(self, number: int, now: float) -> None:
        """Note that the follower said at `now` that it has the entries up to `number` on disk."""
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
    """One leader's knowledge of its followers in one epoch."""

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


# --- a queue for the disk: nothing is said, counted or answered before it is durable ---
#
# A disk carries out what it is asked in order, and names each request by a ticket that is higher
# than those before. So does a node's state file.

Waiting = TypeVar("Waiting")


class DurableQueue(Generic[Waiting]):
    """Items that wait for tickets, in the order of the tickets."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Waiting]] = deque()

    def add(self, ticket: int, item: Waiting) -> None:
        """Let `item` wait until the disk has carried out `ticket`."""
        self._waiting.append((ticket, item))

    def stored(self, ticket: int) -> list[Waiting]:
        """Remove and return the items that have waited for `ticket` or an earlier one."""
        waiting, found = self._waiting, []
        while waiting and waiting[0][0] <= ticket:
            found.append(waiting.popleft()[1])
        return found

    def clear(self) -> None:
        """Forget all that waits: the disk has failed, or has stored everything."""
        self._waiting.clear()
