"""The vocabulary between a fork's holder and the leader of the shard, after the healing. (Producers
ask for forks with messages of streams/programs/producer/messages.py.)"""

from __future__ import annotations

from typing import Annotated

import msgspec

from overlay.machine import Message, Uint53
from streams.log.chunk import CHUNK_MOST
from streams.programs.producer.messages import Fork
from streams.shard.messages import Shard


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
