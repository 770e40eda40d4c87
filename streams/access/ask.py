"""One question to the leader of one shard, asked until there is one answer.

Every question may be asked twice, which is the same as once. So it is sent again when its leader
has moved, is silent, or its link was lost. Where no majority of the shard's replicas answers, it is
refused at once, unless a leader may know of it already.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from overlay.client import Command, Failed
from overlay.links.events import LinkDown
from overlay.machine import Machine, Message, NodeId, Peer, Port, Timer
from streams.access import pacing
from streams.access.locator import Locator, StreamLocated, StreamMissing
from streams.access.reasons import REMOVED, Cause, no_answer, no_majority, stuck

FOR_EVER: Final = float("inf")


class LeaderQuestion(NamedTuple):
    """What the leader of one shard is asked."""

    client: int
    stream: str
    place: int
    """The shard's number in its stream."""
    make: Callable[[int], Message]
    """The message, by its number."""
    subject: str = ""
    """What it is about, also of other questions."""
    size: int = 0
    """Bytes of rows in it."""
    is_reading: bool = False
    """It changes nothing, and needs a leader only."""
    fits: Callable[[Message], bool] = lambda answer: True
    """Whether an honest leader can answer so."""

    @property
    def about(self) -> tuple[object, ...]:
        """What it is about: with a subject, as other questions; else by itself."""
        return (self.stream, self.subject) if self.subject else (self.stream, id(self))


class Ask:
    """A question that is not answered. Either `then` gets the answer, or `refused` why there is
    none."""

    def __init__(
        self,
        question: LeaderQuestion,
        then: Callable[[Message], None],
        refused: Callable[[Cause], None],
        within: float = FOR_EVER,
    ) -> None:
        """`within`: seconds after which it is given up."""
        self.question = question
        self.then = then
        self.refused = refused
        self.number = self.hints = 0
        self.target: Peer | None = None
        self.times = 0
        """How many times it was sent."""
        self.asked: dict[NodeId, None] = {}
        """Who may know of it: was sent it, and has not said that it leads no more."""
        self.sent_at = self.resume_at = float("-inf")
        self.until = within
        """When it is given up; before it is asked: after how many seconds."""


class Asks:
    """The questions of one machine that are not answered."""

    def __init__(self, port: Port, locator: Locator, timer: Timer) -> None:
        """`timer` is set while there are some: `look` is to be called when it has fired."""
        self.port = port
        self._locator = locator
        self._timer = timer
        self._open: dict[int, Ask] = {}
        self._number = 0
        self._is_looking = False

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Ask]:
        return (ask for ask in list(self._open.values()) if ask.number in self._open)

    @property
    def size(self) -> int:
        """Bytes of rows in all of them."""
        return sum(ask.question.size for ask in self._open.values())

    def ask(self, ask: Ask) -> None:
        """Send a question, as soon as its leader is known."""
        self._number += 1
        ask.number = self._number
        ask.until += self.port.now
        self._open[ask.number] = ask
        self._send(ask)
        if not self._is_looking:
            self._is_looking = True
            self.port.set_timer(pacing.REPEAT, self._timer)

    def _send(self, ask: Ask) -> None:
        if ask.target is None:
            ask.target = self._locator.leader(ask.question.stream, ask.question.place)
        if ask.target is None:
            self._locator.locate(ask.question.stream)
            ask.resume_at = self.port.now + pacing.REPEAT
            return
        ask.sent_at, ask.resume_at = self.port.now, self.port.now + pacing.ANSWER_WITHIN
        ask.times += 1
        ask.asked[ask.target.id] = None
        self.port.send(ask.target, ask.question.make(ask.number))

    def drop(self, ask: Ask) -> None:
        """Nobody waits for the answer any more."""
        self._open.pop(ask.number, None)

    def drop_all(self, unwanted: Callable[[Ask], bool]) -> None:
        """Nobody waits for these answers any more."""
        for ask in filter(unwanted, self):
            self.drop(ask)

    # -- answers ---------------------------------------------------------------------------------

    def get(self, number: int, subject: str = "") -> Ask | None:
        """The open question with this number. One of a former process of this node has another
        subject."""
        ask = self._open.get(number)
        return ask if ask is not None and ask.question.subject == subject else None

    def answered(self, ask: Ask, sender: Peer, answer: Message) -> None:
        """The answer has come. One that no honest leader gives is asked for again."""
        if ask.question.fits(answer):
            del self._open[ask.number]
            ask.then(answer)
            return
        self.port.count("stream_answers_refused")
        self._locator.mistaken(ask.question.stream, ask.question.place, sender.id)
        ask.target, ask.hints = None, 0
        ask.resume_at = self.port.now + pacing.REPEAT

    def moved(self, ask: Ask, sender: Peer, leader: Peer | None) -> None:
        """The sender does not lead the shard (any more); `leader` does, if that is known."""
        ask.asked.pop(sender.id, None)
        if ask.target is None or ask.target.id != sender.id:
            return  # it was asked elsewhere meanwhile
        ask.hints += 1
        self._doubt(ask)
        if leader is not None and ask.hints <= pacing.HINTS_MOST:
            ask.target = leader
            self._send(ask)

    def later(self, ask: Ask, sender: Peer) -> None:
        """The leader cannot answer just now."""
        if ask.target is not None and ask.target.id == sender.id:
            ask.resume_at = self.port.now + pacing.REPEAT

    def _doubt(self, ask: Ask) -> None:
        """Who was asked is no leader, or does not answer."""
        assert ask.target is not None, "it was asked"
        self._locator.mistaken(ask.question.stream, ask.question.place, ask.target.id)
        ask.target, ask.resume_at = None, self.port.now + pacing.REPEAT

    # -- leaders and time ------------------------------------------------------------------------

    def look(self) -> None:
        """The timer has fired: ask again what was refused or not answered, give up what has had its
        time."""
        now = self.port.now
        for ask in self:
            if now >= ask.until:
                self._refuse(ask, no_answer(ask.question.stream, ask.question.place))
            elif now >= ask.resume_at:
                if ask.target is not None and now - ask.sent_at >= pacing.ANSWER_WITHIN:
                    self._doubt(ask)
                    ask.hints = 0
                self._send(ask)
        self._is_looking = bool(self._open)
        if self._is_looking:
            self.port.set_timer(pacing.REPEAT, self._timer)

    def located(self, event: StreamLocated) -> None:
        """It is known anew who leads a stream's shards."""
        for ask in self:
            if ask.question.stream != event.name or ask.target is not None:
                continue
            reason = (stuck if ask.question.is_reading else no_majority)(event, ask.question.place)
            if reason is not None and (ask.question.is_reading or not self._is_known(ask)):
                self._refuse(ask, reason)
            elif self._locator.leader(ask.question.stream, ask.question.place) is not None:
                self._send(ask)  # else it is asked again after a pause

    def missing(self, stream: str, reason: Cause) -> None:
        """There is no such stream any more."""
        for ask in self:
            if ask.question.stream == stream:
                self._refuse(ask, reason)

    def _refuse(self, ask: Ask, reason: Cause) -> None:
        if self._open.pop(ask.number, None) is not None:
            ask.refused(reason)

    def _is_known(self, ask: Ask) -> bool:
        """Whether a leader may know something of what is asked about."""
        return any(other.asked for other in self if other.question.about == ask.question.about)

    def link_down(self, peer: Peer) -> None:
        """The link to a node was lost, and perhaps what was sent over it."""
        for ask in self:
            if ask.target is not None and ask.target.id == peer.id:
                self._doubt(ask)


