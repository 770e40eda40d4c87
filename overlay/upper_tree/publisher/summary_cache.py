"""A publisher's cache of trees' summaries, and which visits it skips by them (C9).

A summary is used until its term ends or its owner invalidates it (summaries/summary_server.py). A
question and its answer are two messages, and a summary saves at best one visit for each event of a
term. So it is asked for once some events (`tree.summary_visits`) have come within a term for a tree
at another node, and again shortly before its term ends if as many have come meanwhile. Many trees
are asked for together: one that has had fewer events joins a question that is sent anyway. (Rare
attributes come seldom, and have most of the registrations: what was used within some terms is kept
valid beside what is used all the time.) Where there is none, everything is visited: correctness
never depends on having one.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping

import msgspec

from matching import Cut
from overlay.bounded import BoundedDict
from overlay.machine import NodeId
from overlay.upper_tree.publisher.constants import (
    CHECKS_LEAST,
    IDLE_MOST,
    REFRESH_SUMMARY,
    REFRESH_TOGETHER,
    SKIP_RATES_MOST,
    SKIPS_SHARE,
    SUMMARY_RETRY,
    USELESS_FOR,
)
from overlay.upper_tree.summary import Summary

Side = tuple[str, Cut, Cut]
"""An attribute, and the ends of a box's interval on it."""


class BoxIndex:
    """Boxes that are checked by the same attribute first, sorted by where they begin on it: an
    event is compared only with those that begin at or before its value, and reach beyond the last
    of these beginnings. Which ones these are is found once for all values up to the next one."""

    __slots__ = ("_near", "boxes", "starts")

    def __init__(self, boxes: list[tuple[Cut, Cut, tuple[Side, ...]]]) -> None:
        """`boxes`: the ends on this attribute, and the other sides."""
        self.boxes = sorted(boxes, key=lambda box: box[0])
        self.starts = [box[0] for box in self.boxes]
        self._near: dict[int, list[tuple[Cut, tuple[Side, ...]]]] = {}  # by how many begin before

    def admits(self, spot: Cut, places: Mapping[str, Cut | None]) -> bool:
        """Whether an event lies in one of the boxes. `spot`: its place on this attribute;
        `places`: its places on all of them."""
        begun = bisect_right(self.starts, spot)
        near = self._near.get(begun)
        if near is None:
            last = self.starts[begun - 1]
            near = [(hi, rest) for _, hi, rest in self.boxes[:begun] if last < hi]
            self._near[begun] = near
        for hi, rest in near:
            if spot < hi:
                for name, low, high in rest:
                    other = places.get(name)
                    if other is None or not low <= other < high:
                        break
                else:
                    return True
        return False


class SkipCounts(msgspec.Struct):
    """Counts how useful it is to check events."""

    checked: int = 0  # events that were checked …
    skipped: int = 0  # … and not admitted

    @property
    def is_useless(self) -> bool:
        """Whether events are no longer checked, because nearly all of them are admitted."""
        return self.checked >= CHECKS_LEAST and self.skipped * SKIPS_SHARE < self.checked


class CachedSummary(SkipCounts):
    """The copy of one tree's summary, and how useful it is. Times are the Port's seconds."""

    indexes: dict[str, BoxIndex] = {}  # boxes by the attribute that is checked first
    admits_all: bool = False  # there is a box without sides
    digest: int = 0
    until: float = 0.0  # it may be used until then
    refresh_at: float = 0.0  # from when on it is asked for again
    refresh_together_at: float = 0.0  # … if another summary is asked for
    idle: int = 0  # how many terms were granted since it was used
    events: int = 0  # that came for the tree …
    events_from: float = -math.inf  # … since then

    def is_fresh(self, now: float) -> bool:
        """Whether it is too early to ask for it again."""
        return now < self.refresh_at or (self.is_useless and now < self.until + USELESS_FOR)

    def replace(self, summary: Summary, digest: int) -> None:
        """Replace the summary by the owner's new one. Each box is indexed by the attribute that
        fewest boxes ask for: it is missing most often."""
        asked: dict[str, int] = {}
        for box in summary.boxes:
            for name, _ in box:
                asked[name] = asked.get(name, 0) + 1

        self.admits_all = not all(summary.boxes)
        by_first: dict[str, list[tuple[Cut, Cut, tuple[Side, ...]]]] = {}
        for box in summary.boxes if not self.admits_all else ():
            ordered = sorted(box, key=lambda each: asked[each[0]])
            (name, lo, hi), *rest = [(n, at.lo, at.hi) for n, at in ordered]
            by_first.setdefault(name, []).append((lo, hi, tuple(rest)))
        self.indexes = {name: BoxIndex(boxes) for name, boxes in by_first.items()}
        self.digest = digest
        self.checked = self.skipped = 0

    def admits(self, places: Mapping[str, Cut | None]) -> bool:
        """As `Summary.admits`, for an event's places in the value space."""
        for name, index in self.indexes.items():
            spot = places.get(name)
            if spot is not None and index.admits(spot, places):
                return True
        return self.admits_all

    def check(self, places: Mapping[str, Cut | None]) -> bool:
        """`admits`, counting how much it skips."""
        self.idle = 0
        self.events += 1
        self.checked += 1
        if self.admits(places):
            return True
        self.skipped += 1
        return False


