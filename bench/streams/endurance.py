"""A stream of real processes under random faults, and whether every row is accounted for.

    python -m bench.streams.endurance --faults 12            # a minute or so
    python -m bench.streams.endurance --faults 1000 --rows 10000000 --json
    python -m bench.streams.endurance --replicas 5 --shards 4 --mirror --at-once 3

Five nodes as processes behind a fault proxy, three of them replicas of one stream, or of each of
its shards; with `--mirror` of another one that has its rows, too. Programs at all of them:
producers with numbered rows, one that prepares, commits and rolls back transactions, the members of
a consumer group, and one that folds all rows into a database, with its position in the same
transaction. Meanwhile nodes are killed (kill -9) and restarted, stopped (SIGSTOP), cut off in one
or both directions, their disks fill up (each has a small file system, for which it takes root),
their wall clocks are set forward and back, bits of their files are turned over and segments deleted
while they run, and with five replicas of several shards some lose their folder or their vote
(bench/streams/hostile/injector.py says what is done together). `--minutes` bounds the time of
faults: with fewer faults or rows than were asked for, the report says how many.

In the end all is healed, what was damaged has been mended, what is under way ends, and the stream
is read: each acknowledged row is there, once, in order and where its receipt says; transactions as
their program was told; each row that the group wants was acknowledged once; the database has each
row once; the mirror has each at the same place; the files of all replicas are whole and prove
receipts. `wrong` must be empty, else the exit code is 1; so must `ended`, nodes that ended by
themselves. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

from bench.command import SEED, group, parser, show
from bench.processes.nodes import ProxiedNodes
from bench.streams.hostile.account import Account
from bench.streams.hostile.disks import SmallDisk
from bench.streams.hostile.injector import Injector
from bench.streams.hostile.programs import (
    STREAM,
    Deciding,
    Folding,
    Producer,
    Program,
    Sharing,
    wait_on,
)
from canopy.client.blocking import ControlClient
from harness.fault_proxy import FaultProxy
from overlay.client import Streams
from overlay.stream_client import AddStream

NODES: Final = 5
MIRROR: Final = "copy"
SETTINGS: Final[dict[str, Any]] = {"directory": False}  # addresses come through the proxy only

CALM: Final = 3.0
"""Seconds of rows before the first fault."""

SETTLED: Final = 240.0
"""Seconds for everything to come to rest, on a busy machine, or without a step nearer; ample."""

SWITCH: Final = 0.001
"""Seconds after which a thread that computes lets others run: the proxy's is one of them."""

LULL: Final = 6.0
"""Seconds without an acknowledged row after which a fault follows on another all the same."""

SAY_EVERY: Final = 10.0
"""Seconds between lines of progress."""


