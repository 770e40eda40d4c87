"""C6: what virtual nodes ask of a host, measured by the host."""

from __future__ import annotations

from random import Random

import pytest

from matching import BOTTOM, EVERYTHING, TOP, Interval, place
from overlay.upper_tree.host.constants import LOADS_PERIOD, PLACES_LEAST, PLACES_MOST
from overlay.upper_tree.host.served_loads import SampledTree, ServedLoads, VisitSample
from overlay.upper_tree.host_load import DRAIN, LoadMeter
from overlay.upper_tree.messages import EVENT_TREE
from tests.support.trees import event
from tests.support.world import World

LOW, HIGH = Interval(BOTTOM, place(10)), Interval(place(10), TOP)


class Measured:
    """A host's meter and loads; time passes as the test says."""

    def __init__(self, *attributes: str) -> None:
        self.world = World()
        self.port = self.world.node("h")
        self.meter = LoadMeter(self.port.now)
        self.events = 0
        self.loads = ServedLoads(self.port, self.meter, self)
        self.samples = {name: VisitSample(name, Random(name)) for name in attributes}
        self.intervals = dict.fromkeys(attributes, (EVERYTHING,))
        self.sequence = 0

    def serve(self, *attributes: str, seconds: float, values: list[int]) -> None:
        """Events with these values visit the trees together; it takes so long."""
        events = []
        for value in values:
            self.sequence += 1
            events.append(event(self.sequence, **dict.fromkeys(attributes, value)))
        self.meter.arrived(len(events), self.port.now)
        for name in attributes:
            self.samples[name].visited(events, len(attributes))
        self.meter.worked(len(events), seconds)

    def measure(self, passed: float = 1.0) -> dict[str, float]:
        """By tree what its virtual nodes ask for, after so many seconds."""
        self.world.run(passed)
        self.loads.measure(
            lambda: [SampledTree(self.intervals[n], each) for n, each in self.samples.items()]
        )
        report = self.loads.report(lambda _: True)
        found: dict[str, float] = {}
        for load in () if report is None else report.nodes:
            found[load.attribute] = found.get(load.attribute, 0.0) + load.busy
        return found


def test_a_host_without_events_has_nothing_to_report() -> None:
    host = Measured("x")
    assert host.measure() == {}
    assert host.loads.report(lambda _: True) is None


def test_the_share_of_time_is_that_which_events_took() -> None:
    host = Measured("x")
    host.serve("x", seconds=0.3, values=[1] * 30)
    assert host.measure() == {"x": pytest.approx(0.3)}


def test_what_waits_and_what_arrives_count_also_where_a_host_has_no_more_time() -> None:
    host = Measured("x")
    host.serve("x", seconds=0.5, values=[1] * 50)  # 100 events per second
    host.meter.arrived(250, host.port.now)  # … of which 250 could not be served
    host.events = 250
    assert host.measure()["x"] == pytest.approx((300 + 250 / DRAIN) / 100)


def test_trees_that_are_visited_together_share_the_cost_and_have_none_alone() -> None:
    host = Measured("x", "y", "z")
    host.serve("x", "y", seconds=0.3, values=[1] * 30)
    host.serve("z", seconds=0.1, values=[1] * 10)
    assert host.measure() == {
        "x": pytest.approx(0.15),
        "y": pytest.approx(0.15),
        "z": pytest.approx(0.1),
    }
    report = host.loads.report(lambda _: True)
    assert report is not None
    assert {load.attribute: load.alone for load in report.nodes} == {
        "x": 0.0,
        "y": 0.0,
        "z": pytest.approx(0.1),
    }


def test_virtual_nodes_of_a_tree_share_by_the_values_of_its_events() -> None:
    host = Measured("x")
    host.intervals["x"] = (LOW, HIGH)
    rng = Random(1)
    for _ in range(3):
        values = [rng.choice([1, 1, 1, 20]) for _ in range(400)]
        host.serve("x", seconds=0.4, values=values)
        host.measure(0.5)
    report = host.loads.report(lambda _: True)
    assert report is not None
    by_interval = {load.interval: load for load in report.nodes}
    share = by_interval[LOW].busy / (by_interval[LOW].busy + by_interval[HIGH].busy)
    assert share == pytest.approx(0.75, abs=0.12), "the deviation of 128 draws, three times"
    assert all(LOW.contains(1) and spot == place(1) for spot in by_interval[LOW].places)


def test_only_trees_of_the_owner_that_asks_are_reported_with_all_that_the_host_does() -> None:
    host = Measured("x", "y")
    host.serve("x", seconds=0.3, values=[1] * 30)
    host.serve("y", seconds=0.3, values=[1] * 30)
    host.measure()
    report = host.loads.report(lambda name: name == "x")
    assert report is not None
    assert [load.attribute for load in report.nodes] == ["x"]
    assert report.busy == pytest.approx(0.6)


def test_a_report_is_not_made_again_before_its_time() -> None:
    host = Measured("x")
    host.serve("x", seconds=0.3, values=[1] * 30)
    first = host.measure()
    assert host.measure(LOADS_PERIOD / 2) == first
    assert host.measure(LOADS_PERIOD) == {}, "nothing came since"


def test_few_events_are_drawn_of_many() -> None:
    sample = VisitSample("x", Random(1))
    sample.visited([event(n, x=-1) for n in range(10_000)], 1)
    assert sample.take()[2] == PLACES_MOST, "at first it is not known how many come"
    sample.visited([event(n, x=n) for n in range(10_000)], 1)
    _, _, drawn = sample.take()
    places = [spot for spot in sample.places(drawn) if spot > place(-1)]
    assert PLACES_LEAST / 2 < len(places) < 2 * PLACES_LEAST
    middle = sorted(places)[len(places) // 2]
    assert place(3_000) < middle < place(7_000)


def test_every_event_has_the_same_place_in_the_reserved_tree() -> None:
    sample = VisitSample(EVENT_TREE, Random(1))
    sample.visited([event(1), event(2)], 1)
    assert sample.places(sample.take()[2]) == [place(True)] * 2


def test_what_waits_for_other_hosts_asks_for_nothing_here() -> None:
    """A tree that stayed where others moved away from would be charged with all that still waits
    for those: it was cut and given hosts that had nothing to do."""
    host = Measured("x")
    for _ in range(2):  # the rate is known: 100 events a second
        host.serve("x", seconds=0.2, values=[1] * 20)
        host.measure(2.0)
    host.events = 500
    host.serve("x", seconds=0.1, values=[1] * 10)
    host.meter.taken_up(10, 0)
    assert host.measure()["x"] == pytest.approx(0.1 + 500 / 100 / DRAIN)
    host.serve("x", seconds=0.1, values=[1] * 10)
    host.meter.arrived(90, host.port.now)
    host.meter.taken_up(10, 90)
    assert host.measure()["x"] == pytest.approx(0.1 + 0.1 * 500 / 100 / DRAIN)
    host.meter.arrived(100, host.port.now)
    host.meter.taken_up(0, 100)
    assert host.measure() == {}
