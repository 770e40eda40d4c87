"""Subscriptions of programs at a node, and gathering (docs/reference/wire.md)."""

from __future__ import annotations

import pytest

from harness.overlays import settings
from overlay.client import (
    LEAVING,
    Attributes,
    Done,
    Ended,
    EndSubscription,
    Failed,
    Gather,
    Gathered,
    GetAttributes,
    GetSubscriptions,
    Lapsed,
    Published,
    Subscribe,
    Subscribed,
    Subscriptions,
    Unsubscribe,
)
from overlay.settings import Settings
from overlay.upper_tree.clients.clients import EndDue
from overlay.upper_tree.clients.constants import ENDED_AT_ONCE, ENDED_MOST
from overlay.upper_tree.events import SubscriptionLapsed, SubscriptionsReady
from overlay.upper_tree.messages import BetterPivots, Register, RenewRefused
from tests.upper_tree.clients.clients_rig import Rig

# --- subscriptions ---


def test_subscriptions_of_one_turn_are_registered_together_and_answered_one_by_one() -> None:
    rig = Rig()
    texts = ["x > 1", "x >", "x > 2", "x BETWEEN 3 AND 1", "y = 1"]
    for number, text in enumerate(texts, 1):
        rig.clients.subscribe(1, Subscribe(number, text))
    rig.port.turn()
    ((_, message),) = rig.port.sent_to(Register)
    assert [one.selector for one in message.registrations] == ["x > 1", "x > 2", "y = 1"]
    refused = rig.port.answers(Failed)
    assert [(one.request, one.code) for one in refused] == [(2, "selector")]
    assert [one.request for one in rig.port.answers(Subscribed)] == [4], "it can match nothing"
    rig.settle()
    assert sorted(one.request for one in rig.port.answers(Subscribed)) == [1, 3, 5]


def test_of_subscriptions_of_one_turn_those_beyond_the_limit_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("overlay.upper_tree.clients.clients.MAX_SUBSCRIPTIONS", 3)
    rig = Rig()
    for number in range(1, 6):
        rig.clients.subscribe(1, Subscribe(number, f"x > {number}"))
    rig.port.turn()
    rig.clients.subscribe(1, Subscribe(6, "x > 6"))
    rig.leave()
    rig.port.turn()
    rig.settle()
    answers = [(one.request, one.code) for one in rig.port.answers(Failed) if one.request]
    assert sorted(answers) == [
        *((number, LEAVING) for number in (1, 2, 3)),
        *((number, "refused") for number in (4, 5)),
        (6, LEAVING),
    ]
    assert rig.port.answers(Subscribed) == []


def test_a_subscription_is_answered_when_it_is_registered_and_not_before() -> None:
    rig = Rig()
    request = rig.command(1, Subscribe, "x > 1", "big", 2)
    assert rig.port.replies == []
    rig.settle()
    ((client, answer),) = rig.port.replies
    assert (client, answer.request) == (1, request)
    assert isinstance(answer, Subscribed)
    assert [t["subscription"] for t in rig.port.traced("suback")] == [answer.subscription]
    (trace,) = rig.port.traced("subscribe")
    assert (trace["name"], trace["selector"], trace["level"]) == ("big", "x > 1", 2)
    assert trace["tree"]() == '["cmp",">",["attr","x"],["lit",1]]'


def test_a_selector_that_does_not_parse_is_refused_with_a_caret() -> None:
    rig = Rig()
    rig.command(1, Subscribe, "x > > 1")
    (answer,) = rig.port.answers(Failed)
    assert answer.code == "selector"
    assert "\nx > > 1\n    ^\n" in answer.reason
    assert rig.clients.subscriptions == {}
    assert rig.registrar.registrations == {}


def test_what_can_never_match_is_a_subscription_too() -> None:
    rig = Rig()
    assert rig.subscribe("x > 3 AND x < 1")


def test_every_event_after_the_answer_is_shown_to_those_it_matches() -> None:
    rig = Rig()
    big, small = rig.subscribe("x > 5"), rig.subscribe("x < 5", client=2)
    rig.publish({"x": 9}, {"x": 1}, {"x": 5}, {"y": 9})
    rig.settle()
    assert rig.shown() == [(1, [(big, 1)]), (2, [(small, 2)])]


def test_one_reply_per_client_for_all_that_arrives_together() -> None:
    rig = Rig()
    one, two = rig.subscribe("x > 1"), rig.subscribe("x > 2")
    rig.publish({"x": 9}, {"x": 2})
    rig.settle()
    assert rig.shown() == [(1, [(one, 1), (two, 1), (one, 2)])]


def test_only_the_client_itself_ends_its_subscription() -> None:
    rig = Rig()
    mine = rig.subscribe("x > 1")
    rig.command(2, Unsubscribe, mine)
    (refused,) = rig.port.answers(Failed)
    assert refused.code == "unknown"
    rig.command(1, Unsubscribe, mine)
    assert len(rig.port.answers(Done)) == 1
    rig.publish({"x": 9})
    rig.settle()
    assert rig.shown() == []
    rig.command(1, Unsubscribe, mine)
    assert len(rig.port.answers(Failed)) == 1
    assert rig.owner.owner.trees["x"].tree.registrations == {}


