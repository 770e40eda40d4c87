"""Limits on the connections of one address before any byte of them is read, and the order of
handshakes.

A handshake costs a millisecond; an address that opens connections by thousands, or opens them and
sends nothing, must not keep others out. Each address has a token bucket, and a bound on connections
that have not authenticated themselves.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from ipaddress import IPv6Address
from typing import Final

import trio

from overlay.bounded import BoundedDict
from overlay.tenants.policy import Bucket

PER_SECOND: Final = 20.0
"""The rate of accepts for each address, per second. A starting machine of nodes dials each a few
times."""

AWAITING: Final = 32
"""The most connections of one address that are not authenticated yet."""

HANDSHAKES: Final = 100.0
"""The rate of handshakes with all other machines together, per second: a fifth of a processor, or a
quarter."""

BURST: Final = 64.0
"""The most handshakes at once: the neighbours of a starting node."""

ADDRESSES: Final = 65_536
"""The most addresses that are remembered; beyond it the oldest gets a new allowance."""


class AcceptLimits:
    """The remaining allowance of each address. Times are monotonic seconds."""

    def __init__(self, per_second: float = PER_SECOND, awaiting: int = AWAITING) -> None:
        self._per_second = per_second
        self._most = awaiting
        self._buckets: BoundedDict[str, Bucket] = BoundedDict(ADDRESSES)
        self._awaiting: dict[str, int] = {}

    def admits(self, host: str, now: float) -> bool:
        """Return whether one more connection from `host` is accepted; `done` must follow then."""
        host = whose(host)
        if self._awaiting.get(host, 0) >= self._most:
            return False
        bucket = self._buckets.get(host) or Bucket()
        self._buckets.renew(host, bucket)
        if not bucket.take(1.0, self._per_second, self._per_second, now):
            return False
        self._awaiting[host] = self._awaiting.get(host, 0) + 1
        return True

    def done(self, host: str) -> None:
        """Note that a connection from `host` is authenticated, or has ended before."""
        host = whose(host)
        left = self._awaiting.get(host, 1) - 1
        if left > 0:
            self._awaiting[host] = left
        else:
            self._awaiting.pop(host, None)


def whose(host: str) -> str:
    """Return the part of a host that counts as one address: for IPv6 the first 64 bits, since the
    owner of one address has them all."""
    if ":" not in host:
        return host
    try:
        found = IPv6Address(host)
    except ValueError:
        return host
    mapped = found.ipv4_mapped
    return str(mapped) if mapped is not None else found.packed[:8].hex()


class HandshakeTurns:
    """Lets handshakes with other machines begin at a bounded rate, addresses in turns.

    A handshake takes a node 1.5 to 3 ms, so that a few dozen addresses, each within its own limits,
    would take all of its time, and events would wait. Here handshakes have a rate, and further ones
    wait for a turn. Addresses take turns, so that a newcomer waits for at most one handshake of
    each other address, however many these want. Times are seconds of trio's clock.
    """

    def __init__(self, per_second: float = HANDSHAKES, burst: float = BURST) -> None:
        self._per_second = per_second
        self._burst = self._tokens = burst
        self._since = 0.0
        self._head: trio.Event | None = None
        """The next waiter, which waits for a token and then wakes its successor."""
        self._line: OrderedDict[str, deque[trio.Event]] = OrderedDict()

    async def wait(self, host: str) -> None:
        """Wait until a connection from `host` may begin its handshake."""
        self._refill()
        if self._head is None and self._tokens >= 1.0:
            self._tokens -= 1.0
            return
        me, host = trio.Event(), whose(host)
        self._line.setdefault(host, deque()).append(me)
        if self._head is None:
            self._call_up()
        try:
            await me.wait()
            await trio.sleep(max(0.0, (1.0 - self._tokens) / self._per_second))
            self._refill()
            self._tokens -= 1.0
        finally:
            if self._head is me:
                self._call_up()
            else:  # it was not called up, and goes
                self._line[host].remove(me)
                if not self._line[host]:
                    del self._line[host]

    def _refill(self) -> None:
        now = trio.current_time()
        self._tokens = min(self._burst, self._tokens + (now - self._since) * self._per_second)
        self._since = now

    def _call_up(self) -> None:
        self._head = None
        if self._line:
            host, waiting = self._line.popitem(last=False)
            self._head = waiting.popleft()
            self._head.set()
            if waiting:
                self._line[host] = waiting  # behind the others
