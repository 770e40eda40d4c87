"""The overlay's messages and bytes by purpose: data plane beside maintenance.

Messages are those that nodes pass to their links, counted as everywhere: for the data plane each
event or attribute of a message, for the rest each message. Bytes are those that connections carry,
including retransmissions and the links' own frames, so that a lossy network shows in the bytes and
not in the messages.

One table has the purpose of each message. Facts that gossip carries beside the view (access points,
hints of the ring) travel in the view's own messages and are counted there.
"""

from __future__ import annotations

from typing import Final

import msgspec

from overlay.links.messages import Batch, Frame
from overlay.links.receive_buffer import unpack
from overlay.machine import Message

DATA: Final[dict[str, tuple[str, ...]]] = {
    "walk": ("Walk",),
    "visit": ("Visit",),
    "deliver": ("Deliver", "Undelivered", "NoticeHandedOver"),
}
"""By purpose, the messages that are compared with the lower bound."""

LINKS: Final = "links"
"""The purpose of links' own frames: acknowledgements and heartbeats, Hello and Bye, and the heads
of batches."""

OTHER: Final = "other"
"""The purpose of a message that is in no table; a test checks that there is none."""

ARRAY_16: Final = 0xDC
"""The first byte of a MessagePack array of 16 items or more, whose length is in two bytes."""

MAINTENANCE: Final[dict[str, tuple[str, ...]]] = {
    "views": ("Shuffle", "ShuffleReply"),
    "access_points": ("StalePoint",),
    "walk_answers": ("WalkHit", "WalkMiss"),
    "keys": ("RevocationsKnown", "RevocationList", "DocumentVersion", "SignedDocument"),
    "ring": (
        *("Find", "FindReply", "Stabilise", "Neighbourhood", "AskNeighbourhood", "Rectify"),
        *("Moved", "Contact", "RingMet", "Merge", "MergeReply", "RingEnded"),
    ),
    "clusters": (
        *("Recruit", "RecruitReply", "Membership", "Leaving", "Released"),
        *("TakeOver", "TakenOver", "AskArc", "ArcGiven", "RecoverRequest", "RecoverReply"),
        *("AskMerge", "MergeOffer", "MergeAnswer", "MergeCancelled", "MergeState"),
    ),
    "log_copies": ("LogEntries", "LogSnapshot", "LogAck", "ClusterHello", "ClusterHelloReply"),
    "observers": ("Observe", "Observed", "ObserverEntries", "ObserverSnapshot", "ObserverReleased"),
    "heartbeats": ("ClusterHeartbeat", "ClusterHeartbeatReply"),  # of primaries and their voters
    "elections": ("RequestVote", "VoteReply", "Rejoin"),
    "leases": ("Renew", "RenewRefused", "Renewed"),
    "gap_notices": ("DeliveriesGivenUp",),
    "relayed": ("Relayed",),  # frames of any kind, of sessions whose link is silent
    "registrations": (
        "Register",
        "Registered",
        "BetterPivots",
        "ComeAgain",
        "Unregister",
        "Unregistered",
        "NotOwner",
        *("Adopt", "Adopted", "AdoptRefused"),  # by who owned them in a ring that ends
    ),
    "summaries": ("AskTree", "TreeAnswer", "Invalidate", "Invalidated", "AskCached", "CacheReport"),
    "hosts": (
        "Assign",
        "Assigned",
        "OrdersRefused",
        "Install",
        "Installed",
        "Uninstall",
        "TreesHosted",
        "StillHosting",
        "ServingBeat",
        "ServingReply",
        "AskToHost",
        "HostAnswer",
        "StopsHosting",
    ),
    "acceptances": ("Accepted", "EventsRefused", "PartTaken", "TreeMoved"),
    "streams_directory": (
        *("FoundStream", "ChangeStream", "EraseStream", "AskStream", "StreamFound"),
        "StreamRefused",
        *("StreamElsewhere", "ShardsOrphaned", "KeepShards", "ShardsReport"),
    ),
    "stream_readings": (
        *(
            "ReadShard",
            "ReadingBegan",
            "ReadingRefused",
            "StreamRows",
            "SharedRows",
            "ReadingsScanned",
        ),
        *("KeepReadings", "ReadingsKept", "ReadingsMoved", "EndReadings"),
        *("CommitPosition", "PositionCommitted"),
    ),
    "stream_groups": (
        *("JoinGroup", "GroupJoined", "LeasedRows", "SettleLeases", "LeasesSettled"),
        *("KeepMembers", "MembersKept", "LeaveGroup", "MemberRefused", "MembersMoved"),
        *("ConfirmLeader", "LeaderConfirmed"),
    ),
    "shard_logs": (
        *("ShardSeal", "ShardSealed", "ShardFenced", "ShardFetch", "ShardFetched"),
        *("ShardAppend", "ShardAck", "ShardBehind"),
        *("ShardMissing", "ShardMissingSent", "CopyFork", "ForkChunkCopied"),
    ),
    "appends": (
        *("OpenProducer", "AppendRows", "ProducerIsOpen", "RowsAppended", "AppendRefused"),
        *("AskFork", "ForkIsOpen", "ForkRefused", "JoinFork"),
        *("PrepareHalf", "HalfIsPrepared", "DecideHalf", "HalfDecided", "HalfRefused"),
        *("ReviewHalf", "HalfNotKnown"),
    ),
    "inspection": (
        *("AskClock", "ClockTold"),
        *("AskRow", "RowFacts", "AskHalves", "HalvesFound"),
        *("AskStreams", "StreamsReport", "AskShards", "ShardsStatus"),
        *("AskGroups", "GroupsReport", "EndDeadLetters", "ForgetGroup", "ChangeGroup"),
        *("GroupChanged", "GroupRefused"),
        *("AskTrees", "Trees", "AskEvent", "EventFacts"),
        *("FindHosts", "HostsFound", "AskMatches", "MatchesFound"),
    ),
    LINKS: (),
    OTHER: (),
}
"""By purpose, all other messages."""

