"""Finds who would get an event if it were published: `canopy pub --dry-run`.

    program's node ── FindHosts ──► owner of each attribute        which hosts have its tree?
                   ── AskMatches ─► a host of the value's virtual node    who matches?
                   ── Recipients ─► program

The way is that of a publisher which knows nothing (C5), with the certainty of the owner: no random
walk, no summary, and nothing is remembered here or there. A host matches as for a visit and
delivers nothing (../host/host.py). An owner or host that is silent is asked once more, the
host's next replica instead of it; what has not answered in the end is named, since others may get
the event through it.

An event goes through each tree of its attributes, so a node may be found by several hosts: its
subscriptions are counted once, by id, as far as the answers list them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from matching import Value
from overlay.chord.events import OwnerFound
from overlay.chord.keys import attribute_key
from overlay.chord.ring.ring import Ring
from overlay.client import DRY_RUN_ATTRIBUTES, DRY_RUN_MOST, Draft, DryRun, Failed, Recipients
from overlay.info import EventRecipients, RecipientInfo
from overlay.machine import Machine, NodeId, Peer, Port, ProtocolError, Timer
from overlay.settings import Settings
from overlay.upper_tree.batches import HEAD, MAX_BATCH, in_batches, weigh_event, weigh_text
from overlay.upper_tree.clients.constants import DRY_RUN_AGAIN, QUERY_TIMEOUT
from overlay.upper_tree.inspection_messages import (
    AskMatches,
    FindHosts,
    HostsFound,
    MatchesFound,
    NodeMatch,
)
from overlay.upper_tree.messages import EVENT_TREE, Location
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.registrations.restoration import TreeRestoration
from overlay.upper_tree.partition import ranked
from overlay.upper_tree.publisher.admission import foreseen, refusal

NO_OWNER = "the owner of its tree did not answer"
NO_HOST = "no host of its tree answered"


class HostsAgain(Timer, frozen=True):
    """Repeat an unanswered question, or ask the next replica."""

    number: int


class DryRunTimeout(Timer, frozen=True):
    """Owners and hosts have had time to answer."""

    number: int


Visited = tuple[str, int, int]
"""An attribute, an event's place, and which shard of its value: 0 where that is not cut."""


class DryVisit(msgspec.Struct):
    """One event at one tree, or at one shard of its value. `replicas`: the hosts that can be asked,
    None before the owner has named them. `asked`: the host that was asked last."""

    replicas: list[Peer] | None = None
    asked: NodeId = ""


class Found(msgspec.Struct):
    """The findings about one event: why it is refused, to which nodes it would be sent, and the
    number of nodes that some host has found at least."""

    refused: str
    nodes: dict[NodeId, NodeMatch] = {}
    least: int = 0

    def add(self, count: int, listed: Iterable[NodeMatch]) -> None:
        """Add a host's answer that it matches this event for `count` nodes."""
        self.least = max(self.least, count)
        for match in listed:
            known = self.nodes.get(match.peer.id)
            ids = tuple(dict.fromkeys((*(known.ids if known else ()), *match.ids)))
            most = max(len(ids), match.subscriptions, known.subscriptions if known else 0)
            self.nodes[match.peer.id] = NodeMatch(match.peer, most, ids)


class DryRunQuery(msgspec.Struct):
    """A program's DryRun, while owners and hosts are asked. `open`: the unanswered parts."""

    client: int
    request: int
    events: tuple[dict[str, Value | None], ...]
    found: list[Found]
    open: dict[Visited, DryVisit]
    lookups: dict[str, None] = {}  # attributes whose owner is being looked up

    def without_hosts(self) -> dict[str, None]:
        """The attributes whose owner has not answered."""
        return dict.fromkeys(name for (name, _, _), at in self.open.items() if at.replicas is None)


