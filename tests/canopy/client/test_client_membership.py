"""A member of a group over connections that are made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from canopy.client.errors import UnreachableError
from canopy.client.streams import membership
from canopy.client.streams.membership import AHEAD, GroupArguments, Member, wanted_membership
from overlay.client import Command, Done, Reply
from overlay.stream_client import (
    AttachGroup,
    DetachGroup,
    GroupReady,
    GroupRow,
    RowsSettled,
    RowsTaken,
    SettleRows,
    TakeRows,
)


def row(offset: int) -> GroupRow:
    return GroupRow(0, offset, 100 + offset, 1, 30.0, 0.0, {"n": offset})


class FakeLink:
    """A connection to a node that answers everything at once, until it is cut."""

    def __init__(self, node: FakeNode) -> None:
        self.node = node
        self.is_cut = False
        self.replies: dict[int, Reply] = {}

    async def begin(self, command: Command, timeout: float = 30.0) -> int:
        self._look()
        number = len(self.node.commands)
        self.node.commands.append(command)
        if (reply := self.node.reply(command)) is not None:
            self.replies[number] = reply
        return number

    async def is_answered(self, number: int, timeout: float) -> bool:
        self._look()
        return number in self.replies

    async def finish(self, number: int, timeout: float) -> Reply:
        self._look()
        return self.replies.pop(number)

    async def request(self, command: Command, timeout: float) -> Reply:
        return await self.finish(await self.begin(command), timeout)

    def _look(self) -> None:
        if self.is_cut:
            raise UnreachableError("the node is away")


class FakeNode:
    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.links: list[FakeLink] = []
        self.waiting: list[list[GroupRow]] = []
        self.lost: tuple[tuple[int, int], ...] = ()
        self.clock = self.slow = 0.0
        self.patience = 5.0
        self.is_away = self.is_closed = False

    async def begin(self, command: Command, timeout: float) -> tuple[FakeLink, int]:
        if self.is_away:
            raise UnreachableError("the node is away")
        link = FakeLink(self)
        self.links.append(link)
        return link, await link.begin(command)

    async def pause(self, seconds: float) -> bool:
        return self.is_closed

    def reply(self, command: Command) -> Reply | None:
        if isinstance(command, AttachGroup):
            attached = len(self.links)
            return GroupReady(0, ((1, attached),), "n > 0", 30.0)
        if isinstance(command, TakeRows):
            return RowsTaken(0, tuple(self.waiting.pop(0))) if self.waiting else None
        if isinstance(command, SettleRows):
            self.clock += self.slow
            return RowsSettled(0, self.lost)
        return Done(0)

    def of(self, kind: type[Command]) -> list[Any]:
        return [command for command in self.commands if isinstance(command, kind)]


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


def member_of(node: FakeNode) -> Member:
    wanted = wanted_membership("s", "g", None, GroupArguments(name="worker"))
    member = Member(node, wanted, 5.0)  # type: ignore[arg-type]
    member.open()
    return member


def test_rows_are_taken_settled_and_the_rest_is_kept_for_the_next_call(node: FakeNode) -> None:
    node.waiting = [[row(0), row(1), row(2)]]
    with member_of(node) as member:
        assert (member.selector, member.lease, member.name) == ("n > 0", 30.0, "worker")
        assert member.take(1.0, most=2) == [row(0), row(1)]
        assert next(iter(member)) == row(2)
        assert member.take(0.0) == []
        member.ack(row(0), row(1))
        member.nack(row(2), delay=2.0, reason="later")
        member.flush()
    ack, nack = node.of(SettleRows)
    assert [(one.offset, one.lease, one.what) for one in ack.rows] == [
        (0, 100, "ack"),
        (1, 101, "ack"),
    ]
    assert (nack.rows[0].what, nack.rows[0].delay, nack.rows[0].reason) == ("nack", 2.0, "later")
    assert isinstance(node.commands[-1], DetachGroup)


def test_a_member_that_comes_back_names_its_attachment_and_has_nothing(node: FakeNode) -> None:
    node.waiting = [[row(0), row(1)], [row(0)]]
    member = member_of(node)
    assert member.take(1.0, most=1) == [row(0)]
    node.links[0].is_cut = True
    member.ack(row(0))
    assert [attach.attachments for attach in node.of(AttachGroup)] == [(), ((1, 1),)]
    with pytest.raises(UnreachableError, match="not known"):
        member.flush()  # of what was said before the node was lost
    member.flush()
    assert member.take(1.0) == [row(0)], "the row that was kept for the next call is another's"
    member.ack(row(0))
    node.links[1].is_cut = True
    with pytest.raises(UnreachableError):
        member.flush()
    assert len(node.links) == 3


def test_a_node_that_is_lost_while_rows_are_taken_leaves_it_open_what_became_of_others(
    node: FakeNode,
) -> None:
    node.waiting = [[row(0)], [row(1)]]
    member = member_of(node)
    assert member.take(1.0) == [row(0)]
    member.ack(row(0))
    node.links[0].is_cut = True
    assert member.take(1.0) == [row(1)]
    with pytest.raises(UnreachableError, match="not known"):
        member.flush()
    member.ack(row(1))
    member.flush()


def test_many_words_are_not_left_unanswered_and_what_is_lost_is_said(node: FakeNode) -> None:
    member = member_of(node)
    node.lost = ((0, 7),)
    for _ in range(AHEAD + 3):
        member.ack(row(7))
    assert member.lost == [(0, 7)] * 3
    member.flush()
    assert len(member.lost) == AHEAD + 3
    member.close()
    member.extend(row(8))
    assert member.lost[-1] == (0, 8), "after the end nothing can be said"


def test_a_node_that_stays_away_is_not_looked_for_without_end(node: FakeNode) -> None:
    member = member_of(node)
    node.links[0].is_cut = node.is_away = node.is_closed = True
    with pytest.raises(UnreachableError):
        member.take(1.0)


@pytest.fixture
def stands_still(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    """The program's clock is the node's `clock`."""
    monkeypatch.setattr(membership, "time", SimpleNamespace(monotonic=lambda: node.clock))
    return node


def said(node: FakeNode) -> list[list[tuple[int, str]]]:
    return [[(one.offset, one.what) for one in each.rows] for each in node.of(SettleRows)]


def test_rows_that_lay_in_the_connection_beyond_their_lease_are_another_s(
    stands_still: FakeNode,
) -> None:
    node = stands_still
    member = member_of(node)
    assert member.take(0.0) == []  # the question is open
    node.links[0].replies[len(node.commands) - 1] = RowsTaken(0, (row(0), row(1), row(2)))
    node.clock = 45.0
    node.lost = ((0, 0), (0, 2))
    (kept,) = member.take(0.0)
    assert (kept.offset, kept.left) == (1, 30.0)
    assert said(node) == [[(0, "extend"), (1, "extend"), (2, "extend")]]
    assert member.lost == [], "the program has not had them"


def test_rows_that_wait_for_the_next_call_are_given_while_they_are_the_members(
    stands_still: FakeNode,
) -> None:
    node = stands_still
    node.waiting = [[row(0), row(1), row(2), row(3)]]
    member = member_of(node)
    assert member.take(1.0, most=1) == [row(0)]
    node.clock = 29.0
    assert member.take(1.0, most=1) == [row(1)]
    assert said(node) == [], "within its lease nobody is asked"
    node.clock, node.lost = 31.0, ((0, 2),)
    assert [one.offset for one in member.take(0.0, most=2)] == [3]
    assert member.take(0.0) == []
    assert said(node) == [[(2, "extend"), (3, "extend")]]


def test_an_answer_that_is_later_than_the_lease_confirms_nothing(stands_still: FakeNode) -> None:
    node = stands_still
    node.waiting = [[row(0), row(1)]]
    member = member_of(node)
    assert member.take(1.0, most=1) == [row(0)]
    node.clock, node.slow = 31.0, 40.0
    assert member.take(5.0) == [], "the new lease is over when its answer comes"
    node.slow = 0.0
    assert [one.offset for one in member.take(5.0)] == [1]


def test_rows_that_cannot_be_confirmed_go_with_the_node(stands_still: FakeNode) -> None:
    node = stands_still
    node.waiting = [[row(0), row(1)], [row(5)]]
    member = member_of(node)
    assert member.take(1.0, most=1) == [row(0)]
    node.clock = 31.0
    node.links[0].is_cut = True
    assert [one.offset for one in member.take(5.0)] == [5]


def test_a_call_ends_in_time_while_the_node_is_away_and_the_next_one_goes_on_looking(
    node: FakeNode,
) -> None:
    member = member_of(node)
    node.links[0].is_cut = node.is_away = True
    assert member.take(0.0) == []
    assert member.take(0.0) == []
    node.is_away = False
    node.waiting = [[row(0)]]
    assert member.take(1.0) == [row(0)]
    node.links[-1].is_cut = node.is_away = True
    node.patience = -1.0
    with pytest.raises(UnreachableError):
        member.take(0.0)


def test_why_nothing_can_come_is_said_and_does_not_end_a_call(node: FakeNode) -> None:
    member = member_of(node)
    replies = [RowsTaken(0, (), "no majority"), RowsTaken(0, (), ""), RowsTaken(0, (row(0),))]
    answer = node.reply
    seen: list[str] = []

    def reply(command: Command) -> Reply | None:
        seen.append(member.waits)
        return replies.pop(0) if isinstance(command, TakeRows) else answer(command)

    node.reply = reply  # type: ignore[method-assign]
    assert member.take(1.0) == [row(0)]
    assert seen == ["", "no majority", ""]
