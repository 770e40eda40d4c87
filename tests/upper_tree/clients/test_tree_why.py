"""Why an event came to a subscription or did not (`canopy why`), and what is remembered."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
import pytest

from matching import EVERYTHING, compile_selector
from overlay.bounded import BoundedDict
from overlay.client import (
    Delivery,
    Event,
    Explained,
    Failed,
    Why,
)
from overlay.lower_random.policies import Policies
from overlay.machine import Peer
from overlay.upper_tree.batches import weigh_whole
from overlay.upper_tree.clients.clients import LocalClients
from overlay.upper_tree.clients.explanations import Explanations
from overlay.upper_tree.clients.low_water import LocalSubscription
from overlay.upper_tree.event_history import (
    BYTES_MOST,
    DELIVERY_BYTES,
    NOTES,
    SAME_ID_MOST,
    AcceptedAt,
    EventArrival,
    EventHistory,
    PublishedHere,
    Refused,
    ShownTo,
)
from overlay.upper_tree.inspection_messages import (
    AskEvent,
    EventFacts,
)
from overlay.upper_tree.messages import DeliveriesGivenUp
from tests.support.trees import event
from tests.support.world import one_node, peer


class KnownClients(LocalClients):
    """What explanations read of a node's clients, as a test says it."""

    missed: Any = None


class WhyRig:
    """A node with two subscriptions that remembers and asks."""

    def __init__(self, *known: str) -> None:
        self.port = one_node("me")
        self.history = EventHistory(100)
        self.clients = KnownClients.__new__(KnownClients)
        self.clients.history = self.history
        self.clients.subscriptions = {}
        self.clients.missed = deque()
        self.clients.ended = BoundedDict(8)
        self.peers = [peer(name) for name in known]
        self.explaining = Explanations(
            self.port, self.clients, self.whom, Policies(self.port, None, "", False)
        )
        self.port.add(self.explaining)
        self.subscribe("me.1.1", "big", "x > 5")
        self.subscribe("me.1.2", "small", "x < 5")

    def whom(self, node: str) -> list[Peer]:
        return [p for p in self.peers if p.id == node] or self.peers

    def subscribe(self, id_: str, name: str, selector: str, *trees: tuple[str, ...]) -> None:
        mine = LocalSubscription(id_, 1, 1, name, compile_selector(selector), False, trees)
        self.clients.subscriptions[id_] = mine

    def gathered(self, made: Event, client: int, latest: int) -> None:
        arrival = EventArrival("x", EVERYTHING, 2, "h")
        self.history.note(
            [made], ShownTo(lambda *_: arrival, [()], lambda event: {client: None}, latest)
        )

    def arrived(self, made: Event, *subscriptions: str) -> None:
        arrival = EventArrival("x", EVERYTHING, 2, "h")
        to = dict.fromkeys(subscriptions)
        self.history.note([made], ShownTo(lambda *_: arrival, [()], lambda event: to, 0))

    def end(self, id_: str) -> None:
        mine = self.clients.subscriptions.pop(id_)
        mine.until = mine.order + 1
        self.clients.ended[id_] = mine

    def why(self, name: str, subscription: str = "") -> None:
        self.explaining.why(4, Why(9, name, subscription))
        self.port.turn()

    def explained(self) -> Explained:
        ((client, answer),) = self.port.replies
        assert (client, answer.request) == (4, 9)
        assert isinstance(answer, Explained), answer
        return answer


def test_why_an_event_came_and_why_it_did_not() -> None:
    rig = WhyRig()
    rig.arrived(event(1, x=9, id="quake"), "me.1.1")
    rig.why("quake")
    answer = rig.explained()
    assert (answer.event, answer.id, answer.attributes["x"]) == ("pub.1.1", "quake", 9)
    shown, not_shown = answer.reasons
    assert (shown.name, shown.delivered, shown.attribute, shown.hops) == ("big", True, "x", 2)
    assert "2 messages" in shown.summary
    assert (not_shown.name, not_shown.delivered) == ("small", False)
    assert not_shown.summary == "the selector is not true for this event"
    assert [(v.text, v.verdict, v.seen) for v in not_shown.verdicts] == [
        ("x < 5", "false", "x = 9")
    ]
    assert any("arrived after 2 messages from h" in step for step in answer.path)


