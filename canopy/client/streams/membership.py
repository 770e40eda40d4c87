"""A program's membership in a consumer group, across connections and nodes that come back (no IO).

The faces carry the steps out: `canopy.client.synchronous.Member` blocks,
`canopy.client.asynchronous.AsyncMember` awaits.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, Literal, TypedDict, TypeVar

from msgspec.structs import replace

from canopy.client.errors import ControlError, NoMajorityError, UnreachableError
from canopy.client.session import expected
from canopy.client.steps import Link, Steps
from canopy.client.streams.away import AwayNode
from canopy.client.streams.reading import Begin, started
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
"""Words on rows that may be unanswered: with one for each row, what a node can gather into one
chunk. Guess."""

What = Literal["ack", "nack", "reject", "extend"]

L = TypeVar("L", bound=Link)


class GroupArguments(TypedDict, total=False):
    """What `Client.group` may be given beside names and the selector."""

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
    """The command for the arguments of `Client.group`. ValueError if it is to start with keys."""
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
    """What `Client.edit_group` may be given beside names; None: as it is."""

    selector: str | None
    lease: float | None
    max_deliver: int | None
    by: str | None
    priority: str | None
    delay: str | float | None


def group_edit(stream: str, group: str, changes: GroupChanges) -> EditGroup:
    """The command for the arguments of `Client.edit_group`. A delay takes the place of the former
    one, attribute or seconds."""
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


class MembershipCore(Generic[L]):
    """Rows of a group, over connections `L`. Times are seconds."""

    def __init__(
        self,
        begin: Callable[[Any, float], Any],
        pause: Callable[[float], Any],
        patience: float,
        wanted: AttachGroup,
        timeout: float,
    ) -> None:
        """`begin` sends a command within a time: its connection and number; `pause` waits so long,
        and says whether the client was closed; `patience`: how long a lost node is looked for."""
        self._node = AwayNode(begin, pause, patience)
        self._wanted = wanted
        self._timeout = timeout
        self._link: L | None = None  # on which it is a member
        self._number = 0  # of the membership, on this connection
        self._take: int | None = None  # the question that is open
        self._asked_at = 0.0  # when that was sent
        self._rest: deque[tuple[float, GroupRow]] = deque()
        # Rows that are not handed out, and until when they are this member's at least.
        self._said: deque[int] = deque()  # words on rows that are not answered
        self._is_unsure = False  # words were not answered when the node was lost
        self._is_closed = False
        self.waits = ""
        """Why nothing can come just now; "": it can (`Reading.waits`)."""
        self.name = wanted.name
        """The member's name: another program that attaches under it fences this one."""
        self.selector = wanted.selector or ""
        """What the group gets; "": everything."""
        self.lease = 0.0
        """Seconds for which a row is this member's."""
        self.lost: list[tuple[int, int]] = []
        """(shard, offset) of rows whose leases were over when something was said of them: they are
        delivered again. The program may clear it."""

    def _attaching(self) -> Steps[None]:
        """Become a member, or be it again. Raises CommandFailed (unknown, selector, options,
        offset-out-of-range, fenced, unknown-group), and as `Client.ask`."""
        link, number = yield partial(self._node.begin, self._wanted, self._timeout)
        ready = expected((yield partial(link.finish, number, self._timeout)), GroupReady)
        self._link, self._number, self._take = link, number, None
        self._said.clear()
        self._rest.clear()
        self.selector, self.lease, self.waits = ready.selector, ready.lease, ""
        self._wanted = replace(self._wanted, attachments=ready.attachments)

    def _taking(self, timeout: float, most: int) -> Steps[list[GroupRow]]:
        """The next rows; none when none came in time."""
        until = time.monotonic() + timeout
        while not self._is_closed:
            try:
                if self._rest:
                    yield from self._confirming(most)
                    if found := self._sure(most):
                        return found
                    if self._rest and time.monotonic() >= until:
                        return []
                    continue
                if self._link is None:
                    yield from self._attaching()
                link = self._link
                assert link is not None
                if self._take is None:
                    self._asked_at = time.monotonic()
                    self._take = yield partial(link.begin, TakeRows(0, self._number, most))
                assert self._take is not None
                left = max(0.0, until - time.monotonic())
                if not (yield partial(link.is_answered, self._take, left)):
                    return []
                number, self._take = self._take, None
                taken = expected((yield partial(link.finish, number, 0.0)), RowsTaken)
                self.waits = taken.waits
                self._rest.extend((self._asked_at + row.left, row) for row in taken.rows)
            except UnreachableError:
                if not (yield from self._coming_back(until)):
                    return []
        return []

    def _sure(self, most: int) -> list[GroupRow]:
        """The next rows, up to one that may be another member's by now."""
        now = time.monotonic()
        found: list[GroupRow] = []
        while self._rest and len(found) < most and self._rest[0][0] > now:
            found.append(self._rest.popleft()[1])
        return found

    def _confirming(self, most: int) -> Steps[None]:
        """Restart the leases of the next rows that may have ended while the rows waited in the
        connection or here. Rows whose leases have ended are dropped: another member has them, or
        they come again."""
        asked_at = time.monotonic()
        doubtful = [row for until, row in islice(self._rest, most) if until <= asked_at]
        if not doubtful or self._link is None:
            return
        meant = {(row.shard, row.offset) for row in doubtful}
        said = tuple(RowSettled(row.shard, row.offset, row.lease, "extend") for row in doubtful)
        number = yield partial(self._link.begin, SettleRows(0, self._number, said))
        reply = yield partial(self._link.finish, number, self._timeout)
        lost = set(expected(reply, RowsSettled).lost)
        kept: deque[tuple[float, GroupRow]] = deque()
        for until, row in self._rest:
            place = row.shard, row.offset
            if place not in meant:
                kept.append((until, row))
            elif place not in lost:
                kept.append((asked_at + self.lease, replace(row, left=self.lease)))
        self._rest = kept

    def _following(self) -> Steps[GroupRow | None]:
        """The next row; None: this is closed. One at a time, since the node extends the leases of
        those that it has not handed over."""
        while not self._is_closed:
            for row in (yield from self._taking(math.inf, 1)):
                return row
        return None

    def _saying(
        self, what: What, rows: Sequence[GroupRow], delay: float = 0.0, reason: str = ""
    ) -> Steps[None]:
        """Say what becomes of rows, and wait for no answer, unless many are missing."""
        said = tuple(
            RowSettled(row.shard, row.offset, row.lease, what, delay, reason) for row in rows
        )
        link = self._link
        if link is None or not said:
            self.lost += [(row.shard, row.offset) for row in rows]
            return
        try:
            self._said.append((yield partial(link.begin, SettleRows(0, self._number, said))))
            while len(self._said) > AHEAD:
                yield from self._hearing()
        except UnreachableError:
            self._is_unsure = True
            yield from self._coming_back()

    def _hearing(self) -> Steps[None]:
        assert self._link is not None
        number = self._said.popleft()
        reply = yield partial(self._link.finish, number, self._timeout)
        self.lost += expected(reply, RowsSettled).lost

    def _flushing(self) -> Steps[None]:
        """Wait until what was said of rows is committed. Raises UnreachableError if the node was
        lost since the last call, also if it is back: what was not answered then is not known."""
        try:
            while self._said:
                yield from self._hearing()
        except UnreachableError:
            yield from self._coming_back()
            self._is_unsure = False
            raise
        if self._is_unsure:
            self._is_unsure = False
            back = "" if self._link is None else ", and is back"
            raise UnreachableError(
                f"the node was lost{back}: it is not known whether all that was said of rows is "
                "committed, and rows may come again"
            )

    def _ending(self) -> Steps[None]:
        """Be a member no more: what was said of rows counts, the others go to other members."""
        self._is_closed = True
        link = self._link
        if link is not None:
            with contextlib.suppress(ControlError):  # the node is away, and has ended it
                while self._said:
                    yield from self._hearing()
                reply = yield partial(link.request, DetachGroup(0, self._number), self._timeout)
                expected(reply, Done)
        self._link = None

    def _coming_back(self, by: float = math.inf) -> Steps[bool]:
        """Wait for the node to come back. What the member had goes to others meanwhile. Returns
        whether it has by then; if not, the next call goes on waiting."""
        self._link = self._take = None
        self._rest.clear()
        self._is_unsure = self._is_unsure or bool(self._said)
        self._said.clear()
        self._node.lost()
        while not self._is_closed:
            try:
                yield from self._attaching()
            except (UnreachableError, NoMajorityError) as error:
                if not (yield from self._node.waiting(error, by)):
                    return False
            else:
                self._node.found()
                return True
        return True
