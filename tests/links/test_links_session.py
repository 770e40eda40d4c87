"""M5: states, resumption, restarts, rest, good-byes; who dials whom."""

from __future__ import annotations

import pytest

from harness.link_world import LinkWorld, Note
from overlay.links.events import REFUSED, LinkDown, LinkUp, SeedFailed, SeedReached, SessionEnd
from overlay.links.messages import PROTOCOL, Hello, Welcome
from overlay.machine import Peer


def test_the_states_of_m5_in_order() -> None:
    world = LinkWorld(delay=0.1)
    a, b = world.host("a", idle_close=5.0), world.host("b")
    assert a.states() == []
    a.send(b, 1)
    assert a.states() == [("b", "CONNECTING")]
    world.run(1.0)
    assert a.states() == [("b", "CONNECTED")]
    world.cut()
    world.run(0.1)
    assert a.states() == [("b", "CONNECTING")]
    world.run(1.0)
    assert a.states() == [("b", "CONNECTED")]
    world.run(5.0)
    assert a.states() == [("b", "NOT_CONNECTED")]
    a.send(b, 2)
    assert a.states() == [("b", "CONNECTING")]
    world.run(1.0)
    world.kill(b)
    world.run(8.0)
    assert a.states() == []


def test_a_lost_connection_is_resumed_and_loses_nothing() -> None:
    world = LinkWorld(delay=0.05)
    a, b = world.host("a"), world.host("b")
    for number in range(40):
        a.send(b, number)
        b.send(a, number)
        world.run(0.15)
        if number % 10 == 5:
            world.cut()
    world.run(5.0)
    assert b.numbers(a) == a.numbers(b) == list(range(40))
    assert not a.downs()
    assert not b.downs()
    assert [event.fresh for event in a.of(LinkUp)] == [True] + [False] * 4
    assert a.counts["link_resumed"] == 4
    assert world.live() == 1


def test_a_restarted_peer_ends_the_session_and_names_what_may_be_lost() -> None:
    world = LinkWorld(delay=0.05)
    a, b = world.host("a"), world.host("b")
    a.send(b, 1)
    world.run(1.0)
    a.send(b, 2, 3)
    fresh = world.host("b", incarnation=2)
    a.send(b, 4)
    world.run(3.0)
    [down] = a.downs()
    assert (down.peer.id, down.left) == ("b", False)
    assert down.lost == (Note(2), Note(3), Note(4))
    assert [event.fresh for event in a.of(LinkUp)] == [True, True]
    a.send(b, 5)
    world.run(1.0)
    assert fresh.numbers(a) == [5]


