"""A node that many know: links give way to new ones, and seeds at rest are left alone (M5, C1)."""

from __future__ import annotations

import pytest

from harness.link_world import Host, LinkWorld
from overlay.links import session_table
from overlay.links.constants import SEED_RECHECK
from overlay.links.events import SeedReached

MOST = 8


@pytest.fixture(autouse=True)
def few_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_table, "MAX_ACTIVE_SESSIONS", MOST)


def connected(host: Host) -> list[str]:
    return [each.peer.id for each in host.links.sessions() if each.state == "CONNECTED"]


def busy(host: Host) -> int:
    return sum(each.state != "NOT_CONNECTED" for each in host.links.sessions())


def test_more_callers_than_sessions_are_all_answered_and_none_is_lost() -> None:
    world = LinkWorld()
    hub = world.host("hub")
    callers = [world.host(f"c{number:02}") for number in range(5 * MOST)]
    for turn in range(3):
        for caller in callers:
            caller.send(hub, 2 * turn)
            world.run(0.5)
            assert busy(hub) <= MOST
            caller.send(hub, 2 * turn + 1)
            hub.send(caller, turn)
        world.run(20.0)
    for caller in callers:
        assert hub.numbers(caller) == list(range(6))
        assert caller.numbers(hub) == list(range(3))
        assert not caller.downs()
    assert not hub.downs()
    assert hub.counts["links_evicted"] > 0
    assert hub.counts.get("link_dropped", 0) == 0


def test_the_link_that_was_used_longest_ago_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overlay.links.session_table.EVICTION_BATCH", 1)
    world = LinkWorld()
    hub = world.host("hub")
    callers = [world.host(f"c{number}") for number in range(MOST)]
    for caller in callers:
        caller.send(hub, 1)
        world.run(1.0)
    callers[0].send(hub, 2)
    world.run(5.0)
    world.host("new").send(hub, 1)
    world.run(1.0)
    assert connected(hub) == ["c0", "c2", "c3", "c4", "c5", "c6", "c7", "new"]


def test_links_that_either_side_watches_do_not_give_way() -> None:
    world = LinkWorld()
    hub = world.host("hub")
    callers = [world.host(f"c{number}") for number in range(MOST)]
    for caller in callers[: MOST // 2]:
        caller.links.pin("hub")
    for caller in callers[MOST // 2 :]:
        hub.links.pin(caller.peer.id)
    for caller in callers:
        caller.send(hub, 1)
    world.run(30.0)
    new = world.host("new")
    new.send(hub, 1)
    world.run(20.0)
    assert connected(hub) == [caller.peer.id for caller in callers]
    assert hub.numbers(new) == []
    assert [down.reason for down in new.downs()] == ["too many sessions, and all are in use"]
    assert not any(caller.downs() for caller in callers)


def test_of_the_sessions_at_rest_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_table, "MAX_DORMANT_SESSIONS", 3)
    world = LinkWorld()
    hub = world.host("hub", idle_close=5.0)
    callers = [world.host(f"c{number}") for number in range(5)]
    for caller in callers:
        caller.send(hub, 1)
        world.run(1.0)
    world.run(10.0)
    assert [each.peer.id for each in hub.links.sessions()] == ["c2", "c3", "c4"]
    assert not hub.downs()
    callers[0].send(hub, 2)
    callers[2].send(hub, 2)
    world.run(1.0)
    assert hub.numbers(callers[0]) == hub.numbers(callers[2]) == [1, 2]


def test_a_seed_at_rest_is_left_alone_until_something_happens() -> None:
    world = LinkWorld()
    a, b, other = world.host("a", idle_close=5.0), world.host("b"), world.host("other")
    a.links.add_seed("b:1")
    a.send(other, 1)
    world.run(300.0)
    assert connected(a) == []
    assert a.dialled.count("b:1") == 1
    world.kill(other)
    a.send(other, 2)
    world.run(40.0)
    assert len(a.downs()) == 1
    assert a.dialled.count("b:1") == 2
    assert a.of(SeedReached) == [SeedReached("b:1", b.peer)] * 2


def test_a_seed_at_rest_is_looked_at_at_last() -> None:
    world = LinkWorld()
    a, b = world.host("a", idle_close=5.0), world.host("b")
    a.links.add_seed("b:1")
    world.run(SEED_RECHECK * 10)
    assert 10 <= a.dialled.count("b:1") <= 21
    assert len(b.dialled) == 0
