"""One `Visit` while a host handles it: match, pass on, give back, and answer together (C7 to C9).

All events of a visit are handled as one batch: a tree that is wholly here takes them all at once,
and each event is matched once for all trees (hosted_tree.py). They are in the order of their
publication, though they may visit different trees, and so they leave for each interested node. If
no other node than this very one has registered anything here, nothing is matched at all: the events
go to this node's own receiver, whose recheck finds the subscriptions that they are for
(subscriber/receiver.py).

The answer tells the publisher where the trees are: its next events then go there directly, and it
knows the other replicas. It remembers that, and an answer that says it again for each of ten trees
costs more than all the rest of it. So a host tells what is new (`Announced`), and repeats
it after a while: publishers may forget (a link was lost, or they know too many trees), and an
answer may be lost.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

import msgspec

from matching import EVERYTHING, Cut, Interval, places
from matching.values import complement, intersection, union
from overlay.client import Event
from overlay.machine import NodeId, Peer, Port, ProtocolError
from overlay.upper_tree.batches import in_batches, weigh_text
from overlay.upper_tree.delivery.deliveries import Deliveries, NodeMatches
from overlay.upper_tree.delivery.fan_out import CopyBudget, Recipient
from overlay.upper_tree.delivery.hold import Holding
from overlay.upper_tree.events import Visited
from overlay.upper_tree.host.acceptances import Acceptances
from overlay.upper_tree.host.constants import IDS_MOST, NAMED_FROM
from overlay.upper_tree.host.hosted_tree import HostedTree, SharedIndex
from overlay.upper_tree.host.shard_gatherings import Choice, ShardGathering, Shards
from overlay.upper_tree.messages import (
    EVENT_TREE,
    Location,
    Part,
    PartTaken,
    TreeMoved,
    Visit,
    value_in,
)
from overlay.upper_tree.partition import describe, ranked, serves
from overlay.upper_tree.shards import by_value
from overlay.upper_tree.visits import (
    Group,
    by_publication,
    check_places,
    groups_of,
    trees_of,
    visits_of,
)


def check_visit(visit: Visit) -> None:
    """ProtocolError if an event has not the attribute of a tree that it visits, or the visit names
    an event that is not there, or asks for shards of another value."""
    if visit.apart:
        check_places(len(visit.events), [places for _, places in visit.apart])
    if visit.part is not None:
        _check_part(visit, visit.part)
    for trees, events in groups_of(visit):
        for attribute in trees:
            if attribute != EVENT_TREE:
                for event in events:
                    if event.attributes.get(attribute) is None:
                        raise ProtocolError(
                            "an event visits the tree of an attribute that it has not"
                        )


def _check_part(visit: Visit, part: Part) -> None:
    values = {shard.around() for shard in part.shards}
    if len(visit.attributes) != 1 or visit.apart or len(values) != 1:
        raise ProtocolError("shards are of one value in one tree")
    (value,) = values
    for event in visit.events:
        if not value.is_point() or not value.contains(value_in(event, visit.attributes[0])):
            raise ProtocolError("an event has not the value whose shards are asked for")


def shown(visit: Visit, trees: Mapping[str, HostedTree]) -> Visit:
    """A visit that this host passes on, so that the next one sees that it is from a host of these
    trees."""
    tokens = tuple([trees[name].shared_token for name in trees_of(visit)])
    return msgspec.structs.replace(visit, tokens=tokens) if any(tokens) else visit


def is_from_host(visit: Visit, sender: NodeId, trees: Mapping[str, HostedTree]) -> bool:
    """Whether a visit that another node than its publisher has sent comes from a host of all its
    trees that are here."""
    names = list(trees_of(visit))
    tokens = visit.tokens if len(visit.tokens) == len(names) else (b"",) * len(names)
    return all(
        trees[name].is_host(sender, token)
        for name, token in zip(names, tokens, strict=True)
        if name in trees
    )


tree_of = itemgetter(0)
"""The tree of a key of the index of all registrations (hosted_tree.py)."""

Recipients = dict[int, dict[str, int]]
"""By an event's sequence number and tree: how many nodes are interested."""


