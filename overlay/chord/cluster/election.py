"""Elections: another primary for a cluster whose primary is silent (P4; Phoenix section 2, broker
failure).

The paper's bully only *nominates* here: by rank (the standby first, then the match brokers, each a
little later) a voter becomes a candidate. What makes it the primary is a majority of durable votes
for a new epoch, in two rounds:

1. *Pre-vote*: would you vote for me? A voter that still hears the primary, or whose log is further,
   would not. Nothing changes by this, so a node behind a broken link does no harm (Raft
   dissertation, section 9.6).
2. *Vote*: a voter stores its vote, then answers. It votes for one candidate per epoch.

Among candidates whose log is far enough the healthy go first (T6): the turns are ordered by what
is known of it (overlay/health.py) before the rank, and a node that stood still lately (it was
paused or overloaded) waits until the others had their turns. None is ever kept from standing.

Nothing that was committed is lost: it is with a majority, one of which also votes, and only for a
log that is at least as far as its own. Of a cluster that forked (P5) only voters whose log is the
fork's are candidates or get votes: an older log names other voters, who could elect a second
primary without the fork's. The winner says HELLO to the members and REJOIN to its ring neighbours;
the old primary is an ordinary member of the new description. When it wakes up it is fenced by its
epoch: at voters, hosts, ring neighbours, and by its own lease (`heartbeat`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from overlay.chord.cluster.follower_log import FollowerLog
from overlay.chord.cluster.heartbeat import Heartbeat
from overlay.chord.cluster.messages import RequestVote, VoteReply
from overlay.chord.constants import EPOCH_STEP_MOST, STALLED_FOR
from overlay.chord.epochs import above_fork, fork_id, granting
from overlay.chord.events import PrimarySuspected
from overlay.chord.messages import Cluster, Moved
from overlay.chord.role import ClusterRole
from overlay.consensus import is_up_to_date
from overlay.health import Health
from overlay.links.events import LocalStall
from overlay.links.statements import Signature, Signer
from overlay.machine import Key, NodeId, Peer, Timer, Version
from overlay.settings import ElectionSettings


class CampaignDue(Timer, frozen=True):
    """Fires when this node should become a candidate, unless another has won in the meantime."""


class CampaignTimeout(Timer, frozen=True):
    """No majority has answered a campaign in time."""


class Campaign:
    """One attempt to be granted an epoch."""

    def __init__(
        self, epoch: int, pre_vote: bool, transfer: bool, now: float, start: Key | None = None
    ) -> None:
        self.epoch = epoch
        self.pre_vote = pre_vote
        self.transfer = transfer  # the present primary hands over
        self.since = now
        self.start = start  # where the arc shall begin, if it grows
        self.granted: dict[NodeId, float] = {}  # seconds for which each votes for no other
        self.grants: dict[NodeId, Signature] = {}  # the same votes, signed, where nodes have keys
        self.refused: dict[NodeId, None] = {}
        # Too few have answered in time; what comes late counts until the next campaign.
        self.over = False


class ElectionOutcome(Protocol):
    """The receiver of a campaign's result (`role_changes.RoleChanges`)."""

    def election_won(self, cluster: Cluster, campaign: Campaign) -> None:
        """Handle that this node leads. `cluster` is the description under its new epoch."""

    def transfer_failed(self) -> None:
        """Too few voters let this node lead in the place of a primary that leaves."""


