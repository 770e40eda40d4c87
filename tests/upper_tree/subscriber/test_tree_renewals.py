"""C8, C9 at the subscriber: the leases of registrations, and owners that are lost."""

from __future__ import annotations

import msgspec
import pytest

from overlay.chord.epochs import FORK
from overlay.chord.events import ClusterForked
from overlay.chord.keys import attribute_key
from overlay.links.events import LinkDown, LocalStall
from overlay.machine import LocalEvent
from overlay.settings import Settings
from overlay.upper_tree.events import HostsReplaced, OwnerRefused, SubscriptionLapsed
from overlay.upper_tree.messages import (
    Register,
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
    UNDER_WAY,
)
from overlay.upper_tree.subscriber.registrar import RegisterDue
from overlay.upper_tree.subscriber.renewals import RenewDue
from tests.support.trees import cluster_of
from tests.support.world import peer
from tests.upper_tree.subscriber.registrar_rig import OWNER, Rig, part

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


def answered(rig: Rig, *ago: float, unconfirmed: tuple[str, ...] = ()) -> list[float]:
    """Answer the renewals that leave within `UNDER_WAY`: hosts of x were lost so long ago. For how
    long events may be missing, as is said then."""
    rig.port.advance(UNDER_WAY)
    sent = rig.port.sent_to(Renew)
    assert sent, "it asks the owners soon"
    rig.port.emitted.clear()
    for _, renewal in sent:
        replaced = tuple(("x", each) for each in ago)
        rig.port.hear(Renewed(renewal.number, unconfirmed, replaced), OWNER)
    return [round(each.seconds, 6) for each in rig.port.of(HostsReplaced)]


def test_hosts_that_were_lost_while_it_stood_still_may_have_held_something() -> None:
    rig = registered_once()
    rig.port.hear(LocalStall(5.0))
    began = rig.port.now - 5.0 - UNDER_WAY
    assert rig.registrar.unconfirmed_since() == began, "until the owners have said"
    assert answered(rig, 9.0) == [5.0 + 2 * UNDER_WAY]
    assert rig.registrar.unconfirmed_since() is None


def test_hosts_that_were_lost_before_it_stood_still_hold_nothing_for_it() -> None:
    rig = registered_once()
    rig.port.hear(LocalStall(5.0))
    assert answered(rig, 5.0 + 2 * UNDER_WAY + 0.5) == []
    assert rig.registrar.unconfirmed_since() is None


def test_an_owner_is_asked_until_it_knows_of_all_that_ended_and_decides_about_the_tree() -> None:
    rig = registered_once()
    rig.port.hear(LocalStall(LEASE / 6))
    began = rig.port.now - LEASE / 6 - UNDER_WAY
    rig.port.advance(0.0)
    ((_, first),) = rig.port.sent_to(Renew)
    rig.port.hear(Renewed(first.number), OWNER)
    assert rig.registrar.unconfirmed_since() == began, "a host may have ended just now"
    assert answered(rig, unconfirmed=("x",)) == []
    assert rig.registrar.unconfirmed_since() == began, "another node owns it"
    assert answered(rig) == []
    assert rig.registrar.unconfirmed_since() is None


def test_a_short_pause_is_no_reason_to_ask() -> None:
    rig = registered_once()
    rig.port.hear(LocalStall(0.9))
    assert rig.registrar.unconfirmed_since() is None
    rig.port.advance(UNDER_WAY)
    assert not rig.port.sent_to(Renew)


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


def test_leases_are_not_examined_before_one_is_due() -> None:
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
def test_after_a_failure_the_next_check_is_soon(trouble: LocalEvent) -> None:
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