class DryRuns(Machine):
    """Answers `DryRun` of clients, and other nodes' questions which hosts have the trees of the
    own cluster."""

    def __init__(
        self,
        port: Port,
        settings: Settings,
        owner: Owner,
        restoration: TreeRestoration,
        ring: Ring,
    ) -> None:
        super().__init__(port)
        self.is_counting = settings.tree.routing == "counting"
        self.owner = owner
        self.restoration = restoration
        self.ring = ring
        self._queries: dict[int, DryRunQuery] = {}
        self._number = 0

    def commands(self) -> dict[type, Callable[..., None]]:
        """Commands with the method that carries each out."""
        return {DryRun: self.dry_run}

    # --- asking ---

    def dry_run(self, client: int, command: DryRun) -> None:
        """Ask the owners of all attributes of the events, as far as these could be published."""
        if self.is_counting:
            reason = "a dry run needs pivot routing: with counting no host sees whole selectors"
            self.port.reply(client, Failed(command.request, "refused", reason))
            return
        found = [Found(refusal(draft) or foreseen(self.port, draft)) for draft in command.events]
        pairs = zip(command.events, found, strict=True)
        names = {name for draft, at in pairs if not at.refused for name in draft.attributes}
        if len(command.events) > DRY_RUN_MOST or len(names) > DRY_RUN_ATTRIBUTES:
            reason = f"{len(command.events)} events with {len(names)} attributes in one dry run; "
            reason += f"at most {DRY_RUN_MOST} events, and {DRY_RUN_ATTRIBUTES} attributes of all"
            self.port.reply(client, Failed(command.request, "usage", reason))
            return
        events = tuple(draft.attributes for draft in command.events)
        visits = {
            (name, number, 0): DryVisit()
            for number, attributes in enumerate(events)
            if not found[number].refused
            for name in (EVENT_TREE, *attributes)
            if name == EVENT_TREE or attributes[name] is not None
        }
        query = DryRunQuery(client, command.request, events, found, visits)
        self._number += 1
        self._queries[self._number] = query
        if not visits:
            self._answer(self._number)
            return
        self.port.set_timer(QUERY_TIMEOUT, DryRunTimeout(self._number))
        self.port.set_timer(DRY_RUN_AGAIN, HostsAgain(self._number))
        self._find_owners(query)

    def _find_owners(self, query: DryRunQuery) -> None:
        query.lookups = query.without_hosts()
        for attribute in query.lookups:
            self.ring.find(attribute_key(attribute))

    def on_owner_found(self, event: OwnerFound) -> None:
        """Ask it where the trees are of all attributes that it owns and a dry run waits for."""
        for number, query in self._queries.items():
            mine = [name for name in query.lookups if event.cluster.owns(attribute_key(name))]
            for name in mine:
                del query.lookups[name]
            for names in in_batches(mine, weigh_text):
                self.port.send(event.cluster.primary, FindHosts(number, names))

    def on_hosts_found(self, sender: Peer, message: HostsFound) -> None:
        """An owner says which hosts trees have: ask one for each value."""
        query = self._queries.get(message.number)
        if query is None:
            return
        for attribute in message.absent:
            for number in range(len(query.events)):
                query.open.pop((attribute, number, 0), None)
        by_name: dict[str, list[Location]] = {}
        for location in message.locations:
            by_name.setdefault(location.attribute, []).append(location)
        due = []
        for visit, visited in list(query.open.items()):
            attribute, number, first = visit
            if visited.replicas is None and attribute in by_name:
                value = True if attribute == EVENT_TREE else query.events[number][attribute]
                shards = hosts_of(by_name[attribute], value)
                for shard, hosts in enumerate(shards[first:] if first else shards, first):
                    at = query.open.setdefault((attribute, number, shard), DryVisit())
                    if at.replicas is None:
                        at.replicas = ranked(self.port.me.id, hosts)
                        due.append((attribute, number, shard))
        self._ask_hosts(message.number, query, due)
        self._finish(message.number, query)

    def _ask_hosts(self, number: int, query: DryRunQuery, visits: Iterable[Visited]) -> None:
        """Ask the next replica about each of these visits, if there is one left."""
        by_host: dict[NodeId, tuple[Peer, dict[int, list[str]]]] = {}
        for visit in visits:
            attribute, event, _ = visit
            visited = query.open[visit]
            if visited.replicas:
                host = visited.replicas.pop(0)
                visited.asked = host.id
                trees = by_host.setdefault(host.id, (host, {}))[1]
                if attribute not in trees.setdefault(event, []):
                    trees[event].append(attribute)
        for host, trees_of in by_host.values():
            weigh = event_weigher(query.events)
            for numbers in in_batches(trees_of, weigh):
                self.port.send(host, question(number, query.events, numbers, trees_of))

    def on_matches_found(self, sender: Peer, message: MatchesFound) -> None:
        """A host says who matches."""
        query = self._queries.get(message.number)
        if query is None:
            return
        moved = {(name, event) for name, events in message.moved for event in events}
        if not len(message.events) == len(message.nodes) == len(message.listed):
            raise ProtocolError("an answer to a dry run has not a part for each event")
        parts = zip(message.nodes, message.listed, strict=True)
        answered = dict(zip(message.events, parts, strict=True))
        again = []
        for visit, visited in list(query.open.items()):
            if visited.asked != sender.id or visit[1] not in answered:
                continue
            if visit[:2] in moved:
                visited.asked = ""
                visited.replicas = visited.replicas or None  # with none left the owner is asked
                again.append(visit)
            else:
                del query.open[visit]
        for event, (count, listed) in answered.items():
            if 0 <= event < len(query.found):
                query.found[event].add(count, listed)
        self._ask_hosts(message.number, query, again)
        self._finish(message.number, query)

    def on_hosts_again(self, timer: HostsAgain) -> None:
        """A node is silent: look its owner up again, or ask another host."""
        query = self._queries.get(timer.number)
        if query is not None:
            self._find_owners(query)
            self._ask_hosts(timer.number, query, list(query.open))
            self.port.set_timer(DRY_RUN_AGAIN, timer)

    def on_dry_run_timeout(self, timer: DryRunTimeout) -> None:
        """Answer with the findings so far."""
        if timer.number in self._queries:
            self._answer(timer.number)

    # --- answering ---

    def _finish(self, number: int, query: DryRunQuery) -> None:
        if not query.open:
            self._answer(number)

    def _answer(self, number: int) -> None:
        query = self._queries.pop(number)
        self.port.cancel_timer(DryRunTimeout(number))
        self.port.cancel_timer(HostsAgain(number))
        unanswered: list[dict[str, str]] = [{} for _ in query.events]
        for (attribute, event, _), visited in query.open.items():
            unanswered[event][attribute] = NO_OWNER if visited.replicas is None else NO_HOST
        infos = tuple(
            event_recipients(found, missing)
            for found, missing in zip(query.found, unanswered, strict=True)
        )
        self.port.reply(query.client, Recipients(query.request, infos))

    def on_find_hosts(self, sender: Peer, message: FindHosts) -> None:
        """Say where trees are about which this node decides."""
        if len(message.attributes) > MAX_BATCH:
            raise ProtocolError("too many attributes in one question")
        absent: list[str] = []
        locations: list[Location] = []
        for attribute in message.attributes:
            owned = self.owner.trees.get(attribute)
            if not self.owner.decides(attribute):
                continue
            if self.restoration.withholds(attribute, self.port.now):
                continue
            if owned is None:
                absent.append(attribute)
            else:
                map_ = owned.tree.map
                locations += (
                    Location(attribute, map_.version, e.interval, e.hosts) for e in map_.entries
                )
        batches = list(in_batches(locations, weigh_hosts)) or [()]
        for batch in batches:
            gone = tuple(absent) if batch is batches[0] else ()
            self.port.send(sender, HostsFound(message.number, batch, gone))


