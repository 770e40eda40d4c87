"""The thread that asks the node: status, peers, ring, where, why, publish.

One connection, one question at a time. Questions of the person go before those of the beat, and the
same poll is never queued twice, so a slow answer (a walk around the ring) delays and never piles
up. The connection's health is the node's health as the TUI shows it: when it breaks, everything
queued is answered with a failure and it is opened again with backoff.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from canopy.client.errors import CommandFailed, CommandTimeoutError
from canopy.client.resubscription import Backoff
from canopy.client.synchronous import Link
from canopy.tui.model.client import LOST, Connector, failure, reason_of
from canopy.tui.model.inbox import Inbox
from overlay.client import Command, Failed, Reply

QUEUE = 64  # questions that may wait; wild guess: a person asks one at a time
TIMEOUT = 10.0  # seconds for an answer; a walk around a large ring takes a few
IDLE = 0.5  # seconds between looks at the stop flag

OnReply: TypeAlias = Callable[[Reply], None]
"""Called in the app's thread; a refusal, a time-out or a lost node is a `Failed`."""

OnState: TypeAlias = Callable[[bool, str, float], None]
"""Called in the app's thread: attached?, reason, seconds until the next attempt."""


class Question(NamedTuple):
    """A command on its way."""

    command: Command
    on_reply: OnReply
    timeout: float


class Asker:
    """Start it once; `stop` ends the thread within half a second."""

    def __init__(self, connect: Connector, inbox: Inbox, on_state: OnState) -> None:
        self._connect = connect
        self._inbox = inbox
        self._on_state = on_state
        self._queue: deque[Question] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._up = False
        self._thread = threading.Thread(target=self._run, name="canopy-ask", daemon=True)

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def stop(self) -> None:
        """Ask nothing more. Does not wait for a question that is under way."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()

    def ask(
        self, command: Command, on_reply: OnReply, poll: bool = False, timeout: float = TIMEOUT
    ) -> None:
        """Queue a question; a `poll` yields to the person's and is dropped if one like it waits."""
        with self._wake:
            if poll and any(type(q.command) is type(command) for q in self._queue):
                return
            if not self._up or len(self._queue) >= QUEUE:
                reason = "too many questions wait" if self._up else "not attached to a node"
                refusal = Failed(0, "unknown", reason)
                if not poll:
                    self._inbox.tell(lambda: on_reply(refusal))
                return
            question = Question(command, on_reply, timeout)
            if poll:
                self._queue.append(question)
            else:
                self._queue.appendleft(question)
            self._wake.notify_all()

    def _run(self) -> None:
        backoff = Backoff()
        while not self._stopping:
            try:
                client = self._connect()
            except LOST as error:
                self._gone(reason_of(error), backoff.next())
                continue
            backoff.reset()
            with self._wake:
                self._up = True
            self._tell(True, "", 0.0)
            try:
                self._serve(client)
            except LOST as error:
                self._gone(reason_of(error), backoff.next())
            finally:
                client.close()

    def _gone(self, reason: str, wait: float) -> None:
        with self._wake:
            self._up = False
            waiting = list(self._queue)
            self._queue.clear()
        for question in waiting:
            self._answer(question, Failed(0, "unknown", f"the node is gone: {reason}"))
        self._tell(False, reason, wait)
        with self._wake:
            self._wake.wait_for(lambda: self._stopping, wait)

    def _serve(self, client: Link) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._stopping or self._queue, IDLE)
                if self._stopping:
                    return
                question = self._queue.popleft() if self._queue else None
            if question is None:
                continue
            try:
                reply = client.request(question.command, question.timeout)
            except CommandFailed as error:
                reply = failure(error)
            except CommandTimeoutError:
                reply = Failed(0, "time-out", f"no answer within {question.timeout:g} s")
            except LOST as error:
                gone = f"the node went away before it answered: {reason_of(error)}"
                self._answer(question, Failed(0, "unknown", gone))
                raise
            self._answer(question, reply)

    def _answer(self, question: Question, reply: Reply) -> None:
        self._inbox.tell(lambda: question.on_reply(reply))

    def _tell(self, up: bool, reason: str, wait: float) -> None:
        self._inbox.tell(lambda: self._on_state(up, reason, wait))
