"""Makes summaries of owned trees in small pieces, so that events do not wait for them (C5, C9).

A summary of a thousand registrations takes some 40 ms, and who publishes to ten trees asks for ten
of them: in one turn that is half a second in which the node does nothing else. So a turn makes as
many as are small, and no more. The rest are made a piece at a time, one piece a turn, with timers
that are due at once: what has come in is handled in between. Until a summary is there publishers
are sent none, so they visit, and ask again in a moment (publisher/summary_cache.py).

Registrations come and go meanwhile. One that came after the summary was begun may lie outside of
it, so then it is thrown away, and no registration must have come for a while before the next.
"""

from __future__ import annotations

from collections.abc import Generator
from hashlib import blake2b

import msgspec

from overlay.machine import Alarm, Machine, Port, Timer
from overlay.upper_tree.compiled_selectors import boxes_of
from overlay.upper_tree.owner.owned_tree import OwnedTree
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.summaries.constants import AT_ONCE, COMPILED_AT_ONCE
from overlay.upper_tree.summary import Box, summarise_boxes


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
            known = owned.boxes(id_)
            if known is None:  # of a tree that was taken over
                known = boxes_of(registration.selector)
                compiled += 1
                if tree.registrations.get(id_) is registration:
                    owned.add_boxes(id_, known)
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
