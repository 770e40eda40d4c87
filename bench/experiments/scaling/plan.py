"""What the scaling experiment runs."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from canopy.sim.world.network import Conditions
from canopy.sim.world.processor import Processor

SLOWER = 50
"""How many times slower than a real node's (canopy/sim/world/processor.py) the simulated processors
are: as many times fewer events bring them to their limit."""

LoadName = Literal["one", "zipf", "value", "crowd"]
"""`one`: every event has one attribute, and each value is as likely. `zipf`: an event has some of
100 attributes, drawn by a Zipf law with exponent 0.8, and each value is as likely. `value`: every
event has the same value of one attribute, which a few nodes want; `crowd`: many want it, so that
one event takes a host long."""

Seconds = Annotated[float, Meta(gt=0, le=600)]


class ScalingPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that the experiment depends on, beside the code."""

    hosts: tuple[Annotated[int, Meta(ge=1, le=512)], ...] = (1, 2, 4, 8, 16, 32, 64)
    loads: tuple[LoadName, ...] = ("one", "zipf")
    attributes: Annotated[int, Meta(ge=1)] = 100  # of `zipf`
    per_event: Annotated[int, Meta(ge=1)] = 3  # attributes of one event of `zipf`
    zipf: Annotated[float, Meta(ge=0)] = 0.8
    parts: Annotated[int, Meta(ge=1)] = (
        64  # subscriptions to one attribute of `one`, each to as many
    )
    # values; four to each of `zipf`
    audience: Annotated[int, Meta(ge=1)] = 4  # nodes that want the one value of `value` …
    crowd: Annotated[int, Meta(ge=1)] = 100  # … and of `crowd`
    publishers: Annotated[int, Meta(ge=1)] = 16  # whose own work takes no time
    subscribers: Annotated[int, Meta(ge=1)] = 16  # as well
    p99_ms: Annotated[float, Meta(gt=0)] = 100.0  # 99 % of deliveries are to be made within
    shares: tuple[float, ...] = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of what `hosts` times one host can
    # do: the rates that are tried, from the middle
    one_host: tuple[float, ...] = (0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7)  # of a processor's
    # time for events alone, without frames: the rates that are tried with one host
    settle: Seconds = 20.0  # until a rate is measured: at most
    calm: Seconds = 3.0  # … or until no map has changed for so long
    measured: Seconds = 2.0  # deliveries of events that are published within so long, or longer, …
    measured_events: Annotated[int, Meta(ge=1)] = 400  # … so that there are so many of them
    burst_hosts: int = 32  # nodes of the burst; 0: no burst
    burst_base: Annotated[float, Meta(gt=0)] = 0.4  # of one host's time before it
    burst_factor: Annotated[float, Meta(gt=1)] = 20.0
    burst_seconds: Seconds = 12.0
    after_burst: Seconds = 60.0  # in which maps are to settle
    processor: Processor = Processor(
        per_input=SLOWER * 0.000_02,
        per_match=SLOWER * 0.000_02,
        per_further=SLOWER * 0.000_002,
        per_recipient=SLOWER * 0.000_01,
    )
    network: Conditions = Conditions(latency_low=0.000_2, latency_high=0.000_6)  # a local network's
    seed: int = 1

    def deliveries(self, load: LoadName) -> int:
        """How many deliveries one event of a load should have."""
        match load:
            case "one":
                return 1
            case "zipf":
                return min(self.per_event, self.attributes)
            case "value":
                return self.audience
            case "crowd":
                return self.crowd
