"""The vocabulary of a cluster's voters: log, heartbeats, election (P1, P4). Names as in the paper.

A *position* in a log is (epoch of its last entry, number of its entries): of two logs of a cluster
the one with the higher position is further.
"""

from __future__ import annotations

import msgspec

from overlay.chord.messages import Cluster
from overlay.health import NodeHealth
from overlay.links.statements import Signature
from overlay.machine import Duration, Key, Message, NodeId, Peer, Uint53, Version


class Configuration(msgspec.Struct, frozen=True, array_like=True):
    """The members and voters of the cluster as its log states them. The newest configuration in a
    node's log counts, committed or not (Ongaro's single-server changes, *Consensus: bridging theory
    and practice*, section 4)."""

    voters: tuple[Peer, ...]
    start: Key  # of the arc
    leaving: Cluster | None = None
    """A part of the arc that may be served by this new cluster already."""
    given: Cluster | None = None
    """This cluster as it was when it gave its whole arc to the one after it."""
    promised: Cluster | None = None
    """The cluster before this one, whose arc is taken if its log gives it."""
    taken: tuple[Key, Version] | None = None
    """Key and version of the last cluster whose arc was taken so."""


class LogEntry(msgspec.Struct, frozen=True, array_like=True):
    """One entry: an operation of the registry (`body`) or a change of the cluster (`config`)."""

    epoch: Uint53
    body: bytes = b""
    config: Configuration | None = None


class LogEntries(Message, frozen=True):
    """AppendEntries: from the primary, what follows in the log after the position `after`."""

    key: Key
    epoch: Uint53
    after: Version
    entries: tuple[LogEntry, ...]


class LogSnapshot(Message, frozen=True):
    """InstallSnapshot: one piece of the whole state at `position`, the `first` to the `last`."""

    key: Key
    epoch: Uint53
    position: Version
    config: Configuration
    entries: tuple[bytes, ...]
    first: bool
    last: bool
    before: Uint53 | None = None
    """Entries in the pieces before this one; None: the sender's release does not say."""


class LogAck(Message, frozen=True):
    """The follower has the first `next` entries on disk, as this epoch's primary has them. That is
    so whatever it said before and has not arrived."""

    overtakes = True

    key: Key
    epoch: Uint53
    next: Uint53


class ClusterHello(Message, frozen=True):
    """HELLO, from a primary to a node whose log it does not know: how far is it?"""

    cluster: Cluster
    number: Uint53 = 0
    """The number of this question; 0: the sender's release does not number them."""


class ClusterHelloReply(Message, frozen=True):
    """HELLO_REPLY: the sender's log is at `position`; (0, 0) without a log."""

    key: Key
    epoch: Uint53
    position: Version
    number: Uint53 = 0
    """The number of the last question that was answered, by this or before. What answers an older
    one was said before the sender has got what was sent since."""


class ClusterHeartbeat(Message, frozen=True):
    """From the primary to the members, which wait for its next heartbeat for `timeout` seconds
    before they look for another primary."""

    overtakes = True

    key: Key
    epoch: Uint53
    number: Uint53
    timeout: Duration


class ClusterHeartbeatReply(Message, frozen=True):
    """Answer: the sender follows the primary, and has voted for no epoch higher than
    `voted_epoch`."""

    overtakes = True

    key: Key
    epoch: Uint53
    number: Uint53
    voted_epoch: Uint53
    health: NodeHealth | None = None  # what I find of myself, if I am sub-healthy (T6)


class RequestVote(Message, frozen=True):
    """A candidate asks the voters for `epoch`; its log is at `position`.

    With `pre_vote` it only asks whether they would vote for it: a voter that still hears the
    primary would not, so that one broken link makes no election. With `transfer` the primary itself
    wants to be replaced by the sender.
    """

    key: Key
    epoch: Uint53
    position: Version
    pre_vote: bool
    transfer: bool


class VoteReply(Message, frozen=True):
    """Answer to RequestVote; unless it is a pre-vote the vote is durable before this is sent.
    `voted_epoch` is the highest epoch for which the sender has voted; for `timeout` seconds it
    votes for no other."""

    key: Key
    epoch: Uint53
    pre_vote: bool
    granted: bool
    voted_epoch: Uint53
    timeout: Duration = 0.0
    grant: Signature | None = None
    """In an overlay with keys: the vote, signed."""


class VoteRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """On disk: this node votes for no epoch below this one, and for no other in this one.
    `others` are the voters beside this node, as known then: where a node that returns finds
    them."""

    key: Key
    epoch: Uint53
    candidate: NodeId
    others: tuple[Peer, ...] = ()
