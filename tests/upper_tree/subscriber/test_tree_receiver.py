"""C8, C9 at the interested node: count sets, recheck everything, then remove duplicates."""

from __future__ import annotations

from typing import Any

import pytest

from harness.overlays import settings
from matching import EVERYTHING, Attributes, Index, Interval, compile_selector, place
from overlay.client import Delivery, Event
from overlay.machine import ProtocolError
from overlay.settings import Settings
from overlay.upper_tree.event_history import BYTES_MOST, EventHistory
from overlay.upper_tree.messages import Deliver, ids_digest
from overlay.upper_tree.owner.registrations.registration_ends import (
    ClaimChecks,
    RegistrationLeases,
    registrations_of,
)
from overlay.upper_tree.owner.tree_log import Tree
from overlay.upper_tree.partition import PartitionMap
from overlay.upper_tree.subscriber.receiver import Arrived, Receiver
from tests.support.trees import event, registration
from tests.support.world import one_node, peer

HOST = peer("h")


class Rig:
    """A receiver with subscriptions by name."""

    def __init__(self, chosen: Settings | None = None) -> None:
        self.port = one_node("s")
        self.history = EventHistory(100)
        self.receiver = Receiver(self.port, chosen or Settings(), self.history)
        self.port.add(self.receiver)

    def subscribe(self, name: str, selector: str) -> None:
        """As the clients do: in counting, each constraint in its own tree."""
        predicate = compile_selector(selector)
        trees = {f"{name}/{n}": len(c.constraints) for n, c in enumerate(predicate.conjunctions)}
        self.receiver.add(name, predicate, trees)

    def deliver(
        self, *events: Event, attribute: str = "x", counted: tuple[tuple[str, ...], ...] = ()
    ) -> list[tuple[str, int]]:
        """(subscription, sequence) that are shown for one message."""
        self.port.hear(Deliver(attribute, EVERYTHING, 2, events, counted), HOST)
        shown = self.shown()
        return [(d.subscription, d.event.sequence) for d in shown]

    def shown(self) -> list[Delivery]:
        found = [d for e in self.port.of(Arrived) for d in e.deliveries]
        self.port.emitted.clear()
        return found


def test_an_event_is_shown_to_every_subscription_that_it_matches() -> None:
    rig = Rig()
    rig.subscribe("a", "x > 1")
    rig.subscribe("b", "x > 3 OR y = 1")
    rig.subscribe("c", "x > 9")
    assert rig.deliver(event(1, x=5), event(2, x=2)) == [("a", 1), ("b", 1), ("a", 2)]
    assert rig.port.counts["delivered"] == 3


def test_the_history_of_what_came_is_bounded_in_bytes() -> None:
    """What is shown, and what is refused, counts with its size."""
    rig = Rig()
    rig.history = rig.receiver.history = EventHistory(2_000)
    rig.subscribe("a", "x > 1")
    for number in range(1, 201):
        assert rig.deliver(event(number, x=5, text="x" * 200_000))
    assert 0 < len(rig.history) <= BYTES_MOST / 200_000


def test_deliveries_are_recorded_without_a_match_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only which subscriptions of programs that gather want an event is found for the records: one
    of them is enough to show it."""
    rig = Rig()
    rig.subscribe("a", "x > 1")
    rig.subscribe("b", "x > 3")
    asked: list[tuple[str, object]] = []
    match = Index.match

    def counted(self: Any, attributes: Attributes) -> Any:
        asked.append(("own" if self is rig.receiver.index else "gathered", attributes["x"]))
        return match(self, attributes)

    monkeypatch.setattr(Index, "match", counted)
    rig.deliver(event(1, x=5), event(2, x=2), event(3, x=0))
    assert sorted(asked) == [(who, x) for who in ("gathered", "own") for x in (0, 2, 5)]
    for name in ("c", "d"):
        rig.receiver.add(name, compile_selector("x > 4"), {f"{name}/0": 1}, ("x",), 1)
    asked.clear()
    rig.deliver(event(4, x=5), event(5, x=0))
    assert sorted(asked) == [
        ("gathered", 0),
        ("gathered", 5),
        ("gathered", 5),
        ("own", 0),
        ("own", 5),
    ]
    shown = [(t["event"], t["subscription"]) for t in rig.port.traced("deliver")]
    assert shown[3:] == [("pub.1.4", name) for name in "abcd"]


def test_what_came_for_another_reason_is_not_shown() -> None:
    """A host's index is a hint: the whole predicate is checked once more."""
    rig = Rig()
    rig.subscribe("a", "x > 1 AND y = 2")
    assert rig.deliver(event(1, x=5)) == []
    assert rig.port.counts["recheck_failed"] == 1


