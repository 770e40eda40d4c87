"""Faults of the answers to programs: *why*, dry runs and incidents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace as changed

from bench.mutations.planting import fault, replace
from matching import Value
from overlay.client import Event
from overlay.incidents import IncidentLog
from overlay.links.events import LinkDown
from overlay.upper_tree.clients.dry_run import DryRuns, HostsAgain, question
from overlay.upper_tree.clients.explaining import trees_for
from overlay.upper_tree.clients.local_subscription import LocalSubscription
from overlay.upper_tree.inspection_messages import AskMatches
from overlay.upper_tree.messages import EVENT_TREE
from overlay.upper_tree.subscriber.receiver import Receiver


@fault(
    "C5",
    "tests/overlay/questions/test_overlay_dry_run.py",
    "test_it_names_exactly_the_subscriptions_that_then_get_the_event",
)
def dry_run_leaves_out_the_event_tree() -> None:
    """A dry run does not ask for registrations without a pivot."""
    original = question

    def question_(
        number: int,
        events: Sequence[dict[str, Value | None]],
        numbers: Sequence[int],
        trees_of: Mapping[int, Sequence[str]],
    ) -> AskMatches:
        asked = original(number, events, numbers, trees_of)
        trees = tuple(tree for tree in asked.trees if tree[0] != EVENT_TREE)
        return changed(asked, trees=trees)

    replace(original, question_)


@fault(
    "C6",
    "tests/overlay/questions/test_overlay_dry_run.py",
    "test_of_a_silent_host_the_next_replica_is_asked_and_without_one_it_is_named",
)
def dry_run_asks_one_replica() -> None:
    """A dry run waits for the host that it has asked first, however silent that is."""

    def on_hosts_again(self: DryRuns, timer: HostsAgain) -> None:
        pass

    replace(DryRuns.on_hosts_again, on_hosts_again)


@fault(
    "P8",
    "tests/overlay/questions/test_overlay_incidents.py",
    "test_who_said_that_it_leaves_is_not_lost_when_it_is_dialled_afterwards",
)
def leaving_nodes_are_lost() -> None:
    """A node that said that it leaves counts as lost when a node dials it afterwards."""
    original = IncidentLog.on_link_down

    def on_link_down(self: IncidentLog, event: LinkDown) -> None:
        self._left.clear()
        original(self, event)

    replace(original, on_link_down)


@fault(
    "why: true answers",
    "tests/upper_tree/clients/test_tree_why.py",
    "test_why_names_of_each_subscription_the_tree_that_it_is_registered_in",
)
def why_names_one_tree_for_all() -> None:
    """`canopy why` names the tree that an event came through as that of each subscription."""

    def nothing_known(mine: LocalSubscription, event: Event) -> list[str]:
        return []

    replace(trees_for, nothing_known)


@fault(
    "why: true answers",
    "tests/upper_tree/clients/test_tree_clients.py",
    "test_a_subscription_is_known_by_the_pivot_that_its_owner_has_chosen",
)
def chosen_pivot_unnoticed() -> None:
    """A node goes on to say that a subscription is registered under the pivot that its owner has
    changed."""

    def move(self: Receiver, subscription: str, pivots: Sequence[str]) -> None:
        return

    replace(Receiver.move, move)
