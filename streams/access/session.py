"""The conversation of one program with the leader of one shard: a table of states.

    IDLE ──BEGUN──> FINDING ──LED──> OPENING ──OPENED──> OPEN
                       ^                │ SILENT, MOVED, DOWN, LIED, MISSED │
                       └──────DUE───── LOST <───────────────────────────────┘

A session has a leader and a number while it is OPENING or OPEN. What is sent when it opens, to keep
it open and when it closes is its user's affair (`SessionUser`); `Sessions` has all of one machine.
A move that the table does not have is a fault in the program, and raises.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

from overlay.machine import Message, NodeId, Peer, Port
from streams.access import pacing, reasons
from streams.access.locator import Locator

OwnerT = TypeVar("OwnerT")
PartT = TypeVar("PartT")


class Phase(Enum):
    """Where a session is."""

    IDLE = "idle"
    """Its stream is not located yet."""
    FINDING = "finding"
    """Nobody is known to lead the shard, or the leader is busy opening others."""
    OPENING = "opening"
    """A leader was asked to open it, and has not answered."""
    OPEN = "open"
    LOST = "lost"
    """It was opening or open; it is looked for again at the next look."""
    FAILED = "failed"
    CLOSED = "closed"


class Move(Enum):
    """What happens to a session."""

    BEGUN = "its stream is located"
    LED = "a leader is known, and asked"
    OPENED = "the leader has opened it"
    SILENT = "the leader does not answer"
    MOVED = "the leader says that it leads no more"
    DOWN = "the link to the leader is lost"
    MISSED = "the leader does not have it, or something that was sent is lost"
    LIED = "the leader has said what no honest leader says"
    AGAIN = "what is under way is sent again, or to another leader"
    DUE = "the pause is over, or a leader is known"
    REFUSED = "the leader refuses it for good"
    GIVEN_UP = "leaders go on saying what no honest leader says"
    ENDED = "the program does not want it any more"


class IllegalMoveError(Exception):
    """Something happened to a session that cannot, where it is."""


class SessionDriver(Protocol):
    """What the table has done: by `Sessions`, or by a machine with paces of its own."""

    def find(self, session: Any) -> None:
        """Let it be led (`Session.led`) if a leader is known and has room for it."""

    def open(self, session: Any) -> None:
        """Ask its leader to open it."""

    def doubt(self, session: Any) -> None:
        """Its leader is none, or does not answer: ask who leads."""

    def lose(self, session: Any) -> None:
        """It leaves its leader, for as long as a pause lasts."""

    def leave(self, session: Any) -> None:
        """It leaves its leader for good."""

    def fail(self, session: Any) -> None:
        """Tell its user why it has failed."""


class SessionUser(Protocol[OwnerT, PartT]):
    """What differs between conversations: readings, memberships."""

    def opening(self, session: Session[OwnerT, PartT]) -> Message:
        """What asks the leader to open it, as `session.number`."""

    def closing(self, session: Session[OwnerT, PartT], is_over: bool) -> Message | None:
        """What tells the leader that nothing more is wanted as `session.number`; `is_over`: nor as
        another number later."""

    def keep(self, leader: Peer, shard: str, sessions: Sequence[Session[OwnerT, PartT]]) -> None:
        """Tell a leader that these are wanted, and what may be sent."""

    def looked_at(self, session: Session[OwnerT, PartT], is_keeping: bool) -> None:
        """A look has come for an open session; `is_keeping`: with keep-alives."""

    def count_lost(self) -> None:
        """A session has left its leader, and goes on at another one, or at the same."""

    def failed(self, session: Session[OwnerT, PartT], code: str, text: str) -> None:
        """The session has failed for good."""


class Session(Generic[OwnerT, PartT]):
    """What one program (`owner`) has at the leader of one shard (`part`)."""

    __slots__ = (
        *("errors", "heard_at", "hint", "is_cut_off", "leader", "line", "number", "owner", "part"),
        *("place", "shard", "state", "stream", "why"),
    )

    def __init__(
        self, line: SessionDriver, owner: OwnerT, part: PartT, stream: str, place: int, shard: str
    ) -> None:
        """`place`: the shard's number in its stream."""
        self.line = line
        self.owner = owner
        self.part = part
        self.stream = stream
        self.place = place
        self.shard = shard
        self.state = Phase.IDLE
        self.leader: Peer | None = None
        self.number = 0
        """By which the leader knows it; 0: there is none."""
        self.hint: Peer | None = None
        """Who leads now, as the former leader says."""
        self.heard_at = float("-inf")
        self.errors = 0
        """Answers that no honest leader gives, without a right one in between."""
        self.is_cut_off = False
        """Whether the leader has said that no majority of its replicas answers it."""
        self.why = ("", "")
        """Code and text of the reason why it has failed."""

    @property
    def is_open(self) -> bool:
        """Whether the leader has opened it."""
        return self.state is Phase.OPEN

    def happens(self, what: Move) -> None:
        """Move to the next state, and do what the table says. IllegalMoveError if there is none."""
        found = TABLE.get((self.state, what))
        if found is None:
            raise IllegalMoveError(f"a session that is {self.state.value}: {what.value}")
        self.state, actions = found
        for act in actions:
            getattr(self.line, act)(self)

    def led(self, leader: Peer) -> None:
        """It is found: open it there."""
        self.leader, self.hint = leader, None
        self.happens(Move.LED)

    def left(self) -> None:
        """It is at no leader any more."""
        self.leader, self.number, self.is_cut_off = None, 0, False

    def cut_off(self, is_cut_off: bool) -> None:
        """The leader says whether a majority answers it."""
        self.is_cut_off = is_cut_off

    def proven(self) -> None:
        """The leader has given a right answer."""
        self.errors = 0