@pytest.mark.parametrize("attribute", ["x", "y"])
def test_an_event_that_comes_again_is_shown_once(attribute: str) -> None:
    rig = Rig()
    rig.subscribe("a", "x > 1 OR y > 1")
    assert rig.deliver(event(1, x=5, y=5)) == [("a", 1)]
    assert rig.deliver(event(1, x=5, y=5), attribute=attribute) == []
    assert rig.port.counts["duplicates"] == 1


def test_identity_is_publisher_incarnation_and_sequence() -> None:
    rig = Rig()
    rig.subscribe("a", "x > 1")
    for made in [event(1, x=5), event(1, "other", x=5), event(1, incarnation=2, x=5)]:
        assert rig.deliver(made) == [("a", 1)]


def test_the_dedupe_window_is_bounded_and_forgets_the_oldest() -> None:
    rig = Rig(settings(tree={"dedupe": 3}))
    rig.subscribe("a", "x > 1")
    for sequence in range(4):
        rig.deliver(event(sequence, x=5))
    assert len(rig.receiver.seen) == 3
    assert rig.deliver(event(3, x=5)) == []
    assert rig.deliver(event(0, x=5)) == [("a", 0)], "beyond the window"


def test_a_subscription_that_ended_is_shown_nothing() -> None:
    rig = Rig()
    rig.subscribe("a", "x > 1 OR y > 1")
    rig.receiver.remove("a", 2)
    assert rig.deliver(event(1, x=5)) == []
    assert rig.receiver.required == {}


def test_a_delivery_names_its_way() -> None:
    rig = Rig()
    rig.subscribe("a", "x > 1")
    message = Deliver("x", Interval(place(0), place(9)), 3, (event(1, x=5, id="quake"),))
    rig.port.hear(message, HOST)
    (shown,) = rig.shown()
    assert (shown.attribute, shown.lo, shown.hi, shown.hops) == ("x", "0", "9", 3)
    (trace,) = rig.port.traced("deliver")
    assert (trace["id"], trace["subscription"], trace["hops"]) == ("quake", "a", 3)
    assert [t["peer"] for t in rig.port.traced("arrive")] == ["h"]
    remembered = rig.history.find("quake")
    assert remembered is not None
    assert list(remembered.shown) == ["a"]


def test_what_never_crossed_a_link_did_not_arrive() -> None:
    rig = Rig()
    rig.subscribe("a", "x > 1")
    rig.port.hear(Deliver("x", EVERYTHING, 0, (event(1, x=5),)), rig.port.me)
    assert len(rig.shown()) == 1
    assert rig.port.traced("arrive") == []


# --- counting (C8) ---

ONE = (("a/0",),)


def test_counting_accepts_when_every_attribute_of_a_conjunction_has_matched() -> None:
    rig = Rig()
    rig.subscribe("a", "x > 1 AND y > 1 AND z > 1")
    made = event(1, x=5, y=5, z=5)
    assert rig.deliver(made, attribute="x", counted=ONE) == []
    assert rig.deliver(made, attribute="z", counted=ONE) == []
    assert rig.deliver(made, attribute="y", counted=ONE) == [("a", 1)]
    assert rig.receiver.partial_matches == {}


