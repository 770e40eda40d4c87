"""Why an event reached a subscription, or not: `canopy why`.

A node explains what it remembers (event_history.py): what arrived, and what it published. The rest
of an event's way is known to its publisher, whose id is in the event's identity; an event that is
named by the user's id only, and never came here, is asked for at the neighbours: the first answer
that has the event is taken. The publisher itself asks its neighbours where the event was shown,
since only a subscription's own node can explain it. What is not answered in time is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from matching import Explanation, Predicate
from matching.selector.unparse import quote_value
from overlay.client import Event, Explained, Failed, Why
from overlay.info import ExplanationLine, Reason
from overlay.lower_random.policies import Policies
from overlay.machine import Machine, NodeId, Peer, Port, Timer
from overlay.phrases import counted
from overlay.upper_tree.clients.clients import LocalClients
from overlay.upper_tree.clients.constants import (
    SUBSCRIPTIONS_NAMED,
    WHY_PEERS_MOST,
    WHY_TIMEOUT,
)
from overlay.upper_tree.clients.low_water import LocalSubscription
from overlay.upper_tree.event_history import Refused, Remembered
from overlay.upper_tree.inspection_messages import AskEvent, EventFacts
from overlay.upper_tree.messages import DeliveriesGivenUp
from overlay.upper_tree.partition import describe


class WhyTimeout(Timer, frozen=True):
    """Other nodes have had time to answer."""

    number: int


class WhyQuery(msgspec.Struct):
    """A client's `Why`, while other nodes are asked."""

    client: int
    command: Why
    remembered: Remembered | None
    asks_all: bool  # this node has published the event: who got it?
    awaited: int = 0  # answers that may still come
    event: Event | None = None  # as another node remembers it
    path: list[str] = []  # of other nodes
    shown_at: list[tuple[NodeId, str]] = []


