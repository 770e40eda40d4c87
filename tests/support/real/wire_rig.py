"""A driver with an `EchoNode` and a control socket in this process, for tests of wire/."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio
import trio.testing

from canopy.wire.config import ClientConfig
from canopy.wire.control.server import ControlServer
from canopy.wire.driver import TrioDriver
from canopy.wire.folder import DataFolder
from canopy.wire.log import Log
from canopy.wire.transport.local_users import LocalUsers
from canopy.wire.transport.tls import Doorkeeper
from overlay.client import Command, Event, Reply
from tests.support.real.echo_node import EchoNode

PATIENCE = 20.0  # seconds after which a test that waits has failed

DEFAULTS = ClientConfig()


class Rig:
    """Driver, node, control socket and log of one node under test."""

    def __init__(
        self, driver: TrioDriver, node: EchoNode, log: io.StringIO, clients: ClientConfig
    ) -> None:
        self.time = 100.0
        """The clock of the control server's parked sessions."""
        self.driver = driver
        self.node = node
        self.log = log
        self.control = ControlServer(
            driver.trace,
            self.commands,
            self.client_gone,
            Log("debug", log),
            clients,
            lambda: 1_000.0,
            lambda: self.time,
        )
        self.address = ""
        self.path = Path()
        self.streams: list[trio.SocketStream] = []
        self.nursery: trio.Nursery

    def commands(self, client: int, commands: Sequence[Command]) -> None:
        self.driver.turn(self.node.commands, client, commands)

    def client_gone(self, client: int, unread_for: float = 0.0) -> None:
        self.driver.turn(self.node.client_gone, client, unread_for)

    def reply(self, client: int, reply: Reply) -> None:
        self.control.reply(client, reply)

    def share(self, events: Sequence[Event], places: Mapping[int, Sequence[int]]) -> None:
        self.control.share(events, places)

    def announce(self, name: str, addresses: tuple[str, ...]) -> None: ...

    def check_turn(self) -> None: ...

    def end_turn(self) -> None:
        self.control.flush()

    def silence(self) -> None:
        self.control.silence()

    async def dial(self) -> trio.SocketStream:
        """A raw connection to the node's port; closed at the end of the test."""
        host, port = self.address.split(":")
        stream = await trio.open_tcp_stream(host, int(port))
        self.streams.append(stream)
        return stream

    async def advance(self, seconds: float) -> None:
        """Let so many seconds pass for parked sessions."""
        self.time += seconds
        self.control._parked_changed.set()
        await trio.testing.wait_all_tasks_blocked(0.01)

    async def has(self, *start: object) -> tuple[object, ...]:
        """Wait for an input of the node that begins so."""
        with trio.fail_after(PATIENCE):
            while True:
                for found in self.node.inputs:
                    if found[: len(start)] == start:
                        return found
                await trio.sleep(0.005)


@asynccontextmanager
async def rig(
    folder: DataFolder | None = None,
    socket: Path | None = None,
    clients: ClientConfig = DEFAULTS,
    security: Doorkeeper | None = None,
    connect_timeout: float = 2.0,
    users: LocalUsers | None = None,
) -> AsyncIterator[Rig]:
    """A running rig; `socket` is where its control socket lies, if it has one, and `clients` its
    settings, for sessions by the rig's clock; `security`: its keys; `users`: whose programs it
    hears."""
    log = io.StringIO()
    driver = TrioDriver(
        Log("debug", log),
        folder,
        connect_timeout=connect_timeout,
        security=security,
        users=users,
    )
    node = EchoNode(driver)
    made = Rig(driver, node, log, clients)
    driver.attach(node, made)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    made.address = f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
    async with trio.open_nursery() as nursery:
        made.nursery = nursery
        await nursery.start(driver.run, listeners)
        if socket is not None:
            made.path = socket
            await nursery.start(made.control.serve, socket)
        try:
            yield made
        finally:
            for stream in made.streams:
                await trio.aclose_forcefully(stream)
        nursery.cancel_scope.cancel()
