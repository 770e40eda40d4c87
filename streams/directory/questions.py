"""Questions of a node to the owners of streams' names: asked again until there is an answer.

A stream that copies others must not copy itself over them. Sources and mirrors never change after
the founding, so the last stream to be founded closes a circle: it is refused. Two streams founded
at the same moment may close one unnoticed; so the leader that copies searches once more, and stops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from overlay.chord.events import OwnerFound
from overlay.chord.ring.ring import Ring
from overlay.command_faults import fault_in_stream_name
from overlay.machine import Machine, Message, Peer, Port, Timer
from streams.access import pacing
from streams.directory.entry import StreamOptions, stream_key
from streams.directory.messages import AskStream, StreamElsewhere, StreamFound, StreamRefused

STREAMS_MOST: Final = 1_000
"""The limit of streams that a search asks for: it misses circles beyond them."""


Answer = StreamFound | StreamRefused


class AskAgain(Timer, frozen=True):
    """Time to repeat a question to an owner that has not answered."""

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
        if fault := fault_in_stream_name(name):
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
        """Look up the owner again, and ask."""
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
        """Send the questions about names of this key to their owner."""
        for ticket, question in list(self._open.items()):
            if question.is_looked_up and stream_key(question.name) == event.key:
                question.is_looked_up = False
                self.port.send(event.cluster.primary, question.message(ticket))

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
    """Return whether `found` can be the stream of this name: it has shards, and a leader (or none)
    is stated for each."""
    places = found.entry.places
    return found.entry.name == name and 0 < len(places) == len(found.leaders)


def origins_of(options: StreamOptions) -> tuple[str, ...]:
    """The streams that a stream with these options copies."""
    mirrored = (options.mirror,) if options.mirror else ()
    return (*mirrored, *(source.stream for source in options.sources))


class CircleSearch:
    """Searches from stream to stream for a way back to the first one."""

    def __init__(
        self,
        questions: OwnerQuestions,
        name: str,
        options: StreamOptions,
        then: Callable[[tuple[str, ...]], None],
    ) -> None:
        """`then` is called once, with the names on the way from the stream `name` back to it, both
        ends included; (): there is none. The search ends at streams that do not exist, or whose
        owner does not answer."""
        self._questions = questions
        self._name = name
        self._then = then
        self.missing: list[str] = []
        """Origins of the first stream that do not exist, by their owners."""
        self._ways: dict[str, tuple[str, ...]] = {}  # by stream, the way to it
        self._open = 1  # open questions, and the stream in hand
        self._options = options

    def start(self) -> None:
        """Ask for the origins of the new stream, and then for theirs, until a circle is found or
        none is left."""
        self._look_at((self._name,), self._options)

    def _look_at(self, way: tuple[str, ...], options: StreamOptions) -> None:
        """Ask for the origins of the stream at the end of `way`."""
        for origin in origins_of(options):
            if origin not in self._ways and len(self._ways) < STREAMS_MOST:
                self._ways[origin] = (*way, origin)
                if origin != self._name:
                    self._ask(origin)
        self._open -= 1
        if self._open == 0 or self._name in self._ways:
            then, self._then = self._then, _done
            then(self._ways.get(self._name, ()))

    def _ask(self, name: str) -> None:
        self._open += 1

        def answered(answer: Answer) -> None:
            options = answer.entry.options if isinstance(answer, StreamFound) else StreamOptions()
            is_unknown = isinstance(answer, StreamRefused) and answer.code == "unknown"
            if is_unknown and len(self._ways[name]) == 2:
                self.missing.append(name)
            self._look_at(self._ways[name], options)

        self._questions.ask(name, lambda ticket: AskStream(ticket, name), answered)


def _done(way: tuple[str, ...]) -> None:
    """The search has called its `then`."""


def said(way: tuple[str, ...]) -> str:
    """The reason why streams that copy one another in a circle are refused."""
    return f"a stream would copy itself: {' from '.join(way)}"
