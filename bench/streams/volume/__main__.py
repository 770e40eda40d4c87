"""What much data costs a stream of three real nodes: starting again, catching up, memory, disk.

    python -m bench.streams.volume                       # 10 GB on three disks: 35 GB are needed
    python -m bench.streams.volume --gigabytes 1 --only log
    python -m bench.streams.volume --gigabytes 2 --only log --folder /dev/shm

* `log`: a follower is killed, and rows of 1 KiB are appended in batches until the log has so many
  gigabytes. Then it is started again: how fast it catches up, and how long single rows take
  meanwhile, 1,000 a second, beside before. It is killed once more, and started with all of it on
  its disk; then all three are. All nodes share one disk; in memory (/dev/shm) none waits for
  another's. Times of starting are from the process's begin, of which the
  interpreter takes some (`a node without a stream`).
* `check`: how long single rows take, 1,000 a second, while the leader and a follower read all of
  their logs as `canopy stream check` has it, beside no check, in turns of 5 s.
* `memory`: what private memory of a node grows by for each shard: founded, with a leader and
  nothing to do; and after 16 MiB of rows for each.
* `disk`: bytes of a replica's files for each byte of rows, with rows of about 190 bytes.
* `transactions`: prepared and committed, one row each, 64 under way.

Prints a JSON list: what was measured, how much it was, and what was wanted. Progress goes to
standard error.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import psutil

from bench.streams.contestants.canopy_stream import CanopyProgram
from bench.streams.contestants.contestant import rows
from bench.streams.volume.checking import WINDOW, WINDOWS, Checks
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


def say(text: str) -> None:
    """Print progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def large_rows(count: int) -> list[Draft]:
    """Rows of about a KiB."""
    return [Draft(row.attributes, row.payload * (LARGE // len(row.payload))) for row in rows(count)]


class Nodes:
    """Three nodes, and a program at the first."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.overlay = Overlay(folder, "trace: {enabled: false}")
        stack.callback(self.overlay.stop)
        first = self.overlay.start()
        self.addresses = [status(first).address]
        for _ in range(2):
            self.overlay.start(self.addresses[0])
        wait_ready(*self.overlay.clients)
        self.addresses = [status(client).address for client in self.overlay.clients]
        self.ids = [status(client).node for client in self.overlay.clients]
        time.sleep(3.0)  # until everybody is in everybody's view
        self.program = CanopyProgram(first, rows(4_096))

    def add(self, name: str, **options: Any) -> None:
        """A stream on all three, each of its shards with a leader."""
        self.ask(AddStream(0, name, **options), Streams)
        self.until(lambda: all(s.leader for s in self.streams(name).shards), "there are leaders")
        replicas = [r.node for r in self.streams(name).shards[0].replicas]
        assert set(replicas) == set(self.ids), "a replica is on each of the three"

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

    def follower(self) -> int:
        """The number of a node that follows, other than the program's."""
        leader = self.streams(STREAM).shards[0].leader
        return next(n for n in (1, 2) if self.ids[n] != leader)

    def replica(self, number: int) -> ReplicaInfo | None:
        """What a node says of its replica."""
        held = status(self.overlay.clients[number]).shards
        return next((each.here for each in held if each.stream == STREAM), None)

    def start_again(self, number: int) -> float:
        """Start a killed node, and wait until its replica follows or leads: the seconds."""
        began = time.monotonic()
        others = [address for n, address in enumerate(self.addresses) if n != number]
        self.overlay.start_again(number, self.addresses[number], *others)
        self.overlay.client_again(number)

        def serves() -> bool:
            found = self.replica(number)
            return found is not None and found.state in ("follows", "leads")

        self.until(serves, "the replica has been read")
        return time.monotonic() - began


def p99(times: Sequence[float]) -> float:
    """The time within which 99 of 100 are."""
    return sorted(times)[int(len(times) * 0.99)]


def row(what: str, value: float, wanted: str = "", digits: int = 1) -> dict[str, Any]:
    """Print one figure with its goal, and return it as a row."""
    say(f"  {what}: {value:,.{digits}f} ({wanted or 'for comparison'})")
    return {"what": what, "value": round(value, digits), "wanted": wanted}


def log(nodes: Nodes, gigabytes: float) -> list[dict[str, Any]]:
    """Catching up, and starting again."""
    began = time.monotonic()
    nodes.overlay.start()  # a node without a stream, and without the others
    idle = time.monotonic() - began
    nodes.overlay.kill(3)
    nodes.add(STREAM)
    program = nodes.program
    program.append(1, 1, 1.0)
    program.pace(PACE, 5.0)  # nodes that have just been started are slower
    before = p99(program.pace(PACE, 8.0))
    absent = nodes.follower()
    nodes.overlay.kill(absent)
    say(f"appending {gigabytes:g} GB")
    program.rows, small = large_rows(1_024), program.rows
    while (size := _size(nodes, 0)) < gigabytes * 1e9:
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
        row("99 % of single rows within, ms, meanwhile", p99(during) * 1e3, "1.5 times before"),
    ]
    nodes.overlay.kill(absent)
    again = nodes.start_again(absent)
    found.append(row("seconds until a node without a stream answers", idle, digits=2))
    found.append(row("seconds until a killed follower follows again", again, "2", 2))
    nodes.overlay.kill(0, 1, 2)
    began = time.monotonic()
    for number in range(3):
        others = [address for n, address in enumerate(nodes.addresses) if n != number]
        nodes.overlay.start_again(number, nodes.addresses[number], *others)
    client = nodes.overlay.client_again(0)
    _append_once(client)
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


def check(nodes: Nodes, gigabytes: float) -> list[dict[str, Any]]:
    """Single rows beside checks."""
    nodes.add(STREAM)
    program = nodes.program
    program.rows, small = large_rows(1_024), program.rows
    while (size := _size(nodes, 0)) < gigabytes * 1e9:
        program.append(200, 4, 2.0)
        say(f"  {size / 1e9:.1f} GB")
    program.rows = small
    program.pace(PACE, 5.0)
    without: list[float] = []
    during: list[float] = []
    leader = nodes.ids.index(nodes.streams(STREAM).shards[0].leader)
    read, took = 0, 0.0
    for _ in range(WINDOWS):
        without += program.pace(PACE, WINDOW)
        with ExitStack() as stack:
            both = [
                stack.enter_context(Checks(ControlClient.connect(nodes.overlay.folder / str(n))))
                for n in (leader, nodes.follower())
            ]
            began = time.monotonic()
            during += program.pace(PACE, WINDOW)
            took += time.monotonic() - began
        read += sum(each.bytes for each in both)
        assert not any(each.faults for each in both), "no log is damaged"
    found = [
        row("megabytes a second of each of two nodes that check their logs", read / took / 2e6),
        row("50 % of single rows within, ms, without a check", statistics.median(without) * 1e3),
        row("50 % of single rows within, ms, meanwhile", statistics.median(during) * 1e3),
        row("99 % of single rows within, ms, without a check", p99(without) * 1e3),
        row("99 % of single rows within, ms, meanwhile", p99(during) * 1e3, "1.5 times without"),
    ]
    return [{"gigabytes": round(size / 1e9, 1), **one} for one in found]


def memory(nodes: Nodes, gigabytes: float) -> list[dict[str, Any]]:
    """What shards cost a node."""
    del gigabytes
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


def disk(nodes: Nodes, gigabytes: float) -> list[dict[str, Any]]:
    """Bytes of files for bytes of rows."""
    del gigabytes
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


def transactions(nodes: Nodes, gigabytes: float) -> list[dict[str, Any]]:
    """Prepared and committed, many under way."""
    del gigabytes
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


PARTS: Final = {
    "log": log,
    "check": check,
    "memory": memory,
    "disk": disk,
    "transactions": transactions,
}


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.streams.volume` and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.streams.volume",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--gigabytes", type=float, default=10.0, help="of the log (10)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts")
    parser.add_argument("--folder", help="where the nodes' disks are (the system's, for files)")
    options = parser.parse_args(args)
    found = []
    for name in options.only:
        say(name)
        with ExitStack() as stack:
            made = tempfile.TemporaryDirectory(prefix="canopy-bench-", dir=options.folder)
            nodes = Nodes(Path(stack.enter_context(made)), stack)
            about = {"part": name, "where": options.folder or "one disk"}
            found += [{**about, **one} for one in PARTS[name](nodes, options.gigabytes)]
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
