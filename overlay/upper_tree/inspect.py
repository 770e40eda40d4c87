"""Questions that the overlay answers about itself: `canopy ring`, `where`, `why`.

Clusters are collected by a walk around the ring, and each cluster's primary tells its trees. An
event that this node has not seen is asked for at its publisher, whose id is in its identity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from matching import Explanation, Predicate, Value
from overlay.chord.events import OwnerFound, OwnerUnknown, RingCollected
from overlay.chord.keys import attribute_key
from overlay.chord.messages import Cluster
from overlay.client import (
    ClusterInfo,
    Explained,
    Failed,
    GetRing,
    Located,
    Reason,
    Reply,
    Ring,
    Verdict,
    VirtualNodeInfo,
    Where,
    Why,
)
from overlay.client import Event as ClientEvent
from overlay.machine import Handlers, Key, Machine, Peer, Port, Timer
from overlay.upper_tree.clients import Clients
from overlay.upper_tree.history import Remembered
from overlay.upper_tree.messages import AskEvent, AskTrees, EventFacts, Trees
from overlay.upper_tree.owner import Owner, RingView
from overlay.upper_tree.partition import describe, overlap_count

PATIENCE = 3.0
"""Seconds after which a question is answered with what is known; wild guess."""


class Collector(RingView, Protocol):
    """What inspection needs of overlay/chord's `Ring` beside lookups."""

    def collect(self) -> None:
        """Walk around the ring: RingCollected follows."""


class QuestionOver(Timer, frozen=True):
    """A question has waited long enough."""

    number: int


class Question:
    """A client's question that other nodes help to answer."""

    def __init__(self, client: int, request: int, attribute: str = "") -> None:
        self.client = client
        self.request = request
        self.attribute = attribute
        self.clusters: dict[Key, Cluster] = {}
        self.answers: dict[Key, Trees] = {}
        self.complete = True
        self.why: Why | None = None


class Inspection(Machine):
    """Answers questions about ring, trees and events."""

    def __init__(
        self,
        port: Port,
        owner: Owner,
        ring: Collector,
        clients: Clients,
        find_peer: Callable[[str], Peer | None],
    ) -> None:
        """`find_peer`: a node's address by its id, where it is known."""
        super().__init__(port)
        self.find_peer = find_peer
        self.owner = owner
        self.ring = ring
        self.clients = clients
        self.questions: dict[int, Question] = {}
        self._number = 0

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            RingCollected: self.on_ring_collected,
            OwnerFound: self.on_owner_found,
            OwnerUnknown: self.on_owner_unknown,
            AskTrees: self.on_ask_trees,
            Trees: self.on_trees,
            AskEvent: self.on_ask_event,
            EventFacts: self.on_event_facts,
            QuestionOver: self.on_question_over,
        }

    def commands(self) -> dict[type, Callable[..., None]]:
        """Commands with the method that carries each out."""
        return {GetRing: self.get_ring, Where: self.where, Why: self.why}

    def _ask(self, question: Question) -> int:
        self._number += 1
        self.questions[self._number] = question
        self.port.set_timer(PATIENCE, QuestionOver(self._number))
        return self._number

    def _answer(self, number: int, reply: Reply) -> None:
        question = self.questions.pop(number)
        self.port.cancel_timer(QuestionOver(number))
        self.port.reply(question.client, reply)

    # --- ring ---

    def get_ring(self, client: int, command: GetRing) -> None:
        """All clusters with their attributes."""
        self._ask(Question(client, command.request))
        self.ring.collect()

    def on_ring_collected(self, event: RingCollected) -> None:
        """Ask every cluster for its trees."""
        for number, question in list(self.questions.items()):
            if question.attribute or question.why or question.clusters:
                continue
            question.complete = event.complete
            question.clusters = {cluster.key: cluster for cluster in event.clusters}
            for cluster in event.clusters:
                self.port.send(cluster.primary, AskTrees(number))
            if not event.clusters:
                self._answer(number, Ring(question.request, (), False))

    # --- where ---

    def where(self, client: int, command: Where) -> None:
        """The owner of an attribute, and its tree."""
        self._ask(Question(client, command.request, command.attribute))
        self.ring.find(attribute_key(command.attribute))

    def on_owner_found(self, event: OwnerFound) -> None:
        """Ask it for the tree."""
        for number, question in list(self.questions.items()):
            if question.attribute and attribute_key(question.attribute) == event.key:
                question.clusters = {event.cluster.key: event.cluster}
                self.port.send(event.cluster.primary, AskTrees(number, question.attribute))

    def on_owner_unknown(self, event: OwnerUnknown) -> None:
        """The ring does not answer."""
        for number, question in list(self.questions.items()):
            if question.attribute and attribute_key(question.attribute) == event.key:
                reason = "the ring does not answer; try again in a moment"
                self._answer(number, Failed(question.request, "time-out", reason))

    def on_ask_trees(self, sender: Peer, message: AskTrees) -> None:
        """Tell about the own cluster's trees."""
        cluster = self.owner.clusters.cluster
        if cluster is None or not self.owner.clusters.is_primary:
            return
        version, entries = (0, 0), []
        owned = self.owner.trees.get(message.attribute)
        if owned is not None:
            version = owned.tree.map.version
            intervals = [r.interval for r in owned.tree.registrations.values()]
            entries = [(e, overlap_count(e.interval, intervals)) for e in owned.tree.map.entries]
        names = tuple(sorted(self.owner.trees))
        reply = Trees(message.number, cluster.key, names, version, tuple(entries))
        self.port.send(sender, reply)

    def on_trees(self, sender: Peer, message: Trees) -> None:
        """One cluster's word."""
        question = self.questions.get(message.number)
        if question is None or message.key not in question.clusters:
            return
        question.answers[message.key] = message
        if question.attribute:
            self._answer(message.number, located(question, message))
        elif len(question.answers) == len(question.clusters):
            self._answer(message.number, self._ring(question))

    def _ring(self, question: Question) -> Ring:
        infos = tuple(
            cluster_info(cluster, question.answers.get(key))
            for key, cluster in question.clusters.items()
        )
        complete = question.complete and len(question.answers) == len(question.clusters)
        return Ring(question.request, infos, complete)

    def on_question_over(self, timer: QuestionOver) -> None:
        """Answer with what there is."""
        question = self.questions.get(timer.number)
        if question is None:
            return
        if question.why is not None:
            self._unknown(timer.number, question.why)
        elif question.clusters and not question.attribute:
            self._answer(timer.number, self._ring(question))
        else:
            reason = "no answer from the ring in time"
            self._answer(timer.number, Failed(question.request, "time-out", reason))

    # --- why ---

    def why(self, client: int, command: Why) -> None:
        """From memory, or from the publisher's."""
        remembered = self.clients.history.find(command.event)
        if remembered is not None:
            reply = self._explained(command, remembered, remembered.event, ())
            self.port.reply(client, reply)
            return
        question = Question(client, command.request)
        question.why = command
        number = self._ask(question)
        publisher = self._publisher(command.event)
        if publisher is None:
            self._unknown(number, command)
        else:
            self.port.send(publisher, AskEvent(number, command.event))

    def _publisher(self, event: str) -> Peer | None:
        node = event.split(".")[0]
        return self.find_peer(node) if node != self.port.me.id else None

    def _unknown(self, number: int, command: Why) -> None:
        reason = (
            f"no trace of event {command.event!r} here; ask at the node that published it or got "
            "it, or give its full identity PUBLISHER.INCARNATION.SEQUENCE"
        )
        self._answer(number, Failed(command.request, "unknown", reason))

    def on_ask_event(self, sender: Peer, message: AskEvent) -> None:
        """An event of ours that somebody asks about."""
        remembered = self.clients.history.find(message.event)
        event, path = (None, ()) if remembered is None else (remembered.event, remembered.path)
        me = self.port.me.id
        self.port.send(sender, EventFacts(message.number, event, tuple(path), me))

    def on_event_facts(self, sender: Peer, message: EventFacts) -> None:
        """The publisher's word."""
        question = self.questions.get(message.number)
        if question is None or question.why is None:
            return
        if message.event is None:
            self._unknown(message.number, question.why)
        else:
            path = tuple(f"{message.node}: {step}" for step in message.path)
            reply = self._explained(question.why, None, message.event, path)
            self._answer(message.number, reply)

    def _explained(
        self,
        command: Why,
        remembered: Remembered | None,
        event: ClientEvent,
        path: tuple[str, ...],
    ) -> Explained:
        reasons = [
            reason_for(mine.id, mine.name, mine.predicate, event, remembered)
            for mine in self.clients.subscriptions.values()
            if command.subscription in ("", mine.id, mine.name)
        ]
        steps = path if remembered is None else tuple(remembered.path)
        id_ = str(event.attributes.get("id", ""))
        return Explained(
            command.request, event.identity, id_, event.attributes, steps, tuple(reasons)
        )


