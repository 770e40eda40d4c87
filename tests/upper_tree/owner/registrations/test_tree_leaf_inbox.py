"""What leaves ask an owner for is done in short turns, with pauses, one leaf after the other."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from overlay.machine import Message, Peer, ProtocolError
from overlay.upper_tree.messages import Register, Registration, Renew, Unregister
from overlay.upper_tree.owner.registrations.leaf_inbox import (
    AGAIN_LEAST,
    LEAVES_AT_ONCE,
    LEAVES_WAITING,
    LONG,
    PACE,
    LeafDue,
    LeafInbox,
    cost,
    pieces,
)
from overlay.upper_tree.sliced_inbox import ENDS, TREE
from tests.support.trees import registration
from tests.support.world import one_node, peer

A, B, C = peer("a"), peer("b"), peer("c")


class Owner:
    """Notes what is done, turn by turn; `charges`: what each thing takes beside its message."""

    def __init__(self) -> None:
        self.port = one_node("o")
        self.turns: list[tuple[float, list[tuple[str, str]]]] = []
        self.refused: list[tuple[str, int, float]] = []
        self.charges = 0
        handlers = dict.fromkeys((Register, Unregister, Renew), self.do)
        self.inbox = LeafInbox(self.port, handlers, self.finish, self.refuse)
        self.port.add(self.inbox)
        self._turn: list[tuple[str, str]] = []

    def do(self, sender: Peer, message: Message) -> None:
        if isinstance(message, Renew) and message.number:
            raise ProtocolError("bad")
        for one in getattr(message, "registrations", ()):
            self._turn.append((sender.id, one.id))
        for id_ in getattr(message, "ids", ()):
            self._turn.append((sender.id, f"-{id_}"))
        self.inbox.charge(self.charges)

    def finish(self) -> None:
        now = self.port.now
        if self.turns and self.turns[-1][0] == now:
            self.turns[-1][1].extend(self._turn)
        else:
            self.turns.append((now, self._turn))
        self._turn = []

    def refuse(self, leaf: Peer, message: Message, seconds: float) -> None:
        self.refused.append((leaf.id, cost(message), seconds))

    def done(self) -> list[tuple[str, str]]:
        return [each for _, turn in self.turns for each in turn]


def padded(one: Registration, characters: int) -> Registration:
    return msgspec.structs.replace(one, selector=one.selector + " " * characters)


def many(count: int, subscriber: Peer = A, padding: int = 0) -> Register:
    made = [registration(f"{subscriber.id}{n}", "x", "x > 1", subscriber) for n in range(count)]
    return Register(1, tuple(padded(one, padding) for one in made))


def test_a_turn_does_little_and_the_next_waits_for_it() -> None:
    owner = Owner()
    owner.inbox.take(A, many(5 * LEAVES_AT_ONCE))
    owner.port.advance(10)
    assert [len(turn) for _, turn in owner.turns] == [LEAVES_AT_ONCE] * 5
    times = [at for at, _ in owner.turns]
    pauses = [later - at for at, later in pairwise(times)]
    assert pauses == pytest.approx([LEAVES_AT_ONCE * PACE] * 4)
    assert times[0] == pytest.approx(1_000.0), "it was idle"
    owner.inbox.take(A, many(1))
    owner.port.advance(0)
    assert len(owner.turns) == 6, "and is again"


def test_leaves_have_their_turns_one_after_the_other() -> None:
    owner = Owner()
    owner.inbox.take(A, many(10 * LEAVES_AT_ONCE))
    owner.inbox.take(B, many(2, B))
    owner.inbox.take(C, many(LEAVES_AT_ONCE, C))
    owner.port.advance(3 * LEAVES_AT_ONCE * PACE)
    assert [{leaf for leaf, _ in turn} for _, turn in owner.turns[:3]] == [{"a"}, {"b"}, {"c"}]
    owner.port.advance(10)
    assert len(owner.done()) == 10 * LEAVES_AT_ONCE + 2 + LEAVES_AT_ONCE


def test_what_a_leaf_asks_for_stays_in_order() -> None:
    owner = Owner()
    owner.inbox.take(A, many(20))
    owner.inbox.take(A, Unregister("x", tuple(f"a{n}" for n in range(20))))
    owner.inbox.take(A, many(3))
    owner.port.advance(10)
    ids = [id_ for _, id_ in owner.done()]
    names = [f"a{n}" for n in range(20)]
    assert ids == [*names, *(f"-{name}" for name in names), *names[:3]]


def test_trees_that_are_planted_and_long_selectors_take_their_time() -> None:
    owner = Owner()
    owner.charges = TREE
    several = [registration(f"a{n}", f"x{n}", f"x{n} > 1", A) for n in range(4)]
    owner.inbox.take(A, Register(1, tuple(several)))
    owner.port.advance(10)
    assert [len(turn) for _, turn in owner.turns] == [1] * 4, "each may plant a tree"
    assert owner.turns[1][0] - owner.turns[0][0] == pytest.approx((TREE + 1) * PACE)
    long = many(2, padding=3 * LONG)
    assert [cost(part) for part in pieces(long)] == [4, 4]
    assert [cost(part) for part in pieces(many(1, padding=100 * LONG))] == [101]


def test_what_waits_is_bounded_and_each_leaf_has_its_part() -> None:
    owner = Owner()
    owner.inbox.take(A, many(LEAVES_WAITING))
    assert (len(owner.inbox), owner.refused) == (LEAVES_WAITING, [])
    owner.inbox.take(A, many(20))
    assert sum(weight for _, weight, _ in owner.refused) == 20
    (leaf, _, seconds), *_ = owner.refused
    assert leaf == "a"
    assert seconds == pytest.approx(LEAVES_WAITING * PACE), "when what waits is done"
    owner.refused.clear()
    owner.inbox.take(B, many(LEAVES_WAITING, B))
    assert sum(weight for _, weight, _ in owner.refused) == LEAVES_WAITING // 2
    owner.inbox.take(C, many(1, C))
    owner.inbox.take(C, many(1, C))
    assert not any(leaf == "c" for leaf, _, _ in owner.refused)
    owner.port.advance(60)
    assert len(owner.inbox) == 0
    owner.refused.clear()
    for _ in range(LEAVES_WAITING):
        owner.inbox.take(A, many(1))
    owner.inbox.take(A, Unregister("x", ("a0",)))
    assert [seconds >= AGAIN_LEAST for _, _, seconds in owner.refused] == [True]


def test_a_message_that_is_malformed_is_counted_and_the_rest_goes_on() -> None:
    owner = Owner()
    owner.inbox.take(A, Renew(1, (), (), 7))
    owner.inbox.take(A, many(1))
    owner.port.advance(1)
    assert owner.port.counts["registrations_refused"] == 1
    assert owner.done() == [("a", "a0")]


def test_parts_have_all_that_was_asked_for_once() -> None:
    made: list[Registration] = []
    for number in range(50):
        attribute = "x" if number % 7 else f"y{number}"
        one = registration(f"a{number}", attribute, f"{attribute} > 1", A)
        made.append(padded(one, number % 3 * LONG))
    parts = list(pieces(Register(4, tuple(made), True)))
    assert [one for part in parts for one in part.registrations] == made  # type: ignore[attr-defined]
    assert {(part.incarnation, part.final) for part in parts} == {(4, True)}  # type: ignore[attr-defined]
    assert all(len({one.attribute for one in part.registrations}) == 1 for part in parts)  # type: ignore[attr-defined]
    ids = tuple(map(str, range(3 * LEAVES_AT_ONCE * ENDS + 1)))
    ended = list(pieces(Unregister("x", ids)))
    assert [id_ for part in ended for id_ in part.ids] == list(ids)  # type: ignore[attr-defined]
    assert max(map(cost, ended)) == LEAVES_AT_ONCE


def test_the_timer_is_set_while_something_waits() -> None:
    owner = Owner()
    owner.inbox.take(A, many(1))
    assert LeafDue() in owner.port.timers
    owner.port.advance(1)
    assert LeafDue() not in owner.port.timers