def hosts_of(locations: Sequence[Location], value: Value | None) -> list[tuple[Peer, ...]]:
    """The hosts of the virtual node that contains the value, or of each shard of the value, as far
    as they are among these."""
    return [location.hosts for location in locations if location.interval.around().contains(value)]


def question(
    number: int,
    events: Sequence[dict[str, Value | None]],
    numbers: Sequence[int],
    trees_of: Mapping[int, Sequence[str]],
) -> AskMatches:
    """The question for these events at one host, each with the trees that it would visit there."""
    by_tree: dict[str, list[int]] = {}
    for event in numbers:
        for attribute in trees_of[event]:
            by_tree.setdefault(attribute, []).append(event)
    trees = tuple((attribute, tuple(visiting)) for attribute, visiting in by_tree.items())
    return AskMatches(number, tuple(numbers), tuple(events[event] for event in numbers), trees)


def event_recipients(found: Found, unanswered: Mapping[str, str]) -> EventRecipients:
    """Return the answer to the program about one event."""
    listed = tuple(
        RecipientInfo(match.peer.id, match.peer.address, match.subscriptions, match.ids)
        for match in sorted(found.nodes.values(), key=lambda match: match.peer.id)
    )
    count = max(found.least, len(listed))
    return EventRecipients(found.refused, count, listed, tuple(sorted(unanswered.items())))


def event_weigher(events: Sequence[dict[str, Value | None]]) -> Callable[[int], int]:
    """A function from an event's place to its estimated bytes."""
    return lambda number: weigh_event(Draft(events[number]))


def weigh_hosts(location: Location) -> int:
    """Estimated bytes of a virtual node's location, with its hosts."""
    texts = [end[1] for end in (location.interval.lo, location.interval.hi)]
    size = sum(weigh_text(text) for text in texts if isinstance(text, str))
    return 8 * HEAD + weigh_text(location.attribute) + size + 4 * HEAD * len(location.hosts)
