"""Finding members for the cluster among the idle nodes of the view (P1).

The primary asks idle neighbours, preferred ones first (subscribers of the own attributes), at most
two at a time, until the cluster has its size. A node that refuses, or does not answer, is not asked
again for a while. A node that accepts is *reserved* until the description arrives, so that it
cannot accept twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from overlay.chord.cluster.journal import Journal
from overlay.chord.constants import (
    IDLE_LEAST,
    MEMBERS_MOST,
    RECRUIT_AGAIN,
    RECRUITS_ASKED,
    RECRUITS_PREFERRED,
)
from overlay.chord.keys import key_of
from overlay.chord.membership.members import ClusterMembers
from overlay.chord.messages import Cluster, Recruit, RecruitReply, Released
from overlay.chord.ring.ring_state import RingState
from overlay.chord.role import ClusterRole, RecruitingView
from overlay.health import Health
from overlay.machine import NodeId, Peer, Timer
from overlay.settings import ClusterSettings


class RecruitRound(Timer, frozen=True):
    """Time to see whether members are missing."""


class RecruitTimeout(Timer, frozen=True):
    """The node that was asked did not answer."""

    node: NodeId


class ReservationOver(Timer, frozen=True):
    """The cluster that this node was reserved for did not take it."""


@dataclass(eq=False)
class Recruiting:
    """Both sides: a primary that looks for members, and an idle node that is asked."""

    settings: ClusterSettings
    role: ClusterRole
    ring: RingState
    view: RecruitingView
    journal: Journal
    members: ClusterMembers
    health: Health

    def __post_init__(self) -> None:
        self.port = self.role.port
        self.size = self.settings.size  # members that the cluster should have …
        self._load_size = 0  # … and that its load needs (at most MEMBERS_MOST)
        self._exhausted_since: float | None = None  # no candidate is left to ask
        self._preferred: tuple[Peer, ...] = ()
        self._asked: dict[NodeId, Peer] = {}
        self._refused: dict[NodeId, float] = {}  # until when

    def begin(self) -> None:
        """Begin to recruit for the cluster that this node leads from now on, up to its usual
        size."""
        self.usual_size()
        self._load_size = 0
        self._exhausted_since = None
        self._asked.clear()
        self.refresh()

    def grow_to(self, size: int) -> None:
        """Recruit until the cluster has `size` members, for a split."""
        self.size = size
        self._exhausted_since = None

    def usual_size(self) -> None:
        """Recruit up to ``cluster.size`` members again, after a split was done or given up."""
        self.size = self.settings.size

    def grow_for_load(self, size: int) -> None:
        """Recruit until the cluster has `size` members, because of its load."""
        self._load_size = size

    def is_exhausted_for(self, seconds: float) -> bool:
        """Whether there has been no node left to ask for `seconds`."""
        since = self._exhausted_since
        return since is not None and self.port.now - since >= seconds

    def prefer(self, peers: Sequence[Peer]) -> None:
        """Ask these nodes before any others, at most `RECRUITS_PREFERRED` of them."""
        self._preferred = tuple(peers[:RECRUITS_PREFERRED])

    def refresh(self) -> None:
        """Regularly, at the primary: ask further nodes if members are missing."""
        if self.role.is_primary:
            self.port.set_timer(self.settings.recruit_period, RecruitRound())
            now = self.port.now
            self._refused = {node: until for node, until in self._refused.items() if until > now}
            self._ask_more()

    def on_recruit(self, sender: Peer, message: Recruit) -> None:
        """Accept if this node serves nowhere, stays, and was not offered an arc to serve. A cluster
        that has its size already has to wait until this node was idle for a while: one that lacks
        members comes first."""
        ring = self.ring.ring
        is_full = len(message.cluster.members()) >= self.settings.size
        willing = (
            self.settings.serve
            and self.role.cluster is None
            and not self.role.is_reserved
            and self.journal.offered.arc is None  # it may have to serve that (`taking_over`)
            and not self.role.leaving
            and ring in ("", message.cluster.ring)
            and not (is_full and self.role.idle_for() < IDLE_LEAST)
            and self.ring.admits(message.cluster)  # else its primary will ask again
        )
        if willing:
            self.role.reserve_for(message.cluster.key, sender.id)
            self.ring.learn(message.cluster)
            self.port.set_timer(self.settings.recruit_timeout, ReservationOver())
        self.port.send(sender, RecruitReply(message.cluster.key, willing))

    def on_reply(self, sender: Peer, message: RecruitReply) -> None:
        """Admit a node that accepted if it is still wanted, else release it; leave one that refused
        alone for a while."""
        asked = self._asked.pop(sender.id, None)
        self.port.cancel_timer(RecruitTimeout(sender.id))
        cluster = self.role.cluster
        wanted = (
            asked is not None
            and cluster is not None
            and self.role.is_primary
            and not self.role.leaving
            and message.key == cluster.key
        )
        if not message.accepted:
            self._refused[sender.id] = self.port.now + RECRUIT_AGAIN
        elif wanted and len(self._cluster_members()) < self._target():
            self.port.count("recruits")
            self._exhausted_since = None
            self.members.admit(sender)
        elif cluster is None or not cluster.has_member(sender.id):
            self.port.send(sender, Released(message.key))
        if self.role.is_primary:
            self._ask_more()

    def on_timeout(self, timer: RecruitTimeout) -> None:
        """A node that does not answer counts as one that refused."""
        if self._asked.pop(timer.node, None) is not None:
            self._refused[timer.node] = self.port.now + RECRUIT_AGAIN

    def on_reservation_over(self, timer: ReservationOver) -> None:
        """Let this node be recruited again."""
        if self.role.is_reserved:
            self.role.release_reservation()

    def peer_lost(self, node: NodeId) -> None:
        """Count `node`, whose link is down, as one that refused."""
        if self._asked.pop(node, None) is not None:
            self.port.cancel_timer(RecruitTimeout(node))
            self._refused[node] = self.port.now + RECRUIT_AGAIN

    def _target(self) -> int:
        return max(self.size, min(self._load_size, MEMBERS_MOST))

    def _ask_more(self) -> None:
        cluster = self.role.cluster
        if cluster is None or cluster.merged or self.role.leaving:
            return
        room = min(RECRUITS_ASKED, self._target() - len(self._cluster_members())) - len(self._asked)
        if room <= 0:
            return
        candidates = self._candidates()
        if not candidates and not self._asked and self._exhausted_since is None:
            self._exhausted_since = self.port.now
        for peer in candidates[:room]:
            self._asked[peer.id] = peer
            self.port.set_timer(self.settings.recruit_timeout, RecruitTimeout(peer.id))
            self.port.send(peer, Recruit(cluster))

    def _candidates(self) -> list[Peer]:
        """Nodes that may be asked now, without those whose certificate lets them not vote: the
        healthy before the others, of these the preferred ones first, the rest by chance."""
        members = {peer.id for peer in self._cluster_members()}
        idle = list(self.view.idle_peers())
        self.port.rng.shuffle(idle)
        candidates: dict[NodeId, Peer] = {}
        for peer in (*self._preferred, *idle):
            if (
                peer.id not in members
                and peer.id not in self._asked
                and peer.id not in self._refused
                and self.ring.roles.votes(peer.id) is not False
            ):
                candidates[peer.id] = peer
        candidates.pop(self.port.me.id, None)
        return self.health.healthy_first(candidates.values())

    def _cluster_members(self) -> tuple[Peer, ...]:
        cluster = self.role.cluster
        return () if cluster is None else cluster.members()


# --- founding a ring (docs/design/chord-ring.md, *Finding a way in*) ---
#
# There should be one ring. A node without seeds founds it at once. Others found one only after a
# time in which no node they reached knew of a ring, and then only the smallest id among those who
# see each other does, so that a group of new nodes does not found one each; a node that reached
# none founds alone and serves its local clients. The first cluster owns the whole ring. Each
# smaller id has its turn for as long, then it is the next one's: one that does not found, or may
# not, holds up nobody.
#
# Slow starts and partitions still make several rings. Where two meet, the smaller id wins, so a
# ring's id begins with how little its founder knew: one that has no seeds comes before one that
# took its turn, and that before one that reached no other node (see `ring_merge`).

NO_SEEDS, ITS_TURN, ALONE = 0, 1, 2
"""First digit of a ring's id."""


