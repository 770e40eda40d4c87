"""The owner's answers to publishers, and their recall (C5, C9, P1).

A publisher that looks for trees is told for each: where its virtual nodes are, and a summary of
what is registered there; or that nobody subscribes, which is the summary of nothing. It believes a
summary for `tree.nobody_term` seconds and skips visits that the summary does not admit, so
`ToldTable` remembers who was told which.

A registration that the present summary admits contradicts nobody who was told that one. Any other
is *at odds* with everybody who was told something of the tree: its SUBACK waits for their
`Recalled`, or until their term is over (registry.py). Then the summary is made anew, when somebody
asks and the tree has been at rest for a moment; until then publishers are told none and visit.

Where registrations keep coming, summaries do not last, and telling and recalling them costs more
than they save. So one that was contradicted within a term makes the tree rest twice as long before
the next. What is small is told exactly, of the rest few boxes (summary.py). A publisher that holds
the present summary is only told that it is still good. Counting routing has none: there every tree
has a say.
"""

from __future__ import annotations

from collections import deque
from itertools import zip_longest
from typing import Protocol

from matching import Cut
from overlay.chord.events import Committed, ObserversProgressed, RoleChanged
from overlay.machine import Handlers, Machine, Peer, Port, ProtocolError, Timer
from overlay.settings import Settings
from overlay.upper_tree.batches import HEAD, MAX_BATCH, in_batches, weigh_text
from overlay.upper_tree.events import BeliefEnded, BeliefsLearned
from overlay.upper_tree.messages import (
    EVENT_TREE,
    AskTree,
    Location,
    Recall,
    Recalled,
    TreeAnswer,
    TreeSummary,
)
from overlay.upper_tree.owner.owned_tree import OwnedTree, PendingRegistration
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.summaries.cache_holders import CacheHolders
from overlay.upper_tree.summaries.summary_builder import SummaryBuilder
from overlay.upper_tree.summary import contains

PLACES_MOST = 64
"""Virtual nodes of one tree that an answer names; of a larger tree only the root. Wild guess."""


HELD_MOST = 4_096
"""Questions that wait for the log, the oldest forgotten first: whoever gets no answer asks again.
Wild guess."""


class BeliefEnds(Timer, frozen=True):
    """The term of answers that were never recalled is over."""

    attribute: str


class Withholding(Protocol):
    """What is known of a lost cluster's trees that are being restored (owner/restoration.py)."""

    def withholds(self, attribute: str, now: float) -> bool:
        """Whether no publisher may be told of the attribute's tree yet."""


