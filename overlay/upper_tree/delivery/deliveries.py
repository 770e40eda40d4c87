"""Collects deliveries to interested nodes, so that they leave together (C11).

A host has a batch of events and knows for each the nodes that want it. As long as no event has more
of them than this node may send copies of it (fan_out.py), each node gets one message with all that
is for it, and nothing is done for single pairs of event and node. Where some event has more, some
of its recipients become delegates, which pass it on to the rest (delegation.py). So does, for each
other region with several recipients, an access node there (`AccessNodes`). Either way what is for
one node is in the order of publication, whatever trees and virtual nodes found it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import NamedTuple

import msgspec

from matching import EVERYTHING, Interval
from overlay.client import Event
from overlay.machine import NodeId, Peer, Port
from overlay.upper_tree.batches import HEAD, in_batches, weigh_text, weigh_whole
from overlay.upper_tree.delivery.constants import SHARE_MOST
from overlay.upper_tree.delivery.fan_out import (
    CopyBudget,
    Part,
    Recipient,
    in_turn,
    rotation,
    share_out,
    shares_of,
)
from overlay.upper_tree.delivery.hold import Holding
from overlay.upper_tree.messages import DelegateShare, Deliver, SentBefore
from overlay.upper_tree.visits import tree_of_each


class DeliveryItem(NamedTuple):
    """One event for one node, with the node's matching registrations and the nodes to which it
    passes the event on."""

    event: Event
    attribute: str
    interval: Interval
    registrations: tuple[str, ...]
    onward: tuple[DelegateShare, ...]
    previous: int
    life: int


class NodeMatches(msgspec.Struct):
    """The events of a batch that one node wants."""

    peer: Peer
    places: list[int]
    """The events' indexes in the batch."""
    trees: list[str]
    """For each, the tree whose registrations matched it …"""
    spans: list[Interval] | None = None
    """… and in which part of its value space; None: each tree is wholly here."""
    found: list[str] = []
    """… and the id of such a registration, as in `Deliver`; empty: none is named."""

    @property
    def parts(self) -> list[tuple[str, Interval]]:
        """Return, for each event, the tree and its part."""
        spans = repeat(EVERYTHING) if self.spans is None else self.spans
        return list(zip(self.trees, spans, strict=False))

    def add(self, place: int, tree: str, span: Interval, found: str = "") -> None:
        """Add an event in its place: they are ascending."""
        at = bisect_right(self.places, place)
        if self.spans is None:
            self.spans = [EVERYTHING] * len(self.places)
        self.places.insert(at, place)
        self.trees.insert(at, tree)
        self.spans.insert(at, span)
        if found or self.found:
            self.found = self.found or [""] * len(self.places[1:])
            self.found.insert(at, found)

    def without(self, places: Mapping[int, None]) -> NodeMatches:
        """The same without the events at these indexes."""
        rest = NodeMatches(self.peer, [], [], [])
        found = self.found or repeat("")
        for place, (tree, span), id_ in zip(self.places, self.parts, found, strict=False):
            if place not in places:
                rest.add(place, tree, span, id_)
        return rest


