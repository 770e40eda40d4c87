"""A figure as data: what is written as JSON and drawn."""

from __future__ import annotations

from typing import Any

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
    """Everything that a figure depends on, beside the code."""

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
    gossip: float = 20.0  # full nodes: virtual seconds from the last SUBACK to the first event
    one_load: bool = False  # all points have the first of the same subscriptions, and one graph
    seed: int = 1
