"""Retention and compaction of streams of real nodes, with every row that is left accounted for.

    python -m bench.streams.retention --rows 200000        # half a minute
    python -m bench.streams.retention --rows 10000000 --json

Three nodes as processes have a stream of each kind of `KINDS`, all on all three, to each of which a
program appends numbered rows in batches of thousands. What a row says follows from its number and
the seed, so a model needs no log of its own. Meanwhile nodes are killed (kill -9) and started
again, one at a time, `--kills` times; segments go and tables are written again under each leader.

In the end each stream is read and held against its model. Of all: the rows that are left are those
of the numbers from the first that is left to the last that was acknowledged, without a gap, each
as it was appended, and rows before the first are refused. Besides:

* *size* (`--keep-size`): as many bytes are left as were to be kept, and few more.
* *age* (`--keep-for`): whatever is younger is there, whatever is older by a segment and `LATE` has
  gone; all of it has gone when nothing was appended for that long.
* *count* (`--max-rows --when-full drop-oldest`): exactly as many rows are left.
* *unread* (`--keep-size`, and a durable consumer that falls behind): the consumer got each row.
* *key* (`--key --deletes --keep-size`): the newest rows are those of the model, key by key, with
  many that were never replaced and deleted keys that stay deleted.

The files of all replicas are whole, and prove the last receipt. While rows are appended no replica
has more bytes on its disk than `DISK` times what its stream keeps, and memory of a node does not
grow. `wrong` must be empty, and no node may end by itself; else the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import psutil

from bench.command import SEED, parser, say, show
from bench.streams.hostile.account import contents, proofs
from bench.streams.hostile.programs import PATIENCE, Program, wait, wait_on
from canopy.client.client import Client, connect
from canopy.client.errors import CommandFailed
from harness.real_overlay import Overlay, wait_ready
from overlay.client import GetStreams, Streams
from overlay.info import AppendReceipt, ReplicaInfo, StreamInfo
from overlay.stream_client import AddStream
from streams.access.reasons import OUT_OF_RANGE
from streams.log.shard_log import parse_name
from streams.log.verify import Verifier

NODES: Final = 3
BATCH: Final = 10_000
"""Rows of a call of the library, which appends them in batches of 256, four at a time."""

KEPT_BYTES: Final = 2 << 20
KEPT_ROWS: Final = 50_000
SEGMENT_BYTES: Final = 1 << 20
"""The smallest that retention by bytes makes a segment (streams/shard/retention.py)."""
KEPT_SECONDS: Final = 20.0
SEGMENT_SECONDS: Final = 10.0
"""The shortest that retention by age makes a segment (streams/shard/retention.py)."""
LATE: Final = 30.0
"""Seconds by which rows may go later than they should, on a busy machine; ample."""

KINDS: Final[dict[str, dict[str, Any]]] = {
    "size": {"keep_bytes": KEPT_BYTES},
    "age": {"keep_seconds": KEPT_SECONDS},
    "count": {"max_rows": KEPT_ROWS, "when_full": "drop-oldest"},
    "unread": {"keep_bytes": KEPT_BYTES},
    "key": {"key": "k", "deletes": "d = TRUE", "keep_bytes": KEPT_BYTES},
}
"""The options of each stream."""

BEHIND: Final = 150_000
"""Rows by which the durable consumer falls behind again and again."""

DISK: Final = 3
"""How often what a stream keeps may be on a disk: segments that are due to go, a table that is
written again while the former one is there, and what is appended in a few seconds."""
AT_ONCE: Final = 6 << 20
"""Bytes that may be appended before retention looks again, on a busy machine; ample."""

WARM: Final = 1_000_000
"""Rows after which nodes have filled the 4 MiB of newest chunks that they keep of each shard."""
GROWTH: Final = 1.25
"""By which a node's most memory of the second half may be above that of the first, once warm."""

NEVER_AGAIN: Final = 5_000
"""Keys of one row each, the first of all: the table has to carry them to the end."""
KEYS: Final = 5_000
"""Keys that are replaced, half of all rows a hundred of them."""
DELETED: Final = 23
"""One row of so many deletes its key."""

