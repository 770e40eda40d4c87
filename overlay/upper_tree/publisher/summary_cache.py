"""What a publisher holds of trees' summaries, and which visits it skips by them (C9).

A summary is believed until its term ends or its owner recalls it (`beliefs.py`). It is asked for
when events begin to visit a tree at another node, and again shortly before its term ends if it has
been used lately; many trees are asked for together. (Rare attributes come seldom, and have most of
the registrations: what was used within some terms is kept good beside what is used all the time.)
Where there is none, everything is visited: correctness never depends on having one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Mapping

from matching import Cut
from overlay.machine import NodeId
from overlay.upper_tree.summary import Summary

PAUSE = 0.5
"""Seconds until a question for a summary that was not answered, or with none, is repeated: an owner
waits a quarter of a second or more for a tree to be at rest (beliefs.py)."""

EARLY = 0.8
"""The share of the term after which a used summary is asked for again: sooner would cost messages,
later some visits in vain while the answer is on its way. Wild guess."""

TOGETHER = 0.4
"""The share of the term that summaries are asked for ahead, if another one is due. Wild guess."""

IDLE_MOST = 6
"""Terms that a summary is kept good together with others though nothing checked it: a minute. Each
costs some 20 bytes of a question that leaves anyway, and a recall if the owner has to take it back.
Wild guess."""

TRIED = 256
"""Events after which a summary that skips few of them is checked no more. Wild guess."""

WORTH = 16
"""… few: less than one in so many. A check costs about as much as matching. Wild guess."""


REST = 60.0
"""Seconds after its term until a summary that skipped few is tried again. Wild guess."""

HOSTS_MOST = 1_024
"""Hosts with certain trees of which it is remembered whether events skip them. Wild guess."""


Side = tuple[str, Cut, Cut]
"""An attribute, and the ends of a box's interval on it."""


class Shelf:
    """Boxes that are looked at by the same attribute first, by where they begin on it: an event
    looks only at those that begin at or before its value. (Measured: 7 microseconds for 120 boxes,
    of which half the events lie in none; one box after the other took 13.)"""

    __slots__ = ("boxes", "starts")

    def __init__(self, boxes: list[tuple[Cut, Cut, tuple[Side, ...]]]) -> None:
        """`boxes`: the ends on this attribute, and the other sides."""
        self.boxes = sorted(boxes, key=lambda box: box[0])
        self.starts = [box[0] for box in self.boxes]

    def admits(self, spot: Cut, places: Mapping[str, Cut]) -> bool:
        """Whether an event lies in one of them; `spot`: where on this attribute."""
        for _, hi, rest in self.boxes[: bisect_right(self.starts, spot)]:
            if spot < hi:
                for name, low, high in rest:
                    other = places.get(name)
                    if other is None or not low <= other < high:
                        break
                else:
                    return True
        return False


class CachedSummary:
    """One tree's summary."""

    __slots__ = (
        "admits_all", "ask_at", "checked", "digest", "idle", "shelves", "skipped", "soon_at",
        "until",
    )  # fmt: skip

    def __init__(self) -> None:
        self.shelves: dict[str, Shelf] = {}  # boxes by the attribute that is looked at first
        self.admits_all = False  # there is a box that asks for nothing
        self.digest = 0
        self.until = 0.0
        self.ask_at = 0.0
        self.soon_at = 0.0  # from when on it is asked for together with another one
        self.idle = 0  # how often it was heard of since it was used
        self.checked = 0
        self.skipped = 0

    @property
    def is_useless(self) -> bool:
        """Whether it is checked no more, since it admits nearly everything."""
        return self.checked >= TRIED and self.skipped * WORTH < self.checked

    def rests(self, now: float) -> bool:
        """Whether it is too early to ask for it."""
        return now < self.ask_at or (self.is_useless and now < self.until + REST)

    def take(self, summary: Summary, digest: int) -> None:
        """Another summary. What few boxes ask for is looked at first: it is missing most often."""
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
        self.shelves = {name: Shelf(boxes) for name, boxes in by_first.items()}
        self.digest = digest
        self.checked = self.skipped = 0

    def admits(self, places: Mapping[str, Cut]) -> bool:
        """The same as `Summary.admits`, on an event's places."""
        for name, shelf in self.shelves.items():
            spot = places.get(name)
            if spot is not None and shelf.admits(spot, places):
                return True
        return self.admits_all

    def check(self, places: Mapping[str, Cut]) -> bool:
        """`admits`, and keep count of how much it skips."""
        self.idle = 0
        self.checked += 1
        if self.admits(places):
            return True
        self.skipped += 1
        return False


