"""Monitoring of a process: the HTTP listener of canopy/wire/admin, and the machine's service
manager."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from canopy.wire.addresses import is_loopback, join_address, split_address
from canopy.wire.constants import START_ROOM
from canopy.wire.durable import FolderError
from canopy.wire.folder import DataFolder
from canopy.wire.log import Log
from canopy.wire.process.listener import listen_at
from overlay.client import Status

if TYPE_CHECKING:
    from canopy.wire.admin.http import Checks
    from canopy.wire.admin.metrics import MetricFacts
    from canopy.wire.admin.turn_times import TurnTimes


# --- tells the service manager of the machine how the process is: sd_notify(3) of systemd ---
#
# The manager gives the process a datagram socket (``NOTIFY_SOCKET``) and, where the unit has
# ``WatchdogSec``, the time within which it wants to hear something (``WATCHDOG_USEC``). Without
# them nothing is sent.

WATCHDOG_SHARE: Final = 3
"""The number of notifications within the watchdog's time, so that a lost one does no harm."""

PATIENCE: Final = 0.1
"""Seconds to wait if the manager has not read earlier notifications; a heartbeat does not wait."""

BEAT: Final = "WATCHDOG=1"


class ServiceManager:
    """Notifies the service manager of the process's state. Failures are ignored."""

    def __init__(self, environment: Mapping[str, str], pid: int | None = None) -> None:
        """`environment`: the process's own."""
        self._address = environment.get("NOTIFY_SOCKET", "")
        meant = environment.get("WATCHDOG_PID", "")
        mine = not meant or meant == str(os.getpid() if pid is None else pid)
        microseconds = environment.get("WATCHDOG_USEC", "")
        self.watchdog = 0.0
        """Seconds within which the manager expects a notification; 0: it expects none."""
        if mine and microseconds.isdigit():
            self.watchdog = int(microseconds) / 1e6

    def ready(self, status: str) -> None:
        """Notify that the process serves: after its start, and after a reload."""
        self._send("READY=1", f"STATUS={status}")

    def status(self, text: str) -> None:
        """Send one line for `systemctl status`."""
        self._send(f"STATUS={text}")

    def alive(self) -> None:
        """Notify the watchdog that the event loop runs."""
        self._send(BEAT)

    def reloading(self) -> None:
        """Notify that the process reads its configuration again; `ready` must follow. The manager
        compares the time with its own (CLOCK_MONOTONIC) to see which request this answers."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1_000}")

    def stopping(self, reason: str) -> None:
        """Notify that the node leaves, and why."""
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


PULSE: Final = 1.0
"""Seconds between two heartbeats, which show that the event loop runs."""

STUCK: Final = 10.0
"""Seconds without a heartbeat after which /livez fails: several times the longest turn of a busy
node. Guess; to be measured by `longest_turn` of nodes under load."""


class Watched:
    """Serves monitoring. A port is opened, and a library loaded, only if configured."""

    def __init__(
        self,
        folder: DataFolder,
        turns: TurnTimes,
        log: Log,
        status: Callable[[], Status],
        expires: Callable[[], float],
    ) -> None:
        """`status` asks the node; `expires`: when the certificate expires (seconds since 1970), 0:
        there is none."""
        self._folder = folder
        self._turns = turns
        self._log = log
        self._status = status
        self._expires = expires
        self._beat = time.monotonic()
        self._nursery: trio.Nursery | None = None
        self._listening: trio.CancelScope | None = None
        self.manager = ServiceManager(os.environ)
        """The service manager, to be notified of the steps of the process's life."""

    async def run(self) -> None:
        """Send heartbeats until cancelled, also to the service manager if it expects them."""
        pause = PULSE
        if self.manager.watchdog:
            pause = min(pause, self.manager.watchdog / WATCHDOG_SHARE)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            while True:
                self._beat = time.monotonic()
                if self.manager.watchdog:
                    self.manager.alive()
                await trio.sleep(pause)

    # --- HTTP ---

    async def listen(self, address: str) -> None:
        """Serve at `address` ("HOST:PORT"; "": nowhere) from now on, instead of the former address.
        Raises StartError if the port cannot be opened; then nothing changes."""
        listeners: list[trio.SocketListener] = []
        if address:
            listeners = await listen_at("metrics.listen", address)
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None
        if not listeners:
            return
        self._listening = trio.CancelScope()
        assert self._nursery is not None, "run comes first"
        self._nursery.start_soon(self._serve, listeners, self._listening)
        at = join_address(*listeners[0].socket.getsockname()[:2])
        self._log.info("metrics", address=at, paths="/metrics,/livez,/readyz")
        if not is_loopback(split_address(address)[0]):
            self._log.info("metrics_open", reason="whoever reaches this port may ask; no TLS")

    async def _serve(self, listeners: list[trio.SocketListener], scope: trio.CancelScope) -> None:
        from canopy.wire.admin.http import AdminServer, HttpAnswer, Request, answer_checks
        from canopy.wire.admin.metrics import MetricsPage

        async def live(request: Request) -> HttpAnswer:
            return answer_checks("livez", self._live_checks(), request)

        async def ready(request: Request) -> HttpAnswer:
            return answer_checks("readyz", self._ready_checks(), request)

        page = MetricsPage(self._facts)
        routes = {"metrics": page.answer, "livez": live, "readyz": ready}
        with scope:
            try:
                await AdminServer(routes, self._log).serve(listeners)
            finally:
                for listener in listeners:
                    with trio.CancelScope(shield=True):
                        await listener.aclose()

    def _facts(self) -> MetricFacts:
        from canopy.wire.admin.metrics import MetricFacts

        return MetricFacts(
            self._status(),
            self._turns,
            package_version(),
            self._expires(),
            free_bytes(self._folder.path),
        )

    def _live_checks(self) -> Checks:
        late = time.monotonic() - self._beat

        def loop() -> str:
            return f"the event loop has stood still for {late:.0f} s" if late > STUCK else ""

        return {"event_loop": loop}

    def _ready_checks(self) -> Checks:
        status = self._status()
        return {
            "overlay": lambda: "" if status.ready else why_not_ready(status),
            "owner": lambda: OWNER_FAULTS.get(status.way, ""),
            "disk": self._disk,
            "certificate": self._certificate,
        }

    def _disk(self) -> str:
        try:
            self._folder.check()
        except FolderError as error:
            return str(error)
        if not os.access(self._folder.path, os.W_OK):
            return f"{self._folder.path} cannot be written to"
        if (free := free_bytes(self._folder.path)) < START_ROOM:
            return f"{free} bytes are free on the disk of {self._folder.path}"
        return ""

    def _certificate(self) -> str:
        expires = self._expires()
        late = time.time() - expires
        return f"it expired {late:.0f} s ago, and was not renewed" if expires and late > 0 else ""


OWNER_FAULTS: Final = {
    "": "no way to an owner of keys is known",
    "no lease": "this node leads its cluster, and no majority follows it",
    "primary silent": "the primary of this node's cluster is not reached",
}
"""The fault for each value of `Status.way`."""


def why_not_ready(status: Status) -> str:
    """Return in words why a node is not ready."""
    if status.draining:
        return "the node leaves"
    tried = ", ".join(f"{address}: {state}" for address, state in status.seeds.items())
    return f"the node looks for its way into the overlay ({tried or 'no peers are configured'})"


def free_bytes(path: Path) -> int:
    """Return how many bytes this user may still write on the disk of `path`; 0 if this is
    unknown."""
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def package_version() -> str:
    """Return the version of the installed package; "" if it runs from a source folder."""
    try:
        return version("canopy-overlay")
    except PackageNotFoundError:
        return ""
