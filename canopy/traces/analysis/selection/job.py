"""Spark matches all events: batch by batch in the workers' Python, few of them in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from canopy.traces.analysis import selection
from canopy.traces.analysis.constants import PAIRS_AT_ONCE, PAIRS_HERE
from canopy.traces.analysis.selection.matcher import Matcher
from canopy.traces.analysis.selection.trees import parse_attributes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEPT: Final = ("event", "published", "at", "overlay")
"""The columns of an event that its matches take over."""


def selected(published: DataFrame, trees: Sequence[str], small: bool) -> DataFrame:
    """event, published, at, overlay, tree: the number of each of `trees` that is true for the
    event.

    `published` has event, published, at, overlay and attributes (JSON text). A `small` run is
    matched in this process while it has few pairs, which saves the start of a worker.
    """
    events = published.select(*KEPT, "attributes")
    if small:
        rows = events.limit(PAIRS_HERE // max(len(trees), 1) + 1).toArrow()
        if len(rows) * len(trees) <= PAIRS_HERE:
            return _matched_here(published.sparkSession, rows, trees)
    lists = _by_batches(published.sparkSession, trees)(events.attributes)
    return events.select(*KEPT, lists.alias("trees")).selectExpr(*KEPT, "explode(trees) AS tree")


def _matched_here(spark: Any, rows: Any, trees: Sequence[str]) -> DataFrame:
    import numpy as np
    import pyarrow as pa

    texts = rows["attributes"].to_pylist()
    offsets, numbers = _lists(Matcher(trees), texts)
    places = np.repeat(np.arange(len(texts)), np.diff(offsets))
    found = (
        rows.select(KEPT)
        .take(pa.array(places))
        .append_column("tree", pa.array(numbers, pa.int32()))
    )
    # Spark takes a chunk without rows for the end (`tasks.frame_of_table`).
    frame: DataFrame = spark.createDataFrame(found.combine_chunks())
    return frame


def _by_batches(spark: Any, trees: Sequence[str]) -> Any:
    """The function of columns over Arrow batches, which a worker without Canopy can load."""
    from pyspark import cloudpickle
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]

    cloudpickle.register_pickle_by_value(selection)  # type: ignore[no-untyped-call]
    shared = spark.sparkContext.broadcast({"trees": list(trees)})
    return arrow_udf(over_batches(shared), "array<int>")


def over_batches(shared: Any) -> Any:
    """Return the function from batches of attributes to batches of lists of numbers of trees.

    The trees are in the `value` of `shared`, a dictionary that a worker gets once and keeps for
    all of its tasks. So is the matcher: making one of 100,000 trees takes six seconds.
    """
    import pyarrow as pa

    def matched(batches: Iterator[Any]) -> Iterator[Any]:
        held = shared.value
        if "matcher" not in held:
            held["matcher"] = Matcher(held["trees"])
        matcher = held["matcher"]
        size = max(PAIRS_AT_ONCE // max(len(held["trees"]), 1), 1)  # as if all of them matched
        for texts in batches:
            lists, done = [], 0
            while done < len(texts):
                chosen = texts.slice(done, size)
                offsets, numbers = _lists(matcher, chosen.to_pylist())
                lists.append(pa.ListArray.from_arrays(offsets, numbers))
                done += len(chosen)
                # All ranges are looked up in each of these parts, however few events match.
                size = min(2 * size, PAIRS_AT_ONCE // (len(numbers) // len(chosen) + 1))
            yield pa.concat_arrays(lists)

    # Spark asks the types which kind of function this is: they may not be strings.
    matched.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
    return matched


def _lists(matcher: Matcher, texts: Sequence[str | None]) -> tuple[Any, Any]:
    """For each event the numbers of the selectors that are true: offsets, numbers."""
    import numpy as np

    found = list(matcher.matches([parse_attributes(text) for text in texts]))
    places = np.concatenate([at for at, _ in found] or [np.zeros(0, dtype=np.int64)])
    numbers = np.concatenate([number for _, number in found] or [np.zeros(0, dtype=np.int64)])
    counts = np.bincount(places, minlength=len(texts))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return offsets, numbers[np.argsort(places, kind="stable")].astype(np.int32)
