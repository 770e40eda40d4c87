"""The slowest events and their paths: publish, walk, visits, match, forward, arrive, deliver.

A walk carries attributes, not events, so the walks of an event's path are those that its publisher
had under way between publication and delivery, for the attribute by which it was delivered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from canopy.traces.analysis.constants import PATH_STEPS, SLOWEST_EVENTS, TURN_SLACK
from canopy.traces.schema import KINDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class PathStep:
    """One record of an event's path; `after_ms` since its publication."""

    after_ms: float
    kind: str
    node: str
    peer: str | None
    attribute: str | None
    note: str


@dataclass(frozen=True)
class DeliveryPath:
    """A slow delivery and every step that led to it."""

    event: str
    id: str | None
    subscription: str
    name: str | None
    latency_ms: float
    attribute: str | None
    steps: tuple[PathStep, ...]
    left_out: int


RIGHT: Final = "verdict IN ('delivered', 'early', 'ending') AND latency_ms IS NOT NULL"
"""SQL: whether a pair is right."""

SLOWEST_PAIRS: Final = 1_000
"""The pairs among which the slowest events are looked for, so that nothing is grouped by event."""


def slowest_paths(
    spark: SparkSession,
    records: DataFrame,
    judged: DataFrame,
    published: DataFrame,
    subscribed: DataFrame,
) -> list[DeliveryPath]:
    """The slowest delivery of each of the slowest events, slowest first; of fewer events where
    `SLOWEST_PAIRS` pairs are of fewer."""
    pairs = spark.sql(
        f"""
        SELECT j.*, p.id, p.publisher, s.name FROM (
          SELECT event, subscription, attribute, node, published, latency_ms
          FROM {{judged}} WHERE {RIGHT}
          ORDER BY latency_ms DESC, event, subscription LIMIT {SLOWEST_PAIRS}) j
        LEFT JOIN {{subscribed}} s ON j.subscription = s.subscription
        JOIN {{published}} p ON j.event = p.event
        """,
        judged=judged,
        published=published,
        subscribed=subscribed,
    ).collect()
    pairs.sort(key=lambda row: (-row["latency_ms"], row["event"], row["subscription"]))
    first: dict[str, dict[str, Any]] = {}
    for row in pairs:
        first.setdefault(row["event"], row.asDict())
    slow = list(first.values())[:SLOWEST_EVENTS]
    if not slow:
        return []
    columns = ("kind", "time", "node", "event", "peer", "attribute", "walk", "hop", "subscription")
    seen = records.select(*columns, "hops", "by", "recipients", "reason", "lo", "hi")
    events = seen.where(seen.event.isin([row["event"] for row in slow]))
    found = [row.asDict() for row in events.limit(SLOWEST_EVENTS * 2_000).collect()]
    found += _walks(seen, slow)
    return [_path(row, found) for row in slow]


def _walks(seen: DataFrame, slow: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records of all walks that were under way for one of the slow events."""
    first = min(row["published"] for row in slow) - TURN_SLACK
    last = max(row["published"] + row["latency_ms"] / 1_000 for row in slow)
    near = seen.where("kind LIKE 'walk|_%' ESCAPE '|' OR kind IN ('located', 'absent')").where(
        f"time BETWEEN {first!r}D AND {last!r}D"
    )
    walks = near.where(
        near.node.isin(sorted({row["publisher"]: None for row in slow})) | near.walk.isNotNull()
    )
    attributes = sorted({row["attribute"]: None for row in slow if row["attribute"]})
    chosen = walks.where(walks.attribute.isin(attributes)).orderBy("time")
    return [row.asDict() for row in chosen.limit(SLOWEST_EVENTS * 2_000).collect()]


def _path(slow: dict[str, Any], found: list[dict[str, Any]]) -> DeliveryPath:
    begun, ended = slow["published"], slow["published"] + slow["latency_ms"] / 1_000
    walks = {
        row["walk"]: None
        for row in found
        if row["kind"] == "walk_start"
        and row["node"] == slow["publisher"]
        and row["attribute"] == slow["attribute"]
        and begun - TURN_SLACK <= row["time"] <= ended
    }
    mine = []
    for row in found:
        if row["event"] == slow["event"]:
            on_it = _concerns(row, slow)
        elif row["kind"] in ("located", "absent"):
            on_it = row["node"] == slow["publisher"] and begun - TURN_SLACK <= row["time"] <= ended
            on_it = on_it and bool(walks)
        else:
            on_it = row["walk"] in walks
        if on_it and (row["attribute"] in (None, slow["attribute"])):
            mine.append(row)
    mine.sort(key=lambda row: (row["time"], ORDER[row["kind"]], row["hop"] or 0))
    steps = tuple(
        PathStep(
            after_ms=(row["time"] - begun) * 1_000,
            note=_note(row),
            **{name: row[name] for name in ("kind", "node", "peer", "attribute")},
        )
        for row in mine
    )
    return DeliveryPath(
        **{name: slow[name] for name in PATH_COLUMNS},
        steps=steps[: PATH_STEPS - 1] + steps[-1:] if len(steps) > PATH_STEPS else steps,
        left_out=max(len(steps) - PATH_STEPS, 0),
    )


PATH_COLUMNS: Final = ("event", "id", "subscription", "name", "latency_ms", "attribute")
"""The fields of a path that come from the row of its delivery."""

ORDER: Final = {kind: place for place, kind in enumerate(KINDS)}
"""The order of steps with equal times."""


def _concerns(row: dict[str, Any], slow: dict[str, Any]) -> bool:
    """Whether a record of the event is on the path to this subscriber, not to another."""
    match row["kind"]:
        case "deliver":
            return bool(row["subscription"] == slow["subscription"])
        case "forward":
            return bool(row["peer"] == slow["node"])
        case "arrive" | "duplicate" | "recheck_failed":
            return bool(row["node"] == slow["node"])
        case _:
            return True


def _note(row: dict[str, Any]) -> str:
    match row["kind"]:
        case "located":
            return f"found by the {row['by']}" if row["by"] else "found"
        case "match":
            count = row["recipients"] or 0
            return f"{count} interested {'node' if count == 1 else 'nodes'}"
        case "walk_start":
            return f"at most {row['hops']} hops" if row["hops"] else ""
        case "walk_hop" | "visit" | "walk_hit":
            return f"hop {row['hop']}" if row["hop"] is not None else ""
        case "drop":
            return str(row["reason"] or "")
        case _:
            return ""
