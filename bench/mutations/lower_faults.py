"""Faults in the links and in the random graph: batches, walks, access points."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from itertools import count

from msgspec.structs import replace as changed

from bench.mutations.planting import fault, replace
from overlay.links.connections import LinkConnection
from overlay.links.constants import MIN_RTO
from overlay.links.deadlines import NEVER
from overlay.links.messages import Batch
from overlay.links.receive_buffer import Arrival, ReceiveBuffer
from overlay.links.send_buffer import InFlightBatch, SendBuffer
from overlay.links.session import Carrier, LinkSession, SessionState
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.crawl import Crawl
from overlay.lower_random.heard_peers import HeardPeers
from overlay.lower_random.messages import AccessPoint, Neighbour, Walk
from overlay.lower_random.relaying import Relaying
from overlay.machine import Message, NodeId, Peer, Port
from overlay.settings import ViewSettings

CUT_TESTS = "tests/overlay/test_overlay_relaying.py"
DETOUR_TESTS = "tests/links/test_links_detours.py"
LATE_TESTS = "tests/links/test_links_late.py"


@fault("M3")
def link_skips_missing_batches() -> None:
    """A link takes a batch that came too early for the next one and forgets those between."""
    original = ReceiveBuffer.receive

    def receive(self: ReceiveBuffer, batch: Batch) -> Arrival:
        if zlib.crc32(batch.body) == batch.digest:
            self.expected = max(self.expected, batch.number)
        return original(self, batch)

    replace(original, receive)


@fault("V3")
def link_ignores_digests() -> None:
    """A link accepts batches whose body does not match the digest."""
    original = ReceiveBuffer.receive

    def receive(self: ReceiveBuffer, batch: Batch) -> Arrival:
        return original(self, changed(batch, digest=zlib.crc32(batch.body)))

    replace(original, receive)


@fault("C3")
def walk_ignores_trace() -> None:
    """A walk ignores its trace list and returns to nodes that it has visited."""
    original = Crawl._forward

    def _forward(self: Crawl, walk: Walk) -> None:
        original(self, changed(walk, trace=()))

    replace(original, _forward)


@fault("C3")
def walk_does_not_count_hops() -> None:
    """A walk goes on beyond its hop limit, since no hop is subtracted."""
    original = Crawl._forward

    def _forward(self: Crawl, walk: Walk) -> None:
        original(self, changed(walk, left=walk.left + 1))

    replace(original, _forward)


@fault("C4")
def walk_recovers_with_whole_limit() -> None:
    """A blocked walk starts again with its whole hop limit and not with half of it."""
    original = Crawl._recover

    def _recover(self: Crawl, walk: Walk, trace: tuple[Peer, ...]) -> None:
        original(self, changed(walk, limit=2 * walk.limit), trace)

    replace(original, _recover)


@fault(
    "C1",
    "tests/attacks/test_attacks_sampling.py",
    "test_places_that_are_drawn_anew_go_to_who_was_heard_of_and_not_to_who_is_heard",
)
def heard_peers_not_remembered() -> None:
    """A place of a ranked view that gets another seed goes to the best of those that are named
    afterwards."""

    def learn(self: HeardPeers, entry: Neighbour, now: int) -> None:
        pass

    replace(HeardPeers.learn, learn)


@fault(
    "C1",
    "tests/attacks/test_attacks_sampling.py",
    "test_of_too_many_that_were_heard_of_a_sample_is_kept",
)
def newest_peers_remembered() -> None:
    """Of too many peers that were heard of a node with a ranked view remembers those that were
    named last."""
    numbers = count(2**62, -1)

    def _rank(self: HeardPeers, node: NodeId) -> bytes:
        return next(numbers).to_bytes(8, "big")

    replace(HeardPeers._rank, _rank)


@fault(
    "C1",
    "tests/attacks/test_attacks_sampling.py",
    "test_who_is_lost_is_not_remembered",
)
def lost_peers_remembered() -> None:
    """A node with a ranked view goes on naming peers that it could not reach."""

    def forget(self: HeardPeers, node: NodeId) -> None:
        pass

    replace(HeardPeers.forget, forget)


@fault("C2")
def access_points_unbounded() -> None:
    """A node keeps access points for ten times the attributes that the setting allows."""
    original = AccessPoints.__init__

    def __init__(self: AccessPoints, port: Port, settings: ViewSettings) -> None:  # noqa: N807
        original(self, port, changed(settings, access_points=10 * settings.access_points))

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
    "C3",
    "tests/lower_random/test_lower_transcripts.py",
    "test_a_walk_to_a_silent_node_is_reported_lost_and_begins_again_with_half_of_the_hops",
)
def lost_walk_is_not_reported() -> None:
    """A node that has sent a walk to a silent neighbour says nothing to the walk's origin."""

    def _report_lost(self: Crawl, messages: Iterable[Message]) -> None:
        pass

    replace(Crawl._report_lost, _report_lost)


