"""Where a node is, by its own signed word: what others say of its address is not believed.

Where nodes have keys an entry of a view carries its node's signature over id, address, region and
tier, with the time until when it holds, and its certificate. An entry without one, or whose
signature is wrong or over, is neither taken from others, and so not dialled, nor passed on. A node
that was met itself needs none until then. So nobody can send others to an address in a node's name,
or keep an old one alive; and as ids that sign can be made by thousands, those count that the
overlay has certified.
"""

from __future__ import annotations

from collections.abc import Callable

from overlay.bounded import BoundedDict
from overlay.links.signing import Signer, statement
from overlay.lower_random.constants import RECORD_HOLDS, RECORD_SKEW, RECORDS_KEPT
from overlay.lower_random.messages import Neighbour, PeerRecord
from overlay.machine import Peer


def signed_part(peer: Peer, until: int) -> bytes:
    """What a node signs of itself."""
    return statement("peer", peer, until)


class PeerRecords:
    """Signs this node's own record, and looks at those of others."""

    def __init__(self, me: Peer, signer: Signer | None, wall: Callable[[], float]) -> None:
        """`signer`: None where nodes have no keys; then every entry is good. `wall`: seconds since
        1970."""
        self._me = me
        self._signer = signer
        self._wall = wall
        self._own: PeerRecord | None = None
        self._verified: BoundedDict[bytes, bytes] = BoundedDict(RECORDS_KEPT)  # what, by seal

    def own(self) -> PeerRecord | None:
        """This node's record, signed anew when half of its time is over."""
        if self._signer is None:
            return None
        now, chain, own = self._wall(), self._signer.chain(), self._own
        if own is None or own.chain != chain or own.until < now + RECORD_HOLDS / 2:
            until = int(now + RECORD_HOLDS)
            own = PeerRecord(until, self._signer.sign(signed_part(self._me, until)), chain)
            self._own = own
        return own

    def is_good(self, entry: Neighbour) -> bool:
        """Whether the node that this entry names has said so, and that holds still, and there is
        such a node."""
        record = entry.record
        if self._signer is None:
            return True
        if record is None or record.signature.signer != entry.peer.id:
            return False
        now = self._wall()
        if not now - RECORD_SKEW <= record.until <= now + RECORD_HOLDS + RECORD_SKEW:
            return False
        if not self._signer.vouches(entry.peer.id, record.chain):
            return False
        said, seal = signed_part(entry.peer, record.until), record.signature.seal
        if self._verified.get(seal) != said:
            if not self._signer.holds(record.signature, said):
                return False
            self._verified[seal] = said
        return True
