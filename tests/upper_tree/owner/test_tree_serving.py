"""C6: serving leases: who may serve, and when a lease is over for certain."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from matching import EVERYTHING
from overlay.machine import Message
from overlay.settings import Settings
from overlay.upper_tree.host.orphaned_trees import ServingLeases
from overlay.upper_tree.messages import (
    Assign,
    Install,
    Register,
    Registered,
    ServingBeat,
    ServingReply,
    TreeMoved,
    Uninstall,
    Visit,
)
from overlay.upper_tree.owner.constants import BEATS
from overlay.upper_tree.owner.lease_grants import LeaseGrants, ServingBeatDue
from tests.support.trees import HostNode, Rig, S, event, registration
from tests.support.world import one_node, peer
from tests.upper_tree.host.test_tree_hosting import assign, install

KEY = "8" * 40
TERM = 4.0
MOST = 10.0
OWNER, PUB = peer("owner"), peer("pub")


class Pair:
    """An owner and a host with clocks of their own rates, and FIFO links with any delay."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.time = 0.0
        self.port = one_node("owner")
        self.owner = LeaseGrants(self.port, TERM, MOST)
        self.owner.attend([peer("h")])
        self.host = ServingLeases()
        self.there: deque[ServingBeat] = deque()
        self.back: deque[ServingReply] = deque()

    def advance(self, seconds: float) -> None:
        self.time += seconds
        self.port.world.jump(seconds)

    def beat(self) -> None:
        for node in self.owner.due():
            self.owner.send(node, KEY, KEY, 1)
        self.there += [m for _, m in self.port.sent_to(ServingBeat)]

    def arrive(self) -> None:
        if self.there:
            beat = self.there.popleft()
            self.host.take("owner", beat, self.time * self.rate)
            self.back.append(ServingReply(beat.key, beat.number))

    def answer(self) -> None:
        if self.back:
            self.owner.on_reply(peer("h"), self.back.popleft())

    def serves(self) -> bool:
        return self.host.covers("1" * 40, 1, self.time * self.rate)


@pytest.mark.parametrize("rate", [0.9, 1.0, 1.2])
def test_a_lease_that_is_over_for_the_owner_is_over_at_the_host(rate: float) -> None:
    leased = over = 0
    for seed in range(60):
        rng, pair = Random(seed), Pair(rate)
        patience = rng.choice((0.05, 0.5, 2.0))
        for _ in range(200):
            step = rng.choice((pair.beat, pair.arrive, pair.answer, pair.arrive, pair.answer))
            step()
            assert not (pair.owner.is_over("h") and pair.serves())
            leased += pair.serves()
            over += pair.owner.is_over("h")
            pair.advance(rng.random() * patience)
    assert leased > 1_000
    assert over > 1_000


def test_a_host_has_a_lease_after_a_round_trip_and_a_half_and_keeps_it() -> None:
    pair = Pair(1.0)
    for _ in range(2):
        assert not pair.serves()
        pair.beat()
        pair.arrive()
        pair.answer()
    for _ in range(40):
        assert pair.serves()
        pair.advance(TERM / BEATS)
        pair.beat()
        pair.arrive()
        pair.answer()


def test_no_beat_comes_before_what_its_host_was_sent_earlier() -> None:
    """A SUBACK leaves a host out whose lease is over: the next lease has to follow the
    registrations that it missed, on a link that holds things back, too."""
    in_order = (Install, Uninstall, Assign, ServingBeat)
    assert not any(kind.overtakes for kind in in_order)
    assert ServingReply.overtakes, "it says nothing of what was sent before it"


def test_silence_ends_it() -> None:
    pair = Pair(1.0)
    for _ in range(2):
        pair.beat()
        pair.arrive()
        pair.answer()
    pair.advance(TERM * 0.79)
    assert pair.serves()
    pair.advance(TERM * 0.02)
    assert not pair.serves()
    assert not pair.owner.is_over("h")
    pair.advance(TERM * 0.2)
    assert pair.owner.is_over("h")


