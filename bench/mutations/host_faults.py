"""Faults at the hosts of attribute trees, and in what crosses regions."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace as changed

from bench.mutations.planting import fault, replace, replace_constant
from matching import Interval
from overlay.client import Event
from overlay.machine import Peer
from overlay.regions import distance
from overlay.upper_tree.delivery.delegation import Delegation
from overlay.upper_tree.delivery.fan_out import CopyBudget
from overlay.upper_tree.delivery.hold import AccessNodes, Holding
from overlay.upper_tree.host.assigned_trees import AssignedTrees
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.host.shard_gatherings import Choice, ShardGathering
from overlay.upper_tree.host.urgency import LatencyMap
from overlay.upper_tree.messages import (
    Accepted,
    Deliver,
    Visit,
)
from overlay.upper_tree.publisher import load_prediction

ACCESS_NODES = "tests/upper_tree/delivery/test_tree_access_nodes.py"


@fault(
    "D13",
    "tests/upper_tree/owner/test_tree_serving.py",
    "test_a_host_without_a_lease_gives_events_back",
)
def host_serves_without_lease() -> None:
    """A host serves a tree though its owner's lease has run out."""

    replace(AssignedTrees.has_lease, lambda self, tree: True)


@fault(
    "D14",
    "tests/upper_tree/host/test_tree_scheduler.py",
    "test_a_host_that_is_held_back_accepts_nothing_until_it_is_no_more",
)
def hosts_not_held_back() -> None:
    """A host goes on accepting events while the link to a subscriber carries less."""

    replace_constant(Holding, "holds_back", False)


@fault(
    "C11",
    "tests/upper_tree/delivery/test_tree_access_nodes.py",
    "test_with_more_regions_than_copies_each_is_still_entered_once",
)
def delegate_keeps_share() -> None:
    """A delegate does not pass on the deliveries of its share."""
    original = Delegation._pass_on

    def _pass_on(
        self: Delegation, message: Deliver, hop: int, host: Peer | None, traced: bool = True
    ) -> None:
        original(self, changed(message, onward=((),) * len(message.onward)), hop, host, traced)

    replace(original, _pass_on)


@fault(
    "C11",
    "tests/upper_tree/delivery/test_tree_deliveries.py",
    "test_copies_are_counted_and_where_they_are_too_many_delegates_help",
)
def host_sends_all_copies() -> None:
    """A host sends all copies of an event itself, however many, and uses no delegates."""

    replace(CopyBudget.room, lambda self, event: 1_000_000)


@fault(
    "D7",
    "tests/upper_tree/delivery/test_tree_holding.py",
    "test_what_finds_no_room_on_a_link_is_not_lost",
)
def dropped_on_link_unheeded() -> None:
    """A delivery that finds no room on a link is lost."""

    replace(Delegation.on_message_dropped, lambda self, event: None)


@fault(
    "D12",
    "tests/upper_tree/hot_values/test_tree_gathering.py",
    "test_every_shard_matches_its_registrations_and_the_publisher_hears_when_all_have",
)
def event_accepted_before_all_shards_matched_it() -> None:
    """A gatherer accepts an event as soon as it has asked the other shards."""
    original = ShardGathering.begin

    def begin(
        self: ShardGathering,
        tree: HostedTree,
        visit: Visit,
        value: Interval,
        events: Sequence[Event],
        choice: Choice,
    ) -> None:
        original(self, tree, visit, value, events, choice)
        numbers = tuple([event.sequence for event in events])
        taken = (((tree.attribute,), numbers),)
        self.port.send(visit.origin, Accepted(events[0].incarnation, taken, ()))

    replace(original, begin)


@fault("M1", ACCESS_NODES, "test_an_event_crosses_once_into_each_interested_region")
def copy_for_each_node_of_a_region() -> None:
    """A host sends every recipient in another region a copy of its own."""

    replace(AccessNodes.divide, lambda self, recipients: (list(recipients), []))


@fault("M1", ACCESS_NODES, "test_when_the_access_node_dies_no_other_node_loses_anything")
def share_of_a_lost_access_node_forgotten() -> None:
    """What an access node, or any delegate, had to pass on is dropped when its link is lost."""

    replace(Delegation._spread_again, lambda self, message: None)


@fault(
    "M2",
    "tests/upper_tree/owner/test_tree_regions.py",
    "test_a_node_that_is_asked_for_a_region_names_those_near_it_first",
)
def redirects_ignore_regions() -> None:
    """A node names other nodes in any order, whatever the region that it is asked for."""

    def anywhere(one: str, other: str) -> int:
        return 0

    replace(distance, anywhere)


@fault(
    "P6",
    "tests/upper_tree/host/test_tree_urgency.py",
    "test_a_types_priority_is_the_mean_of_its_subscribers_levels",
)
def latency_levels_add_up() -> None:
    """A type is the more urgent the more subscribers it has, whatever their levels."""
    original = LatencyMap.priority

    def priority(self: LatencyMap, event_type: object) -> float | None:
        found = original(self, event_type)
        if found is None or not isinstance(event_type, str):
            return found
        return found * self._named.get(event_type, (0, 1))[1]

    replace(original, priority)


@fault(
    "P7",
    "tests/upper_tree/publisher/test_tree_load_prediction.py",
    "test_where_all_are_behind_the_smallest_time_wins_not_the_smallest_queue",
)
def shortest_queue_is_chosen() -> None:
    """A publisher takes the host at which the fewest events wait, however slow that is."""

    replace(load_prediction.predicted_time, lambda queue, service: queue)
