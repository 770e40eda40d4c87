"""A node without an overlay, for tests of canopy/wire/: what is published here is delivered here.

It records every input that the driver gives it, so that tests see what reached it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from overlay.client import (
    Command,
    Delivered,
    Delivery,
    Done,
    Event,
    Failed,
    GetStatus,
    Publish,
    Published,
    Reply,
    ResumeSession,
    SessionResumed,
    Status,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from overlay.driver import Vitals
from overlay.health import HealthReport
from overlay.info import SubscriptionInfo
from overlay.links.events import IdentityConflict
from overlay.links.messages import Frame
from overlay.machine import LocalEvent
from overlay.rights import Principal


class NoOutputs:
    """Discards everything: the outputs of a node without programs and directory."""

    def reply(self, client: int, reply: Reply) -> None: ...
    def share(self, events: Sequence[Event], places: Mapping[int, Sequence[int]]) -> None: ...
    def announce(self, name: str, addresses: tuple[str, ...]) -> None: ...
    def check_turn(self) -> None: ...
    def end_turn(self) -> None: ...
    def silence(self) -> None: ...


class EchoNode:
    """Delivers every event to every subscription. `hold` keeps publishes unanswered."""

    def __init__(self, driver: Any, node: str = "00000000000000aa", address: str = "") -> None:
        self.driver = driver
        self.node = node
        self.address = address
        self.ready = False
        self.neighbours = 1
        self.unreached: dict[str, str] = {}
        self.drained = False
        self.conflict: IdentityConflict | None = None
        self.hold = False
        self.held: list[tuple[int, Publish]] = []
        self.inputs: list[tuple[Any, ...]] = []
        self.frames: list[Frame] = []
        self.judged: list[dict[str, float]] = []
        self.alarm: float | None = None
        self.drains = True
        self.seeds: list[str] = []
        self.on_frame: Callable[[int, Frame], None] = lambda connection, frame: None
        self.subscriptions: dict[str, int] = {}
        self.sequence = 0

    def start(self) -> None:
        self.inputs.append(("start",))
        self.ready = True

    def judge_health(self, measured: Mapping[str, float]) -> None:
        self.judged.append(dict(measured))

    def vitals(self) -> Vitals:
        return Vitals(queue=len(self.held), late_ms=2.5, round_trip_ms=0.0, resent=0, links=1)

    def update_health(self, report: HealthReport) -> None:
        self.inputs.append(("health", report))

    def on_opened(self, connection: int, principal: Principal | None = None) -> None:
        self.inputs.append(("opened", connection, *([] if principal is None else [principal])))

    def on_accepted(self, connection: int, principal: Principal | None = None) -> None:
        self.inputs.append(("accepted", connection, *([] if principal is None else [principal])))

    def on_documents(self) -> None:
        self.inputs.append(("revocations",))

    def on_frames(self, connection: int, frames: list[Frame]) -> None:
        self.inputs.append(("frames", connection, len(frames)))
        self.frames += frames
        for frame in frames:
            self.on_frame(connection, frame)

    def on_closed(self, connection: int, reason: str) -> None:
        self.inputs.append(("closed", connection, reason))

    def on_garbage(self, connection: int, reason: str) -> None:
        self.inputs.append(("garbage", connection, reason))

    def on_disk(self, events: Sequence[LocalEvent]) -> None:
        self.inputs.append(("disk", *events))

    def on_stored(self, ticket: int) -> None:
        self.inputs.append(("stored", ticket))

    def leave(self, reason: str) -> None:
        self.inputs.append(("leave", reason))

    def on_tick(self) -> None:
        self.inputs.append(("tick",))
        self.alarm = None

    def deadline(self) -> float | None:
        return self.alarm

    def drain(self) -> None:
        self.inputs.append(("drain",))
        self.drained = self.drains

    @property
    def numbered(self) -> dict[str, int]:
        return {"published": 0, "subscribed": 0}

    @property
    def unfinished(self) -> dict[str, int]:
        return {} if self.drained else {"events": 3}

    def add_seeds(self, addresses: Sequence[str], instead_of: Sequence[str] = ()) -> None:
        self.seeds = [seed for seed in self.seeds if seed not in instead_of] + [*addresses]

    def client_gone(self, client: int, unread_for: float = 0.0) -> None:
        self.inputs.append(("gone", client, unread_for))
        self.subscriptions = {s: c for s, c in self.subscriptions.items() if c != client}

    def commands(self, client: int, commands: Sequence[Command]) -> None:
        for command in commands:
            self.command(client, command)

    def command(self, client: int, command: Command) -> None:
        request = command.request
        if isinstance(command, Subscribe):
            name = f"s{len(self.subscriptions)}"
            self.subscriptions[name] = client
            self.driver.reply(client, Subscribed(request, name))
        elif isinstance(command, Unsubscribe):
            self.subscriptions.pop(command.subscription, None)
            self.driver.reply(client, Done(request))
        elif isinstance(command, Publish):
            if self.hold:
                self.held.append((client, command))
            else:
                self.publish(client, command)
        elif isinstance(command, ResumeSession):
            infos = [
                SubscriptionInfo(name, "", "", True, 0, (), client)
                for name, subscriber in self.subscriptions.items()
                if subscriber == client
            ]
            self.driver.reply(client, SessionResumed(request, tuple(infos)))
        elif isinstance(command, GetStatus):
            self.driver.reply(client, self.status(request))
        else:
            self.driver.reply(client, Failed(request, "usage", "an echo node knows no overlay"))

    def release(self) -> None:
        self.hold = False
        held, self.held = self.held, []
        for client, command in held:
            self.publish(client, command)

    def publish(self, client: int, command: Publish) -> None:
        events = []
        for draft in command.events:
            self.sequence += 1
            events.append(
                Event(
                    self.node, 1, self.sequence, draft.time, draft.attributes, draft.payload,
                    draft.payload_type,
                )
            )  # fmt: skip
        for event in events:
            for subscription, subscriber in self.subscriptions.items():
                found = Delivery(subscription, event, "type", "-", "+", 0)
                self.driver.reply(subscriber, Delivered(0, (found,)))
        self.driver.reply(client, Published.of(command.request, events))

    def status(self, request: int) -> Status:
        return Status(
            request, self.node, self.address, self.ready, False, 1, "none", "", "", 0, 0,
            len(self.subscriptions), 0, 0, "pivot", {}, {"data_messages": 7},
        )  # fmt: skip