def test_leases_are_longer_where_answers_take_long_but_not_for_ever() -> None:
    pair = Pair(1.0)
    for _ in range(60):
        pair.beat()
        pair.advance(0.6)
        pair.arrive()
        pair.advance(0.6)
        pair.answer()
    assert 2 * 1.2 < pair.owner.longest < MOST
    assert pair.serves()
    for _ in range(60):
        pair.beat()
        for _ in range(5):
            pair.advance(1.0)
            pair.beat()
            assert len(pair.there) <= 3, "a slow link is not filled with beats"
        while pair.there:
            pair.arrive()
            pair.answer()
    assert pair.owner.longest == MOST


def test_who_was_never_heard_is_not_over_but_who_may_have_one_from_another_is() -> None:
    pair = Pair(1.0)
    pair.advance(100.0)
    assert not pair.owner.is_over("h"), "its lease has not begun"
    pair.owner.begin([peer("h")])
    pair.owner.attend([peer("h")])
    pair.advance(MOST * 0.9)
    assert not pair.owner.is_over("h")
    pair.advance(MOST * 0.2)
    assert pair.owner.is_over("h")


def test_a_lease_is_of_its_arc_and_epoch() -> None:
    held = ServingLeases()
    for number in (1, 2):
        held.take("o", ServingBeat("2" * 40, "8" * 40, 5, number, number - 1, TERM), 0.0)
    assert held.covers("3" * 40, 5, 1.0)
    assert not held.covers("9" * 40, 5, 1.0)
    assert not held.covers("1" * 40, 5, 1.0)
    assert not held.covers("3" * 40, 6, 1.0), "another owner has spoken since"


# --- in the machines ---


def test_a_host_without_a_lease_gives_events_back() -> None:
    node = HostNode(one_node("h"), Settings())
    assign(node, EVERYTHING)
    install(node, registration("s/0", "x", "x > 0", S))
    visit = Visit(PUB, 1, ("x",), (event(1, x=1),))
    node.port.hear(visit, PUB)
    assert [m.sequences for m in node.port.take(TreeMoved)] == [(1,)]
    node.lease()
    node.port.hear(visit, PUB)
    assert node.port.take(TreeMoved) == []
    node.port.advance(Settings().tree.serving_lease)
    node.port.hear(visit, PUB)
    assert [m.sequences for m in node.port.take(TreeMoved)] == [(1,)]


def silent() -> Rig:
    """Two replicas, of which one has not been heard for a while; its link stands."""
    rig = Rig("h1", "h2", replicas=2)
    rig.register("x > 1")
    rig.settle(2.0)
    rig.owner.port.take(Registered)
    rig.net.held["h2"] = None
    return rig


def test_a_suback_leaves_a_silent_replica_out_when_its_lease_is_over() -> None:
    rig = silent()
    rig.register("x > 2", first=1)
    rig.settle(TERM - 1.0)
    assert rig.owner.port.take(Registered) == []
    rig.settle(2.0)
    assert [m.ids for m in rig.owner.port.take(Registered)] == [("s/1",)]


def test_a_replica_that_wakes_up_has_what_it_missed_before_it_serves_again() -> None:
    rig = silent()
    rig.register("x > 2", first=1)
    rig.settle(TERM + 1.0)
    host = rig.hosts["h2"]
    tree = host.hosting.trees["x"]
    del rig.net.held["h2"]
    seen: list[type[Message]] = []
    while rig.net.links["p", "h2"]:
        assert not host.hosting.assigned.has_lease(tree)
        seen.append(type(rig.net.links["p", "h2"][0]))
        rig.net.deliver(("p", "h2"))
    assert Install in seen
    rig.settle(2.0)
    assert host.hosting.assigned.has_lease(tree)
    assert sorted(tree.registrations) == ["s/0", "s/1"]


