"""A control socket behind which there is one stream with rows that never change."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from matching import Value
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
from overlay.stream_client import (
    DecideTransaction,
    LeaveUnknown,
    PrepareEvents,
    ReviewsAsked,
    TakeReviews,
    TransactionState,
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
        self.losses = (0, 0)
        self.begun: list[dict[int, int]] = []
        self._places: dict[int, dict[int, int]] = {}  # by reading
        self.halves: dict[str, list[int]] = {}  # the "n" of their events, by transaction
        self.outcomes: dict[str, str] = {}
        self.unknown: list[str] = []  # of which a program could not say what became
        self.refusal = ""  # code with which nothing is prepared
        self.operator = ""  # how somebody has decided before the program does
        self.reviews: list[str] = []  # to be asked of the next program that takes some
        self.more: dict[str, Value | None] = {}  # attributes that each row has beside its "n"

    def _script(self, command: Command) -> Iterable[Reply]:
        if isinstance(command, BeginReading):
            return [self._begin(command)]
        if isinstance(command, TakeEvents):
            return self._take(command)
        if isinstance(command, PrepareEvents | DecideTransaction):
            return [self._transact(command)]
        if isinstance(command, TakeReviews):
            asked, self.reviews = tuple(self.reviews), []
            return [ReviewsAsked(command.request, asked)] if asked else []
        if isinstance(command, LeaveUnknown):
            self.unknown.append(command.transaction)
        return [Done(command.request)]

    def _transact(self, command: PrepareEvents | DecideTransaction) -> Reply:
        """The first decision stays; a commit appends to the first shard."""
        name = command.transaction
        if self.refusal and isinstance(command, PrepareEvents):
            return Failed(command.request, self.refusal, "there are as many as may be")
        if name not in self.outcomes and isinstance(command, PrepareEvents):
            rows = [event.attributes["n"] for event in command.events]
            self.halves.setdefault(name, rows)  # type: ignore[arg-type]
            return TransactionState(command.request, "prepared", self.stream_id)
        if name not in self.outcomes:
            assert isinstance(command, DecideTransaction)
            half = self.halves.pop(name, None)
            if half is None:
                return Failed(command.request, "unknown-transaction", "there is none")
            said = "committed" if command.commit else "rolled-back"
            self.outcomes[name] = self.operator or said
            self.shards[0].extend(half if self.outcomes[name] == "committed" else [])
        return TransactionState(command.request, self.outcomes[name], self.stream_id)

    def _begin(self, command: BeginReading) -> Reply:
        if command.stream_id not in ("", self.stream_id):
            reason = f"these positions are of another stream, with the id {command.stream_id}"
            return Failed(command.request, "position-lost", reason)
        given = dict(command.positions)
        places = {}
        for shard, rows in enumerate(self.shards):
            place = len(rows) if command.start == "new" else self.first
            places[shard] = given.get(shard, place)
            if places[shard] < self.first:
                reason = f"rows below {self.first} are no longer kept"
                return Failed(command.request, "offset-out-of-range", reason)
        self._places[command.request] = places
        self.begun.append(dict(places))
        shards = tuple((place, len(self.shards[shard])) for shard, place in places.items())
        return ReadingReady(command.request, shards, "token", self.stream_id, self.losses)

    def _take(self, command: TakeEvents) -> Iterable[Reply]:
        places = self._places[command.reading]
        events: list[StreamEvent] = []
        moved = []
        for shard, rows in enumerate(self.shards):
            place = places[shard]
            some = rows[place : place + self.most]
            if some:
                events += [
                    StreamEvent(shard, place + n, 0.0, {"n": row, **self.more})
                    for n, row in enumerate(some)
                ]
                places[shard] = place + len(some)
                moved.append((shard, places[shard]))
        if not moved and self.is_mute_at_end:
            return []
        return [EventsTaken(command.request, tuple(events), tuple(moved))]
