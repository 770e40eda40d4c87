"""A publisher that is far ahead of its hosts holds events back, to send fuller messages (M3).

Each message costs its sender, its receiver and each node that it is passed on to a turn: waking up,
reading, writing. A turn costs about as much as thirty events do. So while many events are in
flight (sent and not accepted) the next ones are held back until they fill a message, or for a short
time. With few events in flight nothing is held back: a publisher whose hosts keep up has no delay.
(This is Nagle's algorithm, RFC 896, with acceptance in the place of acknowledgement. Nagle also
ends the waiting when the acknowledgement comes; that made messages half as large, since hosts
accept within milliseconds.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from overlay.client import Event
from overlay.machine import Alarm, Machine, Port, Timer
from overlay.upper_tree.batches import BATCH_ITEMS
from overlay.upper_tree.publisher.constants import HOLD_MOST, IN_FLIGHT_LEAST

ByNames = dict[tuple[str, ...], list[Event]]
"""Events by the names of their attributes, or of the trees that they visit."""


def by_attributes(events: Iterable[Event]) -> ByNames:
    """Events grouped by the attributes that have a value (not NULL)."""
    found: ByNames = {}
    for event in events:
        has = [name for name, value in event.attributes.items() if value is not None]
        found.setdefault(tuple(has), []).append(event)
    return found


def in_parts(by_names: ByNames, most: int) -> Iterator[ByNames]:
    """These events in parts of `most` (at least one), in the order of publication."""
    keyed = [(event, names) for names, events in by_names.items() for event in events]
    keyed.sort(key=lambda pair: pair[0].sequence)
    for start in range(0, len(keyed), most):
        part: ByNames = {}
        for event, names in keyed[start : start + most]:
            part.setdefault(names, []).append(event)
        yield part


class HoldOver(Timer, frozen=True):
    """Events have been held back for `HOLD_MOST`."""


class Coalescer(Machine):
    """Holds back events, those with the same attributes together."""

    def __init__(
        self, port: Port, in_flight: Callable[[], int], dispatch: Callable[[ByNames, int], None]
    ) -> None:
        """`in_flight`: how many events are sent and not accepted; `dispatch` gets the events that
        are to be sent now, by the names of their attributes, and a size in bytes that none of them
        exceeds."""
        super().__init__(port)
        self._in_flight = in_flight
        self._dispatch = dispatch
        self._held: ByNames = {}
        self._count = 0
        self._largest = 0  # bytes that no held event exceeds
        self._alarm = Alarm(port, HoldOver())

    def __len__(self) -> int:
        """How many events are held back."""
        return self._count

    @property
    def sequences(self) -> set[int]:
        """The sequence numbers of the events that are held back."""
        return {event.sequence for events in self._held.values() for event in events}

    def submit(self, by_names: ByNames, largest: int) -> None:
        """Dispatch events now or hold them back. None of them exceeds `largest` bytes."""
        for names, events in by_names.items():
            self._held.setdefault(names, []).extend(events)
            self._count += len(events)
        self._largest = max(self._largest, largest)
        if not self._count:
            return
        if self._count >= BATCH_ITEMS or self._in_flight() <= IN_FLIGHT_LEAST:
            self._release()
        else:
            self._alarm.within(HOLD_MOST)

    def on_hold_over(self, timer: HoldOver) -> None:
        """Dispatch the events that were held back for a fuller message."""
        self._alarm.rang()
        if self._count:
            self._release()

    def _release(self) -> None:
        held, largest = self._held, self._largest
        self._held, self._count, self._largest = {}, 0, 0
        self._dispatch(held, largest)
