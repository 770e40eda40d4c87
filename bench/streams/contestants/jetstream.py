"""A stream of three NATS servers with file storage; each row is a message."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.streams.contestants.asking import AskingProgram, free_ports, once_ready
from bench.streams.contestants.contestant import LAZY, MAJORITY, PATIENCE, Servers, encoded_rows


class JetStream(AskingProgram):
    """With `sync_interval` "always", or as it is by default ("2m")."""

    config: Mapping[str, Any] = {}
    """What the stream is made with beside that."""

    def __init__(self, folder: Path, stack: ExitStack, sync: str) -> None:
        super().__init__(stack)
        self.durable = MAJORITY if sync == "always" else LAZY
        self.ports = free_ports(6)
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self.ports[3:])
        servers = Servers(stack)
        self.processes = servers.processes
        for number in range(3):
            data = folder / f"n{number}"
            data.mkdir(parents=True)
            (data / "conf").write_text(
                f'server_name: n{number}\nlisten: "127.0.0.1:{self.ports[number]}"\n'
                f'jetstream {{ store_dir: "{data}", sync_interval: "{sync}" }}\n'
                f'cluster {{ name: bench, listen: "127.0.0.1:{self.ports[3 + number]}", '
                f"routes: [{routes}] }}\n"
            )
            servers.start(["nats-server", "-c", str(data / "conf")], data / "log")
        self.rows = encoded_rows(4_096)
        self.stream = self.loop.run_until_complete(self._connect())
        stack.callback(lambda: self.loop.run_until_complete(self.client.close()))
        self.append(1, 1, 1.0)

    async def _connect(self) -> Any:
        import nats  # type: ignore[import-not-found, unused-ignore]

        async def quiet(error: Exception) -> None:
            """The servers are still starting."""

        where = f"nats://127.0.0.1:{self.ports[0]}"
        self.client = await nats.connect(where, max_reconnect_attempts=600, error_cb=quiet)
        asking = self.client.jetstream(timeout=1.0)

        async def added() -> None:
            await asking.add_stream(name="bench", subjects=["bench"], num_replicas=3, **self.config)
            await asking.publish("bench", self.rows[0])  # its leader is there

        await once_ready(added)
        return self.client.jetstream(timeout=PATIENCE, publish_async_max_pending=1 << 16)

    def reconnect(self) -> None:
        self.stream = self.loop.run_until_complete(self._connect())
        self.stack.callback(lambda: self.loop.run_until_complete(self.client.close()))

    def carry(self, body: bytes) -> None:
        self.rows = [body]

    def reader(self) -> tuple[str, ...]:
        return ("jetstream", f"nats://127.0.0.1:{self.ports[1]}")

    async def send(self, place: int, count: int) -> list[asyncio.Future[Any]]:
        """Publish each row."""
        return [
            await self.stream.publish_async("bench", self.rows[n % len(self.rows)])
            for n in range(place, place + count)
        ]
