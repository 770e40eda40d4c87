"""The thread that sends requests to the node: status, peers, ring, where, why, publish.

It has one connection and one request at a time. A user's requests go before polls, and the same
poll is never queued twice, so that a slow reply (a traversal of the ring) delays polls but does not
let them accumulate. This connection's state is shown as the node's: when it breaks, all queued
requests get a failure, and it is reopened with backoff.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from canopy.client.blocking import ControlClient
from canopy.client.errors import CommandFailed, CommandTimeoutError, ControlError
from canopy.client.resubscription import Backoff
from canopy.client.seals import open_seals
from canopy.tui.constants import CONNECT_TIMEOUT, IDLE_CHECK, REQUEST_TIMEOUT, REQUESTS
from canopy.tui.model.inbox import Inbox, Worker
from overlay.client import CREDIT, Command, Failed, GetStatus, Reply

LOST = (ControlError, OSError)
"""The errors of a connection that fails; CommandFailed, a subclass, has to be caught before."""

Connector: TypeAlias = Callable[[], ControlClient]
"""Opens a connection to the node, or raises a ControlError with advice."""


def connector(where: str | None, seal: str | None = None) -> Connector:
    """Return a function that connects to the node of the data folder `where` (None: the default
    one). Payloads are sealed and opened with the seal file `seal`. Raises a ControlError.

    Each thread has its own connection, and so each subscription: a slow SUBACK does not delay the
    events of another, and the end of the connection ends the subscription at the node, however the
    TUI ended.
    """
    sealer = open_seals(seal)
    return lambda: ControlClient.connect(where, CONNECT_TIMEOUT, CREDIT, sealer)


def reason_of(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its class."""
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__


OnReply: TypeAlias = Callable[[Reply], None]
"""Called in the app's thread with the reply; a refusal, a time-out or a lost connection is a
`Failed`."""

OnState: TypeAlias = Callable[[bool, str, float], None]
"""Called in the app's thread with: whether connected, reason, seconds until the next attempt."""


class PendingRequest(NamedTuple):
    """A command that is queued or sent."""

    command: Command
    on_reply: OnReply
    timeout: float


class Requester(Worker):
    """The thread for requests. Start it once; `stop` ends it within `IDLE_CHECK`."""

    def __init__(self, connect: Connector, inbox: Inbox, on_state: OnState) -> None:
        super().__init__("canopy-requests", inbox)
        self._connect = connect
        self._on_state = on_state
        self._queue: deque[PendingRequest] = deque()
        self._wake = threading.Condition()
        self._up = False

    def stop(self) -> None:
        """Make no further requests. Does not wait for the current one."""
        super().stop()
        with self._wake:
            self._wake.notify_all()

    def ask(
        self,
        command: Command,
        on_reply: OnReply,
        poll: bool = False,
        timeout: float = REQUEST_TIMEOUT,
    ) -> None:
        """Queue a request. A `poll` waits for users' requests; only one poll of each type is
        queued."""
        with self._wake:
            if poll and any(type(q.command) is type(command) for q in self._queue):
                return
            if not self._up or len(self._queue) >= REQUESTS:
                reason = "too many requests are queued" if self._up else "not connected to a node"
                refusal = Failed(0, "unknown", reason)
                if not poll:
                    self._inbox.call_in_app(lambda: on_reply(refusal))
                return
            request = PendingRequest(command, on_reply, timeout)
            if poll:
                self._queue.append(request)
            else:
                self._queue.appendleft(request)
            self._wake.notify_all()

    def _run(self) -> None:
        backoff = Backoff()
        while not self._stop.is_set():
            try:
                client = self._connect()
            except LOST as error:
                self._on_lost(reason_of(error), backoff.next())
                continue
            try:
                self._confirm(client)
                backoff.reset()
                with self._wake:
                    self._up = True
                self._report(True, "", 0.0)
                self._serve(client)
            except LOST as error:
                self._on_lost(reason_of(error), backoff.next())
            finally:
                client.close()

    @staticmethod
    def _confirm(client: ControlClient) -> None:
        """Check that the node serves this connection: a node with too many programs refuses the
        first request."""
        with contextlib.suppress(CommandFailed):
            client.request(GetStatus(0), REQUEST_TIMEOUT)

    def _on_lost(self, reason: str, wait: float) -> None:
        with self._wake:
            self._up = False
            waiting = list(self._queue)
            self._queue.clear()
        for request in waiting:
            self._answer(request, Failed(0, "unknown", f"the node is gone: {reason}"))
        self._report(False, reason, wait)
        with self._wake:
            self._wake.wait_for(self._stop.is_set, wait)

    def _serve(self, client: ControlClient) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._stop.is_set() or self._queue, IDLE_CHECK)
                if self._stop.is_set():
                    return
                request = self._queue.popleft() if self._queue else None
            if request is None:
                continue
            try:
                reply = client.request(request.command, request.timeout)
            except CommandFailed as error:
                reply = Failed(0, error.code, error.reason)
            except CommandTimeoutError:
                reply = Failed(0, "time-out", f"no answer within {request.timeout:g} s")
            except LOST as error:
                lost = f"the node went away before it answered: {reason_of(error)}"
                self._answer(request, Failed(0, "unknown", lost))
                raise
            self._answer(request, reply)

    def _answer(self, request: PendingRequest, reply: Reply) -> None:
        self._inbox.call_in_app(lambda: request.on_reply(reply))

    def _report(self, up: bool, reason: str, wait: float) -> None:
        self._inbox.call_in_app(lambda: self._on_state(up, reason, wait))
