"""The messages that a node may send, by the role in its certificate: one table
(docs/design/security.md).

Asked once for each message that comes over a link whose peer is authenticated. Where nodes have no
keys nothing is asked. A role may do all that the roles before it may. What the roles of a cluster
are (primary, standby …) is decided by elections and looked at by the machines.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, NamedTuple

from overlay.chord.messages import Find
from overlay.lower_random.messages import Shuffle, Walk
from overlay.machine import Message, NodeId
from overlay.upper_tree.messages import Register, Visit


class Role(IntEnum):
    """The roles that a node's certificate can permit."""

    LEAF = 1
    """Publishes and subscribes for its programs; does nothing for others."""
    MEMBER = 2
    """Takes part in the random graph, hosts virtual nodes, passes on."""
    VOTER = 3
    """Serves in clusters as well: owns trees, votes, leads shards of streams."""
    ISSUER = 4
    """Signs certificates as well, for tokens that name it."""
    ADMIN = 5
    """Changes what holds for the whole overlay."""


class Principal(NamedTuple):
    """The identity at the other end of a connection, by its certificate."""

    id: NodeId
    role: Role
    tenant: str


ROLES: Final = {role.name.lower(): role for role in Role}
"""Roles by the name that is in certificates and configurations."""

LEAST: Final[dict[Role, str]] = {
    Role.LEAF: (
        "RevocationsKnown DocumentVersion AskClock ClockTold "
        "Shuffle Walk Find Contact AskNeighbourhood "
        "Register Unregister Renew AskTree Invalidated CacheReport Visit "
        "FindHosts AskMatches AskTrees AskEvent EventFacts "
        "FoundStream ChangeStream EraseStream "
        "AskStream AskStreams AskShards OpenProducer AppendRows AskFork JoinFork "
        "ReadShard KeepReadings EndReadings CommitPosition AskRow "
        "PrepareHalf DecideHalf HalfNotKnown AskHalves "
        "JoinGroup KeepMembers LeaveGroup SettleLeases AskGroups EndDeadLetters ForgetGroup "
        "ChangeGroup"
    ),
    Role.MEMBER: (
        "RevocationList SignedDocument "
        "ShuffleReply WalkHit WalkMiss StalePoint Moved "
        "RingMet RingEnded "
        "RecruitReply StillHosting HostAnswer StopsHosting Assigned Installed OrdersRefused "
        "ServingReply "
        "PartTaken Accepted ComeAgain EventsRefused TreeMoved Deliver Undelivered "
        "DeliveriesGivenUp NoticeHandedOver "
        "HostsFound MatchesFound TreesReport NotOwner Observed RecoverReply "
        "ShardsReport ShardsOrphaned ShardsStatus RequestShardVote ShardVoteReply ShardFenced "
        "ShardFetch ShardFetched ShardAppend ShardAck ShardBehind ProducerIsOpen RowsAppended "
        "ShardMissing ShardMissingSent ForkIsOpen ForkRefused CopyFork ForkChunkCopied "
        "AppendRefused ReadingBegan StreamRows SharedRows ReadingsScanned ReadingsKept "
        "PositionCommitted ReadingRefused ReadingsMoved RowFacts GroupJoined LeasedRows "
        "LeasesSettled MembersKept MemberRefused MembersMoved ConfirmLeader LeaderConfirmed "
        "GroupsReport GroupChanged GroupRefused "
        "HalfIsPrepared HalfDecided HalfRefused HalvesFound ReviewHalf"
    ),
    Role.VOTER: (
        "FindReply LogEntries LogSnapshot LogAck ClusterHello ClusterHelloReply ClusterHeartbeat "
        "ClusterHeartbeatReply RequestVote VoteReply Merge MergeReply Stabilise Neighbourhood "
        "Rectify Recruit Membership Leaving Released TakeOver TakenOver AskArc ArcGiven "
        "MergeOffer MergeAnswer MergeState AskMerge MergeCancelled Rejoin "
        "Observe ObserverEntries ObserverSnapshot ObserverReleased RecoverRequest "
        "BetterPivots Registered Unregistered Renewed RenewRefused Adopt Adopted "
        "AdoptRefused TreeAnswer Invalidate AskCached Assign TreesHosted AskToHost Install "
        "Uninstall ServingBeat "
        "StreamFound StreamRefused StreamElsewhere StreamsReport KeepShards"
    ),
}
"""By the least role that may send them, the messages by name."""

NOBODY: Final = frozenset(("Relayed",))
"""Messages that are only sent where nodes have no keys: what a helper carries is not authenticated
from end to end, so there are no detours here (`overlay/lower_random/relays.py`)."""

RIGHTS: Final[dict[str, Role]] = {
    name: role for role, names in LEAST.items() for name in names.split()
}
"""The least role for each message. A message without a row is refused, whoever sends it."""


def _shuffle(sender: NodeId, message: Shuffle) -> bool:
    return not (message.neighbours or message.access_points or message.rings)


def _own(sender: NodeId, message: Walk | Find) -> bool:
    return message.origin.id == sender


def _own_visit(sender: NodeId, message: Visit) -> bool:
    return message.origin.id == sender and message.hop <= 1 and message.part is None


LEAF_RULES: Final[dict[type[Message], Callable[[NodeId, Any], bool]]] = {
    Shuffle: _shuffle,
    Walk: _own,
    Find: _own,
    Visit: _own_visit,
}
"""Messages that a leaf may send only about itself: it asks for neighbours and names none, walks and
publishes in its own name."""


def _register(sender: NodeId, message: Register) -> bool:
    """Ids of registrations begin with their subscriber's: else it would replace another's."""
    own = f"{sender}."
    return all(
        each.subscriber.id == sender and each.id.startswith(own) for each in message.registrations
    )


def _visit(sender: NodeId, message: Visit) -> bool:
    """Events are of the node that they are said to come from: of this one, or of one for which it
    passes them on, as hosts do (`is_from_host` in upper_tree/host/visit_handler.py)."""
    origin = message.origin.id
    if sender != origin and message.hop <= 1 and message.part is None:
        return False
    return {event.publisher for event in message.events} <= {origin}


RULES: Final[dict[type[Message], Callable[[NodeId, Any], bool]]] = {
    Register: _register,
    Visit: _visit,
}
"""Messages that everybody may send only about itself."""


def refusal(sender: Principal, message: Message) -> str:
    """Return why `sender` may not send this; empty if it may."""
    kind = type(message)
    least = RIGHTS.get(kind.__name__)
    if least is None or sender.role < least:
        return f"{kind.__name__} is not for a {sender.role.name.lower()}"
    rule = RULES.get(kind)
    if rule is not None and not rule(sender.id, message):
        return f"{kind.__name__} in the name of another node"
    if sender.role is Role.LEAF:
        rule = LEAF_RULES.get(kind)
        if rule is not None and not rule(sender.id, message):
            return f"{kind.__name__} with what a leaf may not say"
    return ""