def cluster_info(cluster: Cluster, trees: Trees | None) -> ClusterInfo:
    """A cluster for people and programs."""
    return ClusterInfo(
        cluster.key,
        cluster.start,
        cluster.version[0],
        cluster.primary.id,
        "" if cluster.standby is None else cluster.standby.id,
        tuple(peer.id for peer in cluster.brokers),
        () if trees is None else trees.attributes,
        {peer.id: peer.address for peer in cluster.members()},
    )


def located(question: Question, trees: Trees) -> Located:
    """A tree for people and programs."""
    nodes = tuple(
        VirtualNodeInfo(
            describe(entry.interval.lo), describe(entry.interval.hi), entry.host.id, count
        )
        for entry, count in trees.entries
    )
    info = cluster_info(question.clusters[trees.key], trees)
    return Located(question.request, question.attribute, info, trees.version, nodes)


def reason_for(
    id_: str,
    name: str,
    predicate: Predicate,
    event: ClientEvent,
    remembered: Remembered | None,
) -> Reason:
    """Why one subscription got the event or not."""
    explanation = predicate.explain(event.attributes)
    shown = remembered is not None and id_ in remembered.subscriptions
    if shown and remembered is not None:
        summary = (
            f"it matches, and came through the tree of {remembered.attribute}, virtual node "
            f"[{remembered.lo}, {remembered.hi}), after {remembered.hops} messages"
        )
        where = (remembered.attribute, remembered.lo, remembered.hi, remembered.hops)
    else:
        where = ("", "", "", 0)
        if explanation.verdict is True:
            summary = "it matches, but was not shown: published before the subscription was ready"
            summary += ", still under way, or lost with a node"
        elif explanation.verdict is False:
            summary = "the selector is false for it"
        else:
            summary = "the selector is unknown for it: an attribute is absent or of another type"
    return Reason(id_, name, predicate.text, shown, summary, tuple(verdicts(explanation)), *where)


def verdicts(explanation: Explanation, depth: int = 0) -> list[Verdict]:
    """The tree of an explanation as indented lines."""
    words = {True: "true", False: "false", None: "unknown"}
    seen = ", ".join(f"{name} = {shown(value)}" for name, value in explanation.seen)
    lines = [Verdict(depth, explanation.text, words[explanation.verdict], seen)]
    for child in explanation.children:
        lines += verdicts(child, depth + 1)
    return lines


def shown(value: Value | None) -> str:
    """A value as a selector would write it."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case _:
            return repr(value)