class Worth:
    """Whether events skip a host by the summaries of all the trees that they visit there.

    Each summary may skip many events, and all together none: what one tree does not admit another
    one does. Then nobody looks for a while.
    """

    __slots__ = ("_skipped", "_tried", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self._tried = 0
        self._skipped = 0

    def tried(self, admitted: bool) -> None:
        """An event was looked at."""
        self._tried += 1
        self._skipped += not admitted

    @property
    def is_vain(self) -> bool:
        """Whether hardly an event skips it."""
        return self._tried >= TRIED and self._skipped * WORTH < self._tried


class SummaryCache:
    """Bounded: the tree that was not used for longest goes first. Times are the Port's."""

    def __init__(self, capacity: int) -> None:
        """`capacity` in trees."""
        self.capacity = capacity
        self._held: OrderedDict[str, CachedSummary] = OrderedDict()
        self._worth: dict[tuple[NodeId, tuple[str, ...]], Worth] = {}

    def worth(self, host: NodeId, trees: tuple[str, ...], now: float) -> Worth:
        """Whether events skip a host that they would visit for these trees; tried anew at times."""
        worth = self._worth.get((host, trees))
        if worth is None or now - worth.since > REST:
            self._worth.pop((host, trees), None)
            worth = self._worth[host, trees] = Worth(now)
            if len(self._worth) > HOSTS_MOST:
                del self._worth[next(iter(self._worth))]
        return worth

    def learn(
        self, attribute: str, digest: int, summary: Summary | None, until: float, now: float
    ) -> None:
        """The owner's word. Without a summary: the one with this digest is still good."""
        held = self._entry(attribute)
        if summary is not None:
            held.take(summary, digest)
        elif held.digest != digest:
            return  # it was recalled or pushed out meanwhile
        held.until = until
        held.idle += 1
        term = max(until - now, 0.0)
        held.ask_at = max(now + term * EARLY, now + PAUSE)
        held.soon_at = now + term * TOGETHER

    def forget_all(self) -> None:
        """Their owners are no more."""
        self._held.clear()

    def recall(self, attribute: str) -> None:
        """Believe it no more."""
        self._held.pop(attribute, None)

    def believed(self, now: float) -> list[tuple[str, int]]:
        """Trees with a summary that is believed, and its digest."""
        return [(name, held.digest) for name, held in self._held.items() if held.until > now]

    def digest(self, attribute: str) -> int:
        """Of the summary at hand, good or over; 0: there is none."""
        held = self._held.get(attribute)
        return 0 if held is None else held.digest

    def admits(self, attribute: str, places: Mapping[str, Cut], now: float) -> bool:
        """Whether an event with these places has to visit the tree, as far as is known."""
        held = self.good(attribute, now)
        return held is None or held.check(places)

    def good(self, attribute: str, now: float) -> CachedSummary | None:
        """The summary, if there is one to be believed that is worth a look."""
        held = self._held.get(attribute)
        if held is None or held.until <= now or held.is_useless:
            return None
        return held

    def wants_asking(self, attribute: str, now: float) -> bool:
        """Whether `is_due` would say so now."""
        held = self._held.get(attribute)
        return held is None or not held.rests(now)

    def is_due(self, attribute: str, now: float) -> bool:
        """Whether the owner is to be asked now, since an event visits the tree. Says so once."""
        held = self._entry(attribute)
        if held.rests(now):
            return False
        held.ask_at = held.soon_at = now + PAUSE
        return True

    def soon(self, now: float) -> list[str]:
        """Trees that are to be asked for soon: worth a place in a question that leaves anyway."""
        found = [
            name
            for name, held in self._held.items()
            if held.idle <= IDLE_MOST and held.soon_at <= now < held.until and held.digest
        ]
        for name in found:
            self._held[name].ask_at = self._held[name].soon_at = now + PAUSE
        return found

    def _entry(self, attribute: str) -> CachedSummary:
        held = self._held.setdefault(attribute, CachedSummary())
        self._held.move_to_end(attribute)
        while len(self._held) > self.capacity:
            self._held.popitem(last=False)
        return held
