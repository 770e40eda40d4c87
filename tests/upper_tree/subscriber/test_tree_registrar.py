"""C8, C9 at the subscriber: where conjunctions are registered, SUBACK, and how they end."""

from __future__ import annotations

from typing import Any

import pytest

from harness.overlays import settings
from matching import EVERYTHING, compile_selector
from overlay.chord.keys import attribute_key
from overlay.links.events import LinkDown
from overlay.upper_tree.batches import BATCH_ITEMS
from overlay.upper_tree.events import OwnerRefused
from overlay.upper_tree.messages import EVENT_TREE, Register, RenewRefused, Unregister, Unregistered
from overlay.upper_tree.subscriber.constants import SENT_AT_ONCE, UNREGISTERED_AT_ONCE
from overlay.upper_tree.subscriber.local_registrations import UnregisterDue
from overlay.upper_tree.subscriber.registrar import RegisterDue
from tests.support.trees import cluster_of
from tests.support.world import peer
from tests.upper_tree.subscriber.registrar_rig import OWNER, Rig, part

# --- where ---


def test_a_conjunction_is_registered_in_one_tree_the_most_selective() -> None:
    rig = Rig()
    assert rig.subscribe("a > 1 AND b = 5 AND c BETWEEN 1 AND 3") == [("b", "a/0")]
    ((_, message),) = rig.port.sent_to(Register)
    (made,) = message.registrations
    assert message.incarnation == 3
    assert made.subscriber == rig.port.me
    assert compile_selector(made.selector) == compile_selector(
        "a > 1 AND b = 5 AND c BETWEEN 1 AND 3"
    )
    assert made.interval.contains(5)
    assert not made.interval.contains(6)


def test_every_conjunction_registers_for_itself() -> None:
    rig = Rig()
    assert rig.subscribe("x = 1 OR y = 2 OR x = 3") == [("x", "a/0"), ("y", "a/1"), ("x", "a/2")]


def test_is_null_is_no_pivot() -> None:
    rig = Rig()
    assert rig.subscribe("x IS NULL AND y > 1") == [("y", "a/0")]
    assert rig.subscribe("x IS NULL", "b") == [(EVENT_TREE, "b/0")]
    *_, (_, message) = rig.port.sent_to(Register)
    assert message.registrations[0].interval == EVERYTHING


@pytest.mark.parametrize("selector", ["x <> 1", "x IS NOT NULL", "x LIKE '%a'", "x + y > 3"])
def test_whatever_rejects_null_can_be_a_pivot(selector: str) -> None:
    ((attribute, _),) = Rig().subscribe(selector)
    assert attribute == "x"


def test_counting_registers_each_constraint_in_its_own_tree() -> None:
    rig = Rig(settings(tree={"routing": "counting"}))
    assert sorted(rig.subscribe("x > 1 AND y = 2 AND x < 9")) == [("x", "a/0"), ("y", "a/0")]
    ((_, message),) = rig.port.sent_to(Register)
    texts = {r.attribute: r.selector for r in message.registrations}
    assert compile_selector(texts["y"]) == compile_selector("y = 2")
    assert compile_selector(texts["x"]) == compile_selector("x > 1 AND x < 9")


@pytest.mark.parametrize(
    ("routing", "selector", "trees"),
    [
        ("counting", "x > 1 AND y = 2", (("x", "y"),)),
        ("counting", "x > 1", (("x",),)),
        ("pivot", "x = 1 OR y = 2 OR x = 3", (("x",), ("y",), ("x",))),
        ("pivot", "x = 1 AND y > 2", (("x",),)),
        ("pivot", "x IS NULL", ((EVENT_TREE,),)),
    ],
)
def test_the_trees_of_a_subscription_are_told_for_each_conjunction(
    routing: str, selector: str, trees: tuple[tuple[str, ...], ...]
) -> None:
    rig = Rig(settings(tree={"routing": routing}))
    rig.subscribe(selector)
    assert rig.registrar.trees_of("a", len(trees)) == trees
    rig.registrar.unsubscribe("a")
    assert rig.registrar.trees_of("a", len(trees)) == ((),) * len(trees)


def test_each_registration_has_the_text_of_its_own_conjunction() -> None:
    rig = Rig()
    rig.subscribe("x = 1 AND z > 3 OR y = 2")
    rig.subscribe("x = 1 AND z > 3", "b")
    sent = [one for _, message in rig.port.sent_to(Register) for one in message.registrations]
    found = {one.id: compile_selector(one.selector) for one in sent}
    assert found["a/0"] == found["b/0"] == compile_selector("x = 1 AND z > 3")
    assert found["a/1"] == compile_selector("y = 2")


