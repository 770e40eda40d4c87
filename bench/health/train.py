"""Learns the tree of `canopy trace health` from simulated faults, and judges both trees.

    python -m bench.health.train            # simulate, learn, write model.json, judge
    python -m bench.health.train --judge    # judge the model that is there
    python -m bench.health.train --keep build/health    # keep the traces, and use those kept there

Runs with known faults (bench/experiments/health/faults.py) are simulated, their traces go
through the Spark job, and Spark's DecisionTreeClassifier learns which fault each window shows.
Other runs, with other seeds, are for judging: how often each kind is named where it is (recall),
and how often it is there where it is named (precision), by the paper's tree with its numbers, by
the same tree with the default thresholds, and by the learnt tree.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.command import parser
from bench.experiments.health.faults import KINDS, NONE, FaultyRun
from canopy.traces.analysis import PAPER, Thresholds, spark_session
from canopy.traces.analysis.health.history import History, NodeHistory
from canopy.traces.analysis.health.job import (
    FEATURES,
    MODEL,
    Model,
    TreeNode,
    classify,
    features,
)
from canopy.traces.analysis.health.signals import SIGNS, crashes_by_window, signals_of
from canopy.traces.analysis.health.windows import NodeWindow, read_windows

LEARNT_FROM: Final = 0
"""First seed of the runs that the tree learns from …"""

JUDGED_BY: Final = 1_000
"""… and of those by which it is judged."""

LABELS: Final = "labels.json"

DEPTH: Final = 12
"""Levels of the tree at most: a question for each kind of fault, and some more."""

LEAF: Final = 2
"""Windows of a leaf at least, so that no leaf is made for a single one."""

Sample = tuple[str, NodeHistory, int, int]
"""The fault, the node, the number of the window, and the crashes in it."""

Classifier = Callable[[Sample], str]


def simulate(seed: int, folder: Path) -> None:
    """Run this seed with its traces below `folder`, and write the faults to `LABELS` there."""

    def open_trace(path: str) -> Any:
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        return place.open("ab", buffering=0)

    print(f"simulating seed {seed}", file=sys.stderr)
    run = FaultyRun(seed, open_trace)
    run.run()
    labels = [(node, number, fault) for (node, number), fault in sorted(run.labels.items())]
    (folder / LABELS).write_bytes(msgspec.json.encode(labels))


def samples(spark: Any, seeds: Sequence[int], folder: Path) -> list[Sample]:
    """The labelled windows of these runs, as the Spark job sees them. Their traces lie below
    `folder`, or are made there."""
    history = History(Thresholds().window)
    labels: list[tuple[str, int, str]] = []
    for seed in seeds:
        place = folder / f"seed-{seed}"
        if not (place / LABELS).exists():
            shutil.rmtree(place, ignore_errors=True)
            simulate(seed, place)
        labels += msgspec.json.decode(
            (place / LABELS).read_bytes(), type=list[tuple[str, int, str]]
        )
    history.add(read_windows(spark, folder))
    until = history.until
    found = []
    for node, number, label in sorted(labels):
        known = history.nodes[node]
        crashes = crashes_by_window(known, until).get(number, 0)
        found.append((label, known, number, crashes))
    return found


def vector(sample: Sample) -> dict[str, float]:
    """The features of a sample."""
    _, node, number, crashes = sample
    return features(node.windows.get(number, NodeWindow()), crashes)


def learn(spark: Any, found: Sequence[Sample], seeds: Sequence[int]) -> Model:
    """Train Spark's DecisionTreeClassifier on these samples."""
    from pyspark.ml.classification import DecisionTreeClassifier
    from pyspark.ml.linalg import Vectors

    labels = (NONE, *KINDS)
    rows = [
        (float(labels.index(each[0])), Vectors.dense([vector(each)[name] for name in FEATURES]))
        for each in found
    ]
    frame = spark.createDataFrame(rows, ["label", "features"])
    learner = DecisionTreeClassifier(maxDepth=DEPTH, minInstancesPerNode=LEAF, maxBins=256, seed=1)
    root = learner.fit(frame)._java_obj.rootNode()
    return Model(tree_of(root, labels), labels, len(found), (seeds[0], len(seeds)))


def tree_of(node: Any, labels: Sequence[str]) -> TreeNode:
    """The tree below a node of Spark's model."""
    if node.subtreeDepth() == 0:
        return TreeNode(label=labels[int(node.prediction())])
    split = node.split()
    left, right = tree_of(node.leftChild(), labels), tree_of(node.rightChild(), labels)
    if not left.feature and left.label == right.label and not right.feature:
        return left
    feature = FEATURES[split.featureIndex()]
    return TreeNode(feature=feature, at_most=split.threshold(), left=left, right=right)


def by_rules(limits: Thresholds) -> Classifier:
    """The paper's tree: the first signal from its root."""

    def named(sample: Sample) -> str:
        _, node, number, crashes = sample
        seen = signals_of(node, number, crashes, limits)
        shown = (each.signal for each in SIGNS if each.name in seen)
        return next(shown, NONE)

    return named


def by_tree(tree: TreeNode) -> Classifier:
    """A classifier that names the fault which the learnt tree finds in a window, or "none"."""
    return lambda sample: classify(tree, vector(sample))


def judge(found: Sequence[Sample], classifiers: dict[str, Classifier]) -> list[dict[str, Any]]:
    """A row per kind of fault: windows that have it, and precision and recall of each tree."""
    named = {tree: [classifier(each) for each in found] for tree, classifier in classifiers.items()}
    rows = []
    for kind in (*KINDS, NONE):
        row: dict[str, Any] = {"fault": kind, "windows": sum(each[0] == kind for each in found)}
        for tree, answers in named.items():
            right = sum(
                a == kind and each[0] == kind for a, each in zip(answers, found, strict=True)
            )
            said = answers.count(kind)
            row[f"{tree}_precision"] = round(right / said, 3) if said else None
            row[f"{tree}_recall"] = round(right / row["windows"], 3) if row["windows"] else None
        rows.append(row)
    return rows


def main() -> None:
    """Learn unless an option says otherwise, judge, and print the rows as JSON."""
    chosen = parser(
        __doc__,
        judge=(False, "judge the model that is there"),
        runs=(8, "to learn from, and to judge by"),
        keep=(Path, "where traces are kept, and are taken from"),
    ).parse_args()
    learn_by = range(LEARNT_FROM, LEARNT_FROM + chosen.runs)
    judge_by = range(JUDGED_BY, JUDGED_BY + chosen.runs)
    with tempfile.TemporaryDirectory() as name, spark_session() as spark:
        folder: Path = chosen.keep or Path(name)
        if not chosen.judge:
            learnt = learn(spark, samples(spark, learn_by, folder / "learn"), learn_by)
            MODEL.write_bytes(msgspec.json.format(msgspec.json.encode(learnt), indent=1) + b"\n")
        learnt = msgspec.json.decode(MODEL.read_bytes(), type=Model)
        found = samples(spark, judge_by, folder / "judge")
    rules = {"paper": by_rules(PAPER), "default": by_rules(Thresholds())}
    print(json.dumps(judge(found, {**rules, "learnt": by_tree(learnt.tree)}), indent=1))


if __name__ == "__main__":
    main()
