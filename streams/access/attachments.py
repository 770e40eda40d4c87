"""Attachments of programs to all shards of a stream, with a session for each: readings,
memberships.

An attachment begins when its stream is located, is ready when each shard's leader has opened its
session, and ends with its program, with an error, or when the program says so. While it lasts, its
sessions go on at other leaders by themselves; where no majority of a shard's replicas answers, its
program is told why nothing comes, and told again when that is over.

`Attachments` is the machine of all attachments of one kind. It drives their sessions as the table
of states says (`SessionDriver`); its subclasses say what differs between the kinds.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

from overlay.bounded import BoundedDict
from overlay.client import BeginReading, Command, Done, Failed
from overlay.machine import Machine, Message, NodeId, Peer, Port, Timer
from overlay.stream_client import AttachGroup
from streams.access import pacing, reasons
from streams.access.locator import StreamLocated, StreamLocator, StreamMissing
from streams.access.reasons import REMOVED, Cause
from streams.access.session import Move, Phase, Session
from streams.directory.entry import StreamEntry

ENDED_KEPT: Final = 1_000
"""The limit of failed attachments whose reason is kept, for the programs' later commands."""

OPENING_MOST: Final = 500
"""The limit of sessions that one leader opens at the same time for this node: 0.1 s of work, most
of it for selectors."""

KEEP_ALIVE_LOOKS: Final = round(pacing.KEEP_ALIVE / pacing.LOOK)

PartT = TypeVar("PartT")


CommandT = TypeVar("CommandT", bound=BeginReading | AttachGroup)


class Attached(Generic[CommandT, PartT]):
    """One reading or membership of a program. Its sessions begin when its stream is located."""

    def __init__(self, client: int, command: CommandT, goes_on: bool) -> None:
        """`goes_on`: the program was attached before, and waits while there is no majority."""
        self.client = client
        self.command = command
        self.goes_on = goes_on
        self.entry: StreamEntry | None = None
        self.sessions: list[Session[Any, PartT]] = []
        self.parts: list[PartT] = []
        """The parts of the sessions, in the order of the shards."""
        self.is_ready = False
        """Whether the program has the answer that it has begun."""
        self.failed: Cause | None = None
        self.waits = self.told = ""
        """The reason why nothing can come now, and the one that the program has; "": none."""
        self.turn = 0
        """The index of the session that is served first."""

    @property
    def key(self) -> tuple[int, int]:
        """The client, and the number of the command that began it."""
        return self.client, self.command.request

    def in_turn(self) -> Iterable[Session[Any, PartT]]:
        """Return the sessions, beginning with another one at each call (round robin)."""
        self.turn = (self.turn + 1) % len(self.sessions)
        return (*self.sessions[self.turn :], *self.sessions[: self.turn])


AttachmentT = TypeVar("AttachmentT", bound=Attached[Any, Any])


