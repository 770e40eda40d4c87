"""A node's lookups and announcements in the directory (T5).

At the start the directory joins those of the seeds, then looks up ``ring``: the addresses of some
cluster, announced by its primary. That is the only entry: a node that seeks another node has its
address from the view, a link or a cluster's description. Until the node is ready the lookup is
repeated every `SEEK_SOON` seconds, afterwards every `SEEK` seconds, so that two halves of a split
ring find each other; the node's own entries are then announced again, since they expire. Found
addresses become further seeds of the node; they are only dialled. Of more than `FOUND_MOST` the
ones that the directory named longest ago are dialled no more.
If nodes have keys, a primary announces its own address, which it signs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import trio

from canopy.wire.addresses import is_loopback, split_address
from canopy.wire.config import NodeConfig
from canopy.wire.constants import FOUND_MOST, SEEK, SEEK_SOON
from canopy.wire.directory.directory import Directory
from canopy.wire.driver import TrioDriver
from canopy.wire.log import Log
from overlay.machine import Peer
from overlay.rights import Role

if TYPE_CHECKING:
    from canopy.wire.process.security import NodeSecurity

RING: Final = "ring"  # the entry with the addresses of some cluster


class Discovery:
    """Connects the node to the directory. If the directory fails, the node runs without one."""

    def __init__(
        self,
        driver: TrioDriver,
        config: NodeConfig,
        log: Log,
        peers: Sequence[str] | None = None,
        security: NodeSecurity | None = None,
    ) -> None:
        """`peers`: the nodes to join at, if not the configured ones. `security`: the node's keys;
        None: it has none."""
        self._driver = driver
        self._overlay = config.overlay
        self._peers = tuple(config.peers if peers is None else peers)
        self._security = security
        self._log = log
        self._directory: Directory | None = None
        self._announced: dict[
            str, tuple[str, ...]
        ] = {}  # kept until the directory runs, and to repeat
        self._found: dict[str, None] = {}  # the one named last is the last
        self._own = ""

    async def start(
        self, nursery: trio.Nursery, me: Peer, bound: tuple[str, int] | None = None
    ) -> None:
        """Start the directory on the UDP port with the node's TCP port number, and look up.
        `bound`: where the node listens, if others reach it under another address.

        Without keys there is no directory if other machines reach the node: nothing in it would be
        signed, and datagrams can have forged sources. Nor has a leaf one, since leaves do no work
        for others.
        """
        security = self._security
        host, port = bound if bound and security else split_address(me.address)
        if security is None and not is_loopback(host):
            self._log.debug(
                "directory_off", reason=f"{host} is not loopback, and there are no keys"
            )
            return
        if security is not None and security.own.principal.role is Role.LEAF:
            self._log.debug("directory_off", reason="this node is a leaf")
            return
        keys = None if security is None else security.directory_keys()
        self._own = me.address
        self._directory = Directory(self._overlay, me.id, self._log, keys)
        self._directory.start(host, port, self._running)
        nursery.start_soon(self._seek)

    def stop(self) -> None:
        """End the directory's thread, if there is a directory. Announcements and lookups end with
        it."""
        if self._directory is not None:
            self._directory.stop()

    def publish(self, name: str, addresses: tuple[str, ...]) -> None:
        """Announce the addresses at which `name` is reached."""
        self._announced[name] = addresses
        if self._directory is not None and self._directory.running:
            self._put(name, addresses)

    def _put(self, name: str, addresses: tuple[str, ...]) -> None:
        """Announce addresses. If nodes have keys, a node signs and announces only its own
        address."""
        assert self._directory is not None
        self._directory.put(name, addresses if self._security is None else (self._own,))

    def _running(self) -> None:
        self._log.debug("directory", address=self._own)
        self._join()

    def _join(self) -> None:
        """Join the other directories, so that entries and lookups go to them."""
        if self._directory is not None:
            self._directory.join(self._peers, self._joined)

    def _joined(self) -> None:
        for name, addresses in self._announced.items():
            self._put(name, addresses)
        self._ask()

    def _ask(self) -> None:
        if self._directory is not None:
            self._directory.get(RING, self._take)

    def _take(self, addresses: Sequence[str]) -> None:
        there = [each for each in dict.fromkeys(addresses) if each not in (*self._peers, self._own)]
        there = there[:FOUND_MOST]
        fresh = [address for address in there if address not in self._found]
        for address in there:
            self._found.pop(address, None)
            self._found[address] = None
        gone = list(self._found)[:-FOUND_MOST]
        for address in gone:
            del self._found[address]
        if fresh:
            self._log.debug("found", addresses=",".join(fresh))
            self._driver.turn(self._driver.node.add_seeds, fresh, gone)

    async def _seek(self) -> None:
        while True:
            await trio.sleep(SEEK if self._driver.node.ready else SEEK_SOON)
            if self._directory is not None and self._directory.running:
                self._join()
