"""What Minos claims of transmission and standbys, claim by claim (M3 to M6; M1 and M2 are in
tests/overlay/test_overlay_regions.py).

Li, Liu, Shen, Zhang, Wu and Gao, *Reliable, scalable, real-time distributed message middleware* (in
Chinese), sections 3 and 4. Each test says what of the paper it tests (translated). The table of
features (table 3) is made from some of these tests (bench/papers/features.py). What the paper
measures, `python -m bench.papers minos` does.
"""

from __future__ import annotations

from typing import Any

import pytest

from bench.papers.power import Rig, consume
from harness.overlays import wait
from harness.simulated_stream import SimulatedReading, SimulatedStream
from overlay.client import AppendEvents, Draft, EventsAppended


@pytest.fixture(scope="module")
def rig() -> Rig:
    """An overlay with a stream of three replicas; all tests append to it."""
    return Rig(seed=1, replicas=3)


def rows(first: int, count: int) -> list[Draft]:
    return [Draft({"n": n}, b"row %d." % n) for n in range(first, first + count)]


def read(stream: SimulatedStream, offset: int) -> list[Any]:
    """What the stream has from an offset on."""
    reading, found = SimulatedReading(stream, start="offset", at=offset), []
    while reading.position < reading.end:
        found += [event.attributes["n"] for event in reading.take(5.0)]
    reading.close()
    return found


def begun(rig: Rig, producer: str) -> tuple[SimulatedStream, int]:
    """A producer's stream, and the offset that its next row gets."""
    stream = SimulatedStream(rig.world, rig.program, "s", producer)
    stream.begin()
    return stream, stream.ends()[1]


def test_section_3_3_one_acknowledgement_stands_for_a_batch(rig: Rig) -> None:
    """Section 3.3: messages are sent, received and acknowledged in batches."""
    drafts = tuple(rows(0, 100))
    command = AppendEvents(rig.world.clients.request(), "s", drafts)
    reply = rig.world.ask(rig.program, command)
    assert isinstance(reply, EventsAppended)
    assert [receipt.count for receipt in reply.receipts] == [100]


def test_section_3_3_a_batch_that_is_sent_again_is_there_once(rig: Rig) -> None:
    """Section 3.3: whoever receives a message that its store has already discards it."""
    stream, first = begun(rig, "again")
    stream.append(rows(0, 20))
    stream._next = stream._begun(0)  # a producer that does not know what has become of its batch
    stream.append(rows(0, 20))
    assert read(stream, first) == list(range(20))


def test_section_3_3_what_a_producer_sends_comes_in_its_order_while_leaders_are_lost(
    rig: Rig,
) -> None:
    """Section 3.3: the order in which messages are received is that in which they were sent, since
    none is sent behind one that is not acknowledged. Here several batches may be under way, and
    their numbers keep the order."""
    stream, first = begun(rig, "ordered")
    for number in range(12):
        if number in (3, 8):
            rig.world.at(rig.world.now + 0.002, rig.lose_power)
        stream.append(rows(number * 10, 10))
    assert len(rig.lost) >= 2
    assert read(stream, first) == list(range(120))


def test_section_3_4_a_standby_takes_over_within_seconds(rig: Rig) -> None:
    """Section 3.4: master and slaves replicate synchronously, and when the master fails a slave
    takes over in seconds; the client's session goes on there."""
    stream, first = begun(rig, "served")
    stream.append(rows(0, 1))
    (lost,) = rig.streams.leaders()
    rig.world.crash(lost, silent=True)
    at = rig.world.now
    stream.append(rows(1, 1))
    assert rig.world.now - at < 10.0
    assert lost not in rig.streams.leaders()
    assert read(stream, first) == [0, 1]
    rig.world.restart(lost)
    wait(rig.world, lambda: len(rig.streams.replicas()) == 3, 30.0, "it is a replica again")


def test_section_4_a_row_is_acknowledged_when_a_majority_has_it_on_disk(rig: Rig) -> None:
    """Section 4: nothing is lost, since the store flushes synchronously. Here a majority of the
    replicas has, so that a machine that does not come back loses nothing either."""
    stream, _ = begun(rig, "durable")
    stream.append([Draft({"n": 1}, b"flushed before it is acknowledged")])
    on_disk = [b"flushed before" in rig.streams.bytes_of(name) for name in rig.streams.replicas()]
    assert sum(on_disk) >= 2


def test_section_4_a_consumer_loses_and_repeats_nothing_when_the_power_goes() -> None:
    """Section 4: a consumer takes 2 ms for each message, and the broker's machine loses its power
    and is started again. One broker, as in the paper."""
    found = consume(seed=1, replicas=1, rows=200, effect=True)
    assert found["losses_of_power"] == 3
    assert (found["lost"], found["repeated"], found["in_order"]) == (0, 0, True)


def test_a_disk_that_flushes_later_loses_what_was_acknowledged() -> None:
    """Section 4: Kafka and RocketMQ lost messages, as they flushed asynchronously. So would this
    stream; the experiment sees it."""
    found = consume(seed=1, replicas=1, rows=200, effect=True, lazy=True)
    assert found["lost"]
