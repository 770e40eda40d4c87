"""What `scaling.json` has."""

from __future__ import annotations

import msgspec

from bench.experiments.scaling.plan import LoadName, ScalingPlan


class Measured(msgspec.Struct, frozen=True):
    """One rate with so many nodes."""

    rate: float  # events per second
    expected: int  # deliveries of the events that were published while it was measured
    delivered: int  # … within the limit and the network's time
    p99_ms: float  # of these; what is missing counts as later than all
    virtual_nodes: int
    hosts: int  # that the maps name
    settled_s: float  # from the first event until no map changed any more
    busiest: float  # share of its time that the busiest host worked, …
    busy: float  # … that a host worked on average,
    idle: int  # and how many worked for less than a twentieth of it


class ScalingPoint(msgspec.Struct, frozen=True):
    """The most that so many nodes can do in time."""

    load: LoadName
    hosts: int
    events_per_second: float
    linear: float  # of what so many times one host can do
    p99_ms: float
    virtual_nodes: int
    used: int  # hosts that the maps name
    busiest: float  # of `Measured`
    busy: float
    idle: int
    tried: tuple[Measured, ...]


class Burst(msgspec.Struct, frozen=True):
    """A load that is so many times as high within a second, and is gone again."""

    hosts: int
    base: float  # events per second
    peak: float
    in_time_after_s: float  # from the burst's beginning until 99 % were in time again; -1: never
    expected: int  # deliveries of all events
    delivered: int
    virtual_nodes: tuple[int, int, int]  # before, at the end of the burst, at the end
    used: tuple[int, int, int]  # hosts, then
    changes: int  # of maps in all
    last_change_s: float  # from the burst's end until the last change of a map


class Scaling(msgspec.Struct, frozen=True):
    """All of the experiment."""

    seed: int
    parameters: ScalingPlan
    points: tuple[ScalingPoint, ...]
    burst: Burst | None
