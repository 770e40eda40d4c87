"""Faults of the hosts: what they serve and match, and the copies that they send."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace as changed

from bench.mutations.planting import fault, replace
from matching import Cut, Interval
from overlay.client import Event
from overlay.links.events import MessageDropped
from overlay.machine import NodeId, Peer
from overlay.upper_tree.delivery.delegation import Delegation
from overlay.upper_tree.delivery.fan_out import CopyBudget
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.host.hosting import Hosting
from overlay.upper_tree.host.queued_events import QueuedEvents
from overlay.upper_tree.host.visit_scheduler import VisitScheduler
from overlay.upper_tree.host.visiting import VisitHandler
from overlay.upper_tree.messages import (
    Accepted,
    Assign,
    Assigned,
    Deliver,
    Entry,
    Visit,
)
from overlay.upper_tree.owner.rebalance import Rebalance
from overlay.upper_tree.publisher.publisher import Publisher
from overlay.upper_tree.publisher.replicas import ReplicaSelector
from overlay.upper_tree.visits import select_events

OUT_OF_REACH = "tests/upper_tree/delivery/test_tree_out_of_reach.py"


@fault("C6")
def host_keeps_first_map() -> None:
    """A host ignores every partition map after its first."""
    original = Hosting.on_assign

    def on_assign(self: Hosting, sender: Peer, message: Assign) -> None:
        tree = self.trees.get(message.attribute)
        if tree is None or tree.version == (0, 0) or not message.intervals:
            original(self, sender, message)
        elif not self._is_fenced(message.attribute, message.version[0]):
            self.port.send(sender, Assigned(message.attribute, message.version))

    replace(original, on_assign)


@fault(
    "C6",
    "tests/upper_tree/owner/test_tree_silent_hosts.py",
    "test_another_host_serves_beside_a_silent_one_with_all_registrations",
)
def silent_hosts_not_relieved() -> None:
    """Virtual nodes of a silent host wait until its link is given up."""

    def _relief(self: Rebalance, entry: Entry, hosts: Sequence[Peer]) -> Peer | None:
        return None

    replace(Rebalance._relief, _relief)


@fault(
    "C6",
    "tests/overlay/test_overlay_replicas.py",
    "test_events_for_virtual_nodes_of_one_host_that_stands_still_are_late_by_two_seconds",
)
def silent_hosts_not_asked_about() -> None:
    """A publisher whose hosts of a tree are all silent does not ask whether there is another."""

    def _ask_anew(self: Publisher, attributes: Iterable[str]) -> None:
        self._ask_anew_at = float("inf")

    replace(Publisher._ask_anew, _ask_anew)


@fault("C6")
def host_keeps_ended_registrations() -> None:
    """A host keeps registrations that their subscriber has ended."""

    def uninstall(self: HostedTree, id_: str) -> None:
        pass

    replace(HostedTree.uninstall, uninstall)


@fault("C6")
def host_accepts_foreign_events() -> None:
    """A host accepts events for a tree that it does not serve and drops them."""

    def _give_back(self: VisitHandler, attribute: str, sequences: list[int]) -> None:
        incarnation = self.visit.events[0].incarnation if self.visit.events else 0
        accepted = Accepted(incarnation, (((attribute,), tuple(sequences)),), ())
        self.port.send(self.visit.origin, accepted)
        self.port.count("visits_given_back", len(sequences))

    replace(VisitHandler._give_back, _give_back)


@fault("C6")
def interval_without_lower_end() -> None:
    """A host does not count an interval's lower end as part of it."""
    original = HostedTree.span

    def span(self: HostedTree, spot: Cut) -> Interval | None:
        found = original(self, spot)
        return None if found is not None and found.lo == spot else found

    replace(original, span)


