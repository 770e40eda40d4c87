"""What captures the changes of one kind of database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from canopy.sync.changes import Change, Commit


class Source(Protocol):
    """A database whose changes are captured. One thread uses it."""

    id: str
    """Which database it is, for good: a copy that was restored has the same."""

    mark_every: int
    """So far the positions may go without a change that is wanted until the stream is told: the
    source keeps what it has logged until then."""

    def resume(self, commit: Commit) -> None:
        """Go on behind what the stream has. Raises SourceLostError when what came next is not known
        (any more): going on would lose it without a word."""

    def start(self) -> None:
        """Begin with the next change, without a snapshot."""

    def snapshot(self) -> Iterator[Change]:
        """All rows as one transaction, from SNAPSHOT to END; `changes` goes on behind it."""

    def changes(self, wait: float) -> Iterator[Change]:
        """What was committed since, in whole transactions, the last change of each with its
        `Commit` (a MARK, if none of it is wanted), rows with their table; nothing if nothing came
        within `wait` seconds."""

    def confirm(self, position: int) -> None:
        """Everything up to `position` is in the stream for good, and may be forgotten."""

    def end(self) -> int:
        """The position of what was committed last."""

    def remove(self) -> None:
        """Take away what this has put into the database."""

    def close(self) -> None:
        """End the connection."""