def test_why_shows_a_client_that_gathers_which_of_its_subscriptions_match() -> None:
    rig = WhyRig()
    rig.clients.subscriptions.clear()
    for order, selector in enumerate(["x > 1", "x > 100", "x > 2"], 1):
        mine = LocalSubscription(f"me.1.{order}", 7, 1, "", compile_selector(selector), True)
        mine.order = order
        rig.clients.subscriptions[mine.id] = mine
    rig.gathered(event(1, x=9), client=7, latest=2)
    rig.why("pub.1.1")
    assert [r.delivered for r in rig.explained().reasons] == [True, False, False], (
        "the third came after the event"
    )


def test_why_is_answered_for_one_subscription_by_id_or_name() -> None:
    rig = WhyRig()
    rig.arrived(event(1, x=9), "me.1.1")
    rig.why("pub.1.1", "small")
    assert [reason.subscription for reason in rig.explained().reasons] == ["me.1.2"]


def test_why_names_of_each_subscription_the_tree_that_it_is_registered_in() -> None:
    """Two subscriptions of one node are registered in different trees; the event comes to the node
    once, through one of them."""
    rig = WhyRig()
    rig.clients.subscriptions.clear()
    rig.subscribe("me.1.1", "apple", "price > 400 AND sym = 'AAPL'", ("sym",))
    rig.subscribe("me.1.2", "any", "price > 0 OR price < -9", ("price",), ("price",))
    rig.subscribe("me.1.3", "either", "sym = 'MSFT' OR volume > 3", ("sym",), ("volume",))
    made = event(1, price=500, sym="AAPL", volume=9)
    arrival = EventArrival("price", EVERYTHING, 2, "h")
    to = dict.fromkeys(["me.1.1", "me.1.2", "me.1.3"])
    rig.history.note([made], ShownTo(lambda *_: arrival, [()], lambda event: to, 0))
    rig.why("pub.1.1")
    apple, both, either = rig.explained().reasons
    assert (apple.delivered, apple.attribute, apple.lo) == (True, "sym", "")
    assert "registered in the tree of sym;" in apple.summary
    assert "came through the tree of price" in apple.summary
    assert (both.delivered, both.attribute, both.lo) == (True, "price", "-∞")
    assert "registered" not in both.summary
    assert either.attribute == "volume", "the other part of its selector is not true"


def test_why_has_the_way_to_each_subscription_where_it_is_known() -> None:
    rig = WhyRig()
    rig.clients.subscriptions.clear()
    rig.subscribe("me.1.1", "first", "x > 5", ("x",))
    rig.subscribe("me.1.2", "second", "y > 5", ("y",))
    made = event(1, x=9, y=9)
    to = {
        "me.1.1": Delivery("me.1.1", made, "x", "1", "2", 1),
        "me.1.2": Delivery("me.1.2", made, "y", "3", "4", 2),
    }
    arrival = EventArrival("x", EVERYTHING, 1, "h")
    rig.history.note([made], ShownTo(lambda *_: arrival, [()], lambda event: to, 0))
    rig.why("pub.1.1")
    found = [(r.attribute, r.lo, r.hi, r.hops) for r in rig.explained().reasons]
    assert found == [("x", "1", "2", 1), ("y", "3", "4", 2)]


def test_a_subscription_that_there_is_not_is_refused_and_others_are_named() -> None:
    rig = WhyRig("pub")
    rig.arrived(event(1, x=9), "me.1.1")
    rig.why("pub.1.1", "nosuch")
    (failed,) = rig.port.answers(Failed)
    assert (failed.request, failed.code) == (9, "unknown")
    assert "'nosuch'" in failed.reason
    assert "big, small" in failed.reason
    assert rig.port.sent_to(AskEvent) == [], "before any node is asked"


def test_a_subscription_that_has_ended_is_explained_if_it_was_shown_the_event_or_is_named() -> None:
    rig = WhyRig()
    rig.arrived(event(1, x=9), "me.1.1")
    rig.end("me.1.1")
    rig.end("me.1.2")
    rig.why("pub.1.1")
    (shown,) = rig.explained().reasons
    assert (shown.name, shown.delivered) == ("big", True)
    assert "has ended" in shown.summary
    rig.port.answers(Explained)
    rig.why("pub.1.1", "small")
    (named,) = rig.explained().reasons
    assert (named.name, named.delivered) == ("small", False)
    assert "has ended" in named.summary


