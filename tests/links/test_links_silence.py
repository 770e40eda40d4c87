"""Silence: whose counts, from when on, and what asking costs (M5)."""

from __future__ import annotations

from harness.link_world import LinkWorld, Note
from overlay.links.constants import FIRST_REPORT, LARGEST_REPORT, STALL_ANSWER
from overlay.links.events import LinkRecovered, LinkSuspected, LocalStall, SessionEnd
from overlay.links.messages import Ack


def test_silence_of_a_watched_peer_for_dead_after_is_death() -> None:
    world = LinkWorld()
    a, b = world.pair(pinned=True)
    world.kill(b, reset=False)
    world.run(4.0)
    assert not a.downs()
    a.send(b, 2)
    world.run(3.0)
    [down] = a.downs()
    assert "silent" in down.reason
    assert down.lost == (Note(2),)
    assert a.states() == []


def test_silence_of_a_peer_that_owes_an_acknowledgement_is_death() -> None:
    world = LinkWorld()
    a, b = world.pair()
    world.kill(b, reset=False)
    world.run(30.0)
    assert not a.downs()  # without a question no answer was due
    a.send(b, 2)
    world.run(5.5)
    assert not a.downs()  # its time began with the message
    world.run(1.0)
    [down] = a.downs()
    assert "silent" in down.reason
    assert down.lost == (Note(2),)


def test_a_peer_that_takes_nothing_for_want_of_credit_is_asked_and_missed() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b", window=4_096)
    a.send(b, 1)
    world.run(1.0)
    session = a.links._sessions.find("b")
    assert session is not None
    session.outgoing.credit = 0
    a.send(b, 2)
    world.run(2.0)
    assert [ack for ack in a.frames(Ack) if ack.asks]
    assert b.numbers(a) == [1, 2]  # its answer grants credit again
    session.outgoing.credit = 0
    world.kill(b, reset=False)
    a.send(b, 3)
    world.run(7.0)
    assert [down.lost for down in a.downs()] == [(Note(3),)]


def test_who_stood_still_for_long_gives_peers_little_time_to_answer() -> None:
    for stall, gone_after in ((5.0, 6.0), (7.0, STALL_ANSWER)):
        world = LinkWorld()
        a, b = world.host("a"), world.host("b")
        a.links.pin("b")
        a.send(b, 1)
        world.run(1.0)
        world.kill(b, reset=False)  # it has closed, and that is lost
        world.jump(stall)
        world.run(gone_after - 1.2)
        assert not a.downs()
        world.run(1.4)
        assert len(a.downs()) == 1


def test_who_answers_after_a_long_stall_keeps_its_session() -> None:
    world = LinkWorld()
    a, b = world.pair(pinned=True)
    world.jump(60.0)  # of both
    world.run(10.0)
    assert not a.downs()
    assert not b.downs()


def test_who_is_watched_after_a_long_silence_has_not_made_this_node_stall() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")
    a.send(b, 1)
    world.run(21.0)
    a.links.pin("b")
    world.run(5.0)
    assert a.of(LocalStall) == []


def test_the_watch_begins_when_it_is_asked_for() -> None:
    world = LinkWorld()
    a, b = world.pair()
    world.kill(b, reset=False)
    world.run(20.0)
    a.links.pin("b")
    world.run(5.5)
    assert not a.downs()
    world.run(1.0)
    assert len(a.downs()) == 1


def test_heartbeats_keep_a_watched_link_alive_and_are_few() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")
    a.links.pin("b")
    a.send(b, 1)
    world.run(100.5)
    assert a.links.connected("b")
    assert not a.downs()
    assert 95 <= len(a.frames(Ack)) <= 101
    assert all(ack.asks for ack in a.frames(Ack))
    assert 95 <= len(b.frames(Ack)) <= 101
    assert not [ack for ack in b.frames(Ack) if ack.asks]
    a.links.unpin("b")
    asked = len(a.frames(Ack))
    world.run(50.0)
    assert len(a.frames(Ack)) == asked
    assert b.links.connected("a")
    assert not b.downs()


def test_two_that_watch_each_other_need_no_more_than_one_that_does() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")
    a.links.pin("b")
    b.links.pin("a")
    a.send(b, 1)
    world.run(100.5)
    assert len(a.frames(Ack)) + len(b.frames(Ack)) <= 202
    world.kill(b, reset=False)
    world.run(6.5)
    assert len(a.downs()) == 1


def test_a_link_that_is_not_watched_is_silent_until_it_is_used() -> None:
    world = LinkWorld()
    a, b = world.pair()
    before = len(a.written) + len(b.written)
    world.run(50.0)
    assert len(a.written) + len(b.written) == before
    assert a.links.connected("b")
    a.send(b, 2)
    world.run(0.5)
    assert b.numbers(a) == [1, 2]
    assert not a.downs()


