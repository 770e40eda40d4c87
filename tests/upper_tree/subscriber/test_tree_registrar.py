"""C8, C9 at the subscriber: where conjunctions are registered, SUBACK, leases and their ends."""

from __future__ import annotations

import msgspec
import pytest

from matching import EVERYTHING, compile_selector
from overlay.chord.epochs import FORK
from overlay.chord.events import ClusterForked
from overlay.chord.keys import attribute_key
from overlay.chord.messages import Cluster
from overlay.links.events import LinkDown, LocalStall
from overlay.machine import LocalEvent
from overlay.settings import Settings
from overlay.upper_tree.batches import BATCH_ITEMS
from overlay.upper_tree.events import OwnerRefused, SubscriptionLapsed, SubscriptionReady
from overlay.upper_tree.messages import (
    EVENT_TREE,
    Register,
    Registered,
    Renew,
    Renewed,
    RenewRefused,
    Unregister,
    Unregistered,
    ids_digest,
)
from overlay.upper_tree.subscriber.constants import (
    CONFIRM_FOR,
    CONFIRM_PERIOD,
    RETRY_PAUSE,
    SENT_AT_ONCE,
    UNREGISTERED_AT_ONCE,
)
from overlay.upper_tree.subscriber.registrar import RegisterDue, Registrar, RenewDue, UnregisterDue
from tests.support.overlays import settings
from tests.support.trees import FakeRing, cluster_of
from tests.support.world import one_node, peer

OWNER = peer("o")


class Rig:
    """A registrar; the whole ring is owned by o unless said otherwise."""

    def __init__(self, chosen: Settings | None = None, known: bool = True) -> None:
        self.port = one_node("s")
        self.ring = FakeRing(self.port)
        self.registrar = Registrar(self.port, chosen or Settings(), 3, self.ring)
        self.port.add(self.registrar)
        if known:
            self.ring.learn(cluster_of("o"))

    def subscribe(self, selector: str, name: str = "a") -> list[tuple[str, str]]:
        planned = self.registrar.plan(name, compile_selector(selector))
        self.registrar.subscribe(name, planned)
        self.port.turn()
        return [(p.registration.attribute, p.registration.id) for p in planned]

    def acknowledge(self, attribute: str, *ids: str) -> None:
        self.port.hear(Registered(attribute, (1, 1), ids), OWNER)

    def settled(self) -> bool:
        return self.registrar.settled

    def ready(self) -> list[str]:
        names = [e.subscription for e in self.port.of(SubscriptionReady)]
        self.port.emitted.clear()
        return names

    def registered(self) -> list[tuple[str, list[str]]]:
        return [(to, [r.id for r in m.registrations]) for to, m in self.port.sent_to(Register)]


def part(primary: str, attribute: str) -> Cluster:
    key = attribute_key(attribute)
    return Cluster("ring", key, f"{int(key, 16) - 1:040x}", (2, 1), peer(primary))


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


def test_two_that_refuse_in_turn_are_not_asked_in_a_circle() -> None:
    rig = Rig()
    rig.subscribe("x = 1")
    rig.registered()
    for name in ["p", "q", "p", "q", "p", "q"]:
        rig.ring.learn(part(name, "x"))
        rig.port.hear(OwnerRefused(("x",)))
    assert len(rig.registered()) == 1, "the others wait"
    rig.port.advance(0.6)
    assert [to for to, _ in rig.registered()] == ["q"]


def test_a_refusal_without_a_name_is_tried_again_soon() -> None:
    rig = Rig()
    rig.subscribe("x = 1")
    rig.registered()
    rig.port.hear(OwnerRefused(("x",)))
    assert rig.registered() == []
    rig.port.advance(0.6)
    assert rig.registered() == [("o", ["a/0"])]


def test_a_lost_link_sends_to_whoever_owns_it_then() -> None:
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


# --- leases ---


LEASE = Settings().tree.lease


def renewals(
    rig: Rig, after: float = LEASE / 3, answered: bool = True
) -> list[tuple[str, tuple[tuple[str, int, int], ...]]]:
    """Those of a time; owners answer them after that."""
    rig.port.sent.clear()
    rig.port.advance(after)
    sent = rig.port.sent_to(Renew)
    if answered:
        for to, message in sent:
            rig.port.hear(Renewed(message.number), peer(to))
    return [(to, message.trees) for to, message in sent]


