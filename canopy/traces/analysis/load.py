"""The work of each node: data-plane messages, matches, deliveries, and the rest.

The `stop` record of a node has the numbers of messages that it sent. A node that was killed has
none, and then its data-plane messages are counted from its records: every `walk_hop`, `visit` and
`forward` is one message. A node that was killed and started again has both, so that each run
of its process is counted separately.

Counted records are of the sampled events only, counters of all (`sample` in the first record of
each file says what share of the events is traced).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, pvariance
from typing import TYPE_CHECKING, Any, Final

from canopy.traces.analysis.constants import INCIDENT_WINDOW, INCIDENTS_SHOWN
from canopy.traces.analysis.parsing.blocks import CORRUPT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Row = dict[str, Any]

COUNTED: Final[dict[str, tuple[str, ...]]] = {
    "published": ("publish",),
    "matches": ("match",),
    "deliveries": ("deliver",),
    "arrivals": ("arrive",),
    "drops": ("drop",),
    "refused": ("refused",),
    "steps": ("walk_hop", "visit", "forward"),
}
"""Numbers of records by kinds; `steps` are one data-plane message each."""

STARTED: Final = ("name", "address", "routing")  # which the `start` record has
STOPPED: Final = ("data_messages", "other_messages", "bytes")  # which the `stop` record has

WORK: Final = ("data_messages", "deliveries", "matches")
"""The columns of the load table whose distribution over nodes `spread_of` computes."""


def spread_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
    """`mean`, `variance` (of all nodes, not of a sample) and standard `deviation` of each kind of
    `WORK` over the nodes of the load table; None without nodes."""
    spread: dict[str, dict[str, float | None]] = {}
    for kind in WORK:
        values = [float(row[kind]) for row in rows]
        mean = fmean(values) if values else None
        variance = pvariance(values) if values else None
        deviation = None if variance is None else variance**0.5
        spread[kind] = {"mean": mean, "variance": variance, "deviation": deviation}
    return spread


def load_rows(tally: Iterable[Row], since: float = 0.0) -> list[Row]:
    """One row per node that wrote anything, by the rows of a `tally`. Of a run that began before
    `since` (seconds) there may be few of its earlier records, and its counters, which are of all,
    are not taken.

    node, name, address, published, matches, deliveries, arrivals, drops, refused, data_messages,
    other_messages, bytes, runs, counted (whether data_messages had to be counted from records,
    at least for one run), first and last (seconds), sample, routing.
    """
    nodes: dict[str, dict[int, list[Row]]] = {}
    for row in tally:
        if row["kind"] != CORRUPT:
            nodes.setdefault(row["node"], {}).setdefault(row["run"], []).append(row)
    return [
        _of_node(node, [_of_run(rows, since) for _, rows in sorted(runs.items())])
        for node, runs in nodes.items()
    ]


def _of_run(rows: list[Row], since: float) -> Row:
    def every(name: str, *kinds: str) -> list[Any]:
        return [row[name] for row in rows if row["kind"] in kinds and row[name] is not None]

    first = min(row["min_time"] for row in rows)
    found: Row = {name: sum(every("count", *kinds)) for name, kinds in COUNTED.items()}
    found["matches"] += sum(every("sizes", "unmatched"))
    found |= {name: max(every(name, "start"), default=None) for name in STARTED}
    for name in STOPPED:
        said = every(name, "stop") if first >= since else []
        found[name] = max(said, default=None)
    found["sample"] = min(every("sample", "file"), default=None)
    return found | {"first": first, "last": max(row["max_time"] for row in rows)}


def _of_node(node: str, runs: list[Row]) -> Row:
    """The row of a node with these `runs`, in their order."""

    def known(name: str) -> list[Any]:
        return [run[name] for run in runs if run[name] is not None]

    newest = {name: (known(name) or [None])[-1] for name in ("name", "address")}
    return {
        "node": node,
        **newest,
        **{name: sum(run[name] for run in runs) for name in COUNTED if name != "steps"},
        "data_messages": sum(
            run["steps"] if run["data_messages"] is None else run["data_messages"] for run in runs
        ),
        **{name: sum(known(name)) for name in ("other_messages", "bytes")},
        "runs": len(runs),
        "counted": any(run["data_messages"] is None for run in runs),
        "first": min(known("first")),
        "last": max(known("last")),
        "sample": min(known("sample"), default=None),
        "routing": max(known("routing"), default=None),
    }


COLUMNS: Final = (
    *("node", "name", "address", *(name for name in COUNTED if name != "steps"), *STOPPED),
    *("runs", "counted", "first", "last", "sample", "routing"),
)
"""The columns of the table of loads."""


# --- losses, elections and recoveries of nodes and clusters during the run (P8) ---
#
# Each node writes an ``incident`` record for what it saw itself, so that the loss of one node is
# reported by all that communicated with it. Here the reports of several nodes within
# `INCIDENT_WINDOW` become one row.

INCIDENT_KINDS: Final = (
    "link down",
    "silent",
    "elected",
    "fenced",
    "member gone",
    "identity conflict",
    "back",
)
"""The kinds that the report shows, in the order of their lanes; `role` and `joined` are left out,
since every run has many of them."""


def incidents(spark: SparkSession, records: DataFrame) -> list[dict[str, Any]]:
    """Rows in the order of time: time (when it was first seen), what, node (the one concerned),
    cluster, epoch, reason, seen (by how many nodes)."""
    kinds = ", ".join(f"'{kind}'" for kind in INCIDENT_KINDS)
    frame = spark.sql(
        f"""
        WITH reported AS (
          SELECT time, node, what, peer, coalesce(name, '') AS cluster,
                 coalesce(epoch, 0) AS epoch, reason,
                 time - lag(time, 1, -1e18D) OVER (
                   PARTITION BY what, peer, coalesce(epoch, 0) ORDER BY time
                 ) > {INCIDENT_WINDOW!r}D AS begins
          FROM {{records}} WHERE kind = 'incident' AND what IN ({kinds})
        ), numbered AS (
          SELECT *, sum(CAST(begins AS INT)) OVER (
                   PARTITION BY what, peer, epoch ORDER BY time
                 ) AS number
          FROM reported
        )
        SELECT min(time) AS time, what, peer AS node, max(cluster) AS cluster, epoch,
               min_by(reason, time) AS reason, count(DISTINCT node) AS seen
        FROM numbered GROUP BY what, peer, epoch, number
        ORDER BY time, what, peer LIMIT {INCIDENTS_SHOWN}
        """,
        records=records,
    )
    return [row.asDict() for row in frame.collect()]
