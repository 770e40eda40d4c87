"""Publications of programs at a node, receipts, and the last events (docs/reference/wire.md)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.overlays import settings
from overlay.client import Draft, Events, GetEvents, Publish, Published
from overlay.info import AcceptedEvents
from overlay.upper_tree.clients.constants import EVENTS_BYTES
from overlay.upper_tree.host.constants import ACCEPTED_WITHIN
from overlay.upper_tree.messages import Visit
from tests.upper_tree.clients.clients_rig import Rig


def test_bad_events_are_refused_with_their_place_and_reason_and_the_rest_goes() -> None:
    rig = Rig()
    mine = rig.subscribe("x > 1")
    rig.publish({"x": 9}, {"x": float("nan")}, {"$x": 1}, {"x": 8})
    (answer,) = rig.port.answers(Published)
    assert answer.identities == ("me.1.1", "", "", "me.1.2")
    assert [place for place, _ in answer.refused] == [1, 2]
    assert "NaN" in answer.refused[0][1]
    assert "'$x'" in answer.refused[1][1]
    assert rig.port.counts["refused"] == 2
    rig.settle()
    assert rig.shown() == [(1, [(mine, 1), (mine, 2)])]


@pytest.mark.parametrize(
    "second", [({"x": 2}, {"x": 3}), ({"x": 2}, {"y": 3}), ({"x": "\ud800"}, {"x": 3}), ()]
)
def test_publications_of_one_turn_are_answered_each_by_itself(second: Any) -> None:
    rig = Rig()
    rig.subscribe("x > 0 OR y > 0")
    for number, events in enumerate([({"x": 1},), second, ({"x": 4}, {"x": 5})], 11):
        drafts = tuple(Draft(attributes) for attributes in events)
        rig.publications.publish(number, Publish(number, drafts, receipt=number == 13))
    rig.port.turn()
    rig.settle()
    answers = {c: a for c, a in rig.port.replies if isinstance(a, Published)}
    assert [answer.request for answer in answers.values()] == [11, 12, 13]
    given = [identity for answer in answers.values() for identity in answer.identities]
    sizes = [answers[number].count for number in (11, 12, 13)]
    assert sizes == [1, len(second), 2]
    assert [i for i in given if i] == [f"me.1.{n}" for n in range(1, 1 + sum(map(bool, given)))]
    assert [bool(i) for i in answers[12].identities] == ["\ud800" not in e.values() for e in second]
    shown = [f"me.1.{sequence}" for _, events in rig.shown() for _, sequence in events]
    assert sorted(shown) == [i for i in given if i]


def test_publications_of_one_turn_set_out_as_one_batch() -> None:
    rig = Rig()
    rig.subscribe("x > 0")
    rig.publish({"x": 1})
    rig.settle()
    rig.port.sent.clear()
    for client in (1, 2, 1):
        draft = Draft({"x": client})
        rig.publications.publish(client, Publish(1, (draft, draft)))
    assert rig.port.answers(Published) != [], "of the first one"
    rig.port.turn()
    assert len(rig.port.answers(Published)) == 3
    visits = [m for _, m in rig.port.sent_to(Visit)]
    assert [[e.attributes["x"] for e in visit.events] for visit in visits] == [[1, 1, 2, 2, 1, 1]]


def test_without_a_receipt_the_answer_does_not_wait() -> None:
    rig = Rig()
    rig.subscribe("x > 1")
    rig.publish({"x": 9})
    assert [a.identities for a in rig.port.answers(Published)] == [("me.1.1",)]


def test_a_receipt_waits_until_every_tree_has_every_event() -> None:
    rig = Rig()
    rig.subscribe("x > 1")
    request = rig.publish({"x": 9}, {"x": 8, "y": 1}, {"bad": float("nan")}, receipt=True)
    assert rig.port.answers(Published) == []
    rig.settle()
    (answer,) = rig.port.answers(Published)
    assert answer.request == request
    assert answer.identities == ("me.1.1", "me.1.2", "")
    assert len(answer.refused) == 1
    assert rig.publications.receipts == {}
    assert answer.accepted == (AcceptedEvents(1, 2, {"x": "h"}),)
    assert answer.hosts == ({"x": "h"}, {"x": "h"}, {}), "y has no subscriber"


@given(st.dictionaries(st.integers(1, 12), st.dictionaries(st.sampled_from("xy"), st.just("h"))))
def test_a_receipt_has_the_hosts_of_each_event(hosts: dict[int, dict[str, str]]) -> None:
    answer = Published(0, 12, "p", 1, 1, accepted=AcceptedEvents.of(hosts))
    assert answer.hosts == tuple(hosts.get(sequence, {}) for sequence in range(1, 13))
    assert sum(group.count for group in answer.accepted) == len([h for h in hosts.values() if h])


def test_a_receipt_for_events_without_subscribers_is_given_at_once() -> None:
    rig = Rig()
    rig.publish({"x": 9})
    rig.publish({"x": 8}, receipt=True)
    assert len(rig.port.answers(Published)) == 2


def test_publications_wait_in_order_while_too_much_is_pending() -> None:
    rig = Rig(settings(tree={"pending": 2}))
    rig.subscribe("x > 1")
    rig.publish({"x": 9})
    rig.settle()
    assert len(rig.port.answers(Published)) == 1
    first = rig.publish({"x": 9}, {"x": 9})  # fills the room
    second = rig.publish({"x": 8}, {"x": 8}, client=2)
    third = rig.publish({"x": 7}, client=3)
    assert [a.request for a in rig.port.answers(Published)] == [first]
    assert rig.publications.waiting == 3
    rig.shown()
    for _ in range(3):  # as many times as few events fill the room
        rig.net.run(ACCEPTED_WITHIN)
        rig.settle()
    assert [a.request for a in rig.port.answers(Published)] == [second, third]
    assert rig.publications.waiting == 0
    values = [d for _, deliveries in rig.shown() for _, d in deliveries]
    assert values == [2, 3, 4, 5, 6]


def test_what_a_client_published_goes_on_when_it_is_gone() -> None:
    rig = Rig(settings(tree={"pending": 2}))
    mine = rig.subscribe("x > 1", client=9)
    rig.publish({"x": 9}, {"x": 9})
    rig.publish({"x": 8})
    rig.clients.client_closed(1)
    rig.settle()
    assert [s for _, shown in rig.shown() for _, s in shown] == [1, 2, 3]
    assert mine in rig.clients.subscriptions


def test_the_last_events_are_listed_once_the_newest_first_without_payloads() -> None:
    rig = Rig()
    rig.subscribe("x > 1")
    rig.publish({"x": 1}, {"x": 2})
    rig.command(1, Publish, (Draft({"x": 3}, b"much", "text/plain"),))
    rig.settle()  # 2 and 3 come back, as deliveries
    rig.command(2, GetEvents, 10)
    ((found, second, first),) = [answer.events for answer in rig.port.answers(Events)]
    assert [event.attributes["x"] for event in (found, second, first)] == [3, 2, 1]
    assert (found.payload, found.payload_type) == (b"", "")
    for count, numbers in ((1, [3]), (0, []), (-1, [])):
        rig.command(2, GetEvents, count)
        (answer,) = rig.port.answers(Events)
        assert [event.attributes["x"] for event in answer.events] == numbers


def test_the_last_events_are_as_many_as_an_answer_has_room_for() -> None:
    rig = Rig()
    for number in range(30):
        rig.publish({"x": number, "text": "t" * (EVENTS_BYTES // 20)})
    rig.command(2, GetEvents, 1_000)
    (answer,) = rig.port.answers(Events)
    assert [event.attributes["x"] for event in answer.events] == list(range(29, 10, -1))
