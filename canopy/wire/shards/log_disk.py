"""`streams.disk.LogDisk` over files: requests are queued, and one thread carries them out.

The requests of a turn of the node are passed to the thread at its end (`hand_over`), when its
frames have left: both the thread and the node's writes need Python's lock.

If the node has time, it carries out a small write in its own thread instead, at once: that saves
two wake-ups and a turn, which take as long as the write. It has time if its idle time since the
last such write is longer than recent writes took, so that a busy node, or one with a slow disk,
continues while the disk's thread waits for the disk.

Group commit: the thread takes all requests that arrived while it was busy, carries them out in
order, and then makes every written file durable, with one fdatasync for each. Then it answers. So a
busy node has as many writes in an fdatasync as arrive during the last one, and an idle one waits
for no other writes.

All answers that are there when the node's thread looks are one turn of the node.

After an OSError only what was durable before counts for that shard: the rest of its requests is
answered by `DiskFailed`, until it is opened again. Other shards continue.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple

from canopy.wire.constants import SHARDS_OPEN
from canopy.wire.durable import NO_ROOM
from canopy.wire.log import Log
from canopy.wire.shards.shard_files import ShardFiles
from canopy.wire.shards.shard_list import ShardList, is_shard_name
from overlay.machine import LocalEvent
from streams.disk import DiskFailed, Opened, ReadDone, Written
from streams.log.batches import MalformedChunkError
from streams.log.recovery import recover

# --- when the node's own thread may wait for the disk of its shards: while it has the time ---
#
# A write of its own saves the node two wake-ups and a turn, and keeps it from all else for as long
# as the disk takes. So it is for nodes with little to do, on disks that are quick.

OWN_SIZE_MOST: Final = 64 * 1024
"""The largest write, in bytes, that the node's own thread carries out."""

OWN_TOOK_MOST: Final = 0.002
"""The longest recent write, in seconds, with which the node's own thread still carries out writes:
a turn or two. Guess; to be measured by the node's longest turns on disks of several speeds."""

TOOK_DECAY: Final = 0.9
"""The factor by which the longest recent write decays with each further write."""

FIRST_TOOK: Final = 0.05
"""The assumed duration of a write, in seconds, before any was measured: the disk's thread carries
out the first thirty."""


class WritePace:
    """Measures how long recent writes took, and decides whether the node's thread carries one out.
    The disk's thread calls `done` and `thread`, the node's thread the others."""

    def __init__(self) -> None:
        self.took = FIRST_TOOK
        """Seconds that the slowest recent write took, decayed by `TOOK_DECAY` with each write
        since."""
        self._ended = 0.0  # when the last write in the node's thread ended
        self._given = self._done = 0

    def has_time(self, idle: float) -> bool:
        """Return whether the node's idle time since its last write is longer than recent writes
        took. `idle`: the share of recent time in which the node had nothing to do."""
        return self.took <= min((time.monotonic() - self._ended) * idle, OWN_TOOK_MOST)

    @property
    def is_given(self) -> bool:
        """Whether the disk's thread has pending work."""
        return self._given != self._done

    def given(self) -> None:
        """Count a batch of work that is passed to the disk's thread."""
        self._given += 1

    def done(self, times: int) -> None:
        """Note that the thread has finished `times` batches of work."""
        self._done += times

    @contextmanager
    def own(self) -> Iterator[None]:
        """Measure a write in the node's thread (a context manager)."""
        with self.thread():
            yield
        self._ended = time.monotonic()

    @contextmanager
    def thread(self) -> Iterator[None]:
        """Measure a write in any thread (a context manager)."""
        began = time.monotonic()
        yield
        self.took = max(time.monotonic() - began, TOOK_DECAY * self.took)


REFUSED: Final = (OSError, ValueError, MalformedChunkError)
"""The errors of a disk, of an invalid name, and of an unreadable log that end a request."""


class _Request(NamedTuple):
    ticket: int
    shard: str
    carry_out: Callable[[_Shard, int], LocalEvent | None]  # None: `Written`, after the sync
    begins: bool  # it does not matter what failed before
    segment: str = ""  # that it only writes into …
    size: int = 0  # … so many bytes; 0: it does something else


class _Shard:
    """The thread's state of one shard."""

    def __init__(self, name: str, files: ShardFiles) -> None:
        self.name = name
        self.files = files
        self.failure: tuple[str, bool] | None = None  # reason, and whether for want of room
        self.logged = ""
        """The failure in the log. A replica opens its shard again each second: that is one line."""
        self.answers: list[LocalEvent] = []
        """Answers to requests in progress; they are valid after the sync."""

    def fail(self, ticket: int) -> None:
        """Answer a request with the failure of the shard."""
        assert self.failure is not None
        self.answers.append(DiskFailed(self.name, ticket, *self.failure))


