"""A program's membership in a consumer group, across connections and restarts of its node (no
IO)."""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import islice
from typing import Final, Literal, TypedDict

from msgspec.structs import replace

from canopy.client.errors import ControlError, NoMajorityError, UnreachableError
from canopy.client.faces import (
    AsynchronousContext,
    BlockingContext,
    Context,
    Items,
    operation,
    run,
)
from canopy.client.link import Link
from canopy.client.node import AwayNode, ClientNode
from canopy.client.session import expected
from canopy.client.streams.reading import Begin, patient, started
from overlay.client import Done
from overlay.stream_client import (
    AttachGroup,
    DetachGroup,
    EditGroup,
    GroupReady,
    GroupRow,
    RowSettled,
    RowsSettled,
    RowsTaken,
    SettleRows,
    TakeRows,
)

AHEAD: Final = 64
"""The number of unanswered settlements of rows: with one for each row, as many as a node can gather
into one chunk. Guess."""

What = Literal["ack", "nack", "reject", "extend"]


class GroupArguments(TypedDict, total=False):
    """Keyword arguments of `Client.group` beside the names and the selector."""

    name: str
    start: Begin
    at: int
    credit: int
    lease: float | None
    max_deliver: int | None
    by: str | None
    priority: str | None
    delay: str | float | None


def wanted_membership(
    stream: str, group: str, selector: str | None, options: GroupArguments
) -> AttachGroup:
    """Return the command for the arguments of `Client.group`. ValueError if it is to start with
    keys."""
    start, delay = options.get("start", "new"), options.get("delay")
    kind, at = started(start, options.get("at", 0))
    if kind == "keys":
        raise ValueError("a group shares the rows of the log: it cannot start with keys")
    return AttachGroup(
        0,
        stream,
        group,
        options.get("name") or secrets.token_hex(8),
        start=kind,
        at=at,
        credit=options.get("credit", 64),
        selector=selector,
        lease=options.get("lease"),
        deliveries=options.get("max_deliver"),
        by=options.get("by"),
        priority=options.get("priority"),
        delay=delay if isinstance(delay, str) else None,
        delay_seconds=None if isinstance(delay, str) or delay is None else float(delay),
    )


class GroupChanges(TypedDict, total=False):
    """Keyword arguments of `Client.edit_group` beside the names; None: unchanged."""

    selector: str | None
    lease: float | None
    max_deliver: int | None
    by: str | None
    priority: str | None
    delay: str | float | None


def group_edit(stream: str, group: str, changes: GroupChanges) -> EditGroup:
    """Return the command for the arguments of `Client.edit_group`. A delay replaces the former one,
    whether attribute or seconds."""
    delay = changes.get("delay")
    attribute, seconds = (delay, 0.0) if isinstance(delay, str) else ("", delay)
    return EditGroup(
        0,
        stream,
        group,
        changes.get("selector"),
        changes.get("lease"),
        changes.get("max_deliver"),
        changes.get("by"),
        changes.get("priority"),
        *((None, None) if delay is None else (attribute, float(seconds or 0.0))),
    )