class MatchedEvents:
    """The events of a visit that are matched here, and in which of its trees."""

    def __init__(self, visit: Visit) -> None:
        self.groups = groups_of(visit)
        self.whole: dict[str, HostedTree] = {}
        """Trees that are served here as a whole: all events that visit them are matched."""
        self.parts: dict[str, dict[int, Interval]] = {}
        """By other tree and sequence number of an event, the part of the tree that is here."""
        self.shards: dict[tuple[str, int], Sequence[Interval]] = {}
        """By tree and sequence number, the shards by which an event is matched, where these are not
        all of its value's registrations."""
        self._visitors: dict[str, dict[int, None]] = {}  # tree -> sequence; empty: all visit all
        self._everywhere: dict[str, dict[int, Interval]] = {}  # `spans` of trees that are whole
        self._events = visit.events

    def add_all(self, trees: dict[str, HostedTree]) -> None:
        """Set the trees that all events visit."""
        self.whole = trees

    def add_whole(self, attribute: str, tree: HostedTree) -> None:
        """Add a tree for all events that visit it."""
        self.whole[attribute] = tree
        if len(self.groups) > 1:
            numbers = [event.sequence for event in self.visiting(attribute)]
            self._visitors[attribute] = dict.fromkeys(numbers)

    def add(self, attribute: str, spans: Mapping[int, Interval]) -> None:
        """Add events of a tree: for each sequence number the part of the tree that is here."""
        self.parts.setdefault(attribute, {}).update(spans)

    def add_shards(
        self, attribute: str, sequence: int, value: Interval, shards: Sequence[Interval]
    ) -> None:
        """Add an event with this value, which is matched by these shards of the value."""
        self.add(attribute, {sequence: value})
        self.shards[attribute, sequence] = shards

    def visiting(self, attribute: str) -> Sequence[Event]:
        """The events that visit this tree, in the order of publication."""
        found = [events for trees, events in self.groups if attribute in trees]
        if len(found) == 1:
            return found[0]
        return sorted([event for events in found for event in events], key=by_publication)

    def trees(self) -> tuple[str, ...]:
        """The trees in which some events are matched, or all."""
        return (*self.whole, *self.parts)

    @property
    def common(self) -> Mapping[str, HostedTree]:
        """The trees that every event of the visit visits, and that are served here as a whole."""
        return {} if self._visitors else self.whole

    def spans(self, attribute: str) -> Mapping[int, Interval]:
        """By sequence number the events that are matched in a tree, and in which part of it."""
        if attribute not in self.whole:
            return self.parts.get(attribute, {})
        known = self._everywhere.get(attribute)
        if known is None:
            visitors: Iterable[int] | None = self._visitors.get(attribute)
            if visitors is None:
                visitors = [event.sequence for event in self._events]
            known = self._everywhere[attribute] = dict.fromkeys(visitors, EVERYTHING)
        return known

    def by_tree(self) -> Iterator[tuple[str, Sequence[Event], int]]:
        """By tree the events that are matched here for it, with how many trees each of these visits
        here."""
        for trees, events in self.groups:
            here = [name for name in trees if name in self.whole or name in self.parts]
            for name in here:
                part = self.parts.get(name)
                mine = events if part is None else [e for e in events if e.sequence in part]
                if mine:
                    yield name, mine, len(here)

    def events(self) -> Sequence[Event]:
        """The events that are matched here for some tree, in the order of publication."""
        if self.whole and not self._visitors:
            return self._events
        found = {sequence for part in self.parts.values() for sequence in part}
        found.update(*self._visitors.values())
        return [event for event in self._events if event.sequence in found]


