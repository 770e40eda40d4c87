"""Programs that are members of groups through their nodes, in overlays of whole nodes."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from canopy.sim.world.world import World
from harness.overlays import grown, wait
from overlay.client import AppendEvents, Done, Draft, EventsAppended, Failed, Streams
from overlay.stream_client import (
    AddStream,
    AttachGroup,
    DeadEnded,
    DetachGroup,
    EditGroup,
    EndDead,
    GetGroups,
    GroupReady,
    GroupRow,
    Groups,
    RemoveGroup,
    RowSettled,
    RowsSettled,
    RowsTaken,
    SettleRows,
    TakeRows,
    WhyRow,
)


def ask(world: World, node: str, command: type[Any], *arguments: Any, **more: Any) -> Any:
    return world.ask(node, command(world.clients.request(), *arguments, **more))


def append(world: World, numbers: range, node: str = "n1") -> None:
    drafts = tuple(Draft({"n": n, "k": f"key {n % 7}"}, b"p") for n in numbers)
    assert isinstance(ask(world, node, AppendEvents, "orders", drafts), EventsAppended)


def attached(world: World, node: str, **more: Any) -> GroupReady:
    ready = ask(world, node, AttachGroup, "orders", "g", start="first", **more)
    assert isinstance(ready, GroupReady), ready
    return ready


def taken(world: World, node: str, member: int, count: int) -> list[GroupRow]:
    """Take until `count` rows have come."""
    rows: list[GroupRow] = []
    while len(rows) < count:
        reply = ask(world, node, TakeRows, member, count - len(rows))
        assert isinstance(reply, RowsTaken), reply
        rows += reply.rows
    return rows


def settle(world: World, node: str, member: int, what: Any, *rows: GroupRow) -> Any:
    settled = tuple(RowSettled(row.shard, row.offset, row.lease, what) for row in rows)
    return ask(world, node, SettleRows, member, settled)


def orders(shards: int = 1) -> World:
    world = grown(4, 1)
    found = ask(world, "n0", AddStream, "orders", shards, "k" if shards > 1 else "")
    assert isinstance(found, Streams)
    return world


def group(world: World) -> Groups:
    found = ask(world, "n3", GetGroups, "orders", "g")
    assert isinstance(found, Groups), found
    return found


def test_members_at_any_node_share_a_stream_of_several_shards() -> None:
    world = orders(2)
    append(world, range(40))
    one = attached(world, "n2", selector="n >= 10", credit=5)
    rows = taken(world, "n2", one.request, 10)
    two = attached(world, "n3")
    assert two.selector == "n >= 10"
    others = taken(world, "n3", two.request, 20)
    assert sorted(row.attributes["n"] for row in (*rows, *others)) == list(range(10, 40))
    assert {row.deliveries for row in (*rows, *others)} == {1}
    assert all(25.0 < row.left <= 30.0 for row in (*rows, *others))
    assert settle(world, "n3", two.request, "ack", *others).lost == ()
    assert settle(world, "n2", one.request, "ack", *rows[:4]).lost == ()
    info = group(world)
    assert (info.complete, info.letters) == (True, ())
    assert sum(shard.leased for shard in info.groups[0].shards) == 6
    assert isinstance(ask(world, "n2", DetachGroup, one.request), Done)
    again = taken(world, "n3", two.request, 6)
    assert {(row.shard, row.offset) for row in again} == {(r.shard, r.offset) for r in rows[4:]}
    settle(world, "n3", two.request, "ack", *again)
    world.run(2.0)
    assert all(shard.floor == shard.end for shard in group(world).groups[0].shards)


def test_rows_that_wait_for_the_program_are_not_delivered_however_short_the_lease() -> None:
    """Words take up to a fifth of a lease, each another time, and groups begin at other moments."""
    world = orders()
    append(world, range(5))
    ready = []
    for name in "abcde":
        more = {"group": name, "start": "first", "lease": 1.0, "deliveries": 2}
        found = ask(world, "n2" if name < "c" else "n3", AttachGroup, "orders", **more)
        ready.append(found)
        world.run(0.1)
    world.network.conditions = replace(world.network.conditions, latency_high=0.2)
    world.run(10.0)
    for each, node in zip(ready, ("n2", "n2", "n3", "n3", "n3"), strict=True):
        rows = taken(world, node, each.request, 5)
        assert {row.deliveries for row in rows} == {1}


def test_attaching_with_other_options_or_to_nothing_says_why() -> None:
    world = orders()
    attached(world, "n2", selector="n > 3")
    for stream, more, code, reason in (
        ("none", {}, "unknown", "no stream none: `canopy stream ls` lists"),
        ("orders", {"selector": "n >"}, "selector", "expected a value"),
        ("orders", {"selector": "n > 4"}, "selector", "another selector: n > 3"),
        ("orders", {"by": "k"}, "options", "the group's by is '', not 'k'"),
        ("orders", {"deliveries": 4}, "options", "the group's max_deliver is 5, not 4"),
        ("orders", {"group": "x", "lease": 0.5}, "options", "lease: expected"),
        ("orders", {"group": "x", "deliveries": 0}, "options", "max_deliver: expected"),
        ("orders", {"group": "x", "start": "offset", "at": 99}, "offset-out-of-range", "99"),
    ):
        reply = ask(world, "n3", AttachGroup, stream, **{"group": "g", **more})
        assert (type(reply), reply.code, reason in reply.reason) == (Failed, code, True), reply
    assert ask(world, "n3", TakeRows, 77).code == "unknown"


def test_a_program_that_goes_gives_back_its_rows_and_one_that_comes_back_fences_nobody() -> None:
    world = orders()
    append(world, range(3))
    ready = attached(world, "n2", name="worker")
    taken(world, "n2", ready.request, 3)
    world.client_gone("n2")
    back = attached(world, "n3", name="worker", attachments=ready.attachments)
    assert back.attachments > ready.attachments
    again = taken(world, "n3", back.request, 3)
    assert [(row.offset, row.deliveries) for row in again] == [(0, 2), (1, 2), (2, 2)]
    newer = attached(world, "n1", name="worker")
    world.run(0.5)
    fenced = ask(world, "n3", TakeRows, back.request)
    assert (type(fenced), fenced.code) == (Failed, "fenced")
    lost = ask(world, "n1", AttachGroup, "orders", "g", "worker", attachments=back.attachments)
    assert (type(lost), lost.code) == (Failed, "fenced")
    settled = settle(world, "n1", newer.request, "ack", *taken(world, "n1", newer.request, 3))
    assert settled.lost == ()


def test_a_group_goes_on_when_the_leader_is_lost() -> None:
    world = orders()
    append(world, range(6))
    nodes = {name: world.node(name) for name in world.names()}
    (shard,) = {shard for node in nodes.values() for shard in node.streams.hosts.hosted}
    leader = next(n for n, node in nodes.items() if node.streams.hosts.leading(shard) is not None)
    member = next(name for name in world.names() if name not in (leader, "n0"))
    ready = attached(world, member)
    rows = taken(world, member, ready.request, 6)
    assert settle(world, member, ready.request, "ack", *rows[:3]).lost == ()
    world.crash(leader)

    def leads() -> bool:
        others = (node for name, node in nodes.items() if name != leader)
        return any(node.streams.hosts.leading(shard) is not None for node in others)

    wait(world, leads, 20.0, "another node leads")
    again = taken(world, member, ready.request, 3)
    assert [row.offset for row in again] == [3, 4, 5]
    late = settle(world, member, ready.request, "ack", *rows)
    assert late.lost == ((0, 3), (0, 4), (0, 5)), "the first three are acknowledged"
    assert settle(world, member, ready.request, "ack", *again).lost == ()
    append(world, range(6, 8), member)
    assert [row.offset for row in taken(world, member, ready.request, 2)] == [6, 7]


def test_rows_that_wait_for_a_slow_program_do_not_run_out() -> None:
    world = orders()
    append(world, range(2))
    ready = attached(world, "n2", lease=2.0)
    world.run(20.0)
    rows = taken(world, "n2", ready.request, 2)
    assert [row.deliveries for row in rows] == [1, 1]
    assert all(row.left > 0.5 for row in rows)
    assert settle(world, "n2", ready.request, "extend", *rows).lost == ()
    world.run(3.0)
    late = settle(world, "n2", ready.request, "extend", *rows)
    assert late.lost == ((0, 0), (0, 1))
    assert [row.deliveries for row in taken(world, "n2", ready.request, 2)] == [2, 2]


def test_operators_see_dead_letters_and_deal_with_them() -> None:
    world = orders(2)
    append(world, range(6))
    ready = attached(world, "n2")
    rows = taken(world, "n2", ready.request, 6)
    bad, good = rows[:4], rows[4:]
    settle(world, "n2", ready.request, "reject", *bad)
    settle(world, "n2", ready.request, "ack", *good)
    letters = group(world).letters
    assert sorted((d.shard, d.offset) for d in letters) == sorted((r.shard, r.offset) for r in bad)
    assert {letter.reason for letter in letters} == {"rejected"}
    assert all(letter.attributes is not None and letter.payload == b"p" for letter in letters)
    first = (bad[0].shard, bad[0].offset)
    ended = ask(world, "n3", EndDead, "orders", "g", (first,))
    assert (type(ended), ended.count) == (DeadEnded, 1)
    (again,) = taken(world, "n2", ready.request, 1)
    assert (again.shard, again.offset, again.deliveries) == (*first, 1)
    settle(world, "n2", ready.request, "ack", again)
    assert ask(world, "n3", EndDead, "orders", "g", (), False).count == 3
    assert group(world).letters == ()
    refused = ask(world, "n3", EndDead, "orders", "g", (first,))
    assert (type(refused), refused.code) == (Failed, "not-dead")
    assert ask(world, "n3", EndDead, "orders", "x").code == "unknown-group"
    assert isinstance(ask(world, "n3", RemoveGroup, "orders", "g"), Done)
    assert ask(world, "n3", GetGroups, "orders") == Groups(world.clients.request() - 1, ())
    ended = ask(world, "n2", TakeRows, ready.request)
    assert (type(ended), ended.code) == (Failed, "unknown-group")


def test_an_operator_changes_a_group_whose_members_go_on() -> None:
    world = orders(2)
    append(world, range(20))
    ready = attached(world, "n2", selector="n >= 10", credit=3)
    rows = taken(world, "n2", ready.request, 6)
    changed = ask(world, "n3", EditGroup, "orders", "g", selector="n < 5", lease=60.0)
    assert isinstance(changed, Done), changed
    info = group(world).groups[0]
    assert (info.selector, info.lease, info.deliveries) == ("n < 5", 60.0, 5)
    assert {text for shard in info.shards for _, text in shard.former} == {"n >= 10"}
    append(world, range(20))
    assert settle(world, "n2", ready.request, "ack", *rows).lost == ()
    while len(rows) < 15:
        more = taken(world, "n2", ready.request, 1)
        assert more[0].left > 50.0
        settle(world, "n2", ready.request, "ack", *more)
        rows += more
    assert sorted(row.attributes["n"] for row in rows) == [*range(5), *range(10, 20)]
    for wrong, code in (
        ({"by": "k"}, "options"),
        ({"deliveries": 0}, "options"),
        ({"selector": "n <"}, "selector"),
    ):
        refused = ask(world, "n3", EditGroup, "orders", "g", **wrong)
        assert (type(refused), refused.code) == (Failed, code)
    assert ask(world, "n3", EditGroup, "orders", "x", lease=5.0).code == "unknown-group"
    assert ask(world, "n3", EditGroup, "other", "g", lease=5.0).code == "unknown"


def test_settled_is_what_the_reply_says() -> None:
    world = orders()
    append(world, range(1))
    ready = attached(world, "n2")
    (row,) = taken(world, "n2", ready.request, 1)
    settled = settle(world, "n2", ready.request, "ack", row)
    assert settled == RowsSettled(settled.request, ())
    unknown = GroupRow(0, 0, row.lease + 7, 1, 1.0, 0.0, {})
    assert settle(world, "n2", ready.request, "ack", unknown).lost == (), "the row is acknowledged"
    assert settle(world, "n2", ready.request, "nack", unknown).lost == ((0, 0),)
    assert (
        ask(world, "n2", SettleRows, ready.request, (RowSettled(9, 0, 1, "ack"),)).code == "usage"
    )


def test_why_says_of_a_row_who_has_it_and_what_became_of_it() -> None:
    world = orders()
    append(world, range(5))
    ready = attached(world, "n2", name="worker", selector="n > 0", credit=3)
    rows = taken(world, "n2", ready.request, 3)
    settle(world, "n2", ready.request, "ack", rows[0])
    settle(world, "n2", ready.request, "reject", rows[1])

    def why(offset: int) -> str:
        (reader,) = ask(world, "n3", WhyRow, "orders", 0, offset).readers
        assert (reader.name, reader.selector) == ("group g", "n > 0")
        return str(reader.what)

    assert [why(offset) for offset in range(4)] == [
        *("passed over", "acknowledged by a member"),
        *("a dead letter after 1 deliveries: rejected", "leased to worker"),
    ]
    ask(world, "n2", DetachGroup, ready.request)
    assert why(4) == "waits"
