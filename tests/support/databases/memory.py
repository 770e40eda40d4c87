"""A stream in memory for tests of `canopy.sync`, which can be cut off at any moment."""

from __future__ import annotations

from collections.abc import Sequence

from canopy.sync.errors import FencedError
from overlay.client import Draft, StreamEvent


class Killed(Exception):  # noqa: N818
    """The process that a test ends here."""


class MemoryStream:
    """What has been appended. `kill_at`: the append after which its program is killed; with
    `lost`, before anything of it is there."""

    def __init__(self) -> None:
        self.id = "founded"
        self.name = "memory"
        self.events: list[StreamEvent] = []
        self.first = 0
        self.losses = 0
        self.kill_at = -1
        self.lost = False
        self.batches = 0
        self.session = 0

    def begin(self) -> None:
        self.session += 1

    def append(self, events: Sequence[Draft]) -> int:
        dies = self.kill_at == 0
        self.kill_at -= 1
        if dies and self.lost:
            raise Killed
        self.batches += 1
        for draft in events:
            offset = len(self.events)
            self.events.append(
                StreamEvent(0, offset, 0.0, draft.attributes, draft.payload, draft.payload_type)
            )
        if dies:
            raise Killed
        return 0

    def settle(self) -> None:
        pass

    def session_of(self) -> Session:
        """The stream as one process sees it, until another one begins."""
        return Session(self)

    def read(self, offset: int, losses: int = -1) -> Reading:
        return Reading(self, offset)

    def schemas(self) -> list[StreamEvent]:
        wanted = ("schema", "snapshot")
        return [event for event in self.events if event.attributes.get("_op") in wanted]

    def ends(self) -> tuple[int, int]:
        return self.first, len(self.events)


class Session:
    """One process's face to a `MemoryStream`."""

    def __init__(self, stream: MemoryStream) -> None:
        self._stream = stream
        self._session = 0
        self.id, self.name, self.losses = stream.id, stream.name, stream.losses
        self.read = stream.read
        self.schemas = stream.schemas
        self.ends = stream.ends

    def begin(self) -> None:
        self._stream.begin()
        self._session = self._stream.session

    def append(self, events: Sequence[Draft]) -> int:
        if self._session != self._stream.session:
            raise FencedError("another process captures")
        return self._stream.append(events)

    def settle(self) -> None:
        pass


class Reading:
    """Hands out at most `most` events at a time."""

    most = 1_000

    def __init__(self, stream: MemoryStream, offset: int) -> None:
        self._stream = stream
        self._offset = offset

    def take(self, timeout: float | None = None) -> list[StreamEvent]:
        found = self._stream.events[self._offset : self._offset + self.most]
        self._offset += len(found)
        return found

    def close(self) -> None:
        pass
