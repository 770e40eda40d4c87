"""Describes the ways of events to their trees: walks (C3, C4, C10), lookups on the ring (C5), the
tree (C7).

A walk searches each of its attributes separately, so everything is counted per (walk, attribute). A
walk *hits* when it meets an access point. Where the publisher's own table has one, at hop 0, there
was no need to walk, and it is counted apart. After a walk without a hit the attribute is looked up
on the ring, which finds the tree or no subscriptions. The publisher records the result (`located`
by walk or ring, `absent`), and does not search for a known entry again.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def walk_table(spark: SparkSession, records: DataFrame) -> DataFrame:
    """One row per (walk, attribute).

    node and started of its start, hop_limit, hops walked, hit_hop (NULL without a hit), blocked,
    recovered, missed (whether its end without a hit was recorded), findable (whether the
    attribute's tree was ever found: without subscriptions no walk can hit).
    """
    return spark.sql(
        """
        WITH planted AS (
          SELECT DISTINCT attribute AS planted_for FROM {records}
          WHERE kind IN ('walk_hit', 'located', 'match', 'unmatched', 'map'))
        SELECT walk, attribute,
               min_by(node, time) FILTER (WHERE kind = 'walk_start') AS node,
               min(time) FILTER (WHERE kind = 'walk_start') AS started,
               min(hops) FILTER (WHERE kind = 'walk_start') AS hop_limit,
               count_if(kind = 'walk_hop') AS hops,
               min(hop) FILTER (WHERE kind = 'walk_hit') AS hit_hop,
               count_if(kind = 'walk_hit') > 0 AS hit,
               count_if(kind = 'walk_blocked') AS blocked,
               count_if(kind = 'walk_recovered') AS recovered,
               count_if(kind = 'walk_miss') > 0 AS missed,
               bool_or(planted_for IS NOT NULL) AS findable
        FROM {records} LEFT JOIN planted ON attribute = planted_for
        WHERE kind LIKE 'walk|_%' ESCAPE '|' GROUP BY walk, attribute
        """,
        records=records,
    )


def tree_table(spark: SparkSession, records: DataFrame) -> DataFrame:
    """One row per event and attribute that travelled to a tree: hops, matches, recipients.

    `hops` counts from the publisher. An event that is published on the host itself has 0 hops.
    `matches` are those by virtual nodes that found somebody interested; records of version 2 have
    others, too, which are left out.
    """
    return spark.sql(
        """
        SELECT event, attribute,
               coalesce(max(hop) FILTER (WHERE kind = 'visit'), 0) AS hops,
               count_if(kind = 'match') AS matches,
               coalesce(sum(recipients) FILTER (WHERE kind = 'match'), 0) AS recipients
        FROM {records} WHERE kind = 'visit' OR kind = 'match' AND recipients > 0
        GROUP BY event, attribute
        """,
        records=records,
    )


@dataclass(frozen=True)
class WalkCounts:
    """The numbers of searches for attributes and of their results."""

    at_once: int  # searches that ended in the publisher's own table; no walk of those below
    started: int
    hits: int
    missed: int
    unfinished: int  # neither a hit nor a miss was recorded
    findable: int  # walks for an attribute that has a tree
    hit_rate: float | None  # of all walks
    by_walk: int  # searches that ended so: `located` records …
    by_ring: int
    absent: int  # … and those of attributes without subscriptions
    blocked: int
    recovered: int
    messages: int  # steps of walks, one per attribute, of the data plane
    hops: dict[str, float | None]  # mean, p50, p99, max of the hits
    hop_counts: tuple[tuple[int, int], ...]  # (hops of the hit, walks)
    trees: Mapping[str, int]
    """By attribute the most virtual nodes that its tree was cut into, as far as a change of its map
    is recorded."""

    @property
    def asked_at_once(self) -> int:
        """Searches for trees that the ring found without a walk before: all but those whose walk
        missed."""
        return max(0, self.by_ring - (self.findable - self.hits))


def counted_walks(walks: DataFrame) -> list[dict[str, Any]]:
    """The walks of `walk_table` counted by hit_hop, hit, missed and findable: rows with `n`, and
    the sums of hops, blocked and recovered."""
    sums = ", ".join(f"sum({name}) AS {name}" for name in ("hops", "blocked", "recovered"))
    keys = "hit_hop, hit, missed, findable"
    return _rows(walks, f"SELECT {keys}, count(*) AS n, {sums} FROM {{table}} GROUP BY {keys}")


def counted_trees(trees: DataFrame) -> list[dict[str, Any]]:
    """The rows of `tree_table` counted by attribute and hops: `visits`, and the sums of matches and
    recipients."""
    return _rows(
        trees,
        """
        SELECT attribute, hops, count(*) AS visits, sum(matches) AS matches,
               sum(recipients) AS recipients FROM {table} GROUP BY attribute, hops
        """,
    )


def _rows(table: DataFrame, query: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in table.sparkSession.sql(query, table=table).collect()]


def count_walks(
    groups: Sequence[Mapping[str, Any]], tally: Iterable[Mapping[str, Any]]
) -> WalkCounts:
    """Count the walks, of the rows of `counted_walks`, and the results that publishers recorded,
    which are in the rows of a `tally`."""
    walked = [row for row in groups if row["hit_hop"] != 0]
    by_hops: Counter[int] = Counter()
    for row in walked:
        by_hops[row["hit_hop"] or 0] += row["n"]
    del by_hops[0]  # walks without a hit
    hop_counts = sorted(by_hops.items())
    started, hits = _total(walked, "n"), by_hops.total()
    missed = _total((row for row in groups if row["missed"] and not row["hit"]), "n")
    results: Counter[tuple[str, str | None]] = Counter()
    tally = list(tally)
    for row in tally:
        if row["kind"] in ("located", "absent"):
            results[row["kind"], row["by"]] += row["count"]
    return WalkCounts(
        at_once=_total(groups, "n") - started,
        started=started,
        hits=hits,
        missed=missed,
        unfinished=started - hits - missed,
        findable=_total((row for row in walked if row["findable"]), "n"),
        hit_rate=hits / started if started else None,
        by_walk=results["located", "walk"],
        by_ring=results["located", "ring"],
        absent=results["absent", None],
        blocked=_total(groups, "blocked"),
        recovered=_total(groups, "recovered"),
        messages=_total(groups, "hops") + _total(groups, "recovered"),
        hops=hops_of(hop_counts),
        hop_counts=tuple(hop_counts),
        trees=tree_sizes(tally),
    )


def tree_sizes(tally: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The most virtual nodes of each tree, by attribute, from the rows of a `tally`."""
    sizes: dict[str, int] = {}
    for row in tally:
        if row["kind"] == "map" and row["attribute"] is not None:
            tree = row["attribute"]
            sizes[tree] = max(sizes.get(tree, 0), row["max_size"] or 0)
    return sizes


def _total(rows: Iterable[Mapping[str, Any]], name: str) -> int:
    return sum(row[name] for row in rows)


@dataclass(frozen=True)
class WalkStep:
    """A message of a walk: from where, to where; `again`: after it was blocked (C4)."""

    hop: int
    node: str
    peer: str
    again: bool


@dataclass(frozen=True)
class ExampleWalk:
    """One walk for one attribute, step by step."""

    attribute: str
    limit: int
    steps: tuple[WalkStep, ...]
    host: str | None  # the access point that it met; None: it missed


def example_walk(walks: DataFrame, records: DataFrame) -> ExampleWalk | None:
    """The walk of `walk_table` that shows most: one that was blocked, went on and hit, if there is
    any; else one that hit, or the longest. None if no walk took a step."""
    rank = "CASE WHEN hit AND recovered = 1 THEN 0 WHEN recovered > 0 THEN 1 WHEN hit THEN 2 END"
    found = _rows(
        walks,
        f"""
        SELECT walk, attribute, hop_limit FROM {{table}} WHERE hops > 0 AND started IS NOT NULL
        ORDER BY coalesce({rank}, 3), hops DESC, walk, attribute LIMIT 1
        """,
    )
    if not found:
        return None
    (row,) = found
    mine = records.where((records.walk == row["walk"]) & (records.attribute == row["attribute"]))
    seen = mine.select("kind", "hop", "node", "peer").collect()
    steps = [
        WalkStep(each["hop"], each["node"], each["peer"], each["kind"] == "walk_recovered")
        for each in seen
        if each["kind"] in ("walk_hop", "walk_recovered")
    ]
    hosts = [each["peer"] for each in seen if each["kind"] == "walk_hit"]
    return ExampleWalk(
        row["attribute"],
        row["hop_limit"],
        tuple(sorted(steps, key=lambda step: step.hop)),
        hosts[0] if hosts else None,
    )


@dataclass(frozen=True)
class TreeHops:
    """Data-plane messages from the publisher to the virtual nodes that match the event."""

    visits: int
    hops: dict[str, float | None]  # mean, p50, p99, max
    hop_counts: tuple[tuple[int, int], ...]  # (hops, pairs of event and attribute)


def count_trees(groups: Iterable[Mapping[str, Any]]) -> TreeHops:
    """Count the hops of all events on their way to trees, of the rows of `counted_trees`."""
    visits: Counter[int] = Counter()
    for row in groups:
        visits[row["hops"]] += row["visits"]
    counts = sorted(visits.items())
    return TreeHops(visits.total(), hops_of(counts), tuple(counts))


def hops_of(counts: Sequence[tuple[int, int]]) -> dict[str, float | None]:
    """mean, p50, p99 and max of (hops, number) pairs that are sorted."""
    if not counts:
        return {"mean": None, "p50": None, "p99": None, "max": None}
    p50, p99, most = percentiles(counts, 0.5, 0.99, 1.0)
    mean = sum(value * count for value, count in counts) / sum(count for _, count in counts)
    return {"mean": mean, "p50": p50, "p99": p99, "max": most}


def percentiles(counts: Sequence[tuple[float, int]], *shares: float) -> list[float]:
    """These percentiles of (value, number) pairs, at least one, that are sorted by value: linear
    between the two nearest ranks."""
    ends = list(accumulate(count for _, count in counts))

    def at(rank: int) -> float:
        return counts[bisect_right(ends, rank)][0]

    found = []
    for share in shares:
        place = share * (ends[-1] - 1)
        low, high = at(math.floor(place)), at(math.ceil(place))
        found.append(float(low + (high - low) * (place - math.floor(place))))
    return found
