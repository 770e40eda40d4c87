"""The batches of one producer at one shard: queued, numbered, sent in requests, answered.

A request costs turns and syncs at four processes, with one batch as with fifty. So a second request
waits until it has as many batches as the first, or the first is answered, and then takes half of
all batches without an answer. Single rows so share two requests of equal size. Otherwise the first
row after an answer would be sent alone, and the others would wait for it.

To the leader, and in the log, the batches of a request are one batch. So the cost of a row at the
replicas does not depend on the number of programs' batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from streams.log.chunk import CHUNK_TARGET
from streams.programs.producer.messages import BATCHES_MOST, Run

IN_FLIGHT: Final = 2
"""The limit of requests under way: one is replicated while the next one fills. Four were as fast
for large batches, but made smaller requests of single rows (`bench.streams.peers`). It is at most
half of `streams.log.state.WINDOW`, since a request may lie in two chunks, and a repeat of all
requests has to get its receipts."""


Outcome = Callable[[Run | None, str, str], None]
"""Called once for each batch, with its place, a code and a reason. Code "": the batch is committed,
at the place, or at one that is no longer known (None). Other codes (`streams.access.reasons`): it
was refused."""


@dataclass(eq=False, slots=True)
class QueuedBatch:
    """The rows that a program appends together."""

    rows: bytes
    count: int
    then: Outcome
    sequence: int = -1
    is_alone: bool = False  # in a request of its own, since one that it shared was refused


class RowsRequest:
    """The batches that are sent together."""

    __slots__ = ("batches", "count", "number", "sequence")

    def __init__(self, batches: list[QueuedBatch]) -> None:
        self.batches = batches
        self.sequence = batches[0].sequence
        self.count = sum([batch.count for batch in batches])
        self.number = 0

    def fits(self, runs: tuple[Run, ...]) -> bool:
        """Whether an honest leader can have appended the rows at these places."""
        at, end = self.sequence, self.sequence + self.count
        for run in runs:
            following = run.sequence + run.count
            if not at <= run.sequence < following <= end or len(run.hash) not in (0, 32):
                return False
            at = following
        return True


class RowQueue:
    """The batches without an answer, and the numbers of their rows."""

    def __init__(self) -> None:
        self.appended = 0
        """The number below which all rows are committed."""
        self.flight: deque[RowsRequest] = deque()
        """The requests under way, in their order."""
        self._queue: deque[QueuedBatch] = deque()
        self._queued = 0  # rows in it
        self._next = 0  # number of the next row that is sent first

    @property
    def following(self) -> int:
        """The number of the first row of the next batch."""
        return self._next + self._queued

    @property
    def first(self) -> int:
        """The number of the first row under way; if none is, of the next row to send."""
        return self.flight[0].sequence if self.flight else self._next

    @property
    def is_empty(self) -> bool:
        """Whether all batches are answered."""
        return not self._queue and not self.flight

    def begins(self, following: int, appended: int) -> None:
        """Give the next row the number `following`. The log has all rows below `appended`."""
        self._next, self.appended = following, appended

    def add(self, rows: bytes, count: int, then: Outcome) -> None:
        """Queue a batch of `count` rows, encoded in `rows`. `then` gets what became of it."""
        self._queue.append(QueuedBatch(rows, count, then))
        self._queued += count

    def find(self, number: int) -> RowsRequest | None:
        """Return the request under way with this number."""
        return next((r for r in self.flight if r.number == number), None)

    def has(self, sequence: int) -> bool:
        """Whether a batch under way begins with this row."""
        return any(b.sequence == sequence for r in self.flight for b in r.batches)

    def next_request(self) -> RowsRequest | None:
        """Return the next request, and count it as under way; None: it has to wait, or there is
        none."""
        while self._queue and (most := self._most()):
            if batches := self._take(most):
                request = RowsRequest(batches)
                self.flight.append(request)
                return request
        return None

    def _most(self) -> int:
        """The limit of batches in the next request; 0: it waits."""
        if not self.flight:
            return BATCHES_MOST
        under_way, waiting = sum([len(r.batches) for r in self.flight]), len(self._queue)
        if waiting < under_way or len(self.flight) >= IN_FLIGHT:
            return 0
        return min((under_way + waiting + 1) // 2, BATCHES_MOST)

    def _take(self, most: int) -> list[QueuedBatch]:
        batches: list[QueuedBatch] = []
        size = 0
        while self._queue and len(batches) < most:
            batch = self._queue[0]
            is_alone = batch.is_alone or bool(batches and batches[0].is_alone)
            if batches and (is_alone or size + len(batch.rows) > CHUNK_TARGET):
                break
            self._queue.popleft()
            self._queued -= batch.count
            batch.sequence = self._next
            self._next += batch.count
            if self._next <= self.appended:  # repeated by a program that begins again
                batch.then(None, "", "")
                continue
            size += len(batch.rows)
            batches.append(batch)
        return batches

    def answered(self, request: RowsRequest, runs: Iterable[Run]) -> None:
        """Answer the batches of a request, whose rows are committed at the places in `runs`."""
        self.flight.remove(request)
        places = iter(runs)
        run = next(places, None)
        for batch in request.batches:
            while run is not None and run.sequence + run.count <= batch.sequence:
                run = next(places, None)
            found = None
            first, count = batch.sequence, batch.count
            if (
                run is not None
                and run.sequence <= first
                and first + count <= run.sequence + run.count
            ):
                offset = run.offset + first - run.sequence
                chunk, epoch, holders = run.chunk, run.epoch, run.replicas
                found = Run(first, count, offset, chunk, epoch, run.hash, holders, run.fork)
            self.appended = max(self.appended, first + count)
            batch.then(found, "", "")

    def sort_out(self, following: int, unfit: RowsRequest | None, code: str, reason: str) -> None:
        """Sort the requests after a refusal, when a new session has begun. Batches below
        `following` are appended, and stay under way for their receipts; the others are refused.
        `unfit`: the only faulty request: the other requests are sent again, and its own batches one
        by one."""
        kept: deque[RowsRequest] = deque()
        failed: list[QueuedBatch] = []
        again: list[QueuedBatch] = []
        for request in self.flight:
            there = [b for b in request.batches if b.sequence + b.count <= following]
            rest = request.batches[len(there) :]
            if unfit is None or (request is unfit and len(request.batches) == 1):
                failed += rest
            else:  # it may be others' batches that are at fault: sent one by one, that is seen
                for batch in rest:
                    batch.is_alone = batch.is_alone or request is unfit
                again += rest
            if there:
                kept.append(RowsRequest(there))
        self.flight = kept
        self._next = following
        self._queue.extendleft(reversed(again))
        self._queued += sum(batch.count for batch in again)
        for batch in failed:
            batch.then(None, code, reason)

    def refuse_queue(self, code: str, reason: str) -> None:
        """Refuse the batches that were not sent."""
        queue, self._queue, self._queued = self._queue, deque(), 0
        for batch in queue:
            batch.then(None, code, reason)

    def refuse_flight(self, code: str, reason: str) -> None:
        """Refuse the batches that were sent, and forget them."""
        flight, self.flight = self.flight, deque()
        for request in flight:
            for batch in request.batches:
                batch.then(None, code, reason)

    def doubt_flight(self, code: str, reason: str) -> None:
        """Refuse the batches that were sent, and keep them under way without their programs."""
        for request in self.flight:
            for batch in request.batches:
                then, batch.then = batch.then, _ignored
                then(None, code, reason)


def _ignored(run: Run | None, code: str, reason: str) -> None:
    """Ignore the outcome of a batch whose program has its answer."""
