"""Finding an attribute's tree: a walk first, then the ring (C3, C5, C10).

    unknown ── walk ──► found                    an access point, by walk
                 └────► ask the owner ──► found   an entry, by ring
                                     └──► absent  nobody subscribes: believed for a term

An attribute whose owner is known, that was absent before, or whose known entries proved wrong
several times, is asked for at the owner at once: one question for all attributes of an event that
one cluster owns, which brings the summaries as well (`walk.always` and counting routing walk all
the same, as the paper has it). Many attributes travel together, in walks as in questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from overlay.chord.events import ClusterForked, OwnerFound, OwnerUnknown, RingLeft
from overlay.chord.keys import attribute_key
from overlay.links.events import LinkDown
from overlay.lower_random.events import WalkFailed, WalkFound
from overlay.machine import Alarm, Handlers, Machine, NodeId, Peer, Port, Timer
from overlay.settings import Settings
from overlay.upper_tree.batches import HEAD, in_batches, weigh_text
from overlay.upper_tree.cluster_view import RingView
from overlay.upper_tree.events import OwnerRefused, TreeAbsent, TreeFound
from overlay.upper_tree.messages import (
    AskBeliefs,
    AskTree,
    Believed,
    NotOwner,
    Recall,
    Recalled,
    TreeAnswer,
)
from overlay.upper_tree.publisher.location_cache import LocationCache

PAUSE = 0.25
"""Seconds before an owner that refused is looked for again; wild guess."""

PAUSE_SHARE = 0.25
"""Of the time that somebody has waited for a tree that no host serves now: its outage is a quarter
longer at most, and questions and visits in vain are few. (At a fixed pace they filled slow links,
and what hosts wait for came too late: a seed of the soak.)"""

PAUSE_MOST = 4.0
"""Seconds of such a pause at most. Wild guess."""


class Walker(Protocol):
    """What the finder needs of overlay/lower_random's `Crawl`."""

    def walk(self, attributes: Sequence[str], hops: int | None = None) -> None:
        """One walk for all: WalkFound per attribute that is met, WalkFailed for the rest."""


class AskAgain(Timer, frozen=True):
    """A question to an owner may be lost, or the owner was busy."""


REDIRECTS = 3
"""Owners in a row that are asked without a pause, so that two stale ones do not send a question to
and fro; wild guess."""


ASKED_MOST = 1_024
"""Questions whose time is remembered: what is answered later is not believed. Wild guess."""


class Search:
    """One attribute that is looked for."""

    __slots__ = ("again_at", "asked", "asked_at", "hops", "redirects", "stage")

    def __init__(self, stage: str) -> None:
        self.stage = stage  # walk, find (the owner), ask (the owner)
        self.hops = 0  # messages so far
        self.again_at = 0.0  # when to try once more (find, ask)
        self.asked: NodeId = ""  # the owner that was asked last
        self.asked_at: float | None = None  # when an owner was first asked
        self.redirects = 0  # owners that named another one


