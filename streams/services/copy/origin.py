"""One shard of an origin, as it is read for one shard that this node leads."""

from __future__ import annotations

from overlay.client import EventsTaken
from streams.log.origins import COPIED


class OriginReading:
    """Where reading is. `client`: the number under which it reads; 0: it does not."""

    def __init__(self, stream: str, id_: str, number: int, where: str) -> None:
        """`stream`, `id_`: name and founding id of the origin; `where`: the selector."""
        self.stream = stream
        self.number = number
        """The origin's shard."""
        self.where = where
        self.name = f"{COPIED}{id_}/{number}"
        """What the log calls it."""
        self.id = id_
        self.client = 0
        self.retry_at = 0.0
        """When it is tried again after it has failed."""
        self.from_first = False
        """Rows behind what was copied are not kept any more: begin with the oldest."""
        self.has_begun = False
        self.taken: EventsTaken | None = None
        """What waits to be appended."""
        self.scanned = 0
        """All rows below it are in the log, or are not wanted."""
        self.losses = 0
        """How many times the origin's log has lost rows."""
        self.noted_at = 0.0
        """When the log was last told of that without a row."""
        self.fault = ""
        """Why it is not read."""
