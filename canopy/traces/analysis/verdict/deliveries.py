"""The verdict on every pair of event and subscription: deliveries compared with the expected ones.

A full join of the matching pairs (`expected.py`) with the deliver records. Each pair gets one
verdict:

    delivered  expected and delivered          missing   expected and not delivered
    dropped    expected and not delivered; some node says that it gave it up (a `drop` record)
    corrupted  expected and delivered, with another id or another content than was published
    withheld   not expected, since the policy left that much less of a tenant's subscription, or
               refused the event: no fault, and a figure of its own
    discarded  expected and delivered at its node, which dropped it, since the program did not read
    early      delivered, published before the SUBACK    ending  … around the subscription's end
    spurious   delivered, though the selector is not true, or long after the end, or before it was
               published, or at another node than the subscription's
    unknown    delivered, but the traces lack the event or the subscription, though nothing of the
               node that should have written of it is absent
    unjudged   what would decide it may be among the records that are absent, or is unreadable, or
               its subscription waited long for the SUBACK, or has another tree than its text

`copies` above 1 are duplicates, whatever the verdict. Except for `delivered` and `dropped` every
verdict has a reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from canopy.traces.analysis.completeness.collect import Completeness
from canopy.traces.analysis.constants import NANOSECONDS, SETTLE_SECONDS
from canopy.traces.analysis.tasks import by_event, few

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTLE: Final = int(SETTLE_SECONDS * NANOSECONDS)

RULES: Final = (
    (
        "NOT is_published AND has_all_published",
        "unknown",
        "'the traces have no publish record of this event'",
    ),
    ("NOT is_published", "unjudged", "'not all records of its publisher are there'"),
    (
        "redacted AND NOT elsewhere AND hlc > at",
        "unjudged",
        "'values or selectors are redacted in its records (trace.redact)'",
    ),
    ("altered", "unjudged", "'the tree of its subscription is not that of its selector'"),
    (
        "NOT has_tree AND (has_selector OR has_all_subscribed)",
        "unknown",
        "'the traces have no readable selector of it'",
    ),
    ("NOT has_tree", "unjudged", "'not all records of the node of its subscription are there'"),
    (
        "NOT has_attributes",
        "unjudged",
        "'the attributes of the event cannot be read, or are not those of its digest'",
    ),
    (
        "event_overlay <> subscription_overlay",
        "unjudged",
        "'its event and its subscription are of overlays that never met'",
    ),
    ("elsewhere", "spurious", "'delivered by another process than that of the subscription'"),
    ("hlc <= at", "spurious", "'delivered before it was published'"),
    ("standing IS NULL", "spurious", "'the selector is not true for this event'"),
    ("standing = 'over'", "spurious", "'published after the subscription had ended'"),
    (
        "standing IN ('withheld', 'outside') AND copies > 0",
        "spurious",
        "'the policy withholds it from its tenant'",
    ),
    ("standing = 'withheld'", "withheld", "'the policy withholds it from its tenant'"),
    ("copies > 0 AND other_id", "corrupted", "'delivered with another id than was published'"),
    (
        "copies > 0 AND other_content",
        "corrupted",
        "'delivered with another content than was published'",
    ),
    (
        "copies > 0 AND half_digested",
        "unjudged",
        "'only one of its records has a digest of the content'",
    ),
    ("copies = 0 AND refused IS NOT NULL", "withheld", "refused"),
    (
        "standing = 'changing' AND copies = 0",
        "unjudged",
        "'published around a change of the policy of its tenant'",
    ),
    ("standing = 'changing'", "ending", "'published around a change of the policy of its tenant'"),
    (
        "standing = 'kept' AND copies = 0",
        "unjudged",
        "'published while its program was lost, which one record alone says'",
    ),
    ("standing = 'kept'", "ending", "'published while its program was lost'"),
    (
        "standing = 'waiting' AND copies = 0",
        "unjudged",
        "IF(acked IS NULL, 'there is no SUBACK', "
        "'published long after the subscription was made, and before its SUBACK')",
    ),
    ("standing IN ('waiting', 'early')", "early", "'published before the SUBACK'"),
    ("standing = 'ending'", "ending", "'published around the end of the subscription'"),
    ("copies = 0 AND given_up IS NOT NULL", "dropped", "given_up"),
    ("copies = 0 AND hole IS NOT NULL", "unjudged", "concat('of the subscriber''s node: ', hole)"),
    (
        "copies = 0 AND maybe_over IS NOT NULL",
        "unjudged",
        "concat('it may have ended: of the subscriber''s node: ', maybe_over)",
    ),
    ("copies = 0", "missing", "'no node says what became of it'"),
    ("discarded", "discarded", "'its program did not read in time'"),
    ("true", "delivered", "NULL"),
)
"""When a pair has which verdict and why, in SQL; the first rule that is true decides."""


DROPPED: Final = """
    WITH dropped AS (
      SELECT event, peer AS node, min(reason) AS reason FROM {records}
      WHERE kind = 'drop' AND event IS NOT NULL AND peer IS NOT NULL GROUP BY event, peer)"""
GIVEN_UP: Final = "LEFT JOIN dropped g ON m.event = g.event AND s.node = g.node"
"""SQL: what was given up for which node, and the join with it."""


REFUSED: Final = """LEFT JOIN (
      SELECT event, min(reason) AS reason FROM {records}
      WHERE kind = 'refused' AND event IS NOT NULL GROUP BY event) f ON m.event = f.event"""
"""SQL: the join with the events that hosts refused."""

ID: Final = "IF(id LIKE 'redacted:%', NULL, xxhash64(id))"
"""SQL: the user's id as a number, which Spark aggregates without a sort; NULL if it is redacted,
which each process does under a key of its own."""

OF_EVENT: Final = (
    *("event", "published", "at", "overlay", "redacted", "digest", f"{ID} AS content_id"),
    "attributes IS NOT NULL AS has_attributes",
)
OF_SUBSCRIPTION: Final = (
    *("subscription", "node", "overlay", "tree_key", "tree IS NOT NULL AS has_selector"),
    *("acked", "kept", "alive", "holes", "altered", "selector LIKE 'redacted:%' AS redacted"),
)
"""The columns of an event and of a subscription that a verdict depends on."""


def judge(
    spark: SparkSession,
    records: DataFrame,
    pairs: DataFrame,
    published: DataFrame,
    subscribed: DataFrame,
    complete: Completeness,
    *,
    has_dropped: bool,
    has_refused: bool,
) -> DataFrame:
    """One row per judged pair.

    event, subscription, overlay, verdict, reason, published, copies, and of the first delivery:
    delivered (seconds), node, latency_ms, attribute, hops, lo, hi. Latencies are differences of
    wall clocks, or of the hybrid logical clock where these do not agree. `has_dropped`: some node
    gave something up; `has_refused`: some event was refused after it was published.
    """
    dropped, given_up = (DROPPED, GIVEN_UP) if has_dropped else ("", "")
    refused = REFUSED if has_refused else ""
    joined = spark.sql(
        f"""
        {dropped}
        SELECT m.event, m.subscription, coalesce(e.overlay, s.overlay) AS overlay,
          m.standing, m.elsewhere, m.hlc, coalesce(m.at, e.at) AS at,
          {"g.reason" if has_dropped else "CAST(NULL AS STRING)"} AS given_up,
          e.event IS NOT NULL AS is_published, s.tree_key IS NOT NULL AS has_tree,
          coalesce(e.has_attributes, false) AS has_attributes,
          coalesce(s.has_selector, false) AS has_selector, s.acked,
          coalesce(s.altered, false) AS altered,
          coalesce(e.redacted, false) OR coalesce(s.redacted, false) AS redacted,
          e.overlay AS event_overlay, s.overlay AS subscription_overlay,
          filter(s.holes, x -> x.until > m.at AND x.since < m.at + {SETTLE})[0].cause AS hole,
          IF(s.kept IS NULL, filter(
            s.holes, x -> x.since < m.at AND x.until > coalesce(s.alive, 0))[0].cause, NULL
          ) AS maybe_over,
          coalesce(e.content_id <> m.least_id OR e.content_id <> m.most_id, false) AS other_id,
          coalesce(e.digest <> m.least_digest OR e.digest <> m.most_digest, false)
            AS other_content,
          e.event IS NOT NULL AND (e.digest IS NULL) <> (m.digests < m.copies) AS half_digested,
          {"f.reason" if has_refused else "CAST(NULL AS STRING)"} AS refused,
          coalesce(m.published, e.published) AS published, m.copies, m.first
        FROM {{met}} m
        LEFT JOIN {{published}} e ON m.event = e.event
        LEFT JOIN {{subscribed}} s ON m.subscription = s.subscription
        {given_up}
        {refused}
        """,
        records=records,
        met=_met(spark, records, pairs),
        published=published.selectExpr(*OF_EVENT),
        subscribed=few(subscribed.selectExpr(*OF_SUBSCRIPTION)),
    )
    joined = joined.withColumns(
        {
            "has_all_published": complete.has_all("event", "subscription_overlay"),
            "has_all_subscribed": complete.has_all("subscription", "event_overlay"),
        }
    )
    if complete.discarded:
        joined = _with_discarded(spark, records, joined, subscribed)
    else:
        joined = joined.selectExpr("*", "false AS discarded")
    return _ruled(joined, complete)


def _ruled(joined: DataFrame, complete: Completeness) -> DataFrame:
    """The pairs with the verdict of the first of `RULES` that is true."""
    latency = "first.latency_ms" if complete.clocks_agree else "(hlc - at) / 1000000"
    verdict = " ".join(f"WHEN {condition} THEN '{name}'" for condition, name, _ in RULES)
    reason = " ".join(f"WHEN {condition} THEN {why}" for condition, _, why in RULES)
    return joined.selectExpr(
        "event",
        "subscription",
        "overlay",
        f"CASE {verdict} END AS verdict",
        f"CASE {reason} END AS reason",
        "published",
        "copies",
        "first.delivered",
        "first.node",
        f"CAST(IF(copies > 0, {latency}, NULL) AS DOUBLE) AS latency_ms",
        "first.attribute",
        "first.hops",
        "first.lo",
        "first.hi",
    )


def _met(spark: SparkSession, records: DataFrame, pairs: DataFrame) -> DataFrame:
    """Return the pairs that were delivered or owed, each with the content of its deliver
    records."""
    every = spark.sql(
        """
        SELECT event, subscription, published, at, standing, CAST(NULL AS BIGINT) AS hlc,
          CAST(NULL AS BOOLEAN) AS elsewhere, CAST(NULL AS BIGINT) AS content_id,
          CAST(NULL AS BIGINT) AS digest, NULL AS delivery FROM {pairs}
        UNION ALL
        SELECT event, subscription, NULL, NULL, NULL, hlc,
          concat(node, '.', run) <> substring_index(subscription, '.', 2), content_id, digest,
          struct(time AS delivered, node, latency_ms, attribute, hops, lo, hi)
        FROM {records} WHERE kind = 'deliver'
        """,
        records=records.selectExpr("*", f"{ID} AS content_id"),
        pairs=pairs,
    )
    return spark.sql(
        """
        SELECT event, subscription, max(published) AS published, max(at) AS at,
          max(standing) AS standing, count(hlc) AS copies, min(hlc) AS hlc,
          coalesce(bool_or(elsewhere), false) AS elsewhere, min_by(delivery, hlc) AS first,
          min(content_id) AS least_id, max(content_id) AS most_id, count(digest) AS digests,
          min(digest) AS least_digest, max(digest) AS most_digest
        FROM {every} GROUP BY event, subscription
        HAVING count(hlc) > 0
          OR max(standing) IN ('expected', 'waiting', 'kept', 'withheld', 'changing')
        """,
        every=by_event(every),
    )


def _with_discarded(
    spark: SparkSession, records: DataFrame, joined: DataFrame, subscribed: DataFrame
) -> DataFrame:
    """Add the column `discarded`: whether the node dropped a delivery to the program. A drop record
    names one subscription, or applies to all of its program's."""
    return spark.sql(
        """
        WITH thrown AS (
          SELECT d.event, coalesce(d.subscription, s.subscription) AS subscription
          FROM {drops} d LEFT JOIN {subscribed} s
            ON d.subscription IS NULL AND d.run = substring_index(s.subscription, '.', 2)
              AND d.client = s.client
          GROUP BY 1, 2)
        SELECT j.*, t.event IS NOT NULL AS discarded
        FROM {joined} j LEFT JOIN thrown t
          ON j.event = t.event AND j.subscription = t.subscription
        """,
        drops=records.where("kind = 'drop' AND client IS NOT NULL").selectExpr(
            "event", "subscription", "client", "concat(node, '.', run) AS run"
        ),
        subscribed=subscribed.select("subscription", "client"),
        joined=joined,
    )