class HeldCommands:
    """Commands about streams that are not located yet."""

    def __init__(self, locator: Locator) -> None:
        self._locator = locator
        self._held: dict[str, list[tuple[int, Command]]] = {}

    def hold(self, client: int, stream: str, command: Command) -> None:
        """Keep a command until its stream is located, which it is from now on."""
        self._held.setdefault(stream, []).append((client, command))
        self._locator.locate(stream)

    def pop(self, stream: str) -> list[tuple[int, Command]]:
        """The commands about a stream, each with its client: it is located, or missing."""
        return self._held.pop(stream, [])

    def client_gone(self, client: int) -> None:
        """A program has gone."""
        for stream, held in list(self._held.items()):
            self._held[stream] = [each for each in held if each[0] != client]


class AskMachine(Machine):
    """The base of machines that ask leaders about streams, for programs' commands."""

    def __init__(self, port: Port, locator: Locator, timer: Timer) -> None:
        """`timer` is that of `on_look`, which calls `asks.look`."""
        super().__init__(port)
        self.locator = locator
        self.asks = Asks(port, locator, timer)
        self.held = HeldCommands(locator)

    @abstractmethod
    def begin(self, client: int, command: Any, located: StreamLocated) -> None:
        """The stream of a command that was held is located."""

    def refuse(self, client: int, command: Command, reason: Cause | tuple[str, str]) -> None:
        """Answer a command with why it is not carried out."""
        self.port.reply(client, Failed(command.request, *reason))

    def on_located(self, event: StreamLocated) -> None:
        """A stream is found, or its leaders are others."""
        self.asks.located(event)
        for client, command in self.held.pop(event.name):
            self.begin(client, command, event)

    def on_missing(self, event: StreamMissing) -> None:
        """There is no such stream, or nobody knows."""
        for client, command in self.held.pop(event.name):
            self.refuse(client, command, (event.code, event.reason))
        if event.code == REMOVED:
            self.asks.missing(event.name, Cause(event.code, event.reason))

    def on_link_down(self, event: LinkDown) -> None:
        """A leader is out of reach."""
        self.asks.link_down(event.peer)

    def client_gone(self, client: int) -> None:
        """A program has gone: it waits for nothing any more."""
        self.held.client_gone(client)
        self.asks.drop_all(lambda ask: ask.question.client == client)
