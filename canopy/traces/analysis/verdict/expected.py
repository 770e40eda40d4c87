"""The matching pairs of published events and subscriptions, computed by Spark alone.

A pair (event, subscription) *matches* when the selector, evaluated over the event's attributes, is
true. What the overlay has to do with the pair depends on the times (expected are the events
published after the subscription's SUBACK, docs/design/promises.md), and is the pair's `standing`:

    early     published before the SUBACK, or never acknowledged: may be delivered, need not
    expected  published after it and before the subscription's end
    ending    published within a second of the subscription's end, or while its program was lost
              and its session kept: may be delivered, need not
    over      published later than that: must not be delivered

A subscription ends with its unsubscribe (if its program was lost and did not resume its session,
when it was lost) or with the process of its node, whether that stops or is
killed; a node that starts again is another process. Selectors with the same tree are
evaluated once per event, in groups: one pass over the events per group, with one column that lists
the trees that are true, exploded into rows and joined with the subscriptions that have the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from canopy.traces.analysis.constants import GRACE_SECONDS, GROUP_CHARACTERS
from canopy.traces.analysis.runs import with_runs
from canopy.traces.analysis.tasks import in_one_task
from canopy.traces.analysis.verdict.selectors import (
    Translator,
    TreeError,
    attributes_of,
    parse_tree,
)
from canopy.traces.analysis.verdict.terms import text_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def publications(spark: SparkSession, records: DataFrame) -> DataFrame:
    """event, id, publisher, published (seconds), attributes (JSON text): one row per event."""
    return spark.sql(
        """
        SELECT event, min_by(id, time) AS id, min_by(node, time) AS publisher,
               min(time) AS published, min_by(attributes, time) AS attributes
        FROM {records} WHERE kind = 'publish' GROUP BY event
        """,
        records=records,
    )


def subscriptions(spark: SparkSession, records: DataFrame) -> DataFrame:
    """One row per subscription.

    subscription, name, node, selector, tree, tree_key, subscribed, acked, ended and kept (seconds
    or NULL). `ended` is the unsubscribe, or when the program was lost whose session ended with it
    (`kept`: until then deliveries waited for it); or the stop of the run (`runs.py`) in which it
    was made, or the last record of that run if it was killed: its node started again, or others
    lost the node later and it wrote nothing since.
    """
    return spark.sql(
        """
        WITH made AS (
          SELECT subscription,
                 min_by(name, time) FILTER (WHERE kind = 'subscribe') AS name,
                 min_by(node, time) AS node, min(run) AS run,
                 min_by(selector, time) FILTER (WHERE kind = 'subscribe') AS selector,
                 min_by(tree, time) FILTER (WHERE kind = 'subscribe') AS tree,
                 min(time) FILTER (WHERE kind = 'subscribe') AS subscribed,
                 min(time) FILTER (WHERE kind = 'suback') AS acked,
                 min(time - coalesce(unread, 0)) FILTER (WHERE kind = 'unsubscribe') AS left_at,
                 min(time) FILTER (WHERE kind = 'unsubscribe') AS kept
          FROM {runs} WHERE kind IN ('subscribe', 'suback', 'unsubscribe')
          GROUP BY subscription),
        lived AS (
          SELECT node, run, max(time) AS last, min(time) FILTER (WHERE kind = 'stop') AS stopped,
                 max(run) OVER (PARTITION BY node) AS latest
          FROM {runs} GROUP BY node, run),
        lost AS (
          SELECT peer AS node, max(time) AS time FROM {runs}
          WHERE kind = 'incident' AND what = 'link down' OR kind = 'link' AND reason LIKE 'down:%'
          GROUP BY peer)
        SELECT s.subscription, s.name, s.node, s.selector, s.tree,
               md5(s.tree) AS tree_key, s.subscribed, s.acked,
               least(s.left_at, r.stopped,
                     CASE WHEN r.run < r.latest OR r.last < l.time THEN r.last END) AS ended,
               s.kept
        FROM made s LEFT JOIN lost l ON s.node = l.node
        JOIN lived r ON s.node = r.node AND s.run = r.run
        """,
        runs=with_runs(
            spark,
            records.where("kind <> 'corrupt'").select(
                *("node", "kind", "time", "subscription", "name", "selector", "tree"),
                *("what", "peer", "reason", "unread"),
            ),
        ),
    )


@dataclass(frozen=True)
class SelectorTrees:
    """A run's distinct selector trees: those that could be translated, why the others not."""

    good: tuple[tuple[str, str], ...]  # (key, JSON text)
    bad: tuple[tuple[str, str], ...]  # (key, reason)


