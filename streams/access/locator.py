"""From a stream's name to the leaders of its shards, at any node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from msgspec.structs import replace

from overlay.links.events import LinkDown
from overlay.machine import LocalEvent, Machine, NodeId, Peer, Port, Timer
from overlay.wording import no_majority
from streams.access import pacing
from streams.directory.entry import StreamEntry
from streams.directory.messages import AskStream, StreamFound
from streams.directory.questions import Answer, OwnerQuestions

KEPT: Final = 4_096
"""Streams whose places are kept in mind."""


class StreamLocated(LocalEvent, frozen=True):
    """Where a stream's shards are led, as its owner says now (None: nowhere). `answering`: as in
    `StreamFound`."""

    name: str
    entry: StreamEntry
    leaders: tuple[Peer | None, ...]
    answering: tuple[int, ...] = ()

    def no_majority(self, shard: int) -> str:
        """That so many replicas of a shard answer that they are no majority, in the words in which
        programs are told; "": they are one, as far as is known."""
        count = self.answering[shard] if shard < len(self.answering) else -1
        if count < 0:
            return ""
        places = self.entry.places
        return no_majority(
            self.name, count, len(places[shard].replicas), shard if len(places) > 1 else None
        )

    def is_stuck(self, shard: int) -> str:
        """As `no_majority`, where a shard has no leader either: "": it has, or will have soon."""
        return self.no_majority(shard) if self.leaders[shard] is None else ""


class StreamMissing(LocalEvent, frozen=True):
    """There is no such stream (code unknown), or nobody said where it is (code time-out): of a
    stream that this node has known, only an owner that knows of its removal is believed."""

    name: str
    code: str
    reason: str


class Locator(Protocol):
    """What machines ask of a `StreamLocator`."""

    @property
    def known(self) -> Mapping[str, StreamLocated]:
        """Streams by name."""

    def locate(self, name: str) -> None:
        """Ask where a stream is: StreamLocated or StreamMissing follows."""

    def leader(self, name: str, shard: int) -> Peer | None:
        """Who leads a shard, as far as is known."""

    def mistaken(self, name: str, shard: int, node: NodeId) -> None:
        """That node does not lead it, or does not answer."""


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
        self.port.set_timer(pacing.REPEAT, LocateAgain(name))

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
                self.known[name] = replace(known, leaders=tuple(leaders))
        self.locate_soon(name)

    def on_link_down(self, event: LinkDown) -> None:
        """What a node led that is out of reach is to be located when it is wanted."""
        for name, known in self.known.items():
            if any(leader is not None and leader.id == event.peer.id for leader in known.leaders):
                left = tuple(
                    None if leader is None or leader.id == event.peer.id else leader
                    for leader in known.leaders
                )
                self.known[name] = replace(known, leaders=left)

    def on_locate_again(self, timer: LocateAgain) -> None:
        """Ask once more."""
        self.locate(timer.name)

    def _answered(self, name: str, answer: Answer) -> None:
        self._asked.discard(name)
        if isinstance(answer, StreamFound):
            located = StreamLocated(name, answer.entry, answer.leaders, answer.answering)
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
