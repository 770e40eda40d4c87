"""Faults in what goes by regions and tiers (M1, M2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace as changed
from trio import SocketListener

from bench.mutations.planting import fault, replace
from canopy.wire.config import NodeConfig
from canopy.wire.process.listening import listen
from overlay.lower_random.messages import Neighbour
from overlay.lower_random.view import TieredNodes, View
from overlay.machine import NodeId, Peer
from overlay.regions import distance, entered
from overlay.upper_tree.delivery.access_nodes import AccessNodes
from overlay.upper_tree.delivery.delegation import Delegated, Delegation
from overlay.upper_tree.delivery.fan_out import Part, share_out, spread
from overlay.upper_tree.delivery.recipients import Recipient
from overlay.upper_tree.delivery.relays import Relays
from overlay.upper_tree.messages import Deliver
from overlay.upper_tree.owner.host_pool import HostPool
from overlay.upper_tree.owner.placement import RunAssignment
from overlay.upper_tree.owner.tree_log import Tree
from overlay.upper_tree.partition import ranked

HOSTS = "tests/upper_tree/owner/test_tree_regions.py"
ACCESS = "tests/upper_tree/delivery/test_tree_access_nodes.py"


@fault("M1", ACCESS, "test_an_event_crosses_once_into_each_interested_region")
def copy_for_each_node_of_a_region() -> None:
    """A host sends every recipient in another region a copy of its own."""

    def divide(
        self: AccessNodes, recipients: Sequence[Recipient]
    ) -> tuple[list[Recipient], list[Part[Recipient]]]:
        return list(recipients), []

    replace(AccessNodes.divide, divide)


@fault("M1", ACCESS, "test_with_more_regions_than_copies_each_is_still_entered_once")
def regions_shared_out_with_what_is_near() -> None:
    """Delegates in other regions are handed recipients of the sender's own region."""

    def shared(
        near: Sequence[Recipient], far: Sequence[Part[Recipient]], most: int
    ) -> list[Part[Recipient]]:
        return spread([*(one for access, share in far for one in (access, *share)), *near], most)

    replace(share_out, shared)


@fault("M1", ACCESS, "test_an_event_crosses_once_into_each_interested_region")
def access_node_passes_nothing_on() -> None:
    """A node of another region that gets an event with a share keeps it for itself."""
    original = Delegation.on_delegated

    def on_delegated(self: Delegation, event: Delegated) -> None:
        if event.sender.region == self.port.me.region:
            original(self, event)

    replace(original, on_delegated)


@fault("M1", ACCESS, "test_an_event_crosses_once_into_each_interested_region")
def own_region_by_way_of_another() -> None:
    """A node hands the recipients of its own region to an access node elsewhere, so that the event
    comes back."""
    original = AccessNodes.divide

    def divide(
        self: AccessNodes, recipients: Sequence[Recipient]
    ) -> tuple[list[Recipient], list[Part[Recipient]]]:
        near, far = original(self, recipients)
        if not far:
            return near, far
        (access, share), *others = far
        return [], [(access, (*share, *near)), *others]

    replace(original, divide)


@fault("M1", ACCESS, "test_what_a_delegate_cannot_bring_stays_behind_the_border")
def delegates_give_back_over_borders() -> None:
    """A delegate gives back to its host whatever it cannot bring, wherever the host is."""

    def is_nearer(self: Relays, one: Peer, other: Peer, to: Peer) -> bool:
        return False

    replace(Relays.is_nearer, is_nearer)


@fault("M1", ACCESS, "test_each_level_of_a_path_is_entered_once_on_the_way_down")
def levels_of_a_region_ignored() -> None:
    """A region is one name: parts of one region are entered from everywhere, each by itself."""

    def crossed(mine: str, theirs: str) -> str:
        return "" if mine == theirs else theirs

    replace(entered, crossed)


@fault("M1", ACCESS, "test_when_the_access_node_dies_no_other_node_loses_anything")
def share_of_a_lost_access_node_forgotten() -> None:
    """What an access node, or any delegate, had to pass on is dropped when its link is lost."""

    def _spread_anew(self: Delegation, message: Deliver) -> None:
        pass

    replace(Delegation._spread_anew, _spread_anew)


@fault("M1", ACCESS, "test_while_access_nodes_are_silent_more_are_tried_at_once")
def silent_access_nodes_chosen_again() -> None:
    """A sender does not note whose links are silent when it chooses access nodes."""

    def suspected(self: Relays) -> list[Peer]:
        return []

    def is_silent(self: Relays, node: NodeId) -> bool:
        return False

    replace(Relays.suspected, suspected)
    replace(Relays.is_silent, is_silent)


