"""The recipients of an event: one by one, and as the shares that delegates are handed (C11)."""

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
    token: bytes = b""
    """All three as in `Deliver`."""


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
            tuple([each.token for each in some]) if any(each.token for each in some) else (),
        )
        for key, some in found.items()
    )


def recipients_of(shares: Iterable[DelegateShare]) -> list[Recipient]:
    """The recipients that `shares` name, one by one: the inverse of `shares_of`.

    Raises ProtocolError if a share has not a number, life and token for each of its peers."""
    found: list[Recipient] = []
    for share in shares:
        if share.previous and len(share.previous) != len(share.peers):
            raise ProtocolError("previous events do not fit the recipients")
        if share.lives and len(share.lives) != len(share.peers):
            raise ProtocolError("lives do not fit the recipients")
        if share.tokens and len(share.tokens) != len(share.peers):
            raise ProtocolError("tokens do not fit the recipients")
        nothing = (0,) * len(share.peers)
        previous, lives = share.previous or nothing, share.lives or nothing
        tokens = share.tokens or (b"",) * len(share.peers)
        found += [
            Recipient(peer, share.attribute, share.interval, number, life, token)
            for peer, number, life, token in zip(share.peers, previous, lives, tokens, strict=True)
        ]
    return found
