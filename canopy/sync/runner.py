"""Runs the sides of syncs, each in a thread of its own, until they are asked to stop.

A database or node that is away is tried again; what a person has to see to ends the side.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from typing import Final

import msgspec

from canopy.client.client import Client
from canopy.client.errors import CommandFailed, ControlError
from canopy.client.resubscription import Backoff
from canopy.client.streams.producer import ProducerStart
from canopy.sync.applier import Applier
from canopy.sync.capture import Capture
from canopy.sync.changes import Commit
from canopy.sync.databases import is_known, is_passing, open_destination, open_source
from canopy.sync.definitions import Definition
from canopy.sync.destinations.destination import SyncProgress
from canopy.sync.errors import SyncError
from canopy.sync.row_filter import RowFilter
from canopy.sync.stream import ClientStream
from overlay.phrases import in_one_line

WAIT: Final = 0.25
"""Seconds for which one side waits for changes before it looks whether it is to stop."""
LAGS: Final = 60
GIVEN_UP: Final = 5.0
"""Seconds for which the end of all sides is waited for."""


class SideStatus(msgspec.Struct):
    """The state of one side, for `canopy sync run` and `canopy sync ls`."""

    name: str
    side: str
    """source or destination."""
    state: str = "starting"
    """starting, running, waiting (for a database or node), done, or failed."""
    changes: int = 0
    rate: float = 0.0
    """Changes a second, lately."""
    position: int = 0
    lag: float | None = None
    """Seconds from the source's commit to the destination's, of the newest."""
    lags: list[float | None] = msgspec.field(default_factory=list)
    """The largest of each of the last `LAGS` seconds, the newest last; None: nothing came."""
    error: str = ""
    conflicts: int = 0
    foreign: int = 0
    """Events of the stream that are no changes, and were passed over."""


class Side:
    """One side of a sync, and its thread."""

    def __init__(
        self,
        definition: Definition,
        side: str,
        client: Callable[[Definition], Client],
        snapshot: bool = False,
    ) -> None:
        self.status = SideStatus(definition.name, side)
        self._definition = definition
        self._client = client
        self._snapshot = snapshot
        self._start = ProducerStart()  # the source is one, however often its node goes away
        self._stop = threading.Event()
        self._settled = threading.Event()  # end when there is nothing more
        # A daemon: a driver may wait for long for a server that does not answer, and what it has
        # begun is taken back.
        self._thread = threading.Thread(
            target=self._run, name=f"sync {definition.name} {side}", daemon=True
        )
        self._counted = (time.monotonic(), 0)
        self._worst: float | None = None  # lag since then

    def start(self) -> None:
        """Begin to capture or apply, in the side's thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end after the batch that is under way."""
        self._stop.set()

    def settle(self) -> None:
        """End when everything is done that is there by now."""
        self._settled.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for its end; whether it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        backoff = Backoff()
        while not self._stop.is_set():
            try:
                if self.status.side == "source":
                    self._capture()
                else:
                    self._apply()
                self.status.state = "done"
                return
            except Exception as error:
                if self.status.state == "running":
                    backoff.reset()
                self.status.error = _said(error)
                if not (is_passing(error) or _is_leaving(error)):
                    self.status.state = "failed"
                    if not (isinstance(error, SyncError | ControlError) or is_known(error)):
                        raise
                    return
                self.status.state = "waiting"
                self._stop.wait(backoff.next())

    def _capture(self) -> None:
        one = self._definition
        with ExitStack() as stack:
            client = stack.enter_context(self._client(one))
            source = open_source(one.name, one.source, one.tables, one.forward)
            stack.enter_context(closing(source))
            stream = ClientStream(client, one.stream, f"sync.{one.name}", self._start)
            capture = Capture(source, stream, RowFilter(one.where), self._captured)
            capture.begin(self._snapshot, from_now=not one.snapshot)
            self.status.foreign = capture.foreign
            self._snapshot = False
            self._running()
            while not self._stop.is_set():
                if self._settled.is_set():
                    target = source.target()
                    while not source.reached(target) and not self._stop.is_set():
                        capture.run_once(WAIT)
                    capture.run_once(0)
                    break
                capture.run_once(WAIT)
                self._measure()
            capture.settle()

    def _apply(self) -> None:
        one = self._definition
        with ExitStack() as stack:
            client = stack.enter_context(self._client(one))
            destination = open_destination(one.name, one.target)
            stack.enter_context(closing(destination))
            stream = ClientStream(client, one.stream)
            stream.check_closed()
            rows = RowFilter({})
            apply = Applier(
                stream, destination, rows, report=self._applied, conflicts=one.conflicts
            )
            stack.enter_context(closing(apply))
            apply.begin()
            self._running()
            while not self._stop.is_set():
                if self._settled.is_set():
                    end = stream.ends()[1]
                    while apply.read_to < end and not self._stop.is_set():
                        apply.run_once(WAIT)
                    return
                apply.run_once(WAIT)
                self.status.conflicts, self.status.foreign = apply.conflicts, apply.foreign
                self._measure()

    def _running(self) -> None:
        self.status.state, self.status.error = "running", ""

    def _captured(self, events: int, commit: Commit | None) -> None:
        self.status.changes += events
        if commit is not None:
            self.status.position = commit.position

    def _applied(self, changes: int, progress: SyncProgress) -> None:
        self.status.changes += changes
        if progress.commit is not None:
            self.status.position = progress.commit.position
            if progress.commit.time:
                lag = self.status.lag = max(0.0, progress.applied - progress.commit.time)
                self._worst = max(lag, self._worst or 0.0)

    def _measure(self) -> None:
        began, count = self._counted
        now = time.monotonic()
        if now - began >= 1.0:
            self.status.rate = (self.status.changes - count) / (now - began)
            self._counted = now, self.status.changes
            if self.status.side == "destination":
                self.status.lags = [*self.status.lags, self._worst][-LAGS:]
                self._worst = None


