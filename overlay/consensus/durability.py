"""A queue for the disk: nothing is said, counted or answered before it is durable.

A disk carries out what it is asked in order, and names each request by a ticket that is higher than
those before. So does a node's state file.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

Waiting = TypeVar("Waiting")


class DurableQueue(Generic[Waiting]):
    """Items that wait for tickets, in the order of the tickets."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Waiting]] = deque()

    def add(self, ticket: int, item: Waiting) -> None:
        """`item` waits until the disk has carried out `ticket`."""
        self._waiting.append((ticket, item))

    def stored(self, ticket: int) -> list[Waiting]:
        """Take out what has waited for `ticket` or one before."""
        waiting, found = self._waiting, []
        while waiting and waiting[0][0] <= ticket:
            found.append(waiting.popleft()[1])
        return found

    def clear(self) -> None:
        """Forget all that waits: the disk has failed, or has stored everything."""
        self._waiting.clear()