@dataclass(eq=False)
class Election:
    """Both sides of an election: candidate and voter."""

    settings: ElectionSettings
    role: ClusterRole
    log: FollowerLog
    heartbeat: Heartbeat
    health: Health
    signer: Signer | None = None
    """In an overlay with keys: votes are signed, and others believe who has a majority of them."""

    def __post_init__(self) -> None:
        self.port = self.role.port
        self.campaign: Campaign | None = None
        self.arc: Cluster | None = None  # the cluster as a leaving primary wants it to be
        self._highest_epoch = 0  # epoch that was heard of
        self._stalled_until = float("-inf")
        # A candidate, and until when no other one gets the pre-vote.
        self._pre_voted: tuple[NodeId, float] = ("", 0.0)

    def report_to(self, outcome: ElectionOutcome) -> None:
        """Let `outcome` act on the end of campaigns. Called once, before there are any."""
        self._outcome = outcome

    @property
    def is_asking(self) -> bool:
        """Whether a campaign of this node is under way."""
        return self.campaign is not None and not self.campaign.over

    # -- candidate -------------------------------------------------------------------------------

    def suspect(self) -> None:
        """Campaign because the primary is silent: after a wait by health and rank, later if this
        node stalled."""
        cluster = self.role.cluster
        if cluster is None or self.is_asking or not self._may_campaign():
            return
        self.role.trace("primary silent")
        self.port.emit(PrimarySuspected(cluster))
        pause = self._rank_wait()
        wait = pause * self._turn(cluster) + self.settings.rank_wait * self.port.rng.random()
        if self.port.now < self._stalled_until:  # after the healthy ones; but not for ever
            wait += min(pause * (len(self.log.voters) - 1), 2.0 * self.heartbeat.round_trip())
        self.port.set_timer(wait, CampaignDue())

    def _turn(self, cluster: Cluster) -> int:
        """The number of other members whose turn comes before this node's, if no log is further."""
        me = self.port.me.id
        if cluster.primary.id == me:  # it led before it was started again
            return 0
        return [peer.id for peer in self.health.healthy_first(cluster.others())].index(me)

    def on_local_stall(self, event: LocalStall) -> None:
        """Let others become candidates first for a while, because this process stalled and may
        stall again."""
        self._stalled_until = self.port.now + STALLED_FOR

    def on_campaign_due(self, timer: CampaignDue) -> None:
        """Start a campaign if there is still no primary."""
        if not self.is_asking and self._may_campaign() and self._leaderless():
            self._request_votes(pre_vote=True, transfer=False)

    def accept_transfer(self, arc: Cluster) -> None:
        """Ask the voters to elect this node for `arc`, as the leaving primary wants (leadership
        transfer)."""
        self.arc = arc
        self._highest_epoch = max(self._highest_epoch, arc.epoch - 1)
        self._request_votes(pre_vote=False, transfer=True)

    def take_over_arc(self, start: Key, above: int) -> None:
        """Have the voters grant a primary an epoch above `above`, and the arc from `start` on."""
        self._highest_epoch = max(self._highest_epoch, above)
        if not self.is_asking:
            self._request_votes(pre_vote=True, transfer=False, start=start)

    def lead_without_majority(self, epoch: int) -> None:
        """Lead under the fork `epoch` at once: the other voters are lost (`recovery`)."""
        self.log.vote_alone()
        campaign = Campaign(epoch, pre_vote=False, transfer=False, now=self.port.now)
        campaign.granted[self.port.me.id] = 0.0
        grant = self._sign(self.role.own.key, epoch, self.port.me.id)
        if grant is not None:
            campaign.grants[self.port.me.id] = grant
        self._win(campaign)

    def raise_epoch(self, above: int) -> None:
        """Have the voters grant an epoch above `above`. At a primary, or at a node that led before
        it was restarted."""
        self._hear_of(above)
        if not self.is_asking and (self.role.is_primary or self._may_campaign()):
            self._request_votes(pre_vote=True, transfer=False)

    def _hear_of(self, epoch: int) -> None:
        """Note an epoch for which some voter says that it has voted. A lying voter raises the next
        epoch by only a few forks each time, so that a higher epoch always remains; a true epoch
        beyond this step is reached in a few rounds."""
        own = self.role.cluster
        known = max(self._highest_epoch, 0 if own is None else own.epoch)
        self._highest_epoch = max(known, min(epoch, known + EPOCH_STEP_MOST))

    def on_campaign_timeout(self, timer: CampaignTimeout) -> None:
        """Give the campaign up, and try again at another time if there is still no primary."""
        self._campaign_failed()

    def cancel(self) -> None:
        """End any campaign, because there is a primary."""
        self.campaign = self.arc = None
        self.port.cancel_timer(CampaignTimeout())
        self.port.cancel_timer(CampaignDue())

    def _request_votes(self, pre_vote: bool, transfer: bool, start: Key | None = None) -> None:
        cluster = self.role.own
        highest = max(self.log.voted_epoch(cluster.key), cluster.epoch, self._highest_epoch)
        leaving = self.log.config.leaving
        if leaving is not None:  # perhaps it is served under its epoch already
            highest = max(highest, leaving.epoch)
        if fork_id(highest) != fork_id(cluster.epoch):  # of others: not in their lineage
            highest = above_fork(highest, self.port.rng)
        epoch = highest + 1
        self.campaign = Campaign(epoch, pre_vote, transfer, self.port.now, start)
        self.port.set_timer(self._timeout(), CampaignTimeout())
        self.port.count("campaigns", 0 if pre_vote else 1)
        if not pre_vote:
            self.log.vote(cluster.key, epoch, self.port.me.id)
        self._pre_voted = (self.port.me.id, self.port.now + self._rank_wait())
        message = RequestVote(cluster.key, epoch, self.log.position, pre_vote, transfer)
        for peer in self.log.voters:
            if peer.id != self.port.me.id:
                self.port.send(peer, message)
        if not pre_vote:
            self._keep_grant(self.port.me.id, self._sign(cluster.key, epoch, self.port.me.id))
        self._count_vote(self.port.me.id)

    def on_vote_reply(self, sender: Peer, message: VoteReply) -> None:
        """Count a vote or refusal; a majority of pre-votes starts the vote, one of votes wins."""
        campaign, cluster = self.campaign, self.role.cluster
        if cluster is None or message.key != cluster.key or not self.log.is_voter(sender.id):
            self.port.count("votes_refused")
            return  # nobody asked the sender
        self._hear_of(message.voted_epoch)
        if campaign is None or (message.key, message.epoch, message.pre_vote) != (
            cluster.key,
            campaign.epoch,
            campaign.pre_vote,
        ):
            return
        if message.granted and not message.pre_vote and not self._is_signed(sender, message):
            self.port.count("votes_refused")  # it would prove nothing to others
            return
        if message.granted:
            self._keep_grant(sender.id, message.grant)
            self._count_vote(sender.id, message.timeout)
        else:
            campaign.refused[sender.id] = None
            if len(campaign.refused) > len(self.log.voters) - self.log.majority():
                self._campaign_failed()

    def _sign(self, key: Key, epoch: int, candidate: NodeId) -> Signature | None:
        if self.signer is None:
            return None
        return self.signer.sign(granting(self.role.own.ring, key, epoch, candidate))

    def _is_signed(self, sender: Peer, message: VoteReply) -> bool:
        if self.signer is None:
            return True
        grant, ring = message.grant, self.role.own.ring
        signed = granting(ring, message.key, message.epoch, self.port.me.id)
        return grant is not None and grant.signer == sender.id and self.signer.holds(grant, signed)

    def _keep_grant(self, node: NodeId, grant: Signature | None) -> None:
        if grant is not None and self.campaign is not None and not self.campaign.pre_vote:
            self.campaign.grants[node] = grant

    def _count_vote(self, node: NodeId, timeout: float = 0.0) -> None:
        campaign = self.campaign
        assert campaign is not None
        if self.log.is_voter(node):
            campaign.granted[node] = timeout
        if len(campaign.granted) < self.log.majority():
            return
        if campaign.pre_vote and self.heartbeat.heard_at >= campaign.since:
            return  # the primary lives, and counts on this node's answer
        if campaign.pre_vote:
            self._request_votes(pre_vote=False, transfer=campaign.transfer, start=campaign.start)
            return
        self.port.count("elections_won")
        self._win(campaign)

    def _win(self, campaign: Campaign) -> None:
        won = replace(self._description(campaign), grants=tuple(campaign.grants.values()))
        self.cancel()
        self._outcome.election_won(won, campaign)

    def _description(self, campaign: Campaign) -> Cluster:
        """The cluster's description with this node as its primary."""
        cluster, me, config = self.role.own, self.port.me, self.log.config
        start = config.start if config.leaving is None else config.leaving.start
        given = config.given is not None and campaign.start is None
        start = campaign.start or start
        wanted = (self.arc or cluster).under(campaign.epoch, start=start, merged=given)
        if self.arc is not None or cluster.primary.id == me.id:
            return wanted
        # The silent primary stays a member, last in rank, until its link is lost as well: if it was
        # only slow or cut off it keeps its log, and its vote.
        others = self.health.healthy_first(cluster.others())
        rest = [p for p in (*others, cluster.primary) if p.id != me.id]
        return wanted.served_by(me, *rest)

    def _campaign_failed(self) -> None:
        self.port.cancel_timer(CampaignTimeout())
        self._pre_voted = ("", 0.0)
        if self.campaign is not None:
            self.campaign.over = True
        if self.arc is not None:
            self.campaign = self.arc = None
            self._outcome.transfer_failed()
        if self._leaderless():
            wait = self._timeout() * (0.5 + self.port.rng.random())
            self.port.set_timer(wait, CampaignDue())

    def _timeout(self) -> float:
        """Seconds until a campaign is given up: longer where messages take long."""
        return max(self.settings.grant_timeout, self.heartbeat.round_trip())

    def _rank_wait(self) -> float:
        """Seconds from one rank's turn to the next: enough for both rounds of the earlier
        candidate, since of two who ask for an epoch at the same time both may get too few votes."""
        return max(self.settings.rank_wait, 2.0 * self.heartbeat.delay())

    def _may_campaign(self) -> bool:
        cluster = self.role.cluster
        return (
            cluster is not None
            and not self.role.leaving
            and self.log.is_voter(self.port.me.id)
            and _has_fork_of(self.log.position, cluster)
        )

    def _leaderless(self) -> bool:
        """Whether the cluster needs another primary or epoch, as far as this node knows."""
        if self.role.led is not None:
            return self.log.fenced or self._highest_epoch > self.role.led.epoch
        return self.role.cluster is not None and self.heartbeat.is_primary_silent()

    # -- voter -----------------------------------------------------------------------------------

    def on_request_vote(self, sender: Peer, message: RequestVote) -> None:
        """Vote for the candidate, or say whether this voter would (pre-vote). A vote is stored
        before the answer leaves. Without a log there is nothing to compare the candidate's with,
        and no answer. Nor is there one to a node that is no voter by this node's log and no member
        by its description: nodes serve before they vote, and the primary says so first."""
        cluster, key = self.role.cluster, message.key
        if cluster is None or cluster.key != key or self.log.voter_log is None:
            return
        if not (self.log.is_voter(sender.id) or cluster.has_member(sender.id)):
            self.port.count("votes_refused")
            self.port.send(sender, Moved(cluster))
            return
        granted = (
            message.epoch > cluster.epoch
            and self.log.may_vote(key, message.epoch, sender.id)
            and is_up_to_date(message.position, self.log.position)
            and _has_fork_of(message.position, cluster)
            and self._may_replace_primary(sender, message.transfer)
        )
        if granted and message.pre_vote:
            granted = self._grants_pre_vote(sender.id)
        elif granted:
            self.log.vote(key, message.epoch, sender.id)
            self.heartbeat.voted()
            self.cancel()  # it no longer wants the epoch for itself
        voted_epoch = max(self.log.voted_epoch(key), cluster.epoch)
        timeout = self.heartbeat.timeout_left() if granted else 0.0
        signed = granted and not message.pre_vote
        grant = self._sign(key, message.epoch, sender.id) if signed else None
        answer = VoteReply(
            key, message.epoch, message.pre_vote, granted, voted_epoch, timeout, grant
        )
        self.port.send(sender, answer)
        if message.epoch <= cluster.epoch or not cluster.has_member(sender.id):
            self.port.send(sender, Moved(cluster))

    def _grants_pre_vote(self, candidate: NodeId) -> bool:
        """Whether no other candidate got this voter's pre-vote a short time ago: of two that go on
        to the vote both might get too few."""
        other, until = self._pre_voted
        if other != candidate and until > self.port.now:
            return False
        self._pre_voted = (candidate, self.port.now + self._rank_wait())
        return True

    def _may_replace_primary(self, candidate: Peer, transfer: bool) -> bool:
        """Whether the present primary may be replaced by `candidate`: it wants that itself
        (`transfer`), asks for another epoch itself, or is silent."""
        cluster = self.role.own
        if self.role.is_primary:
            return not self.heartbeat.has_lease()
        unvoted = self.log.voted_epoch(cluster.key) <= cluster.epoch
        renewal = candidate.id == cluster.primary.id and unvoted
        return transfer or renewal or self.heartbeat.is_primary_silent()


def _has_fork_of(position: Version, cluster: Cluster) -> bool:
    """Whether a log that ends at `position` is of the fork that leads `cluster`, or a later one."""
    return fork_id(position[0]) >= fork_id(cluster.epoch)