class Attachments(Machine, Generic[AttachmentT, PartT]):
    """The base of a machine that has all attachments of one kind."""

    noun: str
    """The name of an attachment in reasons: reading, membership."""
    needs_majority: bool
    """Whether a leader without a majority refuses to open a session."""
    look_timer: Timer

    def __init__(self, port: Port, incarnation: int, locator: StreamLocator) -> None:
        """`incarnation` grows with each start of the node."""
        super().__init__(port)
        self.incarnation = incarnation
        self.locator = locator
        self.attached: dict[tuple[int, int], AttachmentT] = {}
        self.ended: BoundedDict[tuple[int, int], Cause] = BoundedDict(ENDED_KEPT)
        self._number = first_number(incarnation)
        self._sessions: dict[Session[AttachmentT, PartT], None] = {}  # begun, and not over
        self._by_number: dict[int, Session[AttachmentT, PartT]] = {}
        self._load = LeaderLoad()
        self._waiting: deque[Session[AttachmentT, PartT]] = deque()  # for leaders that open others
        self._looks = 0
        self._is_looking = False
        locator.tell_losses(self.link_down)

    # -- what differs ----------------------------------------------------------------------------

    @abstractmethod
    def place(self, attachment: AttachmentT, entry: StreamEntry) -> Cause | None:
        """Add the sessions (`add_session`) of an attachment whose stream is located. Return the
        reason why it fails; None: it does not."""

    @abstractmethod
    def opening(self, session: Session[AttachmentT, PartT]) -> Message:
        """Return the message that asks the leader to open `session.number`."""

    @abstractmethod
    def closing(self, session: Session[AttachmentT, PartT], is_over: bool) -> Message | None:
        """Return the message that ends `session.number` at the leader; None: nothing is sent.
        `is_over`: the session is not opened again under another number."""

    @abstractmethod
    def keep(
        self, leader: Peer, shard: str, sessions: Sequence[Session[AttachmentT, PartT]]
    ) -> None:
        """Send keep-alives of sessions to their leader."""

    @abstractmethod
    def looked_at(self, session: Session[AttachmentT, PartT], is_keeping: bool) -> None:
        """Do the periodic work of an open session. `is_keeping`: keep-alives are sent now."""

    @abstractmethod
    def serve(self, attachment: AttachmentT) -> None:
        """Answer the program's waiting commands, as far as rows or reasons are there."""

    @abstractmethod
    def dropped(self, attachment: AttachmentT, reason: Cause) -> None:
        """Refuse the program's waiting commands, since the sessions have ended."""

    @abstractmethod
    def abandoned(self, attachment: AttachmentT) -> None:
        """Forget the waiting commands of a program that has gone."""

    @abstractmethod
    def count_end(self, goes_on: bool) -> None:
        """Count a session that leaves its leader (`goes_on`), or an attachment that fails."""

    def forgets_failed(self, attachment: AttachmentT) -> bool:
        """Whether a failed attachment has nothing left for its program."""
        return True

    # -- programs --------------------------------------------------------------------------------

    def begin_attachment(self, attachment: AttachmentT) -> None:
        """Take an attachment, and locate its stream."""
        self.attached[attachment.key] = attachment
        self.locator.locate(attachment.command.stream)
        if not self._is_looking:
            self._is_looking = True
            self.port.set_timer(pacing.LOOK, self.look_timer)

    def add_session(self, attachment: AttachmentT, part: PartT, place: int, shard: str) -> None:
        """Add a session with the leader of a shard. `place`: the shard's number in its stream."""
        stream = attachment.command.stream
        attachment.sessions.append(Session(self, attachment, part, stream, place, shard))
        attachment.parts.append(part)

    def get(self, client: int, command: Command, number: int) -> AttachmentT | None:
        """Return the attachment that a command names; None: there is none, and the command is
        refused."""
        found = self.attached.get((client, number))
        if found is None:
            self.fail(client, command.request, self._why_none(client, number))
        return found

    def _why_none(self, client: int, number: int) -> Cause:
        unknown = Cause(REMOVED, f"there is no such {self.noun}")
        return self.ended.get((client, number), unknown)

    def end_attachment(self, client: int, command: Command, number: int) -> None:
        """End an attachment for its program, also a failed one."""
        found = self.attached.pop((client, number), None)
        if found is not None:
            self._drop(found, Cause("ended", f"the {self.noun} was ended"))
        elif self.ended.pop((client, number), None) is None:
            self.fail(client, command.request, self._why_none(client, number))
            return
        self.port.reply(client, Done(command.request))

    def client_gone(self, client: int) -> None:
        """End all attachments of a program that has gone."""
        for key in [key for key in self.ended if key[0] == client]:
            del self.ended[key]
        for key in [key for key in self.attached if key[0] == client]:
            self.abandoned(self.attached[key])
            self._drop(self.attached.pop(key), Cause("ended", ""))

    def fail(self, client: int, request: int, reason: Cause | tuple[str, str]) -> None:
        """Refuse a program's command with a reason: its code and its text."""
        self.port.reply(client, Failed(request, *reason))

    def end(self, attachment: AttachmentT, reason: Cause) -> None:
        """Fail an attachment. Its program receives the rows that came before, and then the
        reason."""
        if attachment.failed is not None:
            return
        self.count_end(goes_on=False)
        if not attachment.is_ready:
            del self.attached[attachment.key]
            self.fail(attachment.client, attachment.command.request, reason)
        self._drop(attachment, reason)
        self.forget_failed(attachment)

    def _drop(self, attachment: AttachmentT, reason: Cause) -> None:
        attachment.failed = reason
        for session in attachment.sessions:
            session.happens(Move.ENDED)
            self._sessions.pop(session, None)
        self.dropped(attachment, reason)

    def forget_failed(self, attachment: AttachmentT) -> None:
        """Keep only the reason of a failed attachment, once its program has all that came."""
        is_here = self.attached.get(attachment.key) is attachment
        if is_here and attachment.failed is not None and self.forgets_failed(attachment):
            del self.attached[attachment.key]
            self.ended[attachment.key] = attachment.failed

    # -- owners of streams -----------------------------------------------------------------------

    def on_located(self, event: StreamLocated) -> None:
        """Begin or continue the attachments to a stream."""
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
            self.end(attachment, reasons.replaced())
            return
        why = event.no_majority if self.needs_majority else event.stuck
        waiting = [session for session in attachment.sessions if not session.is_open]
        said = [why(session.place) for session in waiting]
        said += [event.no_majority(s.place) for s in attachment.sessions if s.is_cut_off]
        stuck = next(filter(None, said), None)
        if stuck and not attachment.is_ready and not attachment.goes_on:
            self.end(attachment, stuck)
            return
        for session in waiting:
            self.seek(session)
        if stuck and attachment.waits != stuck.text:
            attachment.waits = stuck.text
            self.serve(attachment)

    def on_missing(self, event: StreamMissing) -> None:
        """Fail the attachments to a stream that was removed, or that was never located."""
        for attachment in list(self.attached.values()):
            is_meant = attachment.command.stream == event.name
            if is_meant and (event.code == REMOVED or attachment.entry is None):
                self.end(attachment, Cause(event.code, event.reason))

    # -- leaders ---------------------------------------------------------------------------------

    def next_number(self) -> int:
        """Return a number that no session of this node has had, also before its last restart."""
        self._number += 1
        return self._number

    def seek(self, session: Session[AttachmentT, PartT]) -> None:
        """Open a session that has no leader, if the leader of its shard is known."""
        self._sessions[session] = None
        if session.state in (Phase.FINDING, Phase.LOST):
            session.happens(Move.DUE)

    def heard(self, sender: Peer, number: int) -> Session[AttachmentT, PartT] | None:
        """Return the session with this number at the sender, and note that the sender is alive.
        None: there is none, and the message is ignored."""
        session = self._by_number.get(number)
        if session is None or session.leader is None or session.leader.id != sender.id:
            return None
        session.heard(self.port.now)
        self._load.heard(sender.id, self.port.now)
        return session

    def answered(self, session: Session[AttachmentT, PartT]) -> None:
        """Note that the leader has answered the opening, and open a session that waits for room."""
        assert session.leader is not None
        self._load.done(session.leader.id, session.number)
        while self._waiting:
            following = self._waiting.popleft()
            if following.state is Phase.FINDING:
                following.happens(Move.DUE)
                break

    def missed(self, sender: Peer, numbers: Sequence[int]) -> None:
        """Open sessions again that the leader does not have, or for which a message was lost."""
        for number in numbers:
            if session := self.heard(sender, number):
                session.happens(Move.MISSED)

    def moved(self, sender: Peer, numbers: Sequence[int], leader: Peer | None = None) -> None:
        """Move sessions to another leader. `leader`: the one that the sender names."""
        for number in numbers:
            if session := self.heard(sender, number):
                session.happens(Move.MOVED)
                session.named(leader)

    def refused(self, sender: Peer, number: int, code: str, text: str) -> None:
        """Move or fail a session that the leader refuses."""
        session = self.heard(sender, number)
        if session is not None and code in reasons.NOT_HERE:
            session.happens(Move.MOVED)
        elif session is not None:
            session.failed(Cause(code, text), Move.REFUSED)

    def protocol_error(self, session: Session[AttachmentT, PartT], why: str) -> None:
        """Count an answer that no honest leader gives, and open the session again. After
        `pacing.PROTOCOL_ERRORS_MOST` of them the attachment fails."""
        self.port.count("stream_answers_refused")
        errors = session.erred()
        if session.leader is None:  # what it had sent before it was lost is looked into now
            return
        if errors < pacing.PROTOCOL_ERRORS_MOST:
            session.happens(Move.LIED)
            return
        cause = reasons.protocol_error(session.place, session.leader, why)
        session.failed(cause, Move.GIVEN_UP)

    def kept(self, session: Session[AttachmentT, PartT], is_cut_off: bool) -> None:
        """Take the answer to a keep-alive. If the leader has no majority, ask the stream's owner
        how many replicas answer."""
        if is_cut_off or session.is_cut_off:
            session.cut_off(is_cut_off)
            if is_cut_off:
                self.locator.locate(session.stream)
            else:
                self.flows(session.owner)

    def flows(self, attachment: AttachmentT) -> None:
        """Tell the program that rows can come again, if all sessions are open and no leader lacks a
        majority."""
        if attachment.waits and all(s.is_open and not s.is_cut_off for s in attachment.sessions):
            attachment.waits = ""
            self.serve(attachment)

    def link_down(self, peer: Peer) -> None:
        """Move the sessions of an unreachable leader."""
        self._load.lost(peer.id)
        for session in list(self._sessions):
            if session.leader is not None and session.leader.id == peer.id:
                session.happens(Move.DOWN)

    def look(self) -> None:
        """Open sessions, leave silent leaders, send keep-alives, and locate streams whose leaders
        are not known. Called by the timer's handler."""
        for attachment in self.attached.values():
            if attachment.entry is None and attachment.failed is None:
                self.locator.locate(attachment.command.stream)
        self._look_at_sessions()
        self._is_looking = bool(self.attached)
        if self._is_looking:
            self.port.set_timer(pacing.LOOK, self.look_timer)

    def _look_at_sessions(self) -> None:
        self._looks += 1
        now, is_keeping = self.port.now, self._looks % KEEP_ALIVE_LOOKS == 0
        kept: dict[tuple[Peer, str], list[Session[AttachmentT, PartT]]] = {}
        sought: dict[str, None] = {}
        self._waiting.clear()
        for session in list(self._sessions):
            if session.leader is not None and self._load.is_silent(session, now):
                session.happens(Move.SILENT)
            if session.leader is None:
                self.seek(session)
                if session.state is Phase.FINDING and self._leader_of(session) is None:
                    sought[session.stream] = None
            elif session.state is Phase.OPEN:
                if is_keeping:
                    kept.setdefault((session.leader, session.shard), []).append(session)
                self.looked_at(session, is_keeping)
        for (leader, shard), sessions in kept.items():
            self.keep(leader, shard, sessions)
        for stream in sought:
            self.locator.locate(stream)

    # -- what the table of states does: `SessionDriver` ------------------------------------------

    def _leader_of(self, session: Session[AttachmentT, PartT]) -> Peer | None:
        return session.hint or self.locator.leader(session.stream, session.place)

    def find(self, session: Session[AttachmentT, PartT]) -> None:
        """Lead the session to its leader, if that is known and has room; else let it wait."""
        leader = self._leader_of(session)
        if leader is None:
            return
        if self._load.is_busy(leader.id):
            self._waiting.append(session)
        else:
            session.led(leader)

    def open(self, session: Session[AttachmentT, PartT]) -> None:
        """Give the session a number, and ask its leader to open it."""
        assert session.leader is not None, "it is led"
        session.asked(self.next_number(), self.port.now)
        self._by_number[session.number] = session
        self._load.asks(session.leader.id, session.number)
        self.port.send(session.leader, self.opening(session))

    def doubt(self, session: Session[AttachmentT, PartT]) -> None:
        """Forget the leader of the session's shard."""
        assert session.leader is not None, "it is at a leader"
        self.locator.mistaken(session.stream, session.place, session.leader.id)

    def lose(self, session: Session[AttachmentT, PartT]) -> None:
        """Leave the session's leader; another one is looked for at the next look."""
        self.count_end(goes_on=True)
        self._close(session, is_over=False)

    def leave(self, session: Session[AttachmentT, PartT]) -> None:
        """Leave the leader for good."""
        self._close(session, is_over=True)

    def _close(self, session: Session[AttachmentT, PartT], is_over: bool) -> None:
        assert session.leader is not None, "it is at a leader"
        if message := self.closing(session, is_over):
            self.port.send(session.leader, message)
        self._load.done(session.leader.id, session.number)
        del self._by_number[session.number]
        session.left()

    def give_up(self, session: Session[AttachmentT, PartT]) -> None:
        """Fail the whole attachment of a session."""
        del self._sessions[session]
        self.end(session.owner, session.why)


