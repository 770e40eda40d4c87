"""The conversation of one program with the leader of one shard: a table of states.

    FINDING ──LED──> OPENING ──OPENED──> OPEN
       ^                │ SILENT, MOVED, DOWN, LIED, MISSED │
       └──────DUE───── LOST <───────────────────────────────┘

A session has a leader and a number while it is OPENING or OPEN. What is sent when it opens, to keep
it open and when it closes is the affair of the machine that drives it (`SessionDriver`):
`attachments` for readings and memberships, `streams.programs.producer.append_session`. A move that
the table does not have is a fault in the program, and raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

from overlay.machine import Peer
from streams.access.reasons import Cause

OwnerT = TypeVar("OwnerT")
PartT = TypeVar("PartT")


class Phase(Enum):
    """The states of a session."""

    FINDING = "finding"
    """The leader is not known, or is busy opening other sessions."""
    OPENING = "opening"
    """A leader was asked to open the session, and has not answered."""
    OPEN = "open"
    LOST = "lost"
    """The leader was lost; the session is opened again after a pause."""
    FAILED = "failed"
    CLOSED = "closed"


class Move(Enum):
    """The events of a session."""

    LED = "a leader is known, and asked"
    OPENED = "the leader has opened it"
    SILENT = "the leader does not answer"
    MOVED = "the leader says that it leads no more"
    DOWN = "the link to the leader is lost"
    MISSED = "the leader does not have it, or something that was sent is lost"
    LIED = "the leader has said what no honest leader says"
    AGAIN = "what is under way is sent again, or to another leader"
    DUE = "its stream is located, the pause is over, or a leader is known"
    REFUSED = "the leader refuses it for good"
    GIVEN_UP = "leaders go on saying what no honest leader says"
    ENDED = "the program does not want it any more"


NO_CAUSE: Final = Cause("", "")


class IllegalMoveError(Exception):
    """The table of states has no such move."""


class SessionDriver(Protocol):
    """The actions of the table of states."""

    def find(self, session: Any) -> None:
        """Lead the session (`Session.led`) if its leader is known and has room."""

    def open(self, session: Any) -> None:
        """Ask the leader to open the session."""

    def doubt(self, session: Any) -> None:
        """Forget the leader of the shard, and ask the stream's owner."""

    def lose(self, session: Any) -> None:
        """Leave the leader for a pause."""

    def leave(self, session: Any) -> None:
        """Leave the leader for good."""

    def give_up(self, session: Any) -> None:
        """Report the reason why the session has failed."""


@dataclass(eq=False, slots=True)
class Session(Generic[OwnerT, PartT]):
    """The session of a program (`owner`) with the leader of one shard."""

    driver: SessionDriver
    owner: OwnerT
    part: PartT
    """The user's state of the shard."""
    stream: str
    place: int
    """The shard's number in its stream."""
    shard: str
    state: Phase = Phase.FINDING
    leader: Peer | None = None
    number: int = 0
    """The number by which the leader knows it; 0: none."""
    hint: Peer | None = None
    """The leader that the former leader has named."""
    heard_at: float = float("-inf")
    errors: int = 0
    """Protocol errors since the last right answer."""
    is_cut_off: bool = False
    """Whether the leader has reported that it has no majority."""
    why: Cause = NO_CAUSE
    """The reason why it has failed."""

    @property
    def is_open(self) -> bool:
        """Whether the leader has opened the session."""
        return self.state is Phase.OPEN

    def happens(self, what: Move) -> None:
        """Move to the next state, and carry out the actions of the table. IllegalMoveError if the
        table has no such move."""
        found = TABLE.get((self.state, what))
        if found is None:
            raise IllegalMoveError(f"a session that is {self.state.value}: {what.value}")
        self.state, actions = found
        for act in actions:
            getattr(self.driver, act)(self)

    def led(self, leader: Peer) -> None:
        """Open the session at this leader; if it is at another one, at once."""
        is_elsewhere = self.leader is not None
        self.leader, self.hint = leader, None
        self.happens(Move.AGAIN if is_elsewhere else Move.LED)

    def asked(self, number: int, now: float) -> None:
        """Note the number under which the leader is asked to open the session."""
        self.number, self.heard_at = number, now

    def heard(self, now: float) -> None:
        """Note a message of the leader, or that a wait for one begins."""
        self.heard_at = now

    def named(self, leader: Peer | None) -> None:
        """Note the leader that another node has named; None: forget it."""
        self.hint = leader

    def failed(self, why: Cause, what: Move) -> None:
        """Fail the session for this reason, by this move."""
        self.why = why
        self.happens(what)

    def cut_off(self, is_cut_off: bool) -> None:
        """Note whether the leader has reported that it has no majority."""
        self.is_cut_off = is_cut_off

    def erred(self) -> int:
        """Count a protocol error. Return how many there are since the last right answer."""
        self.errors += 1
        return self.errors

    def left(self) -> None:
        """Forget the leader and the number."""
        self.leader, self.number, self.is_cut_off = None, 0, False

    def proven(self) -> None:
        """Note a right answer of the leader."""
        self.errors = 0


AT_LEADER: Final = (Phase.OPENING, Phase.OPEN)
"""The states in which a session has a leader and a number."""

Action = Literal["find", "open", "doubt", "lose", "leave", "give_up"]
"""A method of `SessionDriver`."""

TABLE: Final[dict[tuple[Phase, Move], tuple[Phase, tuple[Action, ...]]]] = {
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
        (state, what): (Phase.FAILED, ("leave", "give_up"))
        for state in AT_LEADER
        for what in (Move.REFUSED, Move.GIVEN_UP)
    },
    **{(state, Move.ENDED): (Phase.CLOSED, ("leave",)) for state in AT_LEADER},
    **{
        (state, Move.ENDED): (Phase.CLOSED, ())
        for state in (Phase.FINDING, Phase.LOST, Phase.FAILED)
    },
}
"""By state and move: the next state, and the actions in their order."""
