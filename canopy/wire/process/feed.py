"""Publishes samples of this machine through the node (command Feed).

A node has at most one feed. A sample is skipped and counted while the last one is not admitted yet,
since telemetry loses its value while it waits.
"""

from __future__ import annotations

import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from canopy.wire.constants import FEED_PERIOD_LEAST, FEED_PERIOD_MOST
from canopy.wire.driver import TrioDriver
from canopy.wire.folder import DataFolder
from canopy.wire.log import Log
from overlay.client import Draft, Failed, Publish, Published

if TYPE_CHECKING:
    from canopy.wire.process.telemetry import Sampler

FEED: Final = "telemetry"  # the name of the only feed


class FeedError(Exception):
    """The name of the feed is unknown, or its period out of bounds."""


def is_available() -> bool:
    """Return whether this machine can be sampled: psutil is installed."""
    try:
        return find_spec("psutil") is not None
    except ValueError:  # barred from import (sys.modules)
        return False


class TelemetryFeed:
    """Samples this machine once per period and publishes the sample as client `client`.

    `skipped` counts samples that were not published, since the last one was not admitted yet.
    """

    def __init__(
        self,
        driver: TrioDriver,
        folder: DataFolder,
        name: str,
        log: Log,
        client: int,
    ) -> None:
        self.skipped = 0
        self._driver = driver
        self._folder = folder
        self._name = name
        self._log = log
        self._client = client
        self._runs = 0
        self._period = 0.0
        self._request = 0
        self._unanswered = False  # the last sample is not admitted yet
        self._changed = trio.lowlevel.ParkingLot()

    def set(self, name: str, period: float) -> None:
        """Start the feed, change its period, or (0) stop it. Raises FeedError."""
        if name != FEED:
            raise FeedError(f"there is no feed {name!r}; there is {FEED!r}")
        if period and not FEED_PERIOD_LEAST <= period <= FEED_PERIOD_MOST:  # nan is refused too
            bounds = f"{FEED_PERIOD_LEAST:g} to {FEED_PERIOD_MOST:g}"
            raise FeedError(f"the period must be {bounds} seconds, or 0")
        if period and not is_available():
            raise FeedError(
                "the node's machine lacks psutil: pip install 'canopy-overlay[telemetry]'"
            )
        self._period = period
        self._log.info("feed", name=name, period=period)
        self._changed.unpark_all()

    def stop(self) -> None:
        """Publish no further samples, and wake the task that waits for the next."""
        self._period = 0.0
        self._changed.unpark_all()

    def answered(self, reply: Published | Failed) -> None:
        """Handle the node's reply to the last sample."""
        self._unanswered = False
        if isinstance(reply, Failed):
            self._log.warning("feed", reason=reply.reason)
        elif reply.refused:
            self._log.warning("feed", refused=len(reply.refused), reason=reply.refused[0][1])

    async def run(self) -> None:
        """Publish whenever the feed is switched on; runs until cancelled."""
        while True:
            while not self._period:
                await self._changed.park()
            from canopy.wire.process.telemetry import Sampler  # psutil is imported when needed

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
            if self._unanswered:
                self.skipped += 1
            elif self._period:  # not stopped in the meantime
                self._publish(drafts)

    def _publish(self, drafts: list[Draft]) -> None:
        now = time.time()
        self._request += 1
        self._unanswered = True
        stamped = tuple(msgspec.structs.replace(draft, time=now) for draft in drafts)
        publish = Publish(self._request, stamped)
        self._driver.turn(self._driver.node.commands, self._client, (publish,))
