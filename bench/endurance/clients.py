"""Clients of nodes that die and return, for a run of endurance (endurance.py).

Each is a thread with a connection of its own, which it makes again when its node is back.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from math import inf
from random import Random
from typing import Final

from bench.endurance.load import SELECTORS, attributes
from bench.endurance.oracle import MARGIN, AdmittedGap, Ledger, Session
from canopy.client.blocking import ControlClient
from canopy.client.errors import CommandFailed, CommandTimeoutError, ControlError
from overlay.client import (
    Done,
    Draft,
    Dropped,
    Failed,
    Lapsed,
    Publish,
    Published,
    Subscribe,
    Subscribed,
    Unsubscribe,
)

TICK: Final = 0.1
"""Seconds between two batches of a publisher."""

MOST: Final = 64
"""Events of one publication: what was held back while an overlay recovers comes in a burst."""

AHEAD: Final = 4
"""Publications without an answer: the limit of a node for one client."""

FLOOD: Final = bytes(5_000)
"""Payload of an event of a flood: large enough that bytes are short before events are."""

RECEIPT: Final = 150.0
"""Seconds for a receipt, after which it counts as missing. Longer than all that is done
to the nodes of one moment."""

SUBACK: Final = 90.0
"""Seconds for a SUBACK, in whatever state the overlay is; ample."""

AGAIN: Final = 0.2
"""Seconds between two attempts to reach a node that is down."""


STAY: Final = (MARGIN + 2.0, 2 * MARGIN)
"""Seconds, from and to, that a program that comes and goes stays subscribed: it is owed the events
of its first seconds, since those of the last `MARGIN` are not."""


ROUNDING: Final = 0.5
"""Seconds between an event's number being drawn here and its stamp, or between what the two clocks
say at two times; ample."""


class EnduranceClient(threading.Thread):
    """Connects, does its work until the node is gone, and again."""

    def __init__(self, node: str, where: str, ledger: Ledger) -> None:
        """`where`: the node's data folder."""
        super().__init__(daemon=True)
        self.node = node
        self.where = where
        self.ledger = ledger
        self.stopping = threading.Event()
        self.errors: deque[str] = deque(maxlen=20)
        self.timeouts = 0
        self.connected = 0.0

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                with ControlClient.connect(self.where) as client:
                    self.connected = time.monotonic()
                    self.work(client)
            except ControlError as error:
                self.errors.append(str(error))
                self.timeouts += isinstance(error, CommandTimeoutError)
                self.stopping.wait(AGAIN)

    def work(self, client: ControlClient) -> None:
        """Until `stopping`, or a ControlError."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ask the thread to end; it does at its next look."""
        self.stopping.set()


class LoadPublisher(EnduranceClient):
    """Publishes at a steady rate, each batch with a receipt."""

    def __init__(self, node: str, where: str, ledger: Ledger, rate: float, total: int) -> None:
        """`total`: events of all sources together, after which each stops."""
        super().__init__(node, where, ledger)
        self.rate = rate
        self.total = total
        self.flood_until = 0.0

    def flood(self, seconds: float) -> None:
        """Publish as fast as the node accepts, with a payload of `FLOOD`, for `seconds`."""
        self.flood_until = time.monotonic() + seconds

    def work(self, client: ControlClient) -> None:
        """Publish at the given rate until `stop`, and note each receipt."""
        asked: deque[tuple[int, range]] = deque()
        began, count = time.monotonic(), 0
        while not self.stopping.is_set() and len(self.ledger.asked) < self.total:
            is_flood = time.monotonic() < self.flood_until
            due = MOST if is_flood else int((time.monotonic() - began) * self.rate) - count
            if due <= 0 or (not is_flood and self.stopping.wait(TICK)):
                continue
            due = min(due, MOST)
            count += due
            numbers = self.ledger.ask(due, time.monotonic(), self.node)
            payload, now = FLOOD if is_flood else b"", time.time()
            drafts = tuple(Draft(attributes(number), payload, time=now) for number in numbers)
            asked.append((client.begin(Publish(0, drafts, receipt=True), RECEIPT), numbers))
            while len(asked) >= AHEAD:
                self._finish(client, *asked.popleft())
            if count + MOST < (time.monotonic() - began) * self.rate:  # what was missed is not owed
                began, count = time.monotonic(), 0
        while asked:
            self._finish(client, *asked.popleft())
        if len(self.ledger.asked) >= self.total:
            self.stopping.set()

    def _finish(self, client: ControlClient, number: int, numbers: range) -> None:
        answer = client.finish(number, RECEIPT)
        assert isinstance(answer, Published)
        self.ledger.refused += len(answer.refused)
        self.ledger.answer(numbers, time.monotonic(), answer.hosts)