@dataclass(frozen=True)
class VerdictCounts:
    """The number of pairs of each verdict, and the latencies of first deliveries in
    milliseconds."""

    expected: int
    delivered: int
    missing: int
    dropped: int  # expected and not delivered, and some node says that it gave it up
    discarded: int  # delivered to its node, which dropped it: the program did not read in time
    corrupted: int  # delivered with another id or another content than was published
    withheld: int  # not expected, since the policy withheld it from a tenant: no fault
    duplicates: int
    spurious: int
    early: int  # delivered, but published before the SUBACK
    ending: int  # delivered around the end of the subscription, which is right either way
    unknown: int  # delivered, but the traces lack what is needed to judge
    unjudged: int  # pairs that absent or unreadable records leave open
    latency_ms: dict[str, float | None]
    """From publishing to delivery: p50, p90, p99, max, mean, variance (ms squared), deviation."""


VERDICTS: Final = (
    *("delivered", "missing", "dropped", "discarded", "corrupted", "spurious", "early", "ending"),
    *("unknown", "unjudged", "withheld"),
)
"""The verdicts that a pair may have."""

DUE: Final = ("delivered", "missing", "dropped", "discarded", "corrupted")
"""The verdicts on pairs that were expected."""

DUPLICATES: Final = "coalesce(sum(copies - 1) FILTER (WHERE copies > 1), 0)"
"""SQL: the deliveries beyond the first of each pair."""


def number_of(*verdicts: str) -> str:
    """SQL: the number of pairs with one of these verdicts."""
    return f"count_if(verdict IN ({', '.join(map(repr, verdicts))}))"
