"""What one `canopy trace analyze` costs, on a made-up run in which everything went right.

``python -m bench.traces.analysis DIR --events 100000 --selectors 1000`` writes the traces that
nodes would have written into DIR/traces, unless they are there already, runs the command on them
and prints one JSON object: processor seconds of all its processes (on a busy machine the figure to
compare by), seconds, the largest process in MB, and whether the verdict was *exact*. Which events
a subscription gets is said by the product's index (`matching`), so that *exact* also means that the
matcher of the analysis agrees with it.

Each selector has ranges of two of seven attributes, and every third a list of two networks. An
event is shown to five virtual nodes in vain, of which the writer makes counts, as in a real run.

Spark's workers end after their JVM, and would be nobody's children then: this process takes them in
(on Linux), so that their time counts. What makes an archive of classes after the first run does not
count: it goes on for half a minute at the lowest priority.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import click

from canopy.traces.writer import BUFFER_BYTES, FILE_BYTES, TraceWriter
from matching import Index, Predicate, compile_selector

START: Final = 1_790_000_000.0
NODES: Final = 20
NAMES: Final = "abcdefg"
NETWORKS: Final = ("us", "nc", "ak", "hv", "ci")
EVERY: Final = 0.002  # seconds between two events
ORPHAN_SECONDS: Final = 3.0  # for workers to notice that their JVM has ended
PR_SET_CHILD_SUBREAPER: Final = 36  # prctl(2)
VAIN: Final = 5  # virtual nodes that an event is shown to without an interested node


class Clock:
    """Seconds since 1970, and the hybrid logical clock that goes with them."""

    def __init__(self) -> None:
        self.now = START
        self._ticks = 0

    def __call__(self) -> float:
        return self.now

    def hybrid(self) -> int:
        self._ticks = max(self._ticks + 1, int(self.now * 1000) << 16)
        return self._ticks


def selectors(count: int, width: float, rng: random.Random) -> Iterator[str]:
    """Texts of selectors; `width` is the share of an attribute's values in a narrow range."""
    for number in range(count):
        parts = []
        for name, share in zip(rng.sample(NAMES, 2), (width, width * 10), strict=True):
            low = rng.random() * (1 - min(share, 1))
            parts.append(f"{name} BETWEEN {low:.5f} AND {low + share:.5f}")
        if number % 3 == 0:
            parts.append("net IN ('{}', '{}')".format(*rng.sample(NETWORKS, 2)))
        yield " AND ".join(parts)


def generate(
    folder: Path,
    events: int,
    count: int,
    width: float,
    seed: int = 1,
    file_bytes: int = FILE_BYTES,
) -> None:
    """Write the traces of a run into the new folder `folder`, in files of `file_bytes`."""
    rng, clock = random.Random(seed), Clock()

    def opened(path: str) -> Any:
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        return place.open("ab")

    names = [f"{0xA0 + number:016x}" for number in range(NODES)]
    buffer_bytes = min(file_bytes, BUFFER_BYTES)
    writers = [
        TraceWriter(
            *(opened, name, clock),
            hybrid=clock.hybrid,
            buffer_bytes=buffer_bytes,
            file_bytes=file_bytes,
        )
        for name in names
    ]
    for number, writer in enumerate(writers):
        writer.write("start", {"address": f"127.0.0.1:{7000 + number}", "name": f"node-{number}"})
    index: Index[int] = Index()
    for number, text in enumerate(selectors(count, width, rng)):
        predicate: Predicate = compile_selector(text)
        index.add(number, predicate)
        home = number % NODES
        made = {"subscription": identity(names, number)}
        described = {"name": f"sub-{number}", "selector": text, "tree": predicate.tree()}
        writers[home].write("subscribe", made | described)
        clock.now += 0.001
        writers[home].write("suback", made)
    clock.now += 1.0
    for number in range(events):
        clock.now += EVERY
        _event(number, rng, names, writers, index)
    clock.now += 60.0
    for writer in writers:
        writer.write("stop", {"data_messages": 10, "other_messages": 10, "bytes": 10})
        writer.close()


