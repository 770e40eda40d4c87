"""Options of a group that change while it has members: what is acknowledged stays so."""

from __future__ import annotations

from typing import Any

import pytest

from harness.logs import SHARD
from overlay.machine import Peer
from streams.log.group_state import FORMER_MOST
from streams.programs.group.messages import (
    ChangeGroup,
    EndDeadLetters,
    GroupChanged,
    GroupJoined,
    GroupRefused,
    Wanted,
)
from streams.programs.reader.messages import ReadFrom
from streams.services.group import shard_members
from tests.streams.programs.group.groups_world import GroupsWorld, HandMember, led_world, take_over


def change(
    world: GroupsWorld, leader: Peer, group: str = "g", seconds: float = 0.3, **to: Any
) -> Any:
    """Ask for other options from a node that has no member; returns the answer."""
    sender = world.peers[-2]
    wanted = Wanted(ReadFrom("new"), **to)
    world.send(sender, leader, ChangeGroup(7, SHARD, 0, group, wanted))
    world.run(seconds)
    found = world.answers.pop(sender.id, [])
    return next((m for m in found if isinstance(m, GroupChanged | GroupRefused)), None)


def changed(world: GroupsWorld, leader: Peer, **to: Any) -> None:
    assert isinstance(change(world, leader, **to), GroupChanged)


def numbers(start: int, end: int) -> list[dict[str, Any]]:
    return [{"n": n} for n in range(start, end)]


def test_a_new_selector_is_for_rows_that_come_after_it() -> None:
    world, leader, replica = led_world()
    world.put(replica, *numbers(0, 6))
    one = HandMember(world, 1).join(leader, selector="n < 4", credit=2)
    assert one.offsets() == [0, 1]
    one.settle(leader, "ack", one.rows[0])
    changed(world, leader, selector="n >= 4")
    world.put(replica, *numbers(2, 8))  # at the offsets 6 to 11
    one.settle(leader, "ack", *one.rows[1:])
    while len(one.rows) < 8:
        before = len(one.rows)
        one.settle(leader, "ack", *one.rows[-2:])
        assert len(one.rows) > before
    assert one.offsets() == [0, 1, 2, 3, 8, 9, 10, 11], "4 and 5 were appended before"
    assert one.lost == []


def test_a_new_selector_holds_under_the_next_leader_and_so_does_the_former_one() -> None:
    world, leader, replica = led_world()
    world.put(replica, *numbers(0, 6))
    one = HandMember(world, 1).join(leader, selector="n < 4", credit=1)
    changed(world, leader, selector="n >= 4")
    world.put(replica, *numbers(2, 8))
    one.settle(leader, "ack", one.rows[0])
    leader, replica = take_over(world)
    two = HandMember(world, 2).join(leader)
    assert two.offsets() == [1, 2, 3, 8, 9, 10, 11]


def test_a_dead_letter_that_is_tried_again_comes_by_the_selector_that_it_had() -> None:
    world, leader, replica = led_world()
    world.put(replica, *numbers(0, 2))
    one = HandMember(world, 1).join(leader, selector="n < 4", credit=2)
    one.settle(leader, "reject", one.rows[0])
    one.settle(leader, "ack", one.rows[1])
    for floor in range(FORMER_MOST + 2):  # all that can be noted; no row goes by these
        world.put(replica, {"n": 9})
        one.keep(leader, 1.0)
        to = {"selector": f"n > {100 + floor}"}
        answer = change(world, leader, **to)
        if isinstance(answer, GroupRefused):
            break
    assert (answer.code, floor) == ("full", FORMER_MOST)
    assert "dead letters" in answer.reason
    two = HandMember(world, 2)
    world.send(world.peers[-2], leader, EndDeadLetters(1, SHARD, 0, "g", (0,), True))
    world.run(0.3)
    leader, replica = take_over(world)
    assert 0 in two.join(leader).offsets(), "a leader that looks for it in the log finds it"


def test_a_lease_that_is_under_way_ends_when_it_would_have() -> None:
    world, leader, replica = led_world()
    world.put(replica, *numbers(0, 3))
    one = HandMember(world, 1).join(leader, lease=10.0, credit=1)
    changed(world, leader, lease=2.0)
    two = HandMember(world, 2).join(leader, credit=1)
    one.keep(leader, 3.0)
    assert two.rows[0].offset == 1
    one.settle(leader, "extend", one.rows[0])
    one.keep(leader, 3.0)
    one.settle(leader, "ack", one.rows[0])
    assert (one.done, one.lost) == ([one.rows[0].lease], []), "7 s are not 10"
    two.settle(leader, "ack", two.rows[0])
    assert two.lost == [two.rows[0].lease], "the new lease was over after 2 s"


