"""VENUS, figure 7, and Minos, figures 7 and 8: from the first row sent to the last row received.

    python -m bench.papers.transmission --rows 100000 --producers 1 50 200 --json
    python -m bench.papers.transmission --seconds 3 --json
    python -m bench.papers.transmission --rows 100000 --seconds 1 --only canopy redis

Contestants are those of `bench.streams.peers` (which names who is not installed, and how to get
it): three servers and three replicas each, on this machine, taking turns. Producers are programs
with a connection each, in one process; the consumer is another process. Rows have 100 bytes, as
Minos's.

* `--rows` (`together`): of so many in all, each of `--producers` sends its share, in batches of 256
  with `AHEAD` under way in all; `seconds` from the first row sent until the consumer has the last
  (Minos, figure 7; with one producer VENUS's, figure 7), `received` how many came.
* `--seconds` (`rising`): one producer, whose rate doubles after so long, from `--slowest` on, as
  long as the consumer keeps up (`carried`); of each rate the rows a second that came, and `p50_ms`
  and `p99_ms` from sending to receipt (Minos, figure 8).

With both a contestant is started once for both. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench.command import parser, say, show
from bench.streams.contestants.asking import AskingProgram
from bench.streams.contestants.receiving import stamped
from bench.streams.peers import CONTESTANTS, Kind, absent

BATCH: Final = 256
AHEAD: Final = 8
"""Batches under way, of all producers together; each producer has one at least."""

SIZE: Final = 100
PATIENCE: Final = 240.0

BATCHES_MOST: Final = 50
"""Atomic batches of a stream that a server of NATS takes at a time, and so producers with one each;
with more the answer to some never comes."""

RATES: Final = tuple(1_000 * 2**n for n in range(9))
TICK: Final = 0.01
"""Seconds between two batches at a rate."""

ENOUGH: Final = 0.9
BEHIND: Final = 0.5
"""A rate is carried if the producer could send so much of it, and the consumer has the last row so
many seconds after it was sent."""

TAKING_PART: Final[dict[str, Kind]] = {
    **CONTESTANTS,
    "redis stream": CONTESTANTS["redis stream"]._replace(
        modules=("redis",), how="apt install redis-server; pip install redis"
    ),
}


class Reader:
    """The process of the consumer, which counts what it receives."""

    def __init__(self, program: AskingProgram, stack: ExitStack) -> None:
        command = [sys.executable, "-m", "bench.streams.contestants.receiving", *program.reader()]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        stack.callback(self._process.wait)
        stack.callback(self._process.kill)
        assert self._read() == "ready"

    def ask(self, run: int, count: int, seconds: float) -> dict[str, Any]:
        """What has come of a run, when so much has or after so many seconds."""
        assert self._process.stdin is not None
        print(run, count, seconds, file=self._process.stdin, flush=True)
        found: dict[str, Any] = json.loads(self._read())
        return found

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the reader has ended")
        return line.strip()


async def send(program: AskingProgram, run: int, rows: int, ahead: int) -> None:
    """Send so many rows in batches, and wait until all are acknowledged."""
    waiting: deque[list[asyncio.Future[Any]]] = deque()
    for place in range(0, rows, BATCH):
        program.carry(stamped(run, SIZE))
        waiting.append(await program.send(place, min(BATCH, rows - place)))
        if len(waiting) >= ahead:
            await asyncio.gather(*waiting.popleft())
    for each in waiting:
        await asyncio.gather(*each)


async def pace(program: AskingProgram, run: int, rate: int, seconds: float) -> int:
    """Send so many rows a second, each batch when it is due; returns how many."""
    waiting: deque[list[asyncio.Future[Any]]] = deque()
    began, sent = time.monotonic(), 0
    while (now := time.monotonic()) < began + seconds:
        count = min(round((now - began + TICK) * rate) - sent, 1_000)
        if count > 0:
            program.carry(stamped(run, SIZE))
            waiting.append(await program.send(sent, count))
            sent += count
        while waiting and all(one.done() for one in waiting[0]):
            waiting.popleft()
        if len(waiting) > 64:  # further behind than a second batch of all that a queue may hold
            await asyncio.gather(*waiting.popleft())
        await asyncio.sleep(max(0.0, TICK - (time.monotonic() - now)))
    for each in waiting:
        await asyncio.gather(*each)
    return sent


class Turn:
    """One contestant from its start to its end."""

    def __init__(self, name: str, stack: ExitStack) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="canopy-papers-")))
        made: Any = TAKING_PART[name].make(folder / "data", stack)
        self.name = name
        self.programs: list[AskingProgram] = [made]
        self.loop = self.programs[0].loop
        self.reader = Reader(made, stack)
        self.about = {"contestant": name, "durable": made.durable}
        self._runs = 0

    def transmit(self, producers: int, rows: int) -> dict[str, Any]:
        """All rows from so many producers."""
        self._runs += 1
        while len(self.programs) < producers:
            self.programs.append(self.programs[0].again())
        each = [rows // producers + (n < rows % producers) for n in range(producers)]
        ahead = max(AHEAD // producers, 1)
        sending = [
            send(program, self._runs, count, ahead)
            for program, count in zip(self.programs, each, strict=False)
            if count
        ]
        began = time.monotonic()
        self.loop.run_until_complete(_all(sending))
        acknowledged = time.monotonic() - began
        found = self.reader.ask(self._runs, rows, PATIENCE)
        took = found["last"] - began
        say(f"{self.name}, {producers} producers: {rows:,} rows in {took:.2f} s")
        return {
            "way": "together",
            **self.about,
            "producers": producers,
            "rows": rows,
            "received": found["received"],
            "seconds": round(took, 3),
            "acknowledged_s": round(acknowledged, 3),
            "rows_per_second": round(found["received"] / took),
        }

    def rise(self, seconds: float, slowest: int) -> Iterator[dict[str, Any]]:
        """A row for each rate from `slowest` on, up to the first that is not carried."""
        for rate in (rate for rate in RATES if rate >= slowest):
            self._runs += 1
            began = time.monotonic()
            sent = self.loop.run_until_complete(pace(self.programs[0], self._runs, rate, seconds))
            ended = min(time.monotonic(), began + seconds)
            found = self.reader.ask(self._runs, sent, PATIENCE)
            came = found["received"] / (found["last"] - began)
            times: dict[str, Any] = {
                key: found[key] for key in ("p50_ms", "p99_ms") if key in found
            }
            say(f"{self.name} at {rate:,} a second: {came:,.0f} a second, {times}")
            is_carried = found["last"] <= ended + BEHIND and sent >= ENOUGH * rate * seconds
            about = {"rate": rate, "sent": sent, "received": found["received"]}
            yield {
                "way": "rising",
                **self.about,
                **about,
                "rows_per_second": round(came),
                **times,
                "carried": is_carried,
            }
            if not is_carried:
                return


async def _all(waiting: Sequence[Any]) -> None:
    await asyncio.gather(*waiting)


def measured(name: str, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The rows of a contestant."""
    with ExitStack() as stack:
        turn = Turn(name, stack)
        if args.seconds:
            yield from turn.rise(args.seconds, args.slowest)
        for producers in args.producers if args.rows else ():
            if "atomic" not in name or producers <= BATCHES_MOST:
                yield turn.transmit(producers, args.rows)


