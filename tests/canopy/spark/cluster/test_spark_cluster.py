"""Streams in a real Spark (`make cluster`): on this machine, on a master with two workers, killed
between the write of a batch and its checkpoint; and the examples."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import canopy
from canopy.cli.main import main
from canopy.traces.analysis.spark.java import find_java
from harness.real_overlay import PATIENCE, Overlay, wait_ready
from harness.spark_cluster import SparkCluster
from overlay.client import Streams
from overlay.stream_client import AddStream

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[4]
ROWS = 3_500


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Path]:
    overlay = Overlay(tmp_path)
    wait_ready(overlay.start())
    with canopy.connect(tmp_path / "0") as client:
        client.ask(AddStream(0, "in", 2, "n", 1), Streams, PATIENCE)
        client.ask(AddStream(0, "out", 2, "n", 1), Streams, PATIENCE)
        client.append("in", ({"n": n, "who": f"w{n % 3}"} for n in range(ROWS)))
    yield tmp_path / "0"
    overlay.stop()


def run(folder: Path, *words: str, master: str = "local[2]") -> subprocess.CompletedProcess[str]:
    """A Python program with PySpark, in a process group of its own."""
    submit = f"--master {master} --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1"
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().home(folder)),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"{submit} --conf spark.sql.shuffle.partitions=2 pyspark-shell",
    }
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=900)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def read(node: Path, stream: str) -> list[object]:
    with canopy.connect(node) as client, client.read(stream, start="first") as reading:
        found: list[object] = []
        while any(reading.positions[shard] < end for shard, end in reading.ends.items()):
            found += [event.attributes["n"] for event in reading.take(PATIENCE)]
        return found


def test_each_row_is_written_once_by_a_query_that_is_killed_before_its_checkpoint(
    node: Path, tmp_path: Path
) -> None:
    query = ("-m", "tests.canopy.spark.cluster.killed_query", str(node), str(tmp_path / "c"))
    for batch in (0, 2):
        killed = run(tmp_path, *query, str(batch))
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert not (tmp_path / "c" / "commits" / str(batch)).exists()
        assert len(read(node, "out")) == min(ROWS, 1000 * (batch + 1))
    done = run(tmp_path, *query, "-1")
    assert done.returncode == 0, done.stderr
    counts = Counter(read(node, "out"))
    assert counts == Counter(range(ROWS))


def test_a_master_with_two_workers_reads_and_writes_the_same(node: Path, tmp_path: Path) -> None:
    with SparkCluster(tmp_path / "cluster", 2) as cluster:
        query = ("-m", "tests.canopy.spark.cluster.killed_query", str(node), str(tmp_path / "c"))
        done = run(tmp_path, *query, "-1", master=cluster.url)
        assert done.returncode == 0, done.stderr
        assert all(cluster.executors())
    assert Counter(read(node, "out")) == Counter(range(ROWS))


def test_the_examples_run(node: Path, tmp_path: Path) -> None:
    named = ("--node", str(node))
    counted = run(
        tmp_path,
        *("examples/spark/windowed_counts.py", "in", "who", "--selector", "n >= 500", *named),
        *("--window", "1 hour", "--once"),
    )
    assert counted.returncode == 0, counted.stderr
    total = sum(
        int(line.split("|")[3]) for line in counted.stdout.splitlines() if line.startswith("|2")
    )
    assert total == ROWS - 500
    table = tmp_path / "table"
    for _ in range(2):
        words = ("in", str(table), "--schema", "n BIGINT, who STRING", "--once", *named)
        done = run(tmp_path, "examples/spark/stream_to_table.py", *words)
        assert done.returncode == 0, done.stderr
    import pyarrow.dataset as dataset

    files = [str(path) for path in table.glob("*.parquet")]
    assert sorted(dataset.dataset(files).to_table()["n"].to_pylist()) == list(range(ROWS))
    with canopy.connect(node) as client, client.read("in", start="first", durable="d") as reading:
        reading.take(PATIENCE)
        reading.commit()
    joined = run(tmp_path, "examples/spark/join_traces.py", "in", str(node / "traces"), *named)
    assert joined.returncode == 0, joined.stderr
    assert "|consumer|after_ms|" in joined.stdout.replace(" ", "")


HISTORY = """
import sys
from pyspark.sql import SparkSession
import canopy.spark
spark = SparkSession.builder.getOrCreate()
folder, node = sys.argv[1:]
rows = canopy.spark.read_with_history(spark, folder, stream="in", node=node)
found = rows.groupBy("n", "late").count().collect()
print(sorted(row["n"] for row in found) == list(range(3600)), {row["count"] for row in found})
print(sum(row["late"] or 0 for row in found))
"""


def test_history_and_stream_have_each_row_once(node: Path, tmp_path: Path) -> None:
    folder = str(tmp_path / "history")
    named = ("--connect", str(node))
    assert main(["stream", "export", "in", "--format", "parquet", "-o", folder, *named]) == 0
    with canopy.connect(node) as client:
        client.append("in", ({"n": n, "late": 1} for n in range(ROWS, ROWS + 50)))
        assert main(["stream", "export", "in", "--format", "parquet", "-o", folder, *named]) == 0
        client.append("in", ({"n": n} for n in range(ROWS + 50, ROWS + 100)))
    done = run(tmp_path, "-c", HISTORY, folder, str(node))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["True {1}", "50"]
