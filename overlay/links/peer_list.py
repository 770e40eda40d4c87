"""The peer list: addresses that are dialled until a node there is connected, and again whenever
none is, for ever, so that a healed partition merges (C1).

The one exception is an address that turns out to be this node's own. A seed whose link was
suspended for want of use was alive then, so that there is no hurry (`constants.SEED_RECHECK`) until
any session ends: then something happened, and the seed may be on the other side of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from overlay.links.connections import ConnectionTable, Seed
from overlay.links.constants import MAX_SEEDS, SEED_RECHECK
from overlay.links.deadlines import DeadlineQueue
from overlay.links.events import LinkContext, SeedFailed, SeedReached
from overlay.links.session import backoff
from overlay.links.session_table import SessionTable
from overlay.machine import NodeId, Peer


@dataclass(eq=False)
class PeerList:
    """All addresses of the peer list."""

    _node: LinkContext
    _retry_most: float  # the longest back-off in seconds (``view.seed_retry_most``)
    _deadlines: DeadlineQueue
    _connections: ConnectionTable
    _sessions: SessionTable

    def __post_init__(self) -> None:
        self._seeds: dict[str, Seed] = {}
        self._is_stopped = False

    def __len__(self) -> int:
        return len(self._seeds)

    def add(self, address: str) -> None:
        """Dial `address` now, and whenever no node there is connected. Ignored if it is known, this
        node's own, or one too many."""
        if self._is_stopped or address in self._seeds or len(self._seeds) >= MAX_SEEDS:
            return
        if address == self._node.me.address:
            return
        seed = self._seeds[address] = Seed(address)
        self.on_deadline(seed)

    def remove(self, address: str) -> None:
        """Dial `address` no more; a dial that is under way is not repeated."""
        if (seed := self._seeds.pop(address, None)) is not None:
            self._deadlines.cancel(seed)

    def on_deadline(self, seed: Seed) -> None:
        """Dial it, unless a node of that address is connected already."""
        if not seed.is_sought:
            return
        peer = self._sessions.connected_at(seed.address)
        if peer is not None:
            self._reached(seed, peer)
            return
        self._connections.dial(seed.address).attach_seed(seed)

    def failed(self, seed: Seed, reason: str) -> None:
        """Report the failed dial of an address (`SeedFailed`), and dial again after a pause."""
        if self._seeds.get(seed.address) is seed:
            self._node.emit(SeedFailed(seed.address, reason))
            self._retry(seed)

    def remove_own(self, seed: Seed) -> None:
        """Remove an address that turned out to be this node's own."""
        self.remove(seed.address)
        self._node.emit(SeedFailed(seed.address, "it is this node's own address"))

    def connected(self, peer: Peer) -> None:
        """Note that the seeds that lead to `peer`, which is connected, are reached."""
        for seed in self._seeds.values():
            if not seed.is_reached and seed.leads_to(peer):
                self._reached(seed, peer)

    def session_suspended(self, peer: NodeId) -> None:
        """Check the seeds of `peer`, whose idle link was suspended, again after `SEED_RECHECK`
        seconds."""
        for seed in self._seeds.values():
            if seed.peer == peer and not seed.is_dialled:
                seed.lost()
                self._recheck_within(seed, SEED_RECHECK)

    def something_failed(self) -> None:
        """Check the seeds that were left alone, because some session ended."""
        for seed in self._seeds.values():
            if seed.is_sought:
                self._recheck_within(seed, self._retry_most)

    def session_closed(self, peer: NodeId) -> None:
        """Dial the seeds that led to `peer`, whose session ended."""
        for seed in self._seeds.values():
            if seed.peer == peer and not seed.is_dialled:
                self._retry(seed)

    def stop(self) -> None:
        """Dial no address of the list from now on."""
        self._is_stopped = True
        for seed in self._seeds.values():
            self._deadlines.cancel(seed)
        self._seeds.clear()

    def _reached(self, seed: Seed, peer: Peer) -> None:
        seed.reached(peer.id)
        self._deadlines.cancel(seed)
        self._node.emit(SeedReached(seed.address, peer))

    def _retry(self, seed: Seed) -> None:
        first, rng = self._node.settings.retry_first, self._node.rng
        pause = backoff(seed.failed(), first, self._retry_most, rng)
        self._deadlines.schedule(seed, self._node.clock() + pause)

    def _recheck_within(self, seed: Seed, most: float) -> None:
        """Dial in half of `most` seconds to all of them, or earlier if that is due."""
        pause = most * (0.5 + self._node.rng.random() / 2)
        self._deadlines.schedule(seed, self._node.clock() + pause)
