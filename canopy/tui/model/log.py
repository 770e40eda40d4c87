"""The received events, most recent last: a bounded log with one view.

A row is one event, however many subscriptions it matched. The *view* is what the list on the screen
shows: the rows of one subscription or of all that contain the words of the filter. It is updated
row by row; only a new filter examines all rows. Rows of the view have *places*, numbers that do not
change when older rows are evicted, so that a cursor stays on its event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from canopy.tui.constants import EVICTION_MARGIN, LOG_ROWS
from canopy.tui.model.text import show_value
from matching.values import RANKS
from overlay.client import Delivery, Event


class LogRow:
    """One event with its deliveries by the key of the subscription."""

    __slots__ = ("deliveries", "event", "number", "text")

    def __init__(self, number: int, key: int, delivery: Delivery) -> None:
        self.number = number  # counted over all rows, evicted ones included
        self.event: Event = delivery.event
        self.deliveries: dict[int, Delivery] = {key: delivery}
        self.text = ""  # what the filter searches; made when first needed

    def search_text(self) -> str:
        """All attributes as text in lower case, for the filter."""
        if not self.text:
            pairs = (f"{name}={show_value(value)}" for name, value in self.event.attributes.items())
            self.text = " ".join(pairs).casefold()
        return self.text


class SortOrder(NamedTuple):
    """The attribute by which the view is sorted, and the direction."""

    attribute: str
    descending: bool = True

    @staticmethod
    def after(order: SortOrder | None, attribute: str) -> SortOrder | None:
        """Return the next order when a person selects `attribute` again: the largest value first,
        then the smallest, then None (the order of arrival)."""
        if order is None or order.attribute != attribute:
            return SortOrder(attribute)
        return SortOrder(attribute, False) if order.descending else None


class Cleared(NamedTuple):
    """The events that `clear` has removed, for `restore`."""

    rows: list[LogRow]
    held: list[tuple[int, Delivery]]


class EventLog:
    """The rows, the view, and the deliveries that wait while the view is paused."""

    def __init__(self, limit: int = LOG_ROWS) -> None:
        self.limit = limit
        self.paused = False
        self.skipped = 0  # deliveries that never became rows: a flood, or a long pause
        self.first = 0  # place of the view's first row
        self.view: deque[LogRow] = deque()
        self._rows: deque[LogRow] = deque()
        self._by_identity: dict[str, LogRow] = {}
        self._held: deque[tuple[int, Delivery]] = deque(maxlen=limit)
        self._count = 0
        self._only: int | None = None
        self._words: tuple[str, ...] = ()
        self._order: SortOrder | None = None

    @property
    def order(self) -> SortOrder | None:
        """The order of the view; None: the order of arrival."""
        return self._order

    @property
    def held(self) -> int:
        """The number of deliveries that wait for the end of the pause."""
        return len(self._held)

    @property
    def rows(self) -> Sequence[LogRow]:
        """All rows, oldest first, whatever the view shows."""
        return self._rows

    @property
    def end(self) -> int:
        """The place after the view's last row."""
        return self.first + len(self.view)

    def at(self, place: int) -> LogRow | None:
        """Return the view's row at `place`; None if there is no such row, or no longer."""
        index = place - self.first
        return self.view[index] if 0 <= index < len(self.view) else None

    def near_eviction(self, row: LogRow) -> bool:
        """Return whether `row` is in the older part of a full log."""
        full = len(self._rows) >= self.limit
        return full and row.number - self._rows[0].number < self.limit // EVICTION_MARGIN

    def add(self, deliveries: Iterable[tuple[int, Delivery]]) -> None:
        """Add deliveries, or keep them for later while paused."""
        if not self.paused:
            for key, delivery in deliveries:
                self._add(key, delivery)
            if self._order is not None:
                self._rebuild()  # once for all of a tick: milliseconds for a full log
            return
        for held in deliveries:
            self.skipped += len(self._held) == self.limit
            self._held.append(held)

    def pause(self, paused: bool) -> None:
        """Pause the view, or resume it with the deliveries received meanwhile."""
        self.paused = paused
        if not paused:
            held = list(self._held)
            self._held.clear()
            self.add(held)

    def show(self, only: int | None, words: str) -> None:
        """Rebuild the view: the rows of `only` (None: of all) that contain all `words`."""
        self._only = only
        self._words = tuple(words.casefold().split())
        self._rebuild()

    def sort(self, order: SortOrder | None) -> None:
        """Rebuild the view in another order (None: the order of arrival). Events without the
        attribute are last; numbers come before texts, as in comparisons of selectors' values."""
        self._order = order
        self._rebuild()

    def place_of(self, row: LogRow) -> int | None:
        """Return the place of `row` in the view; None if it is not in it."""
        for index, other in enumerate(self.view):
            if other is row:
                return self.first + index
        return None

    def clear(self) -> Cleared:
        """Remove all rows and waiting deliveries. Returns them for `restore`."""
        cleared = Cleared(list(self._rows), list(self._held))
        self.first += len(self.view)
        self._rows.clear()
        self._by_identity.clear()
        self.view.clear()
        self._held.clear()
        return cleared

    def restore(self, cleared: Cleared) -> None:
        """Put removed events back before newer ones, as far as there is room."""
        rows = [*cleared.rows, *self._rows]
        self._rows.clear()
        self._by_identity.clear()
        for row in rows:
            same = self._by_identity.setdefault(row.event.identity, row)
            if same is row:
                self._rows.append(row)
            else:
                same.deliveries.update(row.deliveries)
        while len(self._rows) > self.limit:
            del self._by_identity[self._rows.popleft().event.identity]
        self._rebuild()
        held = [*cleared.held, *self._held]
        self._held.clear()
        self.add(held)

    def attribute_names(self, sample: int = 200) -> list[str]:
        """Return the attributes of the latest `sample` events, the most frequent first."""
        counts: dict[str, int] = {}
        for row in self.latest(sample):
            for name in row.event.attributes:
                counts[name] = counts.get(name, 0) + 1
        return sorted(counts, key=lambda name: (-counts[name], name))

    def latest(self, count: int) -> list[LogRow]:
        """Return the last `count` rows, newest first."""
        newest = reversed(self._rows)
        return [row for row, _ in zip(newest, range(count), strict=False)]

    def _rebuild(self) -> None:
        self.first = 0
        rows = [row for row in self._rows if self._shows(row)]
        if self._order is not None:
            name, descending = self._order
            values = [(row.event.attributes.get(name), row) for row in rows]
            valued = [(RANKS[type(v)], v, row) for v, row in values if v is not None]
            valued.sort(key=lambda each: each[:2], reverse=descending)
            rows = [row for *_, row in valued] + [row for v, row in values if v is None]
        self.view = deque(rows)

    def _shows(self, row: LogRow) -> bool:
        if self._only is not None and self._only not in row.deliveries:
            return False
        return not self._words or all(word in row.search_text() for word in self._words)

    def _add(self, key: int, delivery: Delivery) -> None:
        identity = delivery.event.identity
        row = self._by_identity.get(identity)
        if row is not None:
            seen_before = self._only is None or self._only in row.deliveries
            row.deliveries[key] = delivery
            if not seen_before and self._order is None and self._shows(row):
                self.view.append(row)
            return
        self._count += 1
        row = LogRow(self._count, key, delivery)
        self._by_identity[identity] = row
        self._rows.append(row)
        if self._order is None and self._shows(row):
            self.view.append(row)
        if len(self._rows) > self.limit:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._rows.popleft()
        del self._by_identity[oldest.event.identity]
        if self._order is not None:
            return  # the view is rebuilt
        if self.view and self.view[0] is oldest:
            self.view.popleft()
            self.first += 1
        elif self._only is not None and oldest in self.view:
            # It entered this view late, after rows that are younger than it: rare.
            self.view.remove(oldest)
            self.first += 1
