"""The matching pairs of published events and subscriptions, computed without the overlay.

A pair (event, subscription) *matches* when the selector, evaluated over the event's attributes, is
true. What the overlay has to do with the pair depends on the order of three things: the event's
publication, the subscription's SUBACK and its end (expected are the events published after the
SUBACK, docs/design/promises.md). The order is that of the hybrid logical clock, which what has been
sent between nodes carries, and not of the nodes' wall clocks. It is the pair's `standing`:

    early     published before the SUBACK: may be delivered, need not
    waiting   likewise, but long after it was subscribed to: the SUBACK came late, or never; or it
              may be among records that are absent
    expected  published after it and before the subscription's end
    ending    published within a second of the subscription's end: may be delivered, need not
    kept      while its program was lost and its session kept, which one record alone says
    over      published later than that: must not be delivered
    withheld  expected but for what the policy leaves of a tenant's selector: must not be delivered
    outside   likewise, of a pair that was not expected
    changing  within seconds of a change of the policy that decides it: may be delivered, need not

A subscription ends with its unsubscribe (if its program was lost and did not resume its session,
when it was lost) or with the run of its node's process, whether that stops or is killed. Selectors
with the same tree are matched once (``selection/``), and the result is joined with the
subscriptions of the same overlay that have the tree.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canopy.traces.analysis.completeness.facts import FOREVER
from canopy.traces.analysis.constants import GRACE_SECONDS, NANOSECONDS, SETTLE_SECONDS
from canopy.traces.analysis.selection.job import selected
from canopy.traces.analysis.selection.text import is_tree_of
from canopy.traces.analysis.selection.trees import TreeError, condition, parse_tree
from canopy.traces.analysis.tasks import computed_once, few, in_one_task, is_small

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# --- what the policy left of tenants' subscriptions, from their nodes' records ---
#
# A `subscribe` record of a tenant's node has the tree of what the policy leaves of the selector,
# and a `confined` record that of each later policy. The policy comes to owners and hosts some
# seconds earlier or later than to that node, so that near a change either may have decided.


def permitted_stretches(spark: SparkSession, records: DataFrame) -> DataFrame:
    """One row per policy that confined a subscription: subscription, since, until (hybrid logical
    clock), permitted (JSON text), permitted_key."""
    return spark.sql(
        f"""
        SELECT subscription, permitted, md5(permitted) AS permitted_key,
          IF(kind = 'subscribe', 0L, hlc) AS since,
          coalesce(lead(hlc) OVER (PARTITION BY subscription ORDER BY hlc), {FOREVER}) AS until
        FROM {{records}} WHERE kind IN ('subscribe', 'confined') AND permitted IS NOT NULL
        """,
        records=records.select("kind", "subscription", "permitted", "hlc"),
    )


def readable(stretches: DataFrame) -> list[tuple[str, str]]:
    """The key and the text of each different tree; of one that cannot be read it is NULL, which
    matches nothing."""
    found = []
    for row in stretches.select("permitted_key", "permitted").distinct().collect():
        try:
            condition(parse_tree(row["permitted"]))
        except TreeError:
            continue
        found.append((row["permitted_key"], row["permitted"]))
    return sorted(found)


def with_policy(
    spark: SparkSession,
    pairs: DataFrame,
    hits: DataFrame,
    stretches: DataFrame,
    keys: Sequence[str],
) -> DataFrame:
    """The `pairs` with the standing that the policy leaves them. `hits` are the events that each
    tree selects, by its place in `keys`."""
    listed = json.dumps(list(keys))  # hashes: no text of a user is in it
    return in_one_task(
        spark.sql(
            f"""
            WITH seen AS (
              SELECT p.event, p.subscription, bool_or(h.event IS NOT NULL) AS may,
                     bool_and(h.event IS NOT NULL) AS must
              FROM {{pairs}} p JOIN {{stretches}} c ON p.subscription = c.subscription
                AND p.at > c.since - {SETTLE} AND p.at < c.until
                                                         + IF(c.until < {FOREVER}, {SETTLE}, 0)
              LEFT JOIN {{hits}} h ON p.event = h.event
                AND c.permitted_key = from_json('{listed}', 'array<string>')[h.tree]
              GROUP BY p.event, p.subscription)
            SELECT p.event, p.subscription, p.published, p.at,
              CASE WHEN seen.must OR seen.may IS NULL OR p.standing = 'over' THEN p.standing
                   WHEN seen.may THEN IF(p.standing = 'expected', 'changing', p.standing)
                   WHEN p.standing = 'expected' THEN 'withheld'
                   ELSE 'outside' END AS standing
            FROM {{pairs}} p LEFT JOIN seen
              ON p.event = seen.event AND p.subscription = seen.subscription
            """,
            pairs=pairs,
            hits=hits,
            stretches=few(stretches),
        )
    )


# --- events whose own records are wrong or absent, whoever was to get them ---


@dataclass(frozen=True)
class EventFaults:
    """Numbers of events, by overlay or by the run (`node.run`) of their publisher."""

    republished: dict[str, int]  # by overlay: of more than one publish record
    unreadable: dict[str, int]  # by overlay: whose attributes are no JSON object
    unpublished: dict[str, int]
    """By run: without a publish record and without a delivery, though nodes handled them."""


def find_faults(spark: SparkSession, published: DataFrame, lost: dict[str, int]) -> EventFaults:
    """Count the events of each kind of fault; the `lost` ones are `unpublished`."""
    rows = spark.sql(
        """
        SELECT overlay, count_if(times > 1) AS again,
          count_if(attributes IS NULL AND NOT redacted) AS unreadable
        FROM {published} GROUP BY overlay
        """,
        published=published,
    ).collect()
    return EventFaults(
        republished={row["overlay"] or "": row["again"] for row in rows},
        unreadable={row["overlay"] or "": row["unreadable"] for row in rows},
        unpublished=lost,
    )


def unpublished(spark: SparkSession, records: DataFrame) -> dict[str, int]:
    """By run of the publisher the events without a publish record and without a delivery, though
    nodes handled them."""
    # Numbers are shuffled and aggregated in a third of the time that texts take.
    events = spark.sql(
        """
        WITH lost AS (
          SELECT hash FROM (
            SELECT xxhash64(event) AS hash, bool_or(kind IN ('publish', 'deliver')) AS known,
              bool_or(kind IN ('visit', 'forward', 'arrive') OR recipients > 0) AS handled
            FROM {records}
            WHERE kind IN ('publish', 'deliver', 'visit', 'forward', 'arrive', 'match')
            GROUP BY 1)
          WHERE handled AND NOT known)
        SELECT substring_index(event, '.', 2) AS run, event
        FROM {records} JOIN lost ON xxhash64(event) = hash
        WHERE kind IN ('visit', 'forward', 'arrive', 'match')
        """,
        records=records,
    )
    lost = spark.sql(
        "SELECT run, count(DISTINCT event) AS events FROM {events} GROUP BY run",
        events=in_one_task(events),
    ).collect()
    return {row["run"]: row["events"] for row in lost}


GRACE: Final = int(GRACE_SECONDS * NANOSECONDS)
SETTLE: Final = int(SETTLE_SECONDS * NANOSECONDS)


def published_again(records: DataFrame) -> bool:
    """Whether some event may have several publish records. Finding out costs less than looking for
    the first record of each event, which is done for every small run."""
    hashes = records.where("kind = 'publish'").selectExpr("xxhash64(event) AS event")
    return is_small(records) or bool(hashes.groupBy("event").count().where("count > 1").head(1))


FIRST: Final = """
    SELECT event, min_by(id, hlc) AS id, min_by(node, hlc) AS node, min_by(run, hlc) AS run,
           min_by(time, hlc) AS published, min(hlc) AS at,
           min_by(attributes, hlc) AS attributes, min_by(digest, hlc) AS digest,
           count(*) AS times
    FROM {records} WHERE kind = 'publish' GROUP BY event"""
ONLY: Final = """
    SELECT event, id, node, run, time AS published, hlc AS at, attributes, digest, 1L AS times
    FROM {records} WHERE kind = 'publish'"""
"""SQL: the first publish record of each event, and the same where an event has only one."""


def publications(spark: SparkSession, records: DataFrame, runs: DataFrame) -> DataFrame:
    """One row per event: event, id, publisher, published (seconds, by the publisher's wall clock),
    at (hybrid logical clock), overlay, attributes (JSON text, NULL if it is none or the digest is
    of others), digest, writer (the process that wrote the record, `node.run`), redacted (only their
    names are recorded, `trace.redact`), times (how many publish records it has)."""
    return spark.sql(
        f"""
        SELECT p.event, p.id, p.node AS publisher, p.published, p.at, r.overlay, p.times, p.digest,
               concat(p.node, '.', p.run) AS writer,
               coalesce(p.attributes LIKE '[%', false) AS redacted,
               CASE WHEN json_object_keys(p.attributes) IS NOT NULL AND coalesce(
                   shiftright(p.digest, 31) = crc32(CAST(p.attributes AS BINARY)), true)
                 THEN p.attributes END AS attributes
        FROM ({FIRST if published_again(records) else ONLY}) p
        LEFT JOIN {{runs}} r ON p.node = r.node AND p.run = r.run
        """,
        records=records,
        runs=runs.select("node", "run", "overlay"),
    )


def subscriptions(spark: SparkSession, records: DataFrame, runs: DataFrame) -> DataFrame:
    """One row per subscription.

    subscription, name, node, client, selector, tree, tree_key, permitted, overlay; subscribed,
    acked, ended and kept (hybrid logical clock, or NULL); holes of its run (`collect.runs_table`);
    writer (the process that wrote the records, `node.run`).
    `ended` is the unsubscribe, or when the program was lost whose session ended with it (`kept`:
    until then deliveries waited for it); or the end of its run.
    """
    return spark.sql(
        f"""
        WITH made AS (
          SELECT subscription,
                 min_by(struct(name, client, selector, tree, permitted), hlc)
                   FILTER (WHERE kind = 'subscribe') AS first,
                 min_by(node, hlc) AS node, min_by(run, hlc) AS run,
                 min(hlc) FILTER (WHERE kind = 'subscribe') AS subscribed,
                 min(hlc) FILTER (WHERE kind = 'suback') AS acked,
                 min(hlc - CAST(coalesce(unread, 0) * {NANOSECONDS} AS BIGINT))
                   FILTER (WHERE kind = 'unsubscribe') AS left_at,
                 min(hlc) FILTER (WHERE kind = 'unsubscribe') AS kept
          FROM {{records}} WHERE kind IN ('subscribe', 'suback', 'unsubscribe')
          GROUP BY subscription)
        SELECT s.subscription, s.first.name, s.node, s.first.client, s.first.selector,
               s.first.tree, md5(s.first.tree) AS tree_key, s.first.permitted, r.overlay,
               s.subscribed, s.acked, least(s.left_at, r.ended) AS ended, s.kept, r.holes,
               concat(s.node, '.', s.run) AS writer
        FROM made s LEFT JOIN {{runs}} r ON s.node = r.node AND s.run = r.run
        """,
        records=records,
        runs=runs,
    )


@dataclass(frozen=True)
class SelectorTrees:
    """A run's distinct selector trees: those that could be translated, why the others not."""

    good: tuple[tuple[str, str], ...]  # (key, JSON text)
    bad: tuple[tuple[str, str], ...]  # (key, reason)
    altered: tuple[str, ...]  # `WRITTEN_KEY` of selectors whose text has another tree than theirs


WRITTEN_KEY: Final = "md5(concat(md5(selector), tree_key))"
"""SQL: identifies the text and the tree of a subscription together; NULL if one is absent."""


def distinct_trees(subscribed: DataFrame) -> SelectorTrees:
    """Collect the distinct trees, try to translate each, and compare it with the texts that are
    recorded with it. Both are done in this process: 10,000 selectors take a second."""
    chosen = ("tree_key", "tree", "selector", f"{WRITTEN_KEY} AS written_key")
    rows = subscribed.where("tree IS NOT NULL").selectExpr(*chosen).distinct().collect()
    good, bad = [], []
    for key, text in sorted({(row["tree_key"], row["tree"]) for row in rows}):
        try:
            condition(parse_tree(text))
        except TreeError as error:
            bad.append((key, str(error)))
        else:
            good.append((key, text))
    unreadable = {key for key, _ in bad}
    altered = sorted(
        row["written_key"]
        for row in rows
        if row["selector"] is not None
        and row["tree_key"] not in unreadable
        and not is_tree_of(row["selector"], row["tree"])
    )
    return SelectorTrees(tuple(good), tuple(bad), tuple(altered))


def matching_pairs(
    spark: SparkSession,
    published: DataFrame,
    subscribed: DataFrame,
    trees: SelectorTrees,
    confined: DataFrame | None = None,
) -> DataFrame:
    """All matching pairs: event, subscription, published, at, standing (see this file's
    docstring). `confined`: what policies left of subscriptions (`confining.permitted_stretches`),
    None if there is no tenant's."""
    left = [] if confined is None else readable(confined)
    texts = dict([*trees.good, *left])
    hits = in_one_task(selected(published, [*texts.values()], is_small(published)))
    hits = hits if confined is None else computed_once(hits)
    keys = json.dumps([*texts])  # hashes: no text of a user is in it
    pairs = spark.sql(
        f"""
        SELECT h.event, s.subscription, h.published, h.at,
          CASE WHEN (s.acked IS NULL OR h.at <= s.acked)
                 THEN IF((h.at > s.subscribed + {SETTLE} OR h.at > s.subscribed
                            AND s.acked IS NULL AND exists(s.holes, x -> x.until > s.subscribed))
                           AND (s.ended IS NULL OR h.at < s.ended),
                         'waiting', 'early')
               WHEN s.ended IS NULL OR h.at < s.ended - {GRACE} THEN 'expected'
               WHEN h.at <= s.ended + {GRACE} OR h.at BETWEEN s.kept - {GRACE} AND s.kept + {GRACE}
                 THEN 'ending'
               WHEN h.at < s.kept THEN 'kept'
               ELSE 'over' END AS standing
        FROM {{hits}} h JOIN {{subscribed}} s ON h.overlay = s.overlay
          AND s.tree_key = from_json('{keys}', 'array<string>')[h.tree]
        """,
        hits=hits,
        subscribed=few(subscribed),
    )
    pairs = in_one_task(pairs)
    return pairs if confined is None else with_policy(spark, pairs, hits, confined, [*texts])
