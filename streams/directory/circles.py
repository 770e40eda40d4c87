"""Whether a stream would copy itself, over others.

Sources and mirrors are those of the founding, so a circle is closed by whoever founds the last of
its streams: that one is refused. Two that are founded at the same moment may both be; so who copies
looks once more, and stops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from streams.directory.entry import StreamOptions
from streams.directory.messages import AskStream, StreamFound, StreamRefused
from streams.directory.questions import Answer, OwnerQuestions

STREAMS_MOST: Final = 1_000
"""Streams that are asked for at most: what lies further away is not found."""


def origins_of(options: StreamOptions) -> tuple[str, ...]:
    """The streams that one with these options copies."""
    mirrored = (options.mirror,) if options.mirror else ()
    return (*mirrored, *(source.stream for source in options.sources))


class CircleSearch:
    """Looks from stream to stream for a way back to the first one."""

    def __init__(
        self,
        questions: OwnerQuestions,
        name: str,
        options: StreamOptions,
        then: Callable[[tuple[str, ...]], None],
    ) -> None:
        """`then` is called once, with the names on the way from the stream `name` back to it, both
        ends included; (): none was found. Streams that are not known, or whose owner does not
        answer, lead nowhere."""
        self._questions = questions
        self._name = name
        self._then = then
        self.missing: list[str] = []
        """Origins of the first stream that are not there, as their owners say."""
        self._ways: dict[str, tuple[str, ...]] = {}  # by stream: how it was come to
        self._open = 1  # questions, and what is looked at now
        self._options = options

    def start(self) -> None:
        """Begin to look."""
        self._look_at((self._name,), self._options)

    def _look_at(self, way: tuple[str, ...], options: StreamOptions) -> None:
        """Ask for the origins of a stream, which was come to by `way`."""
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
    """Nobody waits any more."""


def said(way: tuple[str, ...]) -> str:
    """A circle in words."""
    return f"a stream would copy itself: {' from '.join(way)}"