def identity(names: list[str], number: int) -> str:
    """Of an event or a subscription, which each node numbers from 1 on: they go round the nodes."""
    return f"{names[number % NODES]}.1.{number // NODES + 1}"


def _event(
    number: int, rng: random.Random, names: list[str], writers: list[TraceWriter], index: Index[int]
) -> None:
    home = number % NODES
    event = {"event": identity(names, number)}
    attributes: dict[str, Any] = {name: round(rng.random(), 6) for name in NAMES}
    attributes["net"] = rng.choice(NETWORKS)
    text = json.dumps(attributes)
    content = {"id": str(number), "digest": crc32(text.encode()) << 31}
    writers[home].write("publish", event | content | {"attributes": text, "size": 120})
    host = rng.randrange(NODES)
    step = {"attribute": "a", "hop": 1, "peer": names[host]}
    writers[home].write("visit", event | step)
    interval = {"attribute": "a", "lo": "0.0", "hi": "0.5", "version": 1}
    writers[host].count_unmatched({"a": VAIN})
    got = index.match(attributes)
    targets = sorted({subscription % NODES for subscription in got})
    if targets:
        writers[host].write("match", event | interval | {"recipients": len(targets)})
    else:
        writers[host].count_unmatched({"a": 1})
    for target in targets:
        sent = {"attribute": "a", "hop": 2}
        writers[host].write("forward", event | sent | {"peer": names[target]})
        writers[target].write("arrive", event | sent | {"peer": names[host]})
    for subscription in got:
        target = subscription % NODES
        made = {"subscription": identity(names, subscription), **content}
        way = {"latency_ms": round(rng.expovariate(0.2), 3), "attribute": "a", "hops": 2}
        writers[target].write("deliver", event | made | way)


def reap_orphans() -> None:
    """Wait for what the command has left to end, for a while."""
    until = time.monotonic() + ORPHAN_SECONDS
    with suppress(ChildProcessError):
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.1)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--events", default=10_000)
@click.option("--selectors", "count", default=100)
@click.option("--width", default=0.02, help="The share of values in a narrow range.")
@click.option("--file-bytes", default=FILE_BYTES, help="Where a node begins another file.")
@click.option("--memory", help="The heap of the driver.")
@click.option("--conf", multiple=True, help="A setting of Spark, as `name=value`.")
def main(
    folder: Path,
    events: int,
    count: int,
    width: float,
    file_bytes: int,
    memory: str | None,
    conf: tuple[str, ...],
) -> None:
    """Make the traces of a run in FOLDER, analyse them, and print what that cost."""
    traces = folder / "traces"
    if not traces.exists():
        generate(traces, events, count, width, file_bytes=file_bytes)
    files = list(traces.rglob("*.jsonl"))
    command = [sys.executable, "-m", "canopy", "trace", "analyze", str(traces), "--json"]
    command += ["--out", str(folder / "report"), *(["--driver-memory", memory] if memory else [])]
    command += [part for each in conf for part in ("--conf", each)]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    began, before = time.monotonic(), os.times()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    reap_orphans()
    after = os.times()
    if not done.stdout:
        raise click.ClickException(done.stderr.strip())
    summary = json.loads(done.stdout)
    row = {
        "events": summary["published"],
        "selectors": summary["subscriptions"],
        "records": sum(path.read_bytes().count(b"\n") for path in files),
        "files": len(files),
        "megabytes": round(sum(path.stat().st_size for path in files) / 1e6, 1),
        "expected": summary["expected"],
        "exact": summary["exact"],
        "cpu_seconds": round(sum(after[2:4]) - sum(before[2:4]), 1),
        "seconds": round(seconds, 1),
        "largest_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
    }
    click.echo(json.dumps(row))


if __name__ == "__main__":
    main()