class SkipRate(SkipCounts):
    """Whether events skip a host by the summaries of all the trees that they visit there.

    Each summary may skip many events, and all together none: what one tree does not admit another
    one does. Then they are not checked for a while.
    """

    since: float = 0.0

    def record(self, checked: int, admitted: int) -> None:
        """Count `checked` events that were checked against all of the summaries, of which
        `admitted` were admitted by at least one."""
        self.checked += checked
        self.skipped += checked - admitted


class SummaryCache:
    """Bounded: the least recently used tree is evicted. Times are the Port's seconds."""

    def __init__(self, capacity: int, worth: int = 1, term: float = 10.0) -> None:
        """`capacity`: trees whose summaries are kept at most. `worth`: events within a term (of
        `term` seconds) that make a summary worth its question."""
        self._worth = worth
        self._term = term
        self._cached: BoundedDict[str, CachedSummary] = BoundedDict(capacity)
        self._rates: BoundedDict[tuple[NodeId, tuple[str, ...]], SkipRate] = BoundedDict(
            SKIP_RATES_MOST
        )

    def __len__(self) -> int:
        """Return the number of trees that have an entry."""
        return len(self._cached)

    # --- skipping ---

    def may_skip(self, attribute: str, places: Mapping[str, Cut | None], now: float) -> bool:
        """Whether an event with these places need not visit the tree: its summary does not admit
        it."""
        cached = self.usable(attribute, now)
        return cached is not None and not cached.check(places)

    def usable(self, attribute: str, now: float) -> CachedSummary | None:
        """The tree's summary, if there is a valid one that skips enough to be checked."""
        cached = self._cached.get(attribute)
        if cached is None or cached.until <= now or cached.is_useless:
            return None
        return cached

    def skip_rate(self, host: NodeId, trees: tuple[str, ...], now: float) -> SkipRate:
        """Return the rate at which events skip a host that they would visit for these trees. The
        count is restarted after `USELESS_FOR`."""
        rate = self._rates.get((host, trees))
        if rate is None or now - rate.since > USELESS_FOR:
            rate = SkipRate(since=now)
            self._rates.renew((host, trees), rate)
        return rate

    # --- asking ---

    def needs_refresh(self, attribute: str, now: float) -> bool:
        """Whether there is no summary of the tree, or its term ends soon."""
        cached = self._cached.get(attribute)
        return cached is None or not cached.is_fresh(now)

    def claim_refresh(self, attribute: str, now: float, events: int = 1) -> bool:
        """Count `events` events that visit a tree for which `needs_refresh` is true. Return whether
        the caller must now ask the owner for the summary. After returning True, return False until
        `SUMMARY_RETRY` has passed."""
        cached = self._entry(attribute)
        if cached.is_fresh(now):
            return False
        if now - cached.events_from > self._term:
            cached.events, cached.events_from = 0, now
        cached.events += events
        if cached.events < self._worth:
            return False
        cached.refresh_at = cached.refresh_together_at = now + SUMMARY_RETRY
        return True

    def claim_early(self, now: float) -> list[str]:
        """Return the trees whose summaries the caller should ask for in a question that is sent
        anyway: those whose summary was recently used and expires soon, and those that events visit
        without a summary."""
        found = [
            name
            for name, cached in self._cached.items()
            if (
                cached.idle <= IDLE_MOST
                and cached.refresh_together_at <= now < cached.until
                and cached.digest
            )
            or (
                cached.events
                and now - cached.events_from <= self._term
                and not cached.is_fresh(now)
            )
        ]
        for name in found:
            cached = self._cached[name]
            cached.refresh_at = cached.refresh_together_at = now + SUMMARY_RETRY
        return found

    # --- coherence ---

    def learn(
        self, attribute: str, digest: int, summary: Summary | None, until: float, now: float
    ) -> None:
        """Take the owner's answer. Without a summary, the one with this digest is still valid."""
        cached = self._entry(attribute)
        if summary is not None:
            cached.replace(summary, digest)
        elif cached.digest != digest:
            return  # it was invalidated or evicted meanwhile
        cached.until = until
        cached.events, cached.events_from = 0, now
        cached.idle += 1
        term = max(until - now, 0.0)
        cached.refresh_at = max(now + term * REFRESH_SUMMARY, now + SUMMARY_RETRY)
        cached.refresh_together_at = now + term * REFRESH_TOGETHER

    def invalidate(self, attribute: str) -> None:
        """Drop the summary of the tree of `attribute`, if there is one: all its events visit the
        tree again."""
        self._cached.pop(attribute, None)

    def clear(self) -> None:
        """Drop all summaries: their trees have other owners now."""
        self._cached.clear()

    def valid(self, now: float) -> list[tuple[str, int]]:
        """The trees with a valid summary, and its digest."""
        return [(name, one.digest) for name, one in self._cached.items() if one.until > now]

    def digest(self, attribute: str) -> int:
        """The digest of the cached summary, valid or expired; 0 if there is none."""
        cached = self._cached.get(attribute)
        return 0 if cached is None else cached.digest

    def _entry(self, attribute: str) -> CachedSummary:
        """The tree's entry, as the most recently used one; a new one if there is none."""
        cached = self._cached.get(attribute)
        if cached is None:
            cached = self._cached[attribute] = CachedSummary()
        else:
            self._cached.move_to_end(attribute)
        return cached
