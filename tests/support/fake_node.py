"""A node that floods, for tests of the simulator itself: enough of the driver's contract to run.

It never sends anything again, so that a lossy network visibly loses events.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from matching import compile_selector
from node import Credentials, LocalNode
from overlay.client import (
    Command,
    Delivered,
    Delivery,
    Done,
    Event,
    GetStatus,
    Publish,
    Published,
    Status,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from overlay.links.messages import Batch, Frame
from overlay.rights import Principal
from overlay.settings import Settings

ENCODE = msgspec.msgpack.Encoder().encode
DECODE = msgspec.msgpack.Decoder(list[Event]).decode


class FakeNode:
    def __init__(
        self,
        local: LocalNode,
        settings: Settings,
        rng: Random,
        codec: Any,
        driver: Any,
        seeds: Sequence[str] = (),
        restored: Sequence[bytes] = (),
        credentials: Credentials | None = None,
    ) -> None:
        self.me, self.incarnation, self.rng, self.driver = local.me, local.incarnation, rng, driver
        self.seeds, self.restored = seeds, tuple(restored)
        self.ready = not seeds
        self.drained = False
        self.conflict = None
        self.counters: dict[str, int] = {}
        self.numbered: dict[str, int] = {}
        self.connections: list[int] = []
        self.closed: list[str] = []
        self.ticks: list[float] = []
        self.frames: list[Frame] = []
        self.subscriptions: dict[str, tuple[int, Any]] = {}
        self.seen: dict[str, None] = {}
        self.sequence = 0
        self.next_tick: float | None = None

    def start(self) -> None:
        self.driver.trace("start", {"address": self.me.address})
        self.driver.store(b"started %d" % self.incarnation)
        self.driver.publish_address(self.me.id, (self.me.address,))
        for seed in self.seeds:
            self.driver.dial(seed)
        self.next_tick = self.driver.clock() + self.rng.random()

    def deadline(self) -> float | None:
        return self.next_tick

    def on_tick(self) -> None:
        now = self.driver.clock()
        assert self.next_tick is not None
        assert now >= self.next_tick
        self.ticks.append(now)
        self.next_tick = now + 1 + self.rng.random()

    def on_opened(self, connection: int, principal: Principal | None = None) -> None:
        self.connections.append(connection)
        self.ready = True

    on_accepted = on_opened

    def on_stored(self, ticket: int) -> None: ...

    def on_documents(self) -> None: ...

    def on_closed(self, connection: int, reason: str) -> None:
        self.closed.append(reason)
        if connection in self.connections:
            self.connections.remove(connection)

    def on_frames(self, connection: int, frames: Sequence[Frame]) -> None:
        for frame in frames:
            self.frames.append(frame)
            assert isinstance(frame, Batch)
            for event in DECODE(frame.body):
                self.take(event, connection)

    def take(self, event: Event, source: int) -> None:
        if event.identity in self.seen:
            return
        self.seen[event.identity] = None
        body = ENCODE([event])
        for connection in self.connections:
            if connection != source:
                self.driver.write(connection, Batch(0, 0, 0, 0, False, body))
        for identity, (client, predicate) in self.subscriptions.items():
            if predicate.matches(event.attributes):
                self.driver.trace(
                    "deliver", {"event": event.identity, "subscription": identity, "hops": 1}
                )
                self.driver.reply(client, Delivered(0, (Delivery(identity, event, "", "", "", 1),)))

    def commands(self, client: int, commands: Sequence[Command]) -> None:
        for command in commands:
            self.command(client, command)

    def command(self, client: int, command: Command) -> None:
        if isinstance(command, Subscribe):
            self.sequence += 1
            identity = f"{self.me.id}.{self.incarnation}.s{self.sequence}"
            self.subscriptions[identity] = (client, compile_selector(command.selector))
            self.driver.reply(client, Subscribed(command.request, identity))
        elif isinstance(command, Unsubscribe):
            del self.subscriptions[command.subscription]
            self.driver.reply(client, Done(command.request))
        elif isinstance(command, Publish):
            events = []
            for draft in command.events:
                self.sequence += 1
                event = Event(
                    self.me.id, self.incarnation, self.sequence, draft.time, draft.attributes
                )
                events.append(event)
                self.driver.trace("publish", {"event": event.identity, "size": 0})
                self.take(event, -1)
            self.driver.reply(client, Published.of(command.request, events))
        elif isinstance(command, GetStatus):
            self.driver.reply(client, self.status(command.request))

    def status(self, request: int) -> Status:
        return Status(
            request, self.me.id, self.me.address, True, False, self.incarnation, "none", "", "",
            len(self.connections), len(self.connections), len(self.subscriptions), 0, 0, "flood",
            {}, {},
        )  # fmt: skip

    def client_gone(self, client: int, unread_for: float = 0.0) -> None:
        self.subscriptions = {
            identity: found for identity, found in self.subscriptions.items() if found[0] != client
        }

    def drain(self) -> None:
        self.drained = True

    def leave(self, reason: str) -> None:
        for connection in self.connections:
            self.driver.close(connection, reason)
