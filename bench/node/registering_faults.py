"""Faults of what is done once for many registrations: shared constraints, one look at an owner or
at a partition map, short ways for subscriptions of one conjunction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace as changed

from bench.mutations.planting import fault, replace
from matching import Interval, Predicate
from matching.constraint import Constraint, comparison_intervals, plain_constraint
from matching.engine.codes import is_common
from matching.selector.expression import Attribute, Between, Comparison, Expression, Literal
from overlay.machine import NodeId, Peer
from overlay.upper_tree.messages import Register, Registration
from overlay.upper_tree.owner.owned_tree import OwnedTree
from overlay.upper_tree.owner.registrations.registry import Registry
from overlay.upper_tree.partition import PartitionMap
from overlay.upper_tree.pivots import _by_hash
from overlay.upper_tree.subscriber.local_registrations import LocalRegistration
from overlay.upper_tree.subscriber.publication_order import Ways, ways_of
from overlay.upper_tree.subscriber.receiver import Receiver
from overlay.upper_tree.subscriber.registrar import Registrar

ENGINE = "tests/matching/test_matching_engine.py"
REGISTRAR = "tests/upper_tree/subscriber/test_tree_registrar.py"


@fault("promise: exact matching", ENGINE, "test_what_selectors_share_has_the_codes_of_each_engine")
def registering_shares_codes_of_strings() -> None:
    """Engines share the codes of strings, though each has a dictionary of its own."""

    def every(interval: Interval) -> bool:
        return True

    replace(is_common, every)


@fault("promise: exact matching", ENGINE, "test_only_equal_comparisons_share_a_constraint")
def registering_shares_constraints_by_value() -> None:
    """Comparisons share a constraint if Python takes their constants for equal, as 1 and TRUE."""
    original = plain_constraint
    known: dict[tuple[str, str, object], Constraint] = {}

    def shared(atom: Expression) -> Constraint | None:
        found = original(atom)
        if found is None or not isinstance(atom, Comparison) or not isinstance(atom.right, Literal):
            return found
        return known.setdefault((atom.op, found.attribute, atom.right.value), found)

    replace(plain_constraint, shared)


@fault("promise: exact matching", ENGINE, "test_only_equal_comparisons_share_a_constraint")
def registering_takes_between_either_way() -> None:
    """BETWEEN with its ends the wrong way round lets through what lies between them."""
    original = plain_constraint

    def either(atom: Expression) -> Constraint | None:
        if isinstance(atom, Between) and isinstance(atom.operand, Attribute):
            low, high = atom.low, atom.high
            if isinstance(low, Literal) and isinstance(high, Literal) and low.kind == high.kind:
                first, last = sorted([low, high], key=lambda end: end.value)
                (left,), (right,) = (
                    comparison_intervals(">=", first.value),
                    comparison_intervals("<=", last.value),
                )
                return Constraint(atom.operand.name, (atom,), (Interval(left.lo, right.hi),), True)
        return original(atom)

    replace(plain_constraint, either)


@fault(
    "C6",
    "tests/upper_tree/owner/test_tree_registry_batches.py",
    "test_what_is_refused_of_a_batch_does_not_hold_up_the_rest",
)
def registering_asks_once_for_a_message() -> None:
    """An owner takes a message for refused or accepted as its first registration is."""
    original = Registry.on_register

    def on_register(self: Registry, sender: Peer, message: Register) -> None:
        first = self._owner.accepts_registrations(message.registrations[0].attribute)
        asked = self._owner.accepts_registrations

        def accepts(attribute: str) -> bool:
            return first

        self._owner.accepts_registrations = accepts  # type: ignore[method-assign]
        original(self, sender, message)
        self._owner.accepts_registrations = asked  # type: ignore[method-assign]

    replace(Registry.on_register, on_register)


@fault(
    "C6",
    "tests/upper_tree/owner/test_tree_steps.py",
    "test_registrations_during_a_change_wait_for_the_hosts_of_both_maps",
)
def registering_ignores_the_next_map() -> None:
    """A registration that comes during a change is installed at the hosts of the present map."""

    def hosts_for(self: OwnedTree, registration: Registration) -> Mapping[NodeId, Peer]:
        return self.tree.map.hosts_of(registration)

    replace(OwnedTree.hosts_for, hosts_for)


@fault(
    "C6",
    "tests/upper_tree/test_tree_partition.py",
    "test_the_hosts_of_a_registration_serve_the_virtual_nodes_in_which_it_lies",
)
def registering_takes_all_hosts() -> None:
    """A registration goes to all hosts of its tree, as if the tree were never cut."""

    def hosts_of(self: PartitionMap, registration: Registration) -> Mapping[NodeId, Peer]:
        return self._hosts

    replace(PartitionMap.hosts_of, hosts_of)


@fault(
    "C9",
    "tests/upper_tree/owner/test_tree_pivots.py",
    "test_the_order_of_the_pivots_does_not_matter",
)
def registering_takes_first_of_equal_pivots() -> None:
    """Of pivots with equal traffic the first is taken, in whatever order they come."""

    def equal(pivot: tuple[str, Interval]) -> str:
        return ""

    replace(_by_hash, equal)


@fault(
    "C9",
    "tests/upper_tree/clients/test_tree_clients.py",
    "test_a_subscription_is_known_by_the_pivot_that_its_owner_has_chosen",
)
def registering_ignores_moved_pivots() -> None:
    """A subscriber's node keeps the pivots that it chose though an owner knew better."""
    original = Receiver.move

    def move(
        self: Receiver, subscription: str, predicate: Predicate, pivots: Sequence[str]
    ) -> None:
        if subscription not in self.pivots:
            original(self, subscription, predicate, pivots)

    replace(Receiver.move, move)


@fault("C8", REGISTRAR, "test_the_trees_of_a_subscription_are_told_for_each_conjunction")
def registering_tells_first_tree_only() -> None:
    """Of a subscription with one conjunction one tree is told, however many it is counted in."""
    original = Registrar.trees_of

    def trees_of(
        self: Registrar, subscription: str, conjunctions: int
    ) -> tuple[tuple[str, ...], ...]:
        found = original(self, subscription, conjunctions)
        return (found[0][:1],) if conjunctions == 1 else found

    replace(Registrar.trees_of, trees_of)


@fault("C9", REGISTRAR, "test_each_registration_has_the_text_of_its_own_conjunction")
def registering_whole_selectors() -> None:
    """Each conjunction of a subscription is registered with the whole selector."""
    original = Registrar.plan

    def plan(
        self: Registrar, subscription: str, predicate: Predicate, level: int = 0
    ) -> list[LocalRegistration]:
        planned = original(self, subscription, predicate, level)
        for local in planned:
            local.registration = changed(local.registration, selector=predicate.text)
        return planned

    replace(Registrar.plan, plan)


@fault(
    "promise: order",
    "tests/upper_tree/subscriber/test_tree_publication_order.py",
    "test_what_a_subscription_needs_of_its_one_tree_holds_all_conjunctions",
)
def registering_orders_first_conjunction_only() -> None:
    """Of a subscription's conjunctions in one tree, events of the first alone wait for others."""
    original = ways_of

    def first_only(predicate: Predicate, trees: Sequence[str]) -> Ways:
        return original(Predicate.of(predicate.conjunctions[0]), trees[:1])

    replace(ways_of, first_only)