@pytest.mark.parametrize("dialler", ["a", "b"])
def test_what_waits_at_rest_is_not_lost_with_the_session_that_the_other_forgot(
    dialler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = LinkWorld(delay=0.05)
    a, b = world.host("a", idle_close=2.0), world.host("b")
    a.send(b, 1)
    world.run(1.0)
    world.change(loss=1.0)  # b hears neither the good-bye nor the end of the connection
    monkeypatch.setattr(world.network, "close", lambda *_: None)
    b.links.pin("a")
    world.run(2.0)
    assert a.states() == [("b", "NOT_CONNECTED")]
    world.run(6.0)
    assert [down.lost for down in b.downs()] == [()]
    b.links.unpin("a")
    monkeypatch.undo()
    world.change(loss=0.0)
    if dialler == "a":
        a.send(b, 2)
    else:
        b.send(a, 7)
        world.run(0.08)  # the dial is answered, the Hello on its way
        a.send(b, 2)
    world.run(3.0)
    assert b.numbers(a)[-1] == 2
    assert [down.lost for down in a.downs()] == [()]


def test_the_restarted_side_may_be_the_one_that_dials() -> None:
    world = LinkWorld(delay=0.05)
    a, b = world.host("a"), world.host("b")
    a.send(b, 1)
    world.run(1.0)
    world.kill(b, reset=False)  # a has not noticed
    a.send(b, 2)
    fresh = world.host("b", incarnation=2)
    fresh.send(a, 7)
    world.run(1.0)
    assert [down.lost for down in a.downs()] == [(Note(2),)]
    assert a.numbers(fresh)[-1] == 7
    assert a.links.connected("b")


def test_an_address_without_a_node_is_retried_with_backoff_and_then_given_up() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")
    world.no_route["b:1"] = None
    a.send(b, 1, 2)
    world.run(5.9)
    assert not a.downs()
    assert 4 <= len(a.dialled) <= 8
    world.run(0.2)
    assert a.downs() == [LinkDown(b.peer, "no route", False, (Note(1), Note(2)))]
    world.run(60.0)
    assert len(a.dialled) <= 8
    world.no_route.clear()
    a.send(b, 3)
    world.run(1.0)
    assert b.numbers(a) == [3]


def test_where_no_node_listens_the_second_dial_is_the_last() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")
    a.send(b, 1)
    world.run(2.0)
    world.kill(b)
    a.send(b, 2)
    world.run(1.0)
    assert a.downs() == [LinkDown(b.peer, REFUSED, False, (Note(2),), SessionEnd.GONE)]
    assert len(a.dialled) == 3


def test_a_peer_that_cannot_be_dialled_has_the_time_to_dial() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")
    b.send(a, 1)
    world.run(2.0)
    world.network.refuse(b.peer.address)  # it lives, and cannot be dialled
    world.cut()
    a.send(b, 2)
    b.send(a, 3)
    world.run(2.0)
    assert not a.downs()
    assert not b.downs()
    assert (b.numbers(a), a.numbers(b)) == ([2], [1, 3])


def test_two_that_dial_each_other_end_with_the_smaller_ones_connection() -> None:
    world = LinkWorld(delay=0.1)
    a, b = world.host("a"), world.host("b")
    a.send(b, 1)
    b.send(a, 2)
    world.run(2.0)
    assert world.live() == 1
    assert len(b.frames(Welcome)) == 1  # b answered, so a's connection stayed
    assert not a.frames(Welcome)
    assert (a.numbers(b), b.numbers(a)) == ([2], [1])


def test_another_node_at_the_address_fails_the_expected_session_only() -> None:
    world = LinkWorld()
    a, c = world.host("a"), world.host("c")
    a.send(c, 1)
    world.run(1.0)
    a.send(Peer("b", c.peer.address), 2)
    world.run(1.0)
    assert [(down.peer.id, down.lost) for down in a.downs()] == [("b", (Note(2),))]
    a.send(c, 3)
    world.run(1.0)
    assert c.numbers(a) == [1, 3]
    assert not c.downs()
    assert world.live() == 1


def test_an_unexpected_caller_gets_a_session_of_its_own() -> None:
    world = LinkWorld()
    a, c = world.host("a"), world.host("c")
    a.send(Peer("b", c.peer.address), 2)
    world.run(1.0)
    assert [down.peer.id for down in a.downs()] == ["b"]
    assert a.states() == [("c", "CONNECTED")]
    assert c.numbers(a) == []


def test_leaving_says_goodbye_after_what_was_queued() -> None:
    world = LinkWorld()
    a, b = world.pair()
    a.links.send(b.peer, Note(2))
    a.links.leave("going home")
    world.run(1.0)
    assert b.numbers(a) == [1, 2]
    assert b.downs() == [LinkDown(a.peer, "going home", True, ())]
    assert not a.downs()
    assert a.links.sessions() == ()
    assert a.links.deadline() is None
    a.send(b, 3)
    assert a.counts["link_dropped"] == 1
    world.run(20.0)
    assert len(b.dialled) == 0


def test_an_unused_link_rests_without_an_event_and_wakes_for_a_message() -> None:
    world = LinkWorld(delay=0.1)
    a, b = world.host("a", idle_close=10.0), world.host("b", idle_close=1_000.0)
    a.send(b, 1)
    world.run(11.0)
    assert a.states() == [("b", "NOT_CONNECTED")]
    assert world.live() == 0
    assert [type(event) for event in a.events] == [LinkUp]
    b.send(a, 2)
    world.run(2.0)
    assert a.numbers(b) == [2]
    assert not a.downs()
    assert not b.downs()
    assert [event.fresh for event in b.of(LinkUp)] == [True, False]


def test_a_message_that_meets_the_idle_goodbye_is_not_lost() -> None:
    world = LinkWorld(delay=0.1)
    a, b = world.host("a", idle_close=10.0), world.host("b", idle_close=1_000.0)
    a.send(b, 1)
    while a.states() != [("b", "NOT_CONNECTED")]:
        world.run(0.05)
    assert b.states() == [("a", "CONNECTED")]  # the good-bye is on its way
    b.send(a, 2)
    world.run(3.0)
    assert a.numbers(b) == [2]
    assert not a.downs()
    assert not b.downs()


def test_a_pinned_peer_that_says_the_idle_goodbye_is_dialled_again() -> None:
    world = LinkWorld(delay=0.1)
    a, b = world.host("a", idle_close=5.0), world.host("b", idle_close=50.0)
    a.send(b, 1)
    while a.states() != [("b", "NOT_CONNECTED")]:
        world.run(0.05)
    b.links.pin("a")  # the good-bye is on its way
    world.run(1.0)
    assert b.states() == [("a", "CONNECTED")]
    assert len(b.dialled) == 1


def test_a_link_that_lasted_is_redialled_without_hesitation() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")
    a.send(b, 1)
    for _ in range(10):
        world.run(2.0)
        assert a.links.connected("b")
        world.cut()
        world.run(0.3)  # retry_first is 0.2 s
        assert a.links.connected("b")


def test_a_pinned_link_does_not_rest_and_its_death_is_noticed() -> None:
    world = LinkWorld()
    a, b = world.host("a", idle_close=2.0), world.host("b", idle_close=2.0)
    for one, other in ((a, b), (b, a)):
        one.links.pin(other.peer.id)
        one.links.pin(other.peer.id)
        one.links.unpin(other.peer.id)
    a.send(b, 1)
    world.run(20.0)
    assert a.links.connected("b")
    a.links.unpin("b")
    b.links.unpin("a")
    world.run(5.0)
    assert a.states() == [("b", "NOT_CONNECTED")]


def test_a_seed_is_dialled_for_ever_and_reported() -> None:
    world = LinkWorld()
    a = world.host("a")
    a.links.add_seed("b:1")
    world.run(300.0)
    assert 10 <= len(a.of(SeedFailed)) <= 25  # every 15 to 30 s in the end
    b = world.host("b")
    world.run(31.0)
    assert a.of(SeedReached) == [SeedReached("b:1", b.peer)]
    dials = len(a.dialled)
    a.links.pin("b")
    b.links.pin("a")
    world.run(120.0)
    assert len(a.dialled) == dials  # left alone while connected


def test_a_seed_that_is_removed_is_dialled_no_more() -> None:
    world = LinkWorld()
    a = world.host("a")
    for address in ("b:1", "c:1"):
        a.links.add_seed(address)
    a.links.remove_seed("c:1")  # its dial is under way
    world.run(20.0)
    assert a.dialled.count("c:1") == 1
    assert {event.address for event in a.of(SeedFailed)} == {"b:1"}
    a.links.remove_seed("b:1")
    dials = len(a.dialled)
    world.run(120.0)
    assert len(a.dialled) == dials
    a.links.add_seed("c:1")
    world.host("c")
    world.run(31.0)
    assert [event.address for event in a.of(SeedReached)] == ["c:1"]


def test_a_seed_that_died_is_found_again_under_a_new_name() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")
    a.links.add_seed("b:1")
    world.run(1.0)
    world.kill(b)
    world.run(10.0)
    assert len(a.downs()) == 1
    other = world.host("c")
    world.network.listen("b:1", other)
    world.run(40.0)
    assert [event.peer.id for event in a.of(SeedReached)] == ["b", "c"]


def test_a_seed_that_is_connected_under_another_address_keeps_its_session() -> None:
    world = LinkWorld()
    a, b = world.pair()
    world.network.listen("alias:1", b)
    a.links.add_seed("alias:1")
    world.run(1.0)
    assert a.of(SeedReached) == [SeedReached("alias:1", b.peer)]
    assert not a.downs()
    assert not b.downs()
    assert world.live() == 1
    assert len(a.of(LinkUp)) == 1


def test_the_own_address_in_the_peer_list_is_dropped_for_good() -> None:
    world = LinkWorld()
    a = world.host("a")
    world.network.listen("alias:1", a)
    a.links.add_seed("a:1")
    a.links.add_seed("alias:1")
    world.run(100.0)
    assert a.dialled == ["alias:1"]
    assert [event.address for event in a.of(SeedFailed)] == ["alias:1"]
    assert a.states() == []
    assert world.live() == 0


def test_an_old_hello_that_comes_late_changes_nothing() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b", incarnation=5)
    b.send(a, 1)
    world.run(1.0)
    [hello] = b.frames(Hello)
    a.links.on_accepted(999)
    a.links.on_frame(999, hello)  # repeated on another connection
    older = Hello(PROTOCOL, "test", b.peer, 4, 0, 0, 1 << 20, "a", 9, 0, 9)
    a.links.on_accepted(998)
    a.links.on_frame(998, older)  # of an incarnation that is gone
    b.send(a, 2)
    world.run(1.0)
    assert a.numbers(b) == [1, 2]
    assert not a.downs()
    assert world.live() == 1
    assert 999 not in a.links.connections()
    assert 998 not in a.links.connections()
