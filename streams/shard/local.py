"""What its parts use of a replica: campaign, leader, mending, checking, removal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from overlay.machine import Peer, Port
from streams.disk import LogDisk
from streams.log.chunk import Chunk
from streams.log.recovery import FoundHole
from streams.log.shard_log import ShardLog
from streams.log.state import ShardState
from streams.shard.damage import Damage
from streams.shard.kept_chunks import KeptChunks
from streams.shard.messages import HardState
from streams.shard.retention import Keep


class LocalReplica(Protocol):
    """`replica.Replica`."""

    port: Port
    disk: LogDisk
    shard: str
    founders: tuple[Peer, ...]
    stream: bytes
    keep: Keep
    log: ShardLog
    state: ShardState
    hard_state: HardState
    ready: bool
    durable: int
    committed: int
    readings: int
    before_loss: ShardState | None
    chunks: KeptChunks
    damage: Damage

    @property
    def serves(self) -> bool:
        """Whether this node leads the shard, and a chunk of its own epoch is committed."""

    @property
    def replicas(self) -> tuple[Peer, ...]:
        """By the newest entry of the log, committed or not."""

    def add(self, chunk: Chunk) -> None:
        """Append a chunk, in memory and to the disk."""

    def take(self, chunks: Sequence[bytes], start: int) -> bool:
        """Take another replica's chunks, of which it has those from `start` on."""

    def commit_to(self, number: int) -> None:
        """The chunks up to `number` are committed."""

    def clear_suspicion(self) -> None:
        """The log has everything that was ever committed."""

    def damaged(self, holes: Sequence[FoundHole]) -> bool:
        """There are holes in the log. Returns whether it mends them."""

    def learn_times(self) -> None:
        """Find out when the oldest segment began of which that is not known."""

    def begin_leading(self, epoch: int) -> None:
        """The campaign for `epoch` has succeeded."""

    def retry_soon(self) -> None:
        """Others may lack something by now: have `ShardLeader.ask_again` called as usual."""

    def is_led_by(self, leading: object) -> bool:
        """Whether `leading` is what this replica leads with."""

    def is_campaign(self, campaign: object) -> bool:
        """Whether `campaign` is the one that is under way."""
