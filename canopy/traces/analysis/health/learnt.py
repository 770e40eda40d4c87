"""The learnt tree: what a DecisionTreeClassifier of Spark has learnt from simulated faults.

It is trained by ``python -m bench.health.train`` on the windows of simulated nodes of which one had
a known fault, and kept as JSON beside this file. To apply it takes no Spark: each inner node
compares one feature of a window with a number, each leaf names a kind of fault, or `NONE`.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from canopy.traces.analysis.constants import HEALTH_WINDOW
from canopy.traces.analysis.health.history import NodeHistory
from canopy.traces.analysis.health.signals import crashes_by_window
from canopy.traces.analysis.health.windows import NodeWindow

MODEL: Final = Path(__file__).with_name("model.json")

NONE: Final = "none"
"""The label of a window without a fault."""

FEATURES: Final = (
    *("crashes", "records", "reporters", "resent", "late_ms", "round_trip_ms"),
    *("cpu", "memory", "disk", "clients", "queue"),
)
"""What the tree may ask of a window, in the order of the classifier's vector."""

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
    """A learnt tree and what it was learnt from."""

    tree: TreeNode
    labels: tuple[str, ...]
    windows: int  # it was trained on
    seeds: tuple[int, int]  # of the simulated runs: the first, and how many


@cache
def model() -> Model:
    """The model that comes with the program."""
    return msgspec.json.decode(MODEL.read_bytes(), type=Model)


def features(window: NodeWindow, crashes: int) -> dict[str, float]:
    """The features of a window by name; what no record says is 0."""
    least, most = window.resent or (0, 0)
    counted = {
        "crashes": float(crashes),
        "records": float(window.records),
        "reporters": float(len(window.reporters)),
        "resent": float(most - least),
    }
    return {name: counted.get(name, window.worst.get(name, 0.0)) for name in FEATURES}


def classify(tree: TreeNode, values: dict[str, float]) -> str:
    """The label at which the tree arrives."""
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
