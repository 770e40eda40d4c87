"""From traces to a health file, once or again and again."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import asdict, replace

from canopy.traces.analysis.constants import HEALTH_WINDOW, AnalysisError
from canopy.traces.analysis.health.history import History, NodeHistory
from canopy.traces.analysis.health.signals import Thresholds, crashes_by_window, find
from canopy.traces.analysis.health.windows import NodeWindow, TraceTails, read_windows
from canopy.traces.analysis.read import check_folder
from canopy.traces.analysis.spark.session import OnTasks, job_errors, spark_session, watched_tasks
from canopy.traces.analysis.tasks import OnProgress, silent
from canopy.traces.health_file import HealthFile, NodeFinding, encode_health

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# --- the learnt tree: what a DecisionTreeClassifier of Spark has learnt from simulated faults ---
#
# It is trained by ``python -m bench.health.train`` on the windows of simulated nodes of which one
# had a known fault, and kept as JSON beside this file. To apply it takes no Spark: each inner node
# compares one feature of a window with a number, each leaf names a kind of fault, or `NONE`.

MODEL: Final = Path(__file__).with_name("model.json")

NONE: Final = "none"
"""The label of a window without a fault."""

FEATURES: Final = (
    *("crashes", "records", "reporters", "resent", "late_ms", "round_trip_ms"),
    *("cpu", "memory", "disk", "clients", "queue"),
)
"""The features of a window, in the order of the classifier's vector."""

SEVERITIES: Final = {
    NONE: 0,
    **dict.fromkeys(("memory", "cpu", "disk", "clients"), 1),
    **dict.fromkeys(("log", "heartbeats", "latency"), 2),
    "crash": 3,
}
"""Tensor's threat level of each label."""


class TreeNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A leaf with its `label`, or a question: where the feature is `at_most` this the answer lies
    to the `left`, else to the `right`."""

    label: str = ""
    feature: str = ""
    at_most: float = 0.0
    left: TreeNode | None = None
    right: TreeNode | None = None


class Model(msgspec.Struct, frozen=True):
    """A learnt tree, and the data that it was learnt from."""

    tree: TreeNode
    labels: tuple[str, ...]
    windows: int  # it was trained on
    seeds: tuple[int, int]  # of the simulated runs: the first, and how many


@cache
def model() -> Model:
    """The model that comes with the program."""
    return msgspec.json.decode(MODEL.read_bytes(), type=Model)


def features(window: NodeWindow, crashes: int) -> dict[str, float]:
    """Return the features of a window by name; 0 where no record has a value."""
    least, most = window.resent or (0, 0)
    counted = {
        "crashes": float(crashes),
        "records": float(window.records),
        "reporters": float(len(window.reporters)),
        "resent": float(most - least),
    }
    return {name: counted.get(name, window.worst.get(name, 0.0)) for name in FEATURES}


def classify(tree: TreeNode, values: dict[str, float]) -> str:
    """Return the label of the leaf that the decision tree reaches with these values."""
    while tree.left is not None and tree.right is not None:
        tree = tree.left if values[tree.feature] <= tree.at_most else tree.right
    return tree.label


def judge(tree: TreeNode, node: NodeHistory, until: float, seconds: float) -> str:
    """The worst label of the node's windows within `seconds` before `until`; of equally bad ones
    the most frequent."""
    oldest = int((until - seconds) // HEALTH_WINDOW)
    crashes = crashes_by_window(node, until)
    found = Counter(
        classify(tree, features(node.windows.get(number, NodeWindow()), crashes.get(number, 0)))
        for number in sorted({*node.windows, *crashes})
        if number > oldest
    )
    return max(found, key=lambda label: (SEVERITIES[label], found[label]), default=NONE)


HEALTH_STAGES: Final = ("starting Spark", "reading the traces", "writing the health file")
"""The stages of a health job, in order."""


def find_health(
    traces: Path,
    out: Path,
    limits: Thresholds | None = None,
    master: str | None = None,
    progress: OnProgress = silent,
    *,
    by_learnt: bool = False,
    session: SparkSession | None = None,
    on_tasks: OnTasks | None = None,
) -> HealthFile:
    """Compute the health of all nodes from the traces, write it to the file `out` and return it.

    `limits` are the thresholds; with `by_learnt` severities are those of the learnt tree. `master`
    `session` and `on_tasks` as in `analyze`. Raises AnalysisError, with what to do.
    """
    input_bytes = check_folder(traces)
    check_out(out)
    progress(HEALTH_STAGES[0], 0, len(HEALTH_STAGES))
    limits = limits or Thresholds()
    with nullcontext(session) if session else spark_session(master, input_bytes) as spark:
        progress(HEALTH_STAGES[1], 1, len(HEALTH_STAGES))
        history = History(limits.window)
        with job_errors(), watched_tasks(spark, on_tasks):
            history.add(read_windows(spark, traces))
    progress(HEALTH_STAGES[2], 2, len(HEALTH_STAGES))
    found = findings(history, limits, by_learnt)
    write(out, found)
    progress("done", len(HEALTH_STAGES), len(HEALTH_STAGES))
    return found


class Follower:
    """Computes the health of nodes round by round, each from the new records."""

    def __init__(
        self,
        spark: SparkSession,
        traces: Path,
        out: Path,
        limits: Thresholds,
        *,
        by_learnt: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` gives seconds since 1970."""
        self._spark = spark
        self._out = out
        self._limits = limits
        self._by_learnt = by_learnt
        self._history = History(limits.window)
        self._tails = TraceTails(traces, limits.window, clock)

    def round(self) -> tuple[HealthFile | None, int]:
        """Read the new records, and write the health file. Returns the file with the number of
        bytes that were read; None without new records: then the existing file becomes stale. Raises
        AnalysisError."""
        # Where the machines of a cluster see it, and hidden, lest it be taken for traces.
        with tempfile.TemporaryDirectory(prefix=".canopy-", dir=self._out.parent) as name:
            new = self._tails.copy_new(Path(name))
            if not new:
                return None, 0
            with job_errors():
                self._history.add(read_windows(self._spark, Path(name)))
        found = findings(self._history, self._limits, self._by_learnt)
        write(self._out, found)
        return found, new