def test_another_program_ends_a_subscription_and_its_client_hears_of_it() -> None:
    rig = Rig()
    mine, other = rig.subscribe("x > 1", name="big"), rig.subscribe("x > 2")
    rig.command(2, EndSubscription, mine)
    ((first, ended), (second, done)) = rig.port.replies
    assert isinstance(ended, Ended)
    assert (first, ended.request, ended.code, ended.subscription) == (1, 0, "ended", mine)
    assert (second, type(done)) == (2, Done)
    rig.port.replies.clear()
    rig.publish({"x": 9})
    rig.settle()
    assert rig.shown() == [(1, [(other, 1)])]
    rig.command(2, EndSubscription, mine)
    assert rig.port.answers(Failed)[0].code == "unknown"
    assert len(rig.owner.owner.trees["x"].tree.registrations) == 1


def test_a_subscription_that_is_ended_before_its_acknowledgement_is_answered() -> None:
    rig = Rig()
    request = rig.command(1, Subscribe, "x > 1")
    rig.command(2, GetSubscriptions)
    (info,) = rig.port.answers(Subscriptions)[0].subscriptions
    assert (info.client, info.acknowledged) == (1, False)
    rig.command(2, EndSubscription, info.subscription)
    (failed,) = rig.port.answers(Failed)
    assert (failed.request, failed.code) == (request, "ended")
    rig.settle()
    assert rig.port.answers(Subscribed) == []


def test_a_client_that_goes_ends_its_own_subscriptions_only() -> None:
    rig = Rig()
    rig.subscribe("x > 1")
    rig.command(1, Subscribe, "y > 1")  # not answered yet
    stays = rig.subscribe("x > 1", client=2)
    rig.clients.client_closed(1)
    rig.port.turn()
    rig.settle()
    assert list(rig.clients.subscriptions) == [stays]
    rig.publish({"x": 9})
    rig.settle()
    assert rig.shown() == [(2, [(stays, 1)])]
    assert len(rig.owner.owner.trees["x"].tree.registrations) == 1
    assert rig.owner.owner.trees["y"].tree.registrations == {}


def test_the_subscriptions_of_a_program_that_goes_end_a_few_in_each_turn() -> None:
    rig = Rig()
    many = 2 * ENDED_AT_ONCE + 1
    for number in range(many):
        rig.subscribe(f"x > {number}")
        rig.net.run(0.01)
    stays = rig.subscribe("x > 0", client=2)
    rig.clients.client_closed(1)
    assert list(rig.clients.subscriptions) == [stays]
    rig.publish({"x": 9_999})
    rig.net.flush()
    ended = [len(rig.port.traced("unsubscribe"))]
    while rig.clients.ending:
        del rig.port.timers[EndDue()]
        rig.port.hear(EndDue())
        ended.append(len(rig.port.traced("unsubscribe")))
    assert ended == [ENDED_AT_ONCE, 2 * ENDED_AT_ONCE, many]
    assert rig.shown() == [(2, [(stays, 1)])], "and meanwhile nothing is shown for them"
    rig.settle()
    assert len(rig.owner.owner.trees["x"].tree.registrations) == 1


def test_a_registration_that_was_renewed_again_is_not_answered_twice() -> None:
    rig = Rig()
    rig.subscribe("x > 1")
    rig.port.hear(RenewRefused(("x",)), rig.port.me)
    rig.settle()
    assert rig.registrar.settled
    assert rig.port.answers(Subscribed) == []


def test_a_subscription_that_lapsed_is_not_acknowledged_until_it_is_registered_again() -> None:
    rig = Rig()
    mine = rig.subscribe("x > 1", name="big")
    rig.port.world.jump(5.0)
    rig.port.hear(SubscriptionLapsed("x", (mine,), 5.0))
    (begun,) = rig.port.answers(Lapsed)
    assert begun.code == "gap"
    assert (begun.subscription, begun.seconds, begun.is_over) == (mine, 5.0, False)
    rig.command(1, GetSubscriptions)
    assert not rig.port.answers(Subscriptions)[0].subscriptions[0].acknowledged
    rig.port.world.jump(2.0)
    rig.port.hear(SubscriptionsReady((mine,)))
    (over,) = rig.port.answers(Lapsed)
    assert (over.seconds, over.is_over) == (7.0, True)
    rig.command(1, GetSubscriptions)
    assert rig.port.answers(Subscriptions)[0].subscriptions[0].acknowledged
    rig.port.world.jump(Settings().tree.lease)
    rig.command(1, GetSubscriptions)
    assert not rig.port.answers(Subscriptions)[0].subscriptions[0].acknowledged, "its lease is over"