def test_members_learn_of_another_lease_before_rows_that_have_it() -> None:
    world, leader, replica = led_world()
    one = HandMember(world, 1).join(leader, lease=10.0)
    world.answers.clear()
    changed(world, leader, lease=2.0)
    world.put(replica, *numbers(0, 1))
    heard = world.answers[one.node.id]
    kinds = [type(message).__name__ for message in heard]
    (told,) = [message for message in heard if isinstance(message, GroupJoined)]
    assert told.options.lease == 2.0
    assert kinds.index("GroupJoined") < kinds.index("LeasedRows")


def test_a_new_leader_waits_for_the_longest_lease_that_may_be_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shard_members, "FRESH", 1.0)
    world, leader, replica = led_world()
    world.put(replica, *({"key": "a", "n": n} for n in range(2)))
    one = HandMember(world, 1).join(leader, lease=8.0, by="key")
    assert one.offsets() == [0]
    changed(world, leader, lease=1.0)
    leader, replica = take_over(world)
    two = HandMember(world, 2).join(leader)
    two.keep(leader, 6.0)
    assert two.rows == [], "the former leader gave row 0 for 8 s"
    two.keep(leader, 3.0)
    assert two.offsets()[:1] == [0]
    two.keep(leader, 9.0)  # all leases of 8 s are over for certain
    assert replica.state.groups.groups["g"].longest == 1.0


def test_priorities_and_delays_that_change_are_for_rows_that_wait() -> None:
    world, leader, replica = led_world()
    one = HandMember(world, 1).join(leader, credit=1)
    world.put(replica, *({"n": n, "p": n % 3, "wait": 30.0 * (n == 4)} for n in range(6)))
    one.look()
    assert one.offsets() == [0]
    changed(world, leader, priority="p", delay="wait")
    for _ in range(4):
        one.settle(leader, "ack", one.rows[-1])
    assert one.offsets() == [0, 2, 5, 1, 3], "4 waits for half a minute"
    one.settle(leader, "ack", one.rows[-1])
    changed(world, leader, delay="")
    one.look()
    assert one.offsets()[-1] == 4


def test_what_cannot_be_changed_is_refused_with_the_reason() -> None:
    world, leader, replica = led_world()
    HandMember(world, 1).join(leader, by="n", selector="n > 1")
    state = replica.state.groups.groups["g"]
    for wrong, code, said in (
        ({"by": "m"}, "options", "in order by n, which is for good"),
        ({"by": ""}, "options", "for good"),
        ({"lease": 0.5}, "options", "lease: "),
        ({"selector": "n >"}, "selector", "n >"),
    ):
        answer = change(world, leader, **wrong)
        assert isinstance(answer, GroupRefused)
        assert answer.code == code
        assert said in answer.reason
    assert change(world, leader, group="x", lease=5.0).code == "unknown-group"
    assert state.options.lease == 30.0
    changed(world, leader, by="n", deliveries=7)
    assert (state.options.deliveries, state.options.selector) == (7, "n > 1")


def test_who_is_a_member_comes_back_though_it_once_asked_for_something_else() -> None:
    world, leader, _ = led_world()
    one = HandMember(world, 1).join(leader, lease=10.0)
    changed(world, leader, lease=20.0)
    leader, _ = take_over(world)
    one.join(leader, lease=10.0)
    assert one.refused == []
    two = HandMember(world, 2).join(leader, lease=10.0)
    assert two.refused == ["options"]


def test_options_that_are_not_committed_do_not_hold() -> None:
    world, leader, replica = led_world()
    world.put(replica, *numbers(0, 1))
    one = HandMember(world, 1).join(leader, lease=10.0)
    for peer in world.peers[1:3]:
        world.cut.update({(leader.id, peer.id): None, (peer.id, leader.id): None})
    to = Wanted(ReadFrom("new"), lease=1.0, deliveries=1)
    one.tell(leader, ChangeGroup(7, SHARD, 0, "g", to), 1.0)
    assert replica.state.groups.groups["g"].options.lease == 1.0
    assert not any(isinstance(m, GroupChanged) for m in world.answers.get(one.node.id, ()))
    one.keep(leader, 2.0)
    one.settle(leader, "nack", *one.rows)
    assert [row.deliveries for row in one.rows] == [1, 2], "one delivery is not too much yet"
    world.cut.clear()
    one.keep(leader, 2.0)
    known = world.group_servers[leader.id].shard(SHARD)
    assert known is not None
    assert known.groups["g"].options.lease == 1.0
