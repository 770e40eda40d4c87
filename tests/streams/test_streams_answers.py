"""Answers of leaders that cannot be are not taken, but counted, and asked for again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from harness.logs import WrongError
from overlay.client import (
    AppendEvents,
    BeginReading,
    CommitReading,
    Done,
    Draft,
    EndReading,
    EventsAppended,
    EventsTaken,
    Failed,
    ReadingReady,
    TakeEvents,
)
from overlay.machine import Message, Peer
from overlay.stream_client import (
    AttachGroup,
    DecideTransaction,
    GroupReady,
    RowsTaken,
    TakeRows,
    TransactionState,
)
from streams.access import pacing
from streams.access.locator import StreamLocated
from streams.directory.entry import ShardPlace, StreamEntry, StreamOptions
from streams.directory.messages import StreamFound
from streams.directory.questions import OwnerQuestions
from streams.log.batches import Row, encode_rows
from streams.log.group_state import GroupOptions
from streams.programs.group import messages as groups
from streams.programs.group.members import LookAtMembers, Members
from streams.programs.producer import messages as producing
from streams.programs.producer.append_session import AppendSession, LogSession
from streams.programs.producer.producers import Producers, SendAppends
from streams.programs.reader import messages as reading
from streams.programs.reader.readers import LookAtReadings, Readers
from streams.programs.transaction import messages as halves
from streams.programs.transaction.transactors import LookAtTransactions, Transactors
from tests.streams.lying_world import trial_of_liars
from tests.streams.programs.group.groups_world import KINDS, Hold, MembershipWorld, settle
from tests.streams.programs.reader.reading_world import Life, ReadingWorld
from tests.support.examples import seeds
from tests.support.mutated import mutated

ME, LEADER, OTHER = (Peer(f"{n:016x}", f"n{n}") for n in range(3))
ENTRY = StreamEntry("s", "5", StreamOptions(), (ShardPlace((LEADER, OTHER)),))
SHARD = ENTRY.shard(0)
REFUSED = "stream_answers_refused"


class Here:
    """A node's port and locator, with what was sent and replied."""

    schemas = None

    def __init__(self) -> None:
        self.me, self.now, self.rng = ME, 0.0, Random(1)
        self.sent: list[tuple[Peer, Any]] = []
        self.replies: list[Any] = []
        self.counters: dict[str, int] = {}
        self.known = {"s": StreamLocated("s", ENTRY, (LEADER,))}
        self.mistakes = 0

    def send(self, peer: Peer, message: Message) -> None:
        self.sent.append((peer, message))

    def reply(self, client: int, reply: Any) -> None:
        self.replies.append(reply)

    def count(self, name: str, amount: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + amount

    def row_share(self, kind: str, count: int) -> float:
        return 0.0

    def set_timer(self, delay: float, timer: Any) -> None: ...

    def cancel_timer(self, timer: Any) -> None: ...

    def emit(self, event: Any) -> None: ...

    def trace(self, kind: str, **fields: Any) -> None: ...

    def locate(self, name: str) -> None: ...

    def tell_losses(self, told: Any) -> None: ...

    def leader(self, name: str, shard: int) -> Peer | None:
        return LEADER

    def mistaken(self, name: str, shard: int, node: str) -> None:
        self.mistakes += 1

    def asked(self, kind: type) -> Any:
        """The newest message of this kind that was sent."""
        return [message for _, message in self.sent if isinstance(message, kind)][-1]


def piece(
    first: int, count: int = 1, places: tuple[int, ...] = (), rows: bytes | None = None
) -> reading.Piece:
    if rows is None:
        rows = encode_rows([Row({"n": first + n}) for n in range(count)])
    return reading.Piece(0, first, count, places, rows)


def rows_of(*pieces: reading.Piece, since: int = 0, position: int = 10) -> Callable[[int], Message]:
    return lambda number: reading.StreamRows(SHARD, ((number, since),), position, pieces)


BAD_ROWS = {
    "the position goes back": lambda n: reading.StreamRows(SHARD, ((n, 3),), 2, ()),
    "scanned backwards": lambda n: reading.ReadingsScanned(SHARD, ((n, 3, 1),)),
    "rows before the position": rows_of(piece(0, 4), since=3),
    "rows behind the position": rows_of(piece(8, 4), since=3),
    "rows twice": rows_of(piece(4, 2), piece(5, 2), since=3),
    "more rows than bytes": rows_of(piece(4, count=5, rows=b"\x93"), since=3),
    "millions of rows": rows_of(piece(4, count=2**31 - 1, rows=b"\x93"), since=3, position=2**40),
    "no rows": rows_of(piece(4, rows=b""), since=3),
    "other rows": rows_of(piece(4, rows=b"\x01"), since=3),
    "a row too many": rows_of(piece(4, rows=encode_rows([Row({}), Row({})])), since=3),
    "places in no order": rows_of(piece(4, 3, (2, 1)), since=3),
    "too few places": rows_of(piece(4, 3, (1,)), since=3),
    "a place twice": rows_of(piece(4, 3, (1, 1)), since=3),
    "it begins elsewhere": lambda n: reading.ReadingBegan(SHARD, n, 7, 20, 0),
    "it begins behind the end": lambda n: reading.ReadingBegan(SHARD, n, 3, 2, 0),
    "shares what is not there": lambda n: reading.SharedRows(
        SHARD, 10, (), (reading.Share(((n, 3),), (0,)),)
    ),
    "shares without order": lambda n: reading.SharedRows(
        *(SHARD, 10, (reading.LooseRows(0, 5, (1, 0), (b"a", b"b")),)),
        (reading.Share(((n, 3),), (0, 1)),),
    ),
}


class Reads:
    """A program that reads from offset 3 on."""

    def __init__(self, packed: bool) -> None:
        self.here = Here()
        self.packed = packed
        self.readers = Readers(self.here, 1, self.here)  # type: ignore[arg-type]
        self.readers.begin(1, BeginReading(1, "s", positions=((0, 3),), packed=packed))
        self.located()

    def located(self) -> None:
        self.readers.on_located(self.here.known["s"])

    def hear(self, message: Message, sender: Peer = LEADER) -> None:
        self.readers.handlers()[type(message)](sender, message)

    def is_open(self) -> reading.ReadShard:
        asked: reading.ReadShard = self.here.asked(reading.ReadShard)
        return asked

    def look(self) -> None:
        self.here.now += 0.25
        self.readers.on_look(LookAtReadings())

    def began(self, position: int = 3) -> None:
        self.hear(reading.ReadingBegan(SHARD, self.is_open().reading, position, 10, 0))

    def take(self) -> None:
        self.readers.take(1, TakeEvents(len(self.here.replies) + 2, 1))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", BAD_ROWS)
def test_rows_that_cannot_be_are_read_again(name: str, packed: bool) -> None:
    program = Reads(packed)
    here = program.here
    if not name.startswith("it begins"):
        program.began()
        program.take()
    bad = program.is_open().reading
    if name == "other rows" and packed:
        return  # who takes rows packed looks into them
    program.hear(BAD_ROWS[name](bad))
    assert here.counters[REFUSED] == 1
    assert here.mistakes == 1, "it is asked again who leads"
    program.hear(BAD_ROWS[name](bad))
    assert here.counters[REFUSED] == 1, "what comes late is nobody's"
    program.look()
    asked = program.is_open()
    assert asked.reading > bad
    losses = -1 if name.startswith("it begins") else 0  # no leader has begun before
    assert asked.start == reading.ReadFrom("offset", 3, 0, losses)
    program.began()
    program.hear(rows_of(piece(3, 7), since=3)(asked.reading))
    for _ in range(3):
        program.take()
    (taken,) = [r for r in here.replies if isinstance(r, EventsTaken) and (r.events or r.packed)]
    if packed:
        assert [(each.first, each.count) for each in taken.packed] == [(3, 7)]
    else:
        assert [event.offset for event in taken.events] == list(range(3, 10))
    assert taken.positions == ((0, 10),)


def test_rows_before_a_row_that_cannot_be_read_are_handed_over() -> None:
    program = Reads(packed=False)
    program.began()
    rows = rows_of(piece(3, 2), piece(6, rows=b"\x01"), since=3)
    program.hear(rows(program.is_open().reading))
    program.take()
    taken = program.here.replies[-1]
    assert [event.offset for event in taken.events] == [3, 4]
    assert taken.positions == ((0, 5),), "whether 5 matches is not known from such a leader"
    program.look()
    assert program.is_open().start.at == 5


def test_a_reading_fails_when_no_leader_does_better() -> None:
    program = Reads(packed=False)
    program.began()
    program.take()
    for _ in range(pacing.PROTOCOL_ERRORS_MOST):
        assert isinstance(program.here.replies[-1], ReadingReady)
        program.hear(rows_of(piece(4, rows=b"\x01"), since=3)(program.is_open().reading))
        program.look()
        program.began()
    failed = program.here.replies[-1]
    assert (type(failed), failed.code) == (Failed, "malformed")
    assert LEADER.id in failed.reason


def test_what_others_say_of_a_reading_changes_nothing() -> None:
    program = Reads(packed=False)
    number = program.is_open().reading
    program.hear(reading.ReadingBegan(SHARD, number, 3, 10, 0), OTHER)
    program.hear(reading.ReadingRefused(SHARD, number, "fenced", ""), OTHER)
    assert program.here.replies == []
    program.began()
    program.hear(rows_of(piece(3, 7), since=3)(number), OTHER)
    program.take()
    assert [type(reply) for reply in program.here.replies] == [ReadingReady]


def test_a_position_that_is_higher_than_asked_for_confirms_no_later_one() -> None:
    program = Reads(packed=False)
    program.readers.end_reading(1, EndReading(2, 1))
    program.readers.begin(1, BeginReading(5, "s", durable="d", token="t"))
    program.located()
    program.began(3)
    program.hear(rows_of(piece(3, 7), since=3)(program.is_open().reading))
    program.readers.take(1, TakeEvents(6, 5))
    program.readers.commit(1, CommitReading(7, 5, ((0, 4),)))
    program.hear(reading.PositionCommitted(SHARD, program.is_open().reading, 2**50))
    assert program.here.replies[-1] == Done(7)
    program.readers.commit(1, CommitReading(8, 5, ((0, 9),)))
    assert program.here.replies[-1] == Done(7), "9 is not committed"


# -- groups ----------------------------------------------------------------------------------------


def leased(offset: int, lease: int, row: bytes | None = None) -> groups.LeasedRow:
    found = encode_rows([Row({"n": offset})]) if row is None else row
    return groups.LeasedRow(offset, lease, 1, 0, found)


class Shares:
    """A program that is a member."""

    def __init__(self) -> None:
        self.here = Here()
        self.members = Members(self.here, 1, self.here)  # type: ignore[arg-type]
        self.members.attach(1, AttachGroup(1, "s", "g"))
        self.members.on_located(self.here.known["s"])
        self.joined()

    def hear(self, message: Message) -> None:
        self.members.handlers()[type(message)](LEADER, message)

    @property
    def number(self) -> int:
        return int(self.here.asked(groups.JoinGroup).member)

    def joined(self, *kept: int) -> None:
        options = GroupOptions()
        self.hear(groups.GroupJoined(SHARD, self.number, (1, 1), options, kept))

    def look(self) -> None:
        self.here.now += 0.25
        self.members.on_look(LookAtMembers())

    def rows(self, *rows: groups.LeasedRow, at: float = 0.0) -> None:
        self.hear(groups.LeasedRows(SHARD, self.number, at, rows))

    def take(self, request: int) -> list[int]:
        self.members.take(1, TakeRows(request, 1))
        found = [r for r in self.here.replies if isinstance(r, RowsTaken) and r.request == request]
        return [row.offset for reply in found for row in reply.rows]


@pytest.mark.parametrize("row", [b"", b"\x01", b"\xc1", encode_rows([Row({}), Row({})])])
def test_a_row_of_a_group_that_cannot_be_read_is_given_to_nobody(row: bytes) -> None:
    program = Shares()
    assert isinstance(program.here.replies[0], GroupReady)
    program.rows(leased(0, 7, row), leased(1, 8))
    assert program.take(2) == [1]
    assert program.here.counters[REFUSED] == 1
    program.look()
    asked = program.here.asked(groups.JoinGroup)
    assert [lease for _, lease in asked.held] == [8], "the other lease runs out"
    program.joined(8)
    program.rows(leased(0, 9))
    assert program.take(3) == [0]


@pytest.mark.parametrize("at", [5.0, float("inf"), float("nan")])
def test_leases_that_began_in_the_future_are_none(at: float) -> None:
    program = Shares()
    program.rows(leased(0, 7), at=at)
    assert program.here.counters[REFUSED] == 1
    assert program.take(2) == []
    program.look()
    program.joined()
    program.rows(leased(0, 8))
    (taken,) = [r for r in program.here.replies if isinstance(r, RowsTaken)]
    assert taken.rows[0].left <= 30.0


def test_a_row_that_comes_twice_by_one_lease_is_handed_over_once() -> None:
    program = Shares()
    program.rows(leased(0, 7), leased(0, 7))
    assert (program.take(2), program.take(3)) == ([0], [])
    assert program.here.counters[REFUSED] == 1


def test_leases_are_not_extended_from_the_future_on() -> None:
    program = Shares()
    program.rows(leased(0, 7))
    number = program.number
    program.hear(groups.LeasesSettled(SHARD, number, float("inf"), (), (7,), ()))
    assert program.here.counters[REFUSED] == 1
    program.here.now += 40.0
    assert program.take(2) == [], "its lease is over"


def test_members_of_a_node_that_starts_again_have_numbers_that_no_leader_knows() -> None:
    numbers = []
    for incarnation in (1, 2):
        here = Here()
        members = Members(here, incarnation, here)  # type: ignore[arg-type]
        for request in range(1, 100):
            members.attach(1, AttachGroup(request, "s", "g"))
        members.on_located(here.known["s"])
        joined = [m.member for _, m in here.sent if isinstance(m, groups.JoinGroup)]
        assert len(set(joined)) == 99
        numbers.append(joined)
    assert max(numbers[0]) < min(numbers[1])


# -- producers -------------------------------------------------------------------------------------


def hash_of(length: int = 32) -> bytes:
    return b"#" * length


def run(sequence: int, count: int, length: int = 32) -> producing.Run:
    return producing.Run(sequence, count, 100 + sequence, 1, 1, hash_of(length), (LEADER.id,))


class Appends:
    """A session of one producer with two rows under way."""

    def __init__(self) -> None:
        self.here = Here()
        self.outcomes: list[tuple[producing.Run | None, str]] = []
        self.sending = AppendSession(
            *(self.here, self.here, "s", 0, SHARD, "p"),  # type: ignore[arg-type]
            *(LogSession("t"), 1, lambda following: None),
        )
        for _ in range(2):
            self.sending.add(encode_rows([Row({})]), 1, self.done)
        self.sending.pump()

    def done(self, run: producing.Run | None, code: str, reason: str) -> None:
        self.outcomes.append((run, code))

    @property
    def messages(self) -> list[Any]:
        return [message for _, message in self.here.sent]

    def opened(self, session: int = 5, following: int = 0, sender: Peer = LEADER) -> None:
        request = self.messages[-1].request
        self.sending.on_open(sender, producing.ProducerIsOpen(SHARD, request, session, following))

    def appended(self, *runs: producing.Run, sender: Peer = LEADER) -> None:
        request = self.messages[-1].request
        self.sending.on_appended(sender, producing.RowsAppended(SHARD, request, runs))

    def again(self) -> None:
        self.here.now += 1.0
        self.sending.look()


@pytest.mark.parametrize(
    "runs",
    [
        (run(2, 1),),
        (run(0, 3),),
        (run(1, 1), run(0, 1)),
        (run(0, 2), run(1, 1)),
        (run(0, 0),),
        (run(0, 2, length=31),),
    ],
)
def test_places_that_are_not_those_of_the_rows_are_asked_for_again(
    runs: tuple[producing.Run, ...],
) -> None:
    program = Appends()
    program.opened()
    request = program.messages[-1]
    program.appended(*runs)
    assert program.outcomes == []
    assert program.here.counters[REFUSED] == 1
    program.again()
    again = program.messages[-1]
    assert (again.sequence, again.batches) == (request.sequence, request.batches)
    assert again.request > request.request
    program.appended(run(0, 2))
    assert [(found.offset, found.count, code) for found, code in program.outcomes if found] == [
        *((100, 1, ""), (101, 1, "")),
    ]


@pytest.mark.parametrize(("session", "following"), [(0, 0), (5, 2**53 - 1)])
def test_a_session_that_cannot_be_is_opened_again(session: int, following: int) -> None:
    program = Appends()
    program.opened(session, following)
    assert program.here.counters[REFUSED] == 1
    sent = len(program.messages)
    assert sent == 1, "not at once, and again, and again"
    program.again()
    assert isinstance(program.messages[-1], producing.OpenProducer)
    program.opened()
    program.appended(run(0, 2))
    assert [code for _, code in program.outcomes] == ["", ""]


def test_what_others_say_of_rows_counts_for_nothing() -> None:
    program = Appends()
    program.opened(sender=OTHER)
    assert isinstance(program.messages[-1], producing.OpenProducer)
    program.opened()
    program.appended(run(0, 2), sender=OTHER)
    assert program.outcomes == []
    program.appended(run(0, 2))
    assert len(program.outcomes) == 2


def test_a_receipt_is_of_all_rows_of_its_batch() -> None:
    here = Appends()
    here.sending.add(encode_rows([Row({}), Row({})]), 2, here.done)
    here.opened()
    here.appended(run(0, 3), run(3, 1))
    assert [None if found is None else found.count for found, _ in here.outcomes] == [1, 1, None]


# -- transactions and the directory ----------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        lambda n: halves.HalfIsPrepared(SHARD, n, "t"),
        lambda n: halves.HalfDecided(SHARD, n, "t", "perhaps", None),
        lambda n: halves.HalfDecided(SHARD, n, "t", "committed", run(0, 1, length=3)),
        lambda n: halves.HalfRefused(SHARD, n, "t", "elsewhere", "", None, 900),
    ],
)
def test_a_decision_that_cannot_be_is_asked_for_again(bad: Callable[[int], Message]) -> None:
    here = Here()
    machine = Transactors(here, here)  # type: ignore[arg-type]
    machine.commands()[DecideTransaction](1, DecideTransaction(1, "s", "t", True))
    asked = here.asked(halves.DecideHalf)
    answer = bad(asked.request)
    machine.handlers()[type(answer)](LEADER, answer)
    assert (here.replies, here.counters[REFUSED]) == ([], 1)
    here.now += 1.0
    machine.on_look(LookAtTransactions())
    assert here.asked(halves.DecideHalf) == asked
    right = halves.HalfDecided(SHARD, asked.request, "t", "committed", run(0, 1))
    machine.on_answer(LEADER, right)
    assert [type(reply) for reply in here.replies] == [TransactionState]


