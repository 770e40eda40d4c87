"""What much data and lost nodes cost a stream of three real nodes.

    python -m bench.streams.volume                       # 10 GB on three disks: 35 GB are needed
    python -m bench.streams.volume --gigabytes 1 --only log
    python -m bench.streams.volume --gigabytes 2 --only log --folder /dev/shm
    python -m bench.streams.volume --only failover --trials 100

* `log`: a follower is killed, and rows of 1 KiB are appended in batches until the log has so many
  gigabytes. Then it is started again: how fast it catches up, and how long single rows take
  meanwhile, 1,000 a second, beside before. It is killed once more, and started with all of it on
  its disk; then all three are. All nodes share one disk; in memory (/dev/shm) none waits for
  another's. Times of starting are from the process's begin, of which the
  interpreter takes some (`a node without a stream`).
* `memory`: what private memory of a node grows by for each shard: founded, with a leader and
  nothing to do; and after 16 MiB of rows for each.
* `disk`: bytes of a replica's files for each byte of rows, with rows of about 190 bytes.
* `transactions`: prepared and committed, one row each, 64 under way.
* `failover`: a program at a fourth node appends one row after the other; the leader is killed
  (SIGKILL), and started again when appending goes on. The longest time between two acknowledgements
  around each of `--trials` kills.

Prints a list: what was measured, how much it was, and what was wanted.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import psutil

from bench.command import parser, quantile, say, show
from bench.streams.contestants.canopy_stream import CanopyProgram
from bench.streams.contestants.contestant import rows
from canopy.client.blocking import ControlClient
from harness.real_overlay import Overlay, status, wait_ready
from overlay.client import AppendEvents, Command, Draft, EventsAppended, GetStreams, Streams
from overlay.info import ReplicaInfo
from overlay.stream_client import AddStream, DecideTransaction, PrepareEvents, TransactionState
from streams.log.batches import Row, encode_rows

STREAM: Final = "bench"
PATIENCE: Final = 300.0
PACE: Final = 1_000
LARGE: Final = 1_000
"""Bytes of a row's payload where there is to be much data."""

SHARDS: Final = 16
AHEAD: Final = 64
BETWEEN: Final = 2.0
"""Seconds of appending before each kill of a leader."""


