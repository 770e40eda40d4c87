"""What `canopy stream check` costs live rows: single rows while two of three nodes read their logs
from end to end, beside none, in turns."""

from __future__ import annotations

import threading
import time
from typing import Any, Final

from canopy.client.blocking import ControlClient
from overlay.stream_client import BeginLogCheck, GetLogCheck, LogCheck

WINDOW: Final = 5.0
"""Seconds of single rows, with and without."""

WINDOWS: Final = 5
"""Of each kind."""

PATIENCE: Final = 60.0


class Checks:
    """Has one node check all its logs, again and again, until it is told to stop."""

    def __init__(self, client: ControlClient) -> None:
        self._client = client
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.bytes = 0
        """That were read, in all."""
        self.faults = 0

    def __enter__(self) -> Checks:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.is_set():
            found: Any = self._client.ask(BeginLogCheck(0), LogCheck, PATIENCE)
            while not found.is_over and not self._ends.is_set():
                time.sleep(0.1)
                found = self._client.ask(GetLogCheck(0), LogCheck, PATIENCE)
            self.bytes += sum(shard.bytes for shard in found.shards)
            self.faults += sum(shard.found for shard in found.shards)
        self._client.close()  # ends what is under way