class FileLogDisk:
    """The shards below the data folder `path` of `node`. Its constructor raises FolderError."""

    def __init__(self, path: Path, node: str, log: Log) -> None:
        self._log = log
        self._list = ShardList(path, node, log)
        self._found = self._list.shards
        self._ticket = 0
        self._asked: list[_Request] = []  # and not handed over
        self._handed: SimpleQueue[list[_Request] | None] = SimpleQueue()  # None: the end
        self._rope = self._end = -1  # of the pipe by which the thread is woken
        self._answered = threading.Lock()
        self._answers: list[LocalEvent] = []
        self._error: BaseException | None = None  # a fault of this program in the thread
        self._closing = False
        self._wake: Callable[[], None] = lambda: None
        self._thread: threading.Thread | None = None
        self._shards: OrderedDict[str, _Shard] = OrderedDict()
        """The open shards, the last used last. Used by the disk's thread, or by the node's while
        the disk's has no work."""
        self._pace = WritePace()

    # -- the node's thread -----------------------------------------------------------------------

    def on_answers(self, wake: Callable[[], None]) -> None:
        """Call `wake` in the disk's thread whenever there are answers to `take`."""
        self._wake = wake

    def take(self) -> Sequence[LocalEvent]:
        """Return the answers since the last call, each shard's in the order of its requests. Raises
        the error that has ended the disk's thread."""
        with self._answered:
            if self._error is not None:
                raise self._error
            answers, self._answers = self._answers, []
        return answers

    def hand_over(self, idle: float = 0.0) -> Sequence[LocalEvent]:
        """Let the thread carry out the requests since the last call. If they are little work, carry
        them out now, and return the answers. `idle`: the share of recent time in which the node had
        nothing to do."""
        if not self._asked:
            return ()
        asked, self._asked = self._asked, []
        if not self._has_time(asked, idle):
            self._hand(asked)
            return ()
        with self._pace.own():
            return self._carry_out(asked)

    def _has_time(self, asked: Sequence[_Request], idle: float) -> bool:
        """Return whether the node's thread carries out these requests itself."""
        if self._pace.is_given or self._answers:  # what was asked before comes first
            return False
        if not self._pace.has_time(idle):
            return False
        return all(0 < each.size <= OWN_SIZE_MOST and self._is_open(each) for each in asked)

    def _is_open(self, request: _Request) -> bool:
        held = self._shards.get(request.shard)
        return held is not None and held.failure is None and held.files.segment == request.segment

    def _hand(self, requests: list[_Request] | None) -> None:
        """Wake the thread by writing to a pipe, which releases Python's lock: a thread that a queue
        wakes would wait for the lock at once, and would have to be woken a second time."""
        if self._thread is None:
            self._end, self._rope = os.pipe()
            os.set_blocking(self._rope, False)
            self._thread = threading.Thread(target=self._run, name="shards", daemon=True)
            self._thread.start()
        self._pace.given()
        self._handed.put(requests)
        with contextlib.suppress(BlockingIOError):  # it has been woken often enough
            os.write(self._rope, b"\a")

    def close(self, timeout: float) -> bool:
        """Carry out all requests and end the thread; later requests are not answered. Return
        whether all was done within `timeout` seconds."""
        if not self._closing:
            self.hand_over()
            self._closing = True
            if self._thread is not None:
                self._hand(None)
        if self._thread is None:
            return True
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        if self._rope >= 0:
            os.close(self._rope)
            os.close(self._end)
            self._rope = self._end = -1
        return True

    def shards(self) -> Sequence[str]:
        """Return the shards that this node had at its start, including those whose folder is
        missing: they open as damaged."""
        return self._found

    def open(self, shard: str) -> int:
        """Read the folder. It is made if the node never had the shard. Returns the ticket of the
        answer."""
        return self._ask(shard, self._open, begins=True)

    def write(self, shard: str, segment: str, at: int, data: bytes) -> int:
        """Write into a segment. Returns the ticket of the answer."""
        size = len(data)
        write: Callable[[_Shard, int], None]
        write = lambda held, ticket: held.files.write(segment, at, data)  # noqa: E731
        return self._ask(shard, write, segment=segment, size=size)

    def put(self, shard: str, data: bytes) -> int:
        """Replace the hard state. Returns the ticket of the answer."""
        return self._ask(shard, lambda held, ticket: held.files.put(data))

    def cut(self, shard: str, segment: str, size: int) -> int:
        """Cut a segment to `size` bytes. Returns the ticket of the answer."""
        return self._ask(shard, lambda held, ticket: held.files.cut(segment, size))

    def drop(self, shard: str, segment: str) -> int:
        """Delete a segment. Returns the ticket of the answer."""
        return self._ask(shard, lambda held, ticket: held.files.drop(segment))

    def save(self, shard: str, segment: str) -> int:
        """Copy a damaged segment, and log it. Returns the ticket of the answer."""

        def carry_out(held: _Shard, ticket: int) -> None:
            kept = held.files.save(segment)
            self._log.warning("segment_saved", shard=shard, kept=kept)

        return self._ask(shard, carry_out)

    def read(self, shard: str, segment: str, at: int, size: int) -> int:
        """Read from a segment. Returns the ticket of the answer."""

        def carry_out(held: _Shard, ticket: int) -> LocalEvent:
            return ReadDone(shard, ticket, held.files.read(segment, at, size))

        return self._ask(shard, carry_out)

    def destroy(self, shard: str) -> int:
        """Delete the folder, and remove the shard from the list. Returns the ticket of the
        answer."""

        def carry_out(held: _Shard, ticket: int) -> None:
            held.files.close()
            self._list.remove(shard)

        return self._ask(shard, carry_out, begins=True)

    def _ask(
        self,
        shard: str,
        carry_out: Callable[[_Shard, int], LocalEvent | None],
        *,
        begins: bool = False,
        segment: str = "",
        size: int = 0,
    ) -> int:
        self._ticket += 1
        if not self._closing:
            request = _Request(self._ticket, shard, carry_out, begins, segment, size)
            self._asked.append(request)
        return self._ticket

    # -- the disk's thread -----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            ends = False
            while not ends:
                os.read(self._end, 4096)
                asked = []
                while not self._handed.empty():
                    asked.append(self._handed.get())
                if not asked:  # they were taken with those before
                    continue
                ends = asked[-1] is None
                with self._pace.thread():
                    answers = self._carry_out([each for some in asked for each in some or ()])
                with self._answered:
                    self._answers += answers
                self._pace.done(len(asked))
                self._wake()
        except BaseException as error:
            with self._answered:
                self._error = error
            self._wake()
        for held in self._shards.values():
            held.files.close()

    def _carry_out(self, requests: Sequence[_Request]) -> list[LocalEvent]:
        """Carry out requests in their order, and make them durable. Returns their answers."""
        refused: list[LocalEvent] = []
        used: dict[str, _Shard] = {}
        for request in requests:
            held = used.get(request.shard)
            if held is None:
                if not is_shard_name(request.shard):
                    reason = f"{request.shard!r} is no name of a shard"
                    refused.append(DiskFailed(request.shard, request.ticket, reason, False))
                    continue
                held = used[request.shard] = self._shard(request.shard)
            self._carry_out_one(held, request)
        for held in used.values():
            self._sync(held)
            if any(isinstance(answer, Written) for answer in held.answers):
                held.logged = ""
        answers = [answer for held in used.values() for answer in held.answers]
        for held in used.values():
            held.answers = []
        self._close_some()
        return refused + answers

    def _carry_out_one(self, held: _Shard, request: _Request) -> None:
        if request.begins:
            self._sync(held)
            held.failure = None
        if held.failure is not None:
            held.fail(request.ticket)
            return
        try:
            answer = request.carry_out(held, request.ticket)
        except REFUSED as error:
            self._failed(held, error)
            held.fail(request.ticket)
        else:
            held.answers.append(answer or Written(held.name, request.ticket))

    def _sync(self, held: _Shard) -> None:
        try:
            held.files.sync()
        except OSError as error:
            self._failed(held, error)

    def _failed(self, held: _Shard, error: Exception) -> None:
        """Mark a shard as failed after a disk error. Its requests since the last answers fail."""
        number = error.errno if isinstance(error, OSError) else None
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        where = error.filename if isinstance(error, OSError) else None
        held.failure = (reason, number in NO_ROOM)
        held.files.close()
        answers, held.answers = held.answers, []
        for answer in answers:
            if isinstance(answer, Written):
                held.fail(answer.ticket)
            else:
                held.answers.append(answer)
        if held.logged != reason:
            held.logged = reason
            about = {} if where is None else {"file": str(where)}
            self._log.warning("shard_failed", shard=held.name, reason=reason, **about)

    def _open(self, held: _Shard, ticket: int) -> LocalEvent:
        shard = held.name
        if self._list.is_missing(shard):
            return Opened(shard, ticket, recover(shard, (), _nothing), None, True)
        self._list.add(shard)
        found = held.files.open()
        return Opened(shard, ticket, found.recovered, found.hard_state, found.damaged)

    def _shard(self, shard: str) -> _Shard:
        held = self._shards.get(shard)
        if held is None:
            held = self._shards[shard] = _Shard(shard, ShardFiles(self._list.folder(shard), shard))
        self._shards.move_to_end(shard)
        return held

    def _close_some(self) -> None:
        """Close the files of the least recently used shards beyond `SHARDS_OPEN`."""
        for held in list(self._shards.values())[: max(0, len(self._shards) - SHARDS_OPEN)]:
            held.files.close()
            if held.failure is None:
                del self._shards[held.name]


def _nothing(name: str) -> bytes:
    raise FileNotFoundError(name)
