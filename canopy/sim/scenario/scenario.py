"""A scenario: how many nodes, what they are asked to do, and what goes wrong when.

    nodes: 12
    seed: 3
    subscriptions: 60            # built-in workload (absent: two a node, at least 60), or a list
                                 # of {where, node, name}
    events: 400                  # built-in workload, or a list of attributes
    rate: 50                     # events per second
    settings: {tree: {routing: counting, split_at: 16}}
    network: {loss: 0.02, latency_high: 0.2, node_bandwidth: 1000000}   # bytes per second
    disk: {sync_low: 0.001, sync_high: 0.02}                            # canopy/sim/world/disk.py
    processor: {per_match: 0.0005} # canopy/sim/world/processor.py
    faults:                      # times are seconds after the first event
      - {at: 2, do: crash, nodes: [5]}
      - {at: 3, do: drain, role: broker}
      - {at: 4, do: cut, nodes: [0, 3]}
      - {at: 6, do: restart, nodes: [5]}
      - {at: 8, do: network, network: {loss: 0.1}}
      - {at: 9, do: partition, groups: [[0, 1], [2, 3]]}
      - {at: 15, do: heal}
      - {at: 16, do: clog, nodes: [0, 3]}
      - {at: 18, do: unclog, nodes: [0, 3]}
      - {at: 19, do: pause, role: primary}
      - {at: 21, do: resume}
      - {at: 22, do: throttle, nodes: [0, 3], bandwidth: 20000}   # one node: all that it sends
      - {at: 23, do: disk, role: broker, disk: {fail: 1}}         # ends at the next sync
      - {at: 30, do: disk, disk: {}}                              # all disks are well again
      - {at: 31, do: restart, nodes: [5], wiped: true}            # on an empty disk: a new node
      - {at: 31, do: restart, nodes: [6], damaged: true}          # a bit of its state has turned
      - {at: 40, do: meet}           # with `apart: 4`: the last 4 nodes are an overlay of their own
    phases:                      # after those, once all is at rest and all nodes run again:
      - {faults: [{at: 2, do: crash, nodes: [5]}]}    # events as above, and these faults

`regions: 3` puts the nodes in three regions, in turn; `network: {backbone: 0.05}` is what a frame
takes longer between two of them. With `tiered: 4` every fourth node has a tier of 1.

With `keys: true` nodes have keys, as after `canopy keys init`, and all of them may vote.

An unknown key or a wrong type is refused with its place. Nodes are counted from 0.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import yaml
from msgspec import Meta

from canopy.sim.scenario.range_load import LoadShape
from canopy.sim.scenario.workload import WorkloadShape
from canopy.sim.world.disk import DiskConditions
from canopy.sim.world.network import Conditions
from canopy.sim.world.processor import Processor
from matching import Value
from overlay.client import LEVELS
from overlay.settings import Settings

Count = Annotated[int, Meta(ge=0, le=10_000_000)]

FEWEST_SUBSCRIPTIONS = 60
"""The least number of subscriptions of the built-in workload, so that events reach a subscriber in
a small overlay."""

SUBSCRIPTIONS_EACH = 2
"""Subscriptions of the built-in workload per node, in a large overlay."""

JOIN_GAP = 0.2
"""Seconds between the starts of two nodes in a small overlay."""

GROWN_WITHIN = 60.0
"""Seconds within which all nodes of a large overlay start: fifty a second for 3,000 nodes."""

SUBSCRIBE_GAP = 0.01
"""Seconds between two first subscriptions of the built-in workload, if there are few."""

SUBSCRIBED_WITHIN = 20.0
"""Seconds within which all first subscriptions are made, if there are many: 300 a second for
6,000."""


class ScenarioError(ValueError):
    """The scenario cannot be read; the message says where and what is expected."""


class FirstSubscription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A first subscription: its selector (`where`), its node and its name in the timeline."""

    where: str
    node: int | None = None  # absent: the next one in turn
    name: str = ""


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault, or another change of the world, `at` seconds after the first event."""

    at: Annotated[float, Meta(ge=0)]
    # fmt: off
    do: Literal[
        "crash", "lose", "restart", "drain", "join", "cut", "sever", "partition", "heal", "network",
        "block", "clog", "unclog", "pause", "resume", "throttle", "disk", "meet", "clock",
    ]  # lose: a crash whose links do not end; join: one more node per given seed; block, clog,
    # unclog: one way only, from the first of two nodes to the second; throttle: one way as well, or
    # all that one node sends, until `heal`; partition: without groups, each of the nodes alone;
    # resume: all that are paused; meet: a node joins that knows both overlays that are `apart`;
    # clock: wall clocks are turned by `seconds`
    # fmt: on
    nodes: tuple[int, ...] = ()  # restart without any: all that are down
    role: Literal["", "primary", "standby", "broker", "none", "members", "majority"] = ""  # instead
    # of nodes: one of these; or all that serve in a cluster, or more than half of one cluster
    groups: tuple[tuple[int, ...], ...] = ()
    network: Conditions | None = None
    bandwidth: Annotated[float, Meta(ge=0)] = 0.0  # throttle: bytes per second; 0: no more
    disk: DiskConditions | None = None  # of the nodes named, or of all
    seconds: float = 0.0  # clock: forward, or back
    wiped: bool = False  # restart: the disk is gone
    damaged: bool = False  # restart: the disk is not what it was
    midway: bool = False  # crash, lose: when it next stores something, before that is durable


class FaultPhase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Further faults, once the overlay has come to rest after those before, all links and nodes
    work again, and as many subscriptions as at first are there: times are seconds after the first
    of as many events as at first."""

    faults: tuple[Fault, ...] = ()
    one_within: Annotated[float, Meta(ge=0)] = 0.0  # as of the scenario, after `heal`


class ClientAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A client subscribes, unsubscribes or publishes, `at` seconds after the overlay has grown."""

    at: Annotated[float, Meta(ge=0)]
    node: Annotated[int, Meta(ge=0)]
    subscribe: str = ""  # a selector, with a …
    level: Annotated[int, Meta(ge=0, le=LEVELS)] = 0  # … latency level
    name: str = ""  # of that subscription, for …
    unsubscribe: str = ""
    publish: dict[str, Value | None] | None = None  # an event's attributes


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that a run depends on, apart from the code."""

    nodes: Annotated[int, Meta(ge=1, le=100_000)] = 12
    seed: int = 1
    subscriptions: Count | tuple[FirstSubscription, ...] | None = (
        None  # absent: see `first_subscriptions`
    )
    events: Count | tuple[dict[str, Value | None], ...] = 300
    rate: Annotated[float, Meta(gt=0)] = 50.0
    timeline: tuple[ClientAction, ...] = ()  # beside or instead of these: who does what when
    late_subscriptions: Count = 0  # further ones of the built-in workload while events flow …
    late_unsubscriptions: Count = 0  # … and so many of the first ones end
    shape: WorkloadShape = WorkloadShape()
    load: LoadShape | None = None  # the papers' load instead of the built-in one (range_load.py)
    publishers: Annotated[int, Meta(ge=1)] | None = None  # only the first so many nodes publish
    receipts: bool = False  # events are published with a receipt
    keys: bool = False  # nodes have keys, all of voters, and what follows by default from that
    settings: Settings = Settings()
    network: Conditions = Conditions()
    disk: DiskConditions = DiskConditions()
    clocks: Annotated[float, Meta(ge=0)] = 0.0  # seconds that wall clocks differ by, at most
    processor: Processor | None = None  # absent: work takes no time
    faults: tuple[Fault, ...] = ()
    join_gap: Annotated[float, Meta(ge=0)] | None = None  # seconds between the starts of two nodes;
    # absent: see `join_interval`
    rest: Annotated[float, Meta(ge=0)] = 0.0  # seconds between the last SUBACK and the first event
    regions: Annotated[int, Meta(ge=0)] = 0  # nodes are in so many, in turn; 0: in none
    tiered: Annotated[int, Meta(ge=0)] = 0  # every so many-th node has tier 1; 0: none
    apart: Annotated[int, Meta(ge=0)] = 0  # so many nodes, the last ones, know none of the others …
    one_within: Annotated[float, Meta(ge=0)] = 0.0  # … until `meet`; seconds after that, or after
    # `heal`, in which there has to be one ring; 0: it is not checked
    eager: bool = False  # each SUBACK is answered at once by an event that matches, elsewhere
    probes: Count = 0  # events in the quiet after all faults, each node with one more subscription
    phases: tuple[FaultPhase, ...] = ()  # faults and events again, before the probes

    @property
    def fault_count(self) -> int:
        """Faults of all phases."""
        return len(self.faults) + sum(len(phase.faults) for phase in self.phases)

    @property
    def first_subscriptions(self) -> int | tuple[FirstSubscription, ...]:
        """The first subscriptions: a list, or how many of the built-in workload."""
        if self.subscriptions is not None:
            return self.subscriptions
        return max(FEWEST_SUBSCRIPTIONS, SUBSCRIPTIONS_EACH * self.nodes)

    @property
    def subscribe_interval(self) -> float:
        """Seconds between two first subscriptions of the built-in workload."""
        first = self.first_subscriptions
        count = first if isinstance(first, int) else len(first)
        return min(SUBSCRIBE_GAP, SUBSCRIBED_WITHIN / max(1, count))

    @property
    def join_interval(self) -> float:
        """Seconds between the starts of two nodes."""
        return min(JOIN_GAP, GROWN_WITHIN / self.nodes) if self.join_gap is None else self.join_gap


