"""A program's subscriptions across connections (no IO, no clock).

A node keeps a client's session for a while after its connection is lost (M5): within that time
`resumed` continues the session. Later, or after the node's restart, the node has forgotten the
subscriptions. A `Resubscription` remembers them: `opening` has the commands that subscribe again on
a new connection, `opened` takes their acknowledgements and returns the `Gap` for the program,
`lost` notes the end of a connection, and `delay` is the wait before the next attempt. Each
subscription has its own connection and credit, so that a program that takes the events of one and
not of another is not blocked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from canopy.client.errors import CommandFailed, DeniedError, UnreachableError
from canopy.client.notices import RECONNECTED, Disconnected, Gap, gap_of
from canopy.client.session import SessionPosition
from overlay.client import (
    LEAVING,
    Command,
    Failed,
    Gather,
    Reply,
    SessionResumed,
    Subscribe,
    Subscribed,
    Unsubscribe,
)

FIRST_DELAY: Final = 0.25
"""Seconds before the first attempt to reach a lost node. A restart takes about a second."""

LAST_DELAY: Final = 8.0
"""The longest delay between attempts, in seconds. Not measured: an attempt costs a failed connect
on this machine, so more of them would do no harm; a person who restarts a node waits at most so
long."""

SUBACK_TIMEOUT: Final = 60.0
"""Seconds for a subscription's acknowledgement. A node that has just started finds its way into the
ring first, and the walk for an attribute without a tree takes its time-out (C5: 10 s)."""


UNSUBSCRIBE_TIMEOUT: Final = 5.0
"""Seconds for the answer to an unsubscription. Closing the connection ends subscriptions too."""

CLOCK_SET: Final = 20.0
"""Seconds before the end of a connection from which on events may be missing, if the last mark is
later than that end because the clock was set back. Longer than a delivery is under way, and than
the time between two marks (overlay/upper_tree/clients/constants.py)."""

OPENING: Final = 512
"""The number of unanswered subscriptions or unsubscriptions; the node takes 1,024 requests."""


class Backoff:
    """Delays that double from `first` to `most` seconds; `reset` after a success."""

    def __init__(self, first: float = FIRST_DELAY, most: float = LAST_DELAY) -> None:
        self.first = first
        self.most = most
        self._next = first

    def reset(self) -> None:
        """Start again with the first delay."""
        self._next = self.first

    def next(self) -> float:
        """Return the seconds before the next attempt: each delay is twice the last one, up to the
        limit."""
        now = self._next
        self._next = min(self.most, now * 2)
        return now


class KeptSelector(msgspec.Struct, frozen=True):
    """A selector that a program has subscribed to, with its name and latency level."""

    selector: str
    name: str = ""
    latency_level: int = 0


class Resubscription:
    """The subscriptions of one consumer, across connections.

    All times are seconds: `now` of a monotonic clock, `wall` of the wall clock.
    """

    def __init__(self, gathers: bool, patience: float = math.inf) -> None:
        """`gathers`: the connection gathers the events of all subscriptions; `patience`: how long a
        lost node is looked for before an error is raised."""
        self.ids: dict[str, KeptSelector] = {}
        """The selectors by the node's ids of their subscriptions; empty without a connection."""
        self.wanted: list[KeptSelector] = []
        self.position: SessionPosition | None = None
        """The program's position when its connection was lost; None: there is no session to
        resume."""
        self._former: dict[str, KeptSelector] = {}  # `ids` of that session
        self._is_successor = False  # of a process that has ended
        self._gathers = gathers
        self._patience = patience
        self._backoff = Backoff()
        self._was_open = False
        self._complete = 0.0  # wall: up to when all has come, or a gap was told
        self._ended_at: float | None = None  # wall: the node was leaving and ended all
        self._lost_at: tuple[float, float] | None = None  # (now, wall)
        self._next_try = -math.inf

    @property
    def wants_session(self) -> bool:
        """Whether the node should keep a session: only if a lost node is looked for."""
        return self._patience > 0

    def token(self, taken: SessionPosition | None, untaken: int) -> str:
        """Return the token with which `succeed` continues one subscription. All items of `taken`
        except the last `untaken` were handed out. "" if the node keeps no session."""
        at, ids = (self.position, self._former) if taken is None else (taken, self.ids)
        if at is None or not ids:
            return ""
        received = max(0, at.received - untaken)
        return f"{at.session}:{received}:{at.last_request}:{next(iter(ids))}"

    def succeed(self, token: str) -> None:
        """Continue at the position in the `token` of another process. Raises ValueError for an
        invalid token."""
        try:
            session, received, last, id_ = token.split(":")
            self.position = SessionPosition(session, int(received), int(last))
        except ValueError:
            raise ValueError(f"no token of a subscription: {token!r}") from None
        self._former = {id_: self.wanted[0]}
        self._is_successor = True

    def left_at(self, position: SessionPosition | None, complete: float = 0.0) -> None:
        """Note the loss of the connection. `position`: the program's position in the session that
        the node keeps; None if it keeps none. `complete`: the time up to which deliveries are
        complete; 0: unknown."""
        self.position = position
        self._complete = max(self._complete, complete)
        self._former = dict(self.ids)

    def resumed(self, reply: SessionResumed, wall: float) -> tuple[Gap | None, list[Command]]:
        """Handle the reply that the node has kept the session. Return the gap of missing items,
        or None, and the commands that bring the node's subscriptions in line with `wanted`. A
        known subscription that the node no longer has was ended by another program; a notice
        reports it."""
        assert self.position is not None
        there = {one.subscription: one for one in reply.subscriptions}
        self.ids = dict(self._former)
        missing = reply.after - self.position.received
        commands: list[Command] = [Unsubscribe(0, id_) for id_ in there if id_ not in self._former]
        since, self._lost_at = self._since(), None
        self.position, self._former, self._is_successor = None, {}, False
        self._back()
        if missing <= 0:
            return None, commands
        reason = f"{missing} deliveries or notices to this program were not kept by its node"
        return Gap(RECONNECTED, reason, missing, since=since, until=wall), commands

    def session_ended(self) -> None:
        """Note that the node has not kept the session."""
        self.position, self._former = None, {}

    def _back(self) -> None:
        self._backoff.reset()
        self._next_try = -math.inf
        self._was_open = True

    def opening(self) -> list[Command]:
        """Return the commands that make all subscriptions on a new connection."""
        since = self._complete if self._was_open else 0.0
        subscribes = [
            Subscribe(0, w.selector, w.name, w.latency_level, True, since) for w in self.wanted
        ]
        return [Gather(0), *subscribes] if self._gathers else [*subscribes]

    def opened(self, replies: Sequence[Reply], wall: float) -> Gap | None:
        """Handle the replies to all requests of `opening`. Return the gap since the previous
        connection, or None."""
        acknowledged = [reply for reply in replies if isinstance(reply, Subscribed)]
        names = [reply.subscription for reply in acknowledged]
        self.ids = dict(zip(names, self.wanted, strict=True))
        is_first, lost_at = not self._was_open, self._lost_at
        is_successor, self._is_successor = self._is_successor, False
        since = self._since()
        self._lost_at = None
        self._back()
        self._complete = wall
        if is_successor:
            reason = "the session has ended; events since then may be missing"
            return Gap(RECONNECTED, reason, until=wall)
        if lost_at is None or is_first:
            return None
        left = lost_at[1] if self._ended_at is None else self._ended_at
        self._ended_at = None
        reason = (
            f"the node was away for {max(0.0, wall - left):.1f} s and is subscribed to again; "
            f"events of the last {max(0.0, wall - since):.1f} s may be missing"
        )
        return Gap(RECONNECTED, reason, since=since, until=wall)

    def _since(self) -> float:
        """Return from when on events may be missing, now that the node is back (wall clock); 0:
        unknown."""
        if self._lost_at is None or not self._was_open:
            return 0.0
        left = self._lost_at[1] if self._ended_at is None else self._ended_at
        return self._complete if self._complete <= left else left - CLOCK_SET

    def notice(self, failed: Failed, wall: float) -> Gap | Disconnected:
        """Return the notice for a program of an unrequested reply of its node. A node that leaves
        has ended all subscriptions: events are missing from now on, although the connection ends
        later."""
        if failed.code != LEAVING:
            return gap_of(failed, wall)
        self._ended_at = wall
        return Disconnected(failed.reason)

    def lost(self, error: Exception, now: float, wall: float) -> Disconnected | None:
        """Note that the connection ended, or could not be opened. Returns a notice, once until the
        node is back.

        Raises `error` if the node is not, or no longer, to be looked for, and if another attempt
        would fail as well (a refused selector).
        """
        self.ids = {}
        if isinstance(error, CommandFailed) and error.code not in ("time-out", LEAVING):
            raise error
        if isinstance(error, DeniedError):  # as a token that was removed
            raise error
        is_new = self._lost_at is None and self._ended_at is None
        self._lost_at = self._lost_at or (now, wall)
        if self._patience <= 0:
            raise error
        if now - self._lost_at[0] >= self._patience:
            what = "without the node" if self._ended_at is None else "since the node has left"
            text = f"gave up after {self._patience:g} s {what}: {error}"
            raise UnreachableError(text)
        if not is_new or self.position is None:  # else the node may be there all the same
            self._next_try = now + self._backoff.next()
        return Disconnected(str(error)) if is_new else None

    def ended(self, id_: str) -> bool:
        """Note that another program has ended a subscription, which is not made again. Returns
        whether that was the last one."""
        wanted = self.ids.pop(id_, None)
        if wanted is not None:
            self.wanted.remove(wanted)
        return wanted is not None and not self.wanted

    def delay(self, now: float) -> float:
        """Return the seconds until the next attempt may be made."""
        return max(0.0, self._next_try - now)

    def add(self, wanted: KeptSelector, id_: str = "") -> None:
        """Add a selector to subscribe to on the next connection. `id_`: its subscription id, if the
        node has acknowledged it already."""
        self.wanted.append(wanted)
        if id_:
            self.ids[id_] = wanted

    def remove(self, wanted: KeptSelector) -> str:
        """Forget a subscription. Returns its id at the node, "" if it has none."""
        self.wanted.remove(wanted)
        found = next((id_ for id_, one in self.ids.items() if one == wanted), "")
        self.ids.pop(found, None)
        return found
