"""The host's side of the trees: virtual nodes, their indexes, and events that come by (C6 to C9).

An event enters at any host of the tree. If one of the host's own virtual nodes holds the value it
is matched there, and sent to the interested nodes; else it goes on towards the virtual node that
holds it (partition.py). Either way the publisher hears who has taken the event, and where, so that
the next one goes there directly. A host that does not serve the tree answers *moved*.

Everything of one frame is handled together: the events of a `Visit` that go the same way travel on
as one message.
"""

from __future__ import annotations

from matching import Index, Interval, Predicate, SelectorError, compile_selector, place
from overlay.client import Event
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.messages import AccessPoint
from overlay.machine import Handlers, Machine, NodeId, Peer, Port, ProtocolError, Version
from overlay.settings import Settings
from overlay.upper_tree.batches import in_batches, weigh_text
from overlay.upper_tree.delegation import Deliveries, Recipient
from overlay.upper_tree.messages import (
    EVENT_TREE,
    Accepted,
    Assign,
    Assigned,
    Install,
    Installed,
    Location,
    Registration,
    TreeMoved,
    Uninstall,
    Visit,
)
from overlay.upper_tree.partition import Slice, describe

HOP_BOUND = 64
"""Messages on a tree path after which an event is given back to its publisher as *moved*: far over
any tree's height (2^64 virtual nodes), so only a loop between stale slices meets it."""


IDS_MOST = 4_096
"""Registrations that one event names to one node at once in counting routing (a node with more gets
the event once more): 4,096 ids of some 30 bytes keep a message far under a frame."""


def value_in(event: Event, attribute: str) -> bool | int | float | str | None:
    """The event's value in an attribute's tree; in the `$event` tree every event has one."""
    return True if attribute == EVENT_TREE else event.attributes.get(attribute)


class VirtualNode:
    """An interval with the index of the registrations that overlap it."""

    def __init__(self, interval: Interval) -> None:
        self.interval = interval
        self.index: Index[str] = Index()


class HostedTree:
    """What this host has of one tree."""

    def __init__(self) -> None:
        self.version: Version = (0, 0)
        self.virtual_nodes: list[VirtualNode] = []
        self.slice = Slice(0, {})
        self.registrations: dict[str, tuple[Registration, Predicate]] = {}

    def assign(self, message: Assign) -> None:
        """Serve exactly these intervals, with what is registered already."""
        kept = {node.interval: node for node in self.virtual_nodes}
        self.version = message.version
        self.slice = Slice(message.size, dict(message.known))
        self.virtual_nodes = []
        for interval in message.intervals:
            node = kept.get(interval) or VirtualNode(interval)
            self.virtual_nodes.append(node)
            if interval not in kept:
                for registration, predicate in self.registrations.values():
                    if registration.interval.overlaps(interval):
                        node.index.add(registration.id, predicate)

    def install(self, registration: Registration, predicate: Predicate) -> None:
        """Match this from now on."""
        self.registrations[registration.id] = (registration, predicate)
        for node in self.virtual_nodes:
            if registration.interval.overlaps(node.interval):
                node.index.add(registration.id, predicate)

    def uninstall(self, id_: str) -> None:
        """Match it no more."""
        if self.registrations.pop(id_, None) is not None:
            for node in self.virtual_nodes:
                if id_ in node.index:
                    node.index.remove(id_)

    def forget_foreign(self) -> None:
        """Drop registrations that overlap none of the own intervals any more."""
        for id_, (registration, _) in list(self.registrations.items()):
            if not any(registration.interval.overlaps(n.interval) for n in self.virtual_nodes):
                del self.registrations[id_]


class Hosting(Machine):
    """Serves virtual nodes of any number of trees."""

    def __init__(self, port: Port, settings: Settings, access_points: AccessPoints) -> None:
        super().__init__(port)
        self.counting = settings.tree.routing == "counting"
        self.fan_out = settings.tree.fan_out
        self.access_points = access_points
        self.trees: dict[str, HostedTree] = {}

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            Assign: self.on_assign,
            Install: self.on_install,
            Uninstall: self.on_uninstall,
            Visit: self.on_visit,
        }

    # --- what the owner says ---

    def on_install(self, sender: Peer, message: Install) -> None:
        """Registrations may come before the interval is assigned."""
        tree = self.trees.setdefault(message.attribute, HostedTree())
        for registration in message.registrations:
            try:
                predicate = compile_selector(registration.selector)
            except SelectorError as error:
                raise ProtocolError(f"a registration that does not compile: {error}") from error
            tree.install(registration, predicate)
        ids = tuple(registration.id for registration in message.registrations)
        self.port.send(sender, Installed(message.attribute, ids))

    def on_uninstall(self, sender: Peer, message: Uninstall) -> None:
        """Registrations that ended."""
        tree = self.trees.get(message.attribute)
        if tree is not None:
            for id_ in message.ids:
                tree.uninstall(id_)

    def on_assign(self, sender: Peer, message: Assign) -> None:
        """Serve these intervals at this version; an older word than the last is ignored."""
        tree = self.trees.setdefault(message.attribute, HostedTree())
        if message.version >= tree.version:
            tree.assign(message)
            if message.intervals:
                tree.forget_foreign()
            else:
                del self.trees[message.attribute]
            self._publish_access_points()
        self.port.send(sender, Assigned(message.attribute, message.version))

    def _publish_access_points(self) -> None:
        self.access_points.own(
            [
                AccessPoint(attribute, self.port.me, tree.version, 0)
                for attribute, tree in self.trees.items()
                if tree.virtual_nodes
            ]
        )

    # --- events ---

    def on_visit(self, sender: Peer, message: Visit) -> None:
        """Match, pass on, or give back, for each attribute."""
        visit = VisitInHand(self, message)
        for attribute in message.attributes:
            tree = self.trees.get(attribute)
            if tree is None or not tree.virtual_nodes or message.hop > HOP_BOUND:
                visit.give_back(attribute)
            else:
                for event in message.events:
                    visit.route(attribute, tree, event)
        visit.finish()