class Sessions(Generic[OwnerT, PartT]):
    """All sessions of one machine: who is heard, who is silent, what is opened next."""

    def __init__(
        self,
        port: Port,
        locator: Locator,
        user: SessionUser[OwnerT, PartT],
        incarnation: int,
    ) -> None:
        """`incarnation` grows with each start of the node."""
        self.port = port
        self._locator = locator
        self._user = user
        self._number = first_number(incarnation)
        self._all: dict[Session[OwnerT, PartT], None] = {}
        self._by_number: dict[int, Session[OwnerT, PartT]] = {}
        self._load = LeaderLoad()
        self._waiting: deque[Session[OwnerT, PartT]] = deque()  # for leaders that open others
        self._looks = 0

    def next_number(self) -> int:
        """One that neither a session here has had nor one of an earlier start of the node."""
        self._number += 1
        return self._number

    def begin(self, session: Session[OwnerT, PartT]) -> None:
        """Open a session that is idle, or lost, if its leader is known."""
        self._all[session] = None
        if session.state is Phase.IDLE:
            session.happens(Move.BEGUN)
        elif session.state in (Phase.FINDING, Phase.LOST):
            session.happens(Move.DUE)

    def end(self, session: Session[OwnerT, PartT]) -> None:
        """Nothing more is wanted of a session."""
        session.happens(Move.ENDED)
        self._all.pop(session, None)

    # -- from leaders ----------------------------------------------------------------------------

    def heard(self, sender: Peer, number: int) -> Session[OwnerT, PartT] | None:
        """The session with this number, if it is that of the sender; None: what it says is nobody's
        (any more)."""
        session = self._by_number.get(number)
        if session is None or session.leader is None or session.leader.id != sender.id:
            return None
        session.heard_at = self.port.now
        self._load.heard(sender.id, self.port.now)
        return session

    def opened(self, session: Session[OwnerT, PartT]) -> None:
        """The leader has opened it, as it should."""
        session.happens(Move.OPENED)

    def answered(self, session: Session[OwnerT, PartT]) -> None:
        """The leader has answered what opens it: it has room for another one."""
        assert session.leader is not None
        self._load.done(session.leader.id, session.number)
        while self._waiting:
            following = self._waiting.popleft()
            if following.state is Phase.FINDING:
                following.happens(Move.DUE)
                break

    def missed(self, sender: Peer, numbers: Sequence[int]) -> None:
        """The leader does not have these, or something that it has sent for them is lost."""
        for number in numbers:
            if session := self.heard(sender, number):
                session.happens(Move.MISSED)

    def moved(self, sender: Peer, numbers: Sequence[int], leader: Peer | None) -> None:
        """The sender does not lead the shard of these any more; `leader` does, if that is known."""
        for number in numbers:
            if session := self.heard(sender, number):
                session.happens(Move.MOVED)
                session.hint = leader

    def refused(self, session: Session[OwnerT, PartT], code: str, text: str) -> None:
        """The leader refuses it for good."""
        session.why = (code, text)
        session.happens(Move.REFUSED)

    def protocol_error(self, session: Session[OwnerT, PartT], why: str) -> None:
        """The leader has said what no honest leader says: it is not taken, and the session opened
        again. It fails if no leader does better."""
        self.port.count("stream_answers_refused")
        session.errors += 1
        if session.leader is None:  # what it had sent before it was lost is looked into now
            return
        if session.errors < pacing.PROTOCOL_ERRORS_MOST:
            session.happens(Move.LIED)
            return
        session.why = reasons.protocol_error(session.place, session.leader, why)
        session.happens(Move.GIVEN_UP)

    def link_down(self, peer: Peer) -> None:
        """A leader is out of reach, and what it sent may be lost."""
        self._load.lost(peer.id)
        for session in list(self._all):
            if session.leader is not None and session.leader.id == peer.id:
                session.happens(Move.DOWN)

    # -- in time ---------------------------------------------------------------------------------

    def look(self) -> None:
        """To be called every `pacing.LOOK` seconds: open what is not open, leave leaders that are
        silent, speak to the others, ask for those that are not known."""
        self._looks += 1
        now, is_keeping = self.port.now, self._looks % pacing.KEEP_ALIVE == 0
        kept: dict[tuple[Peer, str], list[Session[OwnerT, PartT]]] = {}
        sought: dict[str, None] = {}
        self._waiting.clear()
        for session in list(self._all):
            if session.leader is not None and self._load.is_silent(session, now):
                session.happens(Move.SILENT)
            if session.leader is None:
                self.begin(session)
                if session.state is Phase.FINDING and self._leader_of(session) is None:
                    sought[session.stream] = None
            elif session.state is Phase.OPEN:
                if is_keeping:
                    kept.setdefault((session.leader, session.shard), []).append(session)
                self._user.looked_at(session, is_keeping)
        for (leader, shard), sessions in kept.items():
            self._user.keep(leader, shard, sessions)
        for stream in sought:
            self._locator.locate(stream)

    # -- what the table of states does -----------------------------------------------------------

    def _leader_of(self, session: Session[OwnerT, PartT]) -> Peer | None:
        return session.hint or self._locator.leader(session.stream, session.place)

    def find(self, session: Session[OwnerT, PartT]) -> None:
        """Open it at the leader, if that is known, as soon as it has room for another one."""
        leader = self._leader_of(session)
        if leader is None:
            return
        if self._load.is_busy(leader.id):
            self._waiting.append(session)
        else:
            session.led(leader)

    def open(self, session: Session[OwnerT, PartT]) -> None:
        """Give it a number, and ask its leader to open it."""
        assert session.leader is not None, "it is led"
        session.number = self.next_number()
        session.heard_at = self.port.now
        self._by_number[session.number] = session
        self._load.asks(session.leader.id, session.number)
        self.port.send(session.leader, self._user.opening(session))

    def doubt(self, session: Session[OwnerT, PartT]) -> None:
        """Its leader is none, or does not answer."""
        assert session.leader is not None, "it is at a leader"
        self._locator.mistaken(session.stream, session.place, session.leader.id)

    def lose(self, session: Session[OwnerT, PartT]) -> None:
        """It is at no leader until the next look."""
        self._user.count_lost()
        self._close(session, is_over=False)

    def leave(self, session: Session[OwnerT, PartT]) -> None:
        """It is at no leader any more."""
        self._close(session, is_over=True)

    def _close(self, session: Session[OwnerT, PartT], is_over: bool) -> None:
        assert session.leader is not None, "it is at a leader"
        if message := self._user.closing(session, is_over):
            self.port.send(session.leader, message)
        self._load.done(session.leader.id, session.number)
        del self._by_number[session.number]
        session.left()

    def fail(self, session: Session[OwnerT, PartT]) -> None:
        """Tell its user why it has failed."""
        del self._all[session]
        self._user.failed(session, *session.why)


