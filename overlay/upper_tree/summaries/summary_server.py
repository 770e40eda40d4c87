"""The owner's answers to publishers, and the invalidation of what they cached of them (C5, C9, P1).

A publisher that looks for trees is answered for each: where its virtual nodes are, and a summary of
what is registered there; or that there are no subscribers, which is the summary of nothing. It may
use a summary for `tree.summary_term` seconds and skips visits that the summary does not admit, so
`InvalidationTable` remembers who has a copy of which.

A registration that the present summary admits contradicts no copy of that one. Any other
contradicts all copies of the tree's summaries: its SUBACK waits for the holders' `Invalidated`, or
until the copies expire (owner/registrations/registry.py). Then the summary is made again, when a
publisher asks and no other such registration came for a moment (owner/owned_tree.py); until then
publishers are sent none and visit.

Small trees are summarised exactly, of the rest a summary has few boxes (summary.py). A publisher
that has the present summary is only granted another term. Counting routing has no summaries: there
every tree counts its own constraints.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from hashlib import blake2b
from itertools import zip_longest

import msgspec

from matching import Cut
from overlay.chord.events import Committed, ObserversProgressed, RoleChanged
from overlay.machine import Alarm, Handlers, Machine, Peer, Port, ProtocolError, Timer
from overlay.settings import Settings
from overlay.upper_tree.batches import HEAD, MAX_BATCH, in_batches, weigh_text
from overlay.upper_tree.compiled_selectors import boxes_of
from overlay.upper_tree.events import CopiesReported, CopyInvalidated
from overlay.upper_tree.messages import (
    EVENT_TREE,
    AskTree,
    Invalidate,
    Invalidated,
    Location,
    TreeAnswer,
    TreeSummary,
)
from overlay.upper_tree.owner.owned_tree import OwnedTree, PendingRegistration
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.registrations.restoration import TreeRestoration
from overlay.upper_tree.shards import by_value
from overlay.upper_tree.summaries.cache_holders import CachedCopy, CacheHolders
from overlay.upper_tree.summaries.constants import (
    AT_ONCE,
    COMPILED_AT_ONCE,
    DEFERRED_MOST,
    LOCATIONS_MOST,
)
from overlay.upper_tree.summary import Box, summarise_boxes

# Makes summaries of owned trees in small pieces, so that events do not wait for them (C5, C9).
#
# A summary of a thousand registrations takes some 40 ms, and who publishes to ten trees asks for
# ten of them: in one turn that is half a second in which the node does nothing else. So a turn
# makes as many as are small, and no more. The rest are made a piece at a time, one piece a turn,
# with timers that are due at once: what has come in is handled in between. Until a summary is there
# publishers are sent none, so they visit, and ask again in a moment (publisher/summary_cache.py).
#
# Registrations come and go meanwhile. One that came after the summary was begun may lie outside of
# it, so then it is thrown away, and no registration must have come for a while before the next.


class BuildDue(Timer, frozen=True):
    """The next piece of the summaries that are wanted is to be made."""


class SummaryBuilder(Machine):
    """Makes the summaries that publishers have asked for. Bounded by the owned trees."""

    def __init__(self, port: Port, most: int, owner: Owner) -> None:
        """`most`: boxes of one summary (`tree.summary_boxes`)."""
        super().__init__(port)
        self.most = most
        self.trees = owner.trees
        self._wanted: dict[str, OwnedTree] = {}
        self._piece: Generator[None, None, None] | None = None
        self._alarm = Alarm(port, BuildDue())
        self._built: tuple[float, int] = (0.0, 0)  # in the turn of that time so many registrations

    def build(self, owned: OwnedTree) -> None:
        """Make a tree's summary: now if that is quickly done, else in the next turns."""
        attribute, count = owned.tree.attribute, len(owned.tree.registrations)
        if self._wanted.get(attribute) is owned:
            return
        now, made = self.port.now, self._built[1] if self._built[0] == self.port.now else 0
        if made + count <= AT_ONCE:
            self._built = (now, made + count)
            for _ in self._pieces(owned):
                pass
        else:
            self._wanted[attribute] = owned
            self._alarm.within(0.0)

    def on_build_due(self, timer: BuildDue) -> None:
        """Make one piece of the summary that was asked for first."""
        self._alarm.rang()
        while self._wanted:
            attribute, owned = next(iter(self._wanted.items()))
            if self.trees.get(attribute) is owned:
                self._piece = self._piece or self._pieces(owned)
                if next(self._piece, self) is not self:
                    break
            self._piece = None
            del self._wanted[attribute]
        if self._wanted:
            self._alarm.within(0.0)

    def _pieces(self, owned: OwnedTree) -> Generator[None, None, None]:
        """Make a tree's summary; each yield ends a piece."""
        tree = owned.tree
        begun = dict(tree.registrations)
        boxes: list[Box] = []
        compiled = 0
        for id_, registration in begun.items():
            known = owned.boxes.get(id_)
            if known is None:  # of a tree that was taken over
                known = boxes_of(registration.selector)
                compiled += 1
                if tree.registrations.get(id_) is registration:
                    owned.boxes.put(id_, known)
                if compiled % COMPILED_AT_ONCE == 0:
                    yield
            boxes += known
        summary = yield from summarise_boxes(boxes, self.most)
        if all(begun.get(id_) is one for id_, one in tree.registrations.items()):
            encoded = blake2b(msgspec.msgpack.encode(summary), digest_size=7).digest()
            digest = int.from_bytes(encoded, "big") or 1
            owned.summary.replace(summary, digest, len(begun), self.port.now)
            self.port.count("summaries_made")
        else:
            owned.summary.outdated(self.port.now)


