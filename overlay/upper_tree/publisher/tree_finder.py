"""Finds an attribute's tree: by a random walk first, then by asking its owner (C3, C5, C10).

    unknown ── walk ──► found                    access points, by walk
                 └────► ask the owner ──► found   virtual nodes, by ring
                                     └──► absent  no subscribers: cached for a term

A walk finds where a tree is, and never that there is none: that only its owner says. If the
attribute had no subscribers before, or hosts that were known proved wrong several times, the owner
is asked at once: one question for all attributes of an event that one cluster owns, which brings
the summaries as well. (Without `walk.first` it is asked at once whenever it is known; counting
routing walks all the same, as CBDLO has it.) Many attributes travel together, in walks as in
questions.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from overlay.bounded import BoundedDict
from overlay.chord.events import ClusterForked, OwnerFound, OwnerUnknown, RingLeft
from overlay.chord.keys import attribute_key
from overlay.chord.ring.ring import Ring
from overlay.links.events import LinkDown
from overlay.lower_random.crawl import Crawl
from overlay.lower_random.messages import WalkFailed, WalkFound
from overlay.machine import Alarm, Handler, Handlers, Machine, Message, NodeId, Peer, Port, Timer
from overlay.settings import Settings
from overlay.upper_tree.batches import HEAD, in_batches, weigh_text
from overlay.upper_tree.events import OwnerRefused, TreeAbsent, TreeFound
from overlay.upper_tree.messages import (
    AskCached,
    AskTree,
    CacheReport,
    Invalidate,
    Invalidated,
    NotOwner,
    TreeAnswer,
)
from overlay.upper_tree.owner_claims import OwnerClaims, RecallsDue
from overlay.upper_tree.publisher.constants import (
    QUESTIONS_MOST,
    REDIRECTS_MOST,
    SEARCH_PAUSE,
    SEARCH_PAUSE_MOST,
    SEARCH_PAUSE_SHARE,
)
from overlay.upper_tree.publisher.location_cache import LocationCache


class AskAgainDue(Timer, frozen=True):
    """Questions to owners may be lost, or the owner was busy: ask again."""


class Search(msgspec.Struct):
    """The search for one attribute's tree."""

    stage: str  # walk, find (the owner), ask (the owner)
    hops: int = 0  # messages so far
    again_at: float = 0.0  # when to try once more (find, ask)
    asked: NodeId = ""  # the owner that was asked last
    asked_at: float | None = None  # when an owner was first asked
    redirects: int = 0  # owners that named another one