class LeaderLoad:
    """Which leaders were heard when, and what they were asked to open.

    A leader that has thousands of sessions to open, or to hand rows to, comes late with some of
    them. Whoever then asked anew would only give it more to do. So a leader is silent when nothing
    at all has come from it; one session is given up only after a longer time.
    """

    def __init__(self) -> None:
        self._heard: dict[NodeId, float] = {}
        self._asked: dict[NodeId, set[int]] = {}  # by number of the session

    def is_busy(self, leader: NodeId) -> bool:
        """Whether it has enough to open."""
        return len(self._asked.get(leader, ())) >= pacing.OPENING_MOST

    def asks(self, leader: NodeId, number: int) -> None:
        """It is asked to open a session."""
        self._asked.setdefault(leader, set()).add(number)

    def done(self, leader: NodeId, number: int) -> None:
        """It has opened the session, or is not asked for it any more."""
        asked = self._asked.get(leader)
        if asked is not None:
            asked.discard(number)
            if not asked:
                del self._asked[leader]

    def heard(self, leader: NodeId, now: float) -> None:
        """A message has come from it."""
        self._heard[leader] = now

    def lost(self, leader: NodeId) -> None:
        """It is out of reach: nothing that was asked of it is answered."""
        self._heard.pop(leader, None)
        self._asked.pop(leader, None)

    def is_silent(self, session: Session[Any, Any], now: float) -> bool:
        """Whether another leader is to be looked for."""
        assert session.leader is not None, "it is at a leader"
        wait = pacing.SILENT if session.is_open else pacing.ANSWER_WITHIN
        alive_at = max(session.heard_at, self._heard.get(session.leader.id, session.heard_at))
        return now - alive_at > wait or now - session.heard_at > pacing.BUSY * wait


