"""Whose handshake is next: those of all other machines together have a share of a node's time.

A handshake takes a node 1.5 to 3 ms, so that a few dozen addresses, each within its own limits
(`accept_limits`), would take all of it, and events would wait. Here handshakes have a rate. Who is
beyond it waits for its turn; addresses have turns one after the other, so that a newcomer waits
for one handshake of each other address at most, however many these want.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

import trio

from canopy.wire.transport.accept_limits import whose

PER_SECOND: Final = 100.0
"""Handshakes of other machines: a fifth of a processor, or a quarter."""

BURST: Final = 64.0
"""Of them at once: the neighbours of a node that starts."""


class HandshakeTurns:
    """Lets handshakes with other machines begin at a bounded rate, addresses in turns. Times are
    those of trio's clock, in seconds."""

    def __init__(self, per_second: float = PER_SECOND, burst: float = BURST) -> None:
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
