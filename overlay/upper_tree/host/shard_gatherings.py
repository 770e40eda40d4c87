"""An event whose value is cut into shards: the host that it visits has all of them match it (C6).

To a publisher such a value is one place, and any host of any of its shards will do. The host that
is visited, the *gatherer*, matches the events by a shard of its own and asks one host of each other
shard to match them as well (`Visit.part`). Each of these sends what it matches to the interested
nodes itself, and answers the gatherer (`PartTaken`). When all shards have taken an event the
gatherer accepts it for the tree. So the publisher's promise holds as ever: until then it keeps the
event, and silence makes it visit another host, which gathers again.

What is kept here is soft: a gatherer that forgets an event only makes its publisher send it again.

```
publisher ── Visit ──► gatherer (shard 2) ── Visit, part ──► host of shard 1 ──► Deliver
                          │                └─ Visit, part ──► host of shard 3 ──► Deliver
          ◄── Accepted ───┴◄── PartTaken ── both
```

Shards have replicas, and a host may have several shards. A gatherer spreads an event over as many
hosts as it can, and of a shard's replicas prefers the one that stands where itself stands among its
own shard's: publishers spread over gatherers, and so gatherers over replicas. A host whose link is
lost, that does not serve the shard any more, or that is silent is passed over for the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from matching import Interval
from matching.values import complement, intersection, union
from overlay.bounded import BoundedDict
from overlay.client import Event
from overlay.links.events import LinkDown
from overlay.machine import Alarm, Machine, NodeId, Peer, Port, Timer
from overlay.upper_tree.host.constants import (
    GATHERED_EVENTS,
    GATHERED_FOR,
    PART_CHECK,
    PART_SILENT,
    SILENT_HOSTS,
)
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.host.visit_scheduler import VisitScheduler
from overlay.upper_tree.messages import Accepted, Entry, Part, PartTaken, TreeMoved, Visit

Shards = tuple[Interval, ...]

Choice = dict[NodeId, tuple[Peer, list[Interval]]]
"""By host the shards that it is to match."""


class GatheringDue(Timer, frozen=True):
    """Check for hosts that do not answer."""


class Asked(msgspec.Struct):
    """The question sent to one host."""

    shards: Shards
    at: float


class OpenGathering(msgspec.Struct):
    """Events of one visit with one value, until all shards have taken them."""

    visit: Visit
    attribute: str
    value: Interval
    began: float
    missing: dict[int, tuple[Event, Shards]]
    """By sequence number: the event, and the shards that have not taken it."""
    asked: dict[NodeId, Asked] = {}
    failed: dict[NodeId, None] = {}
    """Hosts that are not asked again."""

    def awaited(self, shards: Shards) -> list[Event]:
        """The events that some of these shards have not taken."""
        return [event for event, left in self.missing.values() if intersection(left, shards)]

    def taken(self, sequences: Iterable[int], shards: Shards) -> tuple[int, ...]:
        """These shards have matched these events. Returns those that no shard misses any more."""
        rest = complement(union(shards), self.value)
        done: list[int] = []
        for sequence in sequences:
            found = self.missing.get(sequence)
            if found is not None:
                event, left = found
                left = intersection(left, rest)
                if left:
                    self.missing[sequence] = (event, left)
                else:
                    del self.missing[sequence]
                    done.append(sequence)
        return tuple(done)


class ShardGathering(Machine):
    """The gatherings of one host. Bounded: the oldest are forgotten first."""

    def __init__(
        self, port: Port, trees: Mapping[str, HostedTree], scheduler: VisitScheduler
    ) -> None:
        """`trees` are the host's; `scheduler`: of the host, for its load."""
        super().__init__(port)
        self._trees = trees
        self._scheduler = scheduler
        self._open: dict[int, OpenGathering] = {}
        self._events = 0
        self._last = 0
        self._silent: BoundedDict[NodeId, float] = BoundedDict(SILENT_HOSTS)
        """Hosts that did not answer lately, and until when they are asked last."""
        self._check = Alarm(port, GatheringDue())

    def __len__(self) -> int:
        """Return the number of events being gathered. Used by checks."""
        return self._events

    def choose(self, tree: HostedTree, value: Interval) -> Choice:
        """Choose the host that matches events by each of the value's shards. At least one shard
        falls to this host."""
        entries = tree.served.shards[value]
        found = self._spread(entries, entries, {})
        return found if found is not None else {}

    def begin(
        self,
        tree: HostedTree,
        visit: Visit,
        value: Interval,
        events: Sequence[Event],
        choice: Choice,
    ) -> None:
        """Have the other chosen hosts match these events by their shards, and accept the events
        after that. This host has already matched them by its own shards."""
        others = {node: chosen for node, chosen in choice.items() if node != self.port.me.id}
        missing = union([shard for _, shards in others.values() for shard in shards])
        self._last += 1
        found = OpenGathering(
            visit,
            tree.attribute,
            value,
            self.port.now,
            {event.sequence: (event, missing) for event in events},
        )
        self._open[self._last] = found
        self._events += len(events)
        self.port.count("events_gathered", len(events))
        self._ask(self._last, found, others)
        while self._events > GATHERED_EVENTS:
            self._close(next(iter(self._open)))
        self._check.within(PART_CHECK)

    def _spread(
        self, entries: Sequence[Entry], wanted: Sequence[Entry], failed: Mapping[NodeId, None]
    ) -> Choice | None:
        """A host for each of the shards `wanted`, of all `entries` of the value, none of them
        `failed`, so that each has few. None: some shard has no such host."""
        me, now = self.port.me.id, self.port.now
        places = [
            (at, number)
            for number, entry in enumerate(entries)
            for at, host in enumerate(entry.hosts)
            if host.id == me
        ]
        column, own = min(places, default=(0, -1))
        found: Choice = {}
        if own >= 0 and me not in failed:
            found[me] = (self.port.me, [entries[own].interval])

        def rank(host: Peer) -> tuple[bool, int]:
            taken = len(found[host.id][1]) if host.id in found else 0
            return self._silent.get(host.id, now) > now, taken

        for entry in wanted:
            if me in found and entry is entries[own]:
                continue
            at = column % len(entry.hosts)
            may = [host for host in (*entry.hosts[at:], *entry.hosts[:at]) if host.id not in failed]
            host = min(may, key=rank, default=None)
            if host is None:
                return None
            found.setdefault(host.id, (host, []))[1].append(entry.interval)
        return found

    def _ask(self, number: int, gathering: OpenGathering, choice: Choice) -> None:
        for host, wanted in choice.values():
            asked = gathering.asked.get(host.id)
            mine = tuple(wanted)
            together = mine if asked is None else union((*asked.shards, *mine))
            gathering.asked[host.id] = Asked(together, self.port.now)
            self._send(host, gathering, Part(self.port.me, number, mine))

    def _ask_others(self, number: int, gathering: OpenGathering, shards: Shards) -> bool:
        """Ask other hosts for these shards. False, and nothing is asked, if there are none."""
        tree = self._trees.get(gathering.attribute)
        known = [] if tree is None else tree.served.shards.get(gathering.value, [])
        wanted = [
            Entry(part, entry.hosts)
            for entry in known
            for shard in shards
            if (part := entry.interval.intersect(shard)) is not None
        ]
        if complement(union([entry.interval for entry in wanted]), gathering.value) != complement(
            union(shards), gathering.value
        ):
            return False
        gathering.failed[self.port.me.id] = None
        choice = self._spread(known, wanted, gathering.failed)
        if choice is None:
            return False
        self._ask(number, gathering, choice)
        return True

    def _send(self, host: Peer, gathering: OpenGathering, part: Part) -> None:
        visit, attribute = gathering.visit, gathering.attribute
        events = gathering.awaited(part.shards)
        if not events:
            return
        for event in self.port.sampled(events):
            self.port.trace(
                "visit", event=event.identity, attribute=attribute, hop=visit.hop + 1, peer=host.id
            )
        tree = self._trees.get(attribute)
        tokens = (tree.shared_token,) if tree is not None and tree.shared_token else ()
        hop, before = visit.hop + 1, visit.before
        asked = Visit(visit.origin, hop, (attribute,), tuple(events), (), before, part, tokens)
        self.port.send(host, asked)

    # --- answers ---

    def on_part_taken(self, sender: Peer, message: PartTaken) -> None:
        """A host has matched events by some shards, or does not serve them. The publisher hears of
        the events that were the last of."""
        gathering = self._open.get(message.number)
        if gathering is None:
            return
        tree = self._trees.get(gathering.attribute)
        if tree is not None and tree.shared_token and not tree.is_host(sender.id, b""):
            self.port.count("parts_refused")  # it cannot have matched them
            return
        done = gathering.taken(message.sequences, message.taken)
        self._accept(gathering, done)
        if not gathering.missing:
            self._close(message.number)
        elif message.moved and gathering.awaited(message.moved):
            gathering.failed[sender.id] = None
            if not self._ask_others(message.number, gathering, message.moved):
                self._give_back(message.number)

    def _accept(self, gathering: OpenGathering, sequences: tuple[int, ...]) -> None:
        if sequences:
            self._events -= len(sequences)
            incarnation = gathering.visit.events[0].incarnation
            taken = (((gathering.attribute,), sequences),)
            self.port.send(
                gathering.visit.origin, Accepted(incarnation, taken, (), self._scheduler.load)
            )

    def _close(self, number: int) -> None:
        gathering = self._open.pop(number)
        self._events -= len(gathering.missing)

    def _give_back(self, number: int) -> None:
        """Give a visit back to its publisher, which looks for the tree again: no host of some shard
        is known here."""
        gathering = self._open[number]
        sequences = tuple(gathering.missing)
        self._close(number)
        incarnation = gathering.visit.events[0].incarnation
        self.port.send(
            gathering.visit.origin, TreeMoved(incarnation, gathering.attribute, sequences)
        )
        self.port.count("visits_given_back", len(sequences))

    # --- hosts that do not answer ---

    def on_link_down(self, event: LinkDown) -> None:
        """Ask other hosts for what this one has not answered."""
        self._failed(event.peer.id)

    def _failed(self, node: NodeId) -> None:
        for number, gathering in list(self._open.items()):
            asked = gathering.asked.pop(node, None)
            if asked is not None and gathering.awaited(asked.shards):
                gathering.failed[node] = None
                if not self._ask_others(number, gathering, asked.shards):
                    self._give_back(number)

    def on_gathering_due(self, timer: GatheringDue) -> None:
        """Ask other hosts where one is silent; forget what their publishers have long sent
        elsewhere."""
        self._check.rang()
        now = self.port.now
        for number, gathering in list(self._open.items()):
            if now - gathering.began > GATHERED_FOR:
                self._close(number)
                continue
            for node, asked in list(gathering.asked.items()):
                if now - asked.at >= PART_SILENT and gathering.awaited(asked.shards):
                    self._silent.renew(node, now + GATHERED_FOR)
                    gathering.failed[node] = None
                    asked.at = float("inf")
                    self._ask_others(number, gathering, asked.shards)  # without others it may yet
        if self._open:
            self._check.within(PART_CHECK)
