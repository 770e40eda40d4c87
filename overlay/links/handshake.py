"""The handshake: who are you, do we go on or begin anew, which connection stays (M5).

**Going on or beginning anew.** A session is named by what both sides call it: (incarnation,
session number). Hello and Welcome carry one's own name for it and the other's as far as known.

* Both agree: the session resumes, each side sends again from what the other `expected`.
* One knows the other's name, but the other does not know its own (0): that side has just begun, or
  its Welcome got lost on the way. Nothing can have been consumed, so all is sent from number 0.
* The name is newer than the one remembered: the other side has forgotten the session (it
  restarted, or gave us up). The old one is over (LinkDown), a new one begins.
* The name is older: words from the past, on a connection that was slow. Closed without a word.

**Two dial each other.** Of two connections in the handshake the one stays that the node with the
smaller id dialled; both sides see it the same way. A Hello also carries how many Hellos were sent
in the session, and a Welcome the same number: a Hello that its sender has since given up is
recognised, however late it comes.

**Who is there.** A dialler that knows only an address, or finds somebody else at it, gets a
Welcome with session 0, a name. It may then say Hello to that node on the same connection.
"""

from __future__ import annotations

from overlay.links.connections import Connections
from overlay.links.events import ConnectionId, LinkRecovered, LinkUp, SeedFailed, SessionEnd
from overlay.links.messages import PROTOCOL, Ack, Batch, Bye, Frame, Hello, Welcome
from overlay.links.session import Session, Stage, State, Wire
from overlay.machine import Message, Peer, ProtocolError

MAX_HELLOS = 32
"""Hellos on one connection: the repetitions of a lossy transport (at most 6 in 5 s) for a name and
for a session, with room."""


NO_ROOM = "too many sessions, and all are in use"


