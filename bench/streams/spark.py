"""How fast Spark reads a stream, and how fast it writes one.

    python -m bench.streams.spark                   # all workloads
    python -m bench.streams.spark --only tail       # those whose names begin so

One node as a process of its own, Spark in a JVM with two tasks at a time (`local[2]`) and its
Python workers, all on this machine. Rows have eight attributes; columns are four of them and the
places.

* `tail`: a streaming query over a stream with so many rows, to Spark's `noop` sink. Rows a second
  of the time that its triggers took, without the first two, in which Spark compiles; the longest
  of these triggers; and microseconds of processor time for each of their rows: of the node, of the
  JVM, of Spark's Python workers.
* `one in a thousand`: the same with a selector. Rows that were scanned.
* `files`: the same rows from the node's folder, without the node, as a batch.
* `history`: a sum over rows that are Parquet files, with the stream behind them, beside the same
  sum over the same files alone; the least of five runs of each, in turns.
* `trigger`: 10,000 rows a second are appended while a query with a trigger of 0.5 s runs; the
  median and the longest trigger, without the first five.
* `write`: a streaming query from that stream into another one.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import psutil

import canopy
import canopy.spark
from bench.command import parser, processor_seconds, say, show
from canopy.spark.history import export_history
from canopy.spark.node import NodeRows
from canopy.traces.analysis import spark_session
from harness.real_overlay import Overlay
from overlay.client import Streams
from overlay.stream_client import AddStream

PLACES = "_shard INT, _offset BIGINT, _time TIMESTAMP"
SCHEMA = f"id BIGINT, region STRING, mag DOUBLE, place STRING, {PLACES}"
WARM = 2  # triggers before those that are measured
COMPILED = 5  # the same where triggers are small
LOOK = 0.02
PATIENCE = 600.0


def events(first: int, count: int) -> Iterator[dict[str, Any]]:
    """Rows of eight attributes, by the node's library with a type."""
    for n in range(first, first + count):
        yield {
            "id": n,
            "type": "quake",
            "day": n // 1_000_000,
            "code": f"c{n % 1000:06d}",
            "region": "abcdefgh"[n % 8],
            "mag": n % 90 / 10,
            "depth": n % 6000 / 10,
            "place": "abcdefgh"[n % 8] * 12,
        }