class Deliveries:
    """The deliveries that leave in one turn."""

    def __init__(
        self,
        port: Port,
        copies: CopyBudget,
        holding: Holding,
        hop: int,
        host: Peer | None = None,
        before: tuple[SentBefore, ...] = (),
        through: int = 0,
        token: Callable[[str, NodeId], bytes] = lambda tree, node: b"",
    ) -> None:
        """`copies`: the node's budget. `holding`: the deliveries that it holds for unreachable
        nodes. `hop`: messages from the publisher to here. `host`: the host for which this node is a
        delegate, None if it is the host. `before` and `through` as in `Deliver`. `token`: at a
        host, returns the token of a node with registrations in a tree."""
        self.port = port
        self._token = token
        self._given: dict[NodeId, bytes] = {}  # tokens, at a delegate
        self.copies = copies
        self.holding = holding
        self.access = holding.access
        self.hop = hop
        self.host = host
        self.before = before
        self.through = through
        self._single: dict[NodeId, tuple[Peer, list[DeliveryItem]]] = {}
        self._shared = False  # delegates help, so that a node gets some events another way
        self._together: list[tuple[Peer, Deliver]] = []

    def add(
        self,
        to: Recipient,
        event: Event,
        registrations: tuple[str, ...] = (),
        onward: tuple[DelegateShare, ...] = (),
    ) -> None:
        """Add one event for one node."""
        items = self._single.setdefault(to.peer.id, (to.peer, []))[1]
        if to.token:
            self._given[to.peer.id] = to.token
        items.append(
            DeliveryItem(
                event, to.attribute, to.interval, registrations, onward, to.previous, to.life
            )
        )

    def spread(self, event: Event, recipients: Iterable[Recipient]) -> None:
        """Add one event for all of these, through delegates if they are many, and through one node
        of each other region. This node itself needs no copy."""
        remote: list[Recipient] = []
        for recipient in recipients:
            if recipient.peer.id == self.port.me.id or self.holding.holds(recipient.peer.id):
                self.add(recipient, event)  # a node out of reach is no delegate
            else:
                remote.append(recipient)
        if not remote:
            return
        passes_on = self.holding.relays.passes_on
        leaves = [each for each in remote if not passes_on(each.peer.id)]
        if leaves:  # which nobody else knows to be leaves: a delegate might make one its own
            for leaf in leaves:
                self.add(self._by(event, leaf, ())[0], event)
            self.copies.add((event,), len(leaves))
            remote = [each for each in remote if passes_on(each.peer.id)]
        near, far = self.access.divide(remote)
        room, sent = self.copies.room(event), 0
        if len(near) + len(far) > room:
            first = rotation(event.publisher, event.incarnation, event.sequence, self.port.me.id)
            near = in_turn(near, first)
            near.sort(key=lambda each: -each.peer.tier)
            near, alone = self._by_standing(near, far, room)
            for each in alone:
                self.add(self._by(event, each, ())[0], event)
            self.copies.add((event,), len(alone))
            room = max(1, room - len(alone))
        for chosen, rest in share_out(near, far, room):
            self._shared = self._shared or bool(rest)
            delegate, *share = self._by(event, chosen, rest)
            for start in range(0, len(share) or 1, SHARE_MOST):
                sent += 1
                self.add(delegate, event, onward=shares_of(share[start : start + SHARE_MOST]))
        self.copies.add((event,), sent)

    def _by_standing(
        self, near: list[Recipient], far: Sequence[Part[Recipient]], room: int
    ) -> tuple[list[Recipient], list[Recipient]]:
        """The recipients in an order in which the first are those that may be delegates; and those
        that are sent the event by this node instead, since too few may be. Where none may all are,
        whatever the budget says."""
        has_standing = self.holding.relays.has_standing
        may = [each for each in near if has_standing(each.peer.id)]
        rest = [each for each in near if not has_standing(each.peer.id)]
        if not may:
            return [], rest
        alone = max(0, room - min(len(far), room - 1) - len(may))
        return [*may, *rest[alone:]], rest[:alone]

    def _by(self, event: Event, delegate: Recipient, share: Sequence[Recipient]) -> list[Recipient]:
        """The delegate and its share, with what went another way before."""
        last, now, number = self.copies.last, self.port.now, event.sequence
        source = (event.publisher, event.incarnation)
        found: list[Recipient] = []
        for by, each in (("", delegate), *((delegate.peer.id, one) for one in share)):
            previous = last.sends(source, each.peer.id, number, number, by, now)
            if previous > each.previous:
                each = each._replace(previous=previous)
            if not each.token and (token := self._token(each.attribute, each.peer.id)):
                each = each._replace(token=token)
            found.append(each)
        return found

    def spread_all(self, events: Sequence[Event], wanted: Sequence[NodeMatches]) -> None:
        """Add a batch, in the order of publication, for all nodes that want some of it."""
        remote = [mine.places for mine in wanted if mine.peer.id != self.port.me.id]
        crosses = self.access.joins(mine.peer for mine in wanted)
        copies = Counter(chain.from_iterable(remote))
        if remote and (crosses or not self.copies.spend_all(events, copies)):
            recipients: dict[int, list[Recipient]] = {}
            for mine in wanted:
                life = self.holding.registered.life_of(mine.peer.id)
                for place, part in zip(mine.places, mine.parts, strict=True):
                    recipients.setdefault(place, []).append(Recipient(mine.peer, *part, 0, life))
            for place, found in sorted(recipients.items()):
                self.spread(events[place], found)
            return
        for mine in wanted:
            hop = self.hop + (mine.peer.id != self.port.me.id)
            picked = tuple([events[place] for place in mine.places])
            if mine.spans is None:
                (tree, interval), apart = divide_whole(mine.trees)
            else:
                (tree, interval), apart = divide(mine.parts)
            previous = 0
            if mine.peer.id != self.port.me.id:
                first, last = picked[0], picked[-1].sequence
                previous = self.copies.last.sends(
                    (first.publisher, first.incarnation),
                    mine.peer.id,
                    first.sequence,
                    last,
                    "",
                    self.port.now,
                )
            message = Deliver(
                tree,
                interval,
                hop,
                picked,
                (),
                (),
                self.host,
                apart,
                self.before,
                self.through,
                (previous, *(0,) * (len(picked) - 1)) if previous else (),
                tuple(mine.found),
                self.holding.registered.life_of(mine.peer.id),
                token=self._token(tree, mine.peer.id),
            )
            self._together.append((mine.peer, message))

    def send(self, traced: bool = True) -> None:
        """Send all deliveries in as few messages as possible. Not `traced`: this repeats deliveries
        that were traced before they were lost or late, and counts as no further copy (C11)."""
        for peer, message in self._together:
            if traced and peer.id != self.port.me.id:
                self._trace(peer, message)
            self.holding.send(peer, message)
        for node, (peer, items) in self._single.items():
            hop = self.hop + (node != self.port.me.id)
            items.sort(key=lambda item: item.event.sequence)  # of one publisher
            batches = list(in_batches(items, weigh_item))
            for batch in batches:
                # An event may be there twice, at the end of a batch and at the begin of the next.
                through = batch[-1].event.sequence - (batch is not batches[-1])
                if batch is batches[-1] and not self._shared:
                    through = max(through, self.through)
                previous = tuple([item.previous for item in batch])
                (attribute, interval), apart = divide([item[1:3] for item in batch])
                counted = tuple([item.registrations for item in batch])
                onward = tuple([item.onward for item in batch])
                message = Deliver(
                    attribute,
                    interval,
                    hop,
                    tuple([item.event for item in batch]),
                    counted if any(counted) else (),
                    onward if any(onward) else (),
                    self.host,
                    apart,
                    self.before,
                    through,
                    previous if any(previous) else (),
                    life=max([item.life for item in batch]),
                    token=self._given.get(node) or self._token(attribute, node),
                )
                if traced and node != self.port.me.id:
                    self._trace(peer, message)
                self.holding.send(peer, message)

    def _trace(self, peer: Peer, message: Deliver) -> None:
        """Write a `forward` record for each event that is sampled."""
        sampled = {id(event): event for event in self.port.sampled(message.events)}
        by_tree: dict[str, list[str]] = {}
        if sampled:
            for event, tree in zip(message.events, tree_of_each(message), strict=True):
                if id(event) in sampled:
                    by_tree.setdefault(tree, []).append(event.identity)
        for attribute, identities in by_tree.items():
            self.port.trace_each(
                "forward", "event", identities, attribute=attribute, peer=peer.id, hop=message.hop
            )


