"""The model without a screen: the log and its view, the inbox, rates, drafts, texts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canopy.client.resubscription import Backoff
from canopy.feeds.drafts import BadEventError
from canopy.tui.model.inbox import Inbox
from canopy.tui.model.log import EventLog
from canopy.tui.model.rates import Rate, Rates, show_rate
from canopy.tui.model.text import show_duration, show_payload, show_time, show_value
from canopy.tui.screens.publish import parse_draft
from overlay.client import Delivery, Event

LIMIT = 6
PLACES = ("Peru", "Chile", "Perm")


def delivery(number: int, place: str = "Peru") -> Delivery:
    event = Event("n", 1, number, 0.0, {"id": f"e{number}", "place": place})
    return Delivery("s", event, "place", "", "", 1)


class Oracle:
    """The log as a plain list that is searched again each time."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str, dict[int, None]]] = []
        self.held: list[tuple[int, int, str]] = []
        self.paused = False

    def add(self, key: int, number: int, place: str) -> None:
        if self.paused:
            self.held = [*self.held, (key, number, place)][-LIMIT:]
            return
        for row in self.rows:
            if row[0] == number:
                row[2][key] = None
                return
        self.rows = [*self.rows, (number, place, {key: None})][-LIMIT:]

    def view(self, only: int | None, words: str) -> list[int]:
        wanted = words.lower().split()
        return [
            number
            for number, place, keys in self.rows
            if (only is None or only in keys)
            and all(word in f"id=e{number} place={place}".lower() for word in wanted)
        ]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 2), st.integers(0, 12)),
        st.tuples(st.just("pause"), st.booleans()),
        st.tuples(
            st.just("show"),
            st.sampled_from([None, 1, 2]),
            st.sampled_from(["", "peru", "PER e1", "nothing"]),
        ),
        st.tuples(st.just("clear")),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(OPERATIONS)
def test_the_view_is_what_a_search_of_everything_finds(operations: list[tuple]) -> None:
    log, oracle = EventLog(LIMIT), Oracle()
    only, words = None, ""
    for operation in operations:
        match operation:
            case ("add", key, number):
                place = PLACES[number % 3]
                log.add([(key, delivery(number, place))])
                oracle.add(key, number, place)
            case ("pause", paused):
                log.pause(paused)
                oracle.paused = paused
                if not paused:
                    held, oracle.held = oracle.held, []
                    for one in held:
                        oracle.add(*one)
            case ("show", only, words):
                log.show(only, words)
            case _:
                log.clear()
                oracle.rows, oracle.held = [], []
        shown = [row.event.sequence for row in log.view]
        if only is None:
            assert shown == oracle.view(only, words)
        else:  # a row that another subscription brought first enters this view late
            assert sorted(shown) == sorted(oracle.view(only, words))
        assert log.held == len(oracle.held)
        assert len(log.rows) <= LIMIT


@given(st.integers(1, 40), st.integers(0, 5))
def test_a_place_stays_with_its_row(more: int, offset: int) -> None:
    log = EventLog(LIMIT)
    log.add((1, delivery(number)) for number in range(LIMIT))
    place = log.first + offset
    row = log.at(place)
    log.add((1, delivery(100 + number)) for number in range(more))
    assert log.at(place) is (row if more <= offset else None)
    assert log.end - log.first == LIMIT


def test_what_a_long_hold_pushes_out_is_counted() -> None:
    log = EventLog(LIMIT)
    log.pause(True)
    log.add((1, delivery(number)) for number in range(LIMIT + 3))
    assert (log.held, log.skipped) == (LIMIT, 3)
    log.pause(False)
    assert [row.event.sequence for row in log.view] == list(range(3, LIMIT + 3))


