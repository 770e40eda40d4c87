"""Faults of the publisher: finding trees, pending events, and who publishes ahead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.mutations.planting import fault, replace
from canopy.cli.demo import publisher
from canopy.client.blocking import ControlClient
from overlay.chord.keys import attribute_key
from overlay.client import Event
from overlay.lower_random.events import WalkFailed
from overlay.machine import NodeId, Peer
from overlay.upper_tree.clients.clients import LocalClients
from overlay.upper_tree.events import TreeAbsent
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.pending_event import PendingPair
from overlay.upper_tree.publisher.pending_store import Acceptance, PendingStore
from overlay.upper_tree.publisher.publisher import Publisher
from overlay.upper_tree.publisher.routing_plan import Route
from overlay.upper_tree.publisher.summary_cache import SummaryCache
from overlay.upper_tree.publisher.tree_finder import TreeFinder
from overlay.upper_tree.visits import Group

OUT_OF_REACH = "tests/upper_tree/delivery/test_tree_out_of_reach.py"


@fault("C5")
def no_lookup_after_failed_walk() -> None:
    """A publisher whose walk failed takes the tree for absent and does not ask the ring."""

    def on_walk_failed(self: TreeFinder, event: WalkFailed) -> None:
        for attribute in event.attributes:
            search = self.searches.get(attribute)
            if search is not None and search.stage == "walk":
                del self.searches[attribute]
                self.port.emit(TreeAbsent(attribute, self.port.now + 1.0))

    replace(TreeFinder.on_walk_failed, on_walk_failed)


@fault(
    "C3",
    "tests/overlay/finding/test_overlay_walks.py",
    "test_a_known_owner_is_not_asked_where_a_tree_is",
)
def known_owner_replaces_the_walk() -> None:
    """A publisher that knows a tree's owner asks it at once and does not walk."""

    def _is_walked(self: TreeFinder, attribute: str) -> bool:
        return self.ring.owner(attribute_key(attribute)) is None

    replace(TreeFinder._is_walked, _is_walked)


@fault(
    "C9",
    "tests/overlay/finding/test_overlay_walks.py",
    "test_the_summary_is_asked_for_when_there_is_enough_traffic",
)
def summary_asked_for_at_the_first_event() -> None:
    """A publisher asks for a tree's summary however few events it has for the tree."""
    original = SummaryCache.claim_refresh

    def claim_refresh(self: SummaryCache, attribute: str, now: float, events: int = 1) -> bool:
        return original(self, attribute, now, events + 1_000)

    replace(original, claim_refresh)


@fault(
    "C7",
    "tests/upper_tree/publisher/test_tree_publisher.py",
    "test_an_event_may_have_more_trees_than_there_is_room_for_locations",
)
def awaited_locations_are_evicted() -> None:
    """A publisher forgets, for want of room, where a tree is that an event waits for."""
    replace(LocationCache.hold, lambda self, attribute: None)


@fault("promise: nothing lost in the quiet")
def broken_link_counts_as_accepted() -> None:
    """A publisher takes events on a link that broke for accepted and sends them no other way."""
    original = PendingStore.host_lost

    def host_lost(self: PendingStore, host: NodeId) -> list[PendingPair]:
        self.drop(original(self, host))
        return []

    replace(original, host_lost)


@fault(
    "promise: delivered = expected",
    OUT_OF_REACH,
    "test_a_host_that_publishes_more_at_once_than_a_frame_carries_delivers_it",
)
def own_visits_uncut() -> None:
    """A publisher visits its own trees with however many bytes of events at once."""
    original = Publisher._send

    def _send(self: Publisher, host: Peer, groups: Sequence[Group], largest: int = 0) -> None:
        original(self, host, groups, 1 if host.id == self.port.me.id else largest)

    replace(original, _send)


@fault(
    "M3",
    "tests/upper_tree/publisher/test_tree_pending.py",
    "test_bytes_bound_what_is_pending_as_pairs_do",
)
def pending_bytes_uncounted() -> None:
    """A publisher admits events as long as they are few, however large."""

    original = PendingStore.add_batch

    def add_batch(self: PendingStore, events: Sequence[Event], route: Route, largest: int) -> None:
        original(self, events, route, 0)

    replace(original, add_batch)


@fault(
    "promise: nothing lost in the quiet",
    "tests/upper_tree/clients/test_tree_clients.py",
    "test_a_node_that_leaves_acknowledges_nothing_new",
)
def leaving_node_acknowledges() -> None:
    """A node that is leaving goes on acknowledging publications, though it may end before they are
    sent."""
    original = LocalClients.leave

    def leave(self: LocalClients) -> None:
        original(self)
        self._leaving = False

    replace(original, leave)


@fault(
    "promise: nothing lost in the quiet",
    "tests/canopy/cli/test_cli_demo_parts.py",
    "test_nothing_is_published_while_deliveries_wait_for_a_program",
)
def demo_publishes_ahead() -> None:
    """A demo publishes on while deliveries wait for its own subscribers."""

    def await_taken(clients: Sequence[ControlClient]) -> None:
        pass

    replace(publisher.await_taken, await_taken)


@fault(
    "promise: a program gets what it has room for, or hears of the gap",
    "tests/canopy/cli/test_cli_demo_parts.py",
    "test_nodes_sample_no_more_while_a_program_is_behind",
)
def demo_samples_at_programs_behind() -> None:
    """A demo's nodes go on publishing telemetry while a subscriber is behind."""

    def is_behind(client: ControlClient) -> bool:
        return False

    replace(publisher.is_behind, is_behind)


@fault(
    "promise: nothing waits for ever",
    "tests/upper_tree/publisher/test_tree_pending.py",
    "test_room_is_announced_also_if_the_window_became_larger_before_the_next_acceptance",
)
def room_forgotten_when_the_window_grows() -> None:
    """Publications that found no room do not hear of it if there is some before an acceptance."""
    original = PendingStore.accept

    def accept(
        self: PendingStore,
        host: NodeId,
        taken: Iterable[tuple[tuple[str, ...], tuple[int, ...]]],
    ) -> Acceptance:
        self._is_room_awaited = not self.has_room
        return original(self, host, taken)

    replace(PendingStore.accept, accept)
