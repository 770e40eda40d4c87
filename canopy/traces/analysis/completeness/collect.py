"""Spark gathers what `holes` and `overlays` conclude from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from canopy.traces.analysis.completeness.facts import FileFacts, FileGap, PeerFacts
from canopy.traces.analysis.completeness.gaps import gaps_of
from canopy.traces.analysis.completeness.holes import RunFacts, runs_of
from canopy.traces.analysis.completeness.overlays import OverlayFacts, overlays_of
from canopy.traces.analysis.constants import CLOCKS_AGREE, NANOSECONDS
from canopy.traces.analysis.tasks import in_one_task, kept

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FACTS = f"""
    SELECT file, node, run, max(overlay) AS overlay, min(sample) AS sample,
      coalesce(max(lost), 0) AS lost, count(n) AS records, min(n) AS first_n, max(n) AS last_n,
      min(hlc) AS first_hlc, max(hlc) AS last_hlc, min(time) AS first, max(time) AS last,
      percentile_approx(time - hlc / {NANOSECONDS}, 0.5) AS offset,
      bool_or(kind = 'stop') AS stopped,
      count_if(kind = 'drop' AND client IS NOT NULL) AS discarded,
      count_if(kind IN ('publish', 'subscribe')) AS acts
    FROM {{records}} WHERE kind <> 'corrupt' GROUP BY file, node, run
"""

PEERS = """
    SELECT {by} node, peer,
      bool_or(kind <> 'incident' AND (kind <> 'link' OR reason IN ('up', 'resumed'))) AS met,
      max(hlc) FILTER (WHERE kind = 'arrive') AS heard,
      max(hlc) FILTER (WHERE kind = 'incident') AS lost, count_if(kind = 'forward') AS forwards
    FROM {{records}}
    WHERE peer <> '' AND (kind IN ('visit', 'forward', 'arrive', 'walk_hop', 'link')
      OR kind = 'incident' AND what = 'link down')
    GROUP BY {by} node, peer
