"""A figure as data: what is written as JSON and drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from random import Random
from typing import Any, Protocol

import msgspec

from canopy.sim.scenario.range_load import LoadShape


class FigureCurve(msgspec.Struct, frozen=True):
    """One curve. A value that does not exist (nothing was delivered) is null."""

    name: str
    y: tuple[float | None, ...]
    paper: bool = True  # one of the curves of the paper's figure
    facts: dict[str, tuple[float | None, ...]] = {}  # what it is made of, per x


class Figure(msgspec.Struct, frozen=True):
    """One figure: what `figure-N.json` has."""

    figure: int
    title: str
    x_label: str
    y_label: str
    x: tuple[int, ...]
    series: tuple[FigureCurve, ...]
    parameters: dict[str, Any]
    seed: int
    x_log: bool = False
    y_log: bool = False


class FigurePlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that a figure depends on, beside the code and the seed."""

    x: tuple[int, ...]
    nodes: int = 3_000  # CBDLO 5.3
    view: int = 10  # CBDLO 5.3
    access_points: int = 100  # CBDLO 5.3
    hops: int = 10  # CBDLO 5.3
    trace: int = 10  # open in the paper: as long as the walk
    subscriptions: int = 1_000  # open in the paper
    events: int = 125  # open in the paper; at 3.3 matches each they have its 408 expected
    forwardings: int = 40  # times that each event is forwarded at random, for a mean
    placement: str = "subscribers"  # the paper's; `cluster` is the product's
    load: LoadShape = LoadShape()
    full_nodes: bool = False  # whole nodes in place of the routing model, which stands beside them
    gossip: float = 40.0  # full nodes: virtual seconds from the last SUBACK to the first event


class Spreading(Protocol):
    """The baseline *Simple* over the same graph: whom an event reaches, and what it costs."""

    def publish(self, source: int, hops: int) -> tuple[Set[int], int]:
        """(nodes that saw the event, messages)."""


class Broadcaster(Protocol):
    """The baseline *TERA* over the same subscriptions: what its events cost."""

    subscribed: list[int]

    def publish(self, source: int, topic: int, hops: int) -> tuple[int, int, int]:
        """(messages of the walk, messages of the broadcast, subscribers reached)."""


Neighbours = Callable[[int], Sequence[int]]


class Baselines(Protocol):
    """Makes the baselines that CBDLO is compared with."""

    def simple(self, neighbours: Neighbours) -> Spreading:
        """*Simple* (a flood) on this graph."""

    def forwarding(self, neighbours: Neighbours, rng: Random) -> Spreading:
        """*Simple* read as forwarding to one random neighbour."""

    def tera(self, neighbours: Neighbours, nodes: int, rng: Random, seed: str) -> Broadcaster:
        """*TERA* (topic overlays) on this graph."""
