"""Rolling upgrades: nodes that speak different ranges of the protocol link, or say why not."""

from __future__ import annotations

from typing import ClassVar

import pytest

from harness.link_world import Host, LinkWorld, Note
from harness.list_codec import ListCodec
from overlay.links.messages import (
    CAPABILITIES,
    OLDEST_PROTOCOL,
    PROTOCOL,
    Bye,
    Hello,
    Welcome,
    agreed_version,
)
from overlay.machine import Message, Peer

BEFORE = {"protocol": OLDEST_PROTOCOL}
"""Of a node that has not been upgraded, or whose operator holds the new version back."""


class Question(Message, frozen=True):
    capability: ClassVar[str] = CAPABILITIES[0]

    number: int


def greeting(oldest: int, newest: int) -> Hello:
    return Hello(oldest, "test", Peer("x", "x:1"), 1, 0, 0, 1 << 20, "b", 1, 0, 1, newest=newest)


def version(host: Host) -> list[int]:
    return [session.version for session in host.links.sessions()]


@pytest.mark.parametrize(
    ("oldest", "newest", "agreed"),
    [
        (OLDEST_PROTOCOL, 0, OLDEST_PROTOCOL),  # from before there were ranges
        (OLDEST_PROTOCOL, PROTOCOL, PROTOCOL),
        (PROTOCOL, PROTOCOL + 5, PROTOCOL),
        (PROTOCOL + 1, PROTOCOL + 2, 0),
        (OLDEST_PROTOCOL - 2, OLDEST_PROTOCOL - 1, 0),
        (PROTOCOL, 0, PROTOCOL),
        (PROTOCOL, 3, PROTOCOL),  # nonsense counts as one version
    ],
)
def test_both_sides_speak_the_newest_version_that_both_know(
    oldest: int, newest: int, agreed: int
) -> None:
    assert agreed_version(greeting(oldest, newest), PROTOCOL) == agreed


def test_nodes_of_two_versions_link_and_lose_nothing() -> None:
    world = LinkWorld()
    old, new = world.host("a", **BEFORE), world.host("b")
    for number in range(20):
        old.send(new, number)
        new.send(old, number)
    world.run(2.0)
    assert new.numbers(old) == old.numbers(new) == list(range(20))
    assert version(old) == version(new) == [OLDEST_PROTOCOL]


def test_nodes_of_the_new_version_speak_it() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")
    a.send(b, 1)
    world.run(1.0)
    assert version(a) == version(b) == [PROTOCOL]
    assert a.links.understands("b", CAPABILITIES[0])


def test_what_a_peer_does_not_know_is_not_sent_to_it() -> None:
    world = LinkWorld()
    world.codec = ListCodec(Note, Question)
    old, new, newer = world.host("a", **BEFORE), world.host("b"), world.host("c")
    new.links.send(newer.peer, Question(0))  # nothing is known of it before it is connected
    for each in (old, newer):
        new.send(each, 1)
    new.links.flush()
    world.run(1.0)
    for each in (old, newer):
        new.links.send(each.peer, Question(7))
    new.links.flush()
    world.run(1.0)
    assert [m for _, m in newer.heard if isinstance(m, Question)] == [Question(7)]
    assert [m for _, m in old.heard if isinstance(m, Question)] == []
    assert new.counts["messages_not_known"] == 2
    assert not new.links.understands("a", CAPABILITIES[0])


def test_versions_that_have_nothing_in_common_are_refused_with_both_ranges() -> None:
    world = LinkWorld()
    b = world.host("b")
    b.links.on_accepted(99)
    b.links.on_frame(99, greeting(PROTOCOL + 1, PROTOCOL + 3))
    [bye] = b.frames(Bye)
    assert f"protocol {PROTOCOL + 1} to {PROTOCOL + 3}" in bye.reason
    assert f"protocol {OLDEST_PROTOCOL} to {PROTOCOL}" in bye.reason


def test_a_node_that_is_held_back_says_nothing_of_the_new_version() -> None:
    world = LinkWorld()
    old, new = world.host("a", **BEFORE), world.host("b")
    old.send(new, 1)
    world.run(1.0)
    for hello in (*old.frames(Hello), *old.frames(Welcome)):
        assert (hello.newest, hello.capabilities) == (OLDEST_PROTOCOL, ())


def test_a_node_that_was_upgraded_is_spoken_to_in_the_new_version() -> None:
    world = LinkWorld()
    new = world.host("b")
    old = world.host("a", **BEFORE)
    old.send(new, 1)
    world.run(1.0)
    assert version(new) == [OLDEST_PROTOCOL]
    upgraded = world.host("a", incarnation=2)
    upgraded.send(new, 2)
    world.run(2.0)
    assert version(new) == [PROTOCOL]
