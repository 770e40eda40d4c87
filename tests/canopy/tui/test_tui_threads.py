"""Threads that talk to the node: questions in order, losses reported, subscriptions made again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from canopy.client.errors import CommandTimeoutError
from canopy.tui.constants import REQUESTS, SUBSCRIPTIONS
from canopy.tui.model.attachment import Attachment
from canopy.tui.model.inbox import Inbox
from canopy.tui.model.requester import Requester
from canopy.tui.model.subscriber import Subscriber, SubscriptionState
from overlay.client import Done, Failed, GetPeers, GetRing, GetStatus, Status, Unsubscribe, Why
from tests.canopy.tui.tui_fake_node import FakeClient, FakeNode
from tests.canopy.tui.tui_pilot import quake

WAITS = 2_000  # of 10 ms, until a test gives up


def until(holds: Callable[[], object], inbox: Inbox | None = None) -> None:
    pause = threading.Event()
    for _ in range(WAITS):
        for callback in inbox.drain().callbacks if inbox else ():
            callback()
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("never came to hold")


class Asked:
    """An asker with a record of all that it reported."""

    def __init__(self, node: FakeNode) -> None:
        self.node = node
        self.inbox = Inbox()
        self.states: list[tuple[bool, str]] = []
        self.asker = Requester(
            node.connect, self.inbox, lambda up, why, _: self.states.append((up, why))
        )
        self.replies: list[object] = []

    def start(self) -> None:
        self.asker.start()
        until(lambda: (True, "") in self.states, self.inbox)

    def ask(self, *commands: object, poll: bool = False) -> None:
        for command in commands:
            self.asker.ask(command, self.replies.append, poll)

    def wait(self, count: int) -> None:
        until(lambda: len(self.replies) >= count, self.inbox)


@pytest.fixture
def asked() -> Iterator[Asked]:
    one = Asked(FakeNode())
    yield one
    one.asker.stop()


def test_a_question_is_answered(asked: Asked) -> None:
    asked.start()
    asked.ask(GetStatus(1))
    asked.wait(1)
    assert isinstance(asked.replies[0], Status)


def test_a_question_while_away_is_refused_and_a_poll_is_silent(asked: Asked) -> None:
    asked.ask(GetStatus(1))
    asked.ask(GetStatus(2), poll=True)
    asked.wait(1)
    assert asked.replies == [Failed(0, "unknown", "not connected to a node")]


def test_a_users_question_goes_before_polls_and_a_poll_waits_once(asked: Asked) -> None:
    asked.start()
    with asked.node.lock:  # the thread waits inside the first question
        asked.ask(GetStatus(1))
        asked.ask(GetPeers(2), GetRing(3), GetRing(4), GetPeers(5), poll=True)
        asked.ask(Why(6, "n.1.2"))
    asked.wait(4)
    asked.ask(GetStatus(7))
    asked.wait(5)
    kinds = [type(command) for command in asked.node.commands]
    assert kinds.count(GetRing) == kinds.count(GetPeers) == 1
    assert kinds.index(Why) < kinds.index(GetPeers) < kinds.index(GetRing)


def test_the_queue_is_bounded(asked: Asked) -> None:
    asked.start()
    with asked.node.lock:
        asked.ask(*(GetStatus(n) for n in range(REQUESTS + 10)))
    asked.wait(REQUESTS + 10)
    refused = [reply for reply in asked.replies if isinstance(reply, Failed)]
    assert 8 <= len(refused) <= 10
    assert refused[0].reason == "too many requests are queued"


def test_a_loss_answers_what_waits_and_a_return_is_found(asked: Asked) -> None:
    asked.start()
    with asked.node.lock:
        asked.ask(GetStatus(1), GetPeers(2))
        asked.node.go_away()
    asked.wait(2)
    assert all((isinstance(reply, Failed) and "gone" in reply.reason) or "went away" in reply.reason
               for reply in asked.replies)  # fmt: skip
    until(lambda: asked.states[-1][0] is False, asked.inbox)
    asked.node.come_back()
    until(lambda: asked.states[-1][0], asked.inbox)


def test_a_time_out_is_an_answer_and_no_loss(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(self: FakeClient, command: object, timeout: float) -> Done:
        raise CommandTimeoutError("no answer")

    asked.start()
    monkeypatch.setattr(FakeClient, "request", late)
    asked.ask(GetStatus(1))
    asked.wait(1)
    assert asked.replies == [Failed(0, "time-out", "no answer within 10 s")]
    assert asked.states == [(True, "")]


def test_a_stopped_feed_reports_nothing_and_unsubscribes() -> None:
    node, inbox, heard = FakeNode(), Inbox(), []
    feed = Subscriber(
        5, "magnitude > 1", "x", node.connect, inbox, lambda *news: heard.append(news)
    )
    feed.start()
    until(lambda: heard and heard[-1][1] is SubscriptionState.LIVE, inbox)
    node.publish(quake(1))
    until(lambda: inbox.drain().counts == {5: 1})
    feed.stop()
    count = len(heard)
    until(lambda: node.asked(Unsubscribe), inbox)
    until(lambda: not node.clients, inbox)
    node.publish(quake(2))
    assert len(heard) == count
    assert not inbox.drain().counts


def test_news_of_drops_are_shown_with_the_subscription() -> None:
    node, inbox, heard = FakeNode(), Inbox(), []
    feed = Subscriber(
        5, "magnitude > 1", "x", node.connect, inbox, lambda *news: heard.append(news)
    )
    feed.start()
    until(lambda: heard and heard[-1][1] is SubscriptionState.LIVE, inbox)
    node.clients[0].notices.append(Failed(0, "overflow", "7 deliveries dropped"))
    node.publish(quake(1))
    until(lambda: heard[-1][3] == "7 deliveries dropped", inbox)
    feed.stop()


def test_subscriptions_are_bounded() -> None:
    node = FakeNode()
    node.running = False
    held = Attachment(node.connect, lambda: 0.0)
    for _ in range(SUBSCRIPTIONS):
        held.subscribe("a = 1", "", ("a",))
    with pytest.raises(ValueError, match="at most"):
        held.subscribe("a = 1", "", ("a",))
    held.stop()
