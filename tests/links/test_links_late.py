"""A peer that is late is not silent: nothing goes to it twice, and its session stays."""

from __future__ import annotations

import pytest

from harness.link_world import LinkWorld, Note, Urgent, connected_pair
from overlay.links.constants import MIN_RTO, QUEUE_DELAY
from overlay.links.events import LinkRecovered, LinkSuspected
from overlay.links.messages import Ack


def test_to_a_peer_that_reads_late_nothing_goes_twice_nor_another_way() -> None:
    world, a, b = connected_pair()
    number = 1
    for late in (0.2, 0.4, 0.8, 1.6, 2.4, 0.1, 2.0, 0.0):
        b.late = late
        for _ in range(80):
            number += 1
            a.send(b, number)
            b.send(a, number)
            world.run(0.1)
    world.run(5.0)
    assert b.numbers(a) == list(range(1, number + 1))
    for host in (a, b):
        assert host.counts.get("link_resent", 0) == 0
        assert host.counts.get("links_detoured", 0) == 0
        assert not host.downs()
    assert len(world.ways["a"].opened) <= 8, "once when it becomes slower"
    assert world.live() == 1, "the connection is the same"


def test_a_peer_that_is_late_all_the_time_is_asked_for_by_other_ways_only_at_first() -> None:
    world, a, b = connected_pair()
    b.late = 1.2
    for number in range(2, 40):
        a.send(b, number)
        world.run(3.0)
    opened = [at for at, _ in world.ways["a"].opened]
    assert len(opened) <= 2
    assert not opened or opened[-1] < 110.0
    assert a.counts.get("link_resent", 0) == 0
    assert a.links.is_direct("b")


def test_who_only_answers_questions_late_is_not_silent_either() -> None:
    world, a, b = connected_pair(pinned=True)
    b.late = 1.0
    world.run(60.0)
    assert not a.of(LinkSuspected)
    assert not world.ways["a"].opened
    assert not a.downs()


def test_the_answer_on_the_link_itself_counts_if_it_comes_just_behind_another_node_s() -> None:
    world, a, b = connected_pair()
    world.ways["a"].delay = world.ways["b"].delay = 0.001  # the helpers are nearer than the peer
    b.busy_until = world.now + 0.6
    a.send(b, 2)
    world.run(5.0)
    assert world.ways["a"].opened, "it was silent for too long"
    assert a.counts.get("links_detoured", 0) == b.counts.get("links_detoured", 0) == 0
    assert world.live() == 1
    assert b.numbers(a) == [1, 2]


@pytest.mark.parametrize("late", [0.1, 0.3, 0.9])
def test_who_looks_late_itself_reads_first_what_has_arrived(late: float) -> None:
    world, a, b = connected_pair()
    b.late = 0.45
    a.send(b, 2)
    world.run(MIN_RTO - 0.01)
    world.jump(late)  # its tick comes before what has arrived meanwhile
    a.links.on_tick()
    a.wake()
    assert not a.of(LinkSuspected)
    world.run(2.0)
    assert not a.of(LinkSuspected)
    assert not world.ways["a"].opened
    assert b.numbers(a) == [1, 2]


def test_who_looks_late_all_the_time_still_notices_a_silent_peer() -> None:
    world, a, b = connected_pair()
    world.kill(b, reset=False)
    a.send(b, 2)
    began = world.now
    while not a.of(LinkSuspected):
        world.jump(0.3)
        a.links.on_tick()
        assert world.now < began + 3.0


def test_what_is_lost_is_sent_again_when_the_peer_has_said_so_and_only_that() -> None:
    world = LinkWorld(delay=0.02)
    a, b = world.host("a"), world.host("b")
    a.send(b, 0)
    world.run(1.0)
    world.change(loss=1.0)
    for number in range(1, 31):
        a.send(b, number)
        world.run(0.01)
    world.change(loss=0.0)
    world.run(1.5)
    assert b.numbers(a) == list(range(31))
    assert a.counts["link_resent"] == 30
    assert len([ack for ack in b.frames(Ack) if ack.answers]) <= 2


def test_an_answer_that_comes_twice_or_late_repeats_nothing() -> None:
    world = LinkWorld(delay=0.02, duplicate=0.5)
    a, b = world.host("a"), world.host("b")
    a.links.pin("b")
    b.links.pin("a")
    for number in range(300):
        a.send(b, number)
        world.run(0.4)
    assert b.numbers(a) == list(range(300))
    assert a.counts.get("link_resent", 0) == 0
    assert not a.downs()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Ack(0, 1 << 20, answers=1), "lacks batches that it has acknowledged"),
        (Ack(1, 1 << 20, answers=7), "answers what was never asked"),
    ],
)
def test_an_answer_that_cannot_be_ends_the_session(answer: Ack, reason: str) -> None:
    world = LinkWorld()
    a, _ = world.pair(pinned=True)
    session = a.links._sessions.find("b")
    assert session is not None
    asked = session.make_question(world.now).asks
    forged = answer if answer.answers == 7 else Ack(0, 1 << 20, answers=asked)
    a.arrived(session.connection.id, forged)  # type: ignore[union-attr]
    assert [down.reason for down in a.downs()] == [reason]


def slow_link() -> LinkWorld:
    """A host a with 4 MB for host b, which handles 400 kB per second."""
    world = LinkWorld(delay=0.02)
    a, b = world.host("a"), world.host("b")
    a.send(b, 0)
    world.run(1.0)
    world.network.throttle("a", "b", 400_000.0)
    a.send(b, *range(1, 1_001), text="-" * 4_000)
    return world


def test_what_a_peer_does_not_handle_soon_waits_at_the_sender() -> None:
    world = slow_link()
    a, b = world.hosts["a"], world.hosts["b"]
    world.run(3.0)
    assert a.links.sessions()[0].in_flight_bytes <= 400_000 * 3 * QUEUE_DELAY
    world.run(9.0)
    assert b.numbers(a) == list(range(1_001)), "and the link is used all the time"
    assert a.counts.get("link_resent", 0) == 0


def test_an_urgent_message_overtakes_what_waits_and_no_other_urgent_one() -> None:
    world = slow_link()
    a, b = world.hosts["a"], world.hosts["b"]
    world.run(2.0)
    for number in (1, 2, 3):
        a.links.send(b.peer, Urgent(number))
    a.links.flush()
    world.run(1.5)
    urgent = [one.number for _, one in b.heard if isinstance(one, Urgent)]
    assert urgent == [1, 2, 3]
    assert len(b.numbers(a)) < 500
    world.run(10.0)
    assert b.numbers(a) == list(range(1_001))


def test_where_nothing_waits_an_urgent_message_keeps_its_place() -> None:
    world = LinkWorld()
    a, b = world.pair()
    for number in range(2, 5):
        a.links.send(b.peer, Note(number))
        a.links.send(b.peer, Urgent(number))
    a.links.flush()
    world.run(1.0)
    assert [type(one) for _, one in b.heard[1:]] == [Note, Urgent] * 3


def test_a_session_that_moves_counts_what_was_acknowledged_meanwhile() -> None:
    world, a, b = connected_pair()
    session = a.links._sessions.find("b")
    assert session is not None
    for number in range(2, 6):
        a.send(b, number)
        world.run(0.3)
    a.send(b, 6)
    assert [batch.number for batch in session.outgoing.resume(2, 1 << 20)] == [5], (
        "the greeting was late"
    )
    assert not a.of(LinkRecovered)
