"""Watches the health file for a node (`health.file`; T6, docs/design/health.md).

The file is checked every `HEALTH_CHECK` seconds and read when it has changed. A file that is
missing, malformed, stale or from the future changes nothing: it is counted and logged, and the
contents of the last valid file stay in force until they are stale, by the node's own clock
(overlay/health.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import trio

from canopy.traces.health_file import HealthFileError, decode_health
from canopy.wire.config import HealthConfig
from canopy.wire.constants import HEALTH_CHECK, HEALTH_FILE_LIMIT
from canopy.wire.log import Log
from overlay.health import HealthReport, NodeHealth


class HealthWatch:
    """Reads one file for one node. `clock` gives seconds since 1970."""

    def __init__(
        self,
        settings: HealthConfig,
        log: Log,
        clock: Callable[[], float],
        update: Callable[[HealthReport], None],
    ) -> None:
        """`update` is called with each valid file that is read."""
        self.ignored = 0
        """The number of checks at which the file was missing or invalid."""
        self._log = log
        self._clock = clock
        self._update = update
        self._seen: tuple[int, ...] | None = ()  # None: the file is missing; (): not looked yet
        self._settings = settings

    def watch(self, settings: HealthConfig) -> None:
        """Watch another file, or with another greatest age, from now on."""
        if settings != self._settings:
            self._settings, self._seen = settings, ()

    async def run(self) -> None:
        """Check the file periodically, until cancelled."""
        while True:
            if self._settings.file:
                self.look()
            await trio.sleep(HEALTH_CHECK)

    def look(self) -> None:
        """Read the file if it has changed since the last check."""
        path = Path(self._settings.file).expanduser()
        try:
            found = path.stat()
            mark = (found.st_ino, found.st_mtime_ns, found.st_size)
            if mark == self._seen:
                return
            self._seen = mark
            with path.open("rb") as source:
                data = source.read(HEALTH_FILE_LIMIT + 1)
        except OSError as error:
            if self._seen is not None:
                self._seen = None
                self._ignore(error.strerror or str(error))
            return
        try:
            self._update(self._report(data))
        except HealthFileError as error:
            self._ignore(str(error))

    def _report(self, data: bytes) -> HealthReport:
        if len(data) > HEALTH_FILE_LIMIT:
            raise HealthFileError(f"more than {HEALTH_FILE_LIMIT} bytes")
        file = decode_health(data)
        age, most = self._clock() - file.until, self._settings.max_age
        if age >= most:
            raise HealthFileError(f"stale: its newest record is {age:.0f} s old")
        if age < -most:
            raise HealthFileError(f"its newest record is {-age:.0f} s in the future")
        nodes = {
            node: NodeHealth(found.severity, found.reason)
            for node, found in file.nodes.items()
            if found.severity
        }
        self._log.info(
            "health", file=self._settings.file, nodes=len(file.nodes), sub_healthy=len(nodes)
        )
        return HealthReport(nodes, valid_for=min(most, most - age))

    def _ignore(self, reason: str) -> None:
        self.ignored += 1
        self._log.warning("health_ignored", file=self._settings.file, reason=reason, node="goes on")