"""
"""SQL: a row for each two nodes, or for each two and what stands in the place of `by`."""


@dataclass(frozen=True)
class Completeness:
    """What is there, and what is absent."""

    overlays: tuple[OverlayFacts, ...]
    copies: int
    """Records that are there more than once, and count once."""
    contradictions: dict[str, int]
    """By node id, the numbers of its records under which there are different ones."""

    @property
    def runs(self) -> list[RunFacts]:
        """All runs of all overlays."""
        return [run for overlay in self.overlays for run in overlay.runs]

    @property
    def sample(self) -> float:
        """The share of the events that all nodes keep."""
        return min((overlay.sample for overlay in self.overlays), default=1.0)

    @property
    def discarded(self) -> int:
        """Records of what nodes dropped since a program did not read it."""
        return sum(run.discarded for run in self.runs)

    def kept_by_all(self) -> str:
        """SQL: whether a record names no event, or one that all nodes of its overlay keep."""
        conditions = ["true"]
        for overlay in self.overlays:
            if len({run.sample for run in overlay.runs}) > 1:
                nodes = ", ".join(sorted(sql_text(node) for node in overlay.nodes))
                limit = int(overlay.sample * 2**32)
                conditions.append(
                    f"(event IS NULL OR node NOT IN ({nodes}) "
                    f"OR crc32(CAST(event AS BINARY)) < {limit})"
                )
        return " AND ".join(conditions)

    @property
    def whole(self) -> list[str]:
        """The runs (`node.run`) of which no record is absent."""
        return [f"{run.node}.{run.run}" for run in self.runs if run.is_whole]

    @property
    def clocks_agree(self) -> bool:
        """Whether latencies can be taken from the nodes' wall clocks."""
        return all(abs(ahead) < CLOCKS_AGREE for ahead in self.clock_offsets().values())

    def clock_offsets(self) -> dict[str, float]:
        """By node id, the seconds by which its wall clock is ahead of the median node's."""
        found = {run.node: run.offset for run in self.runs if run.offset is not None}
        middle = sorted(found.values())[len(found) // 2] if found else 0.0
        return {node: offset - middle for node, offset in found.items()}


def collect(
    spark: SparkSession,
    records: DataFrame,
    *,
    begins_within: bool = False,
    has_corrupt: bool = True,
) -> tuple[Completeness, DataFrame]:
    """What `records` (of `read.store_records`) lack; and the records, each once. `begins_within`:
    earlier records were not read. `has_corrupt`: some lines may be none."""
    peers = spark.sql(PEERS.format(by=""), records=records).collect()
    facts = Facts(
        *_of_files(spark, records),
        [PeerFacts(**row.asDict()) for row in peers],
        _bad(records) if has_corrupt else {},
    )
    return conclude(spark, facts, records, begins_within=begins_within)


@dataclass(frozen=True)
class Facts:
    """What records say of files and nodes."""

    files: Sequence[FileFacts]
    gaps: Sequence[FileGap]
    peers: Sequence[PeerFacts]
    corrupt: Mapping[str, int]
    """Unreadable lines, by file."""


def gather_by_file(spark: SparkSession, records: DataFrame) -> dict[str, Facts]:
    """The facts of each file that `records` are from, by its name there."""
    files, gaps = _of_files(spark, records)
    bad = _bad(records)
    by_file = spark.sql(PEERS.format(by="file,"), records=records).collect()
    peers: dict[str, list[PeerFacts]] = {}
    for row in by_file:
        values = row.asDict()
        peers.setdefault(values.pop("file"), []).append(PeerFacts(**values))
    runs: dict[str, list[FileFacts]] = {name: [] for name in bad}
    for each in files:
        runs.setdefault(each.file, []).append(each)
    torn: dict[str, list[FileGap]] = {}
    for gap in gaps:
        torn.setdefault(gap.file, []).append(gap)
    return {
        name: Facts(
            *(runs[name], torn.get(name, []), peers.get(name, [])),
            {name: bad[name]} if name in bad else {},
        )
        for name in sorted(runs)
    }


def _of_files(
    spark: SparkSession, records: DataFrame
) -> tuple[Sequence[FileFacts], Sequence[FileGap]]:
    files = [FileFacts(**row.asDict()) for row in spark.sql(FACTS, records=records).collect()]
    torn = {each.file for each in files if each.has_gap}
    return files, _gaps(spark, records, torn) if torn else []


def _bad(records: DataFrame) -> dict[str, int]:
    """Unreadable lines, by file."""
    rows = records.where("kind = 'corrupt'").groupBy("file").count().collect()
    return {row["file"]: row["count"] for row in rows}


def conclude(
    spark: SparkSession, facts: Facts, records: DataFrame, *, begins_within: bool = False
) -> tuple[Completeness, DataFrame]:
    """What the `records` that `facts` are of lack; and the records, each once."""
    corrupt: dict[str, int] = {}
    for file, count in facts.corrupt.items():
        node = node_of(file)
        corrupt[node] = corrupt.get(node, 0) + count
    runs = runs_of(facts.files, (), facts.peers, corrupt, (), begins_within)
    copies = 0
    contradictions: dict[str, int] = {}
    doubled = {run.node for run in runs if run.copied}
    if doubled:
        copies, contradictions = _copies(spark, records, doubled)
        records = _once(records, doubled)
    searched = doubled | {each.node for each in facts.files if each.has_gap}
    if searched:
        gaps = gaps_of(facts.files, facts.gaps, searched)
        runs = runs_of(facts.files, gaps, facts.peers, corrupt, searched, begins_within)
    overlays = tuple(overlays_of(runs, facts.peers))
    return Completeness(overlays, copies, contradictions), records


def node_of(file: str) -> str:
    """The id of the node whose file this is, by its path; "" if the path does not say it."""
    found = re.search(r"(?:\A|/)node=([^/]+)/", unquote(file))
    return unquote(found.group(1)) if found else ""


def sql_text(value: str) -> str:
    """SQL: this text."""
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{quoted}'"


def runs_table(spark: SparkSession, completeness: Completeness) -> DataFrame:
    """node, run, overlay, ended (hybrid logical clock) and holes of each run."""
    rows = [
        {
            "node": run.node,
            "run": run.run,
            "overlay": overlay.name,
            "ended": run.ended,
            "holes": [
                {"since": hole.since, "until": hole.until, "cause": hole.cause}
                for hole in run.holes
            ],
        }
        for overlay in completeness.overlays
        for run in overlay.runs
    ]
    schema = (
        "node: string, run: bigint, overlay: string, ended: bigint, "
        "holes: array<struct<since: bigint, until: bigint, cause: string>>"
    )
    # Of this one row Spark knows that it is in one partition (`tasks.in_one_task`).
    text = sql_text(json.dumps(rows))
    return spark.range(0, 1, 1, 1).selectExpr(
        f"inline(from_json({text}, 'array<struct<{schema}>>'))"
    )


def _copies(spark: SparkSession, records: DataFrame, nodes: set[str]) -> tuple[int, dict[str, int]]:
    """How many records are there again; by node, under how many numbers are different ones."""
    names = ", ".join(f"`{name}`" for name in records.columns if name not in ("file", "line"))
    rows = spark.sql(
        f"""
        SELECT node, sum(times - 1) AS copies, count_if(different > 1) AS contradictions
        FROM (SELECT node, count(*) AS times, count(DISTINCT xxhash64({names})) AS different
              FROM {{records}} WHERE n IS NOT NULL GROUP BY node, run, n)
        WHERE times > 1 GROUP BY node
        """,
        records=records.where(records.node.isin(sorted(nodes))),
    ).collect()
    different = {row["node"]: row["contradictions"] for row in rows if row["contradictions"]}
    return sum(row["copies"] for row in rows) - sum(different.values()), different


def _once(records: DataFrame, nodes: set[str]) -> DataFrame:
    """The records, of these nodes each number of a run once."""
    again = (records.n.isNotNull() & records.node.isin(sorted(nodes))).eqNullSafe(True)
    once = records.where(again).dropDuplicates(["node", "run", "n"])
    return kept(in_one_task(records.where(~again).unionByName(once)))


def _gaps(spark: SparkSession, records: DataFrame, files: set[str]) -> list[FileGap]:
    """The gaps in the records of each run inside of these files."""
    rows = spark.sql(
        """
        SELECT file, node, run, after, n AS before, since, hlc AS until FROM (
          SELECT file, node, run, n, hlc,
                 lag(n) OVER (PARTITION BY file, node, run ORDER BY n) AS after,
                 lag(hlc) OVER (PARTITION BY file, node, run ORDER BY n) AS since
          FROM {records} WHERE n IS NOT NULL)
        WHERE n > after + 1
        """,
        records=records.where(records.file.isin(sorted(files))),
    ).collect()
    return [FileGap(**row.asDict()) for row in rows]