class Explanations(Machine):
    """Answers `Why` for clients, and for other nodes what this one remembers of an event."""

    def __init__(
        self,
        port: Port,
        clients: LocalClients,
        whom: Callable[[str], Sequence[Peer]],
        policies: Policies,
    ) -> None:
        """`whom`: the peers to ask about an event, given the node that its name begins with; its
        neighbours if that is this node."""
        super().__init__(port)
        self.clients = clients
        self.policies = policies
        self.whom = whom
        self._queries: dict[int, WhyQuery] = {}
        self._number = 0

    def commands(self) -> dict[type, Callable[..., None]]:
        """Commands with the method that carries each out."""
        return {Why: self.why}

    def why(self, client: int, command: Why) -> None:
        """Explain from memory, and from what nodes that may know more answer."""
        wanted = command.subscription
        if wanted and not any(self._named(wanted)):
            self.port.reply(client, Failed(command.request, "unknown", self._no_such(wanted)))
            return
        remembered = self.clients.history.find(command.event)
        publisher = command.event.split(".")[0]
        name = command.event
        if remembered is not None:
            publisher, name = remembered.event.publisher, remembered.event.identity
        asks_all = publisher == self.port.me.id and remembered is not None
        self._number += 1
        query = WhyQuery(client, command, remembered, asks_all)
        self._queries[self._number] = query
        if asks_all or publisher != self.port.me.id:
            for peer in self.whom(publisher)[:WHY_PEERS_MOST]:
                query.awaited += 1
                self.port.send(peer, AskEvent(self._number, name))
        if query.awaited:
            self.port.set_timer(WHY_TIMEOUT, WhyTimeout(self._number))
        else:
            self._answer(self._number)

    def _named(self, wanted: str) -> Iterator[LocalSubscription]:
        """Subscriptions of this node with this id or name, with those that have ended."""
        for mine in chain(self.clients.subscriptions.values(), self.clients.ended.values()):
            if wanted in ("", mine.id, mine.name):
                yield mine

    def _no_such(self, wanted: str) -> str:
        """Return why a subscription is not explained: the node has others."""
        known = [mine.name or mine.id for mine in self.clients.subscriptions.values()]
        has = ", ".join(known[:SUBSCRIPTIONS_NAMED]) or "none"
        more = len(known) - SUBSCRIPTIONS_NAMED
        has += f" and {more} more" if more > 0 else ""
        return (
            f"this node has no subscription {wanted!r}, nor had one lately; ask at the node where "
            f"it was made. Here there are: {has}"
        )

    def on_ask_event(self, sender: Peer, message: AskEvent) -> None:
        """Answer another node with the remembered facts about an event."""
        remembered = self.clients.history.find(message.event)
        event, path = (None, ()) if remembered is None else (remembered.event, remembered.path)
        me = self.port.me.id
        self.port.send(sender, EventFacts(message.number, event, tuple(path), me))

    def on_event_facts(self, sender: Peer, message: EventFacts) -> None:
        """Add the facts that another node remembers. About an event published elsewhere, the first
        node that knows it is believed."""
        query = self._queries.get(message.number)
        if query is None:
            return
        query.awaited -= 1
        if message.event is not None:
            query.event = message.event
            query.path += (f"{message.node}: {step}" for step in message.path)
            if query.asks_all:  # others remember it only if it was shown there
                query.shown_at.append((sender.id, sender.address))
        if query.awaited == 0 or (message.event is not None and not query.asks_all):
            self._answer(message.number)

    def on_why_timeout(self, timer: WhyTimeout) -> None:
        """Answer the client with the facts known so far."""
        if timer.number in self._queries:
            self._answer(timer.number)

    def _answer(self, number: int) -> None:
        query = self._queries.pop(number)
        self.port.cancel_timer(WhyTimeout(number))
        remembered, command = query.remembered, query.command
        event, path = query.event, query.path
        alike: tuple[int, tuple[str, ...]] = (1, ())
        if remembered is not None:
            event = remembered.event
            own = [f"{self.port.me.id}: {step}" for step in remembered.path]
            path = own + path if query.asks_all else path + own
            alike = (remembered.alike, remembered.others)
        if event is None:
            reason = (
                f"neither this node nor those it asked remember an event {command.event!r}; ask at "
                "the node that published it or got it, or give its full name "
                "PUBLISHER.INCARNATION.SEQUENCE"
            )
            self.port.reply(query.client, Failed(command.request, "unknown", reason))
            return
        id_ = str(event.attributes.get("id", ""))
        self.port.reply(
            query.client,
            Explained(
                command.request,
                event.identity,
                id_,
                event.attributes,
                tuple(path),
                tuple(self._reasons(command.subscription, event, remembered)),
                tuple(query.shown_at),
                *alike,
            ),
        )

    def _reasons(self, wanted: str, event: Event, remembered: Remembered | None) -> list[Reason]:
        """For the subscriptions that there are, and for those that have ended if they were shown
        the event; else for the last of these that was asked for by name."""
        found: list[Reason] = []
        last: Reason | None = None
        for mine in self._named(wanted):
            reason = reason_for(mine, event, remembered, self.clients.missed)
            if policy := self.policies.describe(event.attributes):
                reason = msgspec.structs.replace(reason, summary=f"{reason.summary}; {policy}")
            if mine.until is None or reason.delivered:
                found.append(reason)
            else:
                last = reason
        return found or ([last] if wanted and last is not None else [])


def was_shown(mine: LocalSubscription, remembered: Remembered | None, matches: bool) -> bool:
    """Whether the subscription got the event. Of a client that gathers it is known when the event
    came, and follows which of its subscriptions there were and match."""
    if remembered is None:
        return False
    if not mine.gathers:
        return mine.id in remembered.shown
    there_was = mine.order <= remembered.latest
    there_was = there_was and (mine.until is None or remembered.latest < mine.until)
    return matches and there_was and mine.client in remembered.shown


