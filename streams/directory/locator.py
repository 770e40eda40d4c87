"""From a stream's name to the leaders of its shards, at any node."""

from __future__ import annotations

from typing import Final

from overlay.machine import LocalEvent, Machine, NodeId, Peer, Port, Timer
from streams.directory.entry import StreamEntry
from streams.directory.messages import AskStream, StreamFound
from streams.directory.questions import Answer, OwnerQuestions

LOOK_AGAIN: Final = 0.2
"""Seconds after which the owner is asked again where a shard had no leader, or the wrong one."""

KEPT: Final = 4_096
"""Streams whose places are kept in mind."""


class StreamLocated(LocalEvent, frozen=True):
    """Where a stream's shards are led, as its owner says now (None: nowhere)."""

    name: str
    entry: StreamEntry
    leaders: tuple[Peer | None, ...]


class StreamMissing(LocalEvent, frozen=True):
    """There is no such stream (code unknown), or nobody said where it is (code time-out): of a
    stream that this node has known, only an owner that knows of its removal is believed."""

    name: str
    code: str
    reason: str


class LocateAgain(Timer, frozen=True):
    """Ask once more."""

    name: str


class StreamLocator(Machine):
    """What this node knows of streams, and asks of their owners."""

    def __init__(self, port: Port, questions: OwnerQuestions) -> None:
        super().__init__(port)
        self.questions = questions
        self.known: dict[str, StreamLocated] = {}
        self._asked: set[str] = set()

    def locate(self, name: str) -> None:
        """Ask the owner: StreamLocated or StreamMissing follows, one for all that ask meanwhile."""
        if name not in self._asked:
            self._asked.add(name)
            self.questions.ask(
                name,
                lambda ticket: AskStream(ticket, name),
                lambda answer: self._answered(name, answer),
            )

    def locate_soon(self, name: str) -> None:
        """As `locate`, in a moment: a leader is being sought."""
        self.port.set_timer(LOOK_AGAIN, LocateAgain(name))

    def leader(self, name: str, shard: int) -> Peer | None:
        """Who leads a shard, as far as is known here; None: to be located."""
        known = self.known.get(name)
        return known.leaders[shard] if known is not None and shard < len(known.leaders) else None

    def mistaken(self, name: str, shard: int, node: NodeId) -> None:
        """`node` does not lead that shard, or does not answer: locate it anew."""
        known = self.known.get(name)
        if known is not None:
            leader = self.leader(name, shard)
            if leader is not None and leader.id == node:
                leaders = list(known.leaders)
                leaders[shard] = None
                self.known[name] = StreamLocated(name, known.entry, tuple(leaders))
        self.locate_soon(name)

    def on_locate_again(self, timer: LocateAgain) -> None:
        """Ask once more."""
        self.locate(timer.name)

    def _answered(self, name: str, answer: Answer) -> None:
        self._asked.discard(name)
        if isinstance(answer, StreamFound):
            located = StreamLocated(name, answer.entry, answer.leaders)
            if len(self.known) >= KEPT and name not in self.known:
                self.known.pop(next(iter(self.known)))
            self.known[name] = located
            self.port.emit(located)
            return
        code = answer.code
        if answer.removed:
            self.known.pop(name, None)
        elif name in self.known:
            code = "time-out"
        self.port.emit(StreamMissing(name, code, answer.reason))