class MembershipCore(Context):
    """A membership in a group, and the rows that it was given. Times are seconds."""

    def __init__(self, node: ClientNode, wanted: AttachGroup, timeout: float) -> None:
        """`timeout`: seconds for an answer of the node."""
        self._node = AwayNode(node)
        self._wanted = wanted
        self._timeout = timeout
        self._link: Link | None = None  # on which it is a member
        self._number = 0  # of the membership, on this connection
        self._take: int | None = None  # the question that is open
        self._asked_at = 0.0  # when that was sent
        self._rest: deque[tuple[float, GroupRow]] = deque()
        # Rows that are not handed out, and until when they are this member's at least.
        self._said: deque[int] = deque()  # words on rows that are not answered
        self._is_unsure = False  # words were not answered when the node was lost
        self._is_closed = False
        self.waits = ""
        """Why no rows can arrive at present; "": they can (`Reading.waits`)."""
        self.name = wanted.name
        """The member's name. Another program that attaches under this name fences this one."""
        self.selector = wanted.selector or ""
        """The group's selector; "": all rows."""
        self.lease = 0.0
        """Seconds for which a row is leased to this member."""
        self.lost: list[tuple[int, int]] = []
        """(shard, offset) of rows whose leases had ended when they were settled: they are delivered
        again. The program may clear it."""

    @operation
    async def open(self) -> None:
        """Become a member now. Raises as `Client.group`."""
        await self._open()

    @operation
    async def take(self, timeout: float | None = None, most: int = 64) -> list[GroupRow]:
        """Return the next rows; [] if none arrived within `timeout` seconds (None: for ever).
        Raises CommandFailed when the membership has ended (fenced, unknown-group), UnreachableError
        when the node does not come back in time."""
        return await self._fetch(patient(timeout), most)

    @operation
    async def ack(self, *rows: GroupRow) -> None:
        """Acknowledge these rows. Returns before the acknowledgement is committed, as the other
        answers do: `flush` waits for the commit, and `lost` has the rows whose leases had ended."""
        await self._say("ack", rows)

    @operation
    async def nack(self, *rows: GroupRow, delay: float = 0.0, reason: str = "") -> None:
        """Give these rows back, to be delivered again to any member after `delay` seconds at the
        earliest. After the group's limit of deliveries they become dead letters."""
        await self._say("nack", rows, delay, reason)

    @operation
    async def reject(self, *rows: GroupRow, reason: str = "") -> None:
        """Make these rows dead letters of the group, with `reason`."""
        await self._say("reject", rows, 0.0, reason)

    @operation
    async def extend(self, *rows: GroupRow) -> None:
        """Restart the leases of these rows."""
        await self._say("extend", rows)

    @operation
    async def flush(self) -> None:
        """Wait until all answers to rows are committed. Raises UnreachableError if the node was
        lost since the last call, even if it is back: answers may have been lost with it, and their
        rows may come again."""
        try:
            while self._said:
                await self._hear()
        except UnreachableError:
            await self._come_back()
            self._is_unsure = False
            raise
        if self._is_unsure:
            self._is_unsure = False
            back = "" if self._link is None else ", and is back"
            raise UnreachableError(
                f"the node was lost{back}: it is not known whether all that was said of rows is "
                "committed, and rows may come again"
            )

    @operation
    async def close(self) -> None:
        """End the membership. Rows that were taken and not settled go to other members."""
        await self._leave(False)

    async def _open(self) -> None:
        """Become a member, or become it again. Raises CommandFailed (unknown, selector, options,
        offset-out-of-range, fenced, unknown-group), and as `Client.ask`."""
        link, number = await self._node.begin(self._wanted, self._timeout)
        ready = expected(await link.finish(number, self._timeout), GroupReady)
        self._link, self._number, self._take = link, number, None
        self._node.found()
        self._said.clear()
        self._rest.clear()
        self.selector, self.lease, self.waits = ready.selector, ready.lease, ""
        self._wanted = replace(self._wanted, attachments=ready.attachments)

    async def _fetch(self, timeout: float, most: int) -> list[GroupRow]:
        """Return the next rows; [] if none arrived in time."""
        until = time.monotonic() + timeout
        while not self._is_closed:
            try:
                if self._rest:
                    await self._confirm(most)
                    if found := self._sure(most):
                        return found
                    if self._rest and time.monotonic() >= until:
                        return []
                    continue
                if self._link is None:
                    await self._open()
                link = self._link
                assert link is not None
                if self._take is None:
                    self._asked_at = time.monotonic()
                    self._take = await link.begin(TakeRows(0, self._number, most))
                left = max(0.0, until - time.monotonic())
                if not await link.is_answered(self._take, left):
                    return []
                number, self._take = self._take, None
                taken = expected(await link.finish(number, 0.0), RowsTaken)
                self.waits = taken.waits
                self._rest.extend((self._asked_at + row.left, row) for row in taken.rows)
            except UnreachableError:
                if not await self._come_back(until):
                    return []
        return []

    def _sure(self, most: int) -> list[GroupRow]:
        """Return the next rows, up to the first whose lease may have ended."""
        now = time.monotonic()
        found: list[GroupRow] = []
        while self._rest and len(found) < most and self._rest[0][0] > now:
            found.append(self._rest.popleft()[1])
        return found

    async def _confirm(self, most: int) -> None:
        """Restart the leases of the next rows that may have ended while the rows waited in the
        connection or here. Rows whose leases have ended are dropped: another member has them, or
        they are delivered again."""
        asked_at = time.monotonic()
        doubtful = [row for until, row in islice(self._rest, most) if until <= asked_at]
        if not doubtful or self._link is None:
            return
        meant = {(row.shard, row.offset) for row in doubtful}
        said = tuple(RowSettled(row.shard, row.offset, row.lease, "extend") for row in doubtful)
        link = self._link
        number = await link.begin(SettleRows(0, self._number, said))
        reply = await link.finish(number, self._timeout)
        lost = set(expected(reply, RowsSettled).lost)
        kept: deque[tuple[float, GroupRow]] = deque()
        for until, row in self._rest:
            place = row.shard, row.offset
            if place not in meant:
                kept.append((until, row))
            elif place not in lost:
                kept.append((asked_at + self.lease, replace(row, left=self.lease)))
        self._rest = kept

    async def _next(self) -> GroupRow | None:
        """Return the next row; None when this is closed. Takes one at a time, since the node
        extends the leases of rows that it has not handed over."""
        while not self._is_closed:
            for row in await self._fetch(math.inf, 1):
                return row
        return None

    async def _say(
        self, what: What, rows: Sequence[GroupRow], delay: float = 0.0, reason: str = ""
    ) -> None:
        """Settle rows without waiting for an answer, unless too many answers are missing."""
        said = tuple(
            RowSettled(row.shard, row.offset, row.lease, what, delay, reason) for row in rows
        )
        link = self._link
        if link is None or not said:
            self.lost += [(row.shard, row.offset) for row in rows]
            return
        try:
            self._said.append(await link.begin(SettleRows(0, self._number, said)))
            while len(self._said) > AHEAD:
                await self._hear()
        except UnreachableError:
            self._is_unsure = True
            await self._come_back()

    async def _hear(self) -> None:
        assert self._link is not None
        number = self._said.popleft()
        reply = await self._link.finish(number, self._timeout)
        self.lost += expected(reply, RowsSettled).lost

    async def _leave(self, failed: bool) -> None:
        """Leave the group. Settlements that were sent count; the other rows go to other members."""
        self._is_closed = True
        link = self._link
        if link is not None:
            with contextlib.suppress(ControlError):  # the node is away, and has ended it
                while self._said:
                    await self._hear()
                reply = await link.request(DetachGroup(0, self._number), self._timeout)
                expected(reply, Done)
        self._link = None

    async def _come_back(self, by: float = math.inf) -> bool:
        """Wait for the node to come back. The member's rows go to others meanwhile. Returns whether
        it is back by the time `by`; if not, the next call continues to wait."""
        self._link = self._take = None
        self._rest.clear()
        self._is_unsure = self._is_unsure or bool(self._said)
        self._said.clear()
        self._node.lost()
        while not self._is_closed:
            try:
                await self._open()
            except (UnreachableError, NoMajorityError) as error:
                if not await self._node.wait(error, by):
                    return False
            else:
                return True
        return True


class Member(MembershipCore, BlockingContext):
    """A member of a consumer group; each row that it takes is leased to it for `lease` seconds.

    A context manager, and an iterator of `GroupRow` that waits for more. One thread takes rows and
    answers them. If the node is lost the member reconnects; the rows that it had are delivered to
    other members."""

    def __iter__(self) -> Iterator[GroupRow]:
        while (row := run(self._next())) is not None:
            yield row


class AsyncMember(MembershipCore, AsynchronousContext):
    """A member of a consumer group, as `canopy.Member`: an asynchronous iterable, and context
    manager that ends the membership. One task takes rows."""

    def __aiter__(self) -> AsyncIterator[GroupRow]:
        return Items(self._next)