def test_counting_falls_back_to_a_pivot_where_nothing_can_be_counted() -> None:
    rig = Rig(settings(tree={"routing": "counting"}))
    assert rig.subscribe("x + y > 3") == [("x", "a/0")]
    assert rig.subscribe("x IS NULL", "b") == [(EVENT_TREE, "b/0")]


def test_what_can_never_match_is_ready_at_once() -> None:
    rig = Rig()
    assert rig.subscribe("x > 3 AND x < 1") == []
    assert rig.ready() == ["a"]
    assert rig.settled()


# --- SUBACK ---


def test_a_subscription_is_ready_when_all_its_registrations_are() -> None:
    rig = Rig()
    rig.subscribe("x = 1 OR y = 2")
    rig.subscribe("x = 5", "b")
    rig.acknowledge("x", "a/0", "b/0")
    assert rig.ready() == ["b"]
    rig.acknowledge("x", "a/0")
    assert rig.ready() == []
    rig.acknowledge("y", "a/0")  # no such registration there
    assert rig.ready() == []
    rig.acknowledge("y", "a/1")
    assert rig.ready() == ["a"]
    assert rig.settled()


def test_registrations_go_together_to_each_owner_in_bounded_messages() -> None:
    rig = Rig()
    rig.ring.learn(part("other", "y"))
    many = " OR ".join(f"x = {n}" for n in range(BATCH_ITEMS + 1))
    rig.subscribe(f"{many} OR y = 1")
    rig.port.advance(0)
    sizes = [(to, len(ids)) for to, ids in rig.registered()]
    assert sorted(sizes) == [("o", 1), ("o", BATCH_ITEMS), ("other", 1)]


def test_an_unknown_owner_is_looked_up_first() -> None:
    rig = Rig(known=False)
    rig.subscribe("x = 1")
    assert rig.registered() == []
    assert attribute_key("x") in rig.ring.asked
    rig.ring.answer("x", cluster_of("o"))
    assert rig.registered() == [("o", ["a/0"])]


def test_silence_repeats_the_registration_after_a_fresh_lookup() -> None:
    rig = Rig()
    rig.subscribe("x = 1")
    rig.registered()
    rig.port.advance(2.9)
    assert rig.registered() == []
    rig.port.advance(0.4)
    assert rig.ring.asked == [attribute_key("x")]
    assert rig.registered() == [("o", ["a/0"])]


def test_a_steady_stream_of_subscriptions_puts_no_repetition_off() -> None:
    rig = Rig()
    rig.subscribe("x = 1")
    for number in range(40):
        rig.port.advance(0.1)
        rig.subscribe("y = 1", f"b{number}")
        rig.acknowledge("y", f"b{number}/0")
    assert [ids for _, ids in rig.registered()].count(["a/0"]) == 2


def test_a_refusal_goes_on_to_the_owner_that_was_named() -> None:
    rig = Rig()
    rig.subscribe("x = 1")
    rig.registered()
    rig.ring.learn(part("new_owner", "x"))
    rig.port.hear(OwnerRefused(("x",)))
    assert rig.registered() == [("new_owner", ["a/0"])]


def test_two_nodes_that_refuse_in_turn_are_not_asked_in_a_loop() -> None:
    rig = Rig()
    rig.subscribe("x = 1")
    rig.registered()
    for name in ["p", "q", "p", "q", "p", "q"]:
        rig.ring.learn(part(name, "x"))
        rig.port.hear(OwnerRefused(("x",)))
    assert len(rig.registered()) == 1, "the others wait"
    rig.port.advance(0.6)
    assert [to for to, _ in rig.registered()] == ["q"]


