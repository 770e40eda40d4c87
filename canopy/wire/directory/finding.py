"""What a node asks of the directory: others to join at, and where it is itself.

At the start the seeds are asked for the rest of the phone book, then for ``ring``: the addresses of
some cluster, told by its primary. Until the node has found its way this is repeated every
`SEEK_SOON`, afterwards every `SEEK` seconds, so that two halves of a split ring find each other
again; the own entries are told again then too, for they fade. What is found goes to the node as
further seeds, each address once, at most `FOUND_MOST`: a hint to dial, nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import trio

from canopy.wire.config import NodeConfig, split_address
from canopy.wire.directory.directory import Directory
from canopy.wire.driver import TrioDriver
from canopy.wire.log import Log
from overlay.machine import Peer

SEEK_SOON: Final = 2.0  # seconds between two questions of a node that is lost; wild guess
SEEK: Final = 60.0  # seconds, of one that is ready; wild guess
FOUND_MOST: Final = 64  # seeds are redialled for ever, so there must not be many; wild guess
RING: Final = "ring"


class Finding:
    """Connects the node to the directory. A directory that fails changes nothing here."""

    def __init__(self, driver: TrioDriver, config: NodeConfig, log: Log) -> None:
        self._driver = driver
        self._config = config
        self._log = log
        self._directory: Directory | None = None
        self._told: dict[str, tuple[str, ...]] = {}  # before the directory ran
        self._found: dict[str, None] = {}
        self._own = ""
        driver.publish = self.publish

    async def start(self, nursery: trio.Nursery, me: Peer) -> None:
        """Begin to listen, on the UDP port of the node's own number, and to seek."""
        self._own = me.address
        self._directory = Directory(self._config.overlay, me.id, self._log)
        host, port = split_address(me.address)
        self.publish(f"node:{me.id}", (me.address,))
        self._directory.start(host, port, self._running)
        nursery.start_soon(self._seek)

    def stop(self) -> None:
        """End the directory's thread."""
        if self._directory is not None:
            self._directory.stop()

    def publish(self, name: str, addresses: tuple[str, ...]) -> None:
        """From the node: where something is."""
        self._told[name] = addresses
        if self._directory is not None and self._directory.running:
            self._directory.put(name, addresses)

    def _running(self) -> None:
        self._log.debug("directory", address=self._own)
        self._join()

    def _join(self) -> None:
        """Meet the others first, so that what is put and asked goes to them."""
        if self._directory is not None:
            self._directory.join(self._config.peers, self._joined)

    def _joined(self) -> None:
        assert self._directory is not None
        for name, addresses in self._told.items():
            self._directory.put(name, addresses)
        self._ask()

    def _ask(self) -> None:
        if self._directory is not None:
            self._directory.get(RING, self._take)

    def _take(self, addresses: Sequence[str]) -> None:
        known = (*self._found, *self._config.peers, self._own)
        fresh = [address for address in dict.fromkeys(addresses) if address not in known]
        fresh = fresh[: FOUND_MOST - len(self._found)]
        if fresh:
            self._found.update(dict.fromkeys(fresh))
            self._log.debug("found", addresses=",".join(fresh))
            self._driver.turn(self._driver.node.add_seeds, fresh)

    async def _seek(self) -> None:
        while True:
            await trio.sleep(SEEK if self._driver.node.ready else SEEK_SOON)
            if self._directory is not None and self._directory.running:
                self._join()
