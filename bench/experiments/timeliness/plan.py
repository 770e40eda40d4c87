"""What the timeliness experiment runs: modes, loads, and all that the paper leaves open."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from canopy.sim.world.network import Conditions
from canopy.sim.world.processor import Processor


class Mode(NamedTuple):
    """One of the paper's four combinations of priority and choice of host."""

    name: str
    choice: bool  # hosts are chosen by predicted time (P7), else by a hash
    priority: bool  # hosts serve the urgent first (P6), else first in, first out


MODES = (
    Mode("neither", choice=False, priority=False),
    Mode("priority only", choice=False, priority=True),
    Mode("choice only", choice=True, priority=False),
    Mode("both", choice=True, priority=True),
)
"""Phoenix 4.2, table 1."""

Counts = tuple[Annotated[int, Meta(ge=1)], ...]


class TimelinessPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that the experiment depends on, beside the code."""

    rates: Counts = (500, 1_000, 1_500, 2_000, 2_500, 3_000, 3_500, 4_000)  # events per second;
    # Phoenix, figure 9
    matching: Counts = (6, 10, 14, 18, 22, 26)  # subscriptions that an event matches, each on a
    # node of its own
    types: Annotated[int, Meta(ge=1)] = 200  # of events, for each level; each node subscribes to
    # all of them, so that there are 6,000 to 26,000 subscriptions, as in Phoenix, figure 10
    rate: Annotated[int, Meta(ge=1)] = 2_000  # of the second series, as in the paper
    matched: Annotated[int, Meta(ge=1)] = 10  # subscriptions per event in the first series; open
    events: Annotated[int, Meta(ge=10)] = 2_000  # measured at each point; the paper has 200,000
    warm_up: Annotated[int, Meta(ge=0)] = 200  # events before those, at the same rate
    publishers: Annotated[int, Meta(ge=1)] = 12  # open in the paper; a few to each host
    replicas: Annotated[int, Meta(ge=1)] = 3  # of the one virtual node: the match brokers, as in
    # the paper's figure of a cluster
    processor: Processor = Processor(per_input=0.000_01, per_match=0.000_3, per_recipient=0.000_04)
    # of every node: so that three hosts are nearly busy at 4,000 events a second
    network: Conditions = Conditions(latency_low=0.000_2, latency_high=0.000_6)  # a local network's
    seed: int = 1
