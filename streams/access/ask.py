"""One question to the leader of one shard, asked until there is one answer.

Every question may be asked twice, which is the same as once. So it is sent again when its leader
has moved, is silent, or its link was lost. Where no majority of the shard's replicas answers, it is
refused at once, unless a leader may know of it already.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from overlay.client import Command, Failed
from overlay.machine import Machine, Message, NodeId, Peer, Port, Timer
from streams.access import pacing
from streams.access.locator import StreamLocated, StreamLocator, StreamMissing
from streams.access.reasons import REMOVED, Cause, no_answer

FOR_EVER: Final = float("inf")


class LeaderQuestion(NamedTuple):
    """A question to the leader of one shard."""

    client: int
    stream: str
    place: int
    """The shard's number in its stream."""
    make: Callable[[int], Message]
    """The message, by its number."""
    subject: str = ""
    """The subject, which other questions may share: a transaction's id."""
    size: int = 0
    """The bytes of its rows."""
    is_reading: bool = False
    """It changes nothing, so that a leader without a majority can answer it."""
    fits: Callable[[Message], bool] = lambda answer: True
    """Whether an honest leader can answer so."""

    @property
    def about(self) -> tuple[object, ...]:
        """The key of all questions of the same subject; without a subject, of this one alone."""
        return (self.stream, self.subject) if self.subject else (self.stream, id(self))


@dataclass(eq=False)
class Ask:
    """A question without an answer."""

    question: LeaderQuestion
    then: Callable[[Message | Cause], None]
    """It gets the answer, or the reason why there is none."""
    until: float = FOR_EVER
    """The time at which it fails; before it is asked, the seconds until then."""
    number: int = 0
    hints: int = 0
    target: Peer | None = None
    times: int = 0
    """The number of times it was sent."""
    asked: dict[NodeId, None] = field(default_factory=dict)
    """The nodes that may have carried it out: it was sent to them, and they have not answered that
    they do not lead."""
    sent_at: float = float("-inf")
    resume_at: float = float("-inf")
    answer: Message | Cause | None = None
    """The answer, or the reason why there is none, of a question that is asked together with others
    (`AskMachine.ask_all`)."""


class Asks:
    """The open questions of one machine."""

    def __init__(self, port: Port, locator: StreamLocator, timer: Timer) -> None:
        """`timer` is set while questions are open. Its handler calls `look`."""
        self.port = port
        self._locator = locator
        self._timer = timer
        self._open: dict[int, Ask] = {}
        self._number = 0
        self._is_looking = False
        locator.tell_losses(self.link_down)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Ask]:
        return (ask for ask in list(self._open.values()) if ask.number in self._open)

    @property
    def size(self) -> int:
        """The bytes of the rows of all open questions."""
        return sum(ask.question.size for ask in self._open.values())

    def ask(self, ask: Ask) -> None:
        """Send a question as soon as its leader is known."""
        self._number += 1
        ask.number = self._number
        ask.until += self.port.now
        self._open[ask.number] = ask
        self._send(ask)
        if not self._is_looking:
            self._is_looking = True
            self.port.set_timer(pacing.LOOK, self._timer)

    def _send(self, ask: Ask) -> None:
        if ask.target is None:
            ask.target = self._locator.leader(ask.question.stream, ask.question.place)
        if ask.target is None:
            self._locator.locate(ask.question.stream)
            ask.resume_at = self.port.now + pacing.LOOK
            return
        ask.sent_at, ask.resume_at = self.port.now, self.port.now + pacing.SILENT
        ask.times += 1
        ask.asked[ask.target.id] = None
        self.port.send(ask.target, ask.question.make(ask.number))

    def drop(self, ask: Ask) -> None:
        """Close a question without an answer."""
        self._open.pop(ask.number, None)

    def drop_all(self, unwanted: Callable[[Ask], bool]) -> None:
        """Close all questions for which `unwanted` is true."""
        for ask in filter(unwanted, self):
            self.drop(ask)

    # -- answers ---------------------------------------------------------------------------------

    def get(self, number: int, subject: str = "") -> Ask | None:
        """Return the open question with this number. An answer to a former process of this node is
        recognised by its subject."""
        ask = self._open.get(number)
        return ask if ask is not None and ask.question.subject == subject else None

    def answered(self, ask: Ask, sender: Peer, answer: Message) -> None:
        """Take an answer. If no honest leader can give it, count it and ask again."""
        if ask.question.fits(answer):
            del self._open[ask.number]
            ask.then(answer)
            return
        self.port.count("stream_answers_refused")
        self._locator.mistaken(ask.question.stream, ask.question.place, sender.id)
        ask.target, ask.hints = None, 0
        ask.resume_at = self.port.now + pacing.LOOK

    def moved(self, ask: Ask, sender: Peer, leader: Peer | None) -> None:
        """Ask elsewhere, since the sender does not lead the shard. `leader`: the leader that the
        sender names."""
        ask.asked.pop(sender.id, None)
        if ask.target is None or ask.target.id != sender.id:
            return  # it was asked elsewhere meanwhile
        ask.hints += 1
        self._doubt(ask)
        if leader is not None and ask.hints <= pacing.HINTS_MOST:
            ask.target = leader
            self._send(ask)

    def later(self, ask: Ask, sender: Peer) -> None:
        """Ask the same leader again after a pause."""
        if ask.target is not None and ask.target.id == sender.id:
            ask.resume_at = self.port.now + pacing.LOOK

    def _doubt(self, ask: Ask) -> None:
        """Forget the leader that was asked."""
        assert ask.target is not None, "it was asked"
        self._locator.mistaken(ask.question.stream, ask.question.place, ask.target.id)
        ask.target, ask.resume_at = None, self.port.now + pacing.LOOK

    # -- leaders and time ------------------------------------------------------------------------

    def look(self) -> None:
        """Ask questions again that were refused or not answered, and fail those whose time is
        over. Called by the timer's handler."""
        now = self.port.now
        for ask in self:
            if now >= ask.until:
                self._refuse(ask, no_answer(ask.question.stream, ask.question.place))
            elif now >= ask.resume_at:
                if ask.target is not None and now - ask.sent_at >= pacing.SILENT:
                    self._doubt(ask)
                    ask.hints = 0
                self._send(ask)
        self._is_looking = bool(self._open)
        if self._is_looking:
            self.port.set_timer(pacing.LOOK, self._timer)

    def located(self, event: StreamLocated) -> None:
        """Send the questions that waited for the leaders of a stream, or refuse them if there is no
        majority."""
        for ask in self:
            if ask.question.stream != event.name or ask.target is not None:
                continue
            why = event.stuck if ask.question.is_reading else event.no_majority
            reason = why(ask.question.place)
            if reason is not None and (ask.question.is_reading or not self._is_known(ask)):
                self._refuse(ask, reason)
            elif self._locator.leader(ask.question.stream, ask.question.place) is not None:
                self._send(ask)  # else it is asked again after a pause

    def missing(self, stream: str, reason: Cause) -> None:
        """Refuse all questions about a stream that was removed."""
        for ask in self:
            if ask.question.stream == stream:
                self._refuse(ask, reason)

    def _refuse(self, ask: Ask, reason: Cause) -> None:
        if self._open.pop(ask.number, None) is not None:
            ask.then(reason)

    def _is_known(self, ask: Ask) -> bool:
        """Whether a leader may have carried out a question of the same subject."""
        return any(other.asked for other in self if other.question.about == ask.question.about)

    def link_down(self, peer: Peer) -> None:
        """Ask questions elsewhere that were sent to an unreachable node."""
        for ask in self:
            if ask.target is not None and ask.target.id == peer.id:
                self._doubt(ask)


