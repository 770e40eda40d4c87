"""Nodes that this one does not reach, and who may bring them their deliveries (P3).

A link can be broken while both its ends live. What it does not carry goes to a *helper*, any other
node, who gives back what it cannot bring either. That must come to an end where the node is really
gone: deliveries for it would go round for ever, and faster the sooner each attempt fails.

So it is remembered since when a node's link is lost, and which helpers gave something back for it
lately. They are passed over. A delivery that was given back is dropped when the link has been lost
for `AGAIN` and `HELPERS` of them, or all there are, could not reach the node either; as long as one
helper reaches it, a link may be broken for as long as it likes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from overlay.machine import NodeId, Peer, Port

AGAIN = 18.0
"""Seconds that a node is tried for since its link was lost and no other came up: three times as
long as a silent link is waited for. Wild guess."""

HELPERS = 2
"""Helpers who have to fail before a node is given up. Each takes `links.dead_after` to notice, if
nobody refuses it. Wild guess."""

FAILED_FOR = 36.0
"""Seconds that a helper who gave back is passed over: so that `HELPERS` of them, one after the
other and with an attempt of our own before each, which take 12 s each, are counted together."""

LOST_MOST = 4_096
"""Nodes that are remembered: those that were lost first are forgotten, and so tried somewhat
longer. As many as there may be links."""


class Lost:
    """A node whose link was lost and has not come up since."""

    __slots__ = ("failed", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.failed: dict[NodeId, float] = {}  # helpers who gave back, and when


class Detours:
    """Bounded: `LOST_MOST` nodes, with some helpers each."""

    def __init__(self, port: Port, others: Callable[[], Sequence[Peer]]) -> None:
        """`others`: nodes that may help."""
        self.port = port
        self.others = others
        self._lost: OrderedDict[NodeId, Lost] = OrderedDict()

    def lose(self, node: NodeId) -> None:
        """The link to it is lost."""
        self._lost.setdefault(node, Lost(self.port.now))
        while len(self._lost) > LOST_MOST:
            self._lost.popitem(last=False)

    def find(self, node: NodeId) -> None:
        """A link to it came up."""
        self._lost.pop(node, None)

    def gave_back(self, node: NodeId, helper: NodeId) -> bool:
        """A helper could not reach it. Whether it may still be there."""
        lost = self._lost.get(node)
        if lost is None:
            return True
        lost.failed[helper] = self.port.now
        self._forget_failures(lost)
        enough = len(lost.failed) >= HELPERS or self.helper(node) is None
        return not enough or self.is_fresh(node)

    def is_fresh(self, node: NodeId) -> bool:
        """Whether it is not lost, or not for long."""
        lost = self._lost.get(node)
        return lost is None or self.port.now - lost.since < AGAIN

    def helper(self, node: NodeId) -> Peer | None:
        """Somebody else, whose link is not known to be lost, and who did not fail lately."""
        lost = self._lost.get(node)
        if lost is not None:
            self._forget_failures(lost)
        failed = {} if lost is None else lost.failed
        fit = [
            peer
            for peer in self.others()
            if peer.id not in (node, self.port.me.id)
            and peer.id not in self._lost
            and peer.id not in failed
        ]
        return self.port.rng.choice(fit) if fit else None

    def _forget_failures(self, lost: Lost) -> None:
        now = self.port.now
        lost.failed = {n: at for n, at in lost.failed.items() if now - at < FAILED_FOR}
