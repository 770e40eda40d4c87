"""What programs have at all shards of a stream, with a session for each: readings, memberships.

An attachment begins when its stream is located, is ready when each shard's leader has opened its
session, and ends with its program, with an error, or when the program says so. While it lasts, its
sessions go on at other leaders by themselves; where no majority of a shard's replicas answers, its
program is told why nothing comes, and told again when that is over.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, Final, Generic, Protocol, TypeVar

from overlay.bounded import BoundedDict
from overlay.client import Command, Done, Failed
from overlay.links.events import LinkDown
from overlay.machine import Machine, Port, Timer
from streams.access import pacing
from streams.access.locator import Locator, StreamLocated, StreamMissing
from streams.access.reasons import REMOVED, Cause, no_majority, replaced
from streams.access.session import Session, Sessions, SessionUser
from streams.directory.entry import StreamEntry

ENDED_KEPT: Final = 1_000
"""Attachments that have failed of which is kept why, for commands that programs still send."""

PartT = TypeVar("PartT")


class Attaching(Protocol):
    """The command with which an attachment begins."""

    @property
    def request(self) -> int:
        """By which its program knows it."""

    @property
    def stream(self) -> str:
        """The name of the stream."""


CommandT = TypeVar("CommandT", bound=Attaching)


class Attached(Generic[CommandT, PartT]):
    """What a program has at a stream. It has no sessions until its stream is located."""

    def __init__(self, client: int, command: CommandT) -> None:
        self.client = client
        self.command = command
        self.entry: StreamEntry | None = None
        self.sessions: list[Session[Any, PartT]] = []
        self.parts: list[PartT] = []
        """Of the sessions, in their order: by shard."""
        self.is_ready = False
        """Whether its program was told that it has begun."""
        self.failed: Cause | None = None
        self.waits = self.told = ""
        """Why nothing can come just now, and what its program was told of that; "": it can."""
        self.turn = 0
        """The shard that is served first."""

    @property
    def key(self) -> tuple[int, int]:
        """Its name: the client and the request with which it began."""
        return self.client, self.command.request

    def in_turn(self) -> Iterable[Session[Any, PartT]]:
        """Its sessions, each time from another one on."""
        self.turn = (self.turn + 1) % len(self.sessions)
        return (*self.sessions[self.turn :], *self.sessions[: self.turn])


AttachmentT = TypeVar("AttachmentT", bound=Attached[Any, Any])


class Attachments(Machine, SessionUser[AttachmentT, PartT], Generic[AttachmentT, PartT]):
    """The base of machines whose programs have attachments."""

    noun: str
    """What an attachment is to programs."""
    look_timer: Timer

    def __init__(self, port: Port, incarnation: int, locator: Locator) -> None:
        """`incarnation` grows with each start of the node."""
        super().__init__(port)
        self.incarnation = incarnation
        self.locator = locator
        self.sessions: Sessions[AttachmentT, PartT] = Sessions(port, locator, self, incarnation)
        self.attached: dict[tuple[int, int], AttachmentT] = {}
        self.ended: BoundedDict[tuple[int, int], Cause] = BoundedDict(ENDED_KEPT)
        self._is_looking = False

    # -- what differs ----------------------------------------------------------------------------

    @abstractmethod
    def place(self, attachment: AttachmentT, entry: StreamEntry) -> Cause | None:
        """Its stream is located: give it its sessions (`add_session`). Returns why not."""

    @abstractmethod
    def stuck(self, located: StreamLocated, place: int) -> Cause | None:
        """Why nothing can come of a shard; None: it can, as far as is known."""

    @abstractmethod
    def goes_on(self, attachment: AttachmentT) -> bool:
        """Whether the program was attached before, so that it waits for a majority."""

    @abstractmethod
    def serve(self, attachment: AttachmentT) -> None:
        """Answer who waits for something, if that is there."""

    @abstractmethod
    def dropped(self, attachment: AttachmentT, reason: Cause) -> None:
        """It has no sessions any more: answer who waits with this."""

    @abstractmethod
    def count_failed(self) -> None:
        """One has failed."""

    def forgets_failed(self, attachment: AttachmentT) -> bool:
        """Whether nothing of one that has failed is wanted any more."""
        return True

    # -- programs --------------------------------------------------------------------------------

    def begin_attachment(self, attachment: AttachmentT) -> None:
        """Find its stream."""
        self.attached[attachment.key] = attachment
        self.locator.locate(attachment.command.stream)
        if not self._is_looking:
            self._is_looking = True
            self.port.set_timer(pacing.LOOK, self.look_timer)

    def add_session(
        self, attachment: AttachmentT, part: PartT, place: int, shard: str
    ) -> Session[AttachmentT, PartT]:
        """Give an attachment a session with a shard's leader."""
        stream = attachment.command.stream
        session = Session(self.sessions, attachment, part, stream, place, shard)
        attachment.sessions.append(session)
        attachment.parts.append(part)
        return session

    def get(self, client: int, command: Command, number: int) -> AttachmentT | None:
        """The attachment that a command means; None: there is none, and the program was told."""
        found = self.attached.get((client, number))
        if found is None:
            self.fail(client, command.request, self._why_none(client, number))
        return found

    def _why_none(self, client: int, number: int) -> Cause:
        unknown = Cause(REMOVED, f"there is no such {self.noun}")
        return self.ended.get((client, number), unknown)

    def end_attachment(self, client: int, command: Command, number: int) -> None:
        """A program wants an attachment no more, or one that has failed."""
        found = self.attached.pop((client, number), None)
        if found is not None:
            self._drop(found, Cause("ended", f"the {self.noun} was ended"))
        elif self.ended.pop((client, number), None) is None:
            self.fail(client, command.request, self._why_none(client, number))
            return
        self.port.reply(client, Done(command.request))

    def client_gone(self, client: int) -> None:
        """A program has gone."""
        for key in [key for key in self.ended if key[0] == client]:
            del self.ended[key]
        for key in [key for key in self.attached if key[0] == client]:
            self.abandoned(self.attached[key])
            self._drop(self.attached.pop(key), Cause("ended", ""))

    @abstractmethod
    def abandoned(self, attachment: AttachmentT) -> None:
        """Nobody waits for answers of it any more."""

    def fail(self, client: int, request: int, reason: Cause | tuple[str, str]) -> None:
        """Refuse a command."""
        self.port.reply(client, Failed(request, *reason))

    def end(self, attachment: AttachmentT, reason: Cause | tuple[str, str]) -> None:
        """It has failed: its program learns that, after what has come for it."""
        if attachment.failed is not None:
            return
        self.count_failed()
        if not attachment.is_ready:
            del self.attached[attachment.key]
            self.fail(attachment.client, attachment.command.request, reason)
        self._drop(attachment, Cause(*reason))
        self.forget_failed(attachment)

    def _drop(self, attachment: AttachmentT, reason: Cause) -> None:
        attachment.failed = reason
        for session in attachment.sessions:
            self.sessions.end(session)
        self.dropped(attachment, reason)

    def forget_failed(self, attachment: AttachmentT) -> None:
        """Keep of one that has failed only why, as soon as nothing else of it is wanted."""
        is_here = self.attached.get(attachment.key) is attachment
        if is_here and attachment.failed is not None and self.forgets_failed(attachment):
            del self.attached[attachment.key]
            self.ended[attachment.key] = attachment.failed

    def failed(self, session: Session[AttachmentT, PartT], code: str, text: str) -> None:
        """As `SessionUser`: with one session the whole attachment has failed."""
        self.end(session.owner, (code, text))

    def flows(self, attachment: AttachmentT) -> None:
        """A session has opened, or its leader a majority again: rows can come if all have."""
        if attachment.waits and all(s.is_open and not s.is_cut_off for s in attachment.sessions):
            attachment.waits = ""
            self.serve(attachment)

    def kept(self, session: Session[AttachmentT, PartT], is_cut_off: bool) -> None:
        """A leader has answered a keep-alive, and said whether a majority answers it. If none does,
        the stream's owner knows how many replicas do."""
        session.cut_off(is_cut_off)
        if is_cut_off:
            self.locator.locate(session.stream)
        else:
            self.flows(session.owner)

    # -- leaders and owners ----------------------------------------------------------------------

    def look(self) -> None:
        """To be called when the timer has fired."""
        for attachment in self.attached.values():
            if attachment.entry is None and attachment.failed is None:
                self.locator.locate(attachment.command.stream)
        self.sessions.look()
        self._is_looking = bool(self.attached)
        if self._is_looking:
            self.port.set_timer(pacing.LOOK, self.look_timer)

    def on_link_down(self, event: LinkDown) -> None:
        """A node is out of reach."""
        self.sessions.link_down(event.peer)

    def on_located(self, event: StreamLocated) -> None:
        """A stream is found, or its leaders are others."""
        for attachment in list(self.attached.values()):
            if attachment.command.stream == event.name and attachment.failed is None:
                self._located(attachment, event)

    def _located(self, attachment: AttachmentT, event: StreamLocated) -> None:
        if attachment.entry is None:
            attachment.entry = event.entry
            if reason := self.place(attachment, event.entry):
                self.end(attachment, reason)
                return
        elif attachment.entry.id != event.entry.id:
            self.end(attachment, replaced())
            return
        waiting = [session for session in attachment.sessions if not session.is_open]
        reasons = [self.stuck(event, session.place) for session in waiting]
        reasons += [no_majority(event, s.place) for s in attachment.sessions if s.is_cut_off]
        stuck = next(filter(None, reasons), None)
        if stuck and not attachment.is_ready and not self.goes_on(attachment):
            self.end(attachment, stuck)
            return
        for session in waiting:
            self.sessions.begin(session)
        if stuck and attachment.waits != stuck.text:
            attachment.waits = stuck.text
            self.serve(attachment)

    def on_missing(self, event: StreamMissing) -> None:
        """There is no such stream, or nobody knows."""
        for attachment in list(self.attached.values()):
            is_meant = attachment.command.stream == event.name
            if is_meant and (event.code == REMOVED or attachment.entry is None):
                self.end(attachment, (event.code, event.reason))
