"""Groups at a shard's leader: founding, leases, order, what the log keeps of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness.logs import SHARD
from streams.log import shard_log
from streams.log.group_state import GroupOptions
from streams.log.verify import Verifier
from streams.programs.group.messages import (
    AskGroups,
    EndDeadLetters,
    ForgetGroup,
    GroupChanged,
    GroupsReport,
    LeasedRows,
)
from streams.services.group import delivery
from streams.services.group.shard_members import FRESH
from streams.shard.retention import Keep
from tests.streams.programs.group.groups_world import (
    GroupsWorld,
    HandMember,
    attributes,
    led_world,
    take_over,
)


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(shard_log, "SEGMENT_BYTES", 1_500)
    return


def numbered(first: int, count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"n": n, **more} for n in range(first, first + count)]


def floor(world: GroupsWorld, node: int = 0) -> int:
    return world.alive[world.peers[node].id].state.groups.groups["g"].done.floor


def test_members_share_the_rows_that_match_and_the_floor_follows() -> None:
    world, leader, replica = led_world()
    world.put(replica, *numbered(0, 20))
    one = HandMember(world, 1).join(leader, credit=5, selector="n >= 10")
    two = HandMember(world, 2).join(leader, credit=5)
    assert len(one.rows) == len(two.rows) == 5
    assert sorted(one.offsets() + two.offsets()) == list(range(10, 20))
    one.settle(leader, "ack", *one.rows)
    two.look(0.0)
    assert sorted(one.done) == sorted(row.lease for row in one.rows[:5])
    assert floor(world) == 15 if max(one.offsets()) == 14 else floor(world) < 15
    two.settle(leader, "ack", *two.rows)
    assert floor(world) == 20
    world.put(replica, {"n": 1})
    world.run(2.0)
    assert floor(world) == 21, "what does not match is passed without an acknowledgement"


def test_other_options_than_the_groups_are_refused_also_by_the_next_leader(
    small_segments: None,
) -> None:
    world, leader, replica = led_world()
    world.put(replica, *numbered(0, 10))
    HandMember(world, 1).join(leader, selector="n >= 5", lease=7.0, by="n")
    for _ in range(20):
        world.put(replica, {"n": 1})
    assert len(replica.log.segments) > 1
    for place, wanted in enumerate(
        ({"selector": ""}, {"selector": "n >= 4"}, {"lease": 8.0}, {"by": ""}, {"delay": "n"})
    ):
        code = "selector" if "selector" in wanted else "options"
        assert HandMember(world, 10 + place).join(leader, **wanted).refused == [code]
    assert HandMember(world, 20, group="x").join(leader, lease=0.1).refused == ["options"]
    assert HandMember(world, 21, group="x").join(leader, selector="n >").refused == ["selector"]
    same = {"selector": "n >= 5", "lease": 7.0, "deliveries": 5}
    assert HandMember(world, 30).join(leader, **same).refused == []
    leader, replica = take_over(world)
    assert HandMember(world, 40).join(leader, selector="").refused == ["selector"]
    late = HandMember(world, 41).join(leader)
    late.keep(leader, 7.0 + FRESH + 1.0)
    assert late.offsets() == [5, 6, 7, 8, 9], "the selector is that of the log"


def test_a_row_whose_lease_is_over_goes_to_another() -> None:
    world, leader, replica = led_world()
    one = HandMember(world, 1).join(leader, lease=2.0, credit=1)
    two = HandMember(world, 2).join(leader, credit=1)
    world.put(replica, {"n": 0})
    one.look(), two.look(0.0)
    holder, other = (one, two) if one.rows else (two, one)
    world.run(2.0)
    other.look(0.0), holder.look(0.0)
    again = (other.rows or holder.rows)[-1]
    assert (again.offset, again.deliveries) == (0, 2)
    holder.settle(leader, "ack", holder.rows[0])
    assert holder.lost == [holder.rows[0].lease]
    assert floor(world) == 0
    now = other if other.rows else holder
    now.settle(leader, "ack", again)
    assert again.lease in now.done
    holder.settle(leader, "ack", holder.rows[0])
    assert holder.rows[0].lease in holder.done, "the row is acknowledged, whoever did it"


def test_a_lease_that_is_extended_goes_on() -> None:
    world, leader, replica = led_world()
    one = HandMember(world, 1).join(leader, lease=2.0)
    world.put(replica, {"n": 0})
    for _ in range(4):
        one.look(1.0)
        one.settle(leader, "extend", one.rows[0])
    assert [row.deliveries for row in one.rows] == [1]
    one.look(3.0)
    assert [row.deliveries for row in one.rows] == [1, 2]


def test_who_leaves_gives_back_what_it_has_and_unseen_rows_do_not_count() -> None:
    world, leader, replica = led_world()
    world.put(replica, *numbered(0, 4))
    one = HandMember(world, 1).join(leader)
    two = HandMember(world, 2).join(leader)
    assert len(one.rows) == 4
    one.leave(leader, untouched=tuple(one.rows[2:]))
    two.look(0.0)
    assert [(row.offset, row.deliveries) for row in two.rows] == [(0, 2), (1, 2), (2, 1), (3, 1)]


def test_a_row_sent_back_waits_for_its_delay_and_the_floor_for_the_row() -> None:
    world, leader, replica = led_world()
    world.put(replica, *numbered(0, 3))
    one = HandMember(world, 1).join(leader)
    first, *others = one.rows
    one.settle(leader, "nack", first, delay=5.0)
    one.settle(leader, "ack", *others)
    one.keep(leader, 3.0)
    assert (floor(world), len(one.rows)) == (0, 3)
    one.keep(leader, 3.0)
    assert [row.offset for row in one.rows[3:]] == [0]
    one.settle(leader, "ack", one.rows[3])
    assert floor(world) == 3


def test_delayed_rows_come_when_they_are_due_and_hold_the_floor() -> None:
    world, leader, replica = led_world()
    one = HandMember(world, 1).join(leader, delay="wait", delay_seconds=1.0)
    world.put(replica, {"wait": 4}, {}, {"wait": "x"}, {"wait": -5})
    assert one.look(0.0) == []
    one.keep(leader, 2.0)
    assert one.offsets() == [1, 2, 3]
    one.settle(leader, "ack", *one.rows)
    assert floor(world) == 0
    leader, replica = take_over(world)
    assert floor(world, 1) == 0
    other = HandMember(world, 2).join(leader)
    other.keep(leader, 4.0)
    assert other.offsets() == [0]


def test_rows_of_one_key_are_with_one_member_in_their_order() -> None:
    world, leader, replica = led_world()
    world.put(replica, *({"n": n, "k": "ab"[n % 2]} for n in range(6)), {"n": 6})
    one = HandMember(world, 1).join(leader, by="k", lease=10.0)
    two = HandMember(world, 2).join(leader)
    assert sorted(one.offsets() + two.offsets()) == [0, 1, 6], "rows without the key have no order"
    for member in (one, two):
        for row in list(member.rows):
            if row.offset == 0:
                member.settle(leader, "nack", row, delay=3.0)
            elif row.offset == 1:
                member.settle(leader, "ack", row)
    one.look(0.0), two.look(0.0)
    assert sorted({*one.offsets(), *two.offsets()}) == [0, 1, 3, 6], "2 stays behind 0"


def test_a_new_leader_waits_until_keys_of_the_former_one_are_free() -> None:
    world, leader, replica = led_world()
    world.put(replica, {"k": 1})
    one = HandMember(world, 1).join(leader, by="k", lease=5.0)
    assert one.offsets() == [0]
    leader, replica = take_over(world)
    two = HandMember(world, 2).join(leader)
    two.keep(leader, 3.0)
    assert two.offsets() == []
    two.keep(leader, 3.0 + FRESH)
    assert two.offsets() == [0]


def test_what_comes_behind_a_dead_letter_waits_until_that_is_committed() -> None:
    world, leader, replica = led_world()
    world.put(replica, {"k": 1}, {"k": 1})
    one = HandMember(world, 1).join(leader, by="k")
    assert one.offsets() == [0]
    for peer in world.peers[1:3]:
        world.cut.update({(leader.id, peer.id): None, (peer.id, leader.id): None})
    one.settle(leader, "reject", one.rows[0])
    one.keep(leader, 2.0)
    assert one.offsets() == [0], "another leader would deliver the row again"
    world.cut.clear()
    one.keep(leader, 4.0)
    assert one.offsets() == [0, 1]


def test_a_leader_that_is_cut_off_gives_no_row_of_a_key() -> None:
    world, leader, replica = led_world()
    one = HandMember(world, 1).join(leader, by="k", lease=2.0)
    world.put(replica, {"k": 1})
    assert one.look(0.0) or one.rows
    for peer in world.peers[1:3]:
        world.cut.update({(leader.id, peer.id): None, (peer.id, leader.id): None})
    one.keep(leader, FRESH + 6.0)
    before = len(one.rows)
    one.keep(leader, 6.0)
    assert len(one.rows) == before, "it cannot know that no other node leads"
    world.cut.clear()
    one.keep(leader, 4.0)
    assert len(one.rows) > before


def test_the_urgent_come_first_and_the_old_are_not_passed_for_ever() -> None:
    world, leader, replica = led_world()
    world.put(replica, {"p": 0}, {"p": 3}, {"p": 9}, {"p": "high"}, {"p": 99})
    world.run(60.0)
    world.put(replica, {"p": 9}, {"p": 1})
    one = HandMember(world, 1).join(leader, credit=1, priority="p")
    for _ in range(6):
        one.settle(leader, "ack", one.rows[-1])
    assert one.offsets() == [2, 4, 1, 0, 3, 5, 6], "9 steps are worth 45 seconds"


def test_a_row_that_was_delivered_too_often_is_a_dead_letter(
    small_segments: None,
) -> None:
    world, leader, replica = led_world()
    world.put(replica, *numbered(0, 3))
    one = HandMember(world, 1).join(leader, deliveries=2)
    poison = one.rows[1]
    one.settle(leader, "ack", one.rows[0], one.rows[2])
    one.settle(leader, "nack", poison)
    assert one.rows[-1].deliveries == 2
    one.settle(leader, "nack", one.rows[-1], reason="cannot be read")
    assert floor(world) == 3
    for n in range(3, 40):
        world.put(replica, {"n": n})
    one.look()
    assert len(replica.log.segments) > 1
    leader, replica = take_over(world)
    dead = report(world, leader).dead
    assert [(d.offset, d.deliveries, d.reason) for d in dead] == [(1, 2, "cannot be read")]
    assert replica.state.groups.groups["g"].done.floor == 3


def report(world: GroupsWorld, leader: Any, group: str = "g") -> GroupsReport:
    (found,) = [
        each
        for each in world.ask(world.peers[-1], leader, AskGroups(1, SHARD, 0, group))
        if isinstance(each, GroupsReport)
    ]
    return found


def test_dead_letters_are_delivered_again_or_dropped() -> None:
    world, leader, replica = led_world()
    world.put(replica, *numbered(0, 4))
    one = HandMember(world, 1).join(leader)
    one.settle(leader, "reject", *one.rows[:3], reason="no")
    one.settle(leader, "ack", one.rows[3])
    assert floor(world) == 4
    found = report(world, leader)
    assert [(d.offset, d.reason) for d in found.dead] == [(0, "no"), (1, "no"), (2, "no")]
    assert (found.groups[0].floor, found.groups[0].dead) == (4, 3)
    told = world.ask(one.node, leader, EndDeadLetters(7, SHARD, 0, "g", (1,), True))
    assert [each.count for each in told if isinstance(each, GroupChanged)] == [1]
    (again,) = [each for each in told if isinstance(each, LeasedRows)]
    assert floor(world) == 1
    assert (again.rows[0].offset, again.rows[0].deliveries) == (1, 1)
    assert attributes(again.rows[0]) == {"n": 1}
    one.settle(leader, "ack", again.rows[0])
    assert floor(world) == 4
    (changed,) = world.ask(one.node, leader, EndDeadLetters(8, SHARD, 0, "g", (), False))
    assert (changed.ticket, changed.count) == (8, 2)
    assert report(world, leader).dead == ()
    (refused,) = world.ask(one.node, leader, EndDeadLetters(9, SHARD, 0, "g", (2,), True))
    assert refused.code == "not-dead"


def test_acknowledged_rows_are_not_delivered_again_by_later_leaders(small_segments: None) -> None:
    world, leader, replica = led_world()
    one = HandMember(world, 1).join(leader)
    world.put(replica, *numbered(0, 10))
    one.look(0.0)
    one.settle(leader, "ack", *(row for row in one.rows if row.offset % 3))
    for n in range(10, 40):
        world.put(replica, {"n": n})
    one.look(0.0)
    one.settle(leader, "ack", *(row for row in one.rows if row.offset > 10))
    assert (floor(world), len(replica.log.segments) > 2) == (0, True)
    leader, replica = take_over(world)
    two = HandMember(world, 2).join(leader)
    assert two.offsets() == [0, 3, 6, 9, 10]
    assert {row.deliveries for row in two.rows} == {1}


def test_a_newer_member_of_the_same_name_fences_the_older() -> None:
    world, leader, replica = led_world()
    world.put(replica, {"n": 0})
    one = HandMember(world, 1, "worker").join(leader)
    two = HandMember(world, 2, "worker").join(leader)
    one.look(0.0)
    assert (one.refused, two.offsets()) == (["fenced"], [0])
    one.number = 3
    one.join(leader, held=tuple(one.rows))
    two.look(0.0)
    assert (one.refused, two.refused) == (["fenced", "fenced"], [])
    leader, replica = take_over(world)
    two.number = 4
    two.join(leader)
    one.number = 5
    one.join(leader)
    assert one.refused[2:] == ["fenced"], "attachments are ordered across leaders"
    two.settle(leader, "ack", two.rows[-1])
    assert floor(world, 1) == 1


def test_an_attempt_whose_answer_was_lost_does_not_fence_the_next() -> None:
    world, leader, replica = led_world()
    world.put(replica, {"k": 1})
    one = HandMember(world, 1, "worker").join(leader, by="k")
    known = one.attachment
    one.number = 2
    one.join(leader)
    one.number, one.attachment = 3, known  # as if the second answer had not come
    one.join(leader)
    assert one.refused == []
    assert [row.deliveries for row in one.rows] == [1, 1, 1], "and no lease has to run out"


def test_who_comes_back_keeps_its_leases_and_gets_again_what_was_lost() -> None:
    world, leader, replica = led_world()
    world.put(replica, *numbered(0, 2))
    one = HandMember(world, 1).join(leader)
    kept, lost = one.rows
    one.number = 2
    one.join(leader, held=(kept,))
    assert [(row.offset, row.deliveries) for row in one.rows[2:]] == [(1, 1)]
    one.settle(leader, "ack", kept, one.rows[2], lost)
    assert (sorted(one.done), one.lost) == (
        sorted((kept.lease, one.rows[2].lease, lost.lease)),
        [],
    ) or one.lost == [lost.lease]
    assert floor(world) == 2


def test_an_acknowledgement_is_answered_when_it_is_committed() -> None:
    world, leader, replica = led_world()
    world.put(replica, {"n": 0})
    one = HandMember(world, 1).join(leader)
    for peer in world.peers[1:3]:
        world.cut.update({(leader.id, peer.id): None, (peer.id, leader.id): None})
    one.settle(leader, "ack", one.rows[0])
    assert (one.done, floor(world)) == ([], 1)
    world.cut.clear()
    one.look(2.0)
    assert one.done == [one.rows[0].lease]


def test_credit_and_the_window_bound_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "WINDOW", 30)
    world, leader, replica = led_world()
    for first in range(0, 100, 10):
        world.put(replica, *numbered(first, 10))
    one = HandMember(world, 1).join(leader, credit=8)
    assert one.offsets() == list(range(8))
    two = HandMember(world, 2).join(leader, credit=50)
    two.look(2.0)
    one.look(0.0)
    served = world.group_servers[leader.id].shards[SHARD].groups["g"]
    assert len(one.rows) + len(two.rows) == served.window.leased <= 40
    one.settle(leader, "ack", *one.rows[:3])
    two.look(0.0)
    assert len(one.rows) == 11


def test_retention_keeps_what_a_group_has_not_passed_until_it_is_forgotten(
    small_segments: None,
) -> None:
    world, leader, replica = led_world()
    one = HandMember(world, 1).join(leader)
    for n in range(40):
        world.put(replica, {"n": n})
    one.look(0.0)
    one.settle(leader, "ack", *one.rows[:2], *one.rows[3:])

    def retain() -> int:
        assert replica.leader is not None
        replica.leader.retain(Keep(bytes=2_000), int(world.scheduler.now * 1e9))
        world.run(1.0)
        return replica.log.first_offset

    assert floor(world) == 2
    assert retain() <= 2
    world.ask(one.node, leader, ForgetGroup(1, SHARD, 0, "g"))
    assert retain() > 2
    assert replica.state.groups.groups == {}


def test_a_stream_that_drops_what_is_unread_takes_it_from_its_groups(
    small_segments: None,
) -> None:
    world, leader, replica = led_world()
    one = HandMember(world, 1).join(leader, credit=1)
    for n in range(40):
        world.put(replica, {"n": n})
    one.leave(leader)
    assert replica.leader is not None
    keep = Keep(bytes=2_000, drops_unread=True)
    replica.leader.retain(keep, int(world.scheduler.now * 1e9))
    world.run(1.0)
    first = replica.log.first_offset
    assert first > 10
    leader, replica = take_over(world)
    told = HandMember(world, 3).join(leader)
    told.join(leader)
    assert told.refused == ["position-lost"] * 2, "the same program asks again"
    assert replica.state.groups.groups["g"].dropped == first
    files = world.disks[leader.id].durable[SHARD]
    names = [name for name in files if name.endswith(".log")]
    assert Verifier(SHARD, None).run(names, lambda name: bytes(files[name])).fault is None
    two = HandMember(world, 2).join(leader)
    assert two.offsets() == list(range(first, 40))
    two.settle(leader, "ack", *two.rows)
    two.keep(leader, 2.0)
    assert floor(world, 1) == 40


def test_a_group_that_is_forgotten_ends_its_members_and_another_begins_again() -> None:
    world, leader, replica = led_world()
    world.put(replica, *numbered(0, 2))
    one = HandMember(world, 1).join(leader)
    one.settle(leader, "ack", *one.rows)
    one.tell(leader, ForgetGroup(1, SHARD, 0, "g"))
    assert one.refused == ["unknown-group"]
    one.settle(leader, "ack", *one.rows)
    two = HandMember(world, 2).join(leader, selector="n = 1")
    assert two.offsets() == [1]
    assert replica.state.groups.groups["g"].options == GroupOptions("n = 1")
