"""The number of records of each kind that a run has in a file, counted by the task that has parsed
them.

From these few rows follow what is absent, which nodes met and how much each of them did, so that
nothing reads all records once more for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from zlib import crc32

from canopy.traces.analysis.parsing.blocks import CORRUPT, columns
from canopy.traces.schema import COMMON, KINDS, ROW_KINDS

BY: Final = ("file", "node", "run", "kind")

APART: Final[Mapping[str, tuple[str, ...]]] = {
    "file": ("overlay", "sample", "lost"),
    "start": ("name", "address", "routing"),
    "sampling": ("first", "share"),
    "stop": ("lost", "data_messages", "other_messages", "bytes", "published", "subscribed"),
    **dict.fromkeys(("visit", "forward", "arrive", "walk_hop"), ("peer",)),
    "link": ("peer", "reason"),
    "incident": ("peer", "what"),
    **dict.fromkeys(("drop", "refused"), ("reason",)),
    "located": ("by",),
    "map": ("attribute",),
    CORRUPT: ("problem",),
}
"""By kind the fields whose different values are counted separately."""

MADE: Final[Mapping[str, tuple[Any, str]]] = {
    "count": ([], "count_all"),
    **{f"{how}_{name}": (name, how) for name in ("n", "hlc", "time") for how in ("min", "max")},
    "numbered": ("n", "count"),
    "clients": ("client", "count"),
    "permits": ("permitted", "count"),
    "sizes": ("size", "sum"),
    "max_size": ("size", "max"),
}
"""The aggregates of records that are counted together: columns by name, each of a field."""

FIELDS: Final = tuple(
    dict.fromkeys(
        (
            *(*BY, *(name for names in APART.values() for name in names)),
            *("n", "hlc", "time", "client", "permitted", "size"),
        )
    )
)
"""The fields that are read for a tally."""


class Tally(NamedTuple):
    """The numbers of each file, as Arrow tables: those of `tally`, and those of `offsets`."""

    rows: Any
    offsets: Any


def by_kind(records: Any) -> dict[str, Any]:
    """Split the records by kind. Returns Arrow tables, each with the fields of its kind."""
    import pyarrow.compute as pc

    found = {}
    for kind in records["kind"].unique().to_pylist():
        fields = (*COMMON, *KINDS[kind], "file") if kind in KINDS else records.column_names
        there = [name for name in dict.fromkeys(fields) if name in records.column_names]
        found[kind] = records.select(there).filter(pc.equal(records["kind"], kind))
    return found


def schema() -> Any:
    """The Arrow schema of a tally."""
    import pyarrow as pa

    fields = columns()
    names = dict.fromkeys((*BY, *(name for names in APART.values() for name in names)))
    double = {name for name in MADE if name.endswith("_time")}
    made = ((name, pa.float64() if name in double else pa.int64()) for name in MADE)
    return pa.schema([*(fields.field(name) for name in names), *(pa.field(*each) for each in made)])


def tally(kinds: Mapping[str, Any]) -> Any:
    """Counts the records of each kind (`by_kind`)."""
    import pyarrow as pa

    parts = [schema().empty_table()]
    for kind, records in kinds.items():
        made = {to: each for to, each in MADE.items() if each[0] in ([], *records.column_names)}
        groups = records.group_by([*BY, *APART.get(kind, ())], use_threads=False)
        counted = groups.aggregate([*made.values()])
        names = [*counted.column_names[: -len(made)], *made]
        parts.append(counted.rename_columns(names))
    return pa.concat_tables(parts, promote_options="permissive")


def offsets(records: Any) -> Any:
    """By file, node and run the median `offset` of the wall clock from the hybrid logical clock in
    seconds (of an even number the lower one), the number of `records` that have both, and what
    holds their claims (`facts.FileFacts`): `highest`, `events`, `disorders` and `step`."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    seconds = pc.divide(pc.cast(records["hlc"], pa.float64(), safe=False), 1e9)
    known = records.select([*BY[:3], "n", "hlc"])
    of_row = pc.is_in(records["kind"], value_set=pa.array(ROW_KINDS))  # with a share of their own
    known = known.append_column("event", pc.if_else(of_row, None, records["event"]))
    known = known.append_column("offset", pc.subtract(records["time"], seconds))
    valid = pc.and_(pc.is_valid(known["offset"]), pc.is_valid(known["n"]))
    groups = known.filter(valid).group_by(BY[:3], use_threads=False)
    ways = [("offset", "list"), ("n", "list"), ("hlc", "list"), ("event", "distinct")]
    lists = groups.aggregate(ways)
    found, numbers, times = (
        [each.values.to_numpy() for each in lists[f"{name}_list"]]
        for name in ("offset", "n", "hlc")
    )
    middles = [np.partition(each, (len(each) - 1) // 2)[(len(each) - 1) // 2] for each in found]
    hashes = [
        [crc32(event.encode()) for event in events if event is not None]
        for events in lists["event_distinct"].to_pylist()
    ]
    made = lists.select(BY[:3]).append_column("offset", pa.array(middles, pa.float64()))
    counts = {
        "records": map(len, found),
        "highest": [max(each, default=-1) for each in hashes],
        "events": map(len, hashes),
        "disorders": map(_disorders, numbers, times),
    }
    for name, column in counts.items():
        made = made.append_column(name, pa.array(column, pa.int64()))
    return made.append_column("step", pa.array(map(_step, numbers, found), pa.float64()))


def _step(numbers: Any, found: Any) -> float:
    """The largest change of the offset from a record to the next one."""
    import numpy as np

    order = np.argsort(numbers, kind="stable")
    return float(np.abs(np.diff(found[order])).max(initial=0.0))


def _disorders(numbers: Any, times: Any) -> int:
    """Count the records with a greater number and an earlier time than the record before."""
    import numpy as np

    order = np.argsort(numbers, kind="stable")
    return int(((np.diff(numbers[order]) > 0) & (np.diff(times[order]) < 0)).sum())
