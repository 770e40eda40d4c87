"""What programs ask of a node (docs/reference/wire.md), on a node that is all of it."""

from __future__ import annotations

from typing import Any

import pytest

from overlay.client import (
    LEAVING,
    Attributes,
    Delivered,
    Done,
    Draft,
    Ended,
    EndSubscription,
    Events,
    Failed,
    Gather,
    Gathered,
    GetAttributes,
    GetEvents,
    GetSubscriptions,
    Lapsed,
    Publish,
    Published,
    Subscribe,
    Subscribed,
    Subscriptions,
    Unsubscribe,
)
from overlay.lower_random.events import WalkFailed
from overlay.settings import Settings
from overlay.upper_tree.clients.clients import EndDue, LocalClients
from overlay.upper_tree.clients.constants import ENDED_AT_ONCE, ENDED_MOST, EVENTS_BYTES
from overlay.upper_tree.event_history import History
from overlay.upper_tree.events import SubscriptionLapsed, SubscriptionReady
from overlay.upper_tree.messages import BetterPivots, Register, RenewRefused, Visit
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.publisher import Publisher
from overlay.upper_tree.publisher.replicas import ReplicaSelector
from overlay.upper_tree.publisher.tree_finder import TreeFinder
from overlay.upper_tree.subscriber.receiver import Receiver
from overlay.upper_tree.subscriber.registrar import Registrar
from tests.support.overlays import settings
from tests.support.trees import HostNode, OwnerNode, cluster_of, one_replica
from tests.support.world import World, WorldNode


class Walks:
    """No node to walk to."""

    def __init__(self, port: WorldNode) -> None:
        self.port = port

    def walk(self, attributes: Any, hops: int | None = None) -> None:
        self.port.emit(WalkFailed(tuple(attributes), 0))


class Rig:
    """A whole node; the trees are hosted by the broker h, which answers when `settle` is called."""

    def __init__(self, chosen: Settings | None = None) -> None:
        chosen = one_replica(chosen or Settings())
        self.net = World()
        self.port = self.net.node("me")
        self.host = HostNode(self.net.node("h"), chosen)
        cluster = cluster_of("me", "h")
        self.owner = OwnerNode(self.port, chosen, cluster)
        ring = self.owner.ring
        ring.learn(cluster)
        locations, self.history = LocationCache(100, ReplicaSelector("me", 3.0)), History(100)
        finder = TreeFinder(self.port, chosen, Walks(self.port), ring, locations)
        access_points = self.host.access_points
        self.publisher = Publisher(
            self.port,
            chosen,
            1,
            finder,
            locations,
            access_points,
            self.history,
            self.host.hosting.copies,
        )
        self.registrar = Registrar(self.port, chosen, 1, ring)
        self.receiver = Receiver(self.port, chosen, self.history)
        self.clients = LocalClients(
            self.port, 1, self.registrar, self.receiver, self.publisher, self.history
        )
        self.port.add(finder, self.publisher, self.registrar, self.receiver, self.clients)
        self._request = 0

    def settle(self) -> None:
        self.net.run(0.0)
        self.owner.clusters.commit()
        self.net.flush()

    def command(self, client: int, kind: Any, *arguments: Any, **named: Any) -> int:
        self._request += 1
        command = kind(self._request, *arguments, **named)
        self.clients.commands()[kind](client, command)
        self.port.turn()
        return self._request

    def subscribe(self, selector: str, client: int = 1, name: str = "") -> str:
        self.command(client, Subscribe, selector, name)
        self.settle()
        return self.port.answers(Subscribed)[-1].subscription

    def publish(self, *events: dict[str, Any], client: int = 1, receipt: bool = False) -> int:
        drafts = tuple(Draft(attributes) for attributes in events)
        return self.command(client, Publish, drafts, receipt=receipt)

    def shown(self) -> list[tuple[int, list[tuple[str, int]]]]:
        """(client, [(subscription, sequence)]) per reply."""
        found = [
            (client, [(d.subscription, d.event.sequence) for d in reply.deliveries])
            for client, reply in self.port.replies
            if isinstance(reply, Delivered)
        ]
        self.port.answers(Delivered)
        return found


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
    rig.clients.leave()
    rig.clients.subscribe(1, Subscribe(6, "x > 6"))
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
    assert trace["tree"] == ["cmp", ">", ["attr", "x"], ["lit", 1]]


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


def test_a_registration_that_was_renewed_anew_is_not_answered_twice() -> None:
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
    rig.port.hear(SubscriptionReady(mine))
    (over,) = rig.port.answers(Lapsed)
    assert (over.seconds, over.is_over) == (7.0, True)
    rig.command(1, GetSubscriptions)
    assert rig.port.answers(Subscriptions)[0].subscriptions[0].acknowledged
    rig.port.world.jump(Settings().tree.lease)
    rig.command(1, GetSubscriptions)
    assert not rig.port.answers(Subscriptions)[0].subscriptions[0].acknowledged, "its lease is over"


def test_a_node_that_leaves_ends_everybodys_subscriptions() -> None:
    rig = Rig()
    rig.subscribe("x > 1")
    rig.subscribe("y > 1", client=2)
    rig.clients.leave()
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
    rig.clients.leave()
    rig.port.turn()
    late = rig.publish({"x": 4})
    subscribed = rig.command(1, Subscribe, "x > 1")
    failed = [(reply.request, reply.code) for reply in rig.port.answers(Failed)]
    assert sorted(failed) == [(0, "leaving")] + [
        (request, "leaving") for request in sorted((waiting, pending, late, subscribed))
    ]
    assert [reply.count for reply in rig.port.answers(Published)] == [1]
    assert (rig.publisher.unaccepted, rig.clients.waiting) == (1, 0), "what was acknowledged"
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


# --- publications ---


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
        rig.clients.publish(number, Publish(number, drafts, receipt=number == 13))
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
        rig.clients.publish(client, Publish(1, (draft, draft)))
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
    assert rig.clients.receipts == {}


def test_a_receipt_for_what_nobody_wants_is_given_at_once() -> None:
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
    assert rig.clients.waiting == 3
    rig.shown()
    rig.settle()
    assert [a.request for a in rig.port.answers(Published)] == [second, third]
    assert rig.clients.waiting == 0
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
