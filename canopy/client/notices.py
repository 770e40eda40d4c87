"""The notices that a subscription yields beside events: events are missing, or the node is away."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from overlay.client import LAPSED, Dropped, Failed, Lapsed

RECONNECTED: Final = "reconnected"


class Gap(msgspec.Struct, frozen=True):
    """Events may be missing here: after the events before it and before those after it.

    `cause` is one of

    - "overflow": the program took its deliveries too slowly, and the node dropped exactly `count`
      of them, events `first` to `last` (identities), published from `since` to `until` (seconds of
      the publishers' wall clocks);
    - "lapsed": the overlay has lost the subscription, and events published from `since` on may be
      missing (seconds of this machine's wall clock). It is reported when the loss is detected, with
      `until` 0, and again, with `until`, when the subscription is acknowledged again. It is also
      reported when a part of the overlay lacked registrations of the node; `since` is then 0 if the
      time is unknown. `count`: deliveries to the node that are known to have been given up;
    - "unreachable": another node could not reach this program's node for longer than it holds
      deliveries, or had no room for more: it gave up `count` deliveries to the node, events `first`
      to `last`, published as above. They may be for this program, or for another program there that
      subscribes to events with the same attributes;
    - "ended": another program has ended one of several subscriptions, and its events are missing
      from now on;
    - "reconnected": the connection to the node was lost, and the subscription was acknowledged
      again at `until` (seconds of this machine's wall clock). Events published from `since` to
      `until` may be missing: `since` is the last time up to which the node had reported deliveries
      as complete, or the time of the earlier acknowledgement; 0: unknown.

    `subscriptions`: the ids of those of several subscriptions that it may concern; empty: any.
    """

    cause: str
    reason: str
    count: int = 0
    first: str = ""
    last: str = ""
    since: float = 0.0
    until: float = 0.0
    subscriptions: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.reason


class Disconnected(msgspec.Struct, frozen=True):
    """The node has gone and is being looked for; a `Gap` follows when it is back."""

    reason: str

    def __str__(self) -> str:
        return self.reason


Notice: TypeAlias = Gap | Disconnected


def gap_of(failed: Failed, wall: float) -> Gap:
    """Return the notice for an unrequested reply of a node (request 0) that arrived at `wall`."""
    if isinstance(failed, Dropped):
        names, ids = (failed.count, failed.first, failed.last), failed.subscriptions
        if failed.code == LAPSED:
            return Gap(LAPSED, failed.reason, *names, failed.since, subscriptions=ids)
        return Gap(failed.code, failed.reason, *names, failed.since, failed.until, ids)
    if isinstance(failed, Lapsed):
        at = failed.at or wall
        since, until = at - failed.seconds, at if failed.is_over else 0.0
        ids = (failed.subscription,)
        return Gap(LAPSED, failed.reason, since=since, until=until, subscriptions=ids)
    return Gap(failed.code, failed.reason)