def test_leases_are_renewed_in_one_message_per_owner() -> None:
    rig = Rig()
    rig.registrar.start()
    rig.ring.learn(part("other", "z"))
    rig.subscribe("x = 1 OR x = 3 OR y = 2 OR z = 1")
    rig.acknowledge("x", "a/0", "a/1")
    rig.acknowledge("y", "a/2")
    rig.acknowledge("z", "a/3")
    expected = [
        ("o", (("x", 2, ids_digest(["a/1", "a/0"])), ("y", 1, ids_digest(["a/2"])))),
        ("other", (("z", 1, ids_digest(["a/3"])),)),
    ]
    assert renewals(rig) == expected
    assert renewals(rig) == expected, "again and again"


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


def test_a_tree_with_a_registration_on_its_way_is_renewed_without_a_claim() -> None:
    """The owner may have it already: a claim without it would be refused as a loss."""
    rig = Rig()
    rig.registrar.start()
    rig.subscribe("x = 1")
    rig.subscribe("y = 1", "b")
    rig.acknowledge("x", "a/0")
    rig.acknowledge("y", "b/0")
    rig.subscribe("x = 3", "c")
    assert renewals(rig) == [("o", (("y", 1, ids_digest(["b/0"])),))]
    rig.acknowledge("x", "c/0")
    rig.registrar.unsubscribe("c")
    assert renewals(rig) == [("o", (("y", 1, ids_digest(["b/0"])),))]
    rig.port.hear(Unregistered("x", ("c/0",)), OWNER)
    assert len(renewals(rig)[0][1]) == 2


def registered_once(attribute: str = "x") -> Rig:
    """A rig whose one registration, a/0, was acknowledged just now."""
    rig = Rig()
    rig.registrar.start()
    rig.subscribe(f"{attribute} = 1")
    rig.acknowledge(attribute, "a/0")
    rig.registered()
    rig.ready()
    return rig


def test_a_renewal_without_an_answer_is_sent_again_after_a_lookup() -> None:
    rig = registered_once()
    ((_, claim),) = renewals(rig, answered=False)
    assert renewals(rig, Settings().tree.retry + RETRY_PAUSE) == [("o", claim)]
    assert rig.ring.asked == [attribute_key("x")]
    assert renewals(rig, LEASE / 3 - 1.0) == [], "answered"


def test_a_renewal_that_was_lost_with_its_link_is_sent_again_at_once() -> None:
    rig = registered_once()
    rig.port.advance(LEASE / 3)
    ((_, renewal),) = rig.port.sent_to(Renew)
    rig.port.hear(LinkDown(OWNER, "silent", False, (renewal,)))
    assert renewals(rig, 2 * RETRY_PAUSE) == [("o", renewal.trees)]


def test_who_stood_still_renews_at_once() -> None:
    rig = registered_once()
    rig.port.advance(1.0)
    rig.port.hear(LocalStall(LEASE / 7))
    assert renewals(rig, 0.0) == [], "a loaded machine"
    rig.port.hear(LocalStall(LEASE / 6))
    assert len(renewals(rig, 0.0)) == 1
    rig.port.hear(LocalStall(LEASE / 6))
    assert renewals(rig, 0.0) == [], "done in this turn"


def test_a_lease_that_may_have_ended_is_in_doubt_until_it_is_renewed() -> None:
    rig = registered_once()
    renewals(rig)
    rig.port.world.jump(0.8 * LEASE)  # it stands still
    assert not rig.registrar.is_in_doubt("a")
    rig.port.world.jump(1.0)
    assert rig.registrar.is_in_doubt("a")
    rig.port.hear(RenewDue())
    assert rig.registrar.is_in_doubt("a")
    ((_, renewal),) = rig.port.sent_to(Renew)
    rig.port.hear(Renewed(renewal.number), OWNER)
    assert not rig.registrar.is_in_doubt("a")
    assert rig.port.of(SubscriptionLapsed) == [], "the owner had it all the time"


def test_an_answer_does_not_confirm_what_the_owner_does_not_decide_about() -> None:
    rig = registered_once()
    rig.port.world.jump(LEASE)
    rig.port.hear(RenewDue())
    ((_, renewal),) = rig.port.sent_to(Renew)
    rig.port.hear(Renewed(renewal.number, ("x",)), OWNER)
    assert rig.registrar.is_in_doubt("a")


