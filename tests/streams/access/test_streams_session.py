"""Sessions with leaders and questions to them, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Any, NamedTuple

import pytest

from overlay.client import Failed
from overlay.machine import Message, Peer, Timer
from streams.access import attachments, pacing
from streams.access.ask import FOR_EVER, Ask, Asks, LeaderQuestion
from streams.access.attachments import Attached, Attachments
from streams.access.locator import StreamLocated
from streams.access.reasons import Cause
from streams.access.session import AT_LEADER, TABLE, IllegalMoveError, Move, Phase, Session
from streams.directory.entry import ShardPlace, StreamEntry, StreamOptions

ONE, TWO, THREE = (Peer(f"{n:016x}", f"n{n}") for n in range(1, 4))
ENTRY = StreamEntry("s", "5", StreamOptions(), (ShardPlace((ONE, TWO, THREE)),))


class Said(Message, frozen=True):
    """Something that is sent."""

    what: str
    number: int


class Look(Timer, frozen=True):
    """Time to look."""


class Here:
    """A port and a locator, which note what happens."""

    def __init__(self) -> None:
        self.now, self.led, self.rng = 0.0, ONE, Random(1)
        self.sent: list[tuple[Peer, Said]] = []
        self.counters: dict[str, int] = {}
        self.doubted: list[Peer] = []
        self.located = 0
        self.failures: list[Failed] = []

    def send(self, peer: Peer, message: Said) -> None:
        self.sent.append((peer, message))

    def count(self, name: str, amount: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + amount

    def set_timer(self, delay: float, timer: Timer) -> None: ...

    def leader(self, name: str, shard: int) -> Peer | None:
        return self.led

    def locate(self, name: str) -> None:
        self.located += 1

    def mistaken(self, name: str, shard: int, node: str) -> None:
        self.doubted.append(next(peer for peer in (ONE, TWO, THREE) if peer.id == node))
        self.led = None if self.led is not None and self.led.id == node else self.led

    def tell_losses(self, told: Any) -> None: ...

    def reply(self, client: int, reply: Failed) -> None:
        self.failures.append(reply)

    def whom(self, what: str) -> list[Peer]:
        return [peer for peer, message in self.sent if message.what == what]


class Things(Attachments[Any, None]):
    """What programs have, of no particular kind."""

    noun, needs_majority, look_timer = "thing", False, Look()

    def __init__(self, here: Any) -> None:
        super().__init__(here, 1, here)
        self.kept_alive: list[tuple[Peer, int]] = []

    def opening(self, session: Any) -> Message:
        return Said("open", session.number)

    def closing(self, session: Any, is_over: bool) -> Message | None:
        return Said("leave", session.number) if is_over else None

    def keep(self, leader: Peer, shard: str, sessions: Sequence[Any]) -> None:
        self.kept_alive += [(leader, session.number) for session in sessions]

    def looked_at(self, session: Any, is_keeping: bool) -> None: ...

    def place(self, attachment: Any, entry: StreamEntry) -> Cause | None:
        self.add_session(attachment, None, 0, "5/0")
        return None

    def serve(self, attachment: Any) -> None: ...

    def dropped(self, attachment: Any, reason: Cause) -> None: ...

    def abandoned(self, attachment: Any) -> None: ...

    def count_end(self, goes_on: bool) -> None:
        self.port.count("moved" if goes_on else "failed")


class Begin(NamedTuple):
    """The command of a program."""

    request: int
    stream: str = "s"


class OneMachine:
    """A machine with sessions, its port and its locator."""

    def __init__(self) -> None:
        self.here: Any = Here()
        self.sessions = Things(self.here)
        self.things: list[Attached[Begin, None]] = []
        self.session = self.another()

    def another(self) -> Session[Any, None]:
        thing: Attached[Begin, None] = Attached(1, Begin(len(self.things) + 1), goes_on=False)
        self.things.append(thing)
        self.sessions.begin_attachment(thing)
        self.sessions.place(thing, ENTRY)
        thing.entry = ENTRY
        (session,) = thing.sessions
        return session

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.here.now += pacing.LOOK
            self.sessions.look()

    def opened(self) -> Session[Any, None]:
        self.sessions.seek(self.session)
        self.sessions.answered(self.session)
        self.session.happens(Move.OPENED)
        return self.session


def reached(state: Phase) -> Session[Any, None]:
    """A session that is there by legal moves."""
    world = OneMachine()
    moves: dict[Phase, tuple[Move, ...]] = {
        Phase.FINDING: (),
        Phase.OPENING: (Move.DUE,),
        Phase.OPEN: (Move.DUE, Move.OPENED),
        Phase.LOST: (Move.DUE, Move.MISSED),
        Phase.CLOSED: (Move.ENDED,),
    }
    if state is Phase.FINDING:
        world.here.led = None
    world.sessions._sessions[world.session] = None
    for move in moves[state]:
        world.session.happens(move)
    assert world.session.state is state
    return world.session


@pytest.mark.parametrize("state", [state for state in Phase if state is not Phase.FAILED])
def test_a_session_moves_as_the_table_says_and_not_otherwise(state: Phase) -> None:
    for what in Move:
        session = reached(state)
        if (state, what) not in TABLE:
            with pytest.raises(IllegalMoveError):
                session.happens(what)
            assert session.state is state
        elif what is not Move.LED:  # with a leader, which `find` gives it
            session.happens(what)
            assert (session.leader is not None) == (session.state in AT_LEADER)
            assert (session.number > 0) == (session.state in AT_LEADER)
    ends = {state for state, what in product(Phase, Move) if (state, what) in TABLE}
    assert Phase.CLOSED not in ends, "nothing happens to what is closed"


def test_a_leader_that_is_silent_is_left_and_the_next_one_asked() -> None:
    world = OneMachine()
    here, session = world.here, world.opened()
    world.look(round(pacing.SILENT / pacing.LOOK))
    assert (here.whom("open"), here.doubted) == ([ONE], [])
    assert len(world.sessions.kept_alive) == round(pacing.SILENT / pacing.KEEP_ALIVE)
    world.look()
    assert (here.doubted, session.state) == ([ONE], Phase.FINDING)
    world.look()
    assert here.located, "who leads is asked for as long as nobody is known to"
    here.led = TWO
    world.look()
    assert (here.whom("open"), session.state) == ([ONE, TWO], Phase.OPENING)
    assert here.whom("leave") == [], "it is not over"
    world.sessions.client_gone(1)
    assert (here.whom("leave"), session.state) == ([TWO], Phase.CLOSED)
    assert here.counters == {"moved": 1}


def test_what_was_lost_with_a_link_is_opened_at_the_same_leader_or_at_who_leads_now() -> None:
    world = OneMachine()
    here, session = world.here, world.opened()
    number = session.number
    world.sessions.missed(ONE, [number, 77])
    world.look()
    assert (here.whom("open"), here.doubted, session.number > number) == ([ONE, ONE], [], True)
    world.sessions.moved(ONE, [session.number], THREE)
    world.look()
    assert here.whom("open") == [ONE, ONE, THREE]
    world.sessions.link_down(THREE)
    assert (session.state, here.doubted) == (Phase.LOST, [ONE, THREE])
    assert world.sessions.heard(THREE, session.number) is None


def test_only_its_leader_is_heard_and_only_by_its_newest_number() -> None:
    world = OneMachine()
    session = world.opened()
    assert world.sessions.heard(TWO, session.number) is None
    assert world.sessions.heard(ONE, session.number) is session
    number = session.number
    session.happens(Move.MISSED)
    assert world.sessions.heard(ONE, number) is None


def test_leaders_that_lie_are_left_and_in_the_end_given_up() -> None:
    world = OneMachine()
    here, session = world.here, world.opened()
    for _ in range(pacing.PROTOCOL_ERRORS_MOST - 1):
        world.sessions.protocol_error(session, "it is no number")
        here.led = ONE
        world.look()
    assert (session.state, here.failures) == (Phase.OPENING, [])
    session.proven()
    for _ in range(pacing.PROTOCOL_ERRORS_MOST):
        world.sessions.protocol_error(session, "it is no number")
        here.led = ONE
        world.look()
    (failed,) = here.failures
    assert (failed.code, session.state) == ("malformed", Phase.CLOSED)
    assert ONE.id in failed.reason
    assert failed.reason.endswith("it is no number")
    assert here.counters["stream_answers_refused"] == 2 * pacing.PROTOCOL_ERRORS_MOST - 1


def test_a_busy_leader_opens_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachments, "OPENING_MOST", 2)
    world = OneMachine()
    sessions = [world.another() for _ in range(4)]
    for session in sessions:
        world.sessions.seek(session)
    assert [session.state for session in sessions].count(Phase.OPENING) == 2
    world.sessions.answered(sessions[0])
    sessions[0].happens(Move.OPENED)
    assert [session.state for session in sessions].count(Phase.FINDING) == 1
    world.sessions.link_down(ONE)
    world.look(2)
    assert [session.state for session in sessions].count(Phase.FINDING) == 4, "nobody leads"


# -- questions -------------------------------------------------------------------------------------


class Questions:
    """One machine with questions."""

    def __init__(self) -> None:
        self.here: Any = Here()
        self.asks = Asks(self.here, self.here, Look())
        self.answers: list[Message] = []
        self.refused: list[Cause] = []

    def ask(self, within: float = FOR_EVER, **more: Any) -> Ask:
        question = LeaderQuestion(1, "s", 0, lambda number: Said("ask", number), **more)
        ask = Ask(question, self._taken, within)
        self.asks.ask(ask)
        return ask

    def _taken(self, answer: Message | Cause) -> None:
        if isinstance(answer, Cause):
            self.refused.append(answer)
        else:
            self.answers.append(answer)

    def after(self, seconds: float) -> None:
        self.here.now += seconds
        self.asks.look()

    def located(self, leader: Peer | None, answering: int = -1) -> None:
        self.here.led = leader
        self.asks.located(StreamLocated("s", ENTRY, (leader,), (answering,)))


@pytest.fixture
def questions() -> Questions:
    return Questions()


def test_a_question_is_asked_until_it_is_answered(questions: Questions) -> None:
    here, ask = questions.here, questions.ask()
    questions.after(pacing.SILENT / 2)
    assert here.whom("ask") == [ONE]
    questions.after(pacing.SILENT)
    assert (here.whom("ask"), here.doubted) == ([ONE], [ONE])
    questions.located(TWO)
    questions.asks.moved(ask, TWO, THREE)
    questions.asks.moved(ask, ONE, ONE)  # late
    assert here.whom("ask") == [ONE, TWO, THREE]
    questions.asks.later(ask, THREE)
    questions.after(pacing.LOOK)
    assert here.whom("ask") == [ONE, TWO, THREE, THREE]
    questions.asks.link_down(THREE)
    questions.located(ONE)
    assert here.whom("ask")[-1] == ONE
    questions.asks.answered(ask, ONE, Said("yes", ask.number))
    assert (len(questions.asks), questions.answers) == (0, [Said("yes", ask.number)])
    assert questions.asks.get(ask.number) is None


def test_nodes_that_name_one_another_are_not_asked_for_ever(questions: Questions) -> None:
    ask = questions.ask()
    for _ in range(9):
        if ask.target is not None:
            other = TWO if ask.target is ONE else ONE
            questions.asks.moved(ask, ask.target, other)
    assert len(questions.here.whom("ask")) == 1 + pacing.HINTS_MOST


def test_an_answer_that_no_honest_leader_gives_is_asked_for_again(questions: Questions) -> None:
    ask = questions.ask(fits=lambda answer: answer == Said("yes", 1))
    questions.asks.answered(ask, ONE, Said("perhaps", 1))
    here = questions.here
    assert (here.counters, here.doubted) == ({"stream_answers_refused": 1}, [ONE])
    questions.located(ONE)
    questions.asks.answered(ask, ONE, Said("yes", 1))
    assert questions.answers == [Said("yes", 1)]


@pytest.mark.parametrize("is_reading", [True, False])
def test_what_needs_a_majority_is_refused_at_once_unless_a_leader_may_know_of_it(
    questions: Questions, is_reading: bool
) -> None:
    questions.here.led = None
    questions.ask(subject="a", is_reading=is_reading)
    questions.located(None, 1)
    (refused,) = questions.refused
    assert refused == Cause("no-majority", "no majority: 1 of 3 replicas of s answer")
    questions.located(ONE, 1)
    ask = questions.ask(subject="b", is_reading=is_reading)
    questions.asks.link_down(ONE)
    questions.ask(subject="b", is_reading=is_reading)
    questions.located(None, 1)
    assert len(questions.refused) == (3 if is_reading else 1)
    if not is_reading:
        questions.located(TWO, 1)
        questions.asks.moved(ask, TWO, None)
        questions.asks.moved(ask, ONE, None)
        assert not ask.asked, "who says that it does not lead has done nothing"


def test_a_question_is_given_up_in_the_end(questions: Questions) -> None:
    questions.here.led = None
    questions.ask(within=pacing.GIVE_UP)
    questions.after(pacing.GIVE_UP - 0.1)
    assert not questions.refused
    questions.after(0.2)
    assert [reason.code for reason in questions.refused] == ["time-out"]
    questions.after(1.0)
    assert len(questions.refused) == 1
