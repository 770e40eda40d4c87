"""From a stream's name to the leaders of its shards, at any node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from overlay.client import NO_MAJORITY
from overlay.links.events import LinkDown
from overlay.machine import LocalEvent, Machine, NodeId, Peer, Port, Timer
from overlay.phrases import no_majority
from streams.access import pacing
from streams.access.reasons import Cause
from streams.directory.entry import StreamEntry
from streams.directory.messages import AskStream, StreamFound
from streams.directory.questions import Answer, OwnerQuestions

KEPT: Final = 4_096
"""The limit of streams whose leaders are remembered."""


class StreamLocated(LocalEvent, frozen=True):
    """The present leaders of a stream's shards, as its owner names them (None: no leader).
    `answering`: as in `StreamFound`."""

    name: str
    entry: StreamEntry
    leaders: tuple[Peer | None, ...]
    answering: tuple[int, ...] = ()

    def no_majority(self, shard: int) -> Cause | None:
        """The reason why nothing can be committed to a shard; None: a majority of its replicas
        answers, or this is not known."""
        count = self.answering[shard] if shard < len(self.answering) else -1
        if count < 0:
            return None
        places = self.entry.places
        number = shard if len(places) > 1 else None
        replicas = len(places[shard].replicas)
        return Cause(NO_MAJORITY, no_majority(self.name, count, replicas, number))

    def stuck(self, shard: int) -> Cause | None:
        """The reason why a shard cannot be read: it has no majority, and no leader either."""
        return self.no_majority(shard) if self.leaders[shard] is None else None


class StreamMissing(LocalEvent, frozen=True):
    """There is no such stream (code unknown), or no node answered where it is (code time-out).
    About a stream that this node has known, only an owner that knows of its removal is believed."""

    name: str
    code: str
    reason: str


class LocateAgain(Timer, frozen=True):
    """Time to ask the owner of a stream again who leads its shards."""

    name: str


class StreamLocator(Machine):
    """The leaders of shards that this node knows, and its questions to owners of streams."""

    def __init__(self, port: Port, questions: OwnerQuestions) -> None:
        super().__init__(port)
        self.questions = questions
        self.known: dict[str, StreamLocated] = {}
        self._asked: set[str] = set()
        self._listeners: list[Callable[[Peer], None]] = []

    def locate(self, name: str) -> None:
        """Ask the owner. StreamLocated or StreamMissing follows, once for all who ask meanwhile."""
        if name not in self._asked:
            self._asked.add(name)
            self.questions.ask(
                name,
                lambda ticket: AskStream(ticket, name),
                lambda answer: self._answered(name, answer),
            )

    def leader(self, name: str, shard: int) -> Peer | None:
        """Return the leader of a shard; None: not known, ask (`locate`)."""
        known = self.known.get(name)
        return known.leaders[shard] if known is not None and shard < len(known.leaders) else None

    def mistaken(self, name: str, shard: int, node: NodeId) -> None:
        """Forget that `node` leads a shard, and ask the owner after a pause."""
        known = self.known.get(name)
        if known is not None:
            leader = self.leader(name, shard)
            if leader is not None and leader.id == node:
                leaders = list(known.leaders)
                leaders[shard] = None
                self.known[name] = replace(known, leaders=tuple(leaders))
        self.port.set_timer(pacing.LOOK, LocateAgain(name))

    def tell_losses(self, listener: Callable[[Peer], None]) -> None:
        """Call `listener` with each node to which the link is lost. Listeners are called in the
        order in which they came."""
        self._listeners.append(listener)

    def on_link_down(self, event: LinkDown) -> None:
        """Forget that an unreachable node leads shards, and tell the conversations with it."""
        for name, known in self.known.items():
            if any(leader is not None and leader.id == event.peer.id for leader in known.leaders):
                left = tuple(
                    None if leader is None or leader.id == event.peer.id else leader
                    for leader in known.leaders
                )
                self.known[name] = replace(known, leaders=left)
        for listener in self._listeners:
            listener(event.peer)

    def on_locate_again(self, timer: LocateAgain) -> None:
        """Repeat the question to the owner of the stream."""
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
