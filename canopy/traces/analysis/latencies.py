"""Distributes latencies over the time of the run, hops, attributes, hosts and links.

Spark counts the judged pairs in bins of latency 0.5 % wide, so that a few thousand rows come to
this process however many pairs there are. Within a bin every latency counts as the bin's mean:
percentiles are exact where bins hold one value each, and within 0.5 % otherwise. Hosts and links
are compared by the records of an event's steps, of a share of the events (`STEPS_COMPARED`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from canopy.traces.analysis.constants import LEAST_MS, STEPS_COMPARED, TIME_BINS
from canopy.traces.analysis.output import table_of
from canopy.traces.analysis.tasks import in_one_task
from canopy.traces.analysis.verdict.deliveries import DUE, DUPLICATES, VERDICTS, VerdictCounts
from canopy.traces.analysis.walks import percentiles, tree_sizes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = Mapping[str, Any]

BIN: Final = (
    f"IF(latency_ms IS NULL, NULL, CAST(floor(200 * ln(greatest(latency_ms, {LEAST_MS}D))) AS INT))"
)
"""SQL: the bin of a latency: its logarithm in steps of 0.5 %."""

STEPS: Final = ("visit", "match", "forward", "arrive")
"""The kinds of records of an event on its way through hosts and links."""


class Spread(NamedTuple):
    """The `number` of durations, and in milliseconds their percentiles and the longest."""

    number: int
    p50: float
    p90: float
    p99: float
    most: float


class PairBins(NamedTuple):
    """Judged pairs by bin of latency, four times: by overlay (`name`) and `verdict`, by time of
    publication (`number`), by hops (`number`), and by attribute (`name`). Each row has `bin` (None
    without a delivery), `pairs`, `again` (deliveries beyond the first of a pair), `total` and
    `squares` (sums of the latencies and of their squares), and `most`."""

    verdicts: list[Row]
    times: list[Row]
    hops: list[Row]
    attributes: list[Row]


def pair_bins(spark: SparkSession, judged: DataFrame, first: float, width: float) -> PairBins:
    """Count the `judged` pairs. The run begins at `first` (seconds since 1970); a time bin is
    `width` seconds long."""
    counted = spark.sql(
        f"""
        SELECT stack(4, 'verdicts', coalesce(overlay, ''), verdict, NULL,
                        'times', NULL, NULL, time,
                        'hops', NULL, NULL, hops,
                        'attributes', attribute, NULL, NULL) AS (of, name, verdict, number),
               copies, latency_ms, bin
        FROM (SELECT *, {BIN} AS bin,
                CAST(greatest(least(floor((published - {first!r}D) / {width!r}D), {TIME_BINS - 1}),
                              0) AS INT) AS time
              FROM {{judged}})
        """,
        judged=judged.select(
            *("overlay", "verdict", "copies", "latency_ms", "hops", "attribute", "published")
        ),
    )
    rows = spark.sql(
        f"""
        SELECT of, name, verdict, number, bin, count(*) AS pairs,
               {DUPLICATES} AS again,
               sum(latency_ms) AS total, sum(latency_ms * latency_ms) AS squares,
               max(latency_ms) AS most
        FROM {{counted}} GROUP BY of, name, verdict, number, bin
        """,
        counted=in_one_task(counted),
    )
    sets: dict[str, list[Row]] = {name: [] for name in PairBins._fields}
    for row in rows.toArrow().to_pylist():
        sets[row["of"]].append(row)
    return PairBins(**sets)


def spread_of(bins: Iterable[Row]) -> Spread | None:
    """The spread of all latencies in these `bins`; None without any."""
    known = [row for row in bins if row["bin"] is not None]
    counts = sorted((row["total"] / row["pairs"], row["pairs"]) for row in known)
    if not counts:
        return None
    p50, p90, p99 = percentiles(counts, 0.5, 0.9, 0.99)
    most = max(row["most"] for row in known)
    return Spread(sum(pairs for _, pairs in counts), p50, p90, p99, most)


def by(bins: Iterable[Row], name: str) -> dict[Any, Spread]:
    """The spread by the column `name`, without pairs for which that is NULL."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in bins:
        if row[name] is not None:
            groups[row[name]].append(row)
    found = ((key, spread_of(rows)) for key, rows in groups.items())
    return {key: spread for key, spread in found if spread is not None}


LATENCY: Final = ("p50", "p90", "p99", "max", "mean", "variance", "deviation")


def count_verdicts(bins: Iterable[Row]) -> VerdictCounts:
    """Count the verdicts of judged pairs by bin of latency (`PairBins.verdicts`). The
    variance (in ms squared) and the standard deviation are of all deliveries, not of a sample."""
    rows = list(bins)
    found = dict.fromkeys(VERDICTS, 0)
    for row in rows:
        found[row["verdict"]] += row["pairs"]
    latency: dict[str, float | None] = dict.fromkeys(LATENCY)
    if spread := spread_of(rows):
        known = [row for row in rows if row["bin"] is not None]
        mean = sum(row["total"] for row in known) / spread.number
        variance = sum(row["squares"] for row in known) / spread.number - mean**2
        variance = max(variance, 0.0)
        values = (spread.p50, spread.p90, spread.p99, spread.most, mean, variance, variance**0.5)
        latency = dict(zip(LATENCY, values, strict=True))
    return VerdictCounts(
        expected=sum(found[kind] for kind in DUE),
        duplicates=sum(row["again"] for row in rows),
        latency_ms=latency,
        **found,
    )


