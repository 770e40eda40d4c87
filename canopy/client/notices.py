"""What a subscription yields beside events: that some are missing, or that the node is away."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from overlay.client import Dropped, Failed, Lapsed

OVERFLOW: Final = "overflow"
LAPSED: Final = "lapsed"
RECONNECTED: Final = "reconnected"


class Gap(msgspec.Struct, frozen=True):
    """Events may be missing here: after the events before it and before those after it.

    `cause` is one of

    - "overflow": the program took its deliveries too slowly, and the node dropped exactly `count`
      of them, events `first` to `last` (identities), published from `since` to `until` (seconds of
      the publishers' wall clocks);
    - "lapsed": the overlay has lost the subscription, and events published from `since` on may be
      missing (seconds of this machine's wall clock). It comes when that is found out, with `until`
      0, and again, with `until`, when the subscription is acknowledged once more;
    - "reconnected": the connection to the node was lost at `since` and the subscription
      acknowledged again at `until` (seconds of this machine's wall clock). What was published in
      between is missing.
    """

    cause: str
    reason: str
    count: int = 0
    first: str = ""
    last: str = ""
    since: float = 0.0
    until: float = 0.0

    def __str__(self) -> str:
        return self.reason


class Disconnected(msgspec.Struct, frozen=True):
    """The node has gone; it is looked for, and a `Gap` follows when it is back."""

    reason: str

    def __str__(self) -> str:
        return self.reason


Notice: TypeAlias = Gap | Disconnected


def gap_of(failed: Failed, wall: float) -> Gap:
    """The notice for a node's unasked reply (request 0), which came at `wall`."""
    if isinstance(failed, Dropped):
        where = (failed.first, failed.last, failed.since, failed.until)
        return Gap(OVERFLOW, failed.reason, failed.count, *where)
    if isinstance(failed, Lapsed):
        until = wall if failed.is_over else 0.0
        return Gap(LAPSED, failed.reason, since=wall - failed.seconds, until=until)
    return Gap(failed.code, failed.reason)