class CheckedSubscriber(EnduranceClient):
    """Subscribes to some of `SELECTORS`, and notes what comes."""

    def __init__(self, node: str, where: str, ledger: Ledger, wanted: tuple[int, ...]) -> None:
        super().__init__(node, where, ledger)
        self.wanted = wanted
        self.arrived = 0.0  # when something last did
        self.is_subscribed = threading.Event()

    def work(self, client: ControlClient) -> None:
        """Subscribe, and note each delivery and each report of lost events."""
        sessions: dict[str, Session] = {}
        mine: list[Session] = []
        try:
            for wanted in self.wanted:
                answer = self._subscribe(client, wanted)
                session = self.ledger.begin(wanted, self.node, time.monotonic())
                sessions[answer.subscription] = session
                mine.append(session)
                self._listen(client, sessions, 0.0)
            self.is_subscribed.set()
            until = time.monotonic() + self.stay()
            while not self.stopping.is_set() and time.monotonic() < until:
                self._listen(client, sessions, 0.5)
            self.leave(client, sessions)
        finally:
            self.is_subscribed.clear()
            for session in mine:
                session.until = min(session.until, time.monotonic())

    def stay(self) -> float:
        """Return the seconds for which the client listens before it leaves."""
        return inf

    def leave(self, client: ControlClient, sessions: dict[str, Session]) -> None:
        """What comes before the connection is closed."""

    def _subscribe(self, client: ControlClient, wanted: int) -> Subscribed:
        while True:
            try:
                command = Subscribe(0, SELECTORS[wanted].selector)
                return client.ask(command, Subscribed, SUBACK)
            except CommandFailed as error:
                self.errors.append(str(error))
                if self.stopping.wait(1.0):
                    raise

    def _listen(self, client: ControlClient, sessions: dict[str, Session], timeout: float) -> None:
        found = client.deliveries(timeout)
        now = time.monotonic()
        if found:
            if self.arrived:
                self.ledger.was_quiet(self.node, self.arrived, now)
            self.arrived = now
        for one in found:
            number = int(str(one.event.attributes["id"]))
            asked = self.ledger.asked[number]
            session = sessions.get(one.subscription)
            if session is not None:
                session.take(number, now - asked)
            self.ledger.last_arrival = now
        while client.notices:
            notice = client.notices.popleft()
            self.errors.append(notice.reason)
            gap, concerned = self._gap(notice, now), concerned_by(notice)
            for subscription, session in sessions.items():
                if not concerned or subscription in concerned:
                    session.gaps.append(gap)

    def _gap(self, notice: Failed, now: float) -> AdmittedGap:
        """In times of this process' monotonic clock; nodes stamp events with the wall clock."""
        offset = now - time.time()
        if isinstance(notice, Lapsed):
            return AdmittedGap(now - notice.seconds - ROUNDING, now)
        if not isinstance(notice, Dropped) or (notice.code == "lapsed" and not notice.seconds):
            return AdmittedGap(self.connected, now)
        since = notice.since + offset if notice.count else now
        if notice.code == "lapsed":
            return AdmittedGap(min(since, now - notice.seconds) - ROUNDING, now, notice.count)
        until = notice.until + offset + ROUNDING
        return AdmittedGap(since - ROUNDING, until, notice.count, is_stamped=True)


class PassingSubscriber(CheckedSubscriber):
    """Comes and goes: subscribes to other selectors each time, and ends its subscriptions or just
    closes its connection, as a program does that is killed."""

    def __init__(self, node: str, where: str, ledger: Ledger, rng: Random) -> None:
        super().__init__(node, where, ledger, ())
        self.rng = rng

    def work(self, client: ControlClient) -> None:
        """One stay. (Nothing comes between two of them, which is no silence.)"""
        self.wanted = tuple(self.rng.sample(range(len(SELECTORS)), 2))
        self.arrived = 0.0
        super().work(client)

    def stay(self) -> float:
        return self.rng.uniform(*STAY)

    def leave(self, client: ControlClient, sessions: dict[str, Session]) -> None:
        if self.rng.random() < 0.5:
            now = time.monotonic()
            for subscription, session in sessions.items():
                session.until = min(session.until, now)
                client.ask(Unsubscribe(0, subscription), Done, SUBACK)


def concerned_by(notice: Failed) -> tuple[str, ...]:
    """The subscriptions that a notice concerns; empty: any of the client's."""
    if isinstance(notice, Lapsed):
        return (notice.subscription,)
    return notice.subscriptions if isinstance(notice, Dropped) else ()
