"""The thread that reads one stream and hands its rows to the app.

It takes further rows only when the app has taken the last ones, so that a replay of millions of
rows is as fast as the screen and needs no memory. When the node comes back, the client library's
`Reading` continues at its position.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from canopy.client.blocking import blocking_node
from canopy.client.errors import ControlError
from canopy.client.streams.reading import Reading, Start, wanted_reading
from canopy.tui.constants import REQUEST_TIMEOUT, STOP_CHECK
from canopy.tui.model.inbox import Inbox, Worker
from canopy.tui.model.requester import Connector, reason_of
from overlay.client import StreamEvent


class StreamReader(Worker):
    """Reads one stream in a thread. Start it once; `stop` ends it. The callbacks are called in the
    app's thread."""

    def __init__(
        self,
        connect: Connector,
        inbox: Inbox,
        stream: str,
        selector: str,
        start: Start | int,
        at: int,
        on_events: Callable[[list[StreamEvent]], None],
        on_state: Callable[[bool, str], None],
    ) -> None:
        """`on_state` is called with whether it reads, and from where, or why not."""
        super().__init__("canopy-stream", inbox)
        self._on_events = on_events
        self._on_state = on_state
        self._node = blocking_node(lambda credit: connect())
        wanted = wanted_reading(stream, selector, start, at, {}, "", 0.0)
        self._reading = Reading(self._node, wanted, REQUEST_TIMEOUT)

    def _run(self) -> None:
        try:
            self._reading.open()
            begins = self._reading.begins.items()
            where = ", ".join(f"{shard}: {first:,}" for shard, first in begins)
            self._report(
                True, f"from offset {where.removeprefix('0: ') if len(begins) == 1 else where}"
            )
            waits = ""
            while not self._stop.is_set():
                events = self._reading.take(STOP_CHECK)
                if self._reading.waits != waits:
                    waits = self._reading.waits
                    self._report(not waits, waits or "reads again")
                if events:
                    self._hand_over(events)
            self._reading.close()
        except (ControlError, OSError) as error:
            self._report(False, reason_of(error))
        finally:
            self._node.close()

    def _hand_over(self, events: list[StreamEvent]) -> None:
        """Pass the events to the app, and wait until it has taken them."""
        taken = threading.Event()

        def callback() -> None:
            if not self._stop.is_set():
                self._on_events(events)
            taken.set()

        self._inbox.call_in_app(callback)
        while not taken.wait(STOP_CHECK) and not self._stop.is_set():
            pass

    def _report(self, reads: bool, text: str) -> None:
        self._tell(lambda: self._on_state(reads, text))
