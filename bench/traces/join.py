"""What the expected deliveries of an analysis cost, beside the bare join of a database.

    python -m bench.traces.join                                        # 300 selectors
    python -m bench.traces.join --selectors 100000 --width 0.0002

Both sides get the events of `bench.traces.analysis` as JSON texts, and its selectors: this one as
trees, as traces have them, DuckDB as rows with the bounds of their ranges and one range join for
each attribute (no other selector could be evaluated so; the analysis does). Prints processor
seconds: `read_s` and `match_s` here, `duckdb_s` there, and `factor` of the last two.
"""

from __future__ import annotations

import json
import random
import re
import sys
import time
from types import SimpleNamespace
from typing import Final

import duckdb
import pyarrow as pa

from bench.command import SEED, parser, show
from bench.traces.analysis import NAMES, drawn, selectors
from canopy.traces.analysis.selection.job import over_batches
from canopy.traces.analysis.selection.matcher import Matcher
from matching import compile_selector

BATCH: Final = 10_000
"""Events in one batch, as Spark makes them."""

COLUMNS: Final = ("number", "name", "low", "high", "other", "low2", "high2", "net", "net2")
"""Of the table of selectors: two ranges, and two networks or NULL."""


def here(texts: pa.Array, trees: list[str]) -> tuple[int, float, float]:
    """The matching pairs, and the seconds of reading the trees, once a worker, and of matching."""
    began = time.process_time()
    held = SimpleNamespace(value={"trees": trees, "matcher": Matcher(trees)})
    read = time.process_time() - began
    batches = [texts.slice(first, BATCH) for first in range(0, len(texts), BATCH)]
    began = time.process_time()
    found = sum(len(each.values) for each in over_batches(held)(iter(batches)))
    return found, read, time.process_time() - began


def duck(texts: pa.Array, wanted: list[str]) -> tuple[int, float]:
    """The matching pairs and the seconds of DuckDB."""
    rows = []
    for number, text in enumerate(wanted):
        one, two = re.findall(r"(\w+) BETWEEN ([\d.]+) AND ([\d.]+)", text)
        nets = re.findall(r"net IN \('(\w+)', '(\w+)'\)", text) or [(None, None)]
        rows.append((number, one[0], *map(float, one[1:]), two[0], *map(float, two[1:]), *nets[0]))
    chosen = pa.table(dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True)))
    published = pa.table({"event": pa.array(range(len(texts))), "attributes": texts})
    values = ", ".join(f"CAST(json_extract(attributes, '$.{n}') AS DOUBLE) AS {n}" for n in NAMES)
    other = "CASE " + " ".join(f"WHEN s.other = '{n}' THEN e.{n}" for n in NAMES) + " END"
    joins = " UNION ALL ".join(
        f"SELECT e.event, s.number FROM e JOIN s ON s.name = '{name}' "
        f"AND e.{name} BETWEEN s.low AND s.high WHERE {other} BETWEEN s.low2 AND s.high2 "
        "AND (s.net IS NULL OR e.net IN (s.net, s.net2))"
        for name in NAMES
    )
    with duckdb.connect() as database:
        database.register("published", published)
        database.register("s", chosen)
        began = time.process_time()
        database.execute(
            f"CREATE TEMP TABLE e AS SELECT event, {values}, "
            "json_extract_string(attributes, '$.net') AS net FROM published"
        )
        found = database.execute(f"SELECT count(*) FROM ({joins})").fetchone()
        return (found or (0,))[0], time.process_time() - began


def main() -> int:
    """Measure both, and print the row."""
    made = parser(
        __doc__,
        events=(185_000, "events"),
        selectors=(300, "selectors"),
        width=(0.02, "share of values in a narrow range"),
        seed=SEED,
    ).parse_args()
    rng = random.Random(made.seed)
    wanted = list(selectors(made.selectors, made.width, rng))
    texts = pa.array([json.dumps(drawn(rng)) for _ in range(made.events)])
    found, read, match = here(texts, [json.dumps(compile_selector(text).tree()) for text in wanted])
    other, duckdb_s = duck(texts, wanted)
    if found != other:
        raise SystemExit(f"{found:,} pairs here, {other:,} in DuckDB")
    row = {"events": made.events, "selectors": made.selectors, "pairs": found}
    row |= {"read_s": round(read, 2), "match_s": round(match, 2), "duckdb_s": round(duckdb_s, 2)}
    show(row | {"factor": round(match / duckdb_s, 1)}, made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
