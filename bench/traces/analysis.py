"""What one `canopy trace analyze` costs, on a made-up run of which the answers are known.

``python -m bench.traces.analysis --events 100000 --selectors 1000`` writes the traces that nodes
would have written, runs the command on them and prints one JSON object: processor seconds of all
its processes (on a busy machine the figure to compare by), also per million records, seconds, the
largest process in MB, and `wrong`: the numbers of the report that are not those of the made-up run.
With a folder as argument traces and report are kept there, and traces that are there are used.

Which events a subscription gets is decided by the product's index (`matching`), so that a right
report also says that the matcher of the analysis agrees with it. ``--faults 10`` makes ten
deliveries each missing, dropped, repeated, corrupted and spurious. ``--workers 2`` runs the command
on a standalone cluster of Spark on this machine.

Each selector has ranges of two of seven attributes, and every third a list of two networks. An
event is shown to five virtual nodes in vain, of which the writer makes counts, as in a real run.

Spark's workers end after their JVM, and would be nobody's children then: this process takes them in
(on Linux), so that their time counts. What makes an archive of classes after the first run does not
count: it goes on for half a minute at the lowest priority.
"""

from __future__ import annotations

import ctypes
import gzip
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from zlib import crc32

import click
from pyarrow import parquet

from canopy.traces.writer import BUFFER_BYTES, FILE_BYTES, TraceOptions, TraceWriter
from harness.spark_cluster import SparkCluster, tasks_by_executor
from matching import Index, Predicate, compile_selector

START: Final = 1_790_000_000.0
NODES: Final = 20
NAMES: Final = "abcdefg"
NETWORKS: Final = ("us", "nc", "ak", "hv", "ci")
EVERY: Final = 0.002  # seconds between two events
ORPHAN_SECONDS: Final = 3.0  # for workers to notice that their JVM has ended
PR_SET_CHILD_SUBREAPER: Final = 36  # prctl(2)
FAULTY: Final = 4  # times as likely as is needed: not every event has a delivery
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


def drawn(rng: random.Random) -> dict[str, Any]:
    """The attributes of an event."""
    return {name: round(rng.random(), 6) for name in NAMES} | {"net": rng.choice(NETWORKS)}


FAULTS: Final = ("missing", "dropped", "duplicates", "corrupted", "spurious")
"""The kinds of faults that are made, by the names that the summary has for them."""


class MadeUpRun:
    """A run of `NODES` nodes, whose traces are written into the new folder `folder`."""

    def __init__(
        self,
        folder: Path,
        events: int,
        count: int,
        width: float,
        seed: int = 1,
        faults: int = 0,
        file_bytes: int = FILE_BYTES,
        is_compressed: bool = False,
    ) -> None:
        """`count` selectors; `faults` deliveries of each kind of `FAULTS` are wrong."""
        self._folder = folder
        self._rng, self._clock = random.Random(seed), Clock()
        self._compressed = is_compressed
        self._names = [f"{0xA0 + number:016x}" for number in range(NODES)]
        self._writers = [
            TraceWriter(
                self._opened,
                name,
                self._clock,
                TraceOptions(buffer_bytes=min(file_bytes, BUFFER_BYTES), file_bytes=file_bytes),
                hybrid=self._clock.hybrid,
            )
            for name in self._names
        ]
        self._index: Index[int] = Index()
        self.known: dict[str, Any] = dict.fromkeys((*FAULTS, "unjudged", "unknown"), 0)
        """What the summary has to say."""
        self.known |= {"published": events, "subscriptions": count, "expected": 0}
        for number, writer in enumerate(self._writers):
            about = {"address": f"127.0.0.1:{7000 + number}", "name": f"node-{number}"}
            writer.write("start", about)
        for number, text in enumerate(selectors(count, width, self._rng)):
            self._subscribe(number, text)
        self._clock.now += 1.0
        for number in range(events):
            self._clock.now += EVERY
            self._publish(number, count, events - number, faults)
        self._clock.now += 60.0
        for writer in self._writers:
            writer.write("stop", {"data_messages": 10, "other_messages": 10, "bytes": 10})
            writer.close()
        self.known["delivered"] = self.known["expected"] - sum(
            self.known[name] for name in ("missing", "dropped", "corrupted")
        )

    def _opened(self, path: str) -> Any:
        place = self._folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if self._compressed:
            return gzip.open(place.with_name(f"{place.name}.gz"), "ab", compresslevel=1)
        return place.open("ab")

    def _identity(self, number: int) -> str:
        """Of an event or a subscription, which each node numbers from 1 on: they go round the
        nodes."""
        return f"{self._names[number % NODES]}.1.{number // NODES + 1}"

    def _subscribe(self, number: int, text: str) -> None:
        predicate: Predicate = compile_selector(text)
        self._index.add(number, predicate)
        writer, made = self._writers[number % NODES], {"subscription": self._identity(number)}
        described = {"name": f"sub-{number}", "selector": text, "tree": predicate.tree()}
        writer.write("subscribe", made | described)
        self._clock.now += 0.001
        writer.write("suback", made)

    def _publish(self, number: int, count: int, left: int, faults: int) -> None:
        """An event and its way; `left` events are still to come, with it."""
        rng, writers, names = self._rng, self._writers, self._names
        home = number % NODES
        event = {"event": self._identity(number)}
        attributes = drawn(rng)
        text = json.dumps(attributes)
        content = {"id": str(number), "digest": crc32(text.encode()) << 31}
        writers[home].write("publish", event | content | {"attributes": text, "size": 120})
        host = rng.randrange(NODES)
        step = {"attribute": "a", "hop": 1, "peer": names[host]}
        writers[home].write("visit", event | step)
        interval = {"attribute": "a", "lo": "0.0", "hi": "0.5", "version": 1}
        writers[host].count_unmatched({"a": VAIN})
        got = self._index.match(attributes)
        targets = sorted({subscription % NODES for subscription in got})
        if targets:
            writers[host].write("match", event | interval | {"recipients": len(targets)})
        else:
            writers[host].count_unmatched({"a": 1})
        for target in targets:
            sent = {"attribute": "a", "hop": 2}
            writers[host].write("forward", event | sent | {"peer": names[target]})
            writers[target].write("arrive", event | sent | {"peer": names[host]})
        self.known["expected"] += len(got)
        wrong = self._fault(left, faults)
        if wrong == "spurious" and len(got) < count:
            other = next(each for each in range(count) if each not in got)
            self._deliver(event | content, other)
            self.known[wrong] += 1
        for subscription in got:
            last = content
            if wrong in ("missing", "dropped", "duplicates", "corrupted"):
                self.known[wrong] += 1
                if wrong == "dropped":
                    about = {"peer": names[subscription % NODES], "reason": "made up", "size": 0}
                    writers[host].write("drop", event | about)
                if wrong == "duplicates":
                    self._deliver(event | content, subscription)
                if wrong == "corrupted":
                    last = content | {"id": f"not {number}"}
            if wrong not in ("missing", "dropped"):
                self._deliver(event | last, subscription)
            wrong = ""

    def _fault(self, left: int, faults: int) -> str:
        """The kind of fault that the present event is to have, or ""."""
        open_ = [name for name in FAULTS for _ in range(faults - self.known[name])]
        return self._rng.choice(open_) if self._rng.random() * left < FAULTY * len(open_) else ""

    def _deliver(self, about: dict[str, Any], subscription: int) -> None:
        made = {"subscription": self._identity(subscription)}
        way = {"latency_ms": round(self._rng.expovariate(0.2), 3), "attribute": "a", "hops": 2}
        self._writers[subscription % NODES].write("deliver", about | made | way)


