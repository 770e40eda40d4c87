"""The matching pairs of published events and subscriptions, computed without the overlay.

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
killed; a node that starts again is another process. Selectors with the same tree are matched
once (``selection/``), and the result is joined with the subscriptions that have the tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from canopy.traces.analysis.constants import GRACE_SECONDS
from canopy.traces.analysis.runs import with_runs
from canopy.traces.analysis.selection.job import selected
from canopy.traces.analysis.selection.trees import TreeError, condition, parse_tree
from canopy.traces.analysis.tasks import in_one_task, is_small

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
            condition(parse_tree(text))
        except TreeError as error:
            bad.append((key, str(error)))
        else:
            good.append((key, text))
    return SelectorTrees(tuple(good), tuple(bad))


def matching_pairs(
    spark: SparkSession, published: DataFrame, subscribed: DataFrame, trees: SelectorTrees
) -> DataFrame:
    """All matching pairs: event, subscription, published, standing (see this file's docstring)."""
    hits = selected(published, [text for _, text in trees.good], is_small(published))
    keys = [(number, key) for number, (key, _) in enumerate(trees.good)]
    numbered = spark.createDataFrame(keys, "tree int, tree_key string")
    pairs = spark.sql(
        f"""
        SELECT h.event, s.subscription, h.published,
          CASE WHEN s.acked IS NULL OR h.published <= s.acked THEN 'early'
               WHEN s.ended IS NULL OR h.published < s.ended - {GRACE_SECONDS} THEN 'expected'
               WHEN h.published <= greatest(s.ended, s.kept) + {GRACE_SECONDS} THEN 'ending'
               ELSE 'over' END AS standing
        FROM {{hits}} h JOIN {{numbered}} n ON h.tree = n.tree
          JOIN {{subscribed}} s ON n.tree_key = s.tree_key
        """,
        hits=in_one_task(hits),
        numbered=in_one_task(numbered),
        subscribed=subscribed,
    )
    return in_one_task(pairs)