class Handshake(Connections):
    """The middle layer of `Links`: from a connection to a session that it carries."""

    def on_opened(self, connection: ConnectionId) -> None:
        """A dial succeeded: say Hello."""
        wire = self._wires.get(connection)
        if wire is None:
            return
        assert wire.stage is Stage.OPENING, "opened twice"
        self._greet(wire)

    def _greet(self, wire: Wire) -> None:
        """A first Hello on this connection, to its session or to whoever is there."""
        now = self._clock()
        wire.stage = Stage.GREETED
        if wire.session is not None:
            wire.session.dials += 1
        wire.pause = self._settings.retry_first
        wire.again = now + wire.pause
        wire.give_up = now + self._settings.connect_timeout
        self._say_hello(wire)
        self._alarms.set(wire, min(wire.again, wire.give_up))

    def _say_hello(self, wire: Wire) -> None:
        me, window, session = self._me, self._settings.window, wire.session
        if session is None:
            hello = Hello(PROTOCOL, self._overlay, me, self._incarnation, 0, 0, window)
        else:
            hello = Hello(
                protocol=PROTOCOL,
                overlay=self._overlay,
                peer=me,
                incarnation=self._incarnation,
                expected=session.receive_buffer.expected,
                yours=session.their_incarnation,
                credit=window,
                to=session.peer.id,
                session=session.number,
                your_session=session.their_number,
                dials=session.dials,
            )
        self._write(wire, hello)

    def _on_wire_alarm(self, wire: Wire, now: float) -> None:
        """The handshake takes long: repeat the Hello, or give up."""
        if wire.stage is Stage.LIVE:
            return
        if now >= wire.give_up:
            reason = "no handshake in time"
            self._close_wire(wire, reason)
            self._ended(wire, reason)
            return
        if wire.stage is Stage.GREETED and now >= wire.again:
            wire.pause *= 2.0
            wire.again = now + wire.pause
            self._say_hello(wire)
        self._alarms.set(wire, min(wire.again, wire.give_up))

    def _on_early_frame(self, wire: Wire, frame: Frame) -> None:
        """A frame on a connection that carries no session yet."""
        try:
            if isinstance(frame, Hello) and wire.stage is Stage.AWAITING:
                self._on_hello(wire, frame)
            elif isinstance(frame, Welcome) and wire.stage is Stage.GREETED:
                self._on_welcome(wire, frame)
            elif isinstance(frame, Bye):
                self._on_early_bye(wire, frame)
            elif isinstance(frame, Batch | Ack) and wire.stage is Stage.GREETED:
                self._count("link_early", 1)  # the Welcome before it was lost: both come again
            else:
                raise ProtocolError(f"{type(frame).__name__} before the handshake")
        except ProtocolError as error:
            self._refuse(wire, str(error))

    def _refuse(self, wire: Wire, reason: str, final: bool = False) -> None:
        self._count("link_errors", 1)
        if wire.connection not in self._wires:
            return
        self._write(wire, Bye(reason, final=final))
        self._close_wire(wire, reason)
        self._ended(wire, reason)

    def _on_early_bye(self, wire: Wire, bye: Bye) -> None:
        self._close_wire(wire, bye.reason)
        if wire.session is not None and bye.final:
            self._close_session(wire.session, bye.reason, left=False)
        self._ended(wire, bye.reason)

    def _stranger(self, greeting: Hello | Welcome) -> str:
        """Why this node does not talk to that one at all; empty if it does."""
        if greeting.protocol != PROTOCOL:
            return f"protocol {greeting.protocol} is not spoken here, but {PROTOCOL}"
        if greeting.overlay != self._overlay:
            return f"overlay {greeting.overlay!r} is not this one"
        return ""

    # The side that was dialled

    def _on_hello(self, wire: Wire, hello: Hello) -> None:
        wire.greetings += 1
        if wire.greetings > MAX_HELLOS:
            raise ProtocolError("too many greetings")
        if reason := self._stranger(hello):
            self._refuse(wire, reason, final=True)
            return
        if hello.to != self._me.id or hello.peer.id == self._me.id:
            me, window = self._me, self._settings.window
            name = Welcome(PROTOCOL, self._overlay, me, self._incarnation, 0, 0, window)
            self._write(wire, name)
            return
        if hello.session < 1 or hello.dials < 1:
            raise ProtocolError("a Hello without a session")
        if self._faults.until(hello.peer.id) > self._clock():
            self._count("link_refused", 1)
            self._write(wire, Bye("too soon after a fault"))
            self._close_wire(wire, "too soon after a fault")
            return
        session = self._session_for(hello)
        if session is None:
            self._close_wire(wire, "another connection took over")
            return
        start = 0
        if (hello.yours, hello.your_session) == (self._incarnation, session.number):
            start = hello.expected
        self._adopt(wire, session, hello, start)

    def _session_for(self, hello: Hello) -> Session | None:
        """The session that a Hello means; None if another connection carries it, or will."""
        session = self._sessions.get(hello.peer.id)
        unsent: list[tuple[bytes, Message]] = []
        name = (hello.incarnation, hello.session)
        if session is not None and session.their_number != 0:
            if session.is_older(*name):
                return None
            if not session.is_known_as(*name):
                restarted = hello.incarnation != session.their_incarnation
                reason = "it restarted" if restarted else "it has begun a new session"
                if not restarted:
                    unsent = session.send_buffer.take_queued()
                self._close_session(session, reason, left=False, end=SessionEnd.RESET)
                session = None
            elif hello.dials <= session.their_dials:
                return None
        if session is None:
            session = self._begin(hello.peer)
            if session is None:
                raise ProtocolError(NO_ROOM)
        elif not self._has_room(session):
            raise ProtocolError(NO_ROOM)
        for encoded, message in unsent:
            session.send_buffer.enqueue(encoded, message)
        rival = session.wire
        if rival is not None and rival.stage is Stage.GREETED and self._me.id < hello.peer.id:
            return None
        return session

    def _on_late_greeting(self, wire: Wire, session: Session, greeting: Hello | Welcome) -> None:
        """A greeting on a live connection: the repetition of one whose answer was lost."""
        if isinstance(greeting, Welcome) and greeting.session == 0:
            return  # a second answer to a repeated question for a name
        if not session.is_known_as(greeting.incarnation, greeting.session):
            raise ProtocolError(f"{type(greeting).__name__} in the middle of a session")
        if isinstance(greeting, Hello):
            wire.greetings += 1
            if wire.greetings > MAX_HELLOS:
                raise ProtocolError("too many greetings")
            self._say_welcome(wire, session)

    def _say_welcome(self, wire: Wire, session: Session) -> None:
        welcome = Welcome(
            protocol=PROTOCOL,
            overlay=self._overlay,
            peer=self._me,
            incarnation=self._incarnation,
            expected=session.receive_buffer.expected,
            yours=session.their_incarnation,
            credit=self._settings.window,
            session=session.number,
            your_session=session.their_number,
            dials=session.dials,
        )
        self._write(wire, welcome)

    # The side that dialled

    def _on_welcome(self, wire: Wire, welcome: Welcome) -> None:
        if reason := self._stranger(welcome):
            self._refuse(wire, reason, final=True)
            return
        if welcome.session == 0:
            self._on_name(wire, welcome.peer)
            return
        session = wire.session
        if session is None or welcome.peer.id != session.peer.id:
            raise ProtocolError("a Welcome to somebody else")
        if (welcome.yours, welcome.your_session) != (self._incarnation, session.number):
            raise ProtocolError("a Welcome to another session")
        name = (welcome.incarnation, welcome.session)
        if session.their_number != 0 and not session.is_known_as(*name):
            if session.is_older(*name):
                raise ProtocolError("a Welcome from the past")
            restarted = welcome.incarnation != session.their_incarnation
            reason = "it restarted" if restarted else "it has forgotten the session"
            unsent = [] if restarted else session.send_buffer.take_queued()
            self._report_down(session, reason, left=False, end=SessionEnd.RESET)
            session.begin_anew(session.number)
            for encoded, message in unsent:
                session.send_buffer.enqueue(encoded, message)
        self._adopt(wire, session, welcome, welcome.expected)

    def _on_name(self, wire: Wire, peer: Peer) -> None:
        """Somebody else than expected, or than nobody in particular, is at the address."""
        seed, expected = wire.seed, wire.session
        if expected is not None and expected.peer.id == peer.id:
            return  # asked twice because the first answer took long; the Hello to it is out
        wire.seed = wire.session = None
        if expected is not None:
            expected.wire = None
            there = f"{peer.id} is at {expected.peer.address}"
            self._close_session(expected, there, left=False, end=SessionEnd.GONE)
        if seed is not None:
            seed.wire = None
            seed.peer = peer.id
        if peer.id == self._me.id:
            self._close_wire(wire, "this is myself")
            if seed is not None:
                del self._seeds[seed.address]
                self._emit(SeedFailed(seed.address, "it is this node's own address"))
            return
        session = self._sessions.get(peer.id) or self._begin(peer)
        if (
            session is None
            or not self._has_room(session)
            or self._faults.until(peer.id) > self._clock()
        ):
            self._close_wire(wire, "not now")
            if seed is not None:
                self._seed_failed(seed, "not now")
        elif session.wire is not None:
            self._close_wire(wire, "another connection took over")
            if session.state is State.CONNECTED:
                self._found(session.peer)
        else:
            if session.state is not State.CONNECTING:
                self._enter(session, State.CONNECTING)
            wire.session = session
            session.wire = wire
            self._greet(wire)
            self._arm(session)

    # Both

    def _adopt(self, wire: Wire, session: Session, their: Hello | Welcome, start: int) -> None:
        """Let `wire` carry `session` from now on, and send again from number `start`."""
        now = self._clock()
        is_fresh = session.their_number == 0
        try:
            again = session.send_buffer.resume(start, their.credit)
        except ProtocolError as error:
            self._faults.note(session.peer.id, now)
            self._close_session(session, str(error), left=False)
            raise
        if session.wire is not None and session.wire is not wire:
            self._close_wire(session.wire, "another connection took over")
        if wire.stage is Stage.AWAITING:
            self._awaiting -= 1
        wire.stage = Stage.LIVE
        wire.session = session
        self._alarms.cancel(wire)
        session.wire = wire
        session.peer = their.peer
        session.their_incarnation = their.incarnation
        session.their_number = their.session
        session.their_dials = their.dials
        session.receive_buffer.resume()
        session.heard = session.used = now
        if isinstance(their, Hello):
            self._say_welcome(wire, session)
        was_up = session.state is State.CONNECTED
        if was_up and session.is_silent:
            self._emit(LinkRecovered(session.peer))
        if not was_up:
            self._enter(session, State.CONNECTED)
            self._trace("link", peer=session.peer.id, reason="up" if is_fresh else "resumed")
            self._emit(LinkUp(session.peer, is_fresh))
            if not is_fresh:
                self._count("link_resumed", 1)
        session.delivered(now)
        self._write_again(session, again)
        self._dirty[session.peer.id] = session
        self._arm(session)
        self._found(session.peer)
