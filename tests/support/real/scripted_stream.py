"""A control socket behind which there is one stream with rows that never change."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from overlay.client import (
    BeginReading,
    Command,
    Done,
    EventsTaken,
    Failed,
    ReadingReady,
    Reply,
    StreamEvent,
    TakeEvents,
)
from tests.support.real.fake_control import FakeControl


class ScriptedStream(FakeControl):
    """Shard `n` has the rows `{"n": …}` that `shards[n]` names. A program is handed a few rows of
    each shard with each TakeEvents, and nothing at the end: no events, or no answer."""

    def __init__(self, data: Path, *shards: list[int], most: int = 3) -> None:
        super().__init__(data, self._script)
        self.shards = shards
        self.most = most
        self.stream_id = "id of s"
        self.is_mute_at_end = False
        self.first = 0  # oldest offset that is kept
        self.begun: list[dict[int, int]] = []
        self._places: dict[int, dict[int, int]] = {}  # by reading

    def _script(self, command: Command) -> Iterable[Reply]:
        if isinstance(command, BeginReading):
            return [self._begin(command)]
        if isinstance(command, TakeEvents):
            return self._take(command)
        return [Done(command.request)]

    def _begin(self, command: BeginReading) -> Reply:
        given = dict(command.positions)
        places = {}
        for shard, rows in enumerate(self.shards):
            place = len(rows) if command.start == "new" else self.first
            places[shard] = given.get(shard, place)
            if places[shard] < self.first:
                reason = f"rows below {self.first} are not kept any more"
                return Failed(command.request, "offset-out-of-range", reason)
        self._places[command.request] = places
        self.begun.append(dict(places))
        shards = tuple((place, len(self.shards[shard])) for shard, place in places.items())
        return ReadingReady(command.request, shards, "token", self.stream_id)

    def _take(self, command: TakeEvents) -> Iterable[Reply]:
        places = self._places[command.reading]
        events: list[StreamEvent] = []
        moved = []
        for shard, rows in enumerate(self.shards):
            place = places[shard]
            some = rows[place : place + self.most]
            if some:
                events += [
                    StreamEvent(shard, place + n, 0.0, {"n": row}) for n, row in enumerate(some)
                ]
                places[shard] = place + len(some)
                moved.append((shard, places[shard]))
        if not moved and self.is_mute_at_end:
            return []
        return [EventsTaken(command.request, tuple(events), tuple(moved))]
