"""Faults of what bounds a turn: much work at once keeps a node from everything else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bench.mutations.planting import fault, replace, replace_constant
from canopy.wire.control import command_batches, server
from canopy.wire.process import memory
from overlay.links import session
from overlay.machine import NodeId, Peer
from overlay.upper_tree.clients.clients import LocalClients
from overlay.upper_tree.clients.local_subscription import LocalSubscription
from overlay.upper_tree.delivery.held_deliveries import HeldNode
from overlay.upper_tree.delivery.holding import LEASE, Holding
from overlay.upper_tree.host.hosting import Hosting
from overlay.upper_tree.messages import Assign
from overlay.upper_tree.owner.host_supervisor import HostSupervisor
from overlay.upper_tree.owner.owned_tree import OwnedTree, OwnedTrees
from overlay.upper_tree.owner.rebalance import Rebalance
from overlay.upper_tree.owner.registrations.registration_ends import LeaseSweep, RegistrationEnds
from overlay.upper_tree.owner.registrations.registry import Registry
from overlay.upper_tree.publisher.pending_event import PendingPair
from overlay.upper_tree.publisher.route_queue import RouteQueue
from overlay.upper_tree.sliced_inbox import SlicedInbox
from overlay.upper_tree.subscriber.ended_registrations import EndedRegistrations, RegistrationKey
from overlay.upper_tree.subscriber.registrar import Registrar


@fault(
    "promise: bounded turns",
    "tests/upper_tree/subscriber/test_tree_registrar.py",
    "test_what_ends_together_is_asked_for_once_and_a_part_in_each_turn",
)
def ended_registrations_asked_again() -> None:
    """A subscriber that ends a registration goes through all that wait for an answer as well."""

    def take(self: EndedRegistrations, now: float, most: int) -> list[RegistrationKey]:
        self._new.update(dict.fromkeys(self._asked))
        self._asked.clear()
        return [self._new.popitem(last=False)[0] for _ in range(min(most, len(self._new)))]

    replace(EndedRegistrations.take, take)


@fault(
    "promise: bounded turns",
    "tests/links/test_links_silence.py",
    "test_much_on_a_silent_link_is_reported_in_parts_that_follow_each_other_soon",
)
def silent_link_reported_at_once() -> None:
    """All that waits on a silent link is sent another way in one turn."""
    replace_constant(session, "LARGEST_REPORT", 1 << 30)


@fault(
    "promise: bounded turns",
    "tests/upper_tree/clients/test_tree_clients.py",
    "test_the_subscriptions_of_a_program_that_goes_end_a_few_in_each_turn",
)
def program_ends_in_one_turn() -> None:
    """All subscriptions of a program that goes end in one turn of its node."""

    def _end_some(self: LocalClients) -> None:
        while self._ending:
            self._end(self._ending.popleft())

    replace(LocalClients._end_some, _end_some)


@fault(
    "promise: bounded turns",
    "tests/upper_tree/owner/test_tree_registry.py",
    "test_many_registrations_are_taken_a_few_in_each_turn_and_the_rest_waits_in_order",
)
def all_taken_in_one_turn() -> None:
    """An owner or a host takes all registrations in the turn in which they come."""

    def _continue(self: SlicedInbox) -> None:
        while self._waiting:
            sender, message, weight = self._waiting.popleft()
            self._weight -= weight
            self._handlers_of[type(message)](sender, message)

    replace(SlicedInbox._continue, _continue)


@fault(
    "promise: bounded turns",
    "tests/upper_tree/owner/test_tree_registry.py",
    "test_leases_that_lapse_together_end_a_part_in_each_turn",
)
def leases_end_in_one_turn() -> None:
    """All registrations whose leases have lapsed end in one turn of their owner."""
    original = RegistrationEnds.on_lease_sweep

    def on_lease_sweep(self: RegistrationEnds, timer: LeaseSweep) -> None:
        original(self, timer)
        while self._lapsed:
            original(self, timer)

    replace(original, on_lease_sweep)


@fault(
    "promise: bounded turns",
    "tests/canopy/wire/control/test_wire_control.py",
    "test_a_program_that_asks_very_much_at_once_lets_others_be_heard",
)
def all_commands_without_a_pause() -> None:
    """A node carries out all that a program has asked for before it serves any other program."""
    replace_constant(server, "TURNS_TOGETHER", 1 << 60)


@fault(
    "promise: bounded turns",
    "tests/canopy/wire/control/test_wire_control.py",
    "test_a_long_selector_is_compiled_in_steps_between_which_others_are_heard",
)
def long_selector_compiled_in_its_turn() -> None:
    """A node compiles a selector of any length in the turn in which it is subscribed."""

    async def compile_long(selector: str) -> None:
        """Leave it to the node."""

    replace(command_batches.compile_long, compile_long)


@fault(
    "promise: bounded turns",
    "tests/canopy/wire/process/test_wire_memory.py",
    "test_no_collection_looks_at_more_than_what_is_young",
)
def old_objects_collected_again() -> None:
    """Python's collector looks at all objects that are old, again and again."""
    replace(memory.freeze_survivors, lambda phase, info: None)


