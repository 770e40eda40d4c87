"""Minos, reliability, in real processes: a server's machine loses its power, beside others.

    python -m bench.papers.unplugged --rows 1500 --json       # needs root: a file system for each
    python -m bench.papers.unplugged --only canopy redis

One server of each system, its data on a file system of its own in a file. A producer sends numbered
rows of 100 bytes, 50 at a time, and waits for their acknowledgement; a consumer takes 2 ms for each
and keeps its position itself, with what it does. Three times, a moment after an acknowledgement,
the server is killed with kill -9 and what its system had not written to the file yet is thrown away
(`SmallDisk.lose_power`: the file is copied before it is unmounted), as when the machine loses its
power. Then the server is started again with what is left.

`lost`: acknowledged rows that the consumer never gets; `repeated`: rows that it gets again; `flush`
says when the server syncs. Who is not installed has a row that says how to get it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from struct import Struct
from typing import Any, Final, NamedTuple

import canopy
from bench.command import parser, say, show
from bench.processes.nodes import free_port
from bench.streams.hostile.disks import SmallDisk
from bench.streams.peers import NATS, Kind, absent
from canopy.cli.demo.overlay import canopy_command, environment
from canopy.client.errors import ControlError
from overlay.client import Draft, Streams
from overlay.stream_client import AddStream

NUMBER: Final = Struct("<Q")
TOGETHER: Final = 50
TAKEN: Final = 20
"""Rows that the consumer takes at once: it falls behind the producer."""

TAKES: Final = 0.002
LOSSES: Final = 3
PATIENCE: Final = 60.0


class Server(ABC):
    """A server on a disk of its own, with one producer and one consumer."""

    def __init__(self, data: Path, log: Path, flush: str) -> None:
        self.data = data
        self.flush = flush
        self.port = free_port(Random())
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command that starts the server."""

    @abstractmethod
    def connect(self) -> None:
        """Connect both programs; raises until it is ready."""

    @abstractmethod
    def produce(self, bodies: Sequence[bytes]) -> None:
        """Send rows, and wait until all are acknowledged."""

    @abstractmethod
    def consume(self) -> list[bytes]:
        """The next rows, `TAKEN` at most; [] if none come soon. The position is the consumer's."""

    def start(self) -> None:
        """Start it, and connect."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, env=environment(), cwd=self.data
            )
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self.connect()
                return
            except (OSError, ControlError, TimeoutError, RuntimeError) as error:
                if time.monotonic() > until:
                    raise TimeoutError(f"the server does not start; see {self._log}") from error
                time.sleep(0.1)

    def kill(self) -> None:
        """Kill the server's process (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class CanopyNode(Server):
    """One node with a stream of one replica."""

    position = 0

    def command(self) -> list[str]:
        listen = ["--listen", f"127.0.0.1:{self.port}", "--no-trace"]
        return [*canopy_command(), "node", "--data", str(self.data / "node"), *listen]

    def connect(self) -> None:
        self.client = client = canopy.connect(self.data / "node", reconnect=PATIENCE)
        if not self.position:
            client.ask(AddStream(0, "bench", replicas=1), Streams, PATIENCE)
        self.producer = client.producer("bench", "producer", timeout=PATIENCE)
        self.reading = client.read("bench", start=self.position, timeout=PATIENCE)
        self._came: list[tuple[int, bytes]] = []

    def produce(self, bodies: Sequence[bytes]) -> None:
        self.producer.append([Draft({}, body) for body in bodies], atomic=True, timeout=PATIENCE)

    def consume(self) -> list[bytes]:
        if not self._came:
            self._came = [(event.offset, event.payload) for event in self.reading.take(0.2)]
        taken, self._came = self._came[:TAKEN], self._came[TAKEN:]
        if taken:
            self.position = taken[-1][0] + 1
        return [body for _, body in taken]

    def kill(self) -> None:
        super().kill()
        with contextlib.suppress(ControlError):
            self.client.close()


class RedisServer(Server):
    """A stream of a Redis server with an append-only file."""

    position = b"0"

    def command(self) -> list[str]:
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.data)]
        return ["redis-server", *where, "--save", "", "--appendonly", "yes",
                "--appendfsync", self.flush]  # fmt: skip

    def connect(self) -> None:
        import redis  # type: ignore[import-not-found, unused-ignore]

        self.client = redis.Redis(port=self.port)
        try:
            self.client.ping()
        except redis.exceptions.ConnectionError as error:
            raise OSError(str(error)) from None

    def produce(self, bodies: Sequence[bytes]) -> None:
        pipe = self.client.pipeline(transaction=False)
        for body in bodies:
            pipe.xadd("bench", {"row": body})
        pipe.execute()

    def consume(self) -> list[bytes]:
        found = self.client.xread({"bench": self.position}, count=TAKEN, block=200)
        rows = found[0][1] if found else []
        if rows:
            self.position = rows[-1][0]
        return [fields[b"row"] for _, fields in rows]