class CopyExpires(Timer, frozen=True):
    """The next copy expires that a registration of this tree waits for."""

    attribute: str


class SummaryServer(Machine):
    """Answers publishers about the trees that this node owns, and keeps their caches coherent.

    Towards owner/registrations/registry.py it is the `Summaries` that a SUBACK waits for."""

    def __init__(
        self,
        port: Port,
        settings: Settings,
        owner: Owner,
        holders: CacheHolders,
        restoration: TreeRestoration,
    ) -> None:
        super().__init__(port)
        self.settings = settings.tree
        self.owner = owner
        self.clusters = owner.clusters
        self.trees = owner.trees
        self.holders = holders
        self.table = holders.table
        self.restoration = restoration
        self.builder = SummaryBuilder(port, settings.tree.summary_boxes, owner)
        self._expiries: dict[str, float] = {}  # by attribute, when its `CopyExpires` fires
        self._recalls: dict[Peer, dict[str, None]] = {}
        """By holder the trees whose copies are to be dropped, until `send_recalls`."""
        self._deferred: deque[tuple[int, Peer, AskTree]] = deque()
        """Questions that wait for the log, with the number of their entry."""

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {**super().handlers(), **self.builder.handlers()}

    # --- answering ---

    def on_ask_tree(self, sender: Peer, message: AskTree) -> None:
        """Answer with the locations and summaries of trees, once the log names the asker as a cache
        holder."""
        if len(message.attributes) > MAX_BATCH:
            raise ProtocolError("too many attributes in one question")
        may_cache = False  # an owner of none of them only names other owners
        if any(self.owner.decides(attribute) for attribute in message.attributes):
            index = self.holders.admit(sender)
            if index is not None and not self._is_logged(index):
                self._deferred.append((index, sender, message))
                if len(self._deferred) > DEFERRED_MOST:
                    self._deferred.popleft()  # it will ask again
                return
            may_cache = index is not None
        self._answer(sender, message, may_cache)

    def _is_logged(self, index: int) -> bool:
        """Whether every later primary will have that entry."""
        return index < self.owner.committed and self.clusters.is_copied(index)

    def on_log_further(self, event: Committed | ObserversProgressed) -> None:
        """Some askers may be cache holders now."""
        while self._deferred and self._is_logged(self._deferred[0][0]):
            _, peer, message = self._deferred.popleft()
            self._answer(peer, message, may_cache=True)

    def on_role_changed(self, event: RoleChanged) -> None:
        """Drop the questions: publishers that get no answer ask again."""
        if event.role != "primary":
            self._deferred.clear()

    def _answer(self, sender: Peer, message: AskTree, may_cache: bool) -> None:
        """Answer where the trees are. Without `may_cache` the term is 0, so that the answer is good
        only for events that wait for it already, and it brings no summaries."""
        term = self.holders.lease(sender) if may_cache else 0.0
        cached = dict(zip(message.attributes, message.cached, strict=False))
        entries: list[Location] = []
        absent: list[str] = []
        foreign: list[str] = []
        summaries: list[TreeSummary] = []
        now = self.port.now
        for attribute in message.attributes:
            owned = self.trees.get(attribute)
            if self.restoration.withholds(attribute, now):
                foreign.append(attribute)
            elif not self.owner.decides(attribute):
                if owned is not None and self.owner.may_locate(attribute):
                    entries += locations(owned)  # good for visits, and nothing is granted
                else:
                    foreign.append(attribute)
            elif owned is None:
                absent.append(attribute)
                if may_cache:
                    self.table.grant(attribute, sender, now, term)
            else:
                entries += locations(owned)
                # Its only host visits no other node, so has nothing to skip: making a summary of a
                # thousand registrations takes tens of milliseconds.
                visits = owned.all_hosts().keys() != {sender.id}
                if may_cache and visits and self._has_summary(owned):
                    digest = owned.summary.digest
                    self.table.grant(attribute, sender, now, term, digest)
                    summary = None if cached.get(attribute) == digest else owned.summary.current
                    summaries.append(TreeSummary(attribute, digest, summary))
        self.owner.refuse(sender, foreign)
        self._send(sender, (message.number, term), entries, absent, summaries)

    def _send(
        self,
        asker: Peer,
        about: tuple[int, float],
        entries: list[Location],
        absent: list[str],
        summaries: list[TreeSummary],
    ) -> None:
        """Send as few messages as frames can carry. `about`: the question's number, the term."""
        number, term = about
        if not entries and not absent:
            return
        batches = zip_longest(
            in_batches(entries, weigh_location) if entries else [()],
            in_batches(summaries, weigh_summary),
            [tuple(absent)],
            fillvalue=(),
        )
        for some, outlines, without in batches:
            answer = TreeAnswer(some, without, term, number, outlines, self._epoch)
            self.port.send(asker, answer)

    @property
    def _epoch(self) -> int:
        cluster = self.clusters.cluster
        return 0 if cluster is None else cluster.version[0]

    def _has_summary(self, owned: OwnedTree) -> bool:
        """Whether the tree has a summary to be sent. If not, one is made as soon as that is worth
        it."""
        if self.settings.routing == "counting" or owned.tree.attribute == EVENT_TREE:
            return False
        if owned.summary.is_current(len(owned.tree.registrations)):
            return True
        if not owned.summary.may_rebuild(self.port.now):
            return False
        self.builder.build(owned)
        return owned.summary.current is not None

    # --- invalidation ---

    def before_suback(self, owned: OwnedTree, new: Sequence[PendingRegistration]) -> None:
        """New registrations, whose boxes are known: invalidate the copies of summaries that do not
        admit them, and note their holders in each; `send_recalls` follows in this turn."""
        holders = self.table.holders(owned.attribute, self.port.now)
        is_any_cached = holders or self.table.unknown_until > self.port.now
        for pending in new:
            boxes = owned.boxes.get(pending.registration.id)
            assert boxes is not None
            summary = owned.summary.current
            admitted = summary is not None and all(map(summary.covers, boxes))
            if not admitted:
                owned.summary.contradicted(self.port.now, self.settings.summary_term)
            if is_any_cached:
                self._invalidate(owned, pending, owned.summary.digest if admitted else 0, holders)
            elif not admitted:
                break  # nor is any that follows, for there is no summary any more

    def _invalidate(
        self,
        owned: OwnedTree,
        pending: PendingRegistration,
        admitting: int,
        holders: Sequence[CachedCopy],
    ) -> None:
        """Invalidate all copies but those with the digest `admitting` (0: none admits it); one that
        a former owner granted may still be used until an own one arrives."""
        attribute = owned.tree.attribute
        for copy in holders:
            is_own = copy.inherited_until <= self.port.now
            if is_own and admitting and copy.digest == admitting:
                continue
            pending.await_invalidation(copy.peer.id, copy.until)
            if not copy.invalidating:
                copy.invalidating = True
                self._recalls.setdefault(copy.peer, {})[attribute] = None
        pending.unknown_holders_until = self.table.unknown_until
        self._await_expiry(attribute, pending.expiries())

    def on_copies_reported(self, event: CopiesReported) -> None:
        """Publishers have copies that a former owner granted: no pending registration of these
        trees is known to be admitted by them."""
        for attribute in event.attributes:
            owned = self.trees.get(attribute)
            if owned is not None:
                holders = self.table.holders(attribute, self.port.now)
                for pending in owned.pending.values():
                    self._invalidate(owned, pending, 0, holders)
        self.send_recalls()

    def is_admitted(self, pending: PendingRegistration) -> bool:
        """Whether no publisher has a valid copy any more that does not admit the registration."""
        return self.holders.all_known() and pending.is_admitted(self.port.now)

    def has_inherited(self, attribute: str) -> bool:
        """Whether a publisher may use a copy of the tree's summary that a former owner granted."""
        return self.holders.has_inherited(attribute)

    def invalidate_all(self) -> None:
        """Invalidate all copies of this owner's summaries, also those of a former one."""
        for attribute in self.table.attributes():
            for copy in self.table.holders(attribute, self.port.now):
                if not copy.invalidating:
                    copy.invalidating = True
                    self._recalls.setdefault(copy.peer, {})[attribute] = None
        self._send_recalls(0)  # the owners of the next ring may have lower epochs

    def send_recalls(self) -> None:
        """Ask each holder, in one message, to drop the summaries contradicted since the last call.
        Holders that are asked for the same summaries are sent the same message, which is encoded
        once."""
        self._send_recalls(self._epoch)

    def _send_recalls(self, epoch: int) -> None:
        recalls, self._recalls = self._recalls, {}
        together: dict[tuple[str, ...], list[Peer]] = {}
        for peer, attributes in recalls.items():
            together.setdefault(tuple(attributes), []).append(peer)
        for names, peers in together.items():
            for some in in_batches(names, weigh_text, MAX_BATCH):
                message = Invalidate(some, self.table.number, epoch)
                for peer in peers:
                    self.port.send(peer, message)

    def none_cached(self) -> bool:
        """Whether no publisher has a valid copy of a summary of this owner's trees."""
        table, now = self.table, self.port.now
        if not self.holders.all_known() or table.unknown_until > now:
            return False
        return not any(table.holders(attribute, now) for attribute in table.attributes())

    def _await_expiry(self, attribute: str, ends: Iterable[float]) -> None:
        """Set the timer for the first of these ends that is to come, unless it is set for an
        earlier one."""
        now = self.port.now
        first = min((end for end in ends if end > now), default=math.inf)
        known = self._expiries.get(attribute, math.inf)
        if first < (known if known > now else math.inf):
            self._expiries[attribute] = first
            self.port.set_timer(first - now, CopyExpires(attribute))

    def on_invalidated(self, sender: Peer, message: Invalidated) -> None:
        """A holder has dropped its copies.

        Raises ProtocolError if there are more than it was asked for."""
        if len(message.attributes) > MAX_BATCH:
            raise ProtocolError("too many summaries that were dropped in one message")
        for attribute in dict.fromkeys(message.attributes):  # each is looked at once
            self.table.invalidated(attribute, sender.id, message.number)
            owned = self.trees.get(attribute)
            if owned is not None:
                for pending in owned.pending.values():
                    pending.invalidated(sender.id)
                self.port.emit(CopyInvalidated(attribute))

    def on_copy_expires(self, timer: CopyExpires) -> None:
        """Holders that did not answer may no longer use their copies."""
        self._expiries.pop(timer.attribute, None)
        owned = self.trees.get(timer.attribute)
        if owned is not None:
            for pending in owned.pending.values():
                pending.expire_holders(self.port.now)
            self.port.emit(CopyInvalidated(timer.attribute))
            ends = (end for pending in owned.pending.values() for end in pending.expiries())
            self._await_expiry(timer.attribute, ends)


def locations(owned: OwnedTree) -> list[Location]:
    """Locations by which the tree can be entered: all virtual nodes if they are few, else the
    root."""
    map_ = owned.tree.map
    found = list(by_value(map_.entries))
    if len(found) > LOCATIONS_MOST:
        root = map_.root().interval.around()
        found = [(interval, hosts) for interval, hosts in found if interval == root]
    return [Location(owned.tree.attribute, map_.version, *each) for each in found]


def weigh_location(location: Location) -> int:
    """Estimated bytes of a virtual node's location."""
    at = location.interval
    return 8 * HEAD + weigh_text(location.attribute) + weigh_cut(at.lo) + weigh_cut(at.hi)


def weigh_summary(found: TreeSummary) -> int:
    """Estimated bytes that a summary takes in an answer."""
    boxes = () if found.summary is None else found.summary.boxes
    conditions = [condition for box in boxes for condition in box]
    return (4 + len(boxes)) * HEAD + sum(
        weigh_text(name) + weigh_cut(at.lo) + weigh_cut(at.hi) for name, at in conditions
    )


def weigh_cut(cut: Cut) -> int:
    """Estimated bytes of an interval's end."""
    return HEAD + (weigh_text(cut[1]) if isinstance(cut[1], str) else HEAD)
