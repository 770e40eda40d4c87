"""All types of commands and replies: what the control socket decodes, and what it sends."""

from __future__ import annotations

from overlay.client import (
    AppendEvents,
    Attributes,
    BeginReading,
    CloseSession,
    CommitReading,
    CompleteUntil,
    Delivered,
    Done,
    Drain,
    Dropped,
    DryRun,
    Ended,
    EndReading,
    EndSubscription,
    Events,
    EventsAppended,
    EventsTaken,
    Explained,
    Failed,
    Feed,
    Gather,
    Gathered,
    GetAttributes,
    GetEvents,
    GetIncidents,
    GetPeers,
    GetRing,
    GetStatus,
    GetStreams,
    GetSubscriptions,
    Grant,
    Incidents,
    Lapsed,
    Located,
    OpenSession,
    Peers,
    Publish,
    Published,
    ReadingReady,
    Recipients,
    RemoveStream,
    ResumeSession,
    RingClusters,
    SessionOpened,
    SessionResumed,
    Status,
    Streams,
    Subscribe,
    Subscribed,
    Subscriptions,
    TakeEvents,
    Unsubscribe,
    Where,
    Why,
)
from overlay.operator_commands import OPERATOR_COMMANDS, OPERATOR_REPLIES
from overlay.stream_client import (
    CHECK_COMMANDS,
    GROUP_COMMANDS,
    GROUP_REPLIES,
    TRANSACTION_COMMANDS,
    TRANSACTION_REPLIES,
    AddStream,
    BeginProducer,
    EditStream,
    LogCheck,
    ProducerReady,
    RowExplained,
    WhyRow,
)

COMMANDS = (
    Subscribe
    | Gather
    | Unsubscribe
    | EndSubscription
    | Publish
    | GetStatus
    | GetPeers
    | GetRing
    | GetIncidents
    | GetAttributes
    | GetSubscriptions
    | GetEvents
    | Where
    | Why
    | DryRun
    | Feed
    | AddStream
    | EditStream
    | WhyRow
    | RemoveStream
    | GetStreams
    | BeginProducer
    | AppendEvents
    | BeginReading
    | TakeEvents
    | CommitReading
    | EndReading
    | Drain
    | Grant
    | OpenSession
    | ResumeSession
    | CloseSession
    | GROUP_COMMANDS
    | TRANSACTION_COMMANDS
    | OPERATOR_COMMANDS
    | CHECK_COMMANDS
)
"""The types that the control socket decodes; nothing else comes in."""

REPLIES = (
    Failed
    | Dropped
    | Lapsed
    | Ended
    | Done
    | Subscribed
    | Published
    | Delivered
    | Gathered
    | CompleteUntil
    | RowExplained
    | Status
    | Peers
    | RingClusters
    | Incidents
    | Located
    | Subscriptions
    | Attributes
    | Explained
    | Recipients
    | Events
    | Streams
    | ProducerReady
    | EventsAppended
    | ReadingReady
    | EventsTaken
    | SessionOpened
    | SessionResumed
    | GROUP_REPLIES
    | TRANSACTION_REPLIES
    | OPERATOR_REPLIES
    | LogCheck
)
"""The types that the control socket sends."""