class SummaryServer(Machine):
    """Tells publishers of the trees that this node owns, and takes it back."""

    def __init__(
        self,
        port: Port,
        settings: Settings,
        owner: Owner,
        believers: CacheHolders,
        restoration: Withholding,
    ) -> None:
        super().__init__(port)
        self.settings = settings.tree
        self.owner = owner
        self.clusters = owner.clusters
        self.trees = owner.trees
        self.believers = believers
        self.table = believers.table
        self.restoration = restoration
        self.making = SummaryBuilder(port, settings.tree.summary_boxes, owner)
        self._held: deque[tuple[int, Peer, AskTree]] = deque()
        """Questions that wait for the log, with the number of their entry."""

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            AskTree: self.on_ask_tree,
            Recalled: self.on_recalled,
            BeliefEnds: self.on_belief_ends,
            BeliefsLearned: self.on_beliefs_learned,
            Committed: self.on_log_further,
            ObserversProgressed: self.on_log_further,
            RoleChanged: self.on_role_changed,
            **self.making.handlers(),
        }

    # --- answering ---

    def on_ask_tree(self, sender: Peer, message: AskTree) -> None:
        """Where trees are and what is in them, when the log says that the asker may believe it."""
        if len(message.attributes) > MAX_BATCH:
            raise ProtocolError("too many attributes in one question")
        lasting = False  # whoever owns none of them says only so
        if any(self.owner.decides(attribute) for attribute in message.attributes):
            index = self.believers.admit(sender)
            if index is not None and not self._is_logged(index):
                self._held.append((index, sender, message))
                if len(self._held) > HELD_MOST:
                    self._held.popleft()  # it will ask again
                return
            lasting = index is not None
        self._tell(sender, message, lasting)

    def _is_logged(self, index: int) -> bool:
        """Whether who takes this primary's place will have that entry."""
        return index < self.owner.committed and self.clusters.is_copied(index)

    def on_log_further(self, event: Committed | ObserversProgressed) -> None:
        """The log is further: some may be told now."""
        while self._held and self._is_logged(self._held[0][0]):
            _, peer, message = self._held.popleft()
            self._tell(peer, message, lasting=True)

    def on_role_changed(self, event: RoleChanged) -> None:
        """Who asked before will ask again."""
        if event.role != "primary":
            self._held.clear()

    def _tell(self, sender: Peer, message: AskTree, lasting: bool) -> None:
        """Who is told what is remembered; what does not last is good for what waits for it."""
        term = self.believers.told(sender) if lasting else 0.0
        held = dict(zip(message.attributes, message.held, strict=False))
        entries: list[Location] = []
        nobody: list[str] = []
        foreign: list[str] = []
        summaries: list[TreeSummary] = []
        now = self.port.now
        for attribute in message.attributes:
            owned = self.trees.get(attribute)
            if not self.owner.decides(attribute) or self.restoration.withholds(attribute, now):
                foreign.append(attribute)
            elif owned is None:
                nobody.append(attribute)
                if lasting:
                    self.table.tell(attribute, sender, now, term)
            else:
                entries += places(owned)
                # Who is its only host visits nobody, so has nothing to skip: making a summary of a
                # thousand registrations takes tens of milliseconds.
                visits = owned.all_hosts().keys() != {sender.id}
                if lasting and visits and self._summarised(owned):
                    self.table.tell(attribute, sender, now, term, owned.summary.digest)
                    digest = owned.summary.digest
                    known = held.get(attribute) == digest
                    summary = None if known else owned.summary.current
                    summaries.append(TreeSummary(attribute, digest, summary))
        self.owner.refuse(sender, foreign)
        self._answer(sender, (message.number, term), entries, nobody, summaries)

    def _answer(
        self,
        asker: Peer,
        about: tuple[int, float],
        entries: list[Location],
        nobody: list[str],
        summaries: list[TreeSummary],
    ) -> None:
        """As few messages as frames can carry. `about`: the question's number, and the term."""
        number, term = about
        if not entries and not nobody:
            return
        batches = zip_longest(
            in_batches(entries, weigh_location) if entries else [()],
            in_batches(summaries, weigh_summary),
            [tuple(nobody)],
            fillvalue=(),
        )
        for some, outlines, absent in batches:
            answer = TreeAnswer(some, absent, term, number, outlines, self._epoch)
            self.port.send(asker, answer)

    @property
    def _epoch(self) -> int:
        cluster = self.clusters.cluster
        return 0 if cluster is None else cluster.version[0]

    def _summarised(self, owned: OwnedTree) -> bool:
        """Whether the tree has a summary to be told. If not, one is made as soon as that is worth
        it (making.py)."""
        if self.settings.routing == "counting" or owned.tree.attribute == EVENT_TREE:
            return False
        if owned.summary.is_current(len(owned.tree.registrations)):
            return True
        if not owned.summary.may_rebuild(self.port.now):
            return False
        self.making.make(owned)
        return owned.summary.current is not None

    # --- taking back ---

    def recall_for(self, owned: OwnedTree, pending: PendingRegistration) -> None:
        """A new registration, whose boxes are known: recall the summaries that do not admit it."""
        boxes = owned.boxes(pending.registration.id)
        assert boxes is not None
        summary = owned.summary.current
        admitted = summary is not None and all(
            any(contains(outer, box) for outer in summary.boxes) for box in boxes
        )
        if not admitted:
            owned.summary.contradicted(self.port.now, self.settings.nobody_term)
        self._recall(owned, pending, owned.summary.digest if admitted else 0)

    def _recall(self, owned: OwnedTree, pending: PendingRegistration, unharmed: int) -> None:
        """Take back what is believed, but for the summary with the digest `unharmed` (0: none)."""
        attribute, told, now = owned.tree.attribute, self.table, self.port.now
        for belief in told.believers(attribute, now):
            if unharmed and belief.digest == unharmed:
                continue
            pending.await_recall(belief.peer.id, belief.until)
            if not belief.recalled:
                belief.recalled = True
                self.port.send(belief.peer, Recall(attribute, told.number, self._epoch))
        pending.unknown_holders_until = told.blind_until
        self._wait(owned)

    def on_beliefs_learned(self, event: BeliefsLearned) -> None:
        """Somebody believes what a former owner said: it is taken back, whatever it is."""
        for attribute in event.attributes:
            owned = self.trees.get(attribute)
            if owned is not None:
                for pending in owned.pending.values():
                    self._recall(owned, pending, 0)

    def is_admitted(self, pending: PendingRegistration) -> bool:
        """Whether no publisher has a cached summary any more that does not admit it."""
        return self.believers.all_known() and pending.is_admitted(self.port.now)

    def recall_all(self) -> None:
        """Recall all cached summaries of this owner's trees, also those that a former one gave."""
        for attribute in self.table.attributes():
            for copy in self.table.believers(attribute, self.port.now):
                if not copy.recalled:
                    copy.recalled = True
                    self.port.send(copy.peer, Recall(attribute, self.table.number))

    def none_cached(self) -> bool:
        """Whether no publisher has a cached summary of this owner's trees."""
        table, now = self.table, self.port.now
        if not self.believers.all_known() or table.blind_until > now:
            return False
        return not any(table.believers(attribute, now) for attribute in table.attributes())

    def _wait(self, owned: OwnedTree) -> None:
        ends = [end for pending in owned.pending.values() for end in pending.expiries()]
        late = [end for end in ends if end > self.port.now]
        if late:
            self.port.set_timer(min(late) - self.port.now, BeliefEnds(owned.tree.attribute))

    def on_recalled(self, sender: Peer, message: Recalled) -> None:
        """One believer less."""
        self.table.recalled(message.attribute, sender.id, message.number)
        owned = self.trees.get(message.attribute)
        if owned is not None:
            for pending in owned.pending.values():
                pending.recalled(sender.id)
            self.port.emit(BeliefEnded(message.attribute))

    def on_belief_ends(self, timer: BeliefEnds) -> None:
        """Whoever did not answer believes it no more."""
        owned = self.trees.get(timer.attribute)
        if owned is not None:
            for pending in owned.pending.values():
                pending.expire_holders(self.port.now)
            self.port.emit(BeliefEnded(timer.attribute))
            self._wait(owned)


def places(owned: OwnedTree) -> list[Location]:
    """Where the tree can be entered: every virtual node if they are few, else the root."""
    map_ = owned.tree.map
    entries = map_.entries if len(map_.entries) <= PLACES_MOST else (map_.root(),)
    return [Location(owned.tree.attribute, map_.version, e.interval, e.hosts) for e in entries]


def weigh_location(location: Location) -> int:
    """Bytes of a virtual node's place, about."""
    at = location.interval
    return 8 * HEAD + weigh_text(location.attribute) + weigh_cut(at.lo) + weigh_cut(at.hi)


def weigh_summary(found: TreeSummary) -> int:
    """Bytes of a summary, about."""
    boxes = () if found.summary is None else found.summary.boxes
    conditions = [condition for box in boxes for condition in box]
    return (4 + len(boxes)) * HEAD + sum(
        weigh_text(name) + weigh_cut(at.lo) + weigh_cut(at.hi) for name, at in conditions
    )


def weigh_cut(cut: Cut) -> int:
    """Bytes of an interval's end."""
    return HEAD + (weigh_text(cut[1]) if isinstance(cut[1], str) else HEAD)
