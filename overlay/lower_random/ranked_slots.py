"""Fills a view where members may lie: with the peers of lowest rank, by secret random ranks.

Basalt (Auvolat, Bromberg, Frey and Taïani 2021, section 3): a view has slots, each with a random
seed of its own that nobody else knows, and in a slot is the peer whose hash under this seed is the
lowest of all that were ever heard of. How often a peer is named does not matter, so those who push
themselves most have no more of a view than their share of all nodes. A slot gets another seed from
time to time, so that views change and stay samples of who is there.

Unlike in Basalt, a peer has one slot only. A peer that loses its slot to another one takes the best
of the others that it is better for, so that a small overlay is in the view as a whole, and the
assignment is the stable one, whatever the order in which peers are heard of.

Ranks are ``(a x + b) mod p`` of a keyed hash x of the peer's id, with secret a and b for each slot:
one hash for each peer that is heard of, instead of one for each slot as well.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from hashlib import blake2b
from random import Random

from msgspec.structs import replace

from overlay.lower_random.constants import HEARD_FOR, MAX_HEARD
from overlay.lower_random.messages import Neighbour
from overlay.machine import NodeId, Peer

# --- peers that a node with a ranked view has heard of lately, whether or not they are in it ---
#
# A place that gets another seed (ranked_slots.py) shall go to the best of all peers. Without a
# memory it goes to the best of those that are named from then on, and who pushes most is named at
# once, the others as exchanges happen to bring them. For the same reason exchanges name some of
# these peers, too: neighbours have the same ones in their views for long, so that there are peers
# of which a node would never hear.
#
# How often a peer is named does not matter here either: of too many those stay that are lowest by a
# secret hash, a sample of all. A peer stays as long as there is news of it that is young enough.
# Ages are counted in shuffles since the peer itself spoke, wherever the news has been since, so
# that the dead are forgotten everywhere.


class HeardPeers:
    """At most `MAX_HEARD` of them."""

    def __init__(self, rng: Random) -> None:
        self._key = rng.getrandbits(128).to_bytes(16, "big")
        self._known: dict[NodeId, tuple[Neighbour, int]] = {}  # with the shuffle in which it spoke
        self._ranks: list[tuple[bytes, NodeId]] = []  # the same peers, the lowest first

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, entry: Neighbour, now: int) -> None:
        """Note an entry about a peer, received in the shuffle with number `now`."""
        node, spoke = entry.peer.id, now - entry.age
        if entry.age > HEARD_FOR:
            return
        known = self._known.get(node)
        if known is None:
            insort(self._ranks, (self._rank(node), node))
            if len(self._ranks) > MAX_HEARD:
                _, highest = self._ranks.pop()
                self._known.pop(highest, None)
                if highest == node:
                    return
        elif spoke < known[1]:
            return
        self._known[node] = entry, spoke

    def forget(self, node: NodeId) -> None:
        """Contact with this node failed."""
        if self._known.pop(node, None) is not None:
            del self._ranks[bisect_left(self._ranks, (self._rank(node), node))]

    def expire(self, now: int) -> None:
        """Forget those of whom there is no young news any more in the shuffle `now`."""
        for node in [n for n, (_, spoke) in self._known.items() if now - spoke > HEARD_FOR]:
            self.forget(node)

    def peers(self) -> list[Peer]:
        """All of them, with their addresses."""
        return [entry.peer for entry, _ in self._known.values()]

    def entry(self, node: NodeId, now: int) -> Neighbour:
        """Return the entry of a known peer, with its age in the shuffle `now`. Raises KeyError if
        the peer is unknown."""
        entry, spoke = self._known[node]
        aged: Neighbour = replace(entry, age=now - spoke)
        return aged

    def _rank(self, node: NodeId) -> bytes:
        return blake2b(node.encode(), digest_size=8, key=self._key).digest()


PRIME = 2**61 - 1
"""The modulus of ranks: a Mersenne prime near the size of a machine word."""


class Slot:
    """One place of a view: its seed, and the peer that holds it."""

    def __init__(self, rng: Random) -> None:
        self.factor = rng.randrange(1, PRIME)
        self.offset = rng.randrange(PRIME)
        self.holder: Peer | None = None
        self.rank = (2, 0)  # of the holder: any peer is better than nobody


class RankedSlots:
    """The slots of one view, and the known peers. `near`: the number of slots that prefer peers of
    the own region to all others; the remaining slots prefer peers of other regions."""

    def __init__(self, size: int, near: int, is_near: Callable[[Peer], bool], rng: Random) -> None:
        self._rng = rng
        self._near, self._is_near = near, is_near
        self._key = rng.getrandbits(128).to_bytes(16, "big")
        self._slots = [Slot(rng) for _ in range(size)]
        self.heard = HeardPeers(rng)
        self._next = 0  # which slot gets another seed next

    def offer(self, peer: Peer) -> NodeId:
        """Offer a slot to a peer that has none; other peers may move. Return the peer left without
        a slot: this one, another one, or "" if there was room."""
        while True:
            hashed, is_near = self._hash(peer.id), self._is_near(peer)
            best, rank = -1, (2, 0)
            for number, slot in enumerate(self._slots):
                mine = self._rank(number, hashed, is_near)
                if mine < slot.rank and mine < rank:
                    best, rank = number, mine
            if best < 0:
                return peer.id
            slot = self._slots[best]
            loser, slot.holder, slot.rank = slot.holder, peer, rank
            if loser is None:
                return ""
            peer = loser

    def remove(self, node: NodeId) -> None:
        """Contact with this node failed: its slot is free."""
        for slot in self._slots:
            if slot.holder is not None and slot.holder.id == node:
                slot.holder, slot.rank = None, (2, 0)

    def renew(self) -> int:
        """Give the slot whose seed is the oldest another one. Its holder stays until a better one
        is offered. Returns the number of the slot."""
        number = self._next
        self._next = (number + 1) % len(self._slots)
        holder = self._slots[number].holder
        slot = self._slots[number] = Slot(self._rng)
        if holder is not None:
            hashed = self._hash(holder.id)
            slot.holder = holder
            slot.rank = self._rank(number, hashed, self._is_near(holder))
        return number

    def is_better(self, peer: Peer, number: int) -> bool:
        """Return whether this peer is better for the slot `number` than its holder."""
        rank = self._rank(number, self._hash(peer.id), self._is_near(peer))
        return rank < self._slots[number].rank

    def _hash(self, node: NodeId) -> int:
        digest = blake2b(node.encode(), digest_size=8, key=self._key).digest()
        return int.from_bytes(digest, "big")

    def _rank(self, number: int, hashed: int, is_near: bool) -> tuple[int, int]:
        """Return the rank of a peer in a slot; lower is better."""
        slot = self._slots[number]
        is_wanted = is_near is (number < self._near)
        return (not is_wanted, (slot.factor * hashed + slot.offset) % PRIME)
