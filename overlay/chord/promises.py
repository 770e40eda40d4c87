"""Durable grants (P4): an epoch has one primary, because a voter grants an epoch once and for all.

A promise is stored before the message that depends on it leaves (`Port.store`), and restored at
the next start. A node stores one when it grants an epoch, asks for one itself, and when it takes
entries of one: it has then helped to commit in it and may not help an older one again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from overlay.chord.voting_messages import Promise
from overlay.machine import Key, NodeId, Peer, Port

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Promise)


class Promises:
    """What this node has promised; the newest promise of the own cluster counts.

    One record suffices: a node votes in one cluster at a time, and whoever is recruited by another
    cluster has no log of the former one any more, without which it grants nothing there.
    """

    def __init__(self, port: Port, restored: Sequence[bytes] = ()) -> None:
        self.port = port
        self._kept: dict[Key, Promise] = {}
        self.last: Promise | None = None
        for record in restored:
            try:
                promise = _decoder.decode(record)
            except msgspec.MsgspecError:
                continue  # a record of another machine
            self._keep(promise)

    def epoch(self, key: Key) -> int:
        """The highest epoch of the cluster `key` that was promised to anybody; 0: none."""
        promise = self._kept.get(key)
        return 0 if promise is None else promise.epoch

    def may(self, key: Key, epoch: int, candidate: NodeId) -> bool:
        """Whether the epoch is still free for `candidate`."""
        promise = self._kept.get(key)
        return (
            promise is None
            or epoch > promise.epoch
            or (epoch == promise.epoch and candidate == promise.candidate)
        )

    def make(self, key: Key, epoch: int, candidate: NodeId, voters: Sequence[Peer]) -> None:
        """Promise, durably before anything that is sent later."""
        kept = self._kept.get(key)
        if kept is not None and kept.epoch > epoch:  # a promise is never taken back
            epoch, candidate = kept.epoch, kept.candidate
        others = tuple(peer for peer in voters if peer.id != self.port.me.id)
        promise = Promise(key, epoch, candidate, others)
        if kept != promise:
            self._keep(promise)
            self.port.store(_encoder.encode(promise))

    def _keep(self, promise: Promise) -> None:
        self._kept.pop(promise.key, None)
        self._kept[promise.key] = self.last = promise
        if len(self._kept) > MOST_CLUSTERS:
            del self._kept[next(iter(self._kept))]


MOST_CLUSTERS = 256
"""Clusters in which this node remembers to have voted; a node serves in one at a time, so this is
its whole life. Wild guess."""