@pytest.mark.parametrize(
    "found",
    [
        StreamFound(1, ENTRY, ()),
        StreamFound(1, ENTRY, (None, None)),
        StreamFound(1, StreamEntry("s", "5", StreamOptions(), ()), ()),
        StreamFound(1, StreamEntry("another", "5", StreamOptions(), ENTRY.places), (LEADER,)),
    ],
)
def test_an_entry_that_cannot_be_is_asked_for_again(found: StreamFound) -> None:
    here = Here()

    class Ring:
        def owner(self, key: object) -> None:
            return None

        def find(self, key: object) -> None: ...

    questions = OwnerQuestions(here, Ring())  # type: ignore[arg-type]
    answers: list[Any] = []
    questions.ask("s", lambda ticket: StreamFound(ticket, ENTRY, (LEADER,)), answers.append)
    questions.on_answer(LEADER, found)
    assert (answers, here.counters[REFUSED]) == ([], 1)
    questions.on_answer(LEADER, StreamFound(1, ENTRY, (LEADER,)))
    assert len(answers) == 1


def test_a_node_appends_again_after_a_leader_has_refused_its_numbers() -> None:
    here = Here()
    machine = Producers(here, 1, here)  # type: ignore[arg-type]

    def append(request: int) -> int:
        machine.append(1, AppendEvents(request, "s", (Draft({"n": 1}),)))
        machine.on_send(SendAppends())
        opened = here.asked(producing.OpenProducer)
        machine.on_producer_is_open(
            LEADER, producing.ProducerIsOpen(SHARD, opened.request, request, 0)
        )
        return int(here.asked(producing.AppendRows).request)

    refused = producing.AppendRefused(SHARD, append(1), "sequence", "a gap", 2**40)
    machine.on_append_refused(LEADER, refused)
    assert (type(here.replies[-1]), here.replies[-1].code) == (Failed, "sequence")
    number = append(2)
    machine.on_rows_appended(LEADER, producing.RowsAppended(SHARD, number, (run(0, 1),)))
    assert isinstance(here.replies[-1], EventsAppended)


