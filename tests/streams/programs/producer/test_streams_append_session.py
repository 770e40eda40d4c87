"""The node's own session at a shard, which its programs share."""

from __future__ import annotations

from typing import Any

import pytest

from overlay.machine import Message, Peer
from streams.access.reasons import MALFORMED, QUOTA, SEQUENCE
from streams.programs.producer.append_session import AppendSession, LogSession
from streams.programs.producer.messages import (
    AppendRefused,
    AppendRows,
    OpenProducer,
    ProducerIsOpen,
    RowsAppended,
    Run,
)

LEADER = Peer("1" * 16, "leader:1")


class Here:
    """The port, the leaders, and a leader that refuses requests with a bad row."""

    now = 0.0

    def __init__(self, code: str) -> None:
        self.code = code
        self.sent: list[Any] = []
        self.log: list[bytes] = []
        self.sessions = 0

        self.known: dict[str, Any] = {}

    def leader(self, name: str, shard: int) -> Peer:
        return LEADER

    def locate(self, name: str) -> None: ...

    def send(self, peer: Peer, message: Message) -> None:
        self.sent.append(message)

    def answer(self, sending: AppendSession, message: Any) -> None:
        if isinstance(message, OpenProducer):
            self.sessions += 1
            rows = sum(map(len, self.log))
            sending.on_open(LEADER, ProducerIsOpen("s/0", message.request, self.sessions, rows))
            return
        assert isinstance(message, AppendRows)
        rows = b"".join(batch.rows for batch in message.batches)
        following = sum(map(len, self.log))
        if (message.session, message.sequence) != (self.sessions, following):
            expected = AppendRefused("s/0", message.request, SEQUENCE, "a gap", following)
            sending.on_refused(LEADER, expected)
            return
        if b"x" in rows:
            refusal = AppendRefused("s/0", message.request, self.code, "row x")
            sending.on_refused(LEADER, refusal)
            return
        run = Run(message.sequence, len(rows), message.sequence, 1, 1, b"#" * 32, ())
        self.log.append(rows)
        sending.on_appended(LEADER, RowsAppended("s/0", message.request, (run,)))


def begun(here: Any, renews: bool = False) -> AppendSession:
    log = LogSession("t", renews=renews)
    return AppendSession(here, here, "s", 0, "s/0", "@n", log, 0, lambda following: None)


@pytest.mark.parametrize(("code", "appended"), [(MALFORMED, ["a", "b", "c", "d"]), (QUOTA, ["d"])])
def test_only_the_batch_that_is_at_fault_is_refused(code: str, appended: list[str]) -> None:
    here = Here(code)
    outcomes: dict[str, str] = {}
    places: dict[str, int] = {}
    sending = begun(here, renews=True)

    def add(row: str) -> None:
        def then(run: Run | None, code: str, reason: str) -> None:
            assert row not in outcomes, "answered twice"
            outcomes[row] = code
            if run is not None:
                places[row] = run.offset

        sending.add(row.encode(), 1, then)

    add("a")
    sending.pump()
    done = 0
    for row in "bxc":  # in one request with the first row, when the session is open
        add(row)
    while done < len(here.sent):
        message = here.sent[done]
        done += 1
        here.answer(sending, message)
        if message.request == 2:
            add("d")
        here.now += 2.0
        sending.look()  # a pause is over
    assert [row for row in outcomes if not outcomes[row]] == appended
    assert outcomes["x"] == code
    assert [places[row] for row in appended] == list(range(len(appended)))
    assert b"".join(here.log).decode() == "".join(appended)


class Requests:
    """A session that is open, the requests that it sends, and answers to them."""

    def __init__(self) -> None:
        self.here = Here("")
        self.sending = begun(self.here)
        self.sending.pump()
        self.here.answer(self.sending, self.here.sent[0])

    def add(self, count: int) -> None:
        """One row after the other comes, each in a turn of its own."""
        for _ in range(count):
            self.sending.add(b"r", 1, lambda run, code, reason: None)
            self.sending.pump()

    def answer(self, request: int) -> None:
        """One request is answered, by its place among all."""
        self.here.answer(self.sending, self.here.sent[1 + request])

    @property
    def sizes(self) -> list[int]:
        """Rows of each request so far."""
        return [m.batches[0].count for m in self.here.sent[1:]]


def test_a_row_that_comes_alone_is_sent_at_once() -> None:
    one = Requests()
    one.add(1)
    assert one.sizes == [1]
    one.add(1)
    assert one.sizes == [1, 1]
    one.answer(0)
    one.add(1)
    assert one.sizes == [1, 1, 1]


def test_rows_that_come_one_by_one_share_two_requests_of_one_size() -> None:
    """As many rows come as are answered, as if programs had 64 under way."""
    one = Requests()
    one.add(64)
    for request in range(40):
        one.answer(request)
        one.add(one.sizes[request])
    assert set(one.sizes[-10:]) == {32}


def test_what_waits_for_a_larger_request_is_sent_when_that_is_answered() -> None:
    one = Requests()
    one.add(12)
    one.answer(0)
    one.answer(1)
    assert one.sizes[-1] == 6
    one.answer(2)
    assert one.sizes == [1, 1, 6, 4]
    one.add(3)
    assert one.sizes == [1, 1, 6, 4]
    one.answer(3)
    assert one.sizes == [1, 1, 6, 4, 3]


def test_a_session_that_is_opened_again_after_two_refusals_ends_no_other() -> None:
    one = Requests()
    one.add(2)
    for request in (2, 3):
        one.sending.on_refused(LEADER, AppendRefused("s/0", request, QUOTA, "full"))
    opening = one.here.sent[-1]
    assert isinstance(opening, OpenProducer)
    assert opening.after == one.here.sessions, "only in the place of its own"