def test_a_host_gets_no_lease_before_it_has_forgotten_what_it_may_have_missed() -> None:
    rig = Rig("h1", "h2", replicas=2)
    rig.register("x > 1")
    rig.settle(2.0)
    rig.net.cut("p", "h2")
    rig.register("x > 2", first=1)
    rig.settle(TERM + 1.0)
    assert [m.ids for m in rig.owner.port.take(Registered)][-1] == ("s/1",)
    rig.net.join("p", "h2")
    host = rig.hosts["h2"]
    for _ in range(3):
        rig.owner.port.hear(ServingBeatDue())
        rig.owner.owner.hosts.watch()
        rig.owner.port.turn()
        rig.net.flush()
        assert not host.hosting.assigned.has_lease(host.hosting.trees["x"]), "it lacks the second"
        rig.net.run(0.05)
    rig.settle(3.0)
    assert sorted(host.hosting.trees["x"].registrations) == ["s/0", "s/1"]
    assert host.hosting.assigned.has_lease(host.hosting.trees["x"])


def test_a_suback_waits_for_the_end_of_a_lost_hosts_lease() -> None:
    """It may be lost for the owner only, and serve a publisher by what it has."""
    rig = Rig("h1", "h2", replicas=2)
    rig.register("x > 1")
    rig.settle(2.0)
    rig.owner.port.take(Registered)
    rig.net.cut("p", "h2")
    rig.register("x > 2", first=1)
    given = 0.0
    while not rig.owner.port.take(Registered):
        host = rig.hosts["h2"].hosting
        rig.settle(0.2)
        given += 0.2
    assert not host.assigned.has_lease(host.trees["x"])
    assert TERM * 0.5 < given < TERM


def test_a_host_that_left_is_not_waited_for() -> None:
    rig = Rig("h1", "h2", replicas=2)
    rig.register("x > 1")
    rig.settle(2.0)
    rig.owner.port.take(Registered)
    rig.net.cut("p", "h2", left=True)
    rig.register("x > 2", first=1)
    rig.settle(0.6)
    assert [m.ids for m in rig.owner.port.take(Registered)] == [("s/1",)]


def test_an_owner_without_followers_grants_no_serving_lease() -> None:
    rig = Rig("h1", replicas=1)
    rig.register("x > 1")
    rig.settle(2.0)
    rig.owner.clusters.followed = False
    rig.settle(2.0)
    assert rig.net.busy() == []
    rig.settle(TERM)
    assert not rig.hosts["h1"].hosting.assigned.has_lease(rig.hosts["h1"].hosting.trees["x"])


def test_the_first_lease_is_there_when_the_first_registration_is() -> None:
    rig = Rig("h1", "h2", replicas=2)
    rig.owner.port.hear(Register(1, (registration("s/0", "x", "x > 1", S),)), S)
    rig.owner.clusters.commit()
    rig.net.flush()
    for host in rig.hosts.values():
        assert host.hosting.assigned.has_lease(host.hosting.trees["x"])


def test_the_answer_of_one_host_costs_the_same_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All hosts answer every beat: who looked at all of them each time would take as many steps as
    the square of their number."""
    names = [f"h{number}" for number in range(6)]
    rig = Rig(*names, replicas=6)
    rig.register("x > 1")
    rig.settle(2.0)
    looked: list[str] = []
    is_due = LeaseGrants.is_due

    def noted(leases: LeaseGrants, node: str) -> bool:
        looked.append(node)
        return is_due(leases, node)

    monkeypatch.setattr(LeaseGrants, "is_due", noted)
    beat = rig.owner.owner.hosts.leases.last_answer("h3")
    rig.owner.port.hear(ServingReply(KEY, 1), peer("h3"))
    assert looked == ["h3"]
    assert rig.owner.owner.hosts.leases.last_answer("h3") == beat
    rig.owner.port.hear(ServingBeatDue())
    assert sorted(looked) == sorted([*names, "h3"])
