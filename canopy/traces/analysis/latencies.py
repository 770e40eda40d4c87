"""How latencies are spread: over the time of the run, by hops, by attribute, by host and by link.

All but the last two are computed in this process from columns that it has read anyway. For hosts
and links the records of an event's steps are compared with one another, of so many events that
`STEPS_COMPARED` records come here at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from canopy.traces.analysis.constants import STEPS_COMPARED, TIME_BINS
from canopy.traces.analysis.walks import tree_sizes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OF_PAIR: Final = ("published", "hops", "attribute")
"""The columns of judged pairs, beside those that are counted, by which latencies are spread."""

STEPS: Final = ("visit", "match", "forward", "arrive")
"""The kinds of records of an event on its way through hosts and links."""


class Spread(NamedTuple):
    """The `number` of durations, and in milliseconds their percentiles and the longest."""

    number: int
    p50: float
    p90: float
    p99: float
    most: float


@dataclass(frozen=True)
class Latencies:
    """What the report shows of the latencies in parts."""

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
    compared: float  # the share of the events of which hosts and links are

    def tables(self) -> dict[str, Any]:
        """The rows of attributes, hosts and links as Arrow tables, by name."""
        import pyarrow as pa

        words, numbers = ("attribute", "node", "sender"), ("tree_hops",)
        of = {
            "attributes": ("attribute", *ATTRIBUTE_NUMBERS),
            "hosts": ("node", *PLACE_NUMBERS),
            "links": ("sender", "node", *PLACE_NUMBERS),
        }

        def kind(name: str) -> Any:
            if name in words:
                return pa.string()
            return pa.float64() if name in numbers or name.endswith("_ms") else pa.int64()

        return {
            table: pa.Table.from_pylist(
                getattr(self, table), pa.schema([(name, kind(name)) for name in names])
            )
            for table, names in of.items()
        }


ATTRIBUTE_NUMBERS: Final = (
    *("visits", "matches", "recipients", "tree_hops", "virtual_nodes", "deliveries"),
    *("p50_ms", "p99_ms"),
)
NOT_COMPARED: Final[tuple[Any, float]] = (None, 1.0)
PLACE_NUMBERS: Final = ("count", "p50_ms", "p90_ms", "max_ms")


def in_parts(
    pairs: Any,
    trees: Any,
    tally: Sequence[Mapping[str, Any]],
    compared: tuple[Any, float],
    first: float,
    width: float,
) -> Latencies:
    """All parts, of the judged pairs, the table of trees, the rows of a tally and
    `compared_steps`, or `NOT_COMPARED`. The run begins at `first`; a time bin is `width` seconds
    long."""
    steps, share = compared
    return Latencies(
        over_time(pairs, first, width),
        by_hops(pairs),
        by_attribute(pairs, trees, tally),
        [] if steps is None else hosts_of(steps),
        [] if steps is None else links_of(steps),
        share,
    )


def spreads(groups: Any, values: Any) -> dict[int, Spread]:
    """The spread of the `values` of each group: NumPy arrays of the same length, groups as
    integers. Percentiles are linear between the two nearest ranks."""
    import numpy as np

    if not len(values):
        return {}
    order = np.lexsort((values, groups))
    groups, values = groups[order], values[order]
    starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
    counts = np.diff(np.r_[starts, len(groups)])

    def at(share: float) -> list[float]:
        place = starts + share * (counts - 1)
        below = np.floor(place).astype(np.int64)
        part = place - below
        above = np.ceil(place).astype(np.int64)
        found: list[float] = (values[below] * (1 - part) + values[above] * part).tolist()
        return found

    rows = zip(counts.tolist(), at(0.5), at(0.9), at(0.99), at(1.0), strict=True)
    return dict(zip(groups[starts].tolist(), (Spread(*row) for row in rows), strict=True))


def codes(column: Any) -> tuple[Any, list[Any]]:
    """An Arrow column without nulls as a NumPy array of integers, and what each stands for."""
    import numpy as np
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    column = column.unify_dictionaries()
    if not column.num_chunks:
        return np.zeros(0, np.int64), []
    indices = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in column.chunks]
    return np.concatenate(indices).astype(np.int64), column.chunk(0).dictionary.to_pylist()


def known(pairs: Any, *columns: str) -> Any:
    """These columns and the latencies of those pairs that have all of them."""
    return pairs.select(["latency_ms", *columns]).drop_null()


def over_time(pairs: Any, first: float, width: float) -> dict[int, Spread]:
    """The latencies by time bin, `width` seconds long, of the publication."""
    import numpy as np

    rows = known(pairs, "published")
    bins = np.floor((rows["published"].to_numpy() - first) / width).astype(np.int64)
    return spreads(np.clip(bins, 0, TIME_BINS - 1), rows["latency_ms"].to_numpy())


def by_hops(pairs: Any) -> dict[int, Spread]:
    """The latencies by hops from the publisher to the subscriber."""
    rows = known(pairs, "hops")
    return spreads(rows["hops"].to_numpy(), rows["latency_ms"].to_numpy())


def by_attribute(
    pairs: Any, trees: Any, tally: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """A row for each attribute by which events travelled, those with most visits first, of the
    judged pairs, the Arrow table `walks.tree_table` and the rows of a `tally`."""
    rows = known(pairs, "attribute")
    groups, names = codes(rows["attribute"])
    delivered = {
        names[code]: spread
        for code, spread in spreads(groups, rows["latency_ms"].to_numpy()).items()
    }
    sizes = tree_sizes(tally)
    made = trees.group_by("attribute").aggregate(
        [([], "count_all"), ("matches", "sum"), ("recipients", "sum"), ("hops", "mean")]
    )
    ordered = made.select(
        ["attribute", "count_all", "matches_sum", "recipients_sum", "hops_mean"]
    ).rename_columns(["attribute", "visits", "matches", "recipients", "tree_hops"])
    found = []
    for row in ordered.to_pylist():
        spread = delivered.get(row["attribute"])
        found.append(
            row
            | {
                "virtual_nodes": sizes.get(row["attribute"]),
                "deliveries": spread.number if spread else 0,
                "p50_ms": spread.p50 if spread else None,
                "p99_ms": spread.p99 if spread else None,
            }
        )
    found.sort(key=lambda row: (-row["visits"], row["attribute"] or ""))
    return found


def compared_steps(
    spark: SparkSession, records: DataFrame, tally: Iterable[Mapping[str, Any]], clocks_agree: bool
) -> tuple[Any, float]:
    """The steps of a share of the events as an Arrow table, and that share: kind, event, attribute,
    node, peer, at (milliseconds)."""
    total = sum(row["count"] for row in tally if row["kind"] in STEPS)
    parts = max(1, -(-total // STEPS_COMPARED))
    kinds = ", ".join(f"'{kind}'" for kind in STEPS)
    share = f"AND pmod(xxhash64(event), {parts}) = 0" if parts > 1 else ""
    clock = "time * 1e3D" if clocks_agree else "hlc / 1e6D"
    found = spark.sql(
        f"""
        SELECT kind, event, attribute, node, peer, {clock} AS at FROM {{records}}
        WHERE kind IN ({kinds}) AND event IS NOT NULL {share}
        """,
        records=records,
    ).toArrow()
    return found, 1 / parts


def between(begins: Any, ends: Any, keys: Sequence[str]) -> Any:
    """For each of the `ends` the milliseconds since the last of the `begins` before it with the
    same `keys`, as an Arrow table of the keys and `took`."""
    import pyarrow.compute as pc

    last = ends.append_column("end", ends["at"]).select([*keys, "end"])
    joined = last.join(begins.select([*keys, "at"]), list(keys), join_type="inner")
    joined = joined.append_column("took", pc.subtract(joined["end"], joined["at"]))
    joined = joined.filter(pc.greater_equal(joined["took"], 0))
    made = joined.group_by([*keys, "end"]).aggregate([("took", "min")])
    return made.select([*keys, "took_min"]).rename_columns([*keys, "took"])


def hosts_of(steps: Any) -> list[dict[str, Any]]:
    """A row for each node that matched what others sent it."""
    import pyarrow.compute as pc

    visits = steps.filter(pc.equal(steps["kind"], "visit")).drop_columns(["node"])
    visits = visits.rename_columns({"peer": "node"})
    took = between(
        visits, steps.filter(pc.equal(steps["kind"], "match")), ("event", "attribute", "node")
    )
    return slowest_first(took, ("node",))


def links_of(steps: Any) -> list[dict[str, Any]]:
    """A row for each way, from a host or delegate to an interested node, that events took."""
    import pyarrow.compute as pc

    sent = steps.filter(pc.equal(steps["kind"], "forward"))
    sent = sent.rename_columns({"node": "sender", "peer": "node"})
    arrived = steps.filter(pc.equal(steps["kind"], "arrive")).rename_columns({"peer": "sender"})
    took = between(sent, arrived, ("event", "attribute", "sender", "node"))
    return slowest_first(took, ("sender", "node"))


def slowest_first(took: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each combination of these columns, those whose p90 is longest first."""
    import numpy as np

    together = np.zeros(len(took), np.int64)
    meanings = []
    for name in names:
        each, values = codes(took[name])
        together = together * max(len(values), 1) + each
        meanings.append(values)
    rows = []
    for code, spread in spreads(together, took["took"].to_numpy()).items():
        row: dict[str, Any] = {}
        for name, values in zip(reversed(names), reversed(meanings), strict=True):
            code, place = divmod(code, len(values))
            row[name] = values[place]
        row |= {"count": spread.number, "p50_ms": spread.p50, "p90_ms": spread.p90}
        rows.append(row | {"max_ms": spread.most})
    return sorted(rows, key=lambda row: (-row["p90_ms"], *(row[name] or "" for name in names)))
