"""Who is to get an event: one by one, and as the shares that delegates are handed (C11)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from matching import Interval
from overlay.machine import Peer, ProtocolError
from overlay.upper_tree.messages import DelegateShare


class Recipient(NamedTuple):
    """An interested node, and the virtual node that found it."""

    peer: Peer
    attribute: str
    interval: Interval
    previous: int = 0
    life: int = 0
    """Both as in `Deliver`."""


def shares_of(recipients: Iterable[Recipient]) -> tuple[DelegateShare, ...]:
    """Recipients grouped by the virtual node that found them."""
    found: dict[tuple[str, Interval], list[Recipient]] = {}
    for each in recipients:
        found.setdefault((each.attribute, each.interval), []).append(each)
    return tuple(
        DelegateShare(
            *key,
            tuple([each.peer for each in some]),
            tuple([each.previous for each in some]) if any(each.previous for each in some) else (),
            tuple([each.life for each in some]) if any(each.life for each in some) else (),
        )
        for key, some in found.items()
    )


def recipients_of(shares: Iterable[DelegateShare]) -> list[Recipient]:
    """The recipients that `shares` name, one by one: the inverse of `shares_of`.

    Raises ProtocolError if a share has not a number and a life for each of its peers."""
    found: list[Recipient] = []
    for share in shares:
        if share.previous and len(share.previous) != len(share.peers):
            raise ProtocolError("previous events do not fit the recipients")
        if share.lives and len(share.lives) != len(share.peers):
            raise ProtocolError("lives do not fit the recipients")
        nothing = (0,) * len(share.peers)
        found += [
            Recipient(peer, share.attribute, share.interval, number, life)
            for peer, number, life in zip(
                share.peers, share.previous or nothing, share.lives or nothing, strict=True
            )
        ]
    return found