PURPOSES: Final[dict[str, str]] = {
    name: purpose
    for table in (DATA, MAINTENANCE)
    for purpose, names in table.items()
    for name in names
}

BATCH_HEAD: Final = 45
"""Bytes of a batch's frame other than its body: length, tag, numbers, digest, window, hybrid
logical clock (measured 39 to 50 with the wire's codec)."""


class Flow(msgspec.Struct, frozen=True):
    """Messages and bytes of one purpose. Rates are per node and virtual second of its life."""

    messages: int
    bytes: int
    messages_per_node_s: float
    bytes_per_node_s: float


class TrafficReport(msgspec.Struct, frozen=True):
    """The flows of all purposes that had any message."""

    data: dict[str, Flow]
    maintenance: dict[str, Flow]
    data_total: Flow
    maintenance_total: Flow
    node_seconds: float


class Traffic:
    """Counts messages and bytes by purpose while a world runs."""

    def __init__(self) -> None:
        self.messages: dict[str, int] = {}
        """The number of messages by name."""
        self.bytes: dict[str, int] = {}
        """The number of bytes by message name; frames of the links under `LINKS`."""
        self._split = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
        self._frame = msgspec.msgpack.Encoder().encode

    def sent(self, message: Message) -> None:
        """Count a message that a node passes to a link."""
        name = str(message.__struct_config__.tag)
        self.messages[name] = self.messages.get(name, 0) + (message.data_units() or 1)

    def written(self, frame: Frame) -> int:
        """Count a frame that a connection takes. Returns its bytes, including the length before
        it."""
        found = self.bytes
        if type(frame) is not Batch:
            size = 4 + len(self._frame(frame))
            self.messages[LINKS] = self.messages.get(LINKS, 0) + 1
            found[LINKS] = found.get(LINKS, 0) + size
            return size
        found[LINKS] = found.get(LINKS, 0) + BATCH_HEAD
        body = unpack(frame.body) if frame.compressed else frame.body
        saved = len(frame.body) / len(body)  # compressed: each message has its share
        for raw in self._split(body):
            name = tag(raw)
            found[name] = found.get(name, 0) + int(len(raw) * saved)
        return BATCH_HEAD + len(frame.body)

    def report(self, node_seconds: float) -> TrafficReport:
        """Return the counts, with rates for nodes that ran `node_seconds` in total."""

        def flow(names: list[str]) -> Flow:
            messages = sum(self.messages.get(name, 0) for name in names)
            size = sum(self.bytes.get(name, 0) for name in names)
            lived = node_seconds or 1.0
            return Flow(messages, size, round(messages / lived, 4), round(size / lived, 1))

        names: dict[str, list[str]] = {LINKS: [LINKS]}
        for name in {**self.messages, **self.bytes}:
            if name != LINKS:
                names.setdefault(PURPOSES.get(name, OTHER), []).append(name)
        data = {purpose: names[purpose] for purpose in DATA if purpose in names}
        rest = {purpose: names[purpose] for purpose in MAINTENANCE if purpose in names}
        return TrafficReport(
            data={purpose: flow(found) for purpose, found in data.items()},
            maintenance={purpose: flow(found) for purpose, found in rest.items()},
            data_total=flow([name for found in data.values() for name in found]),
            maintenance_total=flow([name for found in rest.values() for name in found]),
            node_seconds=round(node_seconds, 3),
        )


def tag(raw: msgspec.Raw) -> str:
    """Return the tag of an encoded message: the text at the head of its array (MessagePack: one
    byte for the array, three if it has 16 items or more, one with the text's length; no name has 32
    letters)."""
    head = bytes(memoryview(raw)[:36])
    at = 3 if head[0] == ARRAY_16 else 1
    return head[at + 1 : at + 1 + (head[at] & 31)].decode("ascii", "replace")
