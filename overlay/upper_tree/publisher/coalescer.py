"""A publisher that is far ahead of its hosts lets events wait for company (M3).

Each message costs its sender, its receiver and whoever it is passed on to a turn: waking up,
reading, writing. A turn costs about as much as thirty events do. So while many events are under way
and not accepted, the next ones wait until they are enough for a full message, or for a moment. Few
events under way let nobody wait: a publisher that its hosts keep up with is not delayed at all.
(The thought of Nagle's algorithm for TCP, RFC 896, with acceptance in the place of acknowledgement.
Where it ended the waiting, too, messages were half as large: hosts accept within milliseconds.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from overlay.client import Event
from overlay.machine import Alarm, Handlers, Machine, Port, Timer
from overlay.upper_tree.batches import BATCH_ITEMS

FEW = 48
"""Events under way at most with which the next go at once: one batch of a client's (64) under way
holds the next back; at 1,000 events per second that are matched in some milliseconds nothing
waits."""

MOMENT = 0.01
"""Seconds that an event waits for company at most: at 25,000 events per second a full message's
worth comes in that time, and who publishes so many sees no event sooner otherwise."""


ByNames = dict[tuple[str, ...], list[Event]]
"""Events by the names of their attributes, or of the trees that they visit."""


def by_attributes(events: Iterable[Event]) -> ByNames:
    """Events by the attributes that have a value."""
    found: ByNames = {}
    for event in events:
        has = [name for name, value in event.attributes.items() if value is not None]
        found.setdefault(tuple(has), []).append(event)
    return found


class CompanyDue(Timer, frozen=True):
    """Events have waited for company long enough."""


class Coalescer(Machine):
    """Holds back events with the same attributes together. `set_out` sends events off."""

    def __init__(
        self,
        port: Port,
        under_way: Callable[[], int],
        set_out: Callable[[ByNames, int], None],
    ) -> None:
        """`under_way`: how many events are not accepted yet; `set_out` takes events by the names of
        their attributes, and the size that none is over."""
        super().__init__(port)
        self._under_way = under_way
        self._set_out = set_out
        self._held: ByNames = {}
        self._count = 0
        self._largest = 0  # bytes that none of them is over
        self._alarm = Alarm(port, CompanyDue())

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {CompanyDue: self.on_company_due}

    def __len__(self) -> int:
        """Events that wait."""
        return self._count

    @property
    def sequences(self) -> set[int]:
        """The numbers of the events that wait."""
        return {event.sequence for events in self._held.values() for event in events}

    def take(self, names: tuple[str, ...], events: Sequence[Event], largest: int) -> None:
        """These are to set out, now or in company. `largest`: bytes that none is over."""
        self._held.setdefault(names, []).extend(events)
        self._count += len(events)
        self._largest = max(self._largest, largest)

    def look(self) -> None:
        """Let them go if there is no reason to wait."""
        if not self._count:
            return
        if self._count >= BATCH_ITEMS or self._under_way() <= FEW:
            self._go()
        else:
            self._alarm.within(MOMENT)

    def on_company_due(self, timer: CompanyDue) -> None:
        """The first of them has waited long enough."""
        self._alarm.rang()
        if self._count:
            self._go()

    def _go(self) -> None:
        held, largest = self._held, self._largest
        self._held, self._count, self._largest = {}, 0, 0
        self._set_out(held, largest)
