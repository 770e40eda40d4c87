"""The forks of which this node is the holder: opened, closed, sent for copying, removed.

A fork is open while the holder's replica of the main log hears of no leader, or leads without a
majority. It is closed for good as soon as it does, and by a restart; then its chunks go to the main
log's leader one by one, from the first that this has not. Only when the leader has said of the last
one that it is committed there, the fork is removed.

A fork does not have the main log's rows: a producer that goes on in it says from which number on
its rows are not acknowledged. Some of these may be in the main log all the same: those of which the
holder knows that they are committed count as appended; of all others it is found out when the fork
is copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from overlay.info import ForkInfo
from overlay.machine import Alarm, Machine, Message, Peer, Timer
from streams.access import pacing
from streams.access.ask import Ask, Asks, LeaderQuestion
from streams.access.locator import StreamLocated, StreamLocator
from streams.access.reasons import Cause
from streams.directory.entry import AVAILABILITY
from streams.disk import Opened
from streams.log.chunk import EVENTS, Chunk
from streams.log.names import ForkName, fork_shard, parse_fork, split_shard
from streams.programs.producer.messages import (
    AskFork,
    CopyFork,
    ForkChunkCopied,
    ForkIsOpen,
    ForkRefused,
)
from streams.services.service import Leaderships
from streams.shard.hosting.shard_hosts import ShardHosts
from streams.shard.replica import Replica, ShardLed

FORKS_MOST: Final = 16
"""Uncopied forks of one shard at one node; with this many no other one is opened. After that many
partitions without a leader in between, an operator has to look. Guess."""


class LookAtForks(Timer, frozen=True):
    """Time to look which forks are to be closed."""


class LookAtForkChunks(Timer, frozen=True):
    """Time to look which chunks are to be sent again."""


class _Fork:
    def __init__(self, main: str, fork: str, is_open: bool, go_on: Callable[[_Fork], None]) -> None:
        """`go_on`: have it copied further."""
        self.main, self.fork = main, fork
        self._go_on = go_on
        self.shard = fork_shard(main, fork)
        self.is_open = is_open
        self.asked: list[tuple[Peer, int]] = []  # who waits until it is open
        self.copied = 0  # number of its last chunk that the main log has, or has no use for
        self.queue: deque[Chunk] = deque()  # behind that, read and not copied
        self.is_reading = False
        self.ask: Ask | None = None  # the main log's leader is to copy the first of them

    def committed(self) -> None:
        """More of its log is durable: the last chunks of one that is closed are copied."""
        if not self.is_open:
            self._go_on(self)


class Forks(Machine):
    """The forks at this node."""

    def __init__(self, leaderships: Leaderships, hosts: ShardHosts, locator: StreamLocator) -> None:
        super().__init__(leaderships.port)
        self._leaderships = leaderships
        self._hosts = hosts
        self._asks = Asks(self.port, locator, LookAtForkChunks())
        self._forks: dict[str, _Fork] = {}
        self._looks = Alarm(self.port, LookAtForks())

    # -- what others ask -------------------------------------------------------------------------

    def appendable(self, shard: str) -> Replica | None:
        """The replica of a shard, or of a fork that is open, which this node leads."""
        fork = self._forks.get(shard)
        is_closed = fork is not None and not fork.is_open
        return None if is_closed else self._hosts.leading(shard)

    def main(self, shard: str) -> Replica | None:
        """The replica of a shard that this node leads and that is no fork."""
        return None if split_shard(shard)[1] else self._hosts.leading(shard)

    def status(self, shard: str) -> tuple[ForkInfo, ...]:
        """The forks of a shard, for people: those at this node, and, if it leads, those that were
        copied into it."""
        found = []
        for fork in self._forks.values():
            replica = self._hosts.replica(fork.shard)
            if fork.main == shard and replica is not None:
                state = "open" if fork.is_open else "waits"
                found.append(ForkInfo(fork.fork, state, replica.log.next_offset))
        replica = self._hosts.leading(shard)
        for each in replica.state.forks.known.values() if replica is not None else ():
            rows = each.rows + each.repeated
            found.append(ForkInfo(each.fork, "copied", rows, each.repeated, each.conflicting))
        return tuple(found)

    def on_ask_fork(self, sender: Peer, message: AskFork) -> None:
        """Open a fork for a producer's node that has found no leader, or name the one that is open;
        refuse it with a reason where the shard has a leader."""
        mine = (f for f in self._forks.values() if f.main == message.shard and f.is_open)
        known = next(mine, None)
        if known is None:
            if reason := self._why_not(message.shard):
                self.port.send(sender, ForkRefused(message.shard, message.request, reason))
                return
            known = self._open(message.shard)
        if self._hosts.leading(known.shard) is not None:
            self.port.send(sender, ForkIsOpen(message.shard, message.request, known.fork))
        else:
            known.asked.append((sender, message.request))

    # -- open and close --------------------------------------------------------------------------

    def _why_not(self, shard: str) -> str:
        """Return why no fork of the shard is opened here; "" if it may be."""
        replica = self._hosts.replica(shard)
        entry = self._hosts.entries.get(shard.rpartition("/")[0])
        if replica is None or entry is None or entry.removed or split_shard(shard)[1]:
            return "this node has no replica of the shard"
        if entry.options.prefer != AVAILABILITY:
            return "the stream prefers consistency"
        if not replica.takes_part:
            return "this node's replica is not ready"
        if not replica.is_cut_off(pacing.FORK_AFTER):
            return "this node's replica has a leader with a majority"
        if sum(fork.main == shard for fork in self._forks.values()) >= FORKS_MOST:
            return f"{FORKS_MOST} forks of the shard wait here to be copied"
        return ""

    def _open(self, shard: str) -> _Fork:
        main = self._hosts.replica(shard)
        assert main is not None
        mark = self.port.rng.getrandbits(32)
        fork = str(ForkName(main.hard_state.epoch + 1, main.committed, mark))
        found = self._add(shard, fork, is_open=True)
        self.port.count("forks_opened")
        self.port.trace("fork_opened", shard=shard, fork=fork)
        self._hosts.hold_fork(shard, found.shard)
        self._looks.within(pacing.LOOK)
        return found

    def _add(self, main: str, fork: str, is_open: bool) -> _Fork:
        found = _Fork(main, fork, is_open, self._copy)
        self._forks[found.shard] = found
        self._leaderships.hear(found.shard, found)
        return found

    def on_opened(self, event: Opened) -> None:
        """A fork was read: one that was opened before a restart stays closed."""
        main, fork = split_shard(event.shard)
        if not fork or self._hosts.replica(event.shard) is None:
            return
        known = self._forks.get(event.shard)
        if known is None:
            known = self._add(main, fork, is_open=False)
        self._lead(known)
        self._looks.within(pacing.LOOK)

    def _lead(self, fork: _Fork) -> None:
        """Lead it, under an epoch that is above all of its chunks'."""
        replica = self._hosts.replica(fork.shard)
        if replica is None or not replica.ready or replica.leader is not None:
            return
        name = parse_fork(fork.fork)
        replica.lead(max(replica.hard_state.epoch + 1, name.epoch if name is not None else 0))

    def on_led(self, event: ShardLed) -> None:
        """A fork takes rows, if it is open."""
        fork = self._forks.get(event.shard)
        if fork is not None and fork.is_open:
            for sender, request in fork.asked:
                self.port.send(sender, ForkIsOpen(fork.main, request, fork.fork))
            fork.asked.clear()

    def on_look(self, timer: LookAtForks) -> None:
        """Close the forks that are due to be closed, and continue with copying."""
        self._looks.rang()
        for fork in list(self._forks.values()):
            replica = self._hosts.replica(fork.shard)
            entry = self._hosts.entries.get(fork.main.rpartition("/")[0])
            if replica is None or (entry is not None and entry.removed):
                self._remove(fork)
                continue
            self._lead(fork)
            main = self._hosts.replica(fork.main)
            if fork.is_open and (main is None or not main.is_cut_off(pacing.FORK_AFTER)):
                fork.is_open = False
                self._leaderships.check(fork.shard)
                self.port.trace("fork_closed", shard=fork.main, fork=fork.fork)
            if not fork.is_open:
                self._copy(fork)
        if self._forks:
            self._looks.within(pacing.LOOK)

    # -- copy ------------------------------------------------------------------------------------

    def _copy(self, fork: _Fork) -> None:
        """Send the next chunk, unless one is under way."""
        replica = self._hosts.leading(fork.shard)
        if replica is None or fork.is_reading or fork.ask is not None:
            return
        if fork.queue:
            self._send(fork)
        elif replica.committed < replica.log.end.number:
            return  # what was under way when it was closed becomes durable first
        elif fork.copied >= replica.committed:
            self.port.count("forks_copied")
            self._remove(fork)
        else:
            fork.is_reading = True
            replica.chunks.scan(fork.copied + 1, lambda chunks: self._was_read(fork, chunks))

    def _was_read(self, fork: _Fork, chunks: list[Chunk]) -> None:
        fork.is_reading = False
        for chunk in chunks:
            if chunk.kind == EVENTS:
                fork.queue.append(chunk)
            elif not fork.queue:
                fork.copied = chunk.number
        if chunks and self._forks.get(fork.shard) is fork:
            self._copy(fork)

    def _send(self, fork: _Fork) -> None:
        """Ask the leader of the main log to copy the next chunk, until it has."""
        id_, _, number = fork.main.rpartition("/")
        entry = self._hosts.entries.get(id_)
        if entry is None:
            return
        chunk = fork.queue[0]

        def answered(answer: Message | Cause) -> None:
            fork.ask = None
            if not isinstance(answer, Cause):  # else there is no majority: at the next look
                fork.copied = fork.queue.popleft().number
                self._copy(fork)

        question = LeaderQuestion(
            0,
            entry.name,
            int(number),
            lambda _: CopyFork(fork.main, fork.fork, chunk.data),
            fits=lambda answer: (
                isinstance(answer, ForkChunkCopied) and answer.number == chunk.number
            ),
        )
        fork.ask = Ask(question, answered)
        self._asks.ask(fork.ask)

    def on_look_at_chunks(self, timer: LookAtForkChunks) -> None:
        """Send the chunks again that the main log's leader has not said to be copied."""
        self._asks.look()

    def on_located(self, event: StreamLocated) -> None:
        """Note the leaders of a stream's shards."""
        self._asks.located(event)

    def on_chunk_copied(self, sender: Peer, message: ForkChunkCopied) -> None:
        """Continue after a chunk that is committed in the main log. Only a node that was sent the
        chunk is believed, and about no later chunk, because copied rows are removed here."""
        fork = self._forks.get(fork_shard(message.shard, message.fork))
        if fork is None or fork.ask is None or sender.id not in fork.ask.asked:
            return
        if message.number >= fork.queue[0].number:  # else it is late
            self._asks.answered(fork.ask, sender, message)

    def _remove(self, fork: _Fork) -> None:
        self.port.count("forks_removed")
        self.port.trace("fork_removed", shard=fork.main, fork=fork.fork)
        del self._forks[fork.shard]
        if fork.ask is not None:
            self._asks.drop(fork.ask)
        self._leaderships.hear_no_more(fork.shard, fork)
        self._hosts.destroy(fork.shard)
