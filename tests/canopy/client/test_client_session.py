"""The core of the client library without IO: a session, what it has received, and its credit."""

from __future__ import annotations

import pytest

from canopy.client.errors import (
    CommandFailed,
    CommandTimeoutError,
    ControlError,
    EventRefusedError,
    SelectorRefusedError,
    UnreachableError,
)
from canopy.client.frames import GatheredOpaque, OpaqueEvent
from canopy.client.session import NOTICES, Arrivals, ControlSession, expected
from canopy.wire.transport.framing import COMMAND_FRAMES, PREFIX, REPLY_FRAMES
from overlay.client import (
    CREDIT,
    Delivered,
    Delivery,
    Done,
    Draft,
    Dropped,
    Event,
    Failed,
    Gathered,
    GetStatus,
    Publish,
    Status,
    Subscribe,
    Subscribed,
)


def event(number: int) -> Event:
    return Event("p", 1, number, float(number), {})


def delivered(*numbers: int) -> Delivered:
    return Delivered(0, tuple(Delivery("s", event(n), "", "", "", 0) for n in numbers))


def gathered(*numbers: int) -> GatheredOpaque:
    events = tuple(OpaqueEvent("p", 1, n, 0.0, Gathered) for n in numbers)  # type: ignore[arg-type]
    return GatheredOpaque(0, events)


def dropped(count: int) -> Dropped:
    return Dropped(0, "overflow", f"{count} deliveries", count, "p.1.1", "p.1.9", 0.0, 1.0)


def test_a_program_owes_a_grant_for_each_half_of_the_credit_that_it_has_asked_for() -> None:
    arrivals = Arrivals()
    arrivals.add(delivered(1, 2), CREDIT // 2 - 1)
    assert len(arrivals.take()[0]) == 2
    assert not arrivals.grant_due
    arrivals.add(gathered(3), 1)
    assert arrivals.consumed == CREDIT // 2 - 1, "what came and was not taken is not consumed"
    assert len(arrivals.take()[0]) == 1
    assert [arrivals.grant_due] == [True]
    grant = arrivals.grant()
    assert (grant.consumed, grant.credit) == (CREDIT // 2, CREDIT)
    arrivals.granted(grant)
    assert not arrivals.grant_due
    smaller = Arrivals(1_000)
    assert smaller.grant_due, "another credit than the usual is granted at once"
    assert (smaller.grant().consumed, smaller.grant().credit) == (0, 1_000)


def test_news_of_a_loss_comes_between_what_was_before_and_what_came_after() -> None:
    arrivals = Arrivals()
    for frame in (delivered(1), gathered(2), dropped(5), delivered(3), dropped(6), dropped(7)):
        arrivals.add(frame, 10)
    found, is_notice = arrivals.take()
    assert found == [*delivered(1).deliveries, *gathered(2).events]
    assert is_notice
    assert [one.reason for one in arrivals.notices] == ["5 deliveries"]
    found, is_notice = arrivals.take()
    assert found == [*delivered(3).deliveries]
    assert is_notice
    assert arrivals, "news alone is worth a call"
    assert arrivals.take() == ([], True)
    assert [one.reason for one in arrivals.notices] == [f"{n} deliveries" for n in (5, 6, 7)]
    assert not arrivals
    assert arrivals.take() == ([], False)


def test_a_client_that_never_looks_keeps_a_bounded_number_of_notices() -> None:
    arrivals = Arrivals()
    for number in range(5 * NOTICES):
        arrivals.add(Failed(0, "gap", str(number)), 10)
    assert len(arrivals._segments) <= NOTICES + 1
    assert len(arrivals.notices) <= NOTICES


class TestSession:
    def test_a_request_and_its_reply(self) -> None:
        session = ControlSession("here")
        number = session.number()
        frame = session.encode(Subscribe(0, "a = 1"), number)
        assert COMMAND_FRAMES.decode(frame[PREFIX:]) == Subscribe(number, "a = 1")
        assert not session.is_answered(number)
        reply = REPLY_FRAMES.encode(Subscribed(number, "s1"))
        session.receive(reply[:7])
        assert not session.is_answered(number)
        session.receive(reply[7:])
        assert session.is_answered(number)
        assert session.answer(number, 1.0) == Subscribed(number, "s1")

    def test_replies_come_in_any_order_and_late_ones_are_ignored(self) -> None:
        session = ControlSession("here")
        first, second, third = (session.number() for _ in range(3))
        session.forget(second)
        for number in (third, second, first):
            session.receive(REPLY_FRAMES.encode(Done(number)))
        assert session.answer(first, 1.0) == Done(first)
        assert session.answer(third, 1.0) == Done(third)
        with pytest.raises(CommandTimeoutError, match=r"within 2\.5 s"):
            session.answer(second, 2.5)

    def test_refusals_are_errors_by_their_code(self) -> None:
        session = ControlSession("here")
        for code, kind in (("selector", SelectorRefusedError), ("time-out", CommandFailed)):
            number = session.number()
            session.receive(REPLY_FRAMES.encode(Failed(number, code, "because")))
            with pytest.raises(kind, match="because") as raised:
                session.answer(number, 1.0)
            assert raised.value.code == code
        with pytest.raises(ControlError, match="answered Done, not Status"):
            expected(Done(1), Status)

    def test_what_cannot_be_sent_is_reported(self) -> None:
        with pytest.raises(EventRefusedError, match="attribute '"):
            ControlSession("here").encode(Publish(0, (Draft({"a": object()}),)), 1)  # type: ignore[dict-item]

    def test_deliveries_before_the_end_are_handed_out_and_then_the_end_is_an_error(self) -> None:
        session = ControlSession("here")
        number = session.number()
        session.encode(GetStatus(0), number)
        session.receive(REPLY_FRAMES.encode(delivered(1, 2)))
        session.receive(b"")
        session.lose("another reason")
        assert len(session.take()) == 2
        with pytest.raises(UnreachableError, match="here has gone: it closed the connection"):
            session.take()
        with pytest.raises(UnreachableError):
            session.answer(number, 1.0)

    def test_notices_of_gaps_keep_their_place_and_others_do_not(self) -> None:
        session = ControlSession("here")
        session.receive(REPLY_FRAMES.encode(delivered(1)))
        session.receive(REPLY_FRAMES.encode(Failed(0, "gap", "lapsed")))
        session.receive(REPLY_FRAMES.encode(Failed(0, "usage", "bad grant")))
        session.receive(REPLY_FRAMES.encode(delivered(2)))
        assert [notice.reason for notice in session.notices] == ["bad grant"]
        assert [one.event.sequence for one in session.take()] == [1]
        assert [notice.reason for notice in session.notices] == ["bad grant", "lapsed"]
        assert [one.event.sequence for one in session.take()] == [2]

    def test_garbage_ends_the_session(self) -> None:
        session = ControlSession("here")
        session.receive(b"\x00\x00\x00\x01\xc1")
        assert session.gone is not None
        assert "bad frame" in session.gone
