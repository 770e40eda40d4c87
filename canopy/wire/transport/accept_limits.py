"""How many connections one address may open before anything of them is read, and whose handshake is
next.

A handshake costs a millisecond; who opens connections by thousands, or opens them and says nothing,
must not keep others out. A bucket of tokens for each address, and a bound on those that have not
authenticated themselves.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from ipaddress import IPv6Address
from typing import Final

import trio

from overlay.bounded import BoundedDict

PER_SECOND: Final = 20.0
"""Accepts per second and address. A machine of nodes that starts dials each of them a few times."""

AWAITING: Final = 32
"""Connections of one address that are not authenticated yet."""

HANDSHAKES: Final = 100.0
"""Handshakes per second of all other machines: a fifth of a processor, or a quarter."""

BURST: Final = 64.0
"""Of them at once: the neighbours of a node that starts."""

ADDRESSES: Final = 65_536
"""Addresses that are remembered; of more the one that was heard of first starts anew."""


class AcceptLimits:
    """The remaining allowance of each address. Times are monotonic seconds."""

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
    would take all of its time, and events would wait. Here handshakes have a rate, and those beyond
    it wait for a turn. Addresses have turns one after the other, so that a newcomer waits for at
    most one handshake of each other address, however many these want. Times are seconds of trio's
    clock.
    """

    def __init__(self, per_second: float = HANDSHAKES, burst: float = BURST) -> None:
        self._per_second = per_second
        self._burst = self._tokens = burst
        self._since = 0.0
        self._head: trio.Event | None = None
        """Who is next: it waits until there is a token, and then calls up who follows."""
        self._line: OrderedDict[str, deque[trio.Event]] = OrderedDict()

    async def wait(self, host: str) -> None:
        """Until it is the turn of a connection of `host`."""
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