class Finder(Machine):
    """Looks trees up; tells by `TreeFound` and `TreeAbsent`, and fills the `LocationCache`."""

    def __init__(
        self,
        port: Port,
        settings: Settings,
        walker: Walker,
        ring: RingView,
        locations: LocationCache,
    ) -> None:
        super().__init__(port)
        self.settings = settings
        self._always = settings.walk.always or settings.tree.routing == "counting"
        self.walker = walker
        self.ring = ring
        self.locations = locations
        self.searches: dict[str, Search] = {}
        self._again = Alarm(port, AskAgain())
        self._number = 0  # of the last question
        self._asked: dict[int, float] = {}  # when questions were asked

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            WalkFound: self.on_walk_found,
            WalkFailed: self.on_walk_lost,
            OwnerFound: self.on_owner_found,
            OwnerUnknown: self.on_owner_unknown,
            TreeAnswer: self.on_tree_answer,
            NotOwner: self.on_not_owner,
            Recall: self.on_recall,
            AskBeliefs: self.on_ask_beliefs,
            ClusterForked: self.on_cluster_forked,
            LinkDown: self.on_link_down,
            RingLeft: self.on_ring_left,
            AskAgain: self.on_ask_again,
        }

    # --- asked from above ---

    def seek(self, attributes: Iterable[str], stale: bool = False) -> None:
        """Look for these trees; those that are being looked for already are not started again.

        `stale`: an entry that was known proved wrong, so the walk has half the hops (C10).
        """
        new = [a for a in dict.fromkeys(attributes) if a not in self.searches]
        walked = [a for a in new if self._is_worth_a_walk(a)]
        asked = [a for a in new if a not in walked]
        for attribute in walked:
            self.searches[attribute] = Search("walk")
        if walked:
            limit = self.settings.walk.hops
            self.walker.walk(walked, max(1, limit // 2) if stale else limit)
        self.ask_ring(asked)

    def _is_worth_a_walk(self, attribute: str) -> bool:
        if self.locations.was_absent(attribute):
            return False
        return self._always or self.ring.owner(attribute_key(attribute)) is None

    def ask_ring(self, attributes: Iterable[str]) -> None:
        """Ask the owners, without a walk."""
        questions: dict[str, tuple[Peer, list[str]]] = {}
        for attribute in attributes:
            search = self.searches.setdefault(attribute, Search("find"))
            key = attribute_key(attribute)
            owner = self.ring.owner(key)
            if owner is None:
                self._find(attribute, search)
            else:
                search.stage = "ask"
                search.asked = owner.primary.id
                search.again_at = self.port.now + self.settings.ring.lookup_timeout
                search.hops += 1
                if search.asked_at is None:
                    search.asked_at = self.port.now
                primary = owner.primary
                questions.setdefault(primary.id, (primary, []))[1].append(attribute)
        for peer, names in questions.values():
            self._ask(peer, names)
        if self.searches:
            self._again.within(PAUSE)

    def ask_soon(self, attributes: Iterable[str], since: float) -> None:
        """Ask the owners in a moment: the later the longer somebody has waited, `since` when."""
        waited = self.port.now - since
        again_at = self.port.now + min(max(PAUSE, PAUSE_SHARE * waited), PAUSE_MOST)
        for attribute in attributes:
            self.searches.setdefault(attribute, Search("find")).again_at = again_at
        self._again.within(PAUSE)

    def _find(self, attribute: str, search: Search) -> None:
        search.stage = "find"
        search.again_at = self.port.now + self.settings.tree.retry
        self.ring.find(attribute_key(attribute))

    def ask_summaries(self, attributes: Iterable[str]) -> None:
        """Ask the owners what is in these trees. Nothing waits for the answer."""
        questions: dict[str, tuple[Peer, list[str]]] = {}
        for attribute in attributes:
            key = attribute_key(attribute)
            owner = self.ring.owner(key)
            if owner is None:
                self.ring.find(key)
            else:
                primary = owner.primary
                questions.setdefault(primary.id, (primary, []))[1].append(attribute)
        for peer, names in questions.values():
            self._ask(peer, names)

    def _ask(self, owner: Peer, attributes: list[str]) -> None:
        for names in in_batches(attributes, weigh_text):
            self._number += 1
            self._asked[self._number] = self.port.now
            if len(self._asked) > ASKED_MOST:
                del self._asked[next(iter(self._asked))]
            held = tuple(map(self.locations.summaries.digest, names))
            self.port.send(owner, AskTree(names, self._number, held if any(held) else ()))

    # --- walks ---

    def on_walk_found(self, event: WalkFound) -> None:
        """An access point."""
        attribute = event.point.attribute
        if attribute in self.searches:
            self.searches[attribute].hops += event.hop
            self.locations.learn_entry(attribute, event.point.peer)
            self._found(attribute, "walk")

    def on_walk_lost(self, event: WalkFailed) -> None:
        """The ring answers with certainty (C5)."""
        lost = []
        for attribute in event.attributes:
            search = self.searches.get(attribute)
            if search is not None and search.stage == "walk":
                search.hops += event.hop
                lost.append(attribute)
        self.ask_ring(lost)

    # --- the ring ---

    def on_owner_found(self, event: OwnerFound) -> None:
        """Ask the owner of this key for all attributes that it owns."""
        mine = [
            attribute
            for attribute, search in self.searches.items()
            if search.stage == "find" and event.cluster.owns(attribute_key(attribute))
        ]
        for attribute in mine:
            self.searches[attribute].hops += event.hops
        self.ask_ring(mine)

    def on_owner_unknown(self, event: OwnerUnknown) -> None:
        """The ring is not reachable now: once more after a pause."""
        for attribute, search in self.searches.items():
            if search.stage == "find" and attribute_key(attribute) == event.key:
                search.again_at = self.port.now + PAUSE

    def on_tree_answer(self, sender: Peer, message: TreeAnswer) -> None:
        """Certainty."""
        now = self.port.now
        asked_at = self._asked.get(message.number)
        for found in message.summaries:
            if asked_at is not None:  # the term is counted from the question, as below
                self.locations.learn_summary(found, asked_at + message.term, message.epoch, now)
        for location in message.entries:
            self.locations.learn(location)
            if location.attribute in self.searches:
                self._found(location.attribute, "ring")
        for attribute in message.nobody:
            search = self.searches.get(attribute)
            if search is None or search.asked_at is None:
                continue
            # The owner counts the term from its answer. Counted from the question, and the first
            # one if there were several, belief ends earlier here than there, however slow the link.
            until = search.asked_at + message.term
            if self.locations.absent(attribute, until, message.epoch, now):
                del self.searches[attribute]
                self.port.count("lookups_nobody")
                self.port.trace("nobody", attribute=attribute, hops=search.hops)
                self.port.emit(TreeAbsent(attribute, until))

    def on_not_owner(self, sender: Peer, message: NotOwner) -> None:
        """The arc has moved (ask whom it names, at once), or is moving (ask again in a moment)."""
        named = message.cluster is not None and message.cluster.primary.id != sender.id
        if message.cluster is not None:
            self.ring.learn(message.cluster)
        at_once = []
        for attribute in message.attributes:
            search = self.searches.get(attribute)
            if search is not None:
                search.again_at = self.port.now + PAUSE
                search.redirects += 1
                if named and search.redirects <= REDIRECTS:
                    at_once.append(attribute)
        self.ask_ring(at_once)
        self.port.emit(OwnerRefused(message.attributes))

    def on_recall(self, sender: Peer, message: Recall) -> None:
        """Somebody subscribes now: look again at the next event. (A question whose answer is still
        to come is answered after the recall, by this owner.)"""
        doubt_until = self.port.now + self.settings.tree.nobody_term
        self.locations.recall(message.attribute, message.epoch, doubt_until)
        self.port.send(sender, Recalled(message.attribute, message.number))

    def on_ask_beliefs(self, sender: Peer, message: AskBeliefs) -> None:
        """A new owner may have to take back what a former one said. What that one said under its
        epoch and is still to come was asked for before: a term from now on it is over."""
        arc, now = message.cluster, self.port.now
        self.ring.learn(arc)
        if not self.locations.fence(arc, now + self.settings.tree.nobody_term, now):
            return  # the owner waits for the term
        batches = list(in_batches(self.locations.beliefs(arc, now), weigh_belief)) or [()]
        for batch in batches:
            last = batch is batches[-1]
            self.port.send(sender, Believed(arc.key, arc.version[0], batch, last))

    def on_cluster_forked(self, event: ClusterForked) -> None:
        """Another has taken the place of an owner that did not answer: ask it at once."""
        self.ask_ring(
            [
                attribute
                for attribute, search in self.searches.items()
                if search.stage != "walk" and event.cluster.owns(attribute_key(attribute))
            ]
        )

    def on_link_down(self, event: LinkDown) -> None:
        """An owner that was asked is lost: its cluster will have another primary."""
        for attribute, search in self.searches.items():
            if search.stage == "ask" and search.asked == event.peer.id:
                self._find(attribute, search)

    def on_ring_left(self, event: RingLeft) -> None:
        """The owners are others now. Nothing counts that those of before have told or will tell."""
        self.locations.forget_all()
        self._asked.clear()
        for search in self.searches.values():
            search.asked_at = None
            search.redirects = 0
        self.ask_ring([a for a, search in self.searches.items() if search.stage != "walk"])

    def on_ask_again(self, timer: AskAgain) -> None:
        """What was not answered in time is asked once more, through a fresh lookup."""
        self._again.rang()
        due = [
            attribute
            for attribute, search in self.searches.items()
            if search.stage != "walk" and search.again_at <= self.port.now
        ]
        for attribute in due:
            search = self.searches[attribute]
            if search.stage == "ask":
                self._find(attribute, search)
        self.ask_ring([a for a in due if self.searches[a].again_at <= self.port.now])
        waiting = [s.again_at for s in self.searches.values() if s.stage != "walk"]
        if waiting:
            self._again.within(min(PAUSE, max(0.0, min(waiting) - self.port.now)))
        elif self.searches:
            self._again.within(PAUSE)

    def _found(self, attribute: str, by: str) -> None:
        search = self.searches.pop(attribute)
        self.port.count("lookups_by_walk" if by == "walk" else "lookups_by_ring")
        self.port.trace("located", attribute=attribute, by=by, hops=search.hops)
        self.locations.found(attribute, by, search.hops)
        self.port.emit(TreeFound(attribute))


def weigh_belief(belief: tuple[str, int]) -> int:
    """Bytes of one thing that is believed, about."""
    return 2 * HEAD + weigh_text(belief[0])