# -- liars -----------------------------------------------------------------------------------------

ANSWERS = (
    *(reading.ReadingBegan, reading.StreamRows, reading.SharedRows, reading.ReadingsScanned),
    *(reading.ReadingsKept, reading.PositionCommitted, reading.ReadingRefused),
    *(reading.ReadingsMoved, groups.GroupJoined, groups.LeasedRows, groups.LeasesSettled),
    *(groups.MembersKept, groups.MemberRefused, groups.MembersMoved),
    *(producing.ProducerIsOpen, producing.RowsAppended, producing.AppendRefused),
)
"""What leaders say to readers, members and producers."""


def lying(world: type[Any], chance: float) -> type[Any]:
    """A world in which leaders answer something else, with that chance, until `is_honest`."""

    class Lying(world):  # type: ignore[misc]
        is_honest = False
        lies = 0

        def send(self, sender: Peer, peer: Peer, message: Message) -> None:
            if isinstance(message, ANSWERS) and not self.is_honest and self.rng.random() < chance:
                message = mutated(message, self.rng)
                self.lies += 1
            super().send(sender, peer, message)

    return Lying


@pytest.mark.parametrize("seed", seeds(3))
def test_liars_end_no_reader_and_the_next_reading_gets_everything(seed: int) -> None:
    world = lying(ReadingWorld, 0.3)(seed)
    world.wanted = defaultdict(lambda: 2**53)
    nodes = [peer.id for peer in world.peers]
    for client, node in enumerate([*nodes, *nodes], 1):
        program = world.add(client, node, "n >= 0" if client % 2 else "k = 3")
        program.packed = client % 3 == 0
        judge, program.answered = program.answered, lambda reply, p=program: noted(p, reply)
        program.judge = judge
    world.run(0.1)
    world.elect(nodes[0])
    for _ in range(40):
        world.append()
        world.run(0.3)
    assert world.lies > 50
    assert sum(port.counters.get(REFUSED, 0) for port in world.ports.values()) > 3
    world.is_honest = True
    world.run(15.0)
    for program in world.programs.values():
        waits = program.takes
        world.append()
        world.run(1.0)
        assert not (waits and program.takes) or program.reading == 0, "it hangs"
        program.lives.clear()
        program.answered = program.judge
        program.begin()
    for _ in range(30):
        world.run(0.5)
        world.work()
    leader = world.alive[nodes[0]]
    assert world.judge_programs(leader) > 20