def test_counting_counts_a_set_so_that_a_repeated_visit_counts_once() -> None:
    rig = Rig()
    rig.subscribe("a", "x > 1 AND y > 1")
    made = event(1, x=5, y=0)
    for _ in range(3):
        assert rig.deliver(made, attribute="x", counted=ONE) == []
    assert len(rig.receiver.seen) == 0, "not accepted, so no duplicate either"


def test_duplicates_are_removed_after_acceptance_not_before() -> None:
    rig = Rig()
    rig.subscribe("a", "x > 1 AND y > 1")
    made = event(1, x=5, y=5)
    rig.deliver(made, attribute="x", counted=ONE)
    assert rig.deliver(made, attribute="y", counted=ONE) == [("a", 1)], "the second is no duplicate"
    assert rig.deliver(made, attribute="x", counted=ONE) == []
    assert rig.port.counts["duplicates"] == 1


def test_each_conjunction_counts_for_itself() -> None:
    rig = Rig()
    rig.subscribe("a", "(x > 1 AND y > 1) OR (x < 9 AND z > 1)")
    made = event(1, x=5, y=5, z=0)
    assert rig.deliver(made, attribute="x", counted=(("a/1",),)) == []
    assert rig.deliver(made, attribute="y", counted=(("a/0",),)) == []
    assert rig.deliver(made, attribute="x", counted=(("a/0", "a/1"),)) == [("a", 1)]


def test_counting_checks_the_rest_of_the_predicate_too() -> None:
    rig = Rig()
    rig.subscribe("a", "x > 1 AND z IS NULL")
    rig.receiver.required["a/0"] = 1
    assert rig.deliver(event(1, x=5, z=1), counted=ONE) == []
    assert rig.deliver(event(2, x=5), counted=ONE) == [("a", 2)]


def test_half_counted_events_expire() -> None:
    rig = Rig()
    rig.subscribe("a", "x > 1 AND y > 1")
    rig.deliver(event(1, x=5, y=5), attribute="x", counted=ONE)
    rig.port.advance(300.1)
    rig.deliver(event(2, x=5, y=5), attribute="x", counted=ONE)
    assert rig.port.counts["half_counted_expired"] == 1
    assert rig.deliver(event(1, x=5, y=5), attribute="y", counted=ONE) == []
    assert rig.deliver(event(2, x=5, y=5), attribute="y", counted=ONE) == [("a", 2)]


def test_trees_may_be_reached_minutes_apart() -> None:
    rig = Rig()
    rig.subscribe("a", "x > 1 AND y > 1")
    rig.deliver(event(1, x=5, y=5), attribute="x", counted=ONE)
    rig.port.advance(200)
    rig.deliver(event(2, x=5, y=5), attribute="x", counted=ONE)
    assert rig.deliver(event(1, x=5, y=5), attribute="y", counted=ONE) == [("a", 1)]


def test_half_counted_events_are_bounded() -> None:
    rig = Rig(settings(tree={"dedupe": 3}))
    rig.subscribe("a", "x > 1 AND y > 1")
    for sequence in range(9):
        rig.deliver(event(sequence, x=5, y=5), attribute="x", counted=ONE)
    assert len(rig.receiver.partial_matches) == 3


def test_registrations_that_do_not_fit_the_events_are_an_error() -> None:
    rig = Rig()
    with pytest.raises(ProtocolError):
        rig.deliver(event(1, x=5), event(2, x=5), counted=ONE)


# --- leases at the owner ---


def leased() -> tuple[Tree, RegistrationLeases]:
    tree = Tree("x", PartitionMap.single((1, 1), (HOST,)))
    for id_, name, incarnation in [("s/0", "s", 1), ("s/1", "s", 2), ("t/0", "t", 1)]:
        tree.registrations[id_] = registration(id_, "x", "x > 1", peer(name))
        tree.incarnations[id_] = incarnation
    return tree, RegistrationLeases(term=10.0)