def test_a_node_that_leaves_ends_the_subscriptions_of_all_programs() -> None:
    rig = Rig()
    rig.subscribe("x > 1")
    rig.subscribe("y > 1", client=2)
    rig.leave()
    rig.port.turn()
    answers = {client: reply for client, reply in rig.port.replies if isinstance(reply, Failed)}
    assert {client: (reply.request, reply.code) for client, reply in answers.items()} == {
        1: (0, "leaving"),
        2: (0, "leaving"),
    }
    rig.settle()
    assert rig.clients.subscriptions == {}
    assert rig.registrar.settled


def test_a_node_that_leaves_acknowledges_nothing_new() -> None:
    rig = Rig(settings(tree={"pending": 1}))
    rig.subscribe("x > 1")
    rig.publish({"x": 2})  # its host has not answered yet: there is no room for more
    waiting = rig.publish({"x": 3}, client=2)
    pending = rig.command(1, Subscribe, "y > 1")  # not answered yet
    rig.leave()
    rig.port.turn()
    late = rig.publish({"x": 4})
    subscribed = rig.command(1, Subscribe, "x > 1")
    failed = [(reply.request, reply.code) for reply in rig.port.answers(Failed)]
    assert sorted(failed) == [(0, "leaving")] + [
        (request, "leaving") for request in sorted((waiting, pending, late, subscribed))
    ]
    assert [reply.count for reply in rig.port.answers(Published)] == [1]
    assert (rig.publisher.unaccepted, rig.publications.waiting) == (1, 0), "what was acknowledged"
    rig.settle()
    assert rig.publisher.unaccepted == 0


def test_subscriptions_and_attributes_are_reported() -> None:
    rig = Rig()
    mine = rig.subscribe("x > 1 AND y = 2", name="both")
    rig.publish({"x": 9, "y": 2}, {"a": 1})
    rig.settle()
    rig.command(2, GetSubscriptions)
    (answer,) = rig.port.answers(Subscriptions)
    (info,) = answer.subscriptions
    assert (info.subscription, info.name, info.selector) == (mine, "both", "x > 1 AND y = 2")
    assert (info.acknowledged, info.delivered, info.pivots) == (True, 1, ("y",))
    rig.command(2, GetAttributes)
    (names,) = rig.port.answers(Attributes)
    assert names.names == ("a", "y", "x")


# --- gathering ---


def test_a_subscription_is_known_by_the_pivot_that_its_owner_has_chosen() -> None:
    rig = Rig()
    rig.command(1, Subscribe, "x > 5 AND y > 5", "mine")
    ((tree, id_),) = rig.registrar.registrations
    other = "y" if tree == "x" else "x"
    rig.port.hear(BetterPivots(((id_, tree, other),), ()), rig.port.me)
    rig.settle()
    (subscribed,) = rig.port.answers(Subscribed)
    rig.command(1, GetSubscriptions)
    (answer,) = rig.port.answers(Subscriptions)
    assert answer.subscriptions[0].pivots == (other,)
    assert rig.receiver.pivots[subscribed.subscription] == (other,)


def test_subscriptions_that_have_ended_are_remembered_in_bounds() -> None:
    rig = Rig()
    ids = []
    for number in range(ENDED_MOST + 2):
        ids.append(rig.subscribe(f"x > {number}"))
        rig.command(1, Unsubscribe, ids[-1])
        rig.net.run(0.01)
    assert list(rig.clients.ended) == ids[2:]


def test_a_client_that_gathers_gets_an_event_once_and_others_as_before() -> None:
    rig = Rig()
    each = rig.subscribe("x > 0", client=2)
    rig.command(1, Gather)
    for selector in ("x > 1", "x > 2", "x > 3"):
        rig.subscribe(selector, client=1)
    rig.publish({"x": 1}, {"x": 2}, {"x": 9})
    rig.settle()
    gathered = [
        (client, [event.sequence for event in reply.events])
        for client, reply in rig.port.replies
        if isinstance(reply, Gathered)
    ]
    assert gathered == [(1, [2, 3])]
    assert rig.shown() == [(2, [(each, 1), (each, 2), (each, 3)])]
    rig.command(1, GetSubscriptions)
    (answer,) = rig.port.answers(Subscriptions)
    assert sum(info.delivered for info in answer.subscriptions[1:]) == 2, "one for each event"
    traced = [(t["event"][-1], t["subscription"]) for t in rig.port.traced("deliver")]
    assert len(traced) == 3 + 4, "a record for each subscription that matches"


def test_what_a_client_that_gathers_unsubscribed_is_shown_no_more() -> None:
    rig = Rig()
    rig.command(1, Gather)
    ended, stays = rig.subscribe("x > 1"), rig.subscribe("x > 5")
    rig.command(1, Unsubscribe, ended)
    rig.publish({"x": 3}, {"x": 7})
    rig.settle()
    assert [[e.sequence for e in r.events] for r in rig.port.answers(Gathered)] == [[2]]
    assert list(rig.clients.subscriptions) == [stays]
    rig.clients.client_closed(1)
    assert len(rig.receiver.gathering) == 0
    assert rig.clients.gatherers == {}