def parse_scenario(
    text: str,
    nodes: int | None = None,
    seed: int | None = None,
    subscriptions: int | None = None,
    events: int | None = None,
) -> Scenario:
    """Return the scenario in a YAML text; the given numbers override it. Raises ScenarioError."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ScenarioError(f"not YAML: {error}") from None
    if found is None:
        found = {}
    try:
        scenario = msgspec.convert(found, Scenario)
    except msgspec.ValidationError as error:
        raise ScenarioError(str(error)) from None
    given = {"nodes": nodes, "seed": seed, "subscriptions": subscriptions, "events": events}
    over = {name: value for name, value in given.items() if value is not None}
    scenario = msgspec.structs.replace(scenario, **over)
    check_nodes(scenario)
    return scenario


def check_nodes(scenario: Scenario) -> None:
    """Check that every named node exists at the time of its fault. Raises ScenarioError."""
    known = scenario.nodes
    if scenario.apart >= scenario.nodes:
        raise ScenarioError("of the nodes that are `apart` at least one is in the first overlay")
    for faults in (scenario.faults, *(phase.faults for phase in scenario.phases)):
        known = _check_faults(faults, known)
    for action in scenario.timeline:
        if action.node >= known:
            raise ScenarioError(
                f"timeline at {action.at} s names node {action.node}; nodes are 0 to {known - 1}"
            )
        done = (action.subscribe, action.unsubscribe, action.publish)
        if sum(bool(what) or what == {} for what in done) != 1:
            raise ScenarioError(
                f"timeline at {action.at} s needs one of `subscribe`, `unsubscribe`, `publish`"
            )
    if isinstance(scenario.subscriptions, tuple):
        for wish in scenario.subscriptions:
            if wish.node is not None and not 0 <= wish.node < scenario.nodes:
                raise ScenarioError(f"subscription {wish.where!r} names node {wish.node}")


def _check_faults(faults: tuple[Fault, ...], known: int) -> int:
    """Raise ScenarioError for a fault that lacks something or names a node that is not there by
    then. `known`: nodes before these faults. Returns how many there are after them."""
    for fault in sorted(faults, key=lambda fault: fault.at):
        for node in (*fault.nodes, *(node for group in fault.groups for node in group)):
            if not 0 <= node < known:
                raise ScenarioError(
                    f"fault {fault.do!r} at {fault.at} s names node {node}; "
                    f"nodes are 0 to {known - 1} then"
                )
        if fault.do in ("cut", "sever", "block", "clog", "unclog") and len(fault.nodes) != 2:
            raise ScenarioError(f"fault {fault.do!r} at {fault.at} s needs exactly two nodes")
        if fault.do == "network" and fault.network is None:
            raise ScenarioError(f"fault 'network' at {fault.at} s needs `network`")
        if fault.do == "throttle" and len(fault.nodes) not in (1, 2):
            raise ScenarioError(f"fault 'throttle' at {fault.at} s needs one node or two")
        if fault.do == "disk" and fault.disk is None:
            raise ScenarioError(f"fault 'disk' at {fault.at} s needs `disk`")
        if fault.do == "join":
            known += max(1, len(fault.nodes))
        if fault.do == "meet":
            known += 1
    return known
