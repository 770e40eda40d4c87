"""The facts on which `holes` and `overlays` draw their conclusions, from the tally of a folder's
records."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from canopy.traces.analysis.completeness.facts import (
    EVENTS_COUNTED,
    FileFacts,
    FileGap,
    PeerFacts,
    RecordStretch,
    Run,
    joined_peers,
    stretches_of,
)
from canopy.traces.analysis.completeness.holes import RunFacts, runs_of
from canopy.traces.analysis.completeness.overlays import OverlayFacts, overlays_of
from canopy.traces.analysis.constants import CLOCK_STEP, CLOCKS_AGREE
from canopy.traces.analysis.parsing.blocks import CORRUPT
from canopy.traces.analysis.parsing.tally import Tally
from canopy.traces.analysis.tasks import in_one_task, kept

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Row = dict[str, Any]
Key = tuple[str, str, int]  # file, node, run


@dataclass(frozen=True)
class Completeness:
    """The records that exist, and those that are absent."""

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

    @property
    def shares(self) -> list[tuple[list[str], int]]:
        """Nodes that do not keep the same share of the events, and the bound of the CRC-32 of the
        identities of those that all of them keep."""
        return [
            (sorted(overlay.nodes), int(overlay.sample * 2**32))
            for overlay in self.overlays
            if len({run.sample for run in overlay.runs} - {None}) > 1
        ]

    def kept_by_all(self, records: DataFrame) -> Column | None:
        """Whether a record names no event, or one that all nodes of its overlay keep; None: each
        does."""
        from pyspark.sql.functions import crc32

        conditions = [
            records.event.isNull()
            | ~records.node.isin(nodes)
            | (crc32(records.event.cast("binary")) < limit)
            for nodes, limit in self.shares
        ]
        return reduce(and_, conditions) if conditions else None

    @property
    def whole(self) -> list[str]:
        """The runs (`node.run`) of which no record is absent."""
        return [f"{run.node}.{run.run}" for run in self.runs if run.is_whole]

    def has_all(self, identity: str, overlay: str) -> Column:
        """Whether all records are there of the process that gave an event or a subscription the
        identity in the column `identity`: of it none is absent, or nobody in the other's `overlay`
        ever met its node, though nothing at all is absent there."""
        from pyspark.sql.functions import coalesce, col, lit, substring_index

        met = sorted(node for each in self.overlays for node in (*each.nodes, *each.absent))
        complete = [each.name for each in self.overlays if each.is_whole]
        run, node = (substring_index(col(identity), ".", parts) for parts in (2, 1))
        strange = col(overlay).isin(complete) & ~node.isin(met)
        return coalesce(run.isin(self.whole) | strange, lit(False))

    @property
    def clocks_agree(self) -> bool:
        """Whether latencies can be taken from the nodes' wall clocks: these agree, and none was set
        while its node ran."""
        offsets = self.clock_offsets().values()
        return not self.clock_steps() and all(abs(ahead) < CLOCKS_AGREE for ahead in offsets)

    def clock_steps(self) -> dict[str, float]:
        """By node id, the seconds by which its wall clock was set while it ran, at most; without
        those of which it was not."""
        steps = {run.node: run.step for run in sorted(self.runs, key=lambda run: run.step)}
        return {node: step for node, step in sorted(steps.items()) if step > CLOCK_STEP}

    def clock_offsets(self) -> dict[str, float]:
        """By node id, the seconds by which its wall clock is ahead of the median node's."""
        found = {run.node: run.offset for run in self.runs if run.offset is not None}
        middle = sorted(found.values())[len(found) // 2] if found else 0.0
        return {node: offset - middle for node, offset in found.items()}


@dataclass(frozen=True)
class Facts:
    """Facts on files and nodes, from the records."""

    files: Sequence[FileFacts]
    gaps: Sequence[FileGap]
    peers: Sequence[PeerFacts]
    corrupt: Mapping[str, int]
    """Unreadable lines, by file."""


def facts_by_file(spark: SparkSession, records: DataFrame, tally: Tally) -> dict[str, Facts]:
    """The facts of each file that `records` are from (of `read.store_records`), by its name
    there."""
    files: dict[str, dict[tuple[str, int], list[Row]]] = {}
    peers: dict[str, list[PeerFacts]] = {}
    corrupt: dict[str, int] = {}
    for row in (row for batch in tally.rows.to_batches() for row in batch.to_pylist()):
        name = row["file"]
        runs = files.setdefault(name, {})
        if row["kind"] == CORRUPT:
            corrupt[name] = corrupt.get(name, 0) + row["count"]
            continue
        runs.setdefault((row["node"], row["run"]), []).append(row)
        if (peer := peer_facts(row)) is not None:
            peers.setdefault(name, []).append(peer)
    measured: dict[Key, list[Row]] = {}  # a file may be read in parts
    for row in tally.offsets.to_pylist():
        measured.setdefault((row["file"], row["node"], row["run"]), []).append(row)
    facts = {
        name: [
            _file_facts(name, *run, rows, measured.get((name, *run), []))
            for run, rows in sorted(runs.items())
        ]
        for name, runs in sorted(files.items())
    }
    torn = {name for name, runs in facts.items() if any(each.has_gap for each in runs)}
    gaps: dict[str, list[FileGap]] = {}
    for gap in _gaps(spark, records, torn) if torn else ():
        gaps.setdefault(gap.file, []).append(gap)
    return {
        name: Facts(
            runs,
            gaps.get(name, []),
            joined_peers(peers.get(name, ())),
            {name: corrupt[name]} if name in corrupt else {},
        )
        for name, runs in facts.items()
    }


def _file_facts(file: str, node: str, run: int, rows: list[Row], measured: list[Row]) -> FileFacts:
    """Derive the facts of a run in a file from the `rows` and the `measured` offsets of a tally, of
    which each part of the file has one, and may have the same events."""

    def least(name: str) -> Any:
        return min((row[name] for row in rows if row[name] is not None), default=None)

    def most(name: str) -> Any:
        return max((row[name] for row in rows if row[name] is not None), default=None)

    def count(*kinds: str, of: str = "count") -> int:
        return sum(row[of] for row in rows if row["kind"] in kinds)

    return FileFacts(
        file,
        node,
        run,
        overlay=most("overlay"),
        sample=least("sample"),
        lost=most("lost") or 0,
        records=sum(row["numbered"] for row in rows),
        first_n=least("min_n"),
        last_n=most("max_n"),
        first_hlc=least("min_hlc"),
        last_hlc=most("max_hlc"),
        first=least("min_time"),
        last=most("max_time"),
        offset=_middle(measured),
        stopped=count("stop") > 0,
        discarded=count("drop", of="clients"),
        acts=count("publish", "subscribe"),
        published=most("published"),
        subscribed=most("subscribed"),
        shares=tuple(
            sorted((row["first"], row["share"]) for row in rows if row["kind"] == "sampling")
        ),
        highest=max((part["highest"] for part in measured), default=-1),
        events=min(max((part["events"] for part in measured), default=0), EVENTS_COUNTED),
        disorders=sum(part["disorders"] for part in measured),
        step=max((part["step"] for part in measured), default=0.0),
    )


PASSING: Final = ("visit", "forward", "arrive", "walk_hop")
"""The kinds of records of messages between nodes."""


def peer_facts(row: Mapping[str, Any]) -> PeerFacts | None:
    """Derive the facts on two nodes from a row of a tally; None if the row has none."""
    kind = row["kind"]
    down = kind == "incident" and row["what"] == "link down"
    if not row["peer"] or not (down or kind == "link" or kind in PASSING):
        return None
    return PeerFacts(
        row["node"],
        row["peer"],
        met=kind in PASSING or (kind == "link" and row["reason"] in ("up", "resumed")),
        heard=row["max_hlc"] if kind == "arrive" else None,
        lost=row["max_hlc"] if down else None,
        forwards=row["count"] if kind == "forward" else 0,
    )


def _middle(measured: list[Row]) -> float | None:
    """The median offset; of several parts the middle one's."""
    left = (sum(part["records"] for part in measured) + 1) // 2
    for part in sorted(measured, key=lambda part: (part["offset"], part["records"])):
        left -= part["records"]
        if left <= 0:
            return float(part["offset"])
    return None


def merged(facts: Iterable[Facts]) -> Facts:
    """The facts of all these files together."""
    every = list(facts)
    return Facts(
        [file for one in every for file in one.files],
        [gap for one in every for gap in one.gaps],
        joined_peers(peer for one in every for peer in one.peers),
        {file: count for one in every for file, count in one.corrupt.items()},
    )


def conclude(
    spark: SparkSession, facts: Facts, records: DataFrame, *, begins_within: bool = False
) -> tuple[Completeness, DataFrame]:
    """Find the absent records, by the `facts` on the `records`. Returns that, and the records
    without copies."""
    stretches = stretches_of(facts.files, facts.gaps)
    corrupt = ((node_of(file), count) for file, count in facts.corrupt.items())
    found, doubled = without_copies(facts.files, stretches, facts.peers, corrupt, begins_within)
    if not doubled:
        return found, records
    copies, contradictions = _copies(spark, records, doubled)
    found = replace(found, copies=copies, contradictions=contradictions)
    return found, _once(records, doubled)


def without_copies(
    files: Sequence[FileFacts],
    stretches: Mapping[Run, Sequence[RecordStretch]],
    peers: Sequence[PeerFacts],
    unreadable: Iterable[tuple[str, int]],
    begins_within: bool,
) -> tuple[Completeness, set[str]]:
    """Find the absent records, and the nodes of which records are there more than once, whose
    copies are not counted yet. `unreadable`: nodes with numbers of lines."""
    corrupt: Counter[str] = Counter()
    for node, count in unreadable:
        corrupt[node] += count
    runs = runs_of(files, stretches, peers, corrupt, begins_within)
    overlays = tuple(overlays_of(runs, peers))
    return Completeness(overlays, 0, {}), {run.node for run in runs if run.copied}


def node_of(file: str) -> str:
    """The id of the node whose file this is, by its path; "" if the path does not say it."""
    found = re.search(r"(?:\A|/)node=([^/]+)/", unquote(file))
    return unquote(found.group(1)) if found else ""


def runs_table(spark: SparkSession, completeness: Completeness) -> DataFrame:
    """node, run, overlay, ended (hybrid logical clock) and holes of each run."""
    from pyspark.sql.functions import from_json, inline, lit

    rows = [
        {
            "node": run.node,
            "run": run.run,
            "overlay": overlay.name,
            "ended": run.ended,
            "holes": [vars(hole) for hole in run.holes],
        }
        for overlay in completeness.overlays
        for run in overlay.runs
    ]
    schema = (
        "node: string, run: bigint, overlay: string, ended: bigint, "
        "holes: array<struct<since: bigint, until: bigint, cause: string>>"
    )
    # Of this one row Spark knows that it is in one partition (`tasks.in_one_task`).
    found = from_json(lit(json.dumps(rows)), f"array<struct<{schema}>>")
    return spark.range(0, 1, 1, 1).select(inline(found))


def _copies(spark: SparkSession, records: DataFrame, nodes: set[str]) -> tuple[int, dict[str, int]]:
    """Count the copies among the records, and by node the numbers under which there are different
    records."""
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
