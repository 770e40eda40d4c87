"""What a program's node asks of the leaders of a stream's shards, until each has answered.

Every question may be repeated: a prepared half, a decision and a list are the same when they are
asked for twice. So a question is sent again when its leader has moved, is silent, or its link was
lost, and whoever asked waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from overlay.client import NO_MAJORITY
from overlay.machine import Message, Peer, Port
from streams.directory.locator import Locator
from streams.producing.messages import MOVED
from streams.transactions.messages import BUSY, HalfRefused

PAUSE: Final = 0.2
"""Seconds before a question is repeated that was refused for a while."""

SILENCE: Final = 2.0
"""Seconds without an answer after which another leader is looked for: above a slow fdatasync at a
majority, below what people wait for."""

HINTS_MOST: Final = 2
"""Leaders that others have named, after which the stream's owner is asked instead."""


class Question:
    """One message for the leader of one shard. `then` gets the answer."""

    __slots__ = (
        *("client", "hints", "make", "number", "place", "resume_at", "sent_at", "stream"),
        *("fits", "size", "target", "then", "transaction"),
    )

    def __init__(
        self,
        client: int,
        stream: str,
        place: int,
        transaction: str,
        make: Callable[[int], Message],
        then: Callable[[Message], None],
        size: int = 0,
        fits: Callable[[Message], bool] = lambda answer: True,
    ) -> None:
        """`place`: the shard's number in its stream; `make`: the message, by its number; `size`:
        bytes of rows in it; `fits`: whether a message can be its answer."""
        self.client = client
        self.stream = stream
        self.place = place
        self.transaction = transaction
        self.make = make
        self.then = then
        self.size = size
        self.fits = fits
        self.number = 0
        self.target: Peer | None = None
        self.hints = 0
        self.sent_at = self.resume_at = float("-inf")


class Questions:
    """Those of one node that are not answered."""

    def __init__(self, port: Port, locator: Locator, wake: Callable[[], None]) -> None:
        """`wake`: have `look` called again and again, as long as there are some."""
        self.port = port
        self._locator = locator
        self._wake = wake
        self._open: dict[int, Question] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def size(self) -> int:
        """Bytes of rows in all of them."""
        return sum(question.size for question in self._open.values())

    def ask(self, question: Question) -> None:
        """Send a question, once its leader is known."""
        self._number += 1
        question.number = self._number
        self._open[question.number] = question
        self._send(question)
        self._wake()

    def _send(self, question: Question) -> None:
        if question.target is None:
            question.target = self._locator.leader(question.stream, question.place)
        if question.target is None:
            self._locator.locate(question.stream)
            question.resume_at = self.port.now + PAUSE
            return
        question.sent_at, question.resume_at = self.port.now, self.port.now + SILENCE
        self.port.send(question.target, question.make(question.number))

    def answered(self, sender: Peer, number: int, transaction: str, answer: Message) -> None:
        """An answer has come. One to a former process of this node has another transaction."""
        question = self._open.get(number)
        if question is None or question.transaction != transaction:
            return
        if isinstance(answer, HalfRefused) and answer.code in (MOVED, BUSY):
            self._again(question, sender, answer)
            return
        if not question.fits(answer):
            self.port.count("stream_answers_refused")
            self._locator.mistaken(question.stream, question.place, sender.id)
            question.target, question.hints = None, 0
            question.resume_at = self.port.now + PAUSE
            return
        del self._open[number]
        question.then(answer)

    def _again(self, question: Question, sender: Peer, refusal: HalfRefused) -> None:
        if question.target is None or question.target.id != sender.id:
            return  # it was asked elsewhere meanwhile
        question.resume_at = self.port.now + PAUSE
        if refusal.code == BUSY:
            return
        self._locator.mistaken(question.stream, question.place, sender.id)
        question.target = None
        question.hints += 1
        if refusal.leader is not None and question.hints <= HINTS_MOST:
            question.target = refusal.leader
            self._send(question)

    def look(self) -> None:
        """To be called every `PAUSE` seconds: repeat what was refused or not answered."""
        now = self.port.now
        for question in list(self._open.values()):
            if now < question.resume_at:
                continue
            if question.target is not None and now - question.sent_at >= SILENCE:
                self._locator.mistaken(question.stream, question.place, question.target.id)
                question.target, question.hints = None, 0
            self._send(question)

    def located(self, stream: str, no_majority: Callable[[int], str]) -> None:
        """It is known anew who leads a stream's shards. `no_majority`: by shard, that its replicas
        that answer are none; then what was never sent is refused."""
        for question in list(self._open.values()):
            if question.stream != stream or question.target is not None:
                continue
            if (reason := no_majority(question.place)) and not self._is_sent(question.transaction):
                del self._open[question.number]
                whose = (question.number, question.transaction)
                question.then(HalfRefused("", *whose, NO_MAJORITY, reason))
                continue
            if self._locator.leader(stream, question.place) is not None:
                self._send(question)  # else it is asked again after a pause

    def _is_sent(self, transaction: str) -> bool:
        """Whether a leader may know something of a transaction that is asked about."""
        mine = (q for q in self._open.values() if q.transaction == transaction)
        return any(question.sent_at > float("-inf") for question in mine)

    def link_down(self, peer: Peer) -> None:
        """The link to a node was lost, and perhaps what was sent over it."""
        for question in self._open.values():
            if question.target is not None and question.target.id == peer.id:
                self._locator.mistaken(question.stream, question.place, peer.id)
                question.target, question.resume_at = None, self.port.now + PAUSE

    def drop(self, unwanted: Callable[[Question], bool]) -> None:
        """Nobody waits for these answers any more."""
        for question in list(self._open.values()):
            if unwanted(question):
                del self._open[question.number]
