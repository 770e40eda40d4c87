"""Network namespaces joined by a bridge, so that real nodes lose real packets.

Needs root and `ip` (iproute2) on a kernel with namespaces and veth; `reason_against` says what is
missing. Everything lives in namespaces of its own: the machine's network is left alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from types import TracebackType


def ip(*arguments: str) -> None:
    """Run `ip`; raises subprocess.CalledProcessError."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=10)


def reason_against() -> str:
    """Why there can be no namespaces here; "" if there can."""
    if shutil.which("ip") is None:
        return "there is no `ip` (iproute2) on this machine"
    try:
        with Namespaces(1):
            return ""
    except subprocess.SubprocessError as error:
        return f"no network namespaces: {getattr(error, 'stderr', None) or error}"


class Namespaces:
    """So many namespaces, each with one address in 10.77.0.0/24. A context manager."""

    def __init__(self, count: int) -> None:
        self.hub = f"canopy{os.getpid()}"
        self.names = [f"{self.hub}n{number}" for number in range(count)]
        self._made: list[str] = []

    def __enter__(self) -> Namespaces:
        try:
            self._make()
        except subprocess.SubprocessError:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def address(self, number: int) -> str:
        """Of the namespace `number`."""
        return f"10.77.0.{number + 1}"

    def command(self, number: int) -> list[str]:
        """What to put before a command that is to run there."""
        return ["ip", "netns", "exec", self.names[number]]

    def cut(self, number: int) -> None:
        """Packets from and to this namespace vanish from now on, without an error anywhere."""
        ip("-n", self.hub, "link", "set", f"v{number}", "down")

    def join(self, number: int) -> None:
        """Let packets between these nodes pass again."""
        ip("-n", self.hub, "link", "set", f"v{number}", "up")

    def _make(self) -> None:
        for name in (self.hub, *self.names):
            ip("netns", "add", name)
            self._made.append(name)
        ip("-n", self.hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.hub, "link", "set", "bridge", "up")
        for number, name in enumerate(self.names):
            far = f"v{number}"
            ip("-n", self.hub, "link", "add", far, "type", "veth", "peer", "eth0", "netns", name)
            ip("-n", self.hub, "link", "set", far, "master", "bridge")
            ip("-n", self.hub, "link", "set", far, "up")
            ip("-n", name, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")

    def _remove(self) -> None:
        for name in self._made:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=10)
        self._made.clear()