class Runner:
    """The sides of some syncs, each in its thread, from `__enter__` to `__exit__`."""

    def __init__(
        self,
        definitions: list[Definition],
        client: Callable[[Definition], Client],
        snapshots: tuple[str, ...] = (),
    ) -> None:
        """`client` connects to a definition's node; `snapshots`: names of those whose source is to
        send all rows again."""
        self.sides: list[Side] = []
        for one in definitions:
            if one.source:
                self.sides.append(Side(one, "source", client, one.name in snapshots))
            if one.target:
                self.sides.append(Side(one, "destination", client))

    def __enter__(self) -> Runner:
        for side in self.sides:
            side.start()
        return self

    def __exit__(self, *exc: object) -> None:
        for side in self.sides:
            side.stop()
        until = time.monotonic() + GIVEN_UP
        for side in self.sides:
            side.join(max(0.0, until - time.monotonic()))

    def statuses(self) -> list[SideStatus]:
        """The state of each side, sources first within a sync."""
        return [side.status for side in self.sides]

    def is_alive(self) -> bool:
        """Whether the thread of any side still runs."""
        return any(not side.join(0) for side in self.sides)

    def settle(self, interval: float, look: Callable[[], object], stop: threading.Event) -> bool:
        """Continue until all changes now committed at the sources are in the destinations, or
        `stop` is set, calling `look` every `interval` seconds. Return whether all is done."""
        for kind in ("source", "destination"):
            waiting = [side for side in self.sides if side.status.side == kind]
            for side in waiting:
                side.settle()
            while not all(side.join(0) for side in waiting):
                look()
                if stop.wait(interval):
                    return False
        return True


def _said(error: BaseException) -> str:
    text = in_one_line(error) or type(error).__name__
    with suppress(AttributeError):
        text = "; ".join([text, *error.__notes__])
    return text


PASSING: Final = ("leaving", "time-out", "no-majority", "in-doubt")
"""Codes of a node's answers after which a side begins again, by what the stream has."""


def _is_leaving(error: BaseException) -> bool:
    return isinstance(error, CommandFailed) and error.code in PASSING