def distinct_trees(subscribed: DataFrame) -> SelectorTrees:
    """Collect the distinct trees and try to translate each."""
    rows = subscribed.where("tree IS NOT NULL").select("tree_key", "tree").distinct().collect()
    good, bad = [], []
    for key, text in sorted((row["tree_key"], row["tree"]) for row in rows):
        try:
            Translator(lambda name: "a").predicate(parse_tree(text))
        except TreeError as error:
            bad.append((key, str(error)))
        else:
            good.append((key, text))
    return SelectorTrees(tuple(good), tuple(bad))


@dataclass(frozen=True)
class PredicateGroup:
    """Trees that are evaluated in one pass: the attributes they use and their predicates in SQL."""

    attributes: tuple[str, ...]
    predicates: tuple[tuple[str, str], ...]  # (key of the tree, SQL)


def groups(trees: Sequence[tuple[str, str]], limit: int = GROUP_CHARACTERS) -> list[PredicateGroup]:
    """Divide the trees into groups of about `limit` characters of SQL, by their attributes."""
    parsed = [(key, parse_tree(text)) for key, text in trees]
    parsed.sort(key=lambda item: (sorted(dict.fromkeys(attributes_of(item[1]))), item[0]))
    out: list[PredicateGroup] = []
    names: dict[str, int] = {}
    predicates: list[tuple[str, str]] = []
    size = 0

    def column(name: str) -> str:
        return f"a{names.setdefault(name, len(names))}"

    for key, tree in parsed:
        text = Translator(column).predicate(tree)
        predicates.append((key, text))
        size += len(text)
        if size >= limit:
            out.append(PredicateGroup(tuple(names), tuple(predicates)))
            names, predicates, size = {}, [], 0
    if predicates:
        out.append(PredicateGroup(tuple(names), tuple(predicates)))
    return out


def typed_attributes(events: DataFrame, names: Sequence[str]) -> DataFrame:
    """`events` with a struct a0, a1, … (b, i, d, s) for each attribute of `names`.

    Needs the column `variants`, a map from name to VARIANT. VARIANT keeps JSON's types: an integer
    is BIGINT exactly, other numbers are DECIMAL or DOUBLE and become the double nearest to the
    text, so that what Python wrote is what Spark compares.
    """
    keep = ["event", "published"]
    wanted = [f"variants[{text_literal(name)}] AS w{k}" for k, name in enumerate(names)]
    step = events.selectExpr(*keep, *wanted)
    pairs = [f"w{k}, schema_of_variant(w{k}) AS t{k}" for k in range(len(names))]
    step = step.selectExpr(*keep, *(part for pair in pairs for part in pair.split(", ", 1)))
    return step.selectExpr(
        *keep,
        *(
            f"named_struct("
            f"'b', CASE WHEN t{k} = 'BOOLEAN' THEN variant_get(w{k}, '$', 'boolean') END, "
            f"'i', CASE WHEN t{k} = 'BIGINT' THEN variant_get(w{k}, '$', 'bigint') END, "
            f"'d', CASE WHEN t{k} = 'DOUBLE' OR t{k} LIKE 'DECIMAL%' "
            f"THEN variant_get(w{k}, '$', 'double') END, "
            f"'s', CASE WHEN t{k} = 'STRING' THEN variant_get(w{k}, '$', 'string') END) AS a{k}"
            for k in range(len(names))
        ),
    )


def matching_pairs(
    spark: SparkSession, published: DataFrame, subscribed: DataFrame, trees: SelectorTrees
) -> DataFrame:
    """All matching pairs: event, subscription, published, standing (see this file's docstring)."""
    events = published.selectExpr(
        "event", "published", "from_json(attributes, 'map<string,variant>') AS variants"
    )
    passes = []
    for group in groups(trees.good):
        true = ", ".join(f"CASE WHEN {text} THEN '{key}' END" for key, text in group.predicates)
        passes.append(
            typed_attributes(events, group.attributes).selectExpr(
                "event", "published", f"explode(array_compact(array({true}))) AS tree_key"
            )
        )
    if not passes:
        hits = published.selectExpr("event", "published", "'' AS tree_key").where("false")
    else:
        hits = reduce(lambda left, right: left.unionAll(right), passes)
    pairs = spark.sql(
        f"""
        SELECT h.event, s.subscription, h.published,
          CASE WHEN s.acked IS NULL OR h.published <= s.acked THEN 'early'
               WHEN s.ended IS NULL OR h.published < s.ended - {GRACE_SECONDS} THEN 'expected'
               WHEN h.published <= greatest(s.ended, s.kept) + {GRACE_SECONDS} THEN 'ending'
               ELSE 'over' END AS standing
        FROM {{hits}} h JOIN {{subscribed}} s ON h.tree_key = s.tree_key
        """,
        hits=in_one_task(hits),
        subscribed=subscribed,
    )
    return in_one_task(pairs)