class TreeFinder(Machine):
    """Looks trees up. Emits `TreeFound` and `TreeAbsent`, and fills the `LocationCache`."""

    def __init__(
        self,
        port: Port,
        settings: Settings,
        walker: Crawl,
        ring: Ring,
        locations: LocationCache,
        is_keyed: bool = False,
    ) -> None:
        """`is_keyed`: nodes have keys, so that who recalls what owners have said can be looked
        at."""
        super().__init__(port)
        self.settings = settings
        self._walks_first = settings.walk.first or settings.tree.routing == "counting"
        self.walker = walker
        self.ring = ring
        self.locations = locations
        self.searches: dict[str, Search] = {}
        self._again = Alarm(port, AskAgainDue())
        self._number = 0  # of the last question
        # number -> when, and whom
        self._asked: BoundedDict[int, tuple[float, NodeId]] = BoundedDict(QUESTIONS_MOST)

        self._recalls: dict[type[Message], Handler] = {
            Invalidate: self.on_invalidate,
            AskCached: self.on_ask_cached,
        }
        self.claims = (
            OwnerClaims(port, ring, self._obey, self._recalls, RecallsDue()) if is_keyed else None
        )

    @property
    def machines(self) -> tuple[Machine, ...]:
        """This machine, and the one that checks who recalls events."""
        return (self,) if self.claims is None else (self, self.claims)

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        found = dict(super().handlers())
        if self.claims is not None:  # which takes these
            for kind in self._recalls:
                del found[kind]
        return found

    def _obey(self, sender: Peer, message: Message) -> None:
        self._recalls[type(message)](sender, message)

    # --- asked from above ---

    def seek(self, attributes: Iterable[str], stale: bool = False) -> None:
        """Look for these trees; those that are being looked for already are not started again.

        `stale`: an entry that was known proved wrong, so the walk has half the hops (C10).
        """
        new = [a for a in dict.fromkeys(attributes) if a not in self.searches]
        walked = [a for a in new if self._is_walked(a)]
        asked = [a for a in new if a not in walked]
        for attribute in walked:
            self.searches[attribute] = Search("walk")
        if walked:
            limit = self.settings.walk.hops
            self.walker.walk(walked, max(1, limit // 2) if stale else limit)
        self.ask_ring(asked)

    def _is_walked(self, attribute: str) -> bool:
        if self.locations.was_absent(attribute):
            return False
        return self._walks_first or self.ring.owner(attribute_key(attribute)) is None

    def ask_ring(self, attributes: Iterable[str]) -> None:
        """Ask the owners where these trees are, without a walk."""
        questions: dict[Peer, list[str]] = {}
        for attribute in attributes:
            search = self.searches.setdefault(attribute, Search("find"))
            owner = self.ring.owner(attribute_key(attribute))
            if owner is None:
                self._find(attribute, search)
            else:
                search.stage = "ask"
                search.asked = owner.primary.id
                search.again_at = self.port.now + self.settings.ring.lookup_timeout
                search.hops += 1
                if search.asked_at is None:
                    search.asked_at = self.port.now
                questions.setdefault(owner.primary, []).append(attribute)
        self._ask(questions)
        if self.searches:
            self._again.within(SEARCH_PAUSE)

    def ask_again(self, attributes: Iterable[str]) -> None:
        """Ask the owners whether these trees have other hosts, unless they are being looked for."""
        self.ask_ring([name for name in attributes if name not in self.searches])

    def ask_soon(self, attributes: Iterable[str], since: float) -> None:
        """Ask the owners in a moment: the later the longer an event has waited, since `since`."""
        waited = self.port.now - since
        again_at = self.port.now + min(
            max(SEARCH_PAUSE, SEARCH_PAUSE_SHARE * waited), SEARCH_PAUSE_MOST
        )
        for attribute in attributes:
            self.searches.setdefault(attribute, Search("find")).again_at = again_at
        self._again.within(SEARCH_PAUSE)

    def _find(self, attribute: str, search: Search) -> None:
        search.stage = "find"
        search.again_at = self.port.now + self.settings.tree.retry
        self.ring.find(attribute_key(attribute))

    def ask_summaries(self, attributes: Iterable[str]) -> None:
        """Ask the owners for these trees' summaries. Nothing waits for the answer."""
        questions: dict[Peer, list[str]] = {}
        for attribute in attributes:
            key = attribute_key(attribute)
            owner = self.ring.owner(key)
            if owner is None:
                self.ring.find(key)
            else:
                questions.setdefault(owner.primary, []).append(attribute)
        self._ask(questions)

    def _ask(self, questions: dict[Peer, list[str]]) -> None:
        """Ask each owner about these attributes."""
        for owner, attributes in questions.items():
            for names in in_batches(attributes, weigh_text):
                self._number += 1
                self._asked[self._number] = (self.port.now, owner.id)
                self.port.count("owners_asked", len(names))
                cached = tuple(map(self.locations.summaries.digest, names))
                self.port.send(owner, AskTree(names, self._number, cached if any(cached) else ()))

    # --- walks ---

    def on_walk_found(self, event: WalkFound) -> None:
        """The walk met access points of the tree."""
        attribute = event.point.attribute
        if attribute in self.searches:
            self.searches[attribute].hops += event.hop
            for point in (*event.others, event.point):
                self.locations.learn_entry(attribute, point.peer)
            self._found(attribute, "walk")

    def on_walk_failed(self, event: WalkFailed) -> None:
        """The walk met no access point: ask the owners, who know for certain (C5)."""
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
        """The lookup failed: look the owner up once more after a pause."""
        for attribute, search in self.searches.items():
            if search.stage == "find" and attribute_key(attribute) == event.key:
                search.again_at = self.port.now + SEARCH_PAUSE

    def on_tree_answer(self, sender: Peer, message: TreeAnswer) -> None:
        """The owner says where trees are, or that they have no subscribers. Nobody else is
        believed, nor is an answer to no question."""
        now = self.port.now
        asked_at, asked = self._asked.get(message.number, (now, ""))
        if asked != sender.id:
            self.port.count("answers_refused")
            return
        for found in message.summaries:
            # the term is counted from the question, as below
            self.locations.learn_summary(found, asked_at + message.term, message.epoch, now)
        for location in message.entries:
            self.locations.learn(location)
            if location.attribute in self.searches:
                self._found(location.attribute, "ring")
        for attribute in message.absent:
            search = self.searches.get(attribute)
            if search is None or search.asked_at is None:
                continue
            # The owner counts the term from its answer. Counted from the question, and the first
            # one if there were several, it ends earlier here than there, however slow the link.
            until = search.asked_at + message.term
            if self.locations.learn_absent(attribute, until, message.epoch, now):
                del self.searches[attribute]
                self.port.count("lookups_absent")
                self.port.trace("absent", attribute=attribute, hops=search.hops)
                self.port.emit(TreeAbsent(attribute, until))

    def on_not_owner(self, sender: Peer, message: NotOwner) -> None:
        """The arc has moved (ask the owner that is named, at once), or is moving (ask again in a
        moment)."""
        named = message.cluster is not None and message.cluster.primary.id != sender.id
        if message.cluster is not None:
            self.ring.learn(message.cluster)
        at_once = []
        for attribute in message.attributes:
            search = self.searches.get(attribute)
            if search is not None:
                search.again_at = self.port.now + SEARCH_PAUSE
                search.redirects += 1
                if named and search.redirects <= REDIRECTS_MOST:
                    at_once.append(attribute)
        self.ask_ring(at_once)
        self.port.emit(OwnerRefused(message.attributes))

    def on_invalidate(self, sender: Peer, message: Invalidate) -> None:
        """Cached summaries do not admit a new subscriber: drop them, and ask at the next event.
        (A question that is still unanswered is answered after this by the same owner.)"""
        until = self.port.now + self.settings.tree.summary_term
        for attribute in message.attributes:
            self.locations.invalidate(attribute, message.epoch, until)
        self.port.send(sender, Invalidated(message.attributes, message.number))

    def on_ask_cached(self, sender: Peer, message: AskCached) -> None:
        """Report the copies that a former owner granted, for the new one to invalidate. Answers of
        the former one that are still to come were asked for before: in a term they expire."""
        arc, now = message.cluster, self.port.now
        if not self.ring.admits(arc):
            self.port.count("claims_refused")
            return
        self.ring.learn(arc)
        if not self.locations.fence(arc, now + self.settings.tree.summary_term, now):
            return  # without a report the owner waits for the term
        batches = list(in_batches(self.locations.cached(arc, now), weigh_copy)) or [()]
        for batch in batches:
            last = batch is batches[-1]
            self.port.send(sender, CacheReport(arc.key, arc.version[0], batch, last))

    def on_cluster_forked(self, event: ClusterForked) -> None:
        """A cluster went on under another primary: ask it at once what its former one was asked."""
        self.ask_ring([name for name in self._asking() if event.cluster.owns(attribute_key(name))])

    def on_link_down(self, event: LinkDown) -> None:
        """An owner that was asked is lost: look up which primary its cluster has then."""
        for attribute, search in self.searches.items():
            if search.stage == "ask" and search.asked == event.peer.id:
                self._find(attribute, search)

    def on_ring_left(self, event: RingLeft) -> None:
        """Handle that this node has moved to another ring, in which other nodes own the trees.
        Reject all past and future answers of the former owners."""
        self.locations.clear()
        self._asked.clear()
        for search in self.searches.values():
            search.asked_at = None
            search.redirects = 0
        self.ask_ring(list(self._asking()))

    def _asking(self) -> dict[str, Search]:
        """The searches that are no walks (any more), by attribute."""
        return {name: search for name, search in self.searches.items() if search.stage != "walk"}

    def on_ask_again_due(self, timer: AskAgainDue) -> None:
        """Repeat unanswered questions after another lookup."""
        self._again.rang()
        due = {
            a: search for a, search in self._asking().items() if search.again_at <= self.port.now
        }
        for attribute, search in due.items():
            if search.stage == "ask":
                self._find(attribute, search)
        self.ask_ring([a for a, search in due.items() if search.again_at <= self.port.now])
        waiting = [search.again_at for search in self._asking().values()]
        if waiting:
            self._again.within(min(SEARCH_PAUSE, max(0.0, min(waiting) - self.port.now)))
        elif self.searches:
            self._again.within(SEARCH_PAUSE)

    def _found(self, attribute: str, by: str) -> None:
        search = self.searches.pop(attribute)
        self.port.count("lookups_by_walk" if by == "walk" else "lookups_by_ring")
        self.port.trace("located", attribute=attribute, by=by, hops=search.hops)
        self.locations.found(attribute, by, search.hops)
        self.port.emit(TreeFound(attribute))


def weigh_copy(copy: tuple[str, int]) -> int:
    """Estimated bytes of one entry of a `CacheReport`."""
    return 2 * HEAD + weigh_text(copy[0])