class HeldCommands:
    """The commands that wait until their streams are located."""

    def __init__(self, locator: StreamLocator) -> None:
        self._locator = locator
        self._held: dict[str, list[tuple[int, Command]]] = {}

    def hold(self, client: int, stream: str, command: Command) -> None:
        """Keep a command, and locate its stream."""
        self._held.setdefault(stream, []).append((client, command))
        self._locator.locate(stream)

    def pop(self, stream: str) -> list[tuple[int, Command]]:
        """Return the commands that waited for a stream, each with its client."""
        return self._held.pop(stream, [])

    def client_gone(self, client: int) -> None:
        """Drop the commands of a program."""
        for stream, held in list(self._held.items()):
            self._held[stream] = [each for each in held if each[0] != client]


class AskMachine(Machine):
    """The base of machines that ask leaders about streams, for programs' commands."""

    def __init__(self, port: Port, locator: StreamLocator, timer: Timer) -> None:
        """`timer`: handled by `on_look`, which calls `asks.look`."""
        super().__init__(port)
        self.locator = locator
        self.asks = Asks(port, locator, timer)
        self.held = HeldCommands(locator)

    @abstractmethod
    def begin(self, client: int, command: Any, located: StreamLocated) -> None:
        """Carry out a command whose stream is located now."""

    def refuse(self, client: int, command: Command, reason: Cause | tuple[str, str]) -> None:
        """Answer a command with the reason why it is not carried out."""
        self.port.reply(client, Failed(command.request, *reason))

    def ask_all(
        self,
        questions: Sequence[LeaderQuestion],
        then: Callable[[dict[int, Ask]], None],
        within: float = FOR_EVER,
    ) -> None:
        """Ask the leaders of several shards. `then` gets the questions by number of the shard, when
        all have their `answer`. `within`: the seconds after which they fail."""
        asks: dict[int, Ask] = {}

        def asked(question: LeaderQuestion) -> Ask:
            def answered(answer: Message | Cause) -> None:
                ask.answer = answer
                if all(each.answer is not None for each in asks.values()):
                    then(asks)

            ask = Ask(question, answered, within)
            return ask

        asks.update((question.place, asked(question)) for question in questions)
        for ask in asks.values():
            self.asks.ask(ask)

    def on_located(self, event: StreamLocated) -> None:
        """Go on with the commands and questions about a stream."""
        self.asks.located(event)
        for client, command in self.held.pop(event.name):
            self.begin(client, command, event)

    def on_missing(self, event: StreamMissing) -> None:
        """Refuse the commands that wait for a stream, and the questions if it was removed."""
        for client, command in self.held.pop(event.name):
            self.refuse(client, command, (event.code, event.reason))
        if event.code == REMOVED:
            self.asks.missing(event.name, Cause(event.code, event.reason))

    def client_gone(self, client: int) -> None:
        """Drop the commands and questions of a program."""
        self.held.client_gone(client)
        self.asks.drop_all(lambda ask: ask.question.client == client)