def test_an_ended_subscription_of_a_client_that_gathers_got_nothing_after_its_end() -> None:
    rig = WhyRig()
    rig.clients.subscriptions.clear()
    for order in (1, 2):
        id_ = f"me.1.{order}"
        mine = LocalSubscription(id_, 7, 1, "", compile_selector("x > 1"), True, order=order)
        rig.clients.subscriptions[id_] = mine
    rig.end("me.1.1")
    rig.clients.ended["me.1.1"].until = 3
    rig.gathered(event(1, x=9), client=7, latest=2)
    rig.gathered(event(2, x=9), client=7, latest=3)
    rig.why("pub.1.1")
    assert [reason.subscription for reason in rig.explained().reasons] == ["me.1.2", "me.1.1"]
    rig.port.answers(Explained)
    rig.why("pub.1.2")
    assert [reason.subscription for reason in rig.explained().reasons] == ["me.1.2"]


def test_the_publisher_asks_where_its_event_was_shown() -> None:
    rig = WhyRig("a", "b", "c")
    rig.clients.subscriptions.clear()
    made = event(1, "me", x=9)
    rig.history.note([made], PublishedHere())
    rig.why("me.1.1")
    assert [to for to, _ in rig.port.sent_to(AskEvent)] == ["a", "b", "c"]
    rig.port.hear(EventFacts(1, made, ("arrived after 2 messages",), "b"), peer("b"))
    rig.port.hear(EventFacts(1, None, (), "c"), peer("c"))
    assert rig.port.replies == [], "one may still answer"
    rig.port.advance(2.1)
    answer = rig.explained()
    assert answer.shown_at == (("b", peer("b").address),)
    assert answer.path == ("me: published here with 1 attribute", "b: arrived after 2 messages")


def test_of_several_events_with_one_id_the_newest_is_explained_and_the_others_are_named() -> None:
    rig = WhyRig()
    for number in range(12):
        rig.history.note([event(number, "me", x=number, id="1")], PublishedHere())
    rig.arrived(event(3, "me", x=3, id="1"))
    rig.why("1")
    answer = rig.explained()
    assert (answer.event, answer.alike) == ("me.1.11", 12)
    assert answer.others[:2] == ("me.1.10", "me.1.9")
    assert len(answer.others) == SAME_ID_MOST
    rig.port.answers(Explained)
    rig.why("me.1.4")
    assert (rig.explained().event, rig.explained().alike) == ("me.1.4", 1)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"y": 1}, "absent or of another type"),
        ({"x": "a"}, "another type"),
        ({"x": 9}, "not shown"),
    ],
)
def test_why_not_has_a_reason_for_each_case(attributes: dict[str, Any], words: str) -> None:
    rig = WhyRig()
    rig.arrived(event(1, **attributes))
    rig.why("pub.1.1", "big")
    (reason,) = rig.explained().reasons
    assert not reason.delivered
    assert words in reason.summary


@pytest.mark.parametrize(
    ("since", "lapsed", "words"),
    [
        (0.0, False, "were published then were given up: slow"),
        (1.0, False, "or lost with a node"),  # later ones
        (1.0, True, "not matched for this node: slow"),
    ],
)
def test_why_names_the_drops_that_were_reported(since: float, lapsed: bool, words: str) -> None:
    rig = WhyRig()
    rig.arrived(event(1, x=9))  # published at 0.0
    rig.clients.missed.append(DeliveriesGivenUp(3, "p.1.1", "p.1.4", since, 2.0, "slow", lapsed))
    rig.why("pub.1.1", "big")
    (reason,) = rig.explained().reasons
    assert reason.summary.endswith(words)


def test_values_are_shown_as_a_selector_writes_them() -> None:
    rig = WhyRig()
    rig.clients.subscriptions.clear()
    rig.subscribe("me.1.3", "all", "s = 'it''s' AND b = TRUE AND n IS NULL")
    rig.arrived(event(1, s="it's", b=True))
    rig.why("pub.1.1")
    (reason,) = rig.explained().reasons
    seen = [v.seen for v in reason.verdicts]
    assert [s for s in seen if s] == ["s = 'it''s'", "b = TRUE", "n = NULL"]


def test_an_event_that_never_came_here_is_asked_for_at_its_publisher() -> None:
    rig = WhyRig("other", "pub")
    rig.why("pub.1.1")
    assert rig.port.sent_to(AskEvent) == [("pub", AskEvent(1, "pub.1.1"))]
    rig.port.hear(EventFacts(1, event(1, x=9), ("published here",), "pub"), peer("pub"))
    answer = rig.explained()
    assert answer.path == ("pub: published here",)
    assert [reason.delivered for reason in answer.reasons] == [False, False]