def test_many_refusals_of_a_turn_go_through_the_registrations_once() -> None:
    rig = Rig()
    for number in range(40):
        rig.subscribe(f"x = {number}", f"a{number}")
    rig.registered()
    rig.ring.learn(part("new_owner", "x"))
    looks = 0

    class Counting(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            nonlocal looks
            looks += len(self)
            return super().items()

    rig.registrar._local.by_key = Counting(rig.registrar._local.by_key)
    for _ in range(40):
        rig.port.hear(OwnerRefused(("x",)))
    assert looks == 40
    assert sorted({to for to, _ in rig.registered()}) == ["new_owner"]


def test_a_refusal_without_a_name_is_tried_again_soon() -> None:
    rig = Rig()
    rig.subscribe("x = 1")
    rig.registered()
    rig.port.hear(OwnerRefused(("x",)))
    assert rig.registered() == []
    rig.port.advance(0.6)
    assert rig.registered() == [("o", ["a/0"])]


def test_after_a_lost_link_it_is_sent_to_the_owner_of_then() -> None:
    rig = Rig()
    rig.subscribe("x = 1")
    rig.registered()
    rig.ring.learn(cluster_of("new", version=(2, 1)))
    rig.port.hear(LinkDown(peer("unrelated"), "dead", False))
    rig.port.advance(0.6)
    assert rig.registered() == []
    rig.port.hear(LinkDown(OWNER, "dead", False))
    rig.port.advance(0.6)
    assert rig.registered() == [("new", ["a/0"])]


def test_very_many_that_are_registered_again_are_sent_a_part_in_each_turn() -> None:
    rig = Rig()
    many = 2 * SENT_AT_ONCE + 1
    for number in range(many):
        rig.subscribe(f"x = {number}", f"s{number}")
    rig.acknowledge("x", *(f"s{number}/0" for number in range(many)))
    rig.registered()
    rig.port.hear(RenewRefused(("x",)), OWNER)
    turns = [sum(len(ids) for _, ids in rig.registered())]
    while sum(turns) < many:
        assert rig.port.timers[RegisterDue()] == rig.port.now
        rig.port.fire(RegisterDue())
        turns.append(sum(len(ids) for _, ids in rig.registered()))
    assert turns == [SENT_AT_ONCE, SENT_AT_ONCE, 1]
    assert rig.port.timers[RegisterDue()] > rig.port.now
    rig.acknowledge("x", *(f"s{number}/0" for number in range(many)))
    assert rig.settled()


# --- ending ---


def test_unregistering_is_repeated_until_it_is_answered() -> None:
    rig = Rig()
    rig.subscribe("x = 1 OR x = 3")
    rig.acknowledge("x", "a/0", "a/1")
    rig.registrar.unsubscribe("a")
    rig.port.advance(0)
    assert rig.port.sent_to(Unregister) == [("o", Unregister("x", ("a/0", "a/1")))]
    assert not rig.settled()
    rig.port.hear(Unregistered("x", ("a/0",)), OWNER)
    rig.port.advance(3.5)
    assert rig.port.sent_to(Unregister) == [("o", Unregister("x", ("a/1",)))]
    rig.port.hear(Unregistered("x", ("a/1",)), OWNER)
    assert rig.settled()
    rig.port.advance(10)
    assert rig.port.sent_to(Unregister) == []


def test_a_subscription_that_ended_is_neither_ready_nor_repeated() -> None:
    rig = Rig()
    rig.subscribe("x = 1")
    rig.registrar.unsubscribe("a")
    rig.registered()
    rig.acknowledge("x", "a/0")
    rig.port.advance(2.9)
    assert rig.ready() == []
    assert rig.registered() == []


@pytest.mark.parametrize("trouble", ["no owner", "refused", "link down"])
def test_a_node_that_leaves_leaves_the_rest_to_the_leases(trouble: str) -> None:
    rig = Rig(known=trouble != "no owner")
    rig.subscribe("x = 1")
    rig.registrar.leave()
    rig.registrar.unsubscribe("a")
    if trouble == "refused":
        rig.port.hear(OwnerRefused(("x",)))
    elif trouble == "link down":
        rig.port.hear(LinkDown(OWNER, "dead", False))
    rig.port.advance(0)
    assert rig.settled()


def test_what_ends_together_is_asked_for_once_and_a_part_in_each_turn() -> None:
    """However many wait for an answer: each registration is looked at once for each question."""
    rig = Rig()
    many = 3 * UNREGISTERED_AT_ONCE
    for number in range(many):
        rig.subscribe(f"x = {number}", f"s{number}")
    rig.port.sent.clear()
    for number in range(many):
        rig.registrar.unsubscribe(f"s{number}")
    rig.ring.owner_asked = 0
    turns = []
    for _ in range(3):
        assert rig.port.timers.pop(UnregisterDue()) == rig.port.now
        rig.port.hear(UnregisterDue())
        turns.append([len(message.ids) for message in rig.port.take(Unregister)])
    assert rig.port.timers[UnregisterDue()] > rig.port.now
    assert turns == [[BATCH_ITEMS] * (UNREGISTERED_AT_ONCE // BATCH_ITEMS)] * 3
    assert rig.ring.owner_asked == many
    rig.port.hear(Unregistered("x", tuple(f"s{number}/0" for number in range(many))), OWNER)
    assert rig.settled()