@fault(
    "C2",
    "tests/lower_random/test_lower_points.py",
    "test_among_the_newest_epoch_the_healthy_come_first_and_none_is_excluded",
)
def hit_names_one_host() -> None:
    """A hit names one access point of a tree and none beside it."""
    original = AccessPoints.points

    def points(self: AccessPoints, attribute: str, exclude: NodeId = "") -> tuple[AccessPoint, ...]:
        return original(self, attribute, exclude)[:1]

    replace(original, points)


@fault(
    "C3",
    "tests/lower_random/test_lower_crawl.py",
    "test_an_access_point_of_a_ring_that_was_left_meanwhile_is_no_hit",
)
def hit_of_a_former_ring_is_used() -> None:
    """A walk that began in another ring ends with an access point of that ring."""
    original = Crawl._end_found

    def _end_found(
        self: Crawl, number: int, found: Sequence[AccessPoint], hop: int, sender: Peer | None
    ) -> None:
        ours = self._access_points.ring
        original(self, number, [changed(each, ring=ours) for each in found], hop, sender)

    replace(original, _end_found)


@fault("P3", CUT_TESTS, "test_events_go_on_when_their_only_host_is_behind_a_cut_link")
def silent_link_not_gone_around() -> None:
    """No other node is asked whether it reaches a peer whose link is silent."""

    def open_(self: Relaying, peer: Peer) -> list[int]:
        return []

    replace(Relaying.open, open_)


@fault("P3", DETOUR_TESTS, "test_a_quiet_link_that_is_watched_is_not_taken_for_dead")
def quiet_peer_dead_without_probes() -> None:
    """Other nodes are asked for a silent peer only while something sent to it is unacknowledged."""
    original = LinkSession._silent_at

    def _silent_at(self: LinkSession) -> float:
        waits = self.is_suspected or self.state is SessionState.CONNECTING
        return original(self) if waits else NEVER

    replace(original, _silent_at)


@fault("P3", DETOUR_TESTS, "test_a_peer_that_was_merely_slow_keeps_its_connection")
def slow_link_left_for_another_way() -> None:
    """A session moves to another way though its own link has answered meanwhile."""

    def wants(self: LinkSession, connection: Carrier, now: float) -> bool:
        return self.candidate is None

    replace(LinkSession.wants, wants)


@fault("P3", DETOUR_TESTS, "test_the_direct_way_is_taken_again_when_it_carries_both_directions")
def detour_taken_for_ever() -> None:
    """A session that goes by way of another node does not try its direct way again."""

    def look_back_due(self: LinkSession) -> float:
        return NEVER

    replace(LinkSession.look_back_due, look_back_due)


@fault(
    "M3",
    LATE_TESTS,
    "test_a_peer_that_is_late_all_the_time_is_asked_for_by_other_ways_only_at_first",
)
def late_peer_is_suspected() -> None:
    """A peer that acknowledges late is suspected as if it had said nothing."""
    original = LinkSession.restart_retransmission

    def restart_retransmission(self: LinkSession, now: float) -> None:
        original(self, now)
        self._rto = MIN_RTO
        self._await_acknowledgement(now)

    replace(original, restart_retransmission)


@fault("M3", LATE_TESTS, "test_to_a_peer_that_reads_late_nothing_goes_twice_nor_another_way")
def late_answer_repeats_everything() -> None:
    """After an answer all batches that are under way are sent again, those behind the question
    too."""
    original = SendBuffer.unacknowledged_before

    def unacknowledged_before(self: SendBuffer, end: int) -> list[InFlightBatch]:
        return original(self, self.number)

    replace(original, unacknowledged_before)


@fault(
    "P3",
    LATE_TESTS,
    "test_the_answer_on_the_link_itself_counts_if_it_comes_just_behind_another_node_s",
)
def late_link_is_left_at_once() -> None:
    """A session moves to another way as soon as another node has reached its peer."""

    def answered(self: LinkConnection, now: float) -> None:
        self.take_over_at = now

    replace(LinkConnection.answered, answered)


@fault("P3", LATE_TESTS, "test_who_looks_late_itself_reads_first_what_has_arrived")
def late_look_counts_against_the_peer() -> None:
    """A node that looks late at what should have been acknowledged suspects the peer at once."""
    original = LinkSession.is_overdue

    def is_overdue(self: LinkSession, now: float) -> bool:
        self._is_excused = True
        return original(self, now)

    replace(original, is_overdue)


@fault("M3", LATE_TESTS, "test_what_a_peer_does_not_handle_soon_waits_at_the_sender")
def late_peer_gets_whole_windows() -> None:
    """A sender has as much under way as the credit allows, however late it is acknowledged."""

    def measured(self: SendBuffer, round_trip: float, size: int) -> None:
        self.window = self._settings.window

    replace(SendBuffer.measured, measured)


@fault("M3", LATE_TESTS, "test_an_urgent_message_overtakes_what_waits_and_no_other_urgent_one")
def late_link_holds_up_urgent_messages() -> None:
    """A heartbeat waits behind everything that its link has not sent yet."""
    original = SendBuffer.enqueue

    def enqueue(self: SendBuffer, encoded: bytes, message: Message) -> bool:
        self.is_blocked = False
        return original(self, encoded, message)

    replace(original, enqueue)