def test_where_nothing_can_be_claimed_a_doubtful_tree_is_registered_again() -> None:
    rig = registered_once()
    rig.subscribe("x = 2", "b")
    rig.registered()
    rig.port.world.jump(LEASE)
    rig.port.hear(RenewDue())
    assert ["a/0", "b/0"] in [ids for _, ids in rig.registered()]
    (lapsed,) = rig.port.of(SubscriptionLapsed)
    assert (lapsed.subscriptions, lapsed.seconds) == (("a", "b"), LEASE)
    rig.acknowledge("x", "a/0", "b/0")
    assert not rig.registrar.is_in_doubt("a")
    assert rig.ready() == ["a", "b"]


def test_a_refused_renewal_registers_again_and_reports_the_gap() -> None:
    rig = registered_once()
    rig.port.advance(7.0)
    rig.port.hear(RenewRefused(("x", "unknown")), OWNER)
    assert rig.port.of(SubscriptionLapsed) == [SubscriptionLapsed("x", ("a",), 7.0)]
    assert rig.registered() == [("o", ["a/0"])]
    assert not rig.settled()
    rig.acknowledge("x", "a/0")
    assert rig.ready() == ["a"]


def test_a_renewal_at_a_former_owner_is_no_gap() -> None:
    rig = Rig()
    rig.subscribe("x = 1")
    rig.acknowledge("x", "a/0")
    rig.registered()
    rig.port.hear(OwnerRefused(("x",)))
    assert rig.port.of(SubscriptionLapsed) == []
    assert rig.registered() == []
    assert rig.ring.asked == [attribute_key("x")], "the next one finds its owner"


def test_nobody_looks_before_something_is_due() -> None:
    rig = Rig()
    rig.subscribe("x > 0")
    rig.registrar.unsubscribe("a")
    rig.subscribe("y > 0", "b")
    retry = Settings().tree.retry
    assert rig.port.timers[RegisterDue()] == rig.port.now + retry
    rig.acknowledge("y", "b/0")
    rig.port.hear(Unregistered("x", ("a/0",)), OWNER)
    rig.port.sent.clear()
    rig.port.advance(10 * retry)
    assert RegisterDue() not in rig.port.timers, "everything is answered"
    assert rig.port.sent_to(Register) == rig.port.sent_to(Unregister) == []


@pytest.mark.parametrize("trouble", [OwnerRefused(("y",)), LinkDown(OWNER, "", left=False)])
def test_after_trouble_the_next_look_is_soon(trouble: LocalEvent) -> None:
    rig = Rig()
    rig.subscribe("y > 0", "b")
    rig.port.sent.clear()
    rig.port.hear(trouble)
    assert rig.port.timers[RegisterDue()] == rig.port.now + RETRY_PAUSE
    rig.port.advance(RETRY_PAUSE)
    assert [ids for _, ids in rig.registered()] == [["b/0"]]


# --- an owner that is lost ---


def test_who_takes_the_place_of_a_lost_owner_learns_what_was_registered_there() -> None:
    rig = Rig()
    rig.subscribe("a = 1", "one")
    rig.subscribe("b = 1", "two")
    rig.acknowledge("a", "one/0")
    rig.acknowledge("b", "two/0")
    rig.subscribe("b = 2", "three")  # of this tree nothing can be claimed yet
    rig.port.sent.clear()
    other = msgspec.structs.replace(cluster_of("p"), version=(FORK, 0))
    rig.ring.learn(other)
    rig.port.hear(ClusterForked(other))
    rig.port.advance(1)
    ((to, renewal),) = rig.port.sent_to(Renew)
    assert to == "p"
    assert renewal.trees == (("a", 1, ids_digest(["one/0"])),)
    assert renewal.unsure == ("b",)
    assert ("p", ["two/0"]) in rig.registered()
    rig.port.sent.clear()
    rig.port.advance(CONFIRM_FOR + CONFIRM_PERIOD)
    assert len(rig.port.sent_to(Renew)) >= CONFIRM_FOR / CONFIRM_PERIOD - 1


def test_the_fork_of_a_cluster_that_has_nothing_of_ours_is_no_matter() -> None:
    rig = Rig()
    rig.subscribe("a = 1")
    rig.acknowledge("a", "a/0")
    rig.port.sent.clear()
    rig.port.hear(ClusterForked(part("p", "zebra")))
    rig.port.advance(5)
    assert rig.port.sent_to(Renew) == []
