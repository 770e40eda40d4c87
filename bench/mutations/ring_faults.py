"""Faults of what keeps nodes out of rings that somebody has founded for them, and from being held
to account for what others make them say.
"""

from __future__ import annotations

from bench.mutations.planting import fault, replace
from overlay.chord.ring_merge import Merging
from overlay.lower_random.peer_records import PeerRecords
from streams.directory.entry import fault_in_entry

HONEST = "tests/attacks/test_attacks_honest.py"


@fault(
    "A21", "tests/attacks/test_attacks_rings.py", "test_a_ring_of_one_voter_has_nobody_come_over"
)
def lured_smaller_ring_id_wins_alone() -> None:
    """Of two rings the smaller id wins, however many voters serve in each."""

    replace(Merging._is_better, lambda self, ring: ring < self.state.ring)


@fault("A22", HONEST, "test_a_ring_that_somebody_invents_locks_no_leaf_out[a member]")
def rings_are_heard_of_from_anybody() -> None:
    """A hint about the ring is believed without its primary's word."""

    replace(PeerRecords.is_good_hint, lambda self, hint: True)


@fault("A22", HONEST, "test_a_stream_that_no_owner_has_founded_is_not_taken_in")
def streams_are_taken_in_unseen() -> None:
    """The owner of streams takes in what a node says it has shards of, whatever its options."""

    replace(fault_in_entry, lambda entry: "")