class VisitInHand:
    """One `Visit` while it is handled: collects what leaves, so that it leaves together."""

    def __init__(self, hosting: Hosting, visit: Visit) -> None:
        self.port = hosting.port
        self.counting = hosting.counting
        self.visit = visit
        self.taken: dict[str, list[int]] = {}
        self.locations: dict[tuple[str, Interval], Location] = {}
        self.onward: dict[tuple[NodeId, str], tuple[Peer, list[Event]]] = {}
        self.deliveries = Deliveries(hosting.port, hosting.fan_out, visit.hop)
        self.recipients: dict[int, tuple[Event, dict[NodeId, Recipient]]] = {}
        """By sequence, in pivot routing: however many of our trees find a node, it is sent the
        event once."""

    def route(self, attribute: str, tree: HostedTree, event: Event) -> None:
        """One event in one tree."""
        value = value_in(event, attribute)
        if value is None:
            raise ProtocolError("an event visits the tree of an attribute that it has not")
        spot = place(value)
        for node in tree.virtual_nodes:
            if node.interval.lo <= spot < node.interval.hi:
                self._match(attribute, tree, node, event)
                return
        entry = tree.slice.route(spot)
        if entry is None or entry.host.id == self.port.me.id:
            self._give_back(attribute, [event.sequence])
        else:
            _, events = self.onward.setdefault((entry.host.id, attribute), (entry.host, []))
            events.append(event)

    def _match(self, attribute: str, tree: HostedTree, node: VirtualNode, event: Event) -> None:
        self.taken.setdefault(attribute, []).append(event.sequence)
        if self.visit.hop > 1 or (attribute, node.interval) not in self.locations:
            self.locations[attribute, node.interval] = Location(
                attribute, tree.version, node.interval, self.port.me
            )
        matched: dict[NodeId, tuple[Peer, list[str]]] = {}
        for id_ in node.index.match(event.attributes):
            subscriber = tree.registrations[id_][0].subscriber
            matched.setdefault(subscriber.id, (subscriber, []))[1].append(id_)
        self.port.trace(
            "match",
            event=event.identity,
            attribute=attribute,
            lo=describe(node.interval.lo),
            hi=describe(node.interval.hi),
            version=tree.version[1],
            recipients=len(matched),
        )
        for subscriber, ids in matched.values():
            recipient = Recipient(subscriber, attribute, node.interval)
            if self.counting:  # as in the paper: no delegates
                for counted in in_batches(ids, weigh_text, IDS_MOST):
                    self.deliveries.add(recipient, event, counted)
            else:
                _, found = self.recipients.setdefault(event.sequence, (event, {}))
                found.setdefault(subscriber.id, recipient)

    def give_back(self, attribute: str) -> None:
        """This host cannot help any of the visit's events in this tree."""
        self._give_back(attribute, [event.sequence for event in self.visit.events])

    def _give_back(self, attribute: str, sequences: list[int]) -> None:
        incarnation = self.visit.events[0].incarnation if self.visit.events else 0
        moved = TreeMoved(incarnation, attribute, tuple(sequences))
        self.port.send(self.visit.origin, moved)
        self.port.count("visits_given_back", len(sequences))

    def finish(self) -> None:
        """Send everything on its way."""
        hop = self.visit.hop + 1
        for (node, attribute), (host, events) in self.onward.items():
            for event in events:
                self.port.trace(
                    "visit", event=event.identity, attribute=attribute, hop=hop, peer=node
                )
            self.port.send(host, Visit(self.visit.origin, hop, (attribute,), tuple(events)))
        for event, recipients in self.recipients.values():
            self.deliveries.spread(event, recipients.values())
        self.deliveries.send()
        if self.taken:
            incarnation = self.visit.events[0].incarnation
            taken = tuple((name, tuple(seqs)) for name, seqs in self.taken.items())
            locations = tuple(self.locations.values())
            self.port.send(self.visit.origin, Accepted(incarnation, taken, locations))
