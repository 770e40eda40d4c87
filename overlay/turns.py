"""A node's dispatcher: which handler runs next, and when (used by node.py only).

One input (a frame, a tick, a command) is a *turn*, as in an event loop. The handler that owns it
runs to completion; then everything that was emitted, and every message of the node to itself, is
handled in order until nothing is left. No handler is called while another one runs. Timers that the
handlers of a tick set again fire in a later turn.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from overlay.machine import Handler, LocalEvent, Machine, Message, Peer, ProtocolError, Timer

MAX_TURN_MESSAGES = 200_000
"""Messages of a node to itself in one turn. Far over what 4,096 events in its own trees need (those
travel together); beyond it two handlers answer each other without end. Guess; to be measured by the
longest turn of a node that hosts every tree itself."""


class Turns:
    """Dispatch tables, timers, and what waits within the present turn."""

    def __init__(
        self, clock: Callable[[], float], refused: Callable[[], None] = lambda: None
    ) -> None:
        """`clock` returns monotonic seconds; it is read once per turn. `refused` is called when a
        peer's message is found to violate the protocol after it was taken."""
        self._clock = clock
        self._refused = refused
        self.now = clock()
        self._owners: dict[type, Handler] = {}
        self._listeners: dict[type, list[Handler]] = {}
        self._inbox: deque[tuple[Peer, Message]] = deque()
        self._events: deque[LocalEvent] = deque()
        self.emit = self._events.append
        """Hand an event to its listeners after the present handler."""
        self._timers: list[tuple[float, int, Timer]] = []
        self._armed: dict[Timer, int] = {}
        self._sequence = 0
        self._latest = 0.0  # by how many seconds a timer was late at most

    def build(self, machines: Iterable[Machine]) -> None:
        """Take the machines' tables. Two owners of one message or timer are an error; listeners
        of a local event hear it in the machines' order."""
        for machine in machines:
            for kind, handler in machine.handlers().items():
                if issubclass(kind, LocalEvent):
                    self.listen(kind, handler)
                elif kind in self._owners:
                    raise TypeError(f"{kind.__name__} has two owners")
                else:
                    self._owners[kind] = handler

    def listen(self, kind: type[LocalEvent], listener: Callable[[Any], None]) -> None:
        """Add a listener of a local event, behind those that are there."""
        self._listeners.setdefault(kind, []).append(listener)

    @property
    def owners(self) -> Mapping[type, Handler]:
        """The handler of each message and timer."""
        return self._owners

    @property
    def listeners(self) -> Mapping[type, Sequence[Handler]]:
        """The handlers of each local event, in the order in which they are called."""
        return self._listeners

    # --- what machines ask for ---

    def set_timer(self, delay: float, timer: Timer) -> None:
        """Fire `timer` `delay` seconds after the beginning of this turn; a pending one is moved."""
        self._sequence += 1
        self._armed[timer] = self._sequence
        heapq.heappush(self._timers, (self.now + delay, self._sequence, timer))

    def cancel_timer(self, timer: Timer) -> None:
        """Cancel `timer` if it is set."""
        self._armed.pop(timer, None)

    def post(self, peer: Peer, message: Message) -> None:
        """Add a message of this node to itself, handled in this turn."""
        self._inbox.append((peer, message))

    # --- running ---

    def begin(self) -> float:
        """Begin a turn: read the clock, once for all its handlers. Returns that time."""
        self.now = self._clock()
        return self.now

    def dispatch(self, peer: Peer, message: Message) -> None:
        """Handle a message that came over a link, and all that follows from it. Raises
        ProtocolError if no machine handles its type, or if the handler does."""
        owner = self._owners.get(type(message))
        if owner is None:
            raise ProtocolError(f"{type(message).__name__} is not for a node")
        owner(peer, message)
        if self._events or self._inbox:
            self.run()

    def run(self) -> None:
        """Handle events and own messages until nothing is left. Raises RuntimeError after
        MAX_TURN_MESSAGES messages."""
        events, inbox = self._events, self._inbox
        handled = 0
        while events or inbox:
            while events:
                event = events.popleft()
                for listener in self._listeners.get(type(event), ()):
                    listener(event)
            if inbox:
                handled += 1
                if handled > MAX_TURN_MESSAGES:
                    raise RuntimeError(f"a turn without end: {inbox[0][1]!r:.200}")
                peer, message = inbox.popleft()
                self._owners[type(message)](peer, message)

    def settle(self, flush: Callable[[], None] | None = None) -> None:
        """Call `run`, where no sender of a message can be blamed: a part that a handler refuses is
        left out, and the rest goes on. Then call `flush`, which may add more, until nothing is
        left."""
        while True:
            while self._events or self._inbox:
                try:
                    self.run()
                except ProtocolError:
                    self._refused()
            if flush is not None:
                flush()
            if not (self._events or self._inbox):
                return

    def deadline(self) -> float | None:
        """Return when the next timer is due (monotonic seconds); None if there is none."""
        while self._timers:
            due, sequence, timer = self._timers[0]
            if self._armed.get(timer) == sequence:
                return due
            heapq.heappop(self._timers)
        return None

    def fire_due(self) -> float:
        """Fire all timers that are due, in the order of time, then of setting. Returns by how many
        seconds the first was late."""
        last = self._sequence
        due = self.deadline()
        late = 0.0 if due is None else max(0.0, self.now - due)
        while self._timers and self._timers[0][0] <= self.now and self._timers[0][1] <= last:
            _, sequence, timer = heapq.heappop(self._timers)
            if self._armed.get(timer) == sequence:
                del self._armed[timer]
                try:
                    self._owners[type(timer)](timer)
                except ProtocolError:
                    self._refused()
                self.settle()
        self._latest = max(self._latest, late)
        return late

    def take_latest(self) -> float:
        """By how many seconds timers were late at most since the last call."""
        latest, self._latest = self._latest, 0.0
        return latest
