"""Tells the service manager of the machine how the process is: sd_notify(3) of systemd.

The manager gives the process a datagram socket (``NOTIFY_SOCKET``) and, where the unit has
``WatchdogSec``, the time within which it wants to hear something (``WATCHDOG_USEC``). Without them
nothing is sent.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from typing import Final

WATCHDOG_SHARE: Final = 3
"""How often it is told within the watchdog's time: one that is lost does no harm."""

PATIENCE: Final = 0.1
"""Seconds to wait where the manager has not read what it was told before; a beat does not wait."""

BEAT: Final = "WATCHDOG=1"


class ServiceManager:
    """Sends states, and never fails."""

    def __init__(self, environment: Mapping[str, str], pid: int | None = None) -> None:
        """`environment`: the process's own."""
        self._address = environment.get("NOTIFY_SOCKET", "")
        meant = environment.get("WATCHDOG_PID", "")
        mine = not meant or meant == str(os.getpid() if pid is None else pid)
        microseconds = environment.get("WATCHDOG_USEC", "")
        self.watchdog = 0.0
        """Seconds within which the manager wants to hear of the process; 0: it does not."""
        if mine and microseconds.isdigit():
            self.watchdog = int(microseconds) / 1e6

    @property
    def is_there(self) -> bool:
        """Whether somebody wants to be told."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        """The process serves (after its start, and after it has reloaded)."""
        self._send("READY=1", f"STATUS={status}")

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self._send(f"STATUS={text}")

    def alive(self) -> None:
        """The event loop turns."""
        self._send(BEAT)

    def reloading(self) -> None:
        """It reads its configuration again; `ready` follows. The manager compares the time with its
        own (CLOCK_MONOTONIC), to know which request this answers."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1_000}")

    def stopping(self, reason: str) -> None:
        """Tell the service manager that the node leaves, and why."""
        self._send("STOPPING=1", f"STATUS=leaving: {reason}")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        text = "\n".join(line.replace("\n", " ") for line in lines)
        address = self._address
        if address.startswith("@"):  # of Linux's abstract name space
            address = "\0" + address[1:]
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out,
        ):
            out.settimeout(0.0 if lines == (BEAT,) else PATIENCE)
            out.sendto(text.encode(), address)