def test_an_event_by_the_users_id_is_asked_for_at_the_neighbours() -> None:
    rig = WhyRig("a", "b")
    rig.why("quake")
    assert [to for to, _ in rig.port.sent_to(AskEvent)] == ["a", "b"]
    rig.port.hear(EventFacts(1, None, (), "a"), peer("a"))
    assert rig.port.replies == []
    rig.port.hear(EventFacts(1, event(1, x=1, id="quake"), ("arrived",), "b"), peer("b"))
    assert rig.explained().id == "quake"
    rig.port.hear(EventFacts(1, event(2, x=1, id="quake"), (), "b"), peer("b"))
    assert len(rig.port.replies) == 1, "the first that knows it is trusted"


@pytest.mark.parametrize("silent", [True, False])
def test_an_event_that_no_node_remembers_is_reported_as_such(silent: bool) -> None:
    rig = WhyRig("a")
    rig.why("nowhere")
    if silent:
        rig.port.advance(2.1)
    else:
        rig.port.hear(EventFacts(1, None, (), "a"), peer("a"))
    (failed,) = rig.port.answers(Failed)
    assert failed.code == "unknown"
    assert "'nowhere'" in failed.reason
    assert rig.explaining._queries == {}


def test_what_came_here_is_explained_even_if_its_publisher_is_silent() -> None:
    rig = WhyRig("pub")
    rig.arrived(event(1, x=9), "me.1.1")
    rig.why("pub.1.1")
    rig.port.advance(2.1)
    assert rig.explained().reasons[0].delivered


def test_others_learn_what_is_remembered_here() -> None:
    rig = WhyRig()
    made = event(1, "me", x=9)
    rig.history.note([made], PublishedHere())
    rig.port.hear(AskEvent(3, "me.1.1"), peer("s"))
    rig.port.hear(AskEvent(4, "me.1.2"), peer("s"))
    (_, known), (_, unknown) = rig.port.sent_to(EventFacts)
    assert (known.number, known.event, known.node) == (3, made, "me")
    assert (unknown.number, unknown.event) == (4, None)


# --- memory ---


def test_the_history_is_bounded_and_keeps_the_newest() -> None:
    history = EventHistory(3)
    for number in range(3 * NOTES + 1):
        history.note([event(number, id="same")], PublishedHere())
        history.saw((f"a{number}", "id"))
    assert len(history) == 3 * NOTES
    assert history.find("pub.1.0") is None
    assert history.find("pub.1.1") is not None
    newest = history.find("same")
    assert newest is not None
    assert newest.event.sequence == 3 * NOTES
    assert len(history.attributes) == 3


def test_the_history_of_events_with_many_deliveries_is_bounded_in_bytes() -> None:
    history, many = EventHistory(2_000), 10_000
    for number in range(40):
        shown = ShownTo(lambda *_: EventArrival(), [()], lambda _: {}, 0)
        history.note([event(number)], shown, many * DELIVERY_BYTES)
    assert 0 < len(history) <= BYTES_MOST / (many * DELIVERY_BYTES)


@pytest.mark.parametrize("large", ["payload", "text"])
@pytest.mark.parametrize("how", ["published", "shown", "refused"])
def test_the_history_of_large_events_is_bounded_in_bytes(how: str, large: str) -> None:
    """As many as may be noted of the largest events would be 4 GB."""
    history = EventHistory(2_000)
    text = "x" * 100_000
    for number in range(400):
        made = event(number, text=text) if large == "text" else event(number)
        if large == "payload":
            made = msgspec.structs.replace(made, payload=text.encode())
        if how == "published":
            history.note([made], PublishedHere(), weigh_whole(made))
            history.note([made], AcceptedAt(("text",), ("",), "host"))
        elif how == "shown":
            shown = ShownTo(lambda *_: EventArrival(), [()], lambda _: {}, 0)
            history.note([made], shown, weigh_whole(made))
        else:
            history.note([made], Refused("sender", "no token"), weigh_whole(made))
    kept = list(history.latest()) if how != "refused" else [history.find("pub.1.399")]
    assert kept
    # The last step of an event goes after its first one.
    assert sum(weigh_whole(each) for each in kept[:-1]) <= BYTES_MOST
    assert history.find("pub.1.399") is not None
    assert history.find("pub.1.200") is None