def large_rows(count: int) -> list[Draft]:
    """Rows of about a KiB."""
    return [Draft(row.attributes, row.payload * (LARGE // len(row.payload))) for row in rows(count)]


class Nodes:
    """Some nodes, and a program at the first."""

    def __init__(self, folder: Path, stack: ExitStack, count: int = 3) -> None:
        self.overlay = Overlay(folder, "trace: {enabled: false}")
        stack.callback(self.overlay.stop)
        first = self.overlay.grow(count)
        self.ids = [status(client).node for client in self.overlay.clients]
        time.sleep(3.0)  # until everybody is in everybody's view
        self.program = CanopyProgram(first, rows(4_096))

    def add(self, name: str, **options: Any) -> list[int]:
        """A stream of three replicas, each of its shards with a leader: the nodes of the first."""
        self.ask(AddStream(0, name, **options), Streams)
        self.until(lambda: all(s.leader for s in self.streams(name).shards), "there are leaders")
        replicas = [self.ids.index(r.node) for r in self.streams(name).shards[0].replicas]
        assert len(replicas) == 3
        return replicas

    def streams(self, name: str) -> Any:
        """What there is of a stream."""
        return self.ask(GetStreams(0, name), Streams).streams[0]

    def ask(self, command: Command, kind: type[Any]) -> Any:
        """Ask the program's node."""
        return self.program.client.ask(command, kind, PATIENCE)

    def until(self, there: Callable[[], bool], what: str) -> None:
        """Wait until `there` is true. AssertionError after `PATIENCE` seconds."""
        end = time.monotonic() + PATIENCE
        while not there():
            assert time.monotonic() < end, f"not within {PATIENCE:.0f} s: {what}"
            time.sleep(0.05)

    def leader(self) -> int:
        """The number of the node that leads."""
        return self.ids.index(self.streams(STREAM).shards[0].leader)

    def replica(self, number: int) -> ReplicaInfo | None:
        """What a node says of its replica."""
        held = status(self.overlay.clients[number]).shards
        return next((each.here for each in held if each.stream == STREAM), None)

    def start_again(self, number: int) -> float:
        """Start a killed node, and wait until its replica follows or leads: the seconds."""
        began = time.monotonic()
        self.overlay.restart(number)

        def serves() -> bool:
            found = self.replica(number)
            return found is not None and found.state in ("follows", "leads")

        self.until(serves, "the replica has been read")
        return time.monotonic() - began


def row(what: str, value: float, wanted: str = "", digits: int = 1) -> dict[str, Any]:
    """Print one figure with its goal, and return it as a row."""
    say(f"  {what}: {value:,.{digits}f} ({wanted or 'for comparison'})")
    return {"what": what, "value": round(value, digits), "wanted": wanted}


def log(nodes: Nodes, options: Namespace) -> list[dict[str, Any]]:
    """Catching up, and starting again."""
    began = time.monotonic()
    nodes.overlay.start()  # a node without a stream, and without the others
    idle = time.monotonic() - began
    nodes.overlay.kill(3)
    nodes.add(STREAM)
    program = nodes.program
    program.append(1, 1, 1.0)
    program.pace(PACE, 5.0)  # nodes that have just been started are slower
    before = quantile(program.pace(PACE, 8.0), 0.99)
    leader = nodes.leader()
    absent = next(n for n in (1, 2) if n != leader)
    nodes.overlay.kill(absent)
    say(f"appending {options.gigabytes:g} GB")
    program.rows, small = large_rows(1_024), program.rows
    while (size := _size(nodes, 0)) < options.gigabytes * 1e9:
        program.append(200, 4, 5.0)
        say(f"  {size / 1e9:.1f} GB")
    program.rows = small
    during: list[float] = []
    ends = threading.Event()

    def pace() -> None:
        while not ends.is_set():
            during.extend(program.pace(PACE, 1.0))

    nodes.start_again(absent)
    live = threading.Thread(target=pace)
    live.start()
    try:
        began, first = time.monotonic(), _size(nodes, absent)
        nodes.until(lambda: _size(nodes, absent) >= size, "the follower has everything")
        took = time.monotonic() - began
    finally:
        ends.set()
        live.join()
    found = [
        row("megabytes a second of a follower that catches up", (size - first) / 1e6 / took, "100"),
        row("99 % of single rows within, ms, before", before * 1e3),
        row(
            "99 % of single rows within, ms, meanwhile",
            quantile(during, 0.99) * 1e3,
            "1.5 times before",
        ),
    ]
    nodes.overlay.kill(absent)
    again = nodes.start_again(absent)
    found.append(row("seconds until a node without a stream answers", idle, digits=2))
    found.append(row("seconds until a killed follower follows again", again, "2", 2))
    nodes.overlay.kill(0, 1, 2)
    began = time.monotonic()
    nodes.overlay.restart(0, 1, 2)
    _append_once(nodes.overlay.clients[0])
    found.append(row("seconds until all three, killed, append", time.monotonic() - began, "", 2))
    return [{"gigabytes": round(size / 1e9, 1), **one} for one in found]


def _size(nodes: Nodes, number: int) -> int:
    found = nodes.replica(number)
    return 0 if found is None else found.bytes


def _append_once(client: ControlClient) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        reply = client.request(AppendEvents(0, STREAM, (Draft({"n": 1}),)), PATIENCE)
        if isinstance(reply, EventsAppended):
            return
        time.sleep(0.05)
    raise AssertionError("nothing could be appended")


def memory(nodes: Nodes, options: Namespace) -> list[dict[str, Any]]:
    """What shards cost a node."""
    del options
    processes = [psutil.Process(process.pid) for process in nodes.overlay.processes[:3]]

    def private() -> float:
        return statistics.mean(p.memory_full_info().uss for p in processes) / SHARDS

    nodes.program.rows = large_rows(1_024)
    nodes.add("first")  # what the first stream needs is not that of each shard
    nodes.ask(AppendEvents(0, "first", (Draft({"id": "e"}),)), EventsAppended)
    time.sleep(2.0)
    before = private()
    nodes.add(STREAM, shards=SHARDS, by="id")
    time.sleep(5.0)
    idle = private()
    nodes.program.append(256, 4, 1.0)
    done = 0
    while done < SHARDS * 16 * 1024:  # KiB
        done += nodes.program.append(256, 4, 2.0)
    time.sleep(2.0)
    active = private()
    return [
        row("KiB of a node for each idle shard", (idle - before) / 1024, "64"),
        row("MB of a node for each active shard", (active - idle) / 1e6, "20"),
    ]


def disk(nodes: Nodes, options: Namespace) -> list[dict[str, Any]]:
    """Bytes of files for bytes of rows."""
    del options
    found = []
    for name, batch, ahead in (("batches of 256", 256, 8), ("single rows", 1, 64)):
        if any(stream.name == STREAM for stream in nodes.ask(GetStreams(0), Streams).streams):
            before = _size(nodes, 0)
        else:
            nodes.add(STREAM)
            before = 0
        done = nodes.program.append(batch, ahead, 5.0)
        kept = [Row(d.attributes, d.payload, d.payload_type) for d in nodes.program.rows]
        size = len(encode_rows(kept)) / len(kept) * done
        time.sleep(1.0)
        ratio = (_size(nodes, 0) - before) / size
        found.append(row(f"bytes of a replica for each of its rows, {name}", ratio, "1.1", 3))
    return found


def transactions(nodes: Nodes, options: Namespace) -> list[dict[str, Any]]:
    """Prepared and committed, many under way."""
    del options
    nodes.add(STREAM)
    client, drafts = nodes.program.client, nodes.program.rows
    prepared: deque[tuple[int, str]] = deque()
    decided: deque[int] = deque()
    number = done = 0

    def decide() -> None:
        asked, name = prepared.popleft()
        state = client.finish(asked, PATIENCE)
        assert isinstance(state, TransactionState), state
        decided.append(client.begin(DecideTransaction(0, STREAM, name, True)))

    def finish() -> None:
        state = client.finish(decided.popleft(), PATIENCE)
        assert isinstance(state, TransactionState), state

    began = time.monotonic()
    while time.monotonic() < began + 8.0:
        number += 1
        one = (drafts[number % len(drafts)],)
        prepare = PrepareEvents(0, STREAM, f"t{number}", "p", one)
        prepared.append((client.begin(prepare), f"t{number}"))
        if len(prepared) >= AHEAD // 2:
            decide()
        if len(decided) >= AHEAD // 2:
            finish()
            done += 1
    while prepared:
        decide()
    while decided:
        finish()
        done += 1
    return [row("transactions a second", done / (time.monotonic() - began), "", 0)]


class Appending(threading.Thread):
    """Appends one row after the other, and notes when each was acknowledged."""

    def __init__(self, client: ControlClient) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.times: list[float] = []
        self.ends = threading.Event()

    def run(self) -> None:
        """Append until it is to end."""
        while not self.ends.is_set():
            row = (Draft({"n": len(self.times)}),)
            self.client.ask(AppendEvents(0, STREAM, row), EventsAppended, PATIENCE)
            self.times.append(time.monotonic())


def failover(nodes: Nodes, options: Namespace) -> list[dict[str, Any]]:
    """How long appending pauses when the leader is killed."""
    (outside,) = {*range(4)}.difference(nodes.add(STREAM))
    nodes.program = CanopyProgram(nodes.overlay.clients[outside], ())
    program = Appending(ControlClient.connect(nodes.overlay.folder / str(outside)))
    program.start()
    found: list[float] = []
    for trial in range(options.trials):
        time.sleep(BETWEEN)
        nodes.until(lambda: bool(nodes.streams(STREAM).shards[0].leader), "there is a leader")
        lost, before, killed = nodes.leader(), len(program.times), time.monotonic()
        nodes.overlay.kill(lost)
        # What was under way may still be acknowledged.
        nodes.until(lambda: program.times[-1] > killed + 0.5, "somebody leads")  # noqa: B023
        time.sleep(1.0)
        found.append(max(b - a for a, b in pairwise(program.times[before - 1 :])))
        say(f"trial {trial + 1}: {found[-1]:.2f} s")
        nodes.overlay.restart(lost)
        wait_ready(nodes.overlay.clients[lost])
    program.ends.set()
    program.join(PATIENCE)
    program.client.close()
    what = f"seconds without an acknowledgement in {len(found)} losses of a leader"
    return [
        row(f"{what}, median", statistics.median(found), "1.5", 2),
        row(f"{what}, 90 % within", quantile(found, 0.9), "", 2),
        row(f"{what}, worst", max(found), "3 in 99 of 100", 2),
    ]


PARTS: Final = {
    "log": log,
    "memory": memory,
    "disk": disk,
    "transactions": transactions,
    "failover": failover,
}


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.streams.volume` and return its exit code."""
    asked = parser(__doc__, gigabytes=(10.0, "of the log"), trials=(20, "kills of a leader"))
    asked.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts")
    asked.add_argument("--folder", help="where the nodes' disks are (the system's, for files)")
    options = asked.parse_args(args)
    found = []
    for name in options.only:
        say(name)
        with ExitStack() as stack:
            made = tempfile.TemporaryDirectory(prefix="canopy-bench-", dir=options.folder)
            folder = Path(stack.enter_context(made))
            nodes = Nodes(folder, stack, 4 if name == "failover" else 3)
            about = {"part": name, "where": options.folder or "one disk"}
            found += [{**about, **one} for one in PARTS[name](nodes, options)]
    show(found, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
