"""Faults of hot values: how they are cut into shards, and how an event meets all of these."""

from __future__ import annotations

from collections.abc import Sequence

from bench.mutations.planting import fault, replace
from matching import Interval
from overlay.client import Event
from overlay.links.events import LinkDown
from overlay.upper_tree.host.gathering import Choice, GatheringDue, ShardGathering
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.host.visiting import VisitHandler
from overlay.upper_tree.messages import Accepted, Entry, Registration, Visit
from overlay.upper_tree.owner import placed_node
from overlay.upper_tree.owner.placed_node import PlacedNode
from overlay.upper_tree.owner.rebalance import Rebalance
from overlay.upper_tree.owner.reported_loads import ReportedLoads
from overlay.upper_tree.partition import PartitionMap

GATHERING = "tests/upper_tree/hot_values/test_tree_gathering.py"
SHARDS = "tests/upper_tree/hot_values/test_tree_shards.py"


@fault(
    "C6",
    GATHERING,
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


@fault("C6", GATHERING, "test_each_event_meets_each_matching_registration_once")
def shard_host_matches_all_that_it_has() -> None:
    """A host that is asked for one shard of a value matches its other shards as well."""

    def matches(self: VisitHandler, attribute: str, event: Event, id_: str) -> bool:
        return True

    replace(VisitHandler._matches, matches)


@fault("C6", GATHERING, "test_another_replica_of_a_shard_is_asked_when_the_first_is_lost")
def lost_shard_host_not_replaced() -> None:
    """A gatherer goes on waiting for a host whose link is lost."""

    def on_link_down(self: ShardGathering, event: LinkDown) -> None:
        pass

    replace(ShardGathering.on_link_down, on_link_down)


@fault("C6", GATHERING, "test_another_replica_of_a_shard_is_asked_when_the_first_is_silent")
def silent_shard_host_not_replaced() -> None:
    """A gatherer goes on waiting for a host that does not answer."""

    def on_gathering_due(self: ShardGathering, timer: GatheringDue) -> None:
        self._check.rang()

    replace(ShardGathering.on_gathering_due, on_gathering_due)


@fault("I7", SHARDS, "test_a_registration_of_a_hot_value_goes_to_the_hosts_of_its_shard_alone")
def registration_installed_at_first_shard() -> None:
    """An owner gives a registration to the hosts of the first shard of its value only."""
    original = PartitionMap.serving

    def serving(self: PartitionMap, registration: Registration) -> list[Entry]:
        return self.overlapping(registration.interval)[:1]

    replace(original, serving)


@fault(
    "C6",
    SHARDS,
    "test_a_hot_value_whose_events_take_long_is_cut_into_shards_on_hosts_of_their_own",
)
def shards_of_a_value_share_a_host() -> None:
    """Shards of one value are placed together, as neighbours are."""

    def is_hot_shard(node: PlacedNode) -> bool:
        return False

    replace(placed_node.is_hot_shard, is_hot_shard)


@fault("C6", SHARDS, "test_a_hot_value_with_many_cheap_events_is_replicated")
def busy_value_taken_for_slow() -> None:
    """A value with many events is cut into shards, though each of them takes next to nothing."""

    def event_seconds(self: ReportedLoads, attribute: str, interval: Interval) -> float:
        return 0.1

    replace(ReportedLoads.event_seconds, event_seconds)


@fault("C6", SHARDS, "test_shards_are_merged_when_no_events_come")
def shards_never_merged() -> None:
    """Shards of a value stay when no events come any more."""
    original = ReportedLoads.recent

    def recent(
        self: ReportedLoads, attribute: str, interval: Interval, now: float
    ) -> tuple[float, float]:
        busy, alone = original(self, attribute, interval, now)
        return (max(busy, 0.05), alone) if interval.is_shard() else (busy, alone)

    replace(original, recent)


@fault("C6", SHARDS, "test_other_nodes_are_asked_to_host_shards_though_no_host_is_busy")
def slow_value_gets_no_hosts() -> None:
    """No other node is asked to host for a value whose events take long, unless a host is busy."""

    def wanted(self: Rebalance, nodes: Sequence[PlacedNode]) -> int:
        return 0

    replace(Rebalance._wanted_shards, wanted)
