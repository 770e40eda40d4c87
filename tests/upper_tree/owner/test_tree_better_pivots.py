"""C9 at the subscriber: a pivot that an owner knows to be better is taken, once and wholly."""

from __future__ import annotations

import pytest

from overlay.machine import ProtocolError
from overlay.upper_tree.messages import BetterPivots, Register, Unregister
from tests.upper_tree.subscriber.test_tree_registrar import OWNER, Rig

BOTH = "x > 1 AND y > 1"


def first(rig: Rig) -> tuple[str, str]:
    """The pivot that is chosen without knowledge, and the other one."""
    ((pivot, _),) = rig.subscribe(BOTH)
    return pivot, "y" if pivot == "x" else "x"


def direct(rig: Rig, old: str, new: str, popularity: tuple[tuple[str, int], ...] = ()) -> None:
    rig.port.hear(BetterPivots((("a/0", old, new),), popularity), OWNER)


def test_a_registration_goes_where_the_owner_says_and_stays_there() -> None:
    rig = Rig()
    old, new = first(rig)
    rig.registered()
    direct(rig, old, new)
    ((_, message),) = rig.port.sent_to(Register)
    assert message.final
    assert [(r.attribute, r.id) for r in message.registrations] == [(new, "a/0")]
    assert list(rig.registrar.registrations) == [(new, "a/0")]
    direct(rig, new, old)
    assert list(rig.registrar.registrations) == [(new, "a/0")], "once"
    rig.acknowledge(new, "a/0")
    assert rig.ready() == ["a"]
    assert rig.port.take(Unregister) == []


def test_what_is_acknowledged_stays() -> None:
    rig = Rig()
    old, new = first(rig)
    rig.acknowledge(old, "a/0")
    direct(rig, old, new)
    assert list(rig.registrar.registrations) == [(old, "a/0")]


def test_an_attempt_that_may_have_been_taken_is_ended() -> None:
    rig = Rig()
    old, new = first(rig)
    rig.port.advance(3.5)  # sent again
    direct(rig, old, new)
    rig.port.advance(0)
    assert [(m.attribute, m.ids) for m in rig.port.take(Unregister)] == [(old, ("a/0",))]


def test_the_next_subscription_chooses_well_by_itself() -> None:
    rig = Rig()
    old, new = first(rig)
    direct(rig, old, new, ((old, 50), (new, 1)))
    assert rig.subscribe(BOTH, "b") == [(new, "b/0")]


def test_a_pivot_that_the_conjunction_has_not_is_an_error() -> None:
    rig = Rig()
    old, _ = first(rig)
    with pytest.raises(ProtocolError, match="pivot"):
        direct(rig, old, "z")


def test_a_subscription_of_two_conjunctions_waits_for_the_one_that_was_sent_elsewhere() -> None:
    rig = Rig()
    placed = rig.subscribe(f"{BOTH} OR z = 1")
    ((old, _),) = [one for one in placed if one[0] != "z"]
    ((_, other),) = [one for one in placed if one[0] == "z"]
    new = "y" if old == "x" else "x"
    (moved,) = [id_ for attribute, id_ in placed if attribute == old]
    rig.port.hear(BetterPivots(((moved, old, new),), ()), OWNER)
    rig.acknowledge("z", other)
    assert rig.ready() == []
    rig.acknowledge(new, moved)
    assert rig.ready() == ["a"]
    rig.registrar.unsubscribe("a")
    assert not rig.registrar.registrations, "and ends with it"
