"""Faults of what keeps nodes out of rings that somebody has founded for them, and from being held
to account for what others make them say."""

from __future__ import annotations

from bench.mutations.planting import fault, replace, replace_constant
from overlay.chord.membership.founding import Founding
from overlay.chord.merging import merging
from overlay.chord.merging.backing import Backing
from overlay.chord.merging.merging import Merging
from overlay.chord.merging.messages import RingEnded
from overlay.chord.messages import Cluster
from overlay.guard import Guard
from overlay.lower_random.messages import RingHint
from overlay.lower_random.peer_records import PeerRecords
from overlay.machine import Message, Peer
from overlay.tenants import quotas
from streams.directory.entry import StreamEntry, fault_in_entry

HONEST = "tests/attacks/test_attacks_honest.py"
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


@fault("keys", HONEST, "test_what_honest_nodes_say_is_theirs_to_say[rings_that_meet]")
def leaves_say_what_only_others_may() -> None:
    """A node sends what its role may not say, as others have made it do."""

    def never(self: Guard, message: Message) -> bool:
        return False

    replace(Guard.withholds, never)


@fault("keys", HONEST, "test_a_ring_that_somebody_invents_locks_no_leaf_out[a member]")
def rings_are_heard_of_from_anybody() -> None:
    """A hint about the ring is believed without its primary's word."""

    def is_good_hint(self: PeerRecords, hint: RingHint) -> bool:
        return True

    replace(PeerRecords.is_good_hint, is_good_hint)


@fault(
    "keys",
    HONEST,
    "test_a_message_beyond_a_role_is_left_out_and_many_are_held_against_their_sender",
)
def one_word_too_many_ends_a_session() -> None:
    """The first message beyond its role is held against a node."""
    replace_constant(quotas, "REFUSED_MOST", 1.0)


@fault("keys", HONEST, "test_a_stream_that_no_owner_has_founded_is_not_taken_in")
def streams_are_taken_in_unseen() -> None:
    """The owner of streams takes in what a node says it has shards of, whatever its options."""

    def nothing(entry: StreamEntry) -> str:
        return ""

    replace(fault_in_entry, nothing)
