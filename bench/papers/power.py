"""VENUS, 4.4, and Minos, reliability: a broker's machine loses its power and comes back.

    python -m bench.papers.power --copy --changes 100000 --json
    python -m bench.papers.power --consumer --rows 5000 --json

Product nodes in the simulator, whose disks lose what was not synced when the power goes: of the
writes that no sync has ended a part is left, in order, the last one torn. The machine of the
stream's leader loses its power in the middle of the work, without a word to those it was connected
with, and has it back after `DARK` virtual seconds. (A real process that is killed leaves its writes
with the system, which keeps them: kill -9 is no loss of power.)

* `--copy`: rows of the table `student` are inserted, updated and deleted in a SQLite database, and
  both sides of a sync (`canopy.sync`, as `canopy sync run` has it) bring them to another one over
  the stream. In each operation the power goes three times. `lost` and `repeated` changes of the
  stream, and whether both tables are the same, row by row.
* `--consumer`: a consumer takes 2 ms for each row; the power goes three times. `lost` and
  `repeated` rows, of one that keeps its position together with its effect, and of one that tells
  the stream its position after every hundred rows, and is itself started again when the power is
  back.

With one replica, as the paper's broker, and with three. What others lose, and that this would see a
loss, shows `bench.papers.unplugged`, and a test with a disk that says that it has synced and has
not (tests/papers/test_papers_minos.py).
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench.command import SEED, parser, say, show
from bench.papers.capture import TABLE, TOGETHER, WORK
from canopy.sim.world.log_disk import SimulatedLogDisk
from canopy.sim.world.world import World
from canopy.sync.applier import Applier
from canopy.sync.capture import Capture
from canopy.sync.databases import open_destination, open_source
from canopy.sync.row_filter import RowFilter
from harness.simulated_stream import PositionLostError, SimulatedReading, SimulatedStream
from harness.stream_world import StreamWorld
from overlay.client import Draft, StreamEvent

NODES: Final = 5
LOSSES: Final = 3
"""Times that the power goes in each piece of work."""

DARK: Final = 5.0
"""Virtual seconds without power."""

TAKES: Final = 0.002
"""Virtual seconds that the consumer takes for a row (Minos, 4)."""

COMMITTED_AFTER: Final = 100
BACKLOG: Final = 500
"""Rows that the producer is ahead of the consumer at most."""


class LazyDisk:
    """Replaces a simulated disk's syncing: it says at once that it has synced, and has not. What it
    says is synced a second later is."""

    def __init__(self, disk: SimulatedLogDisk, world: World) -> None:
        self._world = world
        self._disk = disk
        self._written: list[tuple[str, dict[str, bytearray]]] = []
        self._original = disk.lose_power
        disk.lose_power = self.lose_power  # type: ignore[method-assign]
        self._kept = {shard: _copied(files) for shard, files in disk.durable.items()}
        self._keep()

    def _keep(self) -> None:
        self._kept = {shard: _copied(files) for shard, files in self._disk.durable.items()}
        self._world.at(self._world.now + 1.0, self._keep)

    def lose_power(self) -> None:
        """What came within the last second is lost, whatever was said of it."""
        self._original()
        self._disk.durable.clear()
        self._disk.durable.update({s: _copied(files) for s, files in self._kept.items()})


def _copied(files: dict[str, bytearray]) -> dict[str, bytearray]:
    return {name: bytearray(data) for name, data in files.items()}


class Rig:
    """An overlay with a stream, and its leader's power."""

    def __init__(self, seed: int, replicas: int, lazy: bool = False) -> None:
        self.streams = StreamWorld(seed, NODES, replicas)
        self.world = self.streams.world
        self.lost: list[tuple[float, str]] = []
        """When the power went, and whose."""
        self.replicas = replicas
        holders = self.streams.replicas()
        self.program = next(name for name in self.world.names() if name not in holders)
        """A node without a replica, whose machine has power all the time."""
        if lazy:
            for name in holders:
                LazyDisk(self.world.drivers[name].logs, self.world)

    def lose_power(self) -> None:
        """The machine of the stream's leader; soon again if there is no leader now."""
        world = self.world
        leaders = [n for n in self.streams.leaders() if n != self.program]
        if not leaders:
            world.at(world.now + 0.1, self.lose_power)
            return
        name = leaders[0]
        self.lost.append((world.now, name))
        world.crash(name, silent=True)
        world.at(world.now + DARK, world.restart, name)


