"""How many copies of an event a node has sent, in all that it is to the event (C11).

One node may be the publisher of an event, host of a tree that the event visits, and delegate of
other hosts, all at once, and may be handed the event several times. `tree.fan_out` is about all of
that together, so the node counts.

Whatever is handed to it has to go on, and a node with nothing left to send could do nothing with
it. So some is held back: a handling may take all but a quarter of the limit, and of that last
quarter half of what is left. With a limit of 16 that is 12, 2, 1 and 1 copies. Each handling may
send one at least (its one delegate has more), so a node that is handed an event still more often
exceeds the limit by one each time; more than three times was not seen in the load of the paper.
Delegating costs no message, only hops: every interested node is sent one copy whoever sends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from overlay.client import Event
from overlay.upper_tree.delivery.tally import Source, Tally

KEPT = 16_384
"""Events whose copies are remembered: what a busy host handles in some tenths of a second,
and 2 MB. Copies of an event are sent within some round trips. Wild guess."""


class Copies:
    """What one node has sent of which event; bounded, the oldest event goes first."""

    def __init__(self, most: int, kept: int = KEPT) -> None:
        """`most`: copies of one event (`tree.fan_out`)."""
        self.most = most
        self._sent = Tally(kept)

    def room(self, event: Event) -> int:
        """How many copies of it may be sent now; at least one."""
        left = self.most - self._sent.of(event)
        reserve = self.most // 4
        return left - reserve if left > reserve else max(1, left // 2)

    def have_room(self, source: Source, copies: Mapping[int, int]) -> bool:
        """Whether so many of each of these (by sequence number) surely may be sent now: nothing of
        them was sent before."""
        room = max(1, self.most - self.most // 4)
        return self._sent.has_none(source, tuple(copies)) and max(copies.values()) <= room

    def note(self, events: Sequence[Event], copies: int = 1) -> None:
        """So many copies of each of these leave for other nodes."""
        self._sent.add(events, copies)

    def note_each(self, source: Source, copies: Mapping[int, int]) -> None:
        """So many copies of these (by sequence number) leave for other nodes."""
        self._sent.add_each(source, copies)
