"""Where one producer appends while its shard has no leader: the main log, or a fork of it."""

from __future__ import annotations

from overlay.machine import Peer
from streams.access import pacing
from streams.log.names import fork_shard, parse_fork
from streams.programs.producer.messages import FORK_AFTER, FORKED


class ForkDetour:
    """Of one session: the fork that it is in, and the search for one."""

    def __init__(self, main: str, producer: str, now: float) -> None:
        self._main = main
        self._producer = producer
        self.fork = ""
        """In which it appends; "": in the main log."""
        self.is_joining = False
        """Whether the fork is still to learn of the producer."""
        self.began_there = False
        """Whether its session was opened in the fork."""
        self.awaits_copy = False
        """Whether it has left a fork, and no leader has appended anything since."""
        self._progressed = now  # when something was answered last, or there was nothing to do
        self._asked_at = float("-inf")
        self._request = self._requests = 0
        self._peer: Peer | None = None  # who was asked last

    @property
    def shard(self) -> str:
        """The log in which it appends."""
        return fork_shard(self._main, self.fork) if self.fork else self._main

    def name(self, has_session: bool) -> str:
        """The producer's name there. A session of the node that begins in a fork has a name of its
        own, since its numbers are not those of the main log."""
        is_own = self.fork and (self.began_there or not has_session)
        return f"{self._producer}{FORKED}{self.fork}" if is_own else self._producer

    def progress(self, now: float) -> None:
        """Something was answered, or there was nothing to do."""
        self._progressed = now

    def is_due(self, now: float) -> bool:
        """Whether there was no answer for so long that it goes elsewhere."""
        return now - self._progressed >= FORK_AFTER

    def next_peer(self, replicas: tuple[Peer, ...], now: float) -> Peer | None:
        """The replica that is asked for a fork next; None: none just now."""
        if not replicas or now - self._asked_at < pacing.DOUBT:
            return None
        self._asked_at = now
        self._peer = replicas[self._requests % len(replicas)]
        self._requests += 1
        return self._peer

    def asked(self, request: int) -> None:
        """That one was asked with this number."""
        self._request = request

    def is_answer(self, sender: Peer, request: int) -> bool:
        """Whether this answers the last question."""
        is_asked = self._peer is not None and self._peer.id == sender.id
        return is_asked and request == self._request and not self.fork

    def enter(self, fork: str, has_session: bool, now: float) -> bool:
        """Append in a fork from now on. Returns whether there can be one of that name."""
        if parse_fork(fork) is None:
            return False
        self.fork, self.is_joining = fork, has_session
        self._progressed = now
        return True

    def joined(self) -> None:
        """The fork knows the producer."""
        self.is_joining = False

    def opened(self) -> None:
        """A session is open where it appends now."""
        self.began_there = bool(self.fork)

    def leave(self, now: float) -> bool:
        """Append in the main log from now on, whose leader refuses what does not follow on the rows
        of the fork until that is copied. Returns whether the session ends by that."""
        ends, self.began_there = self.began_there, False
        self.fork, self.is_joining = "", False
        self._progressed, self.awaits_copy = now, True
        return ends

    def copied(self) -> None:
        """A leader of the main log, or of a fork, has answered."""
        self.awaits_copy = False
