"""Who is in a view where members may lie: the peers of lowest rank, by secret random ranks.

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

from collections.abc import Callable
from hashlib import blake2b
from random import Random

from overlay.lower_random.heard_peers import HeardPeers
from overlay.machine import NodeId, Peer

PRIME = 2**61 - 1
"""The modulus of ranks: a Mersenne prime near the size of a machine word."""


class Slot:
    """One place of a view: its seed, and who has it."""

    def __init__(self, rng: Random) -> None:
        self.factor = rng.randrange(1, PRIME)
        self.offset = rng.randrange(PRIME)
        self.holder: Peer | None = None
        self.rank = (2, 0)  # of the holder: any peer is better than nobody


class RankedSlots:
    """The slots of one view, and who was heard of. `near`: so many slots prefer peers of the own
    region to all others, and the rest prefers the others."""

    def __init__(self, size: int, near: int, is_near: Callable[[Peer], bool], rng: Random) -> None:
        self._rng = rng
        self._near, self._is_near = near, is_near
        self._key = rng.getrandbits(128).to_bytes(16, "big")
        self._slots = [Slot(rng) for _ in range(size)]
        self.heard = HeardPeers(rng)
        self._next = 0  # which slot gets another seed next

    def offer(self, peer: Peer) -> NodeId:
        """A peer that has no slot was heard of. Returns who has none now, after others have moved:
        the peer itself, another one, or "" where there was room."""
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
        """Whether this peer is better for the slot `number` than who has it."""
        rank = self._rank(number, self._hash(peer.id), self._is_near(peer))
        return rank < self._slots[number].rank

    def _hash(self, node: NodeId) -> int:
        digest = blake2b(node.encode(), digest_size=8, key=self._key).digest()
        return int.from_bytes(digest, "big")

    def _rank(self, number: int, hashed: int, is_near: bool) -> tuple[int, int]:
        """Of a peer in a slot; the lower the better."""
        slot = self._slots[number]
        is_wanted = is_near is (number < self._near)
        return (not is_wanted, (slot.factor * hashed + slot.offset) % PRIME)
