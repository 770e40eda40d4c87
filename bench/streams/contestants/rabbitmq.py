"""A quorum queue, or a stream, of three RabbitMQ servers; each row is a message.

Quorum queues sync their log before they confirm. Streams never sync by themselves: a confirmed row
is in the memory of a majority of the machines.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench.streams.contestants.asking import AskingProgram, free_ports, once_ready
from bench.streams.contestants.contestant import LAZY, MAJORITY, PATIENCE, Servers, encoded_rows

SERVER: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""As Debian has it; the one in the path changes to a user of its own."""

KINDS: Final[dict[str, dict[str, Any]]] = {
    "quorum": {"x-queue-type": "quorum", "x-quorum-initial-group-size": 3},
    "stream": {"x-queue-type": "stream", "x-initial-cluster-size": 3},
}


class RabbitMQ(AskingProgram):
    """Published to over AMQP, with confirms."""

    plugins = ""
    """Those that the servers run."""

    def __init__(self, folder: Path, stack: ExitStack, kind: str) -> None:
        super().__init__(stack)
        self.durable = MAJORITY if kind == "quorum" else LAZY
        self.kind = kind
        ports = free_ports(10)
        self.stream_ports = ports[7:]
        self.ports = ports[:3]
        folder.mkdir(parents=True)
        (folder / "plugins").write_text(f"[{self.plugins}].\n")
        (folder / ".erlang.cookie").write_text("canopybench")
        (folder / ".erlang.cookie").chmod(0o400)
        servers = Servers(stack)
        self.processes = servers.processes
        servers.start(["epmd", "-port", str(ports[6])], folder / "epmd")
        members = "".join(
            f"cluster_formation.classic_config.nodes.{n + 1} = bench{n}@localhost\n"
            for n in range(3)
        )
        for number in range(3):
            config = folder / f"n{number}.conf"
            config.write_text(
                f"listeners.tcp.1 = 127.0.0.1:{ports[number]}\n"
                f"cluster_formation.peer_discovery_backend = classic_config\n{members}"
                f"{self.settings(number)}"
            )
            data = str(folder / f"n{number}")
            environment = {
                **os.environ,
                "HOME": str(folder),
                "ERL_EPMD_PORT": str(ports[6]),
                "RABBITMQ_NODENAME": f"bench{number}@localhost",
                "RABBITMQ_DIST_PORT": str(ports[3 + number]),
                "RABBITMQ_CONFIG_FILE": str(config.with_suffix("")),
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
                "RABBITMQ_MNESIA_BASE": data,
                "RABBITMQ_LOG_BASE": data,
                "RABBITMQ_PID_FILE": f"{data}.pid",
            }
            servers.start([str(SERVER)], folder / f"log{number}", environment)
            self._environment = environment
        self.rows = encoded_rows(4_096)
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self.number = self.confirmed = 0
        self.loop.run_until_complete(self._connect(ports[0]))
        stack.callback(self._close)
        self.append(1, 1, 1.0)

    async def _connect(self, port: int) -> None:
        control = [str(SERVER.with_name("rabbitmqctl")), "-n", "bench0@localhost"]
        all_there = [*control, "await_online_nodes", "3", "--timeout", "60"]

        async def opened() -> None:
            (await asyncio.open_connection("127.0.0.1", port))[1].close()
            subprocess.run(all_there, env=self._environment, check=True, capture_output=True)
            await self._open(port)

        await once_ready(opened, (OSError, RuntimeError), 2 * PATIENCE)

    def reconnect(self) -> None:
        self.waiting, self.number, self.confirmed = {}, 0, 0
        self.loop.run_until_complete(self._open(self.ports[0]))
        self.stack.callback(self._begin_close)

    def carry(self, body: bytes) -> None:
        self.rows = [body]

    def reader(self) -> tuple[str, ...]:
        return ("rabbitmq", str(self.ports[1]), self.kind)

    def settings(self, number: int) -> str:
        """What else is in a server's configuration."""
        return ""

    async def _open(self, port: int) -> None:
        self.channel = await self._channel(port)

    async def _channel(self, port: int) -> Any:
        import pika  # type: ignore[import-not-found, import-untyped, unused-ignore]
        from pika.adapters import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
            asyncio_connection,
        )

        self.properties = pika.BasicProperties(delivery_mode=2)
        ready: asyncio.Future[Any] = self.loop.create_future()

        def failed(where: Any, error: Any) -> None:
            if not ready.done():
                ready.set_exception(RuntimeError(str(error)))

        def opened(channel: Any) -> None:
            channel.add_on_close_callback(failed)
            channel.queue_declare(
                "bench",
                durable=True,
                arguments=KINDS[self.kind],
                callback=lambda _: channel.confirm_delivery(
                    self._confirmed, callback=lambda _: ready.set_result(channel)
                ),
            )

        self.connection = asyncio_connection.AsyncioConnection(
            pika.ConnectionParameters("127.0.0.1", port, heartbeat=0),
            on_open_callback=lambda connection: connection.channel(on_open_callback=opened),
            on_open_error_callback=failed,
            custom_ioloop=self.loop,
        )
        return await ready

    def _begin_close(self) -> None:
        """Close the connection of one program of several; `_close`, of the first one, follows."""
        self.connection.close()

    def _close(self) -> None:
        self.connection.close()
        self.loop.run_until_complete(asyncio.sleep(0.2))

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        assert method.NAME == "Basic.Ack", method
        first = self.confirmed + 1 if method.multiple else method.delivery_tag
        for number in range(first, method.delivery_tag + 1):
            if one := self.waiting.pop(number, None):
                one.set_result(None)
        if method.multiple:
            self.confirmed = method.delivery_tag

    async def send(self, place: int, count: int) -> list[asyncio.Future[Any]]:
        """Publish each row."""
        found = []
        for n in range(place, place + count):
            row = self.rows[n % len(self.rows)]
            self.channel.basic_publish("", "bench", row, self.properties)
            self.number += 1
            one = self.waiting[self.number] = self.loop.create_future()
            found.append(one)
        await asyncio.sleep(0)
        return found
