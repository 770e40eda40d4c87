"""Faults of what keeps nodes out of rings that somebody has founded for them."""

from __future__ import annotations

from bench.mutations.planting import fault, replace, replace_constant
from overlay.chord.membership.founding import Founding
from overlay.chord.merging import merging
from overlay.chord.merging.backing import Backing
from overlay.chord.merging.merging import Merging
from overlay.chord.merging.messages import RingEnded
from overlay.chord.messages import Cluster
from overlay.machine import Peer

RINGS = "tests/attacks/test_attacks_rings.py"


@fault("keys", RINGS, "test_a_ring_of_one_voter_has_nobody_come_over")
def lured_smaller_ring_id_wins_alone() -> None:
    """Of two rings the smaller id wins, however many voters serve in each."""

    def smaller(self: Merging, ring: str) -> bool:
        return ring < self.state.ring

    replace(Merging._is_better, smaller)


@fault("keys", RINGS, "test_nor_by_the_word_of_who_serves_in_the_ring")
def lured_ring_is_backed_by_whom_it_names() -> None:
    """All members that a description names count as voters that serve there."""
    original = Backing.heard

    def heard(self: Backing, sender: Peer, cluster: Cluster) -> None:
        for member in cluster.members():
            original(self, member, cluster)

    replace(Backing.heard, heard)


@fault("keys", RINGS, "test_nor_by_the_word_of_who_serves_in_the_ring")
def lured_merge_is_followed_unseen() -> None:
    """A cluster goes over because the one that leads the merge says so."""

    def always(self: Merging, into: Cluster) -> bool:
        return True

    replace(Merging._follows, always)


@fault("keys", RINGS, "test_nor_by_the_word_of_who_serves_in_the_ring")
def lured_end_of_a_ring_is_believed_unseen() -> None:
    """That the ring has ended is believed of who serves in it."""

    def believed(self: Merging, sender: Peer, message: RingEnded) -> None:
        self._go_over(sender, message.into)

    replace(Merging._end_claimed, believed)


@fault("keys", RINGS, "test_who_was_caught_in_such_a_ring_comes_back")
def lured_who_was_caught_stays() -> None:
    """Who serves under the primary of a ring of few voters stays there."""
    replace_constant(merging, "RING_UNBACKED_AFTER", float("inf"))


@fault("keys", RINGS, "test_an_honest_founder_alone_goes_over_whatever_its_id")
def lured_smaller_ring_never_gives_way() -> None:
    """A ring of few voters goes over to none with a larger id."""

    def smaller(self: Merging, ring: str) -> bool:
        return ring < self.state.ring

    replace(Merging._may_be_better, smaller)


@fault("keys", RINGS, "test_a_smaller_id_that_does_not_found_holds_up_nobody")
def lured_smallest_id_founds_or_nobody() -> None:
    """A new node waits for a smaller id to found a ring, for ever."""
    original = Founding.due

    def due(self: Founding) -> Cluster | None:
        if any(peer.id < self.port.me.id for peer in self.view.peers()):
            self._turns = 0
        return original(self)

    replace(Founding.due, due)