@fault("M1", ACCESS, "test_a_relay_adds_no_border_to_the_way")
def relays_anywhere() -> None:
    """A delivery around a silent link goes by any other node, wherever that is."""

    def _borders(self: Relays, over: str, to: str) -> int:
        return 0

    replace(Relays._borders, _borders)


@fault("M1", ACCESS, "test_what_enters_a_region_enters_it_at_its_highest_tier")
def tiers_ignored() -> None:
    """An access node is chosen whatever its tier."""

    def _rank(self: AccessNodes, recipient: Recipient) -> tuple[bool, int, bytes]:
        return self._relays.is_silent(recipient.peer.id), 0, self._weight(recipient.peer.id)

    replace(AccessNodes._rank, _rank)


@fault(
    "M1",
    "tests/lower_random/test_lower_view.py",
    "test_views_of_regions_hold_together_before_anything_is_repaired",
)
def views_keep_near_nodes_only() -> None:
    """A node of its own region takes any place in a view, and others get none for it."""

    def _victim(self: View, entry: Neighbour, replaceable: list[NodeId]) -> NodeId | None:
        far = [node for node, each in self._entries.items() if not self._is_near(each.peer)]
        if self._is_near(entry.peer) and far:
            return far[0]
        kind = self._is_near(entry.peer)
        return next(
            (
                node
                for node in replaceable
                if node in self._entries and self._is_near(self._entries[node].peer) is kind
            ),
            None,
        )

    replace(View._victim, _victim)


@fault(
    "M1",
    "tests/upper_tree/publisher/test_tree_replicas.py",
    "test_a_publisher_takes_the_nearest_host_and_another_where_it_is_silent",
)
def nearest_replica_not_preferred() -> None:
    """A publisher visits any replica of a virtual node, wherever it is."""

    def anywhere(me: NodeId, hosts: Sequence[Peer], region: str = "") -> list[Peer]:
        return original(me, hosts)

    original = ranked
    replace(ranked, anywhere)


@fault("M1", HOSTS, "test_each_tree_has_a_host_in_each_wanted_region_that_has_one")
def regions_get_no_hosts() -> None:
    """Plans place virtual nodes without regard to regions."""

    def _cover_regions(self: RunAssignment) -> None:
        pass

    replace(RunAssignment._cover_regions, _cover_regions)


@fault(
    "M1",
    "tests/bench/experiments/test_sim_regions.py",
    "test_events_cross_once_per_interested_region_and_not_at_all_at_home",
)
def no_host_is_looked_for_in_a_region() -> None:
    """Only members of its cluster host a tree, in whatever regions they are."""

    def cover(
        self: HostPool, regions: Sequence[str], lacking: Sequence[str], preferred: Sequence[Peer]
    ) -> None:
        pass

    replace(HostPool.cover, cover)


@fault("M1", HOSTS, "test_interest_is_that_of_the_registrations_there")
def ended_registrations_count_as_interest() -> None:
    """Registrations that have ended count for their region."""
    original = Tree.remove

    def remove(self: Tree, ids: Iterable[str]) -> None:
        before = self.interest.copy()
        original(self, ids)
        self.interest = before

    replace(original, remove)


@fault(
    "M2",
    "tests/lower_random/test_lower_tiers.py",
    "test_loads_travel_with_the_view_and_idle_nodes_that_host_little_come_first",
)
def load_not_gossiped() -> None:
    """A node names itself to others as one that hosts nothing."""
    original = View._parts

    def _parts(self: View, mine: list[Neighbour]) -> Any:
        myself, *others = original(self, mine)[0]
        return (changed(myself, load=0), *others), *original(self, mine)[1:]

    replace(original, _parts)


@fault(
    "M2",
    "tests/canopy/wire/process/test_wire_process.py",
    "test_a_node_names_its_region_and_tier_with_its_address",
)
def region_not_announced() -> None:
    """A process does not tell others the region and the tier that it is configured with."""
    original = listen

    async def nowhere(config: NodeConfig, node: str) -> tuple[list[SocketListener], Peer]:
        listeners, me = await original(config, node)
        return listeners, Peer(me.id, me.address)

    replace(listen, nowhere)


@fault("M2", HOSTS, "test_a_node_that_is_asked_for_a_region_names_those_near_it_first")
def redirects_ignore_regions() -> None:
    """A node names other nodes in any order, whatever the region that it is asked for."""

    def anywhere(one: str, other: str) -> int:
        return 0

    replace(distance, anywhere)


@fault("M2", "tests/lower_random/test_lower_tiers.py", "test_one_that_is_dead_is_forgotten")
def dead_nodes_keep_their_tier() -> None:
    """Nodes with a tier are remembered after contact with them has failed."""

    def forget(self: TieredNodes, node: NodeId) -> None:
        pass

    replace(TieredNodes.forget, forget)
