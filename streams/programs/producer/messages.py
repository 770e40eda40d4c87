"""The vocabulary between a producer's node and the leader of a shard, or a replica that opens a
fork of it (streams/services/fork/)."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import msgspec

from overlay.machine import Message, NodeId, Peer, Uint53
from streams.log.chunk import CHUNK_MOST
from streams.log.writers import Asker
from streams.shard.messages import Shard

BATCH_MOST: Final = CHUNK_MOST - 64 * 1024
"""Bytes of one batch's rows at most: what a chunk has beside its head, zone map and batch head."""

BATCHES_MOST: Final = 4_096
"""Batches of one request at most."""

NAME_MOST: Final = 128
"""Characters of a producer's name at most."""


NODE_PREFIX: Final = "@"
"""Begins the name of a node's own producer, which its id follows. Names of programs' producers
do not."""

FORKED: Final = "~"
"""In a fork, stands between the name of a node's own producer and that of the fork, if it began
there: its numbers mean nothing in the main log."""

ProducerName = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_MOST)]
Number = Uint53


class RowBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A batch: `count` rows (`streams.log.batches.encode_rows`) that are appended together."""

    count: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    rows: bytes


class Opener(NamedTuple):
    """Who opens a session, as its token says: the program's own token ("": it has none), and how
    many times it has opened one before."""

    program: str
    resumed: int


def token_of(opener: Opener, attempt: str) -> str:
    """The token of a session: `attempt` is the same when the same opening is asked for again."""
    return f"{opener.program}/{opener.resumed}/{attempt}"


def opener_of(token: str) -> Opener:
    """Who has opened the session with this token. One without a program's is of nobody."""
    program, _, rest = token.partition("/")
    resumed, is_one, _ = rest.partition("/")
    return Opener(program, int(resumed)) if is_one and resumed.isdecimal() else Opener("", 0)


class OpenProducer(Message, frozen=True):
    """Begin a session, and end the producer's former one. Asked twice with the same `token`, it is
    the same session. A token that says that its program goes on (`token_of`) ends that
    program's own sessions only. `known`: only if the producer is known; `after`: only if its newest
    session is that one (0: any). `step`: which step of the producer's work it is for; an earlier
    one than its newest is refused (0: none). Answered by ProducerIsOpen or AppendRefused."""

    shard: Shard
    request: Number
    producer: ProducerName
    token: Annotated[str, msgspec.Meta(max_length=NAME_MOST)]
    known: bool = False
    after: Number = 0
    step: Number = 0
    asker: Asker | None = None
    """The sender's tenant, as the leader's node fills it in; so below."""


class ProducerIsOpen(Message, frozen=True):
    """The session is in the log. The rows below `next` are appended, and no others. `begun`: number
    of the first row of the producer's newest step."""

    shard: Shard
    request: Number
    session: Number
    next: Number
    begun: Number = 0


class AppendRows(Message, frozen=True):
    """Append batches behind one another, of which the first row has the number `sequence`. Answered
    by RowsAppended or AppendRefused."""

    shard: Shard
    request: Number
    producer: ProducerName
    session: Number
    sequence: Number
    batches: Annotated[tuple[RowBatch, ...], msgspec.Meta(min_length=1, max_length=BATCHES_MOST)]
    asker: Asker | None = None


class Run(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Rows of a request that lie behind one another in one chunk: their numbers, and the place.
    `hash` is that of the chunk; empty: the rows are there, and their receipt is not kept. `fork`:
    the place is in this fork of the shard, and not yet in its main log."""

    sequence: Uint53
    count: Uint53
    offset: Uint53
    chunk: Uint53
    epoch: Uint53
    hash: bytes
    replicas: tuple[NodeId, ...]
    fork: Annotated[str, msgspec.Meta(max_length=64)] = ""


class RowsAppended(Message, frozen=True):
    """All rows of a request are committed. `runs` are in the order of their numbers; those of rows
    whose place is not kept are missing."""

    shard: Shard
    request: Number
    runs: tuple[Run, ...]


class AppendRefused(Message, frozen=True):
    """A request was not carried out: `code` says why, and what is known of the rows. `expected`:
    with SEQUENCE the number that comes next; `leader`: with MOVED who leads, if that is known."""

    shard: Shard
    request: Number
    code: Annotated[str, msgspec.Meta(max_length=32)]
    reason: Annotated[str, msgspec.Meta(max_length=500)]
    expected: Uint53 = 0
    leader: Peer | None = None


Fork = Annotated[str, msgspec.Meta(max_length=64)]


class AskFork(Message, frozen=True):
    """A producer's node asks a replica for a fork of the shard. Answered by ForkIsOpen or
    ForkRefused, or not at all while one is being opened."""

    capability = "forks"

    shard: Shard
    request: Number


class ForkIsOpen(Message, frozen=True):
    """The sender has a fork of the shard, which takes rows."""

    capability = "forks"

    shard: Shard
    request: Number
    fork: Fork


class ForkRefused(Message, frozen=True):
    """The sender opens no fork, and why."""

    capability = "forks"

    shard: Shard
    request: Number
    reason: Annotated[str, msgspec.Meta(max_length=500)]


class JoinFork(Message, frozen=True):
    """A producer goes on in a fork, which `shard` names, with the session of the main log: all its
    rows below `next` are acknowledged, and no others. Answered by ProducerIsOpen, with the first
    number that the fork does not know to be appended, or by AppendRefused."""

    capability = "forks"

    shard: Shard
    request: Number
    producer: ProducerName
    session: Number
    next: Number
    asker: Asker | None = None