def copy(seed: int, replicas: int, changes: int) -> dict[str, Any]:
    """Both sides of a sync, through losses of power."""
    rig = Rig(seed, replicas)
    began = time.process_time()
    with tempfile.TemporaryDirectory(prefix="canopy-papers-") as folder:
        paths = [Path(folder) / name for name in ("source.db", "target.db")]
        source = sqlite3.connect(paths[0], isolation_level=None)
        source.execute("PRAGMA journal_mode = WAL")
        source.execute(TABLE)
        stream = SimulatedStream(rig.world, rig.program, "s", "sync.power")
        captured = open_source("power", f"sqlite:{paths[0]}")
        destination = open_destination("power", f"sqlite:{paths[1]}")
        capture = Capture(captured, stream, RowFilter({}))
        apply = Applier(stream, destination, RowFilter({}))
        capture.begin()
        apply.begin()
        same, counts = [], Counter[str]()
        for work in WORK:
            parts = list(range(1, changes + 1, TOGETHER))
            dark = {len(parts) * n // (LOSSES + 1) for n in range(1, LOSSES + 1)}
            for number, first in enumerate(parts):
                source.execute(work.statement(first, min(first + TOGETHER - 1, changes)))
                if number in dark:  # while the next batch is under way
                    rig.world.at(rig.world.now + 0.002, rig.lose_power)
                if number % 5 == 0 or number in dark:
                    capture.run_once(0)
                    apply.run_once(0)
            while capture.run_once(0):
                pass
            capture.settle()
            _apply_all(apply, stream)
            mine, yours = (_table(path) for path in paths)
            same.append(mine == yours)
            say(f"{replicas} replicas, {work.operation}: {len(mine):,} rows, same: {same[-1]}")
        for event in _all_events(stream):
            counts[str(event.attributes.get("_op"))] += 1
        rows = [(work.operation, counts[work.operation]) for work in WORK]
        for one in (captured, destination, source):
            one.close()
    return {
        "experiment": "copy",
        "replicas": replicas,
        "seed": seed,
        "changes": changes,
        "losses_of_power": len(rig.lost),
        "lost": sum(max(0, changes - count) for _, count in rows),
        "repeated": sum(max(0, count - changes) for _, count in rows),
        "sent_again": stream.repeated,
        "same": all(same),
        "virtual_s": round(rig.world.now),
        "cpu_s": round(time.process_time() - began, 1),
    }


def _apply_all(apply: Applier, stream: SimulatedStream) -> None:
    """Until the destination has everything."""
    end = stream.ends()[1]
    while apply.progress.offset < end:
        apply.run_once(1.0)


def _table(path: Path) -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as database:
        return database.execute("SELECT * FROM student ORDER BY id").fetchall()


def _all_events(stream: SimulatedStream) -> Iterator[StreamEvent]:
    reading = stream.read(0)
    while reading.position < reading.end:
        yield from reading.take(5.0)
    reading.close()


def consume(
    seed: int, replicas: int, rows: int, effect: bool, lazy: bool = False
) -> dict[str, Any]:
    """A consumer of 2 ms a row, through losses of power. `effect`: its position is kept with what
    it does; otherwise the stream has it. `lazy`: disks say that they have synced and have not."""
    rig = Rig(seed, replicas, lazy)
    world = rig.world
    began = time.process_time()
    stream = SimulatedStream(world, rig.program, "s", "orders")
    stream.begin()
    dark = [*(rows * n // (LOSSES + 1) for n in range(1, LOSSES + 1)), rows + 1]
    done: Counter[int] = Counter()
    sent = 0

    def opened() -> SimulatedReading:
        return SimulatedReading(stream, durable="" if effect else "worker", start="first")

    reading = opened()
    since = still = newest = 0
    dies = False
    while still < 20:
        while sent < rows and sent < newest + BACKLOG:
            sent = _send(stream, sent, min(sent + 50, rows))
            if sent < dark[0]:
                continue
            del dark[0]
            rig.lose_power()  # what was acknowledged a moment ago may not be with the consumer yet
            dies = not effect
        try:
            events = reading.take(0.05 if sent < rows else 1.0)
        except PositionLostError:  # rows are lost that it has had: it can only begin again
            events, reading = [], opened()
        still = 0 if events or sent < rows else still + 1
        newest = newest if events else sent  # what does not come is not waited for
        for place, event in enumerate(events, 1):
            world.run(TAKES)
            newest = int(str(event.attributes["n"]))
            done[newest] += 1
            if dies and place > len(events) // 2:  # what it has not told is forgotten
                reading.close()
                reading, since, dies = opened(), 0, False
                break
        else:
            since += len(events)
        if not effect and since >= COMMITTED_AFTER:
            reading.commit()
            since = 0
    say(f"{replicas} replicas: {len(done):,} of {rows:,} rows, {sum(done.values()):,} times")
    return {
        "experiment": "consumer",
        "replicas": replicas,
        "seed": seed,
        "position": "with the effect" if effect else "told every 100 rows, consumer killed as well",
        "rows": rows,
        "losses_of_power": len(rig.lost),
        "lost": rows - len(done),
        "repeated": sum(done.values()) - len(done),
        "in_order": list(done) == sorted(done),
        "virtual_s": round(world.now),
        "cpu_s": round(time.process_time() - began, 1),
    }


def _send(stream: SimulatedStream, first: int, end: int) -> int:
    stream.append([Draft({"n": n}, b"x" * 100) for n in range(first, end)])
    return end


def main() -> int:
    """Run the command `python -m bench.papers.power`."""
    args = parser(
        __doc__,
        copy=(False, "both sides of a sync"),
        consumer=(False, "of a stream"),
        changes=(100_000, "of each operation"),
        rows=(5_000, "for the consumer"),
        replicas=([3, 1], "of the stream"),
        seed=SEED,
    ).parse_args()
    rows: list[dict[str, Any]] = []
    for replicas in args.replicas:
        if args.copy:
            rows.append(copy(args.seed, replicas, args.changes))
        if args.consumer:
            rows += [consume(args.seed, replicas, args.rows, effect) for effect in (True, False)]
    show(rows, args)
    return 1 if any(row["lost"] or not row.get("same", True) for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