SILENCE: Final = 5.0
"""Seconds without a row after which there is none."""
SETTLED: Final = 120.0
"""Seconds without a step nearer after which what is waited for does not come; ample."""


class Model:
    """What each row says, and what is left of them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def row(self, number: int) -> dict[str, Any]:
        """The attributes of the row with this number."""
        if number < NEVER_AGAIN:
            return {"id": str(number), "type": "row", "k": -1 - number}
        mixed = (number * 0x9E3779B1 + self.seed * 0x85EBCA6B) & 0xFFFFFFFF
        mixed ^= mixed >> 15
        row = {"id": str(number), "type": "row", "k": mixed % (KEYS if number & 1 else 100)}
        return row if mixed // KEYS % DELETED else {**row, "d": True}

    def newest(self, end: int) -> dict[int, int]:
        """By key the number of its newest row below `end`, without keys that were deleted."""
        found: dict[int, int] = {}
        for number in range(end):
            row = self.row(number)
            if "d" in row:
                found.pop(row["k"], None)
            else:
                found[row["k"]] = number
        return found


class Appending(Program):
    """Appends the rows of a model, from the first that is not acknowledged, until there are so
    many."""

    def __init__(self, stream: str, data: Path, model: Model, rows: int) -> None:
        super().__init__(f"to {stream}", data, model.seed)
        self.stream, self.model, self.rows = stream, model, rows
        self.acknowledged = 0
        self.begun = array("d")  # when each call was begun
        self.done = array("d")  # … and answered
        self.ends_of = array("q")  # … and the number behind its last row
        self.last: AppendReceipt | None = None
        self.may_go_on: Callable[[], bool] = lambda: True

    def work(self, client: Client) -> None:
        """Append the next rows until all are acknowledged or the run ends."""
        producer = client.producer(self.stream, "model", first=self.acknowledged)
        while self.acknowledged < self.rows and not self.ends.is_set():
            end = min(self.rows, self.acknowledged + BATCH)
            begun = time.monotonic()
            rows = [self.model.row(n) for n in range(self.acknowledged, end)]
            found = producer.append(rows, timeout=PATIENCE)
            self.begun.append(begun)
            self.done.append(time.monotonic())
            self.ends_of.append(end)
            self.acknowledged = end
            self.last = found.receipts[-1] if found.receipts else self.last
            while not self.may_go_on() and not self.ends.is_set():
                self.ends.wait(0.1)
        self.ends.set()

    def newer(self, at: float) -> int:
        """The first row of the first call that was begun at or after `at`."""
        place = bisect_left(self.begun, at)
        return self.ends_of[place - 1] if place else 0

    def older(self, at: float) -> int:
        """The row behind the last one of the calls that were answered before `at`."""
        place = bisect_left(self.done, at)
        return self.ends_of[place - 1] if place else 0


class Behind(Program):
    """A durable consumer that reads all rows and confirms them, and waits until it is behind now
    and then."""

    def __init__(self, data: Path, appending: Appending) -> None:
        super().__init__("behind", data, appending.model.seed)
        self.appending = appending
        self.next = 0
        self.wrong = 0

    def work(self, client: Client) -> None:
        """From where it confirmed on."""
        model, stream = self.appending.model, self.appending.stream
        with client.read(stream, start="first", durable="behind") as reading:
            while not self.ends.is_set():
                events = reading.take(timeout=1.0)
                for event in events:
                    if event.offset > self.next or event.attributes != model.row(event.offset):
                        self.wrong += 1
                    self.next = max(self.next, event.offset + 1)
                if events:
                    reading.commit()
                if self.next % (2 * BEHIND) < len(events):  # it has passed another multiple
                    wanted = self.next + BEHIND
                    while self.appending.acknowledged < wanted and not self.appending.ends.is_set():
                        self.ends.wait(0.2)


class Retention:
    """One run. `wrong`: what must not be, with how often."""

    def __init__(self, options: argparse.Namespace, folder: Path, stack: ExitStack) -> None:
        self.options, self.rng = options, Random(options.seed)
        self.wrong: Counter[str] = Counter()
        self.overlay = Overlay(folder, "trace: {enabled: false}", SETTLED)
        stack.callback(self.overlay.stop)
        first = self.overlay.grow(NODES)
        time.sleep(3.0)  # until everybody is in everybody's view
        self.ids: dict[str, str] = {}
        for name, kept in KINDS.items():
            made = first.ask(AddStream(0, name, **kept), Streams, PATIENCE).streams[0]
            assert len(made.shards[0].replicas) == NODES
            self.ids[name] = made.id
        model = Model(options.seed)
        each = options.rows // len(KINDS)
        self.model = model
        self.programs = {
            name: Appending(name, self.data(n % NODES), model, each) for n, name in enumerate(KINDS)
        }
        self.aging = self.programs["age"]
        self.aging.rows = 1 << 62  # until the others have ended, so that there are young rows
        self.aging.may_go_on = self._age_is_not_ahead
        self.behind = Behind(self.data(0), self.programs["unread"])
        self.disk: Counter[str] = Counter()  # by stream: most bytes of a replica
        self.memory: list[list[float]] = [[], []]  # MB of the largest node, in each half
        self.kills = 0
        self.ended = 0

    def data(self, number: int) -> Path:
        """A node's data folder."""
        return self.overlay.folder / str(number)

    def run(self) -> dict[str, Any]:
        """Rows, and then the account."""
        began = time.monotonic()
        for program in (*self.programs.values(), self.behind):
            program.start()
        wait_on(self._is_done, lambda: self._rows, SETTLED)
        took = time.monotonic() - began
        for name, program in self.programs.items():
            program.ends.set()
            program.join(SETTLED)
            if program.acknowledged < program.rows and program is not self.aging:
                self.wrong[f"{name}: rows that were not taken"] += 1
        self._judge()
        faults = [repr(p.fault) for p in (*self.programs.values(), self.behind) if p.fault]
        self.wrong["programs that failed"] = len(faults)
        peaks = [round(max(half, default=0.0), 1) for half in self.memory]
        is_warm = self.options.rows >= 2 * WARM
        self.wrong["nodes that hold more and more"] = is_warm and peaks[1] > peaks[0] * GROWTH
        return {
            "seed": self.options.seed,
            "seconds": round(took, 1),
            "rows": self._rows,
            "kills": self.kills,
            "most_mb_on_a_disk": {n: round(size / 1e6, 1) for n, size in self.disk.items()},
            "most_mb_of_a_node": peaks,
            "errors": {p.name: p.errors for p in self.programs.values() if p.errors},
            "faults": faults,
            "ended": self.ended,
            "wrong": {what: count for what, count in self.wrong.items() if count},
            "wrong_count": self.wrong.total(),
        }

    @property
    def _rows(self) -> int:
        return sum(program.acknowledged for program in self.programs.values())

    def _age_is_not_ahead(self) -> bool:
        return self.aging.acknowledged * len(KINDS) <= self._rows + len(KINDS) * BATCH

    def _is_done(self) -> bool:
        """Look at disks and memory, and kill a node when it is time."""
        done = self._rows / (len(KINDS) * (self.options.rows // len(KINDS)))
        for name, id_ in self.ids.items():
            sizes = [self._bytes(number, id_) for number in range(NODES)]
            self.disk[name] = max(self.disk[name], *sizes)
        held = [psutil.Process(p.pid).memory_full_info().uss / 1e6 for p in self._alive()]
        if self._rows > min(WARM, self.options.rows / 2):
            half = self._rows > (WARM + self.options.rows) / 2
            self.memory[half].append(max(held, default=0.0))
        if done * (self.options.kills + 1) >= self.kills + 1 and done < 1:
            self._kill(self.rng.randrange(NODES))
        say(f"{self._rows:,} of {self.options.rows:,} rows")
        return all(p.ends.is_set() for p in self.programs.values() if p is not self.aging)

    def _alive(self) -> Iterator[Any]:
        for number, process in enumerate(self.overlay.processes):
            if process.poll() is None:
                yield process
            else:
                self.ended += 1
                self._start(number)

    def _bytes(self, number: int, stream: str) -> int:
        total = 0
        for path in (self.data(number) / "streams" / stream / "0").glob("*.log"):
            try:
                total += path.stat().st_size
            except FileNotFoundError:  # it went meanwhile
                continue
        return total

    def _kill(self, number: int) -> None:
        self.kills += 1
        say(f"node {number} is killed")
        self.overlay.kill(number)
        time.sleep(self.rng.uniform(0.0, 4.0))
        self._start(number)

    def _start(self, number: int) -> None:
        self.overlay.restart(number)
        wait_ready(self.overlay.clients[number], patience=SETTLED)

    # -- the account -----------------------------------------------------------------------------

    def _judge(self) -> None:
        for name, bound in self._bounds().items():
            if self.disk[name] > bound:
                self.wrong[f"{name}: bytes on a disk above {bound:,}"] += 1
        self._age()
        self._consumer()
        for name in ("size", "count", "unread", "key"):
            self._settled(name)
            self._range(name)
        self._newest()
        self._gone()
        self.overlay.kill(*range(NODES))
        self._files()

    def _consumer(self) -> None:
        """The consumer that was behind got everything."""
        behind, rows = self.behind, self.programs["unread"].acknowledged
        wait_on(lambda: behind.next >= rows, lambda: behind.next, SETTLED)
        behind.ends.set()
        behind.join(SETTLED)
        self.wrong["unread: rows that the consumer got as others"] = behind.wrong
        self.wrong["unread: rows that the consumer did not get"] = rows - behind.next

    def _bounds(self) -> dict[str, int]:
        """Bytes that each stream may have on a disk."""
        kept = DISK * KEPT_BYTES + AT_ONCE
        return {"size": kept, "count": kept, "key": kept}

    def _stream(self, name: str) -> StreamInfo:
        client = self.overlay.clients[0]
        return client.ask(GetStreams(0, name), Streams, PATIENCE).streams[0]

    def _replicas(self, name: str) -> Sequence[ReplicaInfo]:
        return self._stream(name).shards[0].replicas

    def _settled(self, name: str) -> None:
        """All replicas keep the same rows, and as many as they should."""
        acknowledged = self.programs[name].acknowledged
        most = KEPT_BYTES + 3 * SEGMENT_BYTES

        def is_settled() -> bool:
            found = self._replicas(name)
            if len({(each.first, each.next, each.committed) for each in found}) > 1:
                return False
            if name == "count":
                return found[0].next - found[0].first == min(KEPT_ROWS, acknowledged)
            return max(each.bytes for each in found) <= most

        if not wait(is_settled, SETTLED):
            kept = [(r.state, r.first, r.next, r.durable, r.bytes) for r in self._replicas(name)]
            say(f"{name}: {kept}")
            self.wrong[f"{name}: replicas that keep other rows than they should"] += 1
        least = min(self._bytes(number, self.ids[name]) for number in range(NODES))
        if name in ("size", "unread") and self._first(name):
            gone = max(0, KEPT_BYTES - least)
            self.wrong[f"{name}: bytes that have gone and were to be kept"] += gone

    def _first(self, name: str) -> int:
        return max(each.first for each in self._replicas(name))

    def _range(self, name: str) -> int:
        """Read all that is left; the first offset."""
        acknowledged = self.programs[name].acknowledged
        first = at = -1
        with (
            connect(self.data(1), reconnect=PATIENCE) as client,
            client.read(name, start="first") as reading,
        ):
            while at < acknowledged:
                events = reading.take(timeout=SILENCE if at >= 0 else SETTLED)
                if not events:
                    break
                if at < 0:
                    first = at = events[0].offset
                for event in events:
                    if event.offset != at:
                        self.wrong[f"{name}: offsets with a gap"] += 1
                    if event.attributes != self.model.row(event.offset):
                        self.wrong[f"{name}: rows that are others"] += 1
                    at = event.offset + 1
            if at != acknowledged:
                self.wrong[f"{name}: acknowledged rows that are not there"] += 1
            if first > 0:
                self._refused(client, name, first)
        say(f"{name}: {at - first:,} rows are left, from {first:,} on")
        return first

    def _refused(self, client: Client, name: str, first: int) -> None:
        """A reading from before the first row does not begin as if nothing had gone."""
        try:
            with client.read(name, start=first - 1, timeout=PATIENCE) as reading:
                reading.take(timeout=SILENCE)
        except CommandFailed as error:
            if error.code == OUT_OF_RANGE:
                return
        if self._first(name) <= first:
            self.wrong[f"{name}: a reading of rows that have gone"] += 1

    def _age(self) -> None:
        """Rows that are younger are there, and older ones are not."""
        older = self.aging.older(time.monotonic() - KEPT_SECONDS - SEGMENT_SECONDS - LATE)
        first = self._first("age")
        self.wrong["age: rows that were to go"] += max(0, older - first)
        if time.monotonic() < self.aging.done[-1] + KEPT_SECONDS / 2:  # else there may be none
            first = self._range("age")
        newer = self.aging.newer(time.monotonic() - KEPT_SECONDS)
        self.wrong["age: rows that have gone too early"] += max(0, first - newer)

    def _gone(self) -> None:
        """Nothing is left when everything is old."""
        end = self.programs["age"].acknowledged
        if not wait(
            lambda: all(each.first == each.next == end for each in self._replicas("age")),
            KEPT_SECONDS + SEGMENT_SECONDS + LATE,
        ):
            self.wrong["age: replicas with rows that are all too old"] += 1

    def _newest(self) -> None:
        """The newest row of each key is that of the model."""
        found: dict[Any, int] = {}
        with (
            connect(self.data(2), reconnect=PATIENCE) as client,
            client.read("key", start="keys") as reading,
        ):
            while events := reading.take(timeout=SILENCE if found else SETTLED):
                for event in events:
                    if event.attributes != self.model.row(event.offset):
                        self.wrong["key: newest rows that are others"] += 1
                    if "d" in event.attributes:
                        found.pop(event.attributes["k"], None)
                    else:
                        found[event.attributes["k"]] = event.offset
        wanted = self.model.newest(self.programs["key"].acknowledged)
        self.wrong["key: keys without their newest row"] += len(wanted.keys() - found.keys())
        self.wrong["key: deleted keys that are there"] += len(found.keys() - wanted.keys())
        self.wrong["key: keys with a row that is not the newest"] += sum(
            found[key] != wanted[key] for key in found.keys() & wanted.keys()
        )
        say(f"key: {len(found):,} keys")

    def _files(self) -> None:
        for name, id_ in self.ids.items():
            last = self.programs[name].last
            for number in range(NODES):
                folder = self.data(number) / "streams" / id_ / "0"
                for proof in proofs(folder, [last] if last else []):
                    names = sorted(p.name for p in folder.iterdir() if parse_name(p.name))
                    found = Verifier(proof.name, proof).run(names, partial(contents, folder))
                    if found.fault is not None:
                        self.wrong[f"{name}: a fault in files: {found.fault.what}"] += 1
                    elif found.receipt != "proved" and (name, found.receipt) != ("age", "not kept"):
                        self.wrong[f"{name}: a receipt {found.receipt} by files"] += 1


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.streams.retention` and return its exit code."""
    asked = parser(
        __doc__,
        seed=SEED,
        rows=(1_000_000, "of all streams"),
        kills=(4, "of nodes, one at a time"),
    )
    options = asked.parse_args(args)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="canopy-bench-")))
        report = Retention(options, folder, stack).run()
    show(report, options)
    return int(bool(report["wrong"] or report["ended"]))


if __name__ == "__main__":
    sys.exit(main())
