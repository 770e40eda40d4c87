"""Faults of the interested node: its registrations, duplicates and recheck."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace as changed

from bench.mutations.planting import fault, replace, replaced
from matching import Index, Shares
from overlay.client import Delivery, Event
from overlay.links.events import LocalStall
from overlay.upper_tree.delivery.event_counts import EventCounts, EventSource
from overlay.upper_tree.messages import Deliver
from overlay.upper_tree.subscriber.arrival_lookups import ArrivalLookup
from overlay.upper_tree.subscriber.receiver import PartialMatch, Receiver, Sources
from overlay.upper_tree.subscriber.registrar import Registrar
from overlay.upper_tree.subscriber.renewals import AnswerDue, Renewals


@fault("C8")
def counting_counts_twice() -> None:
    """Counting routing counts an attribute as often as it comes and not once."""
    original = PartialMatch.add

    def add(self: PartialMatch, conjunction: str, attribute: str) -> int:
        times = len(self.matched.get(conjunction, ()))
        return original(self, conjunction, attribute + "+" * times)

    replace(original, add)


@fault("promise: a duplicate is never shown")
def duplicates_shown() -> None:
    """A subscriber's node does not remove events that it has shown before."""

    def _unseen(self: Receiver, events: Sequence[Event], sources: Sources) -> Sequence[Event]:
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

    def add_new_to_first(self: EventCounts, sources: Sources, amount: int) -> bool:
        if len({first(source) for source in sources}) < len(sources):
            return False
        return add_new(self, {first(one): numbers for one, numbers in sources.items()}, amount)

    replace(contains, __contains__)
    replace(has_none, has_none_of)
    replace(add_each, add_to_first)
    replace(add_new, add_new_to_first)


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


@fault(
    "promise: nothing lost in the quiet",
    "tests/overlay/test_overlay_pauses.py",
    "test_who_wakes_is_registered_soon_and_knows_what_it_missed",
)
def renewal_not_repeated() -> None:
    """A subscriber that stood still, or whose renewal was lost, waits until the next one is due."""

    def on_local_stall(self: Renewals, event: LocalStall) -> None:
        pass

    def on_answer_due(self: Renewals, timer: AnswerDue) -> None:
        self._answers.rang()

    replace(Renewals.on_local_stall, on_local_stall)
    replace(Renewals.on_answer_due, on_answer_due)


@fault(
    "C9",
    "tests/upper_tree/subscriber/test_tree_named.py",
    "test_what_nobody_wants_is_not_shown_whatever_the_host_names",
)
def named_registration_is_believed() -> None:
    """A subscriber's node shows an event to the subscription that the host names, unchecked."""
    original = Receiver._share

    def _share(self: Receiver, events: Sequence[Event], named: Sequence[str]) -> Shares[str, int]:
        if not named:
            return original(self, events, named)
        batch = [event.attributes for event in events]
        found = map(self._gathered.find, named)
        known = {place: mine.id for place, mine in enumerate(found) if mine is not None}
        return self.gathering.share_found(batch, known)

    replace(original, _share)


@fault(
    "promise: every program gets its events",
    "tests/upper_tree/subscriber/test_tree_named.py",
    "test_with_several_programs_all_that_match_get_it",
)
def named_registration_decides_for_all() -> None:
    """An event for which the host names a subscription is for the program of that one only."""
    me = Receiver._named

    def _named(self: Receiver, message: Deliver, events: Sequence[Event]) -> Sequence[str]:
        return message.found

    replace(me, _named)


@fault(
    "C8",
    "tests/upper_tree/subscriber/test_tree_receiver.py",
    "test_trees_may_be_reached_minutes_apart",
)
def half_counted_forgotten_soon() -> None:
    """An event of which not all trees are reached within half a minute is forgotten."""
    original = Receiver._expire

    def _expire(self: Receiver, now: float) -> None:
        original(self, now + self.settings.count_expiry - 30.0)

    replace(Receiver._expire, _expire)