def noted(program: Any, reply: Any) -> None:
    """What a program hears of a reading of which it believes nothing."""
    if isinstance(reply, ReadingReady):
        program.is_ready = True
        program.lives.append(Life(0))
    elif isinstance(reply, EventsTaken):
        program.takes = False
    elif isinstance(reply, Failed):
        program.reading, program.is_ready, program.takes = 0, False, False


@pytest.mark.parametrize("seed", seeds(3))
def test_liars_end_no_member_and_the_group_goes_on(seed: int) -> None:
    world = lying(MembershipWorld, 0.2)(seed)
    world.edits = 1  # a program may be refused, and asks for nothing then
    nodes = [peer.id for peer in world.peers]
    for client, group in enumerate([*KINDS, *KINDS], 1):
        world.add(client, nodes[client % len(nodes)], group, "")
    world.run(0.1)
    world.elect(nodes[0])
    world.taken = lambda program, row: program.holds.update(
        {row.lease: Hold(row, world.scheduler.now + 1.0)}
    )
    for _ in range(40):
        world.append()
        for program in world.programs.values():
            with suppress(WrongError):  # it was refused by a liar
                program.work()
        run_on(world, 0.3)
    assert world.lies > 50
    world.is_honest = True
    run_on(world, 5.0)
    for program in world.programs.values():
        world.members[program.node].client_gone(program.client)
        program.stop()
        program.names_options = False
    del world.taken
    world.confirmed.clear()
    settle(world)


def run_on(world: Any, seconds: float) -> None:
    """Let time pass, whatever programs are refused with."""
    until = world.scheduler.now + seconds
    while world.scheduler.now < until:
        with suppress(WrongError):
            world.run(until - world.scheduler.now)


def test_liars_end_no_node_of_an_overlay() -> None:
    lies, _ = trial_of_liars(2)
    assert lies > 50