@fault(
    "C6",
    "tests/upper_tree/owner/test_tree_serving.py",
    "test_a_host_without_a_lease_gives_events_back",
)
def host_serves_without_lease() -> None:
    """A host serves a tree though its owner's lease has run out."""

    def has_lease(self: Hosting, tree: HostedTree) -> bool:
        return True

    replace(Hosting.has_lease, has_lease)


@fault(
    "M3",
    OUT_OF_REACH,
    "test_publishers_are_slowed_down_to_what_a_subscriber_s_link_carries",
)
def hosts_not_held_back() -> None:
    """A host goes on accepting events while the link to a subscriber carries less."""

    original = VisitScheduler.take

    def take(self: VisitScheduler, visit: Visit) -> None:
        self.is_held_back = bool  # never
        original(self, visit)

    replace(original, take)


@fault("C11")
def delegate_keeps_share() -> None:
    """A delegate does not pass on the deliveries of its share."""
    original = Delegation._pass_on

    def _pass_on(
        self: Delegation, message: Deliver, hop: int, host: Peer | None, traced: bool = True
    ) -> None:
        original(self, changed(message, onward=((),) * len(message.onward)), hop, host, traced)

    replace(original, _pass_on)


@fault("C11")
def host_sends_all_copies() -> None:
    """A host sends all copies of an event itself, however many, and uses no delegates."""

    def room(self: CopyBudget, event: Event) -> int:
        return 1_000_000

    replace(CopyBudget.room, room)


@fault("C11")
def copies_limited_per_handling() -> None:
    """A node limits the copies of each handling of an event and not those of all together."""

    def spend(self: CopyBudget, events: Sequence[Event], copies: int = 1) -> None:
        pass

    replace(CopyBudget.spend, spend)


@fault(
    "promise: what is given up is reported",
    "tests/upper_tree/delivery/test_tree_holding.py",
    "test_what_finds_no_room_on_a_link_is_not_lost",
)
def dropped_on_link_unheeded() -> None:
    """A delivery that finds no room on a link is lost."""

    def on_message_dropped(self: Delegation, event: MessageDropped) -> None:
        pass

    replace(Delegation.on_message_dropped, on_message_dropped)


@fault(
    "P7",
    "tests/upper_tree/host/test_tree_queued_events.py",
    "test_an_event_that_waits_is_not_queued_again",
)
def waiting_events_queued_again() -> None:
    """A host that is behind queues an event as often as it comes."""

    def without_repeated(self: QueuedEvents, visit: Visit) -> Visit:
        return visit

    replace(QueuedEvents.without_repeated, without_repeated)


@fault(
    "P7",
    "tests/upper_tree/host/test_tree_queued_events.py",
    "test_events_are_the_same_in_all_that_they_have_and_for_the_same_trees",
)
def repeated_events_known_by_number() -> None:
    """A host drops what has the number of an event that waits, for whatever trees."""

    def without_repeated(self: QueuedEvents, visit: Visit) -> Visit:
        waiting = self._waiting.get(self._key(visit))
        known = waiting.events if waiting is not None else {}
        new = [at for at, each in enumerate(visit.events) if each.sequence not in known]
        return select_events(visit, new)

    replace(QueuedEvents.without_repeated, without_repeated)


@fault(
    "P7",
    "tests/upper_tree/host/test_tree_queued_events.py",
    "test_a_publisher_of_which_something_waits_hears_so",
)
def waiting_publishers_not_told() -> None:
    """A host says nothing to publishers whose events wait there."""

    def _tell_waiting(self: VisitScheduler) -> None:
        pass

    replace(VisitScheduler._tell_waiting, _tell_waiting)


@fault(
    "P7",
    "tests/upper_tree/publisher/test_tree_replicas.py",
    "test_what_waits_at_a_host_that_works_is_not_sent_again",
)
def late_hosts_asked_again() -> None:
    """A publisher sends again what waits for `tree.retry`, however long events take at the host."""

    def late_after(self: ReplicaSelector, node: NodeId) -> float:
        return self.timeout_most

    replace(ReplicaSelector.late_after, late_after)
