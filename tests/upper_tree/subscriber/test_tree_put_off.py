"""A leaf asks an owner for so much at a time, and comes again when it is told."""

from __future__ import annotations

import pytest

from overlay.incidents import Alarmed
from overlay.links.events import LinkDown
from overlay.upper_tree.events import OwnerRefused
from overlay.upper_tree.messages import ComeAgain, Register
from overlay.upper_tree.subscriber import registrar
from overlay.upper_tree.subscriber.constants import (
    LEAF_SENT_AT_ONCE,
    PUT_OFF_MOST,
    PUT_OFF_SAID_EVERY,
    RETRY_PAUSE,
)
from tests.support.trees import cluster_of
from tests.support.world import peer
from tests.upper_tree.subscriber.registrar_rig import OWNER, Rig, part

MANY = 164
WINDOW = 64
WIDE = " OR ".join(f"x > {n} AND x < {n}.5" for n in range(MANY))
TWO = "x > 1 AND x < 2 OR x > 5 AND x < 7"


@pytest.fixture(autouse=True)
def _small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registrar, "LEAF_WINDOW", WINDOW)


def sent(rig: Rig) -> list[str]:
    return [id_ for _, ids in rig.registered() for id_ in ids]


def put_off(rig: Rig, seconds: float, *ids: str, by: str = "o") -> None:
    keys = tuple(("x", id_) for id_ in ids)
    rig.port.hear(ComeAgain("Register", seconds, "too much", keys), peer(by))


def test_a_leaf_has_so_many_unanswered_at_an_owner_and_others_have_all() -> None:
    rig = Rig(is_leaf=True)
    made = [id_ for _, id_ in rig.subscribe(WIDE)]
    rig.port.advance(1)
    sizes = [len(m.registrations) for _, m in rig.port.sent if isinstance(m, Register)]
    assert max(sizes) <= LEAF_SENT_AT_ONCE
    assert sent(rig) == made[:WINDOW]
    assert rig.registrar.progress("a") == (MANY, 100)
    rig.acknowledge("x", *made[:60])
    rig.port.advance(0.1)
    assert sent(rig) == made[WINDOW : WINDOW + 60]
    rig.acknowledge("x", *made[60:124])
    rig.port.advance(0.1)
    assert sent(rig) == made[124:]
    rig.acknowledge("x", *made[124:])
    assert rig.ready() == ["a"]
    assert rig.registrar.progress("a") == (0, 0)
    member = Rig()
    made = [id_ for _, id_ in member.subscribe(WIDE)]
    member.port.advance(1)
    assert sent(member) == made


def test_what_was_put_off_is_sent_again_when_it_may_be() -> None:
    rig = Rig(is_leaf=True)
    rig.subscribe(TWO)
    assert sent(rig) == ["a/0", "a/1"]
    put_off(rig, 8.0, "a/1")
    assert rig.registrar.progress("a") == (2, 1)
    rig.acknowledge("x", "a/0")
    rig.port.advance(7.9)
    assert sent(rig) == [], "not after the usual time"
    rig.port.advance(2.2)
    assert sent(rig) == ["a/1"]
    assert rig.port.counts["registrations_put_off"] == 1
    put_off(rig, 1e9, "a/1")
    rig.port.advance(0.99 * PUT_OFF_MOST)
    assert sent(rig) == []
    rig.port.advance(0.27 * PUT_OFF_MOST)
    assert sent(rig)[:1] == ["a/1"], "no owner puts anything off for ever"


def test_a_leaf_that_was_put_off_goes_on_with_others_meanwhile() -> None:
    rig = Rig(is_leaf=True)
    made = [id_ for _, id_ in rig.subscribe(WIDE)]
    rig.port.advance(1)
    sent(rig)
    put_off(rig, 2.0, *made[:50])
    rig.port.advance(0.1)
    assert sent(rig) == made[WINDOW : WINDOW + 50]


def test_nobody_puts_off_what_was_asked_of_others_or_is_acknowledged() -> None:
    rig = Rig(is_leaf=True)
    rig.subscribe(TWO)
    sent(rig)
    rig.acknowledge("x", "a/0")
    put_off(rig, 30.0, "a/0", "a/1", "no such", by="another")
    put_off(rig, 30.0, "a/0")
    assert rig.registrar.progress("a") == (1, 0)
    rig.port.advance(4)
    assert sent(rig) == ["a/1"]


def test_what_waits_for_an_owner_goes_to_the_next_one() -> None:
    for event in (LinkDown(OWNER, "gone", False, ()), OwnerRefused(("x",))):
        rig = Rig(is_leaf=True)
        made = [id_ for _, id_ in rig.subscribe(WIDE)]
        rig.port.advance(1)
        sent(rig)
        rig.ring.learn(part("next", "x"))
        rig.port.hear(event)
        rig.port.advance(2 * RETRY_PAUSE)
        again = [(to, id_) for to, ids in rig.registered() for id_ in ids]
        assert {to for to, _ in again} == {"next"}
        assert len({id_ for _, id_ in again}) == WINDOW
        assert {id_ for _, id_ in again} <= set(made)


def test_what_ends_while_it_waits_makes_room() -> None:
    rig = Rig(is_leaf=True)
    rig.subscribe(WIDE)
    rig.subscribe(TWO, "b")
    rig.port.advance(1)
    sent(rig)
    rig.registrar.unsubscribe("a")
    rig.port.advance(0.1)
    assert sent(rig) == ["b/0", "b/1"]


def test_people_hear_of_it_now_and_then() -> None:
    rig = Rig(is_leaf=True)
    rig.subscribe(TWO)
    for _ in range(3):
        put_off(rig, 1.0, "a/0")
    rig.port.hear(ComeAgain("Walk", 1.0, "questions"), OWNER)
    texts = [(each.what, each.text) for each in rig.port.of(Alarmed)]
    assert texts == [
        ("put off", "registrations, by o: too much"),
        ("put off", "Walk questions, by o: questions"),
    ]
    assert rig.port.counts["questions_put_off"] == 1
    rig.port.advance(PUT_OFF_SAID_EVERY)
    put_off(rig, 1.0, "a/0")
    assert len(rig.port.of(Alarmed)) == 3


def test_registrations_of_another_owner_do_not_wait() -> None:
    rig = Rig(is_leaf=True)
    rig.ring.learn(cluster_of("o"))
    rig.ring.learn(part("other", "z"))
    rig.subscribe(WIDE)
    rig.subscribe("z = 1", "b")
    rig.port.advance(1)
    assert "b/0" in sent(rig)