def left_out(name: str, how: str, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The rows of a contestant that is not installed."""
    about = {"contestant": name, "durable": "", "absent": how}
    if args.seconds:
        yield {"way": "rising", **about}
    if args.rows:
        yield {"way": "together", **about, "rows": args.rows, "producers": 1}


def main() -> int:
    """Run the command `python -m bench.papers.transmission`."""
    made = parser(
        __doc__,
        rows=(0, "of all producers; 0: not measured"),
        producers=([1, 50, 200], "programs that send"),
        seconds=(0.0, "of each rising rate; 0: not measured"),
        slowest=(RATES[0], "rate, rows a second"),
        only=([""], "contestants whose name has one of these words"),
    )
    args = made.parse_args()
    if not args.rows and not args.seconds:
        made.error("--rows, --seconds or both say what to measure")
    rows: list[dict[str, Any]] = []
    failed = False
    for name in TAKING_PART:
        if not any(word in name for word in args.only):
            continue
        if how := absent(TAKING_PART[name]):
            say(f"{name} is not installed: {how}")
            rows += left_out(name, how, args)
            continue
        found: list[dict[str, Any]] = []
        try:
            found.extend(measured(name, args))
        except (OSError, RuntimeError, AssertionError) as error:  # the others are measured
            say(f"{name} has failed: {error!r}")
            failed = True
        failed = failed or any(
            row["received"] < row.get("sent", row.get("rows", 0)) for row in found
        )
        rows += found
    show(rows, args)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