def first_number(incarnation: int) -> int:
    """Below the numbers that a node uses after this start of it: none is of an earlier one, which
    leaders may know still. At most 2**52."""
    return (incarnation & 0xFFFFF) << 32


AT_LEADER: Final = (Phase.OPENING, Phase.OPEN)
"""States in which a session has a leader and a number."""

Action = Literal["find", "open", "doubt", "lose", "leave", "fail"]
"""What is done on a move: the method of `SessionDriver` of that name."""

TABLE: Final[dict[tuple[Phase, Move], tuple[Phase, tuple[Action, ...]]]] = {
    (Phase.IDLE, Move.BEGUN): (Phase.FINDING, ("find",)),
    (Phase.FINDING, Move.DUE): (Phase.FINDING, ("find",)),
    (Phase.FINDING, Move.LED): (Phase.OPENING, ("open",)),
    **{(state, Move.AGAIN): (Phase.OPENING, ("open",)) for state in AT_LEADER},
    (Phase.OPENING, Move.OPENED): (Phase.OPEN, ()),
    **{
        (state, what): (Phase.LOST, ("doubt", "lose"))
        for state in AT_LEADER
        for what in (Move.SILENT, Move.MOVED, Move.DOWN, Move.LIED)
    },
    **{(state, Move.MISSED): (Phase.LOST, ("lose",)) for state in AT_LEADER},
    (Phase.LOST, Move.DUE): (Phase.FINDING, ("find",)),
    **{
        (state, what): (Phase.FAILED, ("leave", "fail"))
        for state in AT_LEADER
        for what in (Move.REFUSED, Move.GIVEN_UP)
    },
    **{(state, Move.ENDED): (Phase.CLOSED, ("leave",)) for state in AT_LEADER},
    **{
        (state, Move.ENDED): (Phase.CLOSED, ())
        for state in (Phase.IDLE, Phase.FINDING, Phase.LOST, Phase.FAILED)
    },
}
"""By state and what happens: the next state, and what is done on the way, in this order."""
