"""Faults on the way of an event: publisher, host, delivery, subscriber."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace as changed

from bench.mutations.planting import fault, replace, replaced
from canopy.cli.demo import publisher
from canopy.client.blocking import ControlClient
from matching import Cut, Index, Interval, Value
from overlay.chord.events import Elected
from overlay.chord.keys import attribute_key
from overlay.client import Delivery, Event
from overlay.incidents import IncidentLog
from overlay.links.events import LinkDown, LinkUp, LocalStall, MessageDropped
from overlay.lower_random.events import WalkFailed
from overlay.machine import NodeId, Peer
from overlay.upper_tree.clients.clients import LocalClients
from overlay.upper_tree.clients.dry_run import AskAgain, DryRuns, question
from overlay.upper_tree.clients.explaining import trees_for
from overlay.upper_tree.clients.gap_reports import GapOver, GapReports
from overlay.upper_tree.clients.local_subscription import LocalSubscription
from overlay.upper_tree.delivery.delegation import Delegation
from overlay.upper_tree.delivery.event_counts import EventCounts, EventSource
from overlay.upper_tree.delivery.fan_out import CopyBudget
from overlay.upper_tree.delivery.gap_notices import GapNotices, PendingNotice
from overlay.upper_tree.delivery.held_deliveries import HeldDeliveries, HeldNode
from overlay.upper_tree.delivery.holding import Holding
from overlay.upper_tree.events import MatchingInterrupted, TreeAbsent
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.host.hosting import Hosting
from overlay.upper_tree.host.visit_scheduler import VisitScheduler
from overlay.upper_tree.host.visiting import VisitHandler
from overlay.upper_tree.messages import (
    EVENT_TREE,
    Accepted,
    AskMatches,
    Assign,
    Assigned,
    Deliver,
    Visit,
)
from overlay.upper_tree.owner.registry import Registry
from overlay.upper_tree.publisher.pending_event import PendingPair
from overlay.upper_tree.publisher.pending_store import PendingStore
from overlay.upper_tree.publisher.publisher import Publisher
from overlay.upper_tree.publisher.routing_plan import Route
from overlay.upper_tree.publisher.summary_cache import SummaryCache
from overlay.upper_tree.publisher.tree_finder import TreeFinder
from overlay.upper_tree.subscriber.receiver import ArrivalLookup, PartialMatch, Receiver
from overlay.upper_tree.subscriber.registrar import AnswerDue, Registrar
from overlay.upper_tree.visits import Group


@fault("C8")
def counting_counts_twice() -> None:
    """Counting routing counts an attribute as often as it comes and not once."""
    original = PartialMatch.add

    def add(self: PartialMatch, conjunction: str, attribute: str) -> int:
        times = len(self.matched.get(conjunction, ()))
        return original(self, conjunction, attribute + "+" * times)

    replace(original, add)


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
    "C6",
    "tests/overlay/questions/test_overlay_dry_run.py",
    "test_of_a_silent_host_the_next_replica_is_asked_and_without_one_it_is_named",
)
def dry_run_asks_one_replica() -> None:
    """A dry run waits for the host that it has asked first, however silent that is."""

    def on_ask_again(self: DryRuns, timer: AskAgain) -> None:
        pass

    replace(DryRuns.on_ask_again, on_ask_again)


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


@fault("promise: a duplicate is never shown")
def duplicates_shown() -> None:
    """A subscriber's node does not remove events that it has shown before."""

    def _unseen(self: Receiver, events: Sequence[Event]) -> Sequence[Event]:
        return events

    replace(Receiver._unseen, _unseen)


@fault("V7")
def incarnations_ignored() -> None:
    """Events of a publisher that was started again are taken for those of its former process."""
    contains, add_each, add_new = (
        EventCounts.__contains__,
        EventCounts.add_each,
        EventCounts.add_new,
    )
    has_none = EventCounts.has_none

    def __contains__(self: EventCounts, event: Event) -> bool:  # noqa: N807
        return contains(self, changed(event, incarnation=0))

    def first(source: EventSource) -> EventSource:
        return source[0], 0

    def has_none_of(self: EventCounts, source: EventSource, numbers: Sequence[int]) -> bool:
        return has_none(self, first(source), numbers)

    def add_to_first(self: EventCounts, source: EventSource, amounts: Mapping[int, int]) -> None:
        add_each(self, first(source), amounts)

    def add_new_to_first(self: EventCounts, events: Sequence[Event], amount: int) -> bool:
        return add_new(self, [changed(event, incarnation=0) for event in events], amount)

    replace(contains, __contains__)
    replace(has_none, has_none_of)
    replace(add_each, add_to_first)
    replace(add_new, add_new_to_first)


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


@fault("C8, C9")
def no_recheck() -> None:
    """A subscriber's node shows whatever arrives to all of its subscriptions."""
    original = Receiver._deliver

    def _deliver(
        self: Receiver, events: Sequence[Event], witnesses: dict[int, str], lookup: ArrivalLookup
    ) -> list[Delivery]:
        everyone = sorted({id_.rsplit("/", 1)[0] for id_ in self.required})

        def match(self: Index[str], attributes: object) -> list[str]:
            return everyone

        with replaced(Index[str].match, match):
            return original(self, events, witnesses, lookup)

    replace(original, _deliver)


@fault("C6")
def suback_after_first_registration() -> None:
    """A subscription is reported ready when the first of its registrations is acknowledged."""

    def is_ready(self: Registrar, subscription: str) -> bool:
        keys = self._local.keys_of(subscription)
        return any(
            self.registrations[key].acknowledged for key in keys if key in self.registrations
        )

    replace(Registrar.is_ready, is_ready)


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