def trees_for(mine: LocalSubscription, event: Event) -> list[str]:
    """The trees in which those conjunctions of a subscription are registered that are true for the
    event."""
    found: dict[str, None] = {}
    for conjunction, trees in zip(mine.predicate.conjunctions, mine.trees, strict=False):
        if Predicate.of(conjunction).explain(event.attributes).verdict is True:
            found.update(dict.fromkeys(trees))
    return list(found)


def reason_for(
    mine: LocalSubscription,
    event: Event,
    remembered: Remembered | None,
    missed: Iterable[DeliveriesGivenUp],
) -> Reason:
    """Return why one subscription got the event or not. `missed`: other nodes' reports of
    deliveries that they gave up."""
    explanation = mine.predicate.explain(event.attributes)
    matches = explanation.verdict is True
    where = ("", "", "", 0)
    shown = was_shown(mine, remembered, matches)
    if remembered is not None and shown:
        where, summary = way_to(mine, event, remembered)
    elif matches:
        summary = why_not_shown(mine, event, missed, remembered)
    elif explanation.verdict is False:
        summary = "the selector is not true for this event"
    else:
        summary = "the selector is not true for this event, but unknown: an attribute is absent "
        summary += "or of another type"
    if mine.until is not None:
        summary += " (the subscription has ended)"
    lines = tuple(verdicts(explanation))
    return Reason(mine.id, mine.name, mine.predicate.text, shown, summary, lines, *where)


def why_not_shown(
    mine: LocalSubscription,
    event: Event,
    missed: Iterable[DeliveriesGivenUp],
    remembered: Remembered | None = None,
) -> str:
    """Return the possible reasons why an event that the subscription matches was not shown."""
    missed = list(missed)
    for step in [] if remembered is None else remembered.steps:
        if isinstance(step, Refused):
            return f"it matches, but was refused: {step.reason}; {step.sender} has sent it"
    reported = [one for one in missed if one.count and one.since <= event.time <= one.until]
    if reported:
        return (
            "it matches, but was not shown: deliveries to this node of events that were published "
            f"then were given up: {reported[0].reason}"
        )
    summary = "it matches, but was not shown: published before the subscription was ready"
    summary += ", after it had ended" if mine.until is not None else ""
    summary += ", still under way, or lost with a node"
    lapsed = [one for one in missed if one.lapsed]
    return f"{summary}; or not matched for this node: {lapsed[-1].reason}" if lapsed else summary


def way_to(
    mine: LocalSubscription, event: Event, remembered: Remembered
) -> tuple[tuple[str, str, str, int], str]:
    """Return how an event came to a subscription: the tree, the ends of the virtual node's
    interval, the number of messages, and a description. The event comes to a node once, perhaps
    through a tree in which another of its subscriptions is registered."""
    delivery, arrival = remembered.shown.get(mine.id), remembered.arrival
    if delivery is not None:
        where = (delivery.attribute, delivery.lo, delivery.hi, delivery.hops)
    else:
        lo, hi = describe(arrival.interval.lo), describe(arrival.interval.hi)
        where = (arrival.attribute, lo, hi, arrival.hops)
    tree, lo, hi, hops = where
    after = counted(hops, "message")
    way = f"came through the tree of {tree}, virtual node [{lo}, {hi}), after {after}"
    own = trees_for(mine, event)
    if tree in own or not own:
        return where, f"it matches, and {way}"
    summary = (
        f"it matches, and is registered in the tree of {' and '.join(own)}; the event comes to a "
        f"node once for all its subscriptions, and {way}"
    )
    return (own[0], "", "", hops), summary


def verdicts(explanation: Explanation, depth: int = 0) -> list[ExplanationLine]:
    """The tree of an explanation as indented lines."""
    words = {True: "true", False: "false", None: "unknown"}
    seen = ", ".join(f"{name} = {quote_value(value)}" for name, value in explanation.seen)
    lines = [ExplanationLine(depth, explanation.text, words[explanation.verdict], seen)]
    for child in explanation.children:
        lines += verdicts(child, depth + 1)
    return lines
