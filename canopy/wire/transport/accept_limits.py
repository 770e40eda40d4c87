"""How many connections one address may open, before anything of them is read.

A handshake costs a millisecond; who opens connections by thousands, or opens them and says nothing,
must not keep others out. A bucket of tokens for each address, and a bound on those that have not
authenticated themselves.
"""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import Final

from overlay.bounded import BoundedDict

PER_SECOND: Final = 20.0
"""Accepts per second and address. A machine of nodes that starts dials each of them a few times."""

AWAITING: Final = 32
"""Connections of one address that are not authenticated yet."""

ADDRESSES: Final = 65_536
"""Addresses that are remembered; of more the one that was heard of first starts anew."""


class AcceptLimits:
    """What is left for each address. Times are monotonic seconds."""

    def __init__(self, per_second: float = PER_SECOND, awaiting: int = AWAITING) -> None:
        self._per_second = per_second
        self._most = awaiting
        self._tokens: BoundedDict[str, tuple[float, float]] = BoundedDict(ADDRESSES)
        self._awaiting: dict[str, int] = {}

    def admits(self, host: str, now: float) -> bool:
        """Whether one more connection of `host` may be looked at; `done` has to follow then."""
        host = whose(host)
        if self._awaiting.get(host, 0) >= self._most:
            return False
        tokens, since = self._tokens.get(host, (self._per_second, now))
        tokens = min(self._per_second, tokens + (now - since) * self._per_second)
        if tokens < 1.0:
            self._tokens.renew(host, (tokens, now))
            return False
        self._tokens.renew(host, (tokens - 1.0, now))
        self._awaiting[host] = self._awaiting.get(host, 0) + 1
        return True

    def done(self, host: str) -> None:
        """A connection of `host` is authenticated, or has ended before."""
        host = whose(host)
        left = self._awaiting.get(host, 1) - 1
        if left > 0:
            self._awaiting[host] = left
        else:
            self._awaiting.pop(host, None)


def whose(host: str) -> str:
    """What counts as one address: of IPv6 the first 64 bits, since who has one has them all."""
    if ":" not in host:
        return host
    try:
        found = IPv6Address(host)
    except ValueError:
        return host
    mapped = found.ipv4_mapped
    return str(mapped) if mapped is not None else found.packed[:8].hex()
