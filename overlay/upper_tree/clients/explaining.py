"""Why an event reached a subscription, or not: `canopy why`.

A node explains what it remembers (event_history.py): what arrived, and what it published. The rest
of an event's way is known to its publisher, whose id is in the event's identity; an event that is
named by the user's id only, and never came here, is asked for at the neighbours. The first answer
that has the event is taken; what is not answered in time is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from matching import Explanation
from matching.selector.unparse import quote_value
from overlay.client import Event, Explained, Failed, Why
from overlay.info import ExplanationLine, Reason
from overlay.machine import Machine, Peer, Port, Timer
from overlay.upper_tree.clients.clients import LocalClients, LocalSubscription
from overlay.upper_tree.clients.constants import WHY_PEERS_MOST, WHY_TIMEOUT
from overlay.upper_tree.event_history import Remembered, counted
from overlay.upper_tree.events import DeliveriesMissed
from overlay.upper_tree.messages import AskEvent, EventFacts
from overlay.upper_tree.partition import describe


class WhyTimeout(Timer, frozen=True):
    """Other nodes have had time to answer."""

    number: int


class WhyQuery(msgspec.Struct):
    """A client's `Why`, while other nodes are asked."""

    client: int
    command: Why
    remembered: Remembered | None
    awaited: int = 0  # answers that may still come


class Explaining(Machine):
    """Answers `Why` for clients, and for other nodes what this one remembers of an event."""

    def __init__(
        self, port: Port, clients: LocalClients, whom: Callable[[str], Sequence[Peer]]
    ) -> None:
        """`whom`: the peers to ask about an event, given the node that its name begins with."""
        super().__init__(port)
        self.clients = clients
        self.whom = whom
        self._queries: dict[int, WhyQuery] = {}
        self._number = 0

    def commands(self) -> dict[type, Callable[..., None]]:
        """Commands with the method that carries each out."""
        return {Why: self.why}

    def why(self, client: int, command: Why) -> None:
        """Explain from memory, and from what nodes that may know more answer."""
        remembered = self.clients.history.find(command.event)
        publisher = command.event.split(".")[0]
        name = command.event
        if remembered is not None:
            publisher, name = remembered.event.publisher, remembered.event.identity
        self._number += 1
        query = self._queries[self._number] = WhyQuery(client, command, remembered)
        if publisher != self.port.me.id:
            for peer in self.whom(publisher)[:WHY_PEERS_MOST]:
                query.awaited += 1
                self.port.send(peer, AskEvent(self._number, name))
        if query.awaited:
            self.port.set_timer(WHY_TIMEOUT, WhyTimeout(self._number))
        else:
            self._answer(self._number, None, ())

    def on_ask_event(self, sender: Peer, message: AskEvent) -> None:
        """Another node asks about an event: answer what is remembered of it."""
        remembered = self.clients.history.find(message.event)
        event, path = (None, ()) if remembered is None else (remembered.event, remembered.path)
        me = self.port.me.id
        self.port.send(sender, EventFacts(message.number, event, tuple(path), me))

    def on_event_facts(self, sender: Peer, message: EventFacts) -> None:
        """What another node remembers."""
        query = self._queries.get(message.number)
        if query is None:
            return
        query.awaited -= 1
        if message.event is not None:
            path = tuple(f"{message.node}: {step}" for step in message.path)
            self._answer(message.number, message.event, path)
        elif query.awaited == 0:
            self._answer(message.number, None, ())

    def on_why_timeout(self, timer: WhyTimeout) -> None:
        """Answer the client with what is known by now."""
        if timer.number in self._queries:
            self._answer(timer.number, None, ())

    def _answer(self, number: int, event: Event | None, path: tuple[str, ...]) -> None:
        query = self._queries.pop(number)
        self.port.cancel_timer(WhyTimeout(number))
        remembered, command = query.remembered, query.command
        if remembered is not None:
            event = remembered.event
            me = self.port.me.id
            path = (*path, *(f"{me}: {step}" for step in remembered.path))
        if event is None:
            reason = (
                f"nobody here remembers an event {command.event!r}; ask at the node that "
                "published it or got it, or give its full name PUBLISHER.INCARNATION.SEQUENCE"
            )
            self.port.reply(query.client, Failed(command.request, "unknown", reason))
            return
        reasons = tuple(
            reason_for(mine, event, remembered, self.clients.missed)
            for mine in self.clients.subscriptions.values()
            if command.subscription in ("", mine.id, mine.name)
        )
        id_ = str(event.attributes.get("id", ""))
        reply = Explained(command.request, event.identity, id_, event.attributes, path, reasons)
        self.port.reply(query.client, reply)


def reason_for(
    mine: LocalSubscription,
    event: Event,
    remembered: Remembered | None,
    missed: Iterable[DeliveriesMissed],
) -> Reason:
    """Why one subscription got the event or not. `missed`: what other nodes reported of deliveries
    to this one."""
    explanation = mine.predicate.explain(event.attributes)
    shown = remembered is not None and (
        mine.id in remembered.shown
        or (
            mine.gathers
            and mine.client in remembered.shown
            and mine.order <= remembered.latest
            and explanation.verdict is True
        )
    )
    if shown and remembered is not None:
        attribute, interval, hops, _ = remembered.arrival
        lo, hi = describe(interval.lo), describe(interval.hi)
        summary = (
            f"it matches, and came through the tree of {attribute}, virtual node "
            f"[{lo}, {hi}), after {counted(hops)}"
        )
        where = (attribute, lo, hi, hops)
    else:
        where = ("", "", "", 0)
        if explanation.verdict is True:
            summary = "it matches, but was not shown: published before the subscription was ready"
            summary += ", still under way, or lost with a node"
            told = [one for one in missed if one.count and one.since <= event.time <= one.until]
            lapsed = [one for one in missed if one.lapsed]
            if told:
                summary = "it matches, but was not shown: deliveries to this node of events that "
                summary += f"were published then were given up: {told[0].reason}"
            elif lapsed:
                summary += f"; or not matched for this node: {lapsed[-1].reason}"
        elif explanation.verdict is False:
            summary = "the selector is false for it"
        else:
            summary = "the selector is unknown for it: an attribute is absent or of another type"
    lines = tuple(verdicts(explanation))
    return Reason(mine.id, mine.name, mine.predicate.text, shown, summary, lines, *where)


def verdicts(explanation: Explanation, depth: int = 0) -> list[ExplanationLine]:
    """The tree of an explanation as indented lines."""
    words = {True: "true", False: "false", None: "unknown"}
    seen = ", ".join(f"{name} = {quote_value(value)}" for name, value in explanation.seen)
    lines = [ExplanationLine(depth, explanation.text, words[explanation.verdict], seen)]
    for child in explanation.children:
        lines += verdicts(child, depth + 1)
    return lines