@contextmanager
def following(
    traces: Path,
    out: Path,
    limits: Thresholds,
    master: str | None = None,
    *,
    by_learnt: bool = False,
) -> Iterator[Follower]:
    """A follower with a Spark session of its own, within the `with`. Raises AnalysisError."""
    input_bytes = check_folder(traces)
    check_out(out)
    with spark_session(master, input_bytes) as spark:
        yield Follower(spark, traces, out, limits, by_learnt=by_learnt)


def findings(history: History, limits: Thresholds, by_learnt: bool = False) -> HealthFile:
    """The content of a health file for the nodes of `history`."""
    until = history.until
    tree = model().tree
    nodes: dict[str, NodeFinding] = {}
    for node, known in sorted(history.nodes.items()):
        learnt = judge(tree, known, until, limits.window)
        found = replace(find(known, until, limits), learnt=learnt)
        if by_learnt:
            severity = SEVERITIES[learnt]
            reason = f"{learnt}, by the learnt tree" if severity else ""
            found = replace(found, severity=severity, reason=reason)
        nodes[node] = found
    return HealthFile(until, limits.window, nodes, asdict(limits), time.time())


def check_out(out: Path) -> None:
    """Raise AnalysisError unless the health file `out` can be written."""
    if out.is_dir():
        raise AnalysisError(f"the output {out} is a folder; name a file, such as health.json")
    if not out.parent.is_dir() or not os.access(out.parent, os.W_OK):
        raise AnalysisError(f"the folder {out.parent} of the output cannot be written")


def write(out: Path, file: HealthFile) -> None:
    """Replace `out` atomically, so that a node reads the former file or this one. Raises
    AnalysisError."""
    draft = out.with_name(f".{out.name}.new")
    try:
        draft.write_bytes(encode_health(file))
        draft.replace(out)
    except OSError as error:
        raise AnalysisError(f"the health file {out} cannot be written: {error}") from error