def reap_orphans() -> None:
    """Wait for what the command has left to end, for a while."""
    until = time.monotonic() + ORPHAN_SECONDS
    with suppress(ChildProcessError):
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.1)


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--events", default=10_000)
@click.option("--selectors", "count", default=100)
@click.option("--width", default=0.02, help="The share of values in a narrow range.")
@click.option("--seed", default=1)
@click.option("--faults", default=0, help="Deliveries of each kind that are wrong.")
@click.option("--file-bytes", default=FILE_BYTES, help="Where a node begins another file.")
@click.option("--gzip", "is_compressed", is_flag=True, help="Write compressed files.")
@click.option("--workers", default=0, help="Run on a cluster with these workers, one core each.")
@click.option("--memory", help="The heap of the driver.")
@click.option("--conf", multiple=True, help="A setting of Spark, as `name=value`.")
def main(
    folder: Path | None,
    workers: int,
    memory: str | None,
    conf: tuple[str, ...],
    **made: Any,
) -> None:
    """Make the traces of a run, analyse them, and print what that cost and whether it was right."""
    options = [*(["--driver-memory", memory] if memory else [])]
    options += [part for each in conf for part in ("--conf", each)]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="canopy-analysis-")))
        traces, known = folder / "traces", folder / "known.json"
        if not known.exists():
            known.write_text(json.dumps(MadeUpRun(traces, **made).known))
        click.echo(json.dumps(measured(folder, workers, options, json.loads(known.read_text()))))


def measured(
    folder: Path, workers: int, options: Sequence[str], known: Mapping[str, Any]
) -> dict[str, Any]:
    """Analyse the traces of the run in `folder`. Returns the row."""
    traces = folder / "traces"
    files = [path for path in traces.rglob("*.jsonl*") if path.is_file()]
    command = [sys.executable, "-m", "canopy", "trace", "analyze", str(traces), "--json"]
    command += ["--out", str(folder / "report"), "--overwrite", *options]
    began, before = time.monotonic(), os.times()
    with ExitStack() as stack:
        if workers:
            place = Path(stack.enter_context(TemporaryDirectory(prefix="canopy-cluster-")))
            (place / "events").mkdir()
            cluster = stack.enter_context(SparkCluster(place, workers))
            command += cluster.settings(place / "events")
            began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began
        tasks = sum(tasks_by_executor(place / "events").values()) if workers else None
    reap_orphans()
    after = os.times()
    if not done.stdout:
        raise click.ClickException(done.stderr.strip())
    summary = json.loads(done.stdout)
    cpu = sum(after[2:4]) - sum(before[2:4])
    tables = (folder / "report" / "tables" / "records").rglob("*.parquet")
    records = sum(parquet.read_metadata(path).num_rows for path in tables)
    return {
        "events": summary["published"],
        "selectors": summary["subscriptions"],
        "records": records,
        "files": len(files),
        "megabytes": round(sum(path.stat().st_size for path in files) / 1e6, 1),
        "expected": summary["expected"],
        "exact": summary["exact"],
        "wrong": [name for name, number in known.items() if summary[name] != number],
        "faults": sum(known[name] for name in FAULTS),
        "cpu_seconds": round(cpu, 1),
        "cpu_per_million": round(cpu / max(records, 1) * 1e6, 1),
        "seconds": round(seconds, 1),
        "largest_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
        **({} if tasks is None else {"tasks": tasks}),
    }


if __name__ == "__main__":
    main()