def test_a_watched_link_is_not_idle_for_the_other_side_either() -> None:
    world = LinkWorld()
    a, b = world.host("a", idle_close=5.0), world.host("b", idle_close=5.0)
    b.links.pin("a")
    a.send(b, 1)
    world.run(50.5)
    assert b.states() == [("a", "CONNECTED")]
    assert len(b.dialled) == 0


def test_a_node_that_stood_still_takes_no_peer_for_dead() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")
    for one, other in ((a, b), (b, a)):
        one.links.pin(other.peer.id)
        one.send(other, 1)
    world.run(1.0)
    world.jump(5.5)  # a stands still, and its clock comes before what b has said meanwhile
    a.links.on_tick()
    world.run(10.0)
    assert not a.downs() + b.downs()


def test_silence_goes_on_to_count_after_standing_still() -> None:
    world = LinkWorld()
    a, b = world.pair(pinned=True)
    world.kill(b, reset=False)
    world.jump(4.0)
    world.run(4.0)
    assert not a.downs()
    world.run(3.0)
    [down] = a.downs()
    assert (down.end, "silent" in down.reason) == (SessionEnd.UNREACHABLE, True)


def test_a_peer_that_starts_again_is_alive() -> None:
    world = LinkWorld()
    a, b = world.pair()
    world.kill(b)
    again = world.host("b", incarnation=2)
    again.send(a, 2)
    world.run(3.0)
    [down] = a.downs()
    assert (down.end, down.reason) == (SessionEnd.RESET, "it restarted")


def test_a_process_that_is_not_there_any_more_is_gone() -> None:
    world = LinkWorld()
    a, b = world.pair()
    world.kill(b)
    world.run(3.0)
    a.send(b, 2)
    world.run(3.0)
    assert {down.end for down in a.downs()} == {SessionEnd.GONE}


def test_what_a_silent_link_holds_is_reported_soon_and_more_of_it_each_time() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")
    a.send(b, 0)
    world.run(1.0)
    world.kill(b, reset=False)
    a.send(b, *range(100))
    world.run(1.0)
    first = a.of(LinkSuspected)
    assert [len(each.unacknowledged) for each in first[:2]] == [
        FIRST_REPORT,
        min(84, 4 * FIRST_REPORT),
    ]
    a.send(b, 100)
    world.run(1.5)
    unacknowledged = [note.number for each in a.of(LinkSuspected) for note in each.unacknowledged]
    assert unacknowledged == list(range(101))
    assert not a.downs()


def test_much_on_a_silent_link_is_reported_in_parts_that_follow_each_other_soon() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")
    a.send(b, 0)
    world.run(1.0)
    world.kill(b, reset=False)
    a.send(b, *range(20 * LARGEST_REPORT))
    world.run(2.5)
    found = [each.unacknowledged for each in a.of(LinkSuspected)]
    assert max(map(len, found)) == LARGEST_REPORT
    numbers = [note.number for each in found for note in each]
    assert numbers == list(range(20 * LARGEST_REPORT))
    assert not a.downs()


def test_a_dial_without_an_answer_is_a_silent_link() -> None:
    world = LinkWorld(delay=5.0)
    a, b = world.host("a"), world.host("b")
    a.send(b, 1)
    world.run(0.9)
    assert not a.of(LinkSuspected)
    world.run(0.5)
    assert [each.unacknowledged for each in a.of(LinkSuspected)] == [(Note(1),)]


def test_a_silence_that_is_over_is_reported_and_the_next_is_reported_from_the_start() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")
    a.send(b, 0)
    world.run(1.0)
    world.network.partition([["a"], ["b"]])
    a.send(b, 1)
    world.run(1.0)
    assert a.of(LinkSuspected)
    assert not a.of(LinkRecovered)
    world.network.heal()
    world.run(3.0)
    assert len(a.of(LinkRecovered)) == 1
    world.network.partition([["a"], ["b"]])
    a.send(b, 2)
    world.run(2.0)
    assert a.of(LinkSuspected)[-1].unacknowledged == (Note(2),)


def test_a_peer_that_sends_is_given_twice_the_time_to_acknowledge() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")
    a.send(b, 0)
    world.run(1.0)
    world.network.block("a", "b")
    a.send(b, 1)
    world.run(0.1)
    b.send(a, 1)
    world.run(1.0)
    assert b.numbers(a) == [0]
    assert not a.of(LinkSuspected)
    world.run(1.0)
    assert a.of(LinkSuspected)


def test_a_slow_answer_is_no_silence() -> None:
    world = LinkWorld(delay=0.2)
    a, b = world.host("a"), world.host("b")
    for number in range(20):
        a.send(b, number)
        world.run(0.3)
    assert not a.of(LinkSuspected)