class VisitHandler:
    """Handles one visit. Collects what leaves, so that it leaves together."""

    def __init__(
        self,
        port: Port,
        visit: Visit,
        index: SharedIndex | None,
        trees: Mapping[str, HostedTree],
        copies: CopyBudget,
        holding: Holding,
        gathering: ShardGathering,
        acceptances: Acceptances,
        is_confined: bool = False,
    ) -> None:
        """`index`: None in counting routing. `copies` and `holding`: this node's (delivery/).
        `gathering` and `acceptances`: this host's. `is_confined`: this node belongs to a tenant,
        and may not see registrations other than its own."""
        self.port = port
        self.is_confined = is_confined
        self.visit = visit
        self.known = acceptances.known_to(visit.origin.id)
        self.gathering = gathering
        self.acceptances = acceptances
        self.index = index
        self.trees = trees
        self.accepted = MatchedEvents(visit)
        self._cut: dict[tuple[str, Interval], tuple[Choice, list[Event]]] = {}
        """By tree and value that is cut into shards: who matches by which, and the events that
        others are asked to match as well."""
        self.locations: list[Location] = []  # that the publisher does not know
        self.forwarded: dict[NodeId, tuple[Peer, dict[str, list[Event]]]] = {}
        self.deliveries = Deliveries(
            port,
            copies,
            holding,
            visit.hop,
            None,
            visit.before,
            visit.events[-1].sequence,
            lambda tree, node: trees[tree].tokens.of(node),
        )

    # --- routing ---

    def accept_all(self, trees: dict[str, HostedTree]) -> None:
        """Accept all events of a visit, which visit all of these trees, each of them whole."""
        self.accepted.add_all(trees)
        if self.known.together is not trees:
            self.known.together = trees
            for tree in trees.values():
                self._announce(tree, EVERYTHING)

    def accept(self, attribute: str, tree: HostedTree) -> None:
        """Accept all events of the visit in one tree, or route them on in it."""
        if tree.served.is_whole:
            self.accepted.add_whole(attribute, tree)
            self._announce(tree, EVERYTHING)
        else:
            self._route(attribute, tree, self.accepted.visiting(attribute))

    def _route(self, attribute: str, tree: HostedTree, events: Sequence[Event]) -> None:
        """Accept the events whose value is served here; pass the others on in the tree."""
        spots = places([value_in(event, attribute) for event in events])
        accepted: dict[int, Interval] = {}
        for event, spot, span in zip(events, spots, tree.served.spans_at(spots), strict=True):
            assert spot is not None, "check_visit has looked"
            if tree.served.shards and (cut := tree.served.value_in_shards(spot)) is not None:
                self._take_shards(attribute, tree, event, cut)
            elif span is not None:
                accepted[event.sequence] = span
            else:
                self._pass_on(attribute, tree, event, spot)
        if accepted:
            self.accepted.add(attribute, accepted)
            for span in {id(span): span for span in accepted.values()}.values():
                self._announce(tree, span)

    def _pass_on(self, attribute: str, tree: HostedTree, event: Event, spot: Cut) -> None:
        entry = tree.served.slice.route(spot)
        if entry is None or serves(entry, self.port.me.id):
            self._give_back(attribute, [event.sequence])
        else:
            host = ranked(self.port.me.id, entry.hosts, self.port.me.region)[0]
            _, by_tree = self.forwarded.setdefault(host.id, (host, {}))
            by_tree.setdefault(attribute, []).append(event)
            self.deliveries.copies.add((event,))  # now, since it leaves less for deliveries

    def _take_shards(self, attribute: str, tree: HostedTree, event: Event, value: Interval) -> None:
        """Match an event by the shards of its value that are here; ask other hosts for the other
        shards."""
        cut = self._cut.get((attribute, value))
        if cut is None:
            cut = self._cut[attribute, value] = (self.gathering.choose(tree, value), [])
        choice, to_gather = cut
        _, mine = choice.get(self.port.me.id, (None, []))
        self.accepted.add_shards(attribute, event.sequence, value, mine)
        self._announce(tree, value)
        if len(choice) > 1:
            to_gather.append(event)

    def accept_part(self, attribute: str, tree: HostedTree, part: Part) -> None:
        """Match the events by those of the shards that are asked for which are served here, and
        pass the rest on: the map has changed since."""
        asked = union(part.shards)
        mine = [
            both for span in tree.served.spans for each in asked if (both := span.intersect(each))
        ]
        for event in self.visit.events if mine else ():
            self.accepted.add_shards(attribute, event.sequence, asked[0].around(), mine)
        moved: list[Interval] = []
        for shard in intersection(complement(union(mine), asked[0].around()), asked):
            entry = tree.served.slice.route(shard.lo)
            if entry is None or serves(entry, self.port.me.id):
                moved.append(shard)
                continue
            host = ranked(self.port.me.id, entry.hosts, self.port.me.region)[0]
            rest = msgspec.structs.replace(part, shards=(shard,))
            passed_on = msgspec.structs.replace(self.visit, hop=self.visit.hop + 1, part=rest)
            self.port.send(host, shown(passed_on, self.trees))
        self._answer_part(part, tuple(mine), tuple(moved))

    def _answer_part(self, part: Part, taken: Shards, moved: Shards) -> None:
        if taken or moved:
            sequences = tuple([event.sequence for event in self.visit.events])
            self.port.send(part.gatherer, PartTaken(part.number, sequences, taken, moved))

    def _announce(self, tree: HostedTree, span: Interval) -> None:
        key = (tree.attribute, span)
        if self.known.versions.get(key) != tree.version:
            self.known.versions[key] = tree.version
            shards = tree.served.shards.get(span)
            hosts = tree.served.hosts[span] if shards is None else next(by_value(shards))[1]
            hosts = hosts or (self.port.me,)
            self.locations.append(Location(tree.attribute, tree.version, span, hosts))

    def give_back(self, attribute: str) -> None:
        """Give the events of a tree back that this host does not serve. The publisher has to find
        the tree again."""
        self._give_back(attribute, [event.sequence for event in self.accepted.visiting(attribute)])

    def give_back_all(self) -> None:
        """Give the whole visit back."""
        for attribute in trees_of(self.visit):
            self.give_back(attribute)

    def _matches(self, attribute: str, event: Event, id_: str) -> bool:
        """Whether a registration that was found belongs to the shards that are asked for."""
        shards = self.accepted.shards.get((attribute, event.sequence))
        return shards is None or self.trees[attribute].lies_within(id_, shards)

    def _give_back(self, attribute: str, sequences: list[int]) -> None:
        self.port.count("visits_given_back", len(sequences))
        if self.visit.part is not None:
            self._answer_part(self.visit.part, (), self.visit.part.shards)
            return
        moved = TreeMoved(self.visit.events[0].incarnation, attribute, tuple(sequences))
        self.port.send(self.visit.origin, moved)

    # --- matching ---

    def match(self) -> int:
        """Find the interested nodes for the accepted events. Return how many events these are."""
        matched = self.accepted.events()
        if not matched:
            return 0
        if self.index is None:
            self._match_counting()
            return len(matched)
        me = self.port.me.id
        traced = self.port.sampled(self.visit.events)
        if not self.is_confined and self.index.groups() <= {me}:
            if len(self.index):
                hop, origin = self.visit.hop, self.visit.origin
                before, through = self.visit.before, self.visit.events[-1].sequence
                served = {name: self.trees[name].served for name in self.accepted.trees()}
                self.port.emit(Visited(origin, hop, matched, served, before, through))
            if traced:
                self._trace(traced, traced, self._match_pivot(self.index, traced))
        else:
            events = self.visit.events
            found = self._match_pivot(self.index, events)
            self.deliveries.spread_all(events, found)
            if traced:
                self._trace(traced, events, found)
        return len(matched)

    def _match_pivot(self, index: SharedIndex, events: Sequence[Event]) -> list[NodeMatches]:
        """Return the events for each interested node. A node gets an event once, however many of
        its registrations match."""
        whole = dict.fromkeys(self.accepted.common)
        batch: dict[NodeId, NodeMatches] = {}
        closely: dict[int, None] = {}  # the registration found is of a tree not visited here
        found = index.find_by_group([event.attributes for event in events])
        for where, keys in found.values():
            first, id_ = keys[0]
            peer = self.trees[first].registrations[id_][0].subscriber
            trees = list(map(tree_of, keys))
            is_named = index.size(peer.id) >= NAMED_FROM  # else matching costs the node less
            if whole.keys() >= dict.fromkeys(trees).keys():
                found_ids = [id_.removeprefix(peer.id) for _, id_ in keys] if is_named else []
                batch[peer.id] = NodeMatches(peer, where, trees, None, found_ids)
                continue
            by_tree = {name: self.accepted.spans(name) for name in dict.fromkeys(trees)}
            spans: list[Interval] = []
            mine = batch[peer.id] = NodeMatches(peer, [], [], spans)
            for place_, (attribute, id_) in zip(where, keys, strict=True):
                span = by_tree[attribute].get(events[place_].sequence)
                if span is None or (
                    self.accepted.shards and not self._matches(attribute, events[place_], id_)
                ):
                    closely[place_] = None
                else:
                    mine.places.append(place_)
                    mine.trees.append(attribute)
                    spans.append(span)
                    if is_named:
                        mine.found.append(id_.removeprefix(peer.id))
        if closely:
            batch = {node: mine.without(closely) for node, mine in batch.items()}
            for place_ in closely:
                event = events[place_]
                for to in self._recipients(index.match(event.attributes), event).values():
                    mine = batch.setdefault(to.peer.id, NodeMatches(to.peer, [], [], []))
                    mine.add(place_, to.attribute, to.interval)
        return [mine for mine in batch.values() if mine.places]

    def _recipients(self, keys: list[tuple[str, str]], event: Event) -> dict[NodeId, Recipient]:
        found: dict[NodeId, Recipient] = {}
        for attribute, id_ in keys:
            span = self.accepted.spans(attribute).get(event.sequence)
            if span is not None and self._matches(attribute, event, id_):
                peer = self.trees[attribute].registrations[id_][0].subscriber
                found.setdefault(peer.id, Recipient(peer, attribute, span))
        return found

    def _match_counting(self) -> None:
        """Match each tree by itself, and count the registrations that matched, as in the paper
        (C8)."""
        recipients: Recipients = {}
        for attribute in self.accepted.trees():
            tree = self.trees[attribute]
            for event in self.accepted.visiting(attribute):
                span = self.accepted.spans(attribute).get(event.sequence)
                if span is None:
                    continue
                matched: dict[NodeId, tuple[Peer, list[str]]] = {}
                ids = tree.index.match(event.attributes)
                ids = [id_ for id_ in ids if self._matches(attribute, event, id_)]
                for id_ in ids:
                    peer = tree.registrations[id_][0].subscriber
                    matched.setdefault(peer.id, (peer, []))[1].append(id_)
                for peer, found in matched.values():
                    life = self.deliveries.holding.registered.life_of(peer.id)
                    recipient = Recipient(peer, attribute, span, 0, life)
                    for counted in in_batches(found, weigh_text, IDS_MOST):
                        self.deliveries.add(recipient, event, counted)
                if matched:
                    recipients.setdefault(event.sequence, {})[attribute] = len(matched)
        if traced := self.port.sampled(self.visit.events):
            self._trace_matches(traced, recipients)

    def _trace(
        self, traced: Sequence[Event], events: Sequence[Event], found: Sequence[NodeMatches]
    ) -> None:
        """Record the matches of the `traced` events among these. A node counts in the tree by which
        it gets the event."""
        wanted = dict.fromkeys(event.sequence for event in traced)
        numbers = [event.sequence for event in events]
        traced_places = [(at, number) for at, number in enumerate(numbers) if number in wanted]
        recipients: Recipients = {}
        for mine in found:
            for at, number in traced_places:  # mostly few of many
                here = bisect_left(mine.places, at)
                if mine.places[here : here + 1] == [at]:
                    by_tree = recipients.setdefault(number, {})
                    attribute = mine.trees[here]
                    by_tree[attribute] = by_tree.get(attribute, 0) + 1
        self._trace_matches(traced, recipients)

    def _trace_matches(self, traced: Sequence[Event], recipients: Recipients) -> None:
        """Record one entry for each tree in which an event has matched a node. The other trees are
        only counted."""
        if self.accepted.parts or not self.accepted.common:
            unmatched: dict[str, int] = {}
            alone = 0
            for event in traced:
                trees = self.accepted.trees()
                mine = [name for name in trees if event.sequence in self.accepted.spans(name)]
                unmatched.update((name, unmatched.get(name, 0) + 1) for name in mine)
                alone += bool(mine) and event.sequence not in recipients
        else:
            unmatched = dict.fromkeys(self.accepted.whole, len(traced))
            alone = len(traced) - len(recipients)
        for event in traced if recipients else ():
            for attribute, count in recipients.get(event.sequence, {}).items():
                span = self.accepted.spans(attribute).get(event.sequence)
                assert span is not None, "it was matched there"
                unmatched[attribute] -= 1
                self.port.trace(
                    "match",
                    event=event.identity,
                    attribute=attribute,
                    lo=describe(span.lo),
                    hi=describe(span.hi),
                    version=self.trees[attribute].version[1],
                    recipients=count,
                )
        unmatched = {attribute: count for attribute, count in unmatched.items() if count}
        if unmatched:
            self.port.trace_unmatched(unmatched, alone)

    # --- what leaves ---

    def finish(self) -> None:
        """Send the results of the visit: forwarded events, deliveries, and the answer."""
        hop = self.visit.hop + 1
        for node, (host, by_tree) in self.forwarded.items():
            for attribute, some in by_tree.items():
                for event in self.port.sampled(some):
                    self.port.trace(
                        "visit", event=event.identity, attribute=attribute, hop=hop, peer=node
                    )
            groups = self._groups_of(by_tree)
            for visit in visits_of(
                self.visit.origin, hop, groups, lambda all_: (tuple(all_),), self.visit.before
            ):
                self.port.send(host, shown(visit, self.trees))
        self.deliveries.send()
        if self.visit.part is not None:
            return  # answered to the gatherer
        gathered: dict[str, dict[int, None]] = {}
        for (attribute, value), (choice, some) in self._cut.items():
            if some:
                numbers = [event.sequence for event in some]
                gathered.setdefault(attribute, {}).update(dict.fromkeys(numbers))
                self.gathering.begin(self.trees[attribute], self.visit, value, some, choice)
        taken: list[tuple[tuple[str, ...], tuple[int, ...]]] = []
        for trees, events in self.accepted.groups:
            names = tuple([name for name in trees if name in self.accepted.whole])
            if names:
                taken.append((names, tuple([event.sequence for event in events])))
        for name, part in self.accepted.parts.items():
            later = gathered.get(name, {})
            if at_once := tuple([sequence for sequence in part if sequence not in later]):
                taken.append(((name,), at_once))
        if taken or self.locations:
            incarnation = self.visit.events[0].incarnation
            self.acceptances.add(self.visit.origin, incarnation, taken, self.locations)

    def _groups_of(self, by_tree: Mapping[str, Sequence[Event]]) -> list[Group]:
        """Group the events to pass on, so that each event is in the message once; in counting
        routing, once for each tree."""
        if self.index is None or len(by_tree) == 1:
            return [((attribute,), events) for attribute, events in by_tree.items()]
        trees: dict[int, list[str]] = {}
        for attribute, events in by_tree.items():
            for event in events:
                trees.setdefault(event.sequence, []).append(attribute)
        groups: dict[tuple[str, ...], list[Event]] = {}
        for event in self.visit.events:
            if event.sequence in trees:
                groups.setdefault(tuple(trees[event.sequence]), []).append(event)
        return list(groups.items())