class FoundingDue(Timer, frozen=True):
    """No ring was heard of for `ring.found_after` seconds."""


@dataclass(eq=False)
class Founding:
    """Decides whether this node founds a ring of its own, with the first cluster, and does so."""

    role: ClusterRole
    ring: RingState
    view: RecruitingView
    founder: bool
    found_after: float

    def __post_init__(self) -> None:
        self.port = self.role.port
        self._turns = 0  # that have passed without a ring

    def start(self) -> Cluster | None:
        """The cluster to found at once, if this node is the founder."""
        if self.founder:
            return self._cluster(NO_SEEDS)
        self.wait()
        return None

    def wait(self) -> None:
        """Wait again: a ring was heard of, and may be again."""
        self.port.set_timer(self.found_after, FoundingDue())

    def due(self) -> Cluster | None:
        """The cluster to found now, if it is time and this node's turn; None otherwise."""
        if self.role.leaving:
            return None
        self.wait()
        if self.role.cluster or self.role.is_reserved or self.ring.knows_ring():
            self._turns = 0
            return None
        others = self.view.peers()
        before = [
            p for p in others if p.id < self.port.me.id and self.ring.roles.votes(p.id) is not False
        ]
        self._turns += 1
        if self._turns <= len(before):
            return None  # another node's turn
        return self._cluster(ITS_TURN if others else ALONE)

    def _cluster(self, rank: int) -> Cluster:
        """The first cluster of a new ring: alone, and owner of every key."""
        me = self.port.me
        key = key_of("cluster:" + me.id)
        ring = f"{rank}{me.id}{self.port.rng.getrandbits(64):016x}"
        return Cluster(ring, key, key, (1, 0), me)
