"""Real clients for a recovery trial: a publisher at a steady rate, subscribers (trial.py).

Each is a thread with a connection of its own. Times are seconds of this process' monotonic clock.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from canopy.client.blocking import ControlClient
from canopy.client.errors import ControlError
from canopy.client.notices import gap_of
from harness.recovery.plan import TICK, event, probe, selector
from harness.recovery.verdict import DeliveredEvent, PublishedEvent, ToldGap
from overlay.client import Draft, Failed, Publish, Subscribe, Subscribed

BURST: Final = 0.1
"""Seconds of events that may be published at once, after a wait."""

AHEAD: Final = 4
"""Publications without an answer: as many as a node takes from a client."""

TIMEOUT: Final = 30.0
"""Seconds for a publication or a SUBACK, in whatever state the overlay is; ample."""


class FlowPublisher(threading.Thread):
    """Publishes at a steady rate over one connection until it is stopped."""

    def __init__(
        self, client: ControlClient, rate: float, flows: Sequence[str], size: int = 0
    ) -> None:
        """`size`: bytes of each event's payload."""
        super().__init__(daemon=True)
        self.client = client
        self.rate = rate
        self.flows = flows
        self._payload = b"x" * size
        self.sent: dict[str, PublishedEvent] = {}
        self.held_back = 0.0
        """The longest time that the node let a publication wait."""
        self.error: ControlError | None = None
        self._stopped = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        asked: deque[tuple[int, float]] = deque()
        started, count = time.monotonic(), 0
        try:
            while not self._stopped.wait(TICK):
                due = int((time.monotonic() - started) * self.rate) - count
                if due > self.rate * BURST:  # the node held us back: what it missed is not owed
                    due = int(self.rate * BURST)
                    started = time.monotonic() - (count + due) / self.rate
                if due:
                    drafts = [self._draft(count + n) for n in range(due)]
                    asked.append((self._begin(drafts), time.monotonic()))
                    count += due
                while len(asked) >= AHEAD:
                    self._finish(*asked.popleft())
            while asked:
                self._finish(*asked.popleft())
        except ControlError as error:
            self.error = error

    def one(self, client: ControlClient, flow: str) -> None:
        """One more event, over another connection to the same node. Does not wait for admission."""
        attributes, sent = probe(flow, time.monotonic())
        with self._lock:
            self.sent[flow] = sent
        client.begin(Publish(0, (Draft(attributes),)), TIMEOUT)

    def stop(self) -> None:
        """Returns when all has been admitted, or has not been in time (`error`)."""
        self._stopped.set()
        self.join(2 * TIMEOUT)

    def so_far(self) -> dict[str, PublishedEvent]:
        """The events published until now, by their own ids."""
        with self._lock:
            return dict(self.sent)

    def _draft(self, number: int) -> Draft:
        attributes, sent = event(number, self.flows, time.monotonic())
        with self._lock:
            self.sent[str(number)] = sent
        return Draft(attributes, self._payload)

    def _begin(self, drafts: Sequence[Draft]) -> int:
        return self.client.begin(Publish(0, tuple(drafts)), TIMEOUT)

    def _finish(self, number: int, since: float) -> None:
        self.client.finish(number, TIMEOUT)
        self.held_back = max(self.held_back, time.monotonic() - since)


class FlowSubscriber(threading.Thread):
    """A connection with some flows' subscriptions; notes each delivery."""

    def __init__(self, client: ControlClient) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.arrivals: list[DeliveredEvent] = []
        self.gaps: list[ToldGap] = []
        self.flows: dict[str, str] = {}  # subscription -> flow

    def subscribe(self, flow: str) -> None:
        """Returns with the SUBACK."""
        answer = self.client.ask(Subscribe(0, selector(flow)), Subscribed, TIMEOUT)
        self.flows[answer.subscription] = flow

    def run(self) -> None:
        while True:
            try:
                found = self.client.deliveries(timeout=1.0)
            except ControlError:
                return  # closed
            now = time.monotonic()
            for one in found:
                name = str(one.event.attributes["id"])
                self.arrivals.append(DeliveredEvent(now, self.flows[one.subscription], name))
            while self.client.notices:
                self._told(self.client.notices.popleft())

    def _told(self, failed: Failed) -> None:
        """The node says that events may be missing."""
        wall, now = time.time(), time.monotonic()
        gap = gap_of(failed, wall)
        names = gap.subscriptions or tuple(self.flows)
        flows = tuple(self.flows[name] for name in names if name in self.flows)
        since = gap.since - wall + now if gap.since else float("-inf")
        until = gap.until - wall + now if gap.until else now
        self.gaps.append(ToldGap(flows, since, until))


def wait_until(holds: Callable[[], bool], timeout: float, pause: float = 0.02) -> bool:
    """Whether it came to hold in time."""
    until = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(pause)
    return True
