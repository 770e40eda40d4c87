"""Decides which descriptions of clusters are believed, in an overlay with keys.

A description is its primary's word: it is *sealed* with that node's signature, so that who passes
it on can change nothing. What it says against what is known already, that another node leads a
cluster, or has a part of an arc, under a higher epoch, its primary's word alone does not prove,
since any voter may say so. It is believed

* at once, if a majority of the voters that are known here have signed that they granted it that
  epoch: so after every election;
* at once, if the primary that is known here says so: it has given way;
* else when the members that are known have been asked, of whom the former primary may say that it
  has given that arc away, and a majority that another leads; or too few of them answer for a
  majority, as of a cluster that is lost (P5).

It is refused if the former primary says that it leads, or a majority of the members knows nothing
of it. Members and voters are not told apart in a description; of n members the voters are taken to
be the largest odd number, and their majority is counted. Since more may serve than vote, a member,
which has the voters in its log, also believes whom a majority of those has granted the epoch.

What one lying voter can still do is listed in docs/design/security.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from overlay.bounded import BoundedDict
from overlay.chord.constants import (
    CLAIM_FORKS_MOST,
    CLAIM_REFUSED_FOR,
    CLAIM_SETTLED_FOR,
    CLAIMS_MOST,
    CONTRADICTION_AGAIN,
    FIRST_FORKS_MOST,
    SEALS_KEPT,
)
from overlay.chord.epochs import fork_count, granting, sealing
from overlay.chord.events import ClaimBelieved
from overlay.chord.messages import Cluster, Contact
from overlay.chord.ring.known_clusters import overlaps
from overlay.consensus import majority
from overlay.links.statements import Signer
from overlay.machine import Key, NodeId, Peer, Port, Timer

Claim = tuple[str, Key, int, NodeId]
"""Ring, cluster, epoch and primary: what is claimed."""


class ClaimDue(Timer, frozen=True):
    """Fires when the time for answers about a claim is over."""

    claim: Claim


class Doubt:
    """A claim, with the nodes that are asked about it and their answers."""

    def __init__(self, cluster: Cluster, known: tuple[Cluster, ...]) -> None:
        self.cluster = cluster
        self.known = known  # what it contradicts, and in whose place that is
        self.agree: dict[NodeId, None] = {}
        self.disagree: dict[NodeId, None] = {}
        self.unheard: dict[NodeId, None] = {}


def voters_majority(members: int) -> int:
    """The majority of the voters, who are taken to be the largest odd number of `members`."""
    return majority(members - (members + 1) % 2)


def is_plausible(cluster: Cluster, known: Cluster | None) -> bool:
    """Return whether the number of forks in a cluster's epoch is plausible, given the known
    description. The bound keeps a lying claim from using up the highest epochs."""
    if known is None:
        return fork_count(cluster.epoch) <= FIRST_FORKS_MOST
    return fork_count(cluster.epoch) <= fork_count(known.epoch) + CLAIM_FORKS_MOST


class Claims:
    """The questions of this node about claims, and their results."""

    def __init__(self, port: Port, signer: Signer | None, wait: float) -> None:
        """`wait`: seconds for which those that are asked may take."""
        self.port = port
        self.signer = signer
        self._wait = wait
        self._doubts: dict[Claim, Doubt] = {}
        self._settled: BoundedDict[Claim, tuple[bool, float]] = BoundedDict(CLAIMS_MOST)
        """The decisions, and until when each holds."""
        self._verified: BoundedDict[bytes, bytes] = BoundedDict(SEALS_KEPT)  # statement, by seal
        self._former: BoundedDict[Key, Cluster] = BoundedDict(CLAIMS_MOST)
        self._asked: BoundedDict[NodeId, float] = BoundedDict(CLAIMS_MOST)

    # -- signatures ------------------------------------------------------------------------------

    def sealed(self, cluster: Cluster) -> Cluster:
        """The own description, signed; as it is where nodes have no keys."""
        if self.signer is None or cluster.primary.id != self.port.me.id:
            return cluster
        signed: Cluster = replace(cluster, seal=self.signer.sign(sealing(cluster)))
        return signed

    def is_sealed(self, cluster: Cluster) -> bool:
        """Whether the primary that is named has said this."""
        seal = cluster.seal
        if self.signer is None:
            return True
        if seal is None or seal.signer != cluster.primary.id:
            return False
        signed = sealing(cluster)
        if self._verified.get(seal.seal) == signed:
            return True
        if not self.signer.holds(seal, signed):
            return False
        self._verified[seal.seal] = signed
        return True

    def remember(self, cluster: Cluster) -> None:
        """Remember a cluster that was replaced by another one without a grant of its voters: they
        may grant it a higher epoch if it comes back."""
        self._former.renew(cluster.key, cluster)

    def is_proven(self, cluster: Cluster, *known: Cluster) -> bool:
        """Whether the voters of one of `known`, or of the cluster in whose place that is, have
        granted what `cluster` claims."""
        former = self._former.get(cluster.key)
        before = known if former is None else (*known, former)
        return any(self.is_granted(cluster, each) for each in before)

    def is_refused(self, cluster: Cluster) -> bool:
        """Whether it was decided lately that this is not believed."""
        believed, until = self._settled.get(_claim(cluster), (True, float("-inf")))
        return not believed and until > self.port.now

    def is_granted(self, cluster: Cluster, known: Cluster) -> bool:
        """Whether enough members of `known` have granted what `cluster` claims: a majority of the
        voters."""
        if cluster.key != known.key:
            return False
        members = known.members()
        if len(members) < 3:  # of whom the primary alone votes
            members = (known.primary,)
        return self._is_granted_by(cluster, members, voters_majority(len(members)))

    def is_followed(self, cluster: Cluster) -> bool:
        """Whether another member than its primary has granted what `cluster` claims: there is such
        a cluster. (A majority of its voters has; but of many members three may be all who vote, and
        a description does not say which.)"""
        return self._is_granted_by(cluster, cluster.members(), 2)

    def _is_granted_by(self, cluster: Cluster, nodes: Sequence[Peer], enough: int) -> bool:
        """Return whether at least `enough` of these nodes have granted the claim of `cluster`."""
        if self.signer is None:
            return False
        granters = {node.id: None for node in nodes}
        signed = granting(cluster.ring, cluster.key, cluster.epoch, cluster.primary.id)
        found: dict[NodeId, None] = {}
        for grant in cluster.grants:
            if grant.signer in granters and grant.signer not in found:
                if self.signer.holds(grant, signed):
                    found[grant.signer] = None
                if len(found) >= enough:
                    return True
        return False

    # -- claims ----------------------------------------------------------------------------------

    def ask_primary(self, peer: Peer) -> None:
        """Somebody says that this node leads, and has no proof: ask it, if not lately."""
        now = self.port.now
        if now - self._asked.get(peer.id, float("-inf")) >= CONTRADICTION_AGAIN:
            self._asked.renew(peer.id, now)
            self.port.send(peer, Contact(self.port.me.id))

    def settles(
        self,
        cluster: Cluster,
        known: Cluster,
        is_reachable: Callable[[Peer], bool],
        is_led: bool = True,
    ) -> bool:
        """Return whether the sealed description `cluster` is believed although it contradicts
        `known`. If that is undecided, ask the reachable members of `known`, and of the description
        that was known before the cluster took its place; `ClaimBelieved` may follow. `is_led`: this
        node serves in the cluster and knows a primary."""
        claim = _claim(cluster)
        believed, until = self._settled.get(claim, (False, float("-inf")))
        if until > self.port.now:
            return believed
        doubt = self._doubts.get(claim)
        if doubt is not None:
            if cluster.version > doubt.cluster.version:
                doubt.cluster = cluster
            return False
        if not is_plausible(cluster, known):
            return self._settle(claim, False)
        if self.is_proven(cluster, known):
            return self._settle(claim, True)
        if len(self._doubts) >= CLAIMS_MOST:
            return self._settle(claim, False)
        former = self._former.get(cluster.key)
        all_known = (known,) if former is None else (known, former)
        me = self.port.me.id
        asked = {
            peer.id: peer
            for each in all_known
            for peer in each.members()
            if peer.id not in (me, cluster.primary.id) and is_reachable(peer)
        }
        if all(
            sum(peer.id in asked or peer.id == me for peer in each.members())
            < voters_majority(len(each.members()))
            for each in all_known
        ):
            return self._settle(claim, True)  # as far as is known here it is lost
        doubt = self._doubts[claim] = Doubt(cluster, all_known)
        if is_led and known.has_member(me):
            doubt.disagree[me] = None
        self.port.count("claims_doubted")
        for peer in asked.values():
            doubt.unheard[peer.id] = None
            self.port.send(peer, Contact(me))
        self.port.set_timer(self._wait, ClaimDue(claim))
        return False

    def prove(self, cluster: Cluster, voters: Sequence[Peer]) -> None:
        """Believe the claim of the sealed description `cluster` if a majority of `voters` has
        granted it. `voters` are the voters of the cluster's log, of which this node has a copy."""
        claim = _claim(cluster)
        believed, until = self._settled.get(claim, (False, float("-inf")))
        if (believed and until > self.port.now) or not self._is_granted_by(
            cluster, voters, majority(len(voters))
        ):
            return
        if claim in self._doubts:
            self._decide(claim, True)
        else:
            self._settle(claim, True)

    def given_way(self, sender: Peer, cluster: Cluster, known: Cluster | None) -> None:
        """Believe the claim of `cluster` if `sender`, the primary that is `known` of it, says that
        another leads, whatever was decided before: it said that it leads when it was asked."""
        if known is None or known.primary.id != sender.id or cluster.primary.id == sender.id:
            return
        if cluster.epoch <= known.epoch or not is_plausible(cluster, known):
            return
        if self.signer is None or not self.is_sealed(cluster):
            return
        claim = _claim(cluster)
        if claim in self._doubts:
            self._decide(claim, True)
        else:
            self._settle(claim, True)

    def heard(self, sender: Peer, said: Cluster, unled: bool) -> None:
        """Handle a node's description of a cluster, perhaps the answer to a question about a claim.
        A description that the node only remembers (`unled`) and that is not newer than the known
        one counts for neither side: otherwise nodes that all miss a primary would refuse an
        existing primary because of each other."""
        for claim, doubt in list(self._doubts.items()):
            if sender.id not in doubt.unheard:
                continue
            del doubt.unheard[sender.id]
            known = doubt.known
            leads = said.primary.id == sender.id and not unled
            leads = leads and any(each.primary.id == sender.id for each in known)
            if _is_same(said, doubt.cluster):
                doubt.agree[sender.id] = None
            elif unled and said.version <= max(each.version for each in known):
                pass
            elif said.ring == doubt.cluster.ring and overlaps(said, doubt.cluster):
                doubt.disagree[sender.id] = None
                if leads:
                    self._decide(claim, False)
                    continue
            elif leads:
                self._decide(claim, True)  # it has given that arc away
                continue
            if any(_count(doubt.agree, each) >= _enough(each) for each in known):
                self._decide(claim, True)
            elif any(_count(doubt.disagree, each) >= _enough(each) for each in known):
                self._decide(claim, False)
            elif not doubt.unheard:
                self._decide(claim, _is_lost(doubt))

    def on_claim_due(self, timer: ClaimDue) -> None:
        """Decide by what those say who have answered."""
        doubt = self._doubts.get(timer.claim)
        if doubt is not None:
            self._decide(timer.claim, _is_lost(doubt))

    def _decide(self, claim: Claim, believed: bool) -> None:
        doubt = self._doubts.pop(claim)
        self.port.cancel_timer(ClaimDue(claim))
        self._settle(claim, believed)
        if believed:
            self.port.emit(ClaimBelieved(doubt.cluster))

    def _settle(self, claim: Claim, believed: bool) -> bool:
        if not believed:
            self.port.count("claims_refused")
        holds = CLAIM_SETTLED_FOR if believed else CLAIM_REFUSED_FOR
        self._settled.renew(claim, (believed, self.port.now + holds))
        return believed


def _claim(cluster: Cluster) -> Claim:
    return cluster.ring, cluster.key, cluster.epoch, cluster.primary.id


def _enough(cluster: Cluster) -> int:
    return voters_majority(len(cluster.members()))


def _count(nodes: Mapping[NodeId, None], cluster: Cluster) -> int:
    """Return how many of these nodes are members of the cluster."""
    return sum(peer.id in nodes for peer in cluster.members())


def _is_lost(doubt: Doubt) -> bool:
    """Return whether the formerly known clusters are gone: in each, fewer members than a majority
    still know it, and at most one more than those that know the other."""
    return all(
        _count(doubt.disagree, each) < _enough(each)
        and _count(doubt.agree, each) >= _count(doubt.disagree, each) - 1
        for each in doubt.known
    )


def _is_same(one: Cluster, other: Cluster) -> bool:
    """Whether both say who leads now, and that is the same node under at least this epoch."""
    return (one.ring, one.key, one.primary.id) == (
        other.ring,
        other.key,
        other.primary.id,
    ) and one.epoch >= other.epoch