class NatsServer(Server):
    """A JetStream stream of one replica."""

    position = 1

    def command(self) -> list[str]:
        (self.data / "conf").write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f'jetstream {{ store_dir: "{self.data}", sync_interval: "{self.flush}" }}\n'
        )
        return ["nats-server", "-c", str(self.data / "conf")]

    def connect(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self._connect())

    async def _connect(self) -> None:
        import nats  # type: ignore[import-not-found, unused-ignore]

        async def quiet(error: Exception) -> None:
            """It is not there yet, or was killed."""

        try:
            self.client = await nats.connect(
                f"nats://127.0.0.1:{self.port}", allow_reconnect=False, error_cb=quiet
            )
            self.stream = self.client.jetstream(timeout=5.0)
            await self.stream.add_stream(name="bench", subjects=["bench"])
        except nats.errors.Error as error:
            raise RuntimeError(str(error)) from None

    def kill(self) -> None:
        super().kill()
        if self.loop.is_closed():
            return
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0.1))
        self.loop.close()

    def produce(self, bodies: Sequence[bytes]) -> None:
        async def publish() -> None:
            await asyncio.gather(*(self.stream.publish("bench", body) for body in bodies))

        self.loop.run_until_complete(publish())

    def consume(self) -> list[bytes]:
        return self.loop.run_until_complete(self._consume())

    async def _consume(self) -> list[bytes]:
        import nats  # type: ignore[import-not-found, unused-ignore]

        found: list[bytes] = []
        try:
            for _ in range(TAKEN):
                message = await self.stream.get_msg("bench", seq=self.position)
                found.append(message.data)
                self.position += 1
        except nats.js.errors.NotFoundError:
            if not found:
                await asyncio.sleep(0.2)
        return found


class Contestant(NamedTuple):
    """A server as it is set."""

    make: Callable[[Path, Path, str], Server]
    flush: str
    told: str
    """What that means."""
    kind: Kind


def _needs(programs: tuple[str, ...], modules: tuple[str, ...], how: str) -> Kind:
    return Kind(lambda folder, stack: None, programs, modules, how)  # type: ignore[arg-type, return-value]


_REDIS: Final = _needs(("redis-server",), ("redis",), "apt install redis-server; pip install redis")
_NATS: Final = _needs(*NATS)

CONTESTANTS: Final[dict[str, Contestant]] = {
    "canopy": Contestant(CanopyNode, "", "before it acknowledges", _needs((), (), "")),
    "redis": Contestant(RedisServer, "everysec", "every second (its default)", _REDIS),
    "redis, always": Contestant(RedisServer, "always", "before it acknowledges", _REDIS),
    "jetstream": Contestant(NatsServer, "2m", "every two minutes (its default)", _NATS),
    "jetstream, always": Contestant(NatsServer, "always", "before it acknowledges", _NATS),
}


def trial(name: str, rows: int) -> dict[str, Any]:
    """Send and consume so many rows, through losses of power."""
    contestant = CONTESTANTS[name]
    about = {"system": name, "flush": contestant.told, "rows": rows}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="canopy-papers-")))
        disk = SmallDisk(folder, folder / "data", 256, stack)
        if not disk.mounted:
            return {**about, "absent": "a file system in a file: takes root and loop devices"}
        server = contestant.make(disk.data, folder / "log", contestant.flush)
        server.start()
        stack.callback(server.kill)
        got: Counter[int] = Counter()
        dark = [*(rows * n // (LOSSES + 1) for n in range(1, LOSSES + 1)), rows + TOGETHER]
        sent = idle = 0
        while idle < 15:
            if sent < rows:
                server.produce([_body(n) for n in range(sent, sent + TOGETHER)])
                sent += TOGETHER
                if sent >= dark[0]:
                    del dark[0]
                    server.kill()
                    disk.lose_power()
                    server.start()
            bodies = server.consume()
            idle = 0 if bodies or sent < rows else idle + 1
            for body in bodies:
                time.sleep(TAKES)
                got[NUMBER.unpack_from(body)[0]] += 1
    lost, repeated = sent - len(got), sum(got.values()) - len(got)
    say(f"{name}: {lost} lost, {repeated} repeated of {sent}")
    order = "yes" if list(got) == sorted(got) else "no"
    told = {"losses_of_power": LOSSES, "lost": lost, "repeated": repeated, "in_order": order}
    return {**about, "rows": sent, **told}


def _body(number: int) -> bytes:
    return NUMBER.pack(number).ljust(100, b"x")


def main() -> int:
    """Run the command `python -m bench.papers.unplugged`."""
    args = parser(
        __doc__,
        rows=(1_500, "to send"),
        only=([""], "systems whose name has one of these words"),
    ).parse_args()
    if os.geteuid():
        say("a file system in a file takes root")
    found: list[dict[str, Any]] = []
    for name, contestant in CONTESTANTS.items():
        if not any(word in name for word in args.only):
            continue
        if how := absent(contestant.kind):
            say(f"{name} is not installed: {how}")
            found.append({"system": name, "flush": contestant.told, "absent": how})
            continue
        found.append(trial(name, args.rows))
    show(found, args)
    ours = [row for row in found if row["system"] == "canopy"]
    return 1 if any(row.get("lost") or row.get("repeated") for row in ours) else 0


if __name__ == "__main__":
    sys.exit(main())