@fault(
    "bounded",
    "tests/canopy/wire/process/test_wire_garbage.py",
    "test_nothing_that_comes_and_goes_at_a_node_is_left_to_the_collector",
)
def ended_subscription_in_a_cycle() -> None:
    """A subscription that has ended refers to itself, so that it is never freed."""
    original = LocalClients._end

    def _end(self: LocalClients, mine: LocalSubscription) -> None:
        original(self, mine)
        cycle: list[object] = [mine]
        cycle.append(cycle)

    replace(original, _end)


PLANTING = (
    "promise: bounded turns",
    "tests/upper_tree/test_tree_slices.py",
    "test_a_selector_of_very_many_attributes_is_planted_with_work_in_proportion",
)


@fault(*PLANTING)
def all_trees_counted_for_each() -> None:
    """An owner that plants a tree counts the registrations of all trees to find its hosts."""
    original = OwnedTrees.loads

    def loads(self: OwnedTrees) -> Mapping[NodeId, int]:
        for attribute in self:
            self._loads.changed(attribute)
        return original(self)

    replace(original, loads)


@fault(*PLANTING)
def all_hosts_watched_for_each() -> None:
    """An owner that plants a tree collects the hosts of all trees."""

    def attend(self: HostSupervisor, owned: OwnedTree) -> None:
        self.watch()

    replace(HostSupervisor.attend, attend)


@fault(*PLANTING)
def all_sought_for_each_commit() -> None:
    """Whenever the log has more, an owner looks at all registrations that wait."""

    def _acknowledge_logged(self: Registry) -> None:
        self._acknowledge_all_due()

    replace(Registry._acknowledge_logged, _acknowledge_logged)


@fault(*PLANTING)
def all_trees_announced_for_each() -> None:
    """A host that is given a tree names all of its trees to its access points."""
    original = Hosting.on_assign

    def on_assign(self: Hosting, sender: Peer, message: Assign) -> None:
        original(self, sender, message)
        self.access_points.set_local(list(map(self._access_point, self.trees.values())))

    replace(original, on_assign)


@fault(*PLANTING)
def all_trees_end_in_one_turn() -> None:
    """An owner removes all trees without registrations in one turn."""
    original = Rebalance._scan_further

    def _scan_further(self: Rebalance) -> None:
        original(self)
        while self._unscanned:
            original(self)

    replace(original, _scan_further)


@fault(
    "promise: bounded turns",
    "tests/upper_tree/subscriber/test_tree_registrar.py",
    "test_very_many_that_are_registered_again_are_sent_a_part_in_each_turn",
)
def all_sent_in_one_turn() -> None:
    """A subscriber sends all registrations that its owner has lost in one turn."""
    original = Registrar._send_some

    def _send_some(self: Registrar) -> None:
        original(self)
        while self._waiting:
            original(self)

    replace(original, _send_some)


@fault(
    "promise: bounded turns",
    "tests/upper_tree/test_tree_slices.py",
    "test_very_many_events_that_waited_for_their_trees_are_sent_a_part_in_each_turn",
)
def all_routed_in_one_turn() -> None:
    """A publisher sends all that waited for a tree in the turn in which that is found."""

    def add(self: RouteQueue, pairs: Iterable[PendingPair], stale: bool = False) -> None:
        self._route(list(pairs), stale)

    replace(RouteQueue.add, add)


@fault(
    "promise: bounded turns",
    "tests/upper_tree/delivery/test_tree_holding.py",
    "test_very_much_that_is_given_up_is_traced_a_part_in_each_turn",
)
def all_given_up_in_one_turn() -> None:
    """A host gives up all that it held for a node out of reach in one turn."""

    def _give_up_some(self: Holding, over: Iterable[HeldNode]) -> None:
        for held in over:
            self._give_up_all(held, LEASE)

    replace(Holding._give_up_some, _give_up_some)
