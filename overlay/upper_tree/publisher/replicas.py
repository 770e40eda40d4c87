"""C6: which replica of a virtual node a publisher visits, and who is silent.

All hosts of a virtual node have all of its registrations, so any of them will do. A publisher ranks
hosts by a hash of itself and the host and takes the first: it visits the same one each time, so
that its link stays open, it visits one host for all trees that share their hosts, and publishers
spread. If it is a host itself it comes first, since that costs no message.

A host that is behind is passed over for one that will be done sooner (choice.py).

A host that does not accept is *doubted*, and comes last. Silence is doubted of a host that has not
accepted anything for the patience below while something waits for it; a host that says *moved* is
doubted for that tree only. Doubt ends with a word from the host or after a while, so that a host
that was only slow, or is given back its trees, is used again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized

from overlay.machine import NodeId, Peer
from overlay.upper_tree.host_load import HostLoad
from overlay.upper_tree.publisher.host_choice import Choice
from overlay.upper_tree.replica_order import ranked

PATIENCE_LEAST = 0.5
"""Seconds that a host may take to accept, at least: more than a busy host's longest turn, and a cut
link shall cost a second at most (issue: deliveries flow within 1 s of a cut)."""

PATIENCE_FIRST = 1.0
"""… before anything was measured: RFC 6298, section 2.1."""

PATIENCE_SHARE = 4.0
"""Times the smoothed time that hosts take. Wild guess."""

SMOOTHING = 0.125
"""Weight of a new measurement: RFC 6298, section 2.3."""

SILENT_FOR = 5.0
"""Seconds that a silent host is doubted; then one event tries it again. About as long as it takes
to notice a dead host and to replace it (`links.dead_after`)."""

MOVED_FOR = 2.0
"""Seconds that a host that said *moved* is doubted: it is being given its trees, or soon named no
more. Wild guess."""

DOUBTS_MOST = 4_096
"""Doubts that are remembered, the oldest forgotten first. As many as cached locations."""


class Replicas:
    """One publisher's choice. Times are the Port's seconds."""

    def __init__(self, me: NodeId, patience_most: float, by_time: bool = True) -> None:
        """`patience_most`: seconds after which silence is one however slow hosts were before.
        `by_time`: whether a host that is behind is passed over (P7)."""
        self.me = me
        self.by_time = by_time
        self.choice = Choice()
        self._now = 0.0  # of the last look
        self.patience_most = patience_most
        self.changes = 0
        """Grows when a choice may be another one."""
        self._doubts: dict[tuple[str, NodeId], float] = {}  # (attribute or "", node) -> until
        self._heard: dict[NodeId, float] = {}  # when hosts last accepted
        self._usual: float | None = None

    # --- choosing ---

    def choose(self, attribute: str, hosts: Sequence[Peer]) -> Peer:
        """The best of these (at least one)."""
        if len(hosts) == 1:
            return hosts[0]
        order = ranked(self.me, hosts)
        sound = [host for host in order if not self.doubts(attribute, host.id)]
        return self.choice.best(sound or order, self._now) if self.by_time else (sound or order)[0]

    def doubts(self, attribute: str, node: NodeId) -> bool:
        """Whether this host of the tree is to come last."""
        return ("", node) in self._doubts or (attribute, node) in self._doubts

    # --- learning ---

    @property
    def patience(self) -> float:
        """Seconds without a word from a host after which it is silent."""
        if self._usual is None:
            return min(PATIENCE_FIRST, self.patience_most)
        return min(max(PATIENCE_LEAST, PATIENCE_SHARE * self._usual), self.patience_most)

    def sent(self, node: NodeId, visits: Iterable[Sized], now: float) -> float:
        """Visits, each of so many events, are on their way to a host. The patience with it."""
        self.choice.sent(node, sum(map(len, visits)), now)
        return self.patience

    def heard(
        self, node: NodeId, took: float | None, now: float, pace: HostLoad | None = None
    ) -> None:
        """A host has accepted, `took` seconds after it was sent (None: not known), and says how
        much it has to do (None: nothing waits)."""
        self.choice.heard(node, pace, now)
        self._heard.pop(node, None)
        self._heard[node] = now
        if len(self._heard) > DOUBTS_MOST:
            del self._heard[next(iter(self._heard))]
        if took is not None:
            usual = took if self._usual is None else self._usual
            self._usual = usual + SMOOTHING * (took - usual)
        if self._doubts.pop(("", node), None) is not None:
            self.changes += 1

    def silent_from(self, node: NodeId, since: float) -> float:
        """When a host is silent that was sent something at `since`, if it says nothing more."""
        return max(since, self._heard.get(node, since)) + self.patience

    def silent(self, node: NodeId, now: float) -> None:
        """It is: take another one for a while."""
        self._doubt(("", node), now + SILENT_FOR)

    def moved(self, attribute: str, node: NodeId, now: float) -> None:
        """It does not serve this tree (now)."""
        self._doubt((attribute, node), now + MOVED_FOR)

    def _doubt(self, what: tuple[str, NodeId], until: float) -> None:
        self.changes += what not in self._doubts
        self._doubts.pop(what, None)
        self._doubts[what] = until
        if len(self._doubts) > DOUBTS_MOST:
            del self._doubts[next(iter(self._doubts))]

    def expire(self, now: float) -> None:
        """End the doubts that are over, and see who is behind now."""
        self._now = now
        self.changes += self.choice.look(now)
        if self._doubts and min(self._doubts.values()) <= now:
            self._doubts = {what: until for what, until in self._doubts.items() if until > now}
            self.changes += 1

    @property
    def size(self) -> int:
        """How many doubts there are; for checks."""
        return len(self._doubts)
