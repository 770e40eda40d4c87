"""What `timeliness.json` has."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bench.experiments.timeliness.plan import TimelinessPlan
from overlay.client import LEVELS


class Latency(msgspec.Struct, frozen=True):
    """Latencies of deliveries, in milliseconds from the publisher's client to the subscriber's."""

    deliveries: int
    mean_ms: float
    p99_ms: float


class Point(msgspec.Struct, frozen=True):
    """The results of one mode under one load."""

    rate: int  # events per second
    matching: int  # subscriptions that an event matches
    expected: int  # deliveries
    delivered: int
    all: Latency
    levels: tuple[Latency, ...]  # of the subscribers of level 1, 2, …
    urgency_ms: float  # the mean, weighted by urgency (`weighted_latency`)
    waited: int  # events that a host put into its queue
    served: tuple[int, ...]  # events that each host matched, the busiest first


class Curve(msgspec.Struct, frozen=True):
    """One mode over all loads of a series."""

    mode: str
    points: tuple[Point, ...]


class Series(msgspec.Struct, frozen=True):
    """The results of all modes over the values of what is varied."""

    over: str  # rate or matching
    x: tuple[int, ...]
    curves: tuple[Curve, ...]


class Timeliness(msgspec.Struct, frozen=True):
    """The results of all series of an experiment, a point per load."""

    seed: int
    parameters: TimelinessPlan
    series: tuple[Series, ...]


def latency_of(seconds: Sequence[float]) -> Latency:
    """Mean and 99th percentile (nearest rank); zeros if there is none."""
    if not seconds:
        return Latency(0, 0.0, 0.0)
    ordered = sorted(seconds)
    rank = -(-99 * len(ordered) // 100)
    mean = sum(ordered) / len(ordered)
    return Latency(len(ordered), round(1000 * mean, 4), round(1000 * ordered[rank - 1], 4))


def weighted_latency(levels: Sequence[Latency]) -> float:
    """The mean latency where a delivery of level l counts LEVELS + 1 - l times.

    Which of several events of the same cost is served first changes nothing about their mean
    (Kleinrock's conservation law for queues that are never idle while something waits), so the
    plain mean cannot show what priority is for.
    """
    weights = [(LEVELS - number) * each.deliveries for number, each in enumerate(levels)]
    total = sum(weights)
    if not total:
        return 0.0
    mean = sum(w * each.mean_ms for w, each in zip(weights, levels, strict=True)) / total
    return round(mean, 4)