class Endurance:
    """One run of the endurance test: nodes behind a fault proxy, its clients and its faults."""

    def __init__(self, options: argparse.Namespace, folder: Path, stack: ExitStack) -> None:
        self.options, self.folder = options, folder
        proxy = stack.enter_context(FaultProxy(options.seed))
        names = [str(n) for n in range(NODES)]
        disks = {}
        for name in names if options.disk else ():
            disks[name] = SmallDisk(folder, folder / name, options.disk, stack)
        settings = {**SETTINGS, "log": "info", "trace": group(0.0)}
        self.nodes = stack.enter_context(
            ProxiedNodes(NODES, folder, proxy, settings, can_set_clocks=True)
        )
        self.nodes.grow()
        time.sleep(CALM)  # until the views are filled
        with ControlClient.connect(self.node(0)) as client:
            by = "n" if options.shards > 1 else ""
            wanted = [AddStream(0, STREAM, options.shards, by, options.replicas)]
            if options.mirror:
                wanted.append(AddStream(0, MIRROR, options.shards, by, mirror=STREAM))
            made = [client.ask(each, Streams, 60.0).streams[0] for each in wanted]
        self.streams = {each.name: each.id for each in made}
        self.injector = Injector(
            self.nodes, proxy, disks, Random(options.seed), made, options.at_once
        )
        seed = options.seed
        appends = (seed, options.batch, options.rate / 3)
        self.producers = [Producer(f"p{n}", self.node(n), *appends) for n in range(3)]
        self.deciding = Deciding("t", self.node(3), seed)
        self.members = [Sharing(f"m{n}", self.node(n + 2), seed) for n in range(2)]
        self.folding = Folding("fold", self.node(4), seed, folder / "folded.db")
        self.programs: list[Program] = [
            *(*self.producers, self.deciding, *self.members, self.folding)
        ]

    def node(self, number: int) -> Path:
        """A node's data folder."""
        return self.nodes.nodes[str(number)].data

    @property
    def acknowledged(self) -> int:
        """Rows that producers know to be there."""
        return sum(each.acknowledged for each in self.producers)

    def run(self) -> dict[str, Any]:
        """Faults, then rest, then the account."""
        options, began = self.options, time.monotonic()
        self.began = began
        for program in self.programs:
            program.start()
        time.sleep(CALM)
        ends = began + options.minutes * 60 if options.minutes else float("inf")
        said = began
        acknowledged, last = -1, began  # when the last fault began
        while time.monotonic() < ends and (
            self.injector.counts.total() < options.faults or self.acknowledged < options.rows
        ):
            self.injector.look()
            is_alive = self.acknowledged > acknowledged
            if self.injector.counts.total() < options.faults and (
                is_alive or time.monotonic() > last + LULL
            ):
                acknowledged, last = self.acknowledged, time.monotonic()
                self.injector.step()
            if time.monotonic() > said + SAY_EVERY:
                said = time.monotonic()
                self._say(self._progress(ends))
            time.sleep(options.every)
        took = time.monotonic() - began
        self._say("no more faults")
        self.injector.heal()
        self._end(*self.producers, self.deciding)
        return self._judged(took)

    def _progress(self, ends: float) -> str:
        """How far it is, and about how long it still takes until the last fault and row."""
        options, now = self.options, time.monotonic()
        faults, rows = self.injector.counts.total(), self.acknowledged
        parts = [faults / options.faults if options.faults else 1.0]
        parts += [rows / options.rows] if options.rows else []
        done = min(1.0, *parts, 1.0)
        left = min((now - self.began) * (1 / done - 1) if done else float("inf"), ends - now)
        about = f"about {left / 60:.0f} min" if left < float("inf") else "nobody knows how long"
        altered = len(self.injector.altered())
        return (
            f"{faults} of {options.faults} faults ({altered} places not mended yet), {rows:,} of "
            f"{options.rows:,} rows, {self.folding.position:,} folded; {about} left, and then the "
            "account"
        )

    def _judged(self, took: float) -> dict[str, Any]:
        whole = self.injector.is_whole(SETTLED)
        unknown = self.deciding.settle()
        account = Account()
        there = sum(
            max((each.next for each in shard.replicas if each.state == "leads"), default=0)
            for stream, shard in self.injector.shards()
            if stream == self.streams[STREAM]
        )
        self._say(f"{there:,} rows are there: they are read")
        account.read(self.node(0), self.producers, there)
        self._say("waiting for the group and the database")
        wait_on(
            lambda: self.folding.position >= account.end, lambda: self.folding.position, SETTLED
        )
        missing = account.shared.copy()

        def shared() -> int:
            for each in self.members:
                missing.difference_update(each.got)
            return len(missing)

        wait_on(lambda: not shared(), shared, SETTLED)
        time.sleep(1.0)
        self._end(*self.members, self.folding)
        self._say(f"{len(self.injector.altered())} damaged places are to be mended")
        account.wrong["damage that nobody has mended"] = self.injector.unmended()
        account.producers(self.producers)
        account.transactions(self.deciding)
        account.group(self.members)
        account.folded(self.folding)
        if MIRROR in self.streams:
            self._say("the mirror is read")
            account.mirror(self.node(1), self.producers, MIRROR)
        whole = self.injector.is_whole(SETTLED) and whole
        if not whole:
            account.wrong["replicas that are not whole"] += 1
        replicas = [
            (stream, shard.number, each.node)
            for stream, shard in self.injector.shards()
            for each in shard.replicas
        ]
        for node in self.nodes.nodes.values():
            node.look()
            found = self.nodes.status(node.name) if node.is_up else None
            node.id = found.node if found else node.id
        ended = sum(node.ended for node in self.nodes.nodes.values())
        for node in self.nodes.nodes.values():  # what they have said is on their disks
            if node.is_up:
                self.nodes.kill(node.name)
        self._say("the replicas' files are read")
        data = {node.id: node.data for node in self.nodes.nodes.values()}
        account.files(
            [data[node] / "streams" / stream / str(number) for stream, number, node in replicas],
            self.producers,
            self.streams[STREAM],
        )
        faults = [repr(each.fault) for each in self.programs if each.fault is not None]
        return {
            "seed": self.options.seed,
            "seconds": round(took, 1),
            "faults": dict(sorted(self.injector.counts.items())),
            **account.facts,
            "transactions decided in the end": unknown,
            "errors": {each.name: each.errors for each in self.programs if each.errors},
            "ended": ended,
            "last_lines": [line for node in self.nodes.nodes.values() for line in node.last_lines],
            "programs that failed": faults,
            "wrong": {what: count for what, count in account.wrong.items() if count},
            "wrong_count": account.wrong.total(),
        }

    def _end(self, *programs: Program) -> None:
        for each in programs:
            each.ends.set()
        for each in programs:
            each.join(SETTLED)

    def _say(self, text: str) -> None:
        if sys.stderr.isatty() or self.options.verbose:
            print(text, file=sys.stderr)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.streams.endurance` and return its exit code."""
    asked = parser(
        __doc__,
        seed=SEED,
        faults=(12, "how many"),
        rows=(0, "go on until so many are acknowledged"),
        minutes=(0.0, "end after so many; 0: do not"),
        every=(1.5, "seconds between faults"),
        batch=(500, "rows of a request, at most"),
        rate=(3_000.0, "rows a second"),
        replicas=(3, "of each shard"),
        shards=(1, "of the stream"),
        mirror=(False, "another stream copies it"),
        at_once=(2, "faults that overlap, at most"),
        disk=(2_048, "MiB of each node's disk; 0: none is filled up"),
        verbose=(False, "progress, also into a file"),
    )
    options = asked.parse_args(args)
    sys.setswitchinterval(SWITCH)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # disks are unmounted
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="canopy-bench-")))
        run = Endurance(options, folder, stack)
        report = run.run()
        if report["wrong"] or report["ended"] or report["programs that failed"]:
            report["log"] = run.injector.log
    show(report, options)
    return int("log" in report)


if __name__ == "__main__":
    sys.exit(main())
