"""Faults in the links and in the random graph: batches, views, walks, access points."""

from __future__ import annotations

import zlib

from msgspec.structs import replace as changed

from bench.mutations.planting import fault, replace, replace_constant
from overlay.health import Health
from overlay.links import receive_buffer
from overlay.links.backlog import Backlog
from overlay.links.messages import Batch
from overlay.links.receive_buffer import Arrival, ReceiveBuffer
from overlay.links.send_buffer import InFlightBatch
from overlay.links.session import LinkSession
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.crawl import Crawl
from overlay.lower_random.messages import AccessPoint, Neighbour, Walk
from overlay.lower_random.ranked_slots import HeardPeers
from overlay.lower_random.relays import Relaying
from overlay.lower_random.view import View
from overlay.machine import NodeId, Peer, Port
from overlay.settings import ViewSettings


@fault("I1", "tests/links/test_links_gaps.py", "test_a_new_connection_brings_what_was_kept_again")
def link_skips_missing_batches() -> None:
    """A link takes a batch that came too early for the next one and forgets those between."""
    original = ReceiveBuffer.receive

    def receive(self: ReceiveBuffer, batch: Batch) -> Arrival:
        if zlib.crc32(batch.body) == batch.digest:
            self.expected = max(self.expected, batch.number)
        return original(self, batch)

    replace(original, receive)


@fault(
    "D2", "tests/links/test_links_gaps.py", "test_a_damaged_batch_is_not_taken_and_still_expected"
)
def link_ignores_digests() -> None:
    """A link accepts batches whose body does not match the digest."""
    original = ReceiveBuffer.receive

    def receive(self: ReceiveBuffer, batch: Batch) -> Arrival:
        return original(self, changed(batch, digest=zlib.crc32(batch.body)))

    replace(original, receive)


@fault(
    "C3",
    "tests/papers/test_papers_cbdlo_walks.py",
    "test_section_3_1_the_walk_does_not_return_to_the_last_k_nodes[4]",
)
def walk_ignores_trace() -> None:
    """A walk ignores its trace list and returns to nodes that it has visited."""
    original = Crawl._forward

    def _forward(self: Crawl, walk: Walk) -> None:
        original(self, changed(walk, trace=()))

    replace(original, _forward)


@fault(
    "I11",
    "tests/papers/test_papers_cbdlo_walks.py",
    "test_section_3_1_step_2_2_a_walk_ends_at_the_largest_number_of_hops",
)
def walk_does_not_count_hops() -> None:
    """A walk goes on beyond its hop limit, since no hop is subtracted."""
    original = Crawl._forward

    def _forward(self: Crawl, walk: Walk) -> None:
        original(self, changed(walk, left=walk.left + 1))

    replace(original, _forward)


@fault(
    "C4",
    "tests/papers/test_papers_cbdlo_walks.py",
    "test_section_3_2_recovery_starts_at_a_random_node_of_the_trace_with_half_of_the_hops",
)
def walk_recovers_with_whole_limit() -> None:
    """A blocked walk starts again with its whole hop limit and not with half of it."""
    original = Crawl._recover

    def _recover(self: Crawl, walk: Walk, trace: tuple[Peer, ...]) -> None:
        original(self, changed(walk, limit=2 * walk.limit), trace)

    replace(original, _recover)


@fault(
    "A38",
    "tests/attacks/test_attacks_sampling.py",
    "test_places_that_are_drawn_again_go_to_who_was_heard_of_and_not_to_who_is_heard",
)
def heard_peers_not_remembered() -> None:
    """A place of a ranked view that gets another seed goes to the best of those that are named
    afterwards."""

    replace(HeardPeers.learn, lambda self, entry, now: None)


@fault(
    "C2",
    "tests/papers/test_papers_cbdlo_walks.py",
    "test_section_2_each_node_caches_access_points_of_a_certain_number_of_attributes",
)
def access_points_unbounded() -> None:
    """A node keeps access points for ten times the attributes that the setting allows."""
    original = AccessPoints.__init__

    def __init__(  # noqa: N807
        self: AccessPoints, port: Port, settings: ViewSettings, health: Health | None = None
    ) -> None:
        original(self, port, changed(settings, access_points=10 * settings.access_points), health)

    replace(original, __init__)


@fault(
    "C2",
    "tests/lower_random/test_lower_points.py",
    "test_ways_into_the_trees_of_another_ring_are_not_taken",
)
def access_points_of_another_ring() -> None:
    """A node takes access points that lead into another ring's trees."""
    original = AccessPoints.learn

    def learn(self: AccessPoints, point: AccessPoint, named_by: Peer | None = None) -> bool:
        return original(self, changed(point, ring=self.ring), named_by)

    replace(original, learn)


@fault(
    "P3",
    "tests/overlay/test_overlay_relaying.py",
    "test_events_go_on_when_their_only_host_is_behind_a_cut_link",
)
def silent_link_not_gone_around() -> None:
    """No other node is asked whether it reaches a peer whose link is silent."""

    replace(Relaying.open, lambda self, peer: [])


@fault(
    "C1",
    "tests/papers/test_papers_cbdlo_walks.py",
    "test_section_2_the_topology_stays_a_random_graph_with_short_ways",
)
def views_hold_only_whom_they_met() -> None:
    """A node takes into its view only who has exchanged with it, and nobody whom that one names."""
    original = View._take

    def _take(
        self: View, entry: Neighbour, replaceable: list[NodeId], first_hand: bool = True
    ) -> None:
        if first_hand:
            original(self, entry, replaceable)

    replace(original, _take)


@fault(
    "C10",
    "tests/papers/test_papers_cbdlo_walks.py",
    "test_section_4_the_wrong_entry_does_not_come_back_by_gossip",
)
def wrong_access_points_come_back() -> None:
    """A node forgets a wrong access point and not that it was wrong."""
    original = AccessPoints._mark_stale

    def _mark_stale(self: AccessPoints, attribute: str, peer_id: NodeId, version: object) -> None:
        original(self, attribute, peer_id, version)  # type: ignore[arg-type]
        self._stale.pop((attribute, peer_id), None)

    replace(original, _mark_stale)


@fault("M3", "tests/links/test_links_flow.py", "test_acknowledgements_ride_on_batches")
def batches_acknowledge_nothing() -> None:
    """A link sends an acknowledgement of its own though a batch has carried it."""
    original = LinkSession.make_batch

    def make_batch(self: LinkSession, batch: InFlightBatch, now: float, clock: int) -> Batch:
        is_due = self.ack_due
        made = original(self, batch, now, clock)
        self.ack_due = is_due
        return made

    replace(original, make_batch)


@fault(
    "T3",
    "tests/links/test_links_backlog.py",
    "test_it_holds_what_is_written_in_the_mean_time_of_a_disconnect",
)
def disconnects_are_not_measured() -> None:
    """A replay buffer is made for the disconnect that is assumed, however long they take."""

    replace(Backlog.disconnect, lambda self, now: self._assumed)


@fault(
    "A16",
    "tests/links/test_links_flow.py",
    "test_compressed_bodies_that_are_broken_or_bombs_break_the_protocol",
)
def compressed_bodies_have_no_bound() -> None:
    """A compressed body is unpacked however large it becomes."""
    replace_constant(receive_buffer, "MAX_BODY", 1 << 40)
