"""The task that publishes the built-in feed (command Feed) through the node.

One feed at most runs per node. A sample that comes while the last one is not admitted yet is
skipped and counted: telemetry that waits is worth nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from canopy.wire.driver import TrioDriver
from canopy.wire.folder import DataFolder
from canopy.wire.log import Log
from overlay.client import Draft, Failed, Publish, Published

if TYPE_CHECKING:
    from canopy.wire.telemetry import Sampler

FEED: Final = "telemetry"
PERIOD_LEAST: Final = 0.05  # seconds; a sample of a machine with few processes takes 5 ms
PERIOD_MOST: Final = 86_400.0


class FeedError(Exception):
    """There is no such feed, or not with that period."""


class TelemetryFeed:
    """Samples this machine every period and publishes the sample as client `client`."""

    def __init__(
        self,
        driver: TrioDriver,
        folder: DataFolder,
        name: str,
        log: Log,
        client: int,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.skipped = 0
        self._driver = driver
        self._folder = folder
        self._name = name
        self._log = log
        self._client = client
        self._wall = wall
        self._runs = 0
        self._period = 0.0
        self._request = 0
        self._waiting = False  # for the admission of the last sample
        self._changed = trio.lowlevel.ParkingLot()

    def set(self, name: str, period: float) -> None:
        """Start the feed, change its period, or (0) stop it. Raises FeedError."""
        if name != FEED:
            raise FeedError(f"there is no feed {name!r}; there is {FEED!r}")
        if period and not (math.isfinite(period) and PERIOD_LEAST <= period <= PERIOD_MOST):
            raise FeedError(f"the period must be {PERIOD_LEAST:g} to {PERIOD_MOST:g} seconds, or 0")
        self._period = period
        self._log.info("feed", name=name, period=period)
        self._changed.unpark_all()

    def stop(self) -> None:
        """Publish nothing any more."""
        self._period = 0.0
        self._changed.unpark_all()

    def answered(self, reply: Published | Failed) -> None:
        """The node has taken, or refused, the last sample."""
        self._waiting = False
        if isinstance(reply, Failed):
            self._log.warning("feed", reason=reply.reason)
        elif reply.refused:
            self._log.warning("feed", refused=len(reply.refused), reason=reply.refused[0][1])

    async def run(self) -> None:
        """Wait for a start, feed until the stop, and again."""
        while True:
            while not self._period:
                await self._changed.park()
            from canopy.wire.telemetry import (
                Sampler,
            )  # psutil costs a node that feeds nothing nothing

            self._runs += 1
            run = f"{self._folder.incarnation}.{self._runs}"
            await self._feed(Sampler(self._folder.node, run, time.monotonic, self._name))

    async def _feed(self, sampler: Sampler) -> None:
        await trio.to_thread.run_sync(sampler.sample)  # a baseline for the rates
        due = trio.current_time()
        while self._period:
            due = max(due + self._period, trio.current_time())
            with trio.move_on_at(due) as pause:
                await self._changed.park()
            if not pause.cancelled_caught:
                due = trio.current_time()  # a new period begins now, or the feed ends
                continue
            drafts = await trio.to_thread.run_sync(sampler.sample)
            if self._waiting:
                self.skipped += 1
            elif self._period:  # not stopped in the meantime
                self._publish(drafts)

    def _publish(self, drafts: list[Draft]) -> None:
        now = self._wall()
        self._request += 1
        self._waiting = True
        stamped = tuple(msgspec.structs.replace(draft, time=now) for draft in drafts)
        publish = Publish(self._request, stamped)
        self._driver.turn(self._driver.node.commands, self._client, (publish,))