def test_the_inbox_keeps_the_latest_and_counts_all() -> None:
    inbox = Inbox(10)
    for start in range(0, 30, 6):
        inbox.deliver(7, [delivery(n) for n in range(start, start + 6)])
    inbox.deliver(8, [delivery(99)])
    taken = inbox.drain()
    assert [d.event.sequence for _, d in taken.deliveries] == [*range(21, 30), 99]
    assert taken.counts == {7: 30, 8: 1}
    assert taken.skipped == 21
    assert inbox.drain() == ([], {}, 0, [])


def test_news_come_in_order_and_once() -> None:
    inbox, calls = Inbox(), []
    inbox.call_in_app(lambda: calls.append(1))
    inbox.call_in_app(lambda: calls.append(2))
    for callback in inbox.drain().callbacks:
        callback()
    assert calls == [1, 2]
    assert not inbox.drain().callbacks


def test_a_rate_follows_and_comes_to_rest_at_zero() -> None:
    rate = Rate()
    rate.update(0.0)
    for second in range(1, 20):
        rate.add(50)
        rate.update(float(second))
    assert rate.per_second == pytest.approx(50, rel=0.01)
    for second in range(20, 40):
        rate.update(float(second))
    assert rate.per_second == 0.0
    assert rate.total == 950


def test_rates_of_totals_are_never_negative() -> None:
    rates = Rates()
    rates.update({"a": 10}, 1.0)
    assert rates.update({"a": 30, "b": 5}, 3.0) == {"a": 10.0, "b": 0.0}
    assert rates.update({"a": 1, "b": 6}, 4.0) == {"a": 0.0, "b": 1.0}
    assert show_rate(12.34) == "12.3/s"
    assert show_rate(1234.5) == "1,234/s"


def test_backoff_doubles_up_to_its_bound() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.next() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.reset()
    assert backoff.next() == 0.5


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "at column 1"),
        ("[1]", "an event is a JSON object"),
        ('{"a": 1, "a": 2}', 'the name "a" is given twice'),
        ('{"a": Infinity}', '"a": an infinity is no value'),
        ('{"a": 1e999}', '"a": an infinity is no value'),
        ('{"a": 9223372036854775808}', '"a": the integer does not fit in 64 bits'),
        ('{"a": "\\ud800"}', '"a": the string has a lone surrogate'),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": "' + "x" * 200_000 + '"}', "longer than"),
        ('{"a": ' + "9" * 5_000 + "}", ""),
    ],
)
def test_a_text_that_is_no_event_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(BadEventError) as refused:
        parse_draft(text, "x")
    assert reason in str(refused.value)


def test_a_draft_keeps_all_that_was_typed() -> None:
    draft = parse_draft('{"id": 7, "type": 3, "big": 9007199254740993, "n": null, "o": {}}', "x")
    assert draft.attributes == {"id": 7, "type": "event", "big": 9007199254740993, "n": None}
    assert draft.payload == b'{"o":{},"type":3}'
    assert parse_draft("{}", "x").attributes == {"id": "x", "type": "event"}


@given(st.text(max_size=40))
def test_no_value_can_move_the_cursor_of_a_terminal(text: str) -> None:
    assert show_value(text).isprintable()


def test_values_and_times_for_people() -> None:
    assert [show_value(v) for v in (None, True, False, 5, 2.5)] == [
        "NULL", "TRUE", "FALSE", "5", "2.5",
    ]  # fmt: skip
    assert show_time(0.0) == ""
    assert show_time(1e300) == "?"
    assert [show_duration(s) for s in (4, 200, 7_500, 100_000)] == [
        "4 s", "3 min 20 s", "2 h 05 min", "1 d 3 h",
    ]  # fmt: skip


def test_payloads_are_shown_as_json_text_or_bytes() -> None:
    assert show_payload(b'{"a":[1]}') == '{\n  "a": [\n    1\n  ]\n}'
    assert show_payload(b"two\nlines\x07") == "two\nlines\\u0007"
    assert show_payload(b"\xff\x00A" * 300).splitlines()[0].endswith("..A..A..A..A..A.")
    assert "388 more bytes" in show_payload(b"\xff\x00A" * 300)
    assert show_payload(b"[" * 50_000).endswith("(cut)")