class LeaderLoad:
    """The times at which each leader was last heard, and the sessions that it is opening.

    A leader that opens or serves thousands of sessions is late with some of them, and opening these
    again would only add to its work. So a leader counts as silent when no session hears from it; a
    single session is given up only after a longer time.
    """

    def __init__(self) -> None:
        self._heard: dict[NodeId, float] = {}
        self._asked: dict[NodeId, set[int]] = {}  # by number of the session

    def is_busy(self, leader: NodeId) -> bool:
        """Whether a leader is opening as many sessions as it may."""
        return len(self._asked.get(leader, ())) >= OPENING_MOST

    def asks(self, leader: NodeId, number: int) -> None:
        """Note that a leader is asked to open a session."""
        self._asked.setdefault(leader, set()).add(number)

    def done(self, leader: NodeId, number: int) -> None:
        """Note that a leader has opened a session, or need not."""
        asked = self._asked.get(leader)
        if asked is not None:
            asked.discard(number)
            if not asked:
                del self._asked[leader]

    def heard(self, leader: NodeId, now: float) -> None:
        """Note a message of a leader."""
        self._heard[leader] = now

    def lost(self, leader: NodeId) -> None:
        """Forget a leader that is unreachable."""
        self._heard.pop(leader, None)
        self._asked.pop(leader, None)

    def is_silent(self, session: Session[Any, Any], now: float) -> bool:
        """Whether a session should leave its leader."""
        assert session.leader is not None, "it is at a leader"
        alive_at = max(session.heard_at, self._heard.get(session.leader.id, session.heard_at))
        return now - alive_at > pacing.SILENT or now - session.heard_at > pacing.GIVE_UP


def first_number(incarnation: int) -> int:
    """Return a number below all that a node uses after this start, and above those of its earlier
    starts, which leaders may still know. At most 2**52."""
    return (incarnation & 0xFFFFF) << 32
