"""Real nodes as processes on loopback, and clients of them, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from canopy.client.blocking import ControlClient
from canopy.client.errors import UnreachableError
from overlay.client import GetStatus, Status

ROOT = Path(__file__).parents[1]
PATIENCE = 40.0
"""Seconds that a test waits for something: far more than it takes on a busy machine."""


class Overlay:
    """Some node processes and a client of each."""

    def __init__(self, folder: Path, config: str = "", patience: float = PATIENCE) -> None:
        """`config`: what stands in every node's configuration; `patience`: seconds for a process to
        answer."""
        self.folder = folder
        self.config = folder / "config.yaml"
        self.config.write_text(config)
        self.patience = patience
        self.processes: list[subprocess.Popen[bytes]] = []
        self.clients: list[ControlClient] = []
        self.addresses: list[str] = []

    def start(self, *peers: str) -> ControlClient:
        """One more node; its client."""
        number = len(self.processes)
        self.processes.append(self._process(number, "127.0.0.1:0", peers))
        self.clients.append(self._client(number))
        self.addresses.append(status(self.clients[-1]).address)
        return self.clients[-1]

    def grow(self, count: int) -> ControlClient:
        """So many nodes, ready, which the first founds; its client."""
        for number in range(count):
            self.start(*self.addresses[:1] if number else ())
        wait_ready(*self.clients, patience=self.patience)
        return self.clients[0]

    def kill(self, *numbers: int) -> None:
        """kill -9 of these at once."""
        for number in numbers:
            self.processes[number].kill()
        for number in numbers:
            self.processes[number].wait()
            self.clients[number].close()

    def restart(self, *numbers: int) -> None:
        """Start killed nodes again at once, each at its address with all others as peers, and wait
        until they answer."""
        for number in numbers:
            others = [each for n, each in enumerate(self.addresses) if n != number]
            self.start_again(number, self.addresses[number], *others)
        for number in numbers:
            self.client_again(number)

    def start_again(self, number: int, address: str, *peers: str) -> None:
        """With the same data folder, at the same address; `client_again` follows."""
        self.processes[number] = self._process(number, address, peers)

    def client_again(self, number: int) -> ControlClient:
        """A new client of a node that was started again."""
        self.clients[number] = self._client(number)
        return self.clients[number]

    def _process(
        self,
        number: int,
        address: str,
        peers: tuple[str, ...],
        advertise: str = "",
        before: Sequence[str] = (),
    ) -> subprocess.Popen[bytes]:
        data = self.folder / str(number)
        arguments = ["--listen", address, "--data", str(data), "--log", "debug"]
        arguments += ["--config", str(self.config)]
        for peer in peers:
            arguments += ["--peer", peer]
        environment = {**os.environ, "CANOPY_ADVERTISE": advertise} if advertise else None
        command = [*before, sys.executable, "node.py", *arguments]
        with (self.folder / f"{number}.log").open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, stderr=log, env=environment)

    def _client(self, number: int) -> ControlClient:
        until = time.monotonic() + self.patience
        while True:
            try:
                return ControlClient.connect(self.folder / str(number))
            except UnreachableError:
                assert self.processes[number].poll() is None, self.log(number)
                assert time.monotonic() < until, self.log(number)
                time.sleep(0.02)

    def log(self, number: int) -> str:
        number = range(len(self.processes))[number]
        return (self.folder / f"{number}.log").read_text()

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        for process in self.processes:
            process.kill()
            process.wait()


def status(client: ControlClient) -> Status:
    return client.ask(GetStatus(0), Status)


def wait_ready(*clients: ControlClient, patience: float = PATIENCE) -> None:
    until = time.monotonic() + patience
    while not all(status(client).ready for client in clients):
        assert time.monotonic() < until
        time.sleep(0.02)


def delivered(client: ControlClient, count: int) -> list[str]:
    """The ids of the next `count` deliveries."""
    found: list[str] = []
    while len(found) < count:
        news = client.deliveries(PATIENCE)
        assert news, f"{len(found)} of {count} came"
        found += [str(one.event.attributes["id"]) for one in news]
    return found
