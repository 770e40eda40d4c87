"""What a node says of the subscriptions of a program that resumes its session (M5)."""

from __future__ import annotations

from harness.overlays import acknowledged, grown
from overlay.client import ResumeSession, SessionResumed


def test_a_node_names_the_subscriptions_of_the_program_that_resumes_and_no_others() -> None:
    world = grown(2)
    first = world.subscribe("n0", "x > 1", "one", level=2)
    second = world.subscribe("n0", "y > 1")
    world.subscribe("n0", "z > 1", client=77)
    acknowledged(world)
    reply = world.ask("n0", ResumeSession(0, "a session", 0))
    assert isinstance(reply, SessionResumed)
    found = [(one.subscription, one.name, one.acknowledged) for one in reply.subscriptions]
    assert found == [(first.identity, "one", True), (second.identity, "", True)]
    assert [one.level for one in reply.subscriptions] == [2, 0]


def test_the_end_of_a_session_says_for_how_long_nothing_was_read() -> None:
    world = grown(1)
    mine = world.subscribe("n0", "x > 1")
    acknowledged(world)
    traced: list[dict[str, object]] = []
    node = world.node("n0")
    trace = node.driver.trace
    node.driver.trace = lambda kind, fields: (
        traced.append(fields) if kind == "unsubscribe" else trace(kind, fields)
    )
    node.client_gone(mine.client, 12.5)
    assert traced == [{"subscription": mine.identity, "unread": 12.5}]
