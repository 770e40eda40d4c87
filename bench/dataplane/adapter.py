"""Canopy as a contestant in the peers' harness (bench/dataplane/compare.py): real nodes, real
clients.

The harness publishes rows of ten attributes with the whole encoded event as an opaque payload, and
counts what each subscriber connection gets. A connection is a client of a node's control socket;
its predicates are written as selectors, each a subscription of its own. `One` serves all
connections from one node; `Eight` has an overlay of eight, connection c at node c modulo 8, and the
publisher at the first.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from canopy.cli.demo.overlay import Overlay
from canopy.client.blocking import ControlClient
from overlay.client import Done, Draft, Gather, Publish, Subscribe, Subscribed

NAMES: Final = ("mag", "depth", "lat", "lon", "sig", "time", "flag", "net", "region", "kind")
"""The attributes of a row, in the harness's order; from `net` on they are bytes."""

SUBSCRIBE_TIMEOUT: Final = 300.0
"""Seconds for all subscriptions of a connection. Ample, for a busy machine."""

SUBSCRIBED_AT_ONCE: Final = 48
"""Subscriptions of a connection without an answer; the node reads no more at 64."""

PUBLISH_TIMEOUT: Final = 120.0
"""Seconds; ample."""

PUBLISHED_AT_ONCE: Final = 16
"""Batches of the publisher without an answer: the limit of a node for one client."""

Predicate = tuple[str, str, Any, Any]
Sink = Callable[[bytes], None]


def selector(predicates: Sequence[Predicate]) -> str:
    """The harness's conjunction as a selector's text."""
    return " AND ".join(term(*predicate) for predicate in predicates)


def term(name: str, operator: str, low: Any, high: Any) -> str:
    if operator == "range":
        return f"{name} >= {low!r} AND {name} < {high!r}"
    if operator == "prefix":
        return f"{name} LIKE '{low}%'"
    if isinstance(low, bool):
        return f"{name} = {str(low).upper()}"
    return f"{name} = '{low}'"


def draft(row: Sequence[Any], data: bytes, now: float) -> Draft:
    """A row of the harness as an event; `data` is what the sinks want back."""
    mag, depth, lat, lon, sig, when, flag, net, region, kind = row
    attributes = {
        "mag": mag,
        "depth": depth,
        "lat": lat,
        "lon": lon,
        "sig": sig,
        "time": when,
        "flag": bool(flag),
        "net": net.decode(),
        "region": region.decode(),
        "kind": kind.decode(),
    }
    return Draft(attributes, data, "", now)


class Canopy:
    """The contract of the harness's `base.Base`."""

    nodes = 1
    flags: tuple[str, ...] = ()
    """Of each node, beside the defaults."""
    client_filter = False  # a connection gets exactly what it subscribed to
    reliable = True
    warm_s = 8.0  # the engine is made ready in a thread, and takes over in small steps
    warm_rate = 1600
    sub_deadline = 300
    window = 2048

    def __init__(self, cfg: dict[str, Any]) -> None:
        self.out = Path(cfg["workdir"]) / "overlay"
        self.procs: list[Any] = []
        self.stack = ExitStack()
        self.asked: deque[int] = deque()  # publications that are not answered
        self.clients: list[tuple[ControlClient, Sink]] = []

    # In the orchestrator.

    def start(self) -> None:
        for name in ("nodes", "logs", "traces"):
            (self.out / name).mkdir(parents=True)
        self.overlay = self.stack.enter_context(
            Overlay(self.nodes, self.out, list(self.flags), seed=1)
        )
        self.overlay.start(lambda _: None)
        self.overlay.await_ready(lambda _: None)
        self.procs = [node.process for node in self.overlay.nodes]

    def stop(self) -> None:
        self.stack.close()

    # In the subscribers' processes.

    def connect_subs(self, conns: Sequence[int]) -> None:
        """Does nothing: each subscriber connects when it subscribes."""

    def subscribe(self, conn: int, subs: Sequence[Sequence[Predicate]], sink: Sink) -> None:
        client = ControlClient.connect(self.data(conn))
        client.ask(Gather(0), Done)
        wanted = (Subscribe(0, selector(one)) for one in subs)
        client.ask_many(wanted, Subscribed, SUBSCRIBE_TIMEOUT, SUBSCRIBED_AT_ONCE)
        self.clients.append((client, sink))

    def pump(self, stop: Callable[[], bool]) -> None:
        poll = select.poll()
        by_file = {client.fileno(): (client, sink) for client, sink in self.clients}
        for file in by_file:
            poll.register(file, select.POLLIN)
        while not stop():
            for file, _ in poll.poll(50):
                client, sink = by_file[file]
                for event in client.gathered(timeout=0):
                    sink(event.payload)

    # In the publisher's process.

    def connect_pub(self) -> None:
        self.publisher = ControlClient.connect(self.data(0))

    def publish(self, batch: Sequence[tuple[int, Sequence[Any], bytes]]) -> None:
        now = time.time()
        drafts = tuple(draft(row, data, now) for _, row, data in batch)
        self.asked.append(self.publisher.begin(Publish(0, drafts), PUBLISH_TIMEOUT))
        while len(self.asked) >= PUBLISHED_AT_ONCE:
            self.publisher.finish(self.asked.popleft(), PUBLISH_TIMEOUT)

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        """The process ends now; its connections with it."""

    def data(self, conn: int) -> Path:
        return self.out / "nodes" / f"{conn % self.nodes:02}"


class One(Canopy):
    """One node with all connections, as users get it."""


class OneUntraced(One):
    """The same without traces."""

    flags = ("--no-trace",)


class Three(Canopy):
    """Three nodes in an overlay."""

    nodes = 3


class Eight(Canopy):
    """Eight nodes in an overlay, each with its own subscribers."""

    nodes = 8


class EightUntraced(Eight):
    """The same without traces."""

    flags = ("--no-trace",)
