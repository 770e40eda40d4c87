"""A node's signed records of its addresses and of the cluster that it leads: what others say of
either is not believed.

Where nodes have keys an entry of a view carries its node's signature over id, address, region and
tier, with the time until when it holds, and its certificate. An entry without one, or whose
signature is wrong or over, is neither taken from others, and so not dialled, nor passed on. A node
that was met itself needs none until then. So nobody can send others to an address in a node's name,
or keep an old one alive; and as ids that sign can be made by thousands, those count that the
overlay has certified. A hint about the ring has the same, of the primary that it names, whose
certificate has to say that it may serve in clusters: so nobody makes up a ring for others to run
after.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from overlay.bounded import BoundedDict
from overlay.links.statements import Signer, statement
from overlay.lower_random.constants import MAX_TOMBSTONES, RECORD_HOLDS, RECORD_SKEW, RECORDS_KEPT
from overlay.lower_random.messages import Neighbour, PeerRecord, RingHint
from overlay.machine import NodeId, Peer

# --- tombstones: which nodes were found dead, and when, in shuffles (C1) ---
#
# Other nodes have not noticed yet and go on naming the dead. What others say about a node is
# ignored if it is older than the node's tombstone. Ages are counted in shuffles; all nodes shuffle
# at about the same rate, so an age from elsewhere can be compared. Direct contact removes a
# tombstone at once.


class Tombstones:
    """Nodes by the shuffle in which they were found dead. At most `MAX_TOMBSTONES`; the oldest is
    forgotten first."""

    def __init__(self) -> None:
        self._died_in: BoundedDict[NodeId, int] = BoundedDict(MAX_TOMBSTONES)

    def add(self, peer_id: NodeId, now: int) -> None:
        """Remember that contact with `peer_id` failed in the shuffle with number `now`."""
        self._died_in.renew(peer_id, now)

    def remove(self, peer_id: NodeId) -> None:
        """Forget that contact failed: `peer_id` itself was heard, so it is alive."""
        self._died_in.pop(peer_id, None)

    def covers(self, peer_id: NodeId, age: int, now: int) -> bool:
        """Whether second-hand news of `peer_id` that is `age` shuffles old, in shuffle `now`, is
        from before its death."""
        died = self._died_in.get(peer_id)
        return died is not None and now - age <= died


def signed_part(peer: Peer, until: int) -> bytes:
    """Return the statement that a node signs about itself."""
    return statement("peer", peer, until)


def hinted_part(hint: RingHint, until: int) -> bytes:
    """Return the statement that a primary signs about its cluster."""
    return statement("ring hint", hint.ring, hint.key, hint.version, hint.primary, until)


class PeerRecords:
    """Signs this node's own record, and looks at those of others."""

    def __init__(self, me: Peer, signer: Signer | None, wall: Callable[[], float]) -> None:
        """`signer`: None where nodes have no keys; then every entry is good. `wall`: seconds since
        1970."""
        self._me = me
        self._signer = signer
        self._wall = wall
        self._own: PeerRecord | None = None
        self._hint: RingHint | None = None  # that was signed last
        self._verified: BoundedDict[bytes, bytes] = BoundedDict(RECORDS_KEPT)  # what, by seal

    def own(self) -> PeerRecord | None:
        """Return this node's record. It is signed again when half of its time is over."""
        if self._signer is None:
            return None
        if self._is_due(self._signer, self._own):
            self._own = self._signed(self._signer, lambda until: signed_part(self._me, until))
        return self._own

    def hint(self, hint: RingHint) -> RingHint:
        """The hint with this node's record, if it names this node as the primary."""
        if self._signer is None or hint.primary.id != self._me.id:
            return hint
        own, hint = self._hint, msgspec.structs.replace(hint, record=None)  # it may be the own one
        if own is not None and msgspec.structs.replace(own, record=None) != hint:
            own = None
        if own is None or self._is_due(self._signer, own.record):
            record = self._signed(self._signer, lambda until: hinted_part(hint, until))
            own = self._hint = msgspec.structs.replace(hint, record=record)
        return own

    def is_good(self, entry: Neighbour) -> bool:
        """Whether the node that this entry names has said so, and that holds still, and there is
        such a node."""
        node, record = entry.peer.id, entry.record
        return self._holds(node, record, lambda until: signed_part(entry.peer, until))

    def is_good_hint(self, hint: RingHint) -> bool:
        """Whether the primary that this hint names has said so, and that holds still, and it may
        lead clusters."""
        node, record = hint.primary.id, hint.record
        return self._holds(node, record, lambda until: hinted_part(hint, until), votes=True)

    def _is_due(self, signer: Signer, record: PeerRecord | None) -> bool:
        """Whether an own record is to be signed again."""
        if record is None or record.chain != signer.chain():
            return True
        return record.until < self._wall() + RECORD_HOLDS / 2

    def _signed(self, signer: Signer, part: Callable[[int], bytes]) -> PeerRecord:
        until = int(self._wall() + RECORD_HOLDS)
        return PeerRecord(until, signer.sign(part(until)), signer.chain())

    def _holds(
        self,
        node: NodeId,
        record: PeerRecord | None,
        part: Callable[[int], bytes],
        votes: bool = False,
    ) -> bool:
        if self._signer is None:
            return True
        if record is None or record.signature.signer != node:
            return False
        now = self._wall()
        if not now - RECORD_SKEW <= record.until <= now + RECORD_HOLDS + RECORD_SKEW:
            return False
        if not self._signer.vouches(node, record.chain, votes):
            return False
        said, seal = part(record.until), record.signature.seal
        if self._verified.get(seal) != said:
            if not self._signer.holds(record.signature, said):
                return False
            self._verified[seal] = said
        return True
