"""Whether a stream would copy itself, over other streams.

Sources and mirrors never change after the founding, so the last stream to be founded closes a
circle: it is refused. Two streams founded at the same moment may close one unnoticed; so the leader
that copies searches once more, and stops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from streams.directory.entry import StreamOptions
from streams.directory.messages import AskStream, StreamFound, StreamRefused
from streams.directory.questions import Answer, OwnerQuestions

STREAMS_MOST: Final = 1_000
"""The limit of streams that a search asks for: it misses circles beyond them."""


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
        """Begin the search."""
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
    """A circle in words."""
    return f"a stream would copy itself: {' from '.join(way)}"
