"""What is published while nodes are killed, what comes of it, and the verdict (bench/recovery.py).

A *flow* is an attribute of its own with one subscription, so that each event is wanted by one
subscription or by nobody. Times are seconds of this process' monotonic clock.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from overlay.client import Draft, Publish, Subscribe, Subscribed
from wire.client import ControlClient, ControlError

FLOWS: Final = 8
UNWANTED: Final = 8
"""One event in so many carries a value that nobody wants: a delivery of it would be spurious."""

TICK: Final = 0.01
"""Seconds between two batches of the publisher."""

BURST: Final = 0.1
"""Seconds of events that may be published at once, after a wait. Wild guess."""

AHEAD: Final = 4
"""Publications without an answer: as many as a node takes from a client."""

TIMEOUT: Final = 30.0
"""Seconds for a publication or a SUBACK, in whatever state the overlay is. Wild guess."""

LATE: Final = 0.5
"""Seconds from publishing to delivery that are no longer usual. Wild guess."""


class Sent(NamedTuple):
    """An event when it was handed to the publisher's node; `wanted`: its flow's subscription is to
    get it."""

    at: float
    flow: str
    wanted: bool


class Arrival(NamedTuple):
    """A delivery to the subscription of `flow`."""

    at: float
    flow: str
    id: str


def selector(flow: str) -> str:
    return f"{flow} >= 0"


class Publisher(threading.Thread):
    """Publishes at a steady rate over one connection until it is stopped."""

    def __init__(self, client: ControlClient, rate: float, flows: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.rate = rate
        self.flows = flows
        self.sent: dict[str, Sent] = {}
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
        self.note(flow, flow, True)
        client.begin(Publish(0, (Draft({"id": flow, "type": "probe", flow: 1}),)), TIMEOUT)

    def stop(self) -> None:
        """Returns when all has been admitted, or has not been in time (`error`)."""
        self._stopped.set()
        self.join(2 * TIMEOUT)

    def so_far(self) -> dict[str, Sent]:
        """What was published until now, by the event's own id."""
        with self._lock:
            return dict(self.sent)

    def note(self, name: str, flow: str, wanted: bool) -> None:
        with self._lock:
            self.sent[name] = Sent(time.monotonic(), flow, wanted)

    def _draft(self, number: int) -> Draft:
        turn, place = divmod(number, len(self.flows))
        flow, wanted = self.flows[place], turn % UNWANTED != 0
        self.note(str(number), flow, wanted)
        value = number if wanted else -1 - number
        return Draft({"id": str(number), "type": "reading", flow: value})

    def _begin(self, drafts: Sequence[Draft]) -> int:
        return self.client.begin(Publish(0, tuple(drafts)), TIMEOUT)

    def _finish(self, number: int, since: float) -> None:
        self.client.finish(number, TIMEOUT)
        self.held_back = max(self.held_back, time.monotonic() - since)


class Subscriber(threading.Thread):
    """A connection with some flows' subscriptions; notes each delivery."""

    def __init__(self, client: ControlClient) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.arrivals: list[Arrival] = []
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
                self.arrivals.append(Arrival(now, self.flows[one.subscription], name))


class Verdict(NamedTuple):
    """One kill. Times in seconds after it; None: not seen at all."""

    first_s: float | None
    """The first delivery of an event that was published after the kill and needed the killed."""
    all_s: float | None
    """When each flow that needed the killed had such a delivery."""
    subscribe_s: float | None
    """The first delivery to the subscription that was asked for at the kill."""
    gap_s: float
    """The longest time without a delivery in any flow."""
    late_until_s: float
    """The last delivery that took longer than `LATE`; 0.0 if none did."""
    published: int
    lost_before: int
    """Events that were published before the kill and did not come (in flight through the killed)"""
    lost_after: int
    """… and after it."""
    lost_last_s: float
    """When the last lost event was published, relative to the kill; 0.0 if none is lost."""
    duplicates: int
    spurious: int

    def as_row(self) -> dict[str, Any]:
        return {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in self._asdict().items()
        }


def judge(
    sent: dict[str, Sent],
    arrivals: Iterable[Arrival],
    killed_at: float,
    needing: Iterable[str],
    subscribed: str = "",
) -> Verdict:
    """Hold what came against what was published. `needing` are the flows that needed the killed,
    `subscribed` is the one that was subscribed to after the kill."""
    came: dict[str, float] = {}
    first: dict[str, float] = {}
    latest: dict[str, float] = {}
    duplicates = spurious = 0
    gap = late_until = 0.0
    for one in sorted(arrivals):
        event = sent.get(one.id)
        if event is None or not event.wanted or event.flow != one.flow:
            spurious += 1
            continue
        if one.id in came:
            duplicates += 1
            continue
        came[one.id] = one.at
        gap = max(gap, one.at - latest.get(one.flow, one.at))
        latest[one.flow] = one.at
        if event.at >= killed_at:
            first.setdefault(one.flow, one.at - killed_at)
        if one.at - event.at > LATE and one.at > killed_at:
            late_until = max(late_until, one.at - killed_at)
    lost = [event.at for name, event in sent.items() if event.wanted and name not in came]
    needed = [first.get(flow) for flow in needing]
    seen = [at for at in needed if at is not None]
    return Verdict(
        first_s=min(seen) if seen else None,
        all_s=max(seen) if seen and len(seen) == len(needed) else None,
        subscribe_s=first.get(subscribed),
        gap_s=gap,
        late_until_s=late_until,
        published=len(sent),
        lost_before=sum(at < killed_at for at in lost),
        lost_after=sum(at >= killed_at for at in lost),
        lost_last_s=max(lost) - killed_at if lost else 0.0,
        duplicates=duplicates,
        spurious=spurious,
    )


def wait_until(holds: Callable[[], bool], timeout: float, pause: float = 0.02) -> bool:
    """Whether it came to hold in time."""
    until = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(pause)
    return True
