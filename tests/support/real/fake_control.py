"""A control socket with a scripted node behind it, for tests of the command line.

`answer` maps a command to the replies it gets; every command is kept in `commands`.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from canopy.wire.transport.framing import COMMAND_FRAMES, REPLY_FRAMES, FrameReader
from overlay.client import Command, OpenSession, Reply, SessionOpened

Answer = Callable[[Command], Iterable[Reply]]


class FakeControl:
    """A context manager; `data` is the data folder to connect to."""

    def __init__(self, data: Path, answer: Answer) -> None:
        self.data = data
        self.commands: list[Command] = []
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._clients: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> FakeControl:
        self.data.mkdir(parents=True, exist_ok=True)
        self._socket.bind(str(self.data / "control.sock"))
        self._socket.listen()
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.hang_up()
        for thread in self._threads:
            thread.join()

    def hang_up(self) -> None:
        """Close all connections, as a node that dies does."""
        for client in self._clients:
            try:
                client.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def _spawn(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args)
        thread.start()
        self._threads.append(thread)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            self._clients.append(client)
            self._spawn(self._serve, client)

    def _replies(self, command: Command) -> Iterable[Reply]:
        """The script's, but that it keeps no sessions."""
        if isinstance(command, OpenSession):
            return [SessionOpened(command.request, "", 0.0)]
        self.commands.append(command)
        return self._answer(command)

    def _serve(self, client: socket.socket) -> None:
        reader = FrameReader(COMMAND_FRAMES)
        with client:
            while True:
                try:
                    data = client.recv(1 << 16)
                    if not data:
                        return
                    for command in reader.feed(data):
                        for reply in self._replies(command):
                            client.sendall(REPLY_FRAMES.encode(reply))
                except OSError:
                    return