def test_a_lease_ends_a_term_after_its_last_renewal() -> None:
    tree, leases = leased()
    for name, incarnation in [("s", 1), ("s", 2), ("t", 1)]:
        leases.renew(name, incarnation, now=0.0)
    leases.renew("t", 1, now=5.0)
    assert leases.lapsed(tree, now=9.9) == ("s/0",)
    assert leases.lapsed(tree, now=10.0) == ("s/0", "s/1")
    assert leases.lapsed(tree, now=15.0) == ("s/0", "s/1", "t/0")


def test_a_new_incarnation_of_the_subscriber_ends_the_leases_of_the_old_one() -> None:
    tree, leases = leased()
    leases.renew("s", 1, now=0.0)
    assert leases.lapsed(tree, now=1.0) == ()
    leases.renew("s", 2, now=1.0)
    assert leases.lapsed(tree, now=1.0) == ("s/0",)


def test_a_subscriber_that_was_never_heard_of_gets_a_full_term_first() -> None:
    tree, leases = leased()
    assert leases.lapsed(tree, now=100.0) == ()
    assert leases.lapsed(tree, now=109.9) == ()
    assert leases.lapsed(tree, now=110.0) == ("s/0", "s/1", "t/0")
    leases.clear()
    assert leases.lapsed(tree, now=110.0) == ()


def test_a_tree_that_renewals_do_not_name_for_a_term_is_not_renewed() -> None:
    tree, leases = leased()
    for now in (0.0, 4.0, 8.0, 12.0):
        leases.renew("s", 2, now, ["y"])
        leases.renew("t", 1, now, ["x", "y"])
        assert "s/1" not in leases.lapsed(tree, now)
        if now == 4.0:
            leases.renew("s", 2, now, ["x"])  # for once it did
            assert leases.lapsed(tree, now) == ("s/0",)
    leases.renew("s", 2, 18.0, ["y"])
    assert leases.lapsed(tree, now=18.0) == ("s/0", "s/1")


def test_who_registers_may_have_something_in_any_tree() -> None:
    tree, leases = leased()
    leases.renew("s", 2, 0.0, ["y"])
    leases.lapsed(tree, now=0.0)
    leases.renew("s", 2, 11.0)
    assert "s/1" not in leases.lapsed(tree, now=11.0)
    leases.renew("s", 2, 12.0, ["y"])
    assert "s/1" not in leases.lapsed(tree, now=12.0), "from then on a term again"


def test_what_is_not_registered_again_after_a_wrong_claim_ends() -> None:
    checks, ids = ClaimChecks(), ("s/0", "s/1", "s/2")
    two = (2, ids_digest(["s/0", "s/2"]))
    assert checks.check("s", "x", ids, two) == (False, ())
    assert checks.check("s", "x", ids, two) == (False, ()), "it has not said what it has"
    checks.registered("s", "x", "s/0")
    checks.registered("s", "x", "s/2")
    assert checks.check("s", "x", ids, two) == (True, ("s/1",))
    assert checks.check("s", "x", ("s/0", "s/2"), two) == (True, ())


def test_a_right_claim_ends_the_doubt() -> None:
    checks, ids = ClaimChecks(), ("s/0", "s/1")
    nothing, one = (0, ids_digest([])), (1, ids_digest(["s/0"]))
    checks.check("s", "x", ids, one)
    assert checks.check("s", "x", ids, (2, ids_digest(ids))) == (True, ())
    assert checks.check("s", "x", ids, nothing) == (False, ())


def test_a_digest_distinguishes_sets_whatever_their_order() -> None:
    tree, _ = leased()
    assert registrations_of(tree, "s") == ("s/0", "s/1")
    assert ids_digest(["a", "b"]) == ids_digest(["b", "a"])
    assert ids_digest(["a", "b"]) != ids_digest(["a", "c"])
    assert ids_digest(["ab"]) != ids_digest(["a", "b"])