@fault("promise: nothing lost in the quiet")
def broken_link_counts_as_accepted() -> None:
    """A publisher takes events on a link that broke for accepted and sends them no other way."""
    original = PendingStore.host_lost

    def host_lost(self: PendingStore, host: NodeId) -> list[PendingPair]:
        self.drop(original(self, host))
        return []

    replace(original, host_lost)


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
    "promise: nothing lost in the quiet",
    "tests/overlay/test_overlay_pauses.py",
    "test_who_wakes_is_registered_soon_and_knows_what_it_missed",
)
def renewal_not_repeated() -> None:
    """A subscriber that stood still, or whose renewal was lost, waits until the next one is due."""

    def on_local_stall(self: Registrar, event: LocalStall) -> None:
        pass

    def on_answer_due(self: Registrar, timer: AnswerDue) -> None:
        self._answers.rang()

    replace(Registrar.on_local_stall, on_local_stall)
    replace(Registrar.on_answer_due, on_answer_due)


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
    "C6",
    "tests/upper_tree/owner/test_tree_serving.py",
    "test_a_host_without_a_lease_gives_events_back",
)
def host_serves_without_lease() -> None:
    """A host serves a tree though its owner's lease has run out."""

    def has_lease(self: Hosting, tree: HostedTree) -> bool:
        return True

    replace(Hosting.has_lease, has_lease)


OUT_OF_REACH = "tests/upper_tree/delivery/test_tree_out_of_reach.py"


@fault(
    "promise: what is for a node out of reach is held",
    OUT_OF_REACH,
    "test_halves_that_are_apart_for_less_than_a_lease_miss_nothing",
)
def out_of_reach_not_held() -> None:
    """A host gives up at once what is for a node out of its reach, and says nothing."""

    def put_back(self: Holding, peer: Peer, messages: Sequence[Deliver]) -> None:
        self.port.count("deliveries_lost", sum(len(each.events) for each in messages))

    replace(Holding.put_back, put_back)


@fault(
    "promise: what is for a node out of reach is held",
    OUT_OF_REACH,
    "test_a_node_that_stands_still_for_less_than_its_lease_misses_nothing",
)
def held_not_released() -> None:
    """A host goes on holding when the link to a node comes up."""

    def on_link_up(self: Holding, event: LinkUp) -> None:
        pass

    replace(Holding.on_link_up, on_link_up)


@fault(
    "promise: what is given up is reported",
    OUT_OF_REACH,
    "test_what_exceeds_the_bound_is_traced_and_reported_to_the_programs",
)
def given_up_unreported() -> None:
    """A host traces what it gives up and does not report it to the node."""

    def given_up(self: GapNotices, peer: Peer, events: Sequence[Event], reason: str) -> None:
        pass

    replace(GapNotices.given_up, given_up)


@fault(
    "promise: what is given up is reported",
    OUT_OF_REACH,
    "test_what_exceeds_the_bound_is_traced_and_reported_to_the_programs",
)
def given_up_untraced() -> None:
    """A host reports to a node what it gave up and writes no trace record of it."""

    def _drop(self: Holding, peer: Peer, messages: Iterable[Deliver], reason: str) -> list[Deliver]:
        return [message for message in messages if message.events]

    replace(Holding._drop, _drop)


@fault(
    "promise: what is given up is reported",
    OUT_OF_REACH,
    "test_what_a_lease_does_not_outlast_is_reported_to_the_programs",
)
def lapse_unreported() -> None:
    """That its registrations had ended is not reported to a node, nor by it to its programs."""

    def on_matching_interrupted(self: GapNotices, event: MatchingInterrupted) -> None:
        pass

    def on_gap_over(self: GapReports, timer: GapOver) -> None:
        self._over.rang()

    replace(GapNotices.on_matching_interrupted, on_matching_interrupted)
    replace(GapReports.on_gap_over, on_gap_over)


@fault(
    "promise: what is given up is reported",
    OUT_OF_REACH,
    "test_what_a_side_without_the_log_did_not_match_is_reported_when_it_has_healed",
)
def overridden_fork_unreported() -> None:
    """A primary that overrides a fork does not report to subscribers that the fork may have lacked
    them."""

    def on_elected(self: Registry, event: Elected) -> None:
        pass

    replace(Registry.on_elected, on_elected)


@fault(
    "I12",
    "tests/upper_tree/delivery/test_tree_holding.py",
    "test_bytes_are_bounded_too_and_the_node_that_most_is_held_for_loses",
)
def held_without_bound() -> None:
    """A host holds whatever comes for nodes out of reach."""

    def excess(self: HeldDeliveries) -> Iterator[tuple[HeldNode, Deliver]]:
        return iter(())

    replace(HeldDeliveries.excess, excess)


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
    "promise: what is given up is reported",
    "tests/upper_tree/delivery/test_tree_holding.py",
    "test_a_notice_names_attributes_and_since_when_nothing_was_matched",
)
def attributes_of_the_first_only() -> None:
    """A notice of deliveries that were given up names the attributes of the first of them."""
    original = PendingNotice._concern

    def _concern(self: PendingNotice, attributes: Iterable[str] | None) -> None:
        if not self._attributes:
            original(self, attributes)

    replace(original, _concern)


@fault(
    "promise: what is given up is reported",
    "tests/upper_tree/clients/test_tree_gap_reports.py",
    "test_a_conjunction_that_needs_no_attribute_may_miss_any_event",
)
def gap_concerns_known_attributes_only() -> None:
    """A program hears of missing events only if its selectors use one of their attributes."""

    def may_miss(self: LocalSubscription, attributes: Collection[str]) -> bool:
        return any(name in attributes for name in self.predicate.attributes)

    replace(LocalSubscription.may_miss, may_miss)


@fault(
    "why: true answers",
    "tests/upper_tree/clients/test_tree_inspect.py",
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
