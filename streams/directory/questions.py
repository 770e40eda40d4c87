"""What a node asks of the owners of streams' names: asked again until there is an answer."""

from __future__ import annotations

from collections.abc import Callable

from overlay.chord.events import OwnerFound, OwnerUnknown
from overlay.chord.ring.ring import Ring
from overlay.machine import Machine, Message, Peer, Port, Timer
from streams.access import pacing
from streams.directory.entry import fault_in_name, stream_key
from streams.directory.messages import StreamElsewhere, StreamFound, StreamRefused

Answer = StreamFound | StreamRefused


class AskAgain(Timer, frozen=True):
    """No answer has come."""

    ticket: int


class _Question:
    def __init__(
        self, name: str, message: Callable[[int], Message], then: Callable[[Answer], None]
    ) -> None:
        self.name, self.message, self.then = name, message, then
        self.until = 0.0
        self.is_looked_up = False


class OwnerQuestions(Machine):
    """Questions that are not answered yet."""

    def __init__(self, port: Port, ring: Ring) -> None:
        super().__init__(port)
        self.ring = ring
        self._open: dict[int, _Question] = {}
        self._ticket = 0

    def ask(
        self, name: str, message: Callable[[int], Message], then: Callable[[Answer], None]
    ) -> None:
        """Ask the owner of a stream's name. `message` makes the question from its ticket; `then` is
        called once, with code time-out if nobody answers."""
        self._ticket += 1
        if fault := fault_in_name(name):
            then(StreamRefused(self._ticket, "usage", fault))
            return
        question = self._open[self._ticket] = _Question(name, message, then)
        question.until = self.port.now + pacing.GIVE_UP
        self._send(self._ticket, question)

    def _send(self, ticket: int, question: _Question) -> None:
        self.port.set_timer(pacing.DOUBT, AskAgain(ticket))
        owner = self.ring.owner(stream_key(question.name))
        if owner is None:
            question.is_looked_up = True
            self.ring.find(stream_key(question.name))
        else:
            question.is_looked_up = False
            self.port.send(owner.primary, question.message(ticket))

    def on_ask_again(self, timer: AskAgain) -> None:
        """Look the owner up anew, and ask."""
        question = self._open.get(timer.ticket)
        if question is None:
            return
        if self.port.now >= question.until:
            reason = "the ring does not answer; try again in a moment"
            self._answer(timer.ticket, StreamRefused(timer.ticket, "time-out", reason))
            return
        self.port.set_timer(pacing.DOUBT, timer)
        question.is_looked_up = True
        self.ring.find(stream_key(question.name))

    def on_owner_found(self, event: OwnerFound) -> None:
        """Ask the owner."""
        for ticket, question in list(self._open.items()):
            if question.is_looked_up and stream_key(question.name) == event.key:
                question.is_looked_up = False
                self.port.send(event.cluster.primary, question.message(ticket))

    def on_owner_unknown(self, event: OwnerUnknown) -> None:
        """Nobody answered for the ring: the timer tries again."""

    def on_stream_elsewhere(self, sender: Peer, message: StreamElsewhere) -> None:
        """Another cluster owns the name, or none just now."""
        question = self._open.get(message.ticket)
        if question is None:
            return
        if message.cluster is not None and message.cluster.primary.id != sender.id:
            self.ring.learn(message.cluster)
            self.port.send(message.cluster.primary, question.message(message.ticket))

    def on_answer(self, sender: Peer, message: StreamFound | StreamRefused) -> None:
        """An owner's answer. One that cannot be is not taken; the owner is asked again."""
        question = self._open.get(message.ticket)
        if question is None:
            return
        if isinstance(message, StreamFound) and not _fits(question.name, message):
            self.port.count("stream_answers_refused")
            return
        self._answer(message.ticket, message)

    def _answer(self, ticket: int, answer: Answer) -> None:
        question = self._open.pop(ticket, None)
        if question is not None:
            self.port.cancel_timer(AskAgain(ticket))
            question.then(answer)


def _fits(name: str, found: StreamFound) -> bool:
    """Whether this can be the stream of that name: it has shards, and says of each who leads."""
    places = found.entry.places
    return found.entry.name == name and 0 < len(places) == len(found.leaders)