@dataclass(frozen=True)
class Latencies:
    """The parts of the report about latencies."""

    over_time: dict[int, Spread]  # by time bin of the publication
    by_hops: dict[int, Spread]
    attributes: list[dict[str, Any]]
    """The busiest first: `attribute`, `visits`, `matches`, `recipients`, `tree_hops` (mean),
    `virtual_nodes` (at most; None where no map changed), `deliveries`, `p50_ms`, `p99_ms`."""
    hosts: list[dict[str, Any]]
    """The slowest first: `node`, `count`, `p50_ms`, `p90_ms`, `max_ms` from a visit's sending to
    its match there."""
    links: list[dict[str, Any]]
    """The slowest first: `sender`, `node`, and the same from a forward's sending to its arrival."""
    compared: float  # the share of the events that hosts and links are compared by

    def tables(self) -> dict[str, Any]:
        """The rows of attributes, hosts and links as Arrow tables, by name."""
        return {
            "attributes": table_of(self.attributes, ("attribute", *ATTRIBUTE_NUMBERS)),
            "hosts": table_of(self.hosts, ("node", *PLACE_NUMBERS)),
            "links": table_of(self.links, ("sender", "node", *PLACE_NUMBERS)),
        }


ATTRIBUTE_NUMBERS: Final = (
    *("visits", "matches", "recipients", "tree_hops", "virtual_nodes", "deliveries"),
    *("p50_ms", "p99_ms"),
)
NOT_COMPARED: Final[tuple[list[Row], float]] = ([], 1.0)
PLACE_NUMBERS: Final = ("count", "p50_ms", "p90_ms", "max_ms")


def in_parts(
    bins: PairBins, trees: Sequence[Row], tally: Iterable[Row], places: tuple[list[Row], float]
) -> Latencies:
    """All parts, of the `bins` of the judged pairs, the rows of `walks.counted_trees`, those of a
    `tally`, and `compared_places` or `NOT_COMPARED`."""
    rows, share = places
    return Latencies(
        by(bins.times, "number"),
        by(bins.hops, "number"),
        by_attribute(by(bins.attributes, "name"), trees, tree_sizes(tally)),
        [_place(row, "node") for row in rows if row["sender"] is None],
        [_place(row, "sender", "node") for row in rows if row["sender"] is not None],
        share,
    )


def _place(row: Row, *names: str) -> dict[str, Any]:
    return {name: row[name] for name in (*names, *PLACE_NUMBERS)}


def by_attribute(
    delivered: Mapping[str, Spread], trees: Iterable[Row], sizes: Mapping[str, int]
) -> list[dict[str, Any]]:
    """A row for each attribute by which events travelled, those with most visits first: of the
    latencies by attribute, the rows of `walks.counted_trees`, and the `tree_sizes`."""
    groups: dict[str | None, list[Row]] = defaultdict(list)
    for row in trees:
        groups[row["attribute"]].append(row)
    found = []
    for attribute, rows in groups.items():
        spread = delivered.get(attribute or "")
        visits = sum(row["visits"] for row in rows)
        found.append(
            {
                "attribute": attribute,
                "visits": visits,
                "matches": sum(row["matches"] for row in rows),
                "recipients": sum(row["recipients"] for row in rows),
                "tree_hops": sum(row["hops"] * row["visits"] for row in rows) / visits,
                "virtual_nodes": sizes.get(attribute or ""),
                "deliveries": spread.number if spread else 0,
                "p50_ms": spread.p50 if spread else None,
                "p99_ms": spread.p99 if spread else None,
            }
        )
    found.sort(key=lambda row: (-row["visits"], row["attribute"] or ""))
    return found


def compared_places(
    spark: SparkSession, records: DataFrame, tally: Iterable[Row], clocks_agree: bool
) -> tuple[list[Row], float]:
    """The latencies at hosts (`sender` None) and on links, the longest p90 first: rows of sender,
    node and `PLACE_NUMBERS`; and the share of the events that they are of.

    A host took from the last visit that was sent to it until its match, a link from the last
    forward until the arrival, of the same event and attribute.
    """
    total = sum(row["count"] for row in tally if row["kind"] in STEPS)
    parts = max(1, -(-total // STEPS_COMPARED))
    kinds = ", ".join(f"'{kind}'" for kind in STEPS)
    share = f"AND pmod(xxhash64(event), {parts}) = 0" if parts > 1 else ""
    clock = "time * 1e3D" if clocks_agree else "hlc / 1e6D"
    steps = spark.sql(
        f"""
        SELECT event, attribute, kind IN ('visit', 'forward') AS begins, {clock} AS at,
               CASE kind WHEN 'forward' THEN node WHEN 'arrive' THEN peer ELSE '' END AS sender,
               IF(kind IN ('visit', 'forward'), peer, node) AS node
        FROM {{records}} WHERE kind IN ({kinds}) AND event IS NOT NULL {share}
        """,
        records=records,
    )
    rows = spark.sql(
        """
        SELECT nullif(sender, '') AS sender, node, count(*) AS count, max(took) AS max_ms,
               percentile(took, array(0.5D, 0.9D)) AS shares
        FROM (SELECT sender, node, at - last_value(IF(begins, at, NULL), true) OVER (
                PARTITION BY event, attribute, sender, node ORDER BY at, NOT begins) AS took, begins
              FROM {steps} WHERE attribute IS NOT NULL AND sender IS NOT NULL)
        WHERE NOT begins AND took IS NOT NULL GROUP BY sender, node
        ORDER BY shares[1] DESC, sender, node
        """,
        steps=steps,
    ).collect()
    found: list[Row] = [
        {**row.asDict(), "p50_ms": row["shares"][0], "p90_ms": row["shares"][1]} for row in rows
    ]
    return found, 1 / parts