class Run:
    """Spark's session and what it is measured with."""

    def __init__(self, spark: Any, node: Overlay, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.node, self.process = str(node.folder / "0"), node.processes[0].pid
        self._queries = 0

    def rows(self, stream: str, **options: str) -> Any:
        """A streaming DataFrame from the first row on."""
        given = {"stream": stream, "node": self.node, "startingOffsets": "first"}
        reader = self.spark.readStream.format("canopy").options(**{**given, **options})
        return reader.schema(SCHEMA).load()

    def start(self, frame: Any, sink: str, trigger: dict[str, Any], **options: str) -> Any:
        """Start a streaming query, and return it."""
        self._queries += 1
        checkpoint = str(self.folder / f"checkpoint-{self._queries}")
        writing = frame.writeStream.format(sink).options(checkpointLocation=checkpoint, **options)
        return writing.trigger(**trigger).start()

    def through(self, name: str, frame: Any, rows: int, sink: str = "noop", **options: str) -> Any:
        """Run a query over what is there."""
        query = self.start(frame, sink, {"availableNow": True}, **options)
        used: list[tuple[int, dict[str, float]]] = [(0, self.seconds())]  # after so many triggers
        while query.isActive:  # then its processes are gone, with what they have used
            if (done := len(query.recentProgress)) > used[-1][0]:
                used.append((done, self.seconds()))
            time.sleep(LOOK)
        query.awaitTermination()
        (first, before), (last, after) = next(u for u in used if u[0] >= WARM), used[-1]
        found = [p for p in query.recentProgress if p.sources[0].endOffset]
        counts = [_scanned(p) for p in found]
        took = [p.durationMs["triggerExecution"] / 1000 for p in found[WARM:]]
        measured = sum(counts[first:last])
        return {
            "kind": "rate",
            "workload": name,
            "rows": rows,
            "scanned": sum(counts),
            "rows_per_second": round(sum(counts[WARM:]) / sum(took)),
            "median_trigger": round(median(took), 3),
            "longest_trigger": max(took),
            **{
                f"us_{each}": round(1e6 * (after[each] - n) / measured, 2)
                for each, n in before.items()
            },
        }

    def seconds(self) -> dict[str, float]:
        """Processor seconds of the node, of Spark's JVM and of its Python workers."""
        used = {"node": 0.0, "jvm": 0.0, "workers": 0.0}
        mine = psutil.Process().children(recursive=True)
        for process, seconds in zip(mine, processor_seconds(p.pid for p in mine), strict=True):
            if process.pid == self.process:
                used["node"] += seconds
            else:
                used["jvm" if _is_java(process) else "workers"] += seconds
        return used


def _scanned(progress: Any) -> int:
    """Offsets of one trigger."""
    source = progress.sources[0]
    return offsets(source.endOffset) - offsets(source.startOffset)


def offsets(offset: Any) -> int:
    """All offsets of a query's offset."""
    found = json.loads(offset) if isinstance(offset, str) else offset
    return sum(found["shards"].values()) if found else 0


def _is_java(process: psutil.Process) -> bool:
    try:
        return "java" in process.name()
    except psutil.Error:
        return False


def with_rows(query: Any) -> list[Any]:
    """The triggers that had some."""
    return [progress for progress in query.recentProgress if progress.numInputRows]


def live(run: Run, seconds: float) -> dict[str, Any]:
    """Triggers while rows are appended."""
    ended = threading.Event()
    appended: list[tuple[int, float]] = []

    def append() -> None:
        with canopy.connect(run.node) as client:
            sent, due = 0, time.monotonic()
            while not ended.is_set():
                client.append("live", list(events(sent, 1_000)), timeout=PATIENCE)
                sent += 1_000
                appended.append((sent, time.time()))
                due += 0.1
                time.sleep(max(0.0, due - time.monotonic()))

    thread = threading.Thread(target=append)
    query = run.start(run.rows("live"), "noop", {"processingTime": "0.5 seconds"})
    thread.start()
    until = time.monotonic() + PATIENCE
    while len(with_rows(query)) < COMPILED and time.monotonic() < until:
        time.sleep(LOOK)
    time.sleep(seconds)
    ended.set()
    thread.join()
    query.stop()
    progress = with_rows(query)[COMPILED:]
    took = [p.durationMs["triggerExecution"] / 1000 for p in progress]
    rows = sum(p.numInputRows for p in progress)
    return {
        "kind": "trigger",
        "workload": "trigger",
        "rows": rows,
        "triggers": len(took),
        "median_trigger": round(median(took), 3),
        "longest_trigger": round(max(took), 3),
    }


def history(run: Run, rows: int) -> dict[str, Any]:
    """Parquet files with the stream behind them, and without."""
    folder = run.folder / "history"
    export_history(NodeRows(run.node, "in", PATIENCE), folder)
    columns = run.spark.read.parquet(str(folder)).schema
    took: dict[str, list[float]] = {"with_stream": [], "files_alone": []}
    for _ in range(5):
        both = canopy.spark.read_with_history(run.spark, folder, stream="in", node=run.node)
        alone = run.spark.read.schema(columns).parquet(str(folder))
        for name, frame in (("with_stream", both), ("files_alone", alone)):
            began = time.monotonic()
            found = frame.groupBy("region").agg({"mag": "sum", "*": "count"}).collect()
            took[name].append(time.monotonic() - began)
            assert sum(row["count(1)"] for row in found) == rows
    with_stream, alone_ = min(took["with_stream"]), min(took["files_alone"])
    return {
        "kind": "history",
        "workload": "history",
        "rows": rows,
        "seconds": round(with_stream, 3),
        "files_alone": round(alone_, 3),
        "ratio": round(with_stream / alone_, 2),
    }


def workloads(run: Run, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All that are wanted, one after the other."""
    rows, found = options.rows, []

    def wanted(name: str) -> bool:
        say(name)
        return name.startswith(options.only)

    if wanted("tail"):
        found.append(run.through("tail", run.rows("in"), rows))
    if wanted("one in a thousand"):
        some = run.rows("in", selector="code = 'c000500'")
        found.append(run.through("one in a thousand", some, rows // 1000))
    if wanted("files"):
        began, before = time.monotonic(), run.seconds()
        files = run.spark.read.format("canopy").option("stream", "in").schema(SCHEMA)
        files.load(run.node).write.format("noop").mode("append").save()
        seconds = time.monotonic() - began
        used = {
            f"us_{each}": round(1e6 * (n - before[each]) / rows, 2)
            for each, n in run.seconds().items()
        }
        speed = {"seconds": round(seconds, 2), "rows_per_second": round(rows / seconds)}
        found.append({"kind": "rate", "workload": "files", "rows": rows, **speed, **used})
    if wanted("history"):
        found.append(history(run, rows))
    if wanted("trigger"):
        found.append(live(run, options.seconds))
    if wanted("write"):
        target = {"stream": "out", "node": run.node}
        found.append(run.through("write", run.rows("in"), rows, "canopy", **target))
    return found


def main() -> int:
    """Run the command `python -m bench.streams.spark`."""
    asked = parser(
        __doc__,
        rows=(1_000_000, "of the stream that is read"),
        shards=(1, "of each stream"),
        seconds=(20.0, "of the workload trigger"),
        only=("", "the beginning of one workload's name"),
    )
    options = asked.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        node = Overlay(folder, "trace: {enabled: false}", PATIENCE)
        try:
            client = node.grow(1)
            for stream in ("in", "live", "out"):
                by = "id" if options.shards > 1 else ""
                client.ask(AddStream(0, stream, options.shards, by, 1), Streams, PATIENCE)
            with canopy.connect(folder / "0") as program:
                program.append("in", events(0, options.rows), timeout=PATIENCE)
            with spark_session(input_bytes=1 << 40, wishes={"spark.master": "local[2]"}) as spark:
                canopy.spark.register(spark)
                found = workloads(Run(spark, node, folder), options)
        finally:
            node.stop()
    show(found, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
