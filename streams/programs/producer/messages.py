"""The vocabulary between a producer's node and the leader of a shard, or a replica that opens a
fork of it (streams/services/fork/)."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import msgspec

from overlay.command_faults import PRODUCER_NAME_MOST
from overlay.machine import Message, NodeId, Peer, Uint53
from streams.log.chunk import CHUNK_MOST
from streams.log.writers import Asker
from streams.shard.messages import Shard

BATCH_MOST: Final = CHUNK_MOST - 64 * 1024
"""The limit of bytes of one batch's rows: the room in a chunk beside its heads and zone map."""

BATCHES_MOST: Final = 4_096
"""The limit of batches in one request."""

FORKED: Final = "~"
"""The separator between the name of a node's own producer and the fork in which its session began,
since its numbers are not those of the main log."""

ProducerName = Annotated[str, msgspec.Meta(min_length=1, max_length=PRODUCER_NAME_MOST)]
Number = Uint53


class RowBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A batch of `count` rows (`streams.log.batches.encode_rows`) that are appended together."""

    count: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    rows: bytes


class Opener(NamedTuple):
    """The opener of a session: the program's token ("": none), and the number of sessions that the
    program has opened before."""

    program: str
    resumed: int


def token_of(opener: Opener, attempt: str) -> str:
    """Return the token of a session. A repeated request has the same `attempt`."""
    return f"{opener.program}/{opener.resumed}/{attempt}"


def opener_of(token: str) -> Opener:
    """Return the opener of the session with this token."""
    program, _, rest = token.partition("/")
    resumed, is_one, _ = rest.partition("/")
    return Opener(program, int(resumed)) if is_one and resumed.isdecimal() else Opener("", 0)


class OpenProducer(Message, frozen=True):
    """Begin a session, and end the producer's former one. A repeat with the same `token` is the
    same session. The token of a program that continues (`token_of`) ends sessions of that program
    only. `known`: refuse an unknown producer; `after`: refuse if the newest session is another one
    (0: any). `step`: the step of the producer's work; an earlier step than its newest is refused
    (0: none). Answered by ProducerIsOpen or AppendRefused."""

    shard: Shard
    request: Number
    producer: ProducerName
    token: Annotated[str, msgspec.Meta(max_length=PRODUCER_NAME_MOST)]
    known: bool = False
    after: Number = 0
    step: Number = 0
    asker: Asker | None = None
    """The sender's tenant, set by the leader's node, here and below."""


class ProducerIsOpen(Message, frozen=True):
    """The session is in the log. `next`: the number below which all rows are appended, and no
    others. `begun`: the number of the first row of the producer's newest step."""

    shard: Shard
    request: Number
    session: Number
    next: Number
    begun: Number = 0


class AppendRows(Message, frozen=True):
    """Append consecutive batches. `sequence`: the number of their first row. Answered by
    RowsAppended or AppendRefused."""

    shard: Shard
    request: Number
    producer: ProducerName
    session: Number
    sequence: Number
    batches: Annotated[tuple[RowBatch, ...], msgspec.Meta(min_length=1, max_length=BATCHES_MOST)]
    asker: Asker | None = None


class Run(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Consecutive rows of a request in one chunk: their numbers, and their place. `hash`: that of
    the chunk; empty: the rows are there, but their receipt is not kept. `fork`: the fork in which
    the place is, until the rows are in the main log."""

    sequence: Uint53
    count: Uint53
    offset: Uint53
    chunk: Uint53
    epoch: Uint53
    hash: bytes
    replicas: tuple[NodeId, ...]
    fork: Annotated[str, msgspec.Meta(max_length=64)] = ""


class RowsAppended(Message, frozen=True):
    """All rows of a request are committed. `runs`: in the order of their numbers, without the rows
    whose place is not kept."""

    shard: Shard
    request: Number
    runs: tuple[Run, ...]


class AppendRefused(Message, frozen=True):
    """A request is refused with a code of `streams.access.reasons`. `expected`: with SEQUENCE, the
    next number; `leader`: with MOVED, the leader that the sender knows."""

    shard: Shard
    request: Number
    code: Annotated[str, msgspec.Meta(max_length=32)]
    reason: Annotated[str, msgspec.Meta(max_length=500)]
    expected: Uint53 = 0
    leader: Peer | None = None


Fork = Annotated[str, msgspec.Meta(max_length=64)]


class AskFork(Message, frozen=True):
    """Ask a replica for a fork of the shard. Answered by ForkIsOpen or ForkRefused, or not at all
    while a fork is being opened."""

    capability = "forks"

    shard: Shard
    request: Number


class ForkIsOpen(Message, frozen=True):
    """The sender has an open fork of the shard."""

    capability = "forks"

    shard: Shard
    request: Number
    fork: Fork


class ForkRefused(Message, frozen=True):
    """The sender opens no fork."""

    capability = "forks"

    shard: Shard
    request: Number
    reason: Annotated[str, msgspec.Meta(max_length=500)]


class JoinFork(Message, frozen=True):
    """Continue a session of the main log in the fork that `shard` names. `next`: the number below
    which all rows are acknowledged, and no others. Answered by ProducerIsOpen, with the first
    number that the fork does not know to be appended, or by AppendRefused."""

    capability = "forks"

    shard: Shard
    request: Number
    producer: ProducerName
    session: Number
    next: Number
    asker: Asker | None = None


class CopyFork(Message, frozen=True):
    """The next chunk of a fork of the shard, for its leader to append what the main log lacks.
    Answered by ForkChunkCopied when that is committed."""

    capability = "forks"

    shard: Shard
    fork: Fork
    chunk: Annotated[bytes, msgspec.Meta(max_length=CHUNK_MOST)]


class ForkChunkCopied(Message, frozen=True):
    """All rows of the fork up to this chunk are in the main log, and committed."""

    capability = "forks"

    shard: Shard
    fork: Fork
    number: Uint53