Apart = tuple[tuple[str, Interval, tuple[int, ...]], ...]
"""`Deliver.apart`."""


def divide(parts: Sequence[tuple[str, Interval]]) -> tuple[tuple[str, Interval], Apart]:
    """The first of these parts of trees, and the places of all that differ from it
    (`Deliver.apart`)."""
    first = parts[0]
    if parts.count(first) == len(parts):
        return first, ()
    found: dict[tuple[str, Interval], list[int]] = {}
    for place, part in enumerate(parts):
        if part != first:
            found.setdefault(part, []).append(place)
    return first, tuple([(*part, tuple(places)) for part, places in found.items()])


def divide_whole(trees: Sequence[str]) -> tuple[tuple[str, Interval], Apart]:
    """`divide` for trees that are wholly here."""
    if trees.count(trees[0]) == len(trees):
        return (trees[0], EVERYTHING), ()
    found: dict[str, list[int]] = {}
    for place, tree in enumerate(trees):
        places = found.get(tree)
        if places is None:
            found[tree] = [place]
        else:
            places.append(place)
    del found[trees[0]]
    apart = tuple([(tree, EVERYTHING, tuple(places)) for tree, places in found.items()])
    return (trees[0], EVERYTHING), apart


def weigh_item(item: DeliveryItem) -> int:
    """Estimated bytes of an event with its registrations and shares."""
    size = weigh_whole(item.event)
    size += sum(map(weigh_text, item.registrations))
    for share in item.onward:
        size += 8 * HEAD + sum(2 * HEAD + weigh_text(peer.address) for peer in share.peers)
    return size
