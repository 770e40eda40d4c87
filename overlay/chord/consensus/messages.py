"""The vocabulary of a cluster's voters: log, heartbeats, election (P1, P4). Names as in the paper.

A *position* in a log is (epoch of its last entry, number of its entries): of two logs of a cluster
the one with the higher position is further.
"""

from __future__ import annotations

import msgspec

from overlay.chord.messages import Cluster
from overlay.machine import Key, Message, NodeId, Peer, Version


class Config(msgspec.Struct, frozen=True, array_like=True):
    """What the log itself says of the cluster; the newest in a node's log counts, committed or not
    (Ongaro's single-server changes, *Consensus: bridging theory and practice*, section 4)."""

    voters: tuple[Peer, ...]
    start: Key  # of the arc
    leaving: Cluster | None = None
    """A part of the arc that may be served by this new cluster already."""


class LogItem(msgspec.Struct, frozen=True, array_like=True):
    """One entry: of the registry (`body`) or of the cluster itself (`config`)."""

    epoch: int
    body: bytes = b""
    config: Config | None = None


class LogEntries(Message, frozen=True):
    """From the primary: what follows in the log after the position `after`."""

    key: Key
    epoch: int
    after: Version
    items: tuple[LogItem, ...]


class LogCopy(Message, frozen=True):
    """One piece of the whole state at `position`, in as many messages as it needs."""

    key: Key
    epoch: int
    position: Version
    config: Config
    entries: tuple[bytes, ...]
    first: bool
    last: bool


class LogAck(Message, frozen=True):
    """The voter has the first `next` entries as they are in the log of this epoch's primary."""

    key: Key
    epoch: int
    next: int


class ClusterHello(Message, frozen=True):
    """From a primary to one whose log it does not know (HELLO): I lead, how far are you?"""

    cluster: Cluster


class ClusterHelloReply(Message, frozen=True):
    """HELLO_REPLY: so far; (0, 0) is: I have nothing."""

    key: Key
    epoch: int
    position: Version


class Beat(Message, frozen=True):
    """From the primary to the members: I live; look for no other for `term` seconds."""

    key: Key
    epoch: int
    number: int
    term: float


class BeatReply(Message, frozen=True):
    """I follow you, and have granted no epoch higher than `promised`."""

    key: Key
    epoch: int
    number: int
    promised: int


class Nominate(Message, frozen=True):
    """A voter asks the others for `epoch`.

    With `trial` it only asks whether they would grant it: whoever still hears the primary would
    not, so that one broken link makes no election. With `wanted` the primary itself wants to be
    replaced by the sender.
    """

    key: Key
    epoch: int
    position: Version
    trial: bool
    wanted: bool


class Grant(Message, frozen=True):
    """Answer to Nominate; durable before it is sent, unless it is a trial. `promised` is the
    highest epoch granted to anybody; for `term` seconds nobody else is granted one."""

    key: Key
    epoch: int
    trial: bool
    granted: bool
    promised: int
    term: float = 0.0


class Promise(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """On disk: this node grants no epoch below this one, and this one to nobody else.

    `others` are the voters beside this node, as known then: where a node that returns finds them.
    """

    key: Key
    epoch: int
    candidate: NodeId
    others: tuple[Peer, ...] = ()
