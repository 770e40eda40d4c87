"""C5, C6: when a registration is acknowledged, and which ones an owner takes."""

from __future__ import annotations

import pytest

from harness.overlays import settings
from matching import EVERYTHING
from overlay.chord.events import RoleChanged
from overlay.chord.keys import attribute_key
from overlay.chord.messages import Cluster
from overlay.links.events import LinkDown, LinkUp
from overlay.machine import Peer, ProtocolError, Timer
from overlay.settings import Settings
from overlay.upper_tree.batches import BATCH_ITEMS, MAX_BATCH
from overlay.upper_tree.messages import (
    AskTree,
    Assign,
    Install,
    Installed,
    Invalidate,
    Invalidated,
    NotOwner,
    Register,
    Registered,
    Registration,
    Renew,
    Renewed,
    RenewRefused,
    TreeAnswer,
    Uninstall,
    Unregister,
    Unregistered,
    ids_digest,
)
from overlay.upper_tree.owner.constants import REPLACED_FOR
from overlay.upper_tree.owner.registrations.registration_ends import LeaseSweep
from overlay.upper_tree.owner.registrations.registry import RegisterMoreDue
from overlay.upper_tree.owner.tree_log import RegistrationAdded, RegistrationsRemoved, decode
from overlay.upper_tree.sliced_inbox import AT_ONCE, ENDS, TREE
from tests.support.trees import OwnerNode, cluster_of, one_replica, registration
from tests.support.world import one_node, peer

S, P, H = peer("s"), peer("pub"), peer("h")


def owner(chosen: Settings | None = None) -> OwnerNode:
    """A primary whose trees are hosted by the match broker h."""
    return OwnerNode(one_node("p"), one_replica(chosen or Settings()), cluster_of("p", "h"))


def ask_for(node: OwnerNode, *ids: str, attribute: str = "x") -> tuple[Registration, ...]:
    made = tuple(registration(id_, attribute, f"{attribute} > 1", S) for id_ in ids)
    node.port.hear(Register(1, made), S)
    return made


def install(node: OwnerNode, *ids: str, attribute: str = "x") -> None:
    node.port.hear(Installed(attribute, ids), H)


def acknowledged(node: OwnerNode) -> list[str]:
    return [id_ for message in node.port.take(Registered) for id_ in message.ids]


# --- SUBACK ---


def tell(node: OwnerNode, attribute: str, publisher: Peer) -> None:
    """`publisher` asks, and the log has it that it may trust the answer."""
    node.port.hear(AskTree((attribute,)), publisher)
    node.clusters.commit()


def test_the_first_registration_plants_the_tree_at_a_host() -> None:
    node = owner()
    (made,) = ask_for(node, "s/0")
    assert [to for to, _ in node.port.sent_to(Assign)] == ["h"]
    assert node.port.sent_to(Install) == [("h", Install("x", 1, (made,)))]
    assert [p.id for p in node.port.watched["hosts"]] == ["h"], "its silence must be noticed"


@pytest.mark.parametrize("installed_first", [True, False])
def test_a_suback_needs_the_log_and_the_host(installed_first: bool) -> None:
    node = owner()
    ask_for(node, "s/0")
    steps = [lambda: install(node, "s/0"), node.clusters.commit]
    for step in steps if installed_first else reversed(steps):
        assert acknowledged(node) == []
        step()
    assert acknowledged(node) == ["s/0"]


def test_a_suback_needs_its_own_log_entry() -> None:
    node = owner()
    ask_for(node, "s/0")
    node.clusters.commit()
    ask_for(node, "s/1")
    install(node, "s/0", "s/1")
    assert acknowledged(node) == ["s/0"]
    node.clusters.commit()
    assert acknowledged(node) == ["s/1"]


def test_a_report_by_another_host_does_not_count_for_the_host() -> None:
    node = owner()
    ask_for(node, "s/0")
    node.clusters.commit()
    node.port.hear(Installed("x", ("s/0",)), peer("other"))
    assert acknowledged(node) == []


def test_a_suback_names_the_maps_version_and_goes_to_the_subscriber() -> None:
    node = owner()
    ask_for(node, "s/0")
    node.clusters.commit()
    install(node, "s/0")
    version = node.owner.trees["x"].tree.map.version
    assert node.port.sent_to(Registered) == [("s", Registered("x", version, ("s/0",)))]


def test_the_first_suback_waits_until_every_publisher_has_forgotten_the_absence() -> None:
    node = owner()
    tell(node, "x", P)
    tell(node, "x", peer("pub2"))
    assert [m.absent for m in node.port.take(TreeAnswer)] == [("x",), ("x",)]
    ask_for(node, "s/0")
    node.clusters.commit()
    install(node, "s/0")
    assert [to for to, _ in node.port.sent_to(Invalidate)] == ["pub", "pub2"]
    node.port.hear(Invalidated(("x",), 9), P)
    assert acknowledged(node) == []
    node.port.hear(Invalidated(("x",), 9), peer("pub2"))
    assert acknowledged(node) == ["s/0"]


def test_a_cache_holder_that_does_not_answer_is_waited_out() -> None:
    node = owner()
    tell(node, "x", P)
    node.port.advance(4)
    ask_for(node, "s/0")
    node.clusters.commit()
    install(node, "s/0")
    node.port.advance(5.9)
    assert acknowledged(node) == []
    node.port.advance(0.2)
    assert acknowledged(node) == ["s/0"]


def test_a_term_that_has_run_out_delays_nothing() -> None:
    node = owner()
    tell(node, "x", P)
    node.port.advance(10.1)
    ask_for(node, "s/0")
    assert node.port.take(Invalidate) == []
    node.clusters.commit()
    install(node, "s/0")
    assert acknowledged(node) == ["s/0"]


def test_cache_holders_that_could_not_be_remembered_are_waited_out() -> None:
    node = owner()
    node.cache_holders.table.capacity = 1
    tell(node, "x", P)
    tell(node, "y", P)  # pushes x out
    ask_for(node, "s/0")
    node.clusters.commit()
    install(node, "s/0")
    assert node.port.take(Invalidate) == []
    assert acknowledged(node) == []
    node.port.advance(10.1)
    assert acknowledged(node) == ["s/0"]


# --- repeated, foreign and forged registrations ---


def test_a_repeated_registration_is_acknowledged_again_and_written_once() -> None:
    node = owner()
    ask_for(node, "s/0")
    ask_for(node, "s/0")
    assert acknowledged(node) == [], "repeating does not shorten the wait"
    node.clusters.commit()
    install(node, "s/0")
    assert acknowledged(node) == ["s/0"]
    ask_for(node, "s/0")
    assert acknowledged(node) == ["s/0"]
    written = [decode(entry) for entry in node.clusters.log]
    assert sum(isinstance(operation, RegistrationAdded) for operation in written) == 1


def test_a_registration_for_another_owner_is_an_error() -> None:
    node = owner()
    forged = registration("s/0", "x", "x > 1", S)
    with pytest.raises(ProtocolError, match="of another subscriber"):
        node.port.hear(Register(1, (forged,)), peer("mallory"))
    assert node.owner.trees == {}


def test_a_registration_that_does_not_compile_never_reaches_log_or_host() -> None:
    node = owner()
    with pytest.raises(ProtocolError, match="compile"):
        node.port.hear(Register(1, (Registration("s/0", "x", S, "x >", EVERYTHING),)), S)
    assert node.clusters.log == []
    assert node.port.sent == []


def test_too_long_messages_are_an_error() -> None:
    node = owner()
    made = registration("s/0", "x", "x > 1", S)
    with pytest.raises(ProtocolError, match="too many"):
        node.port.hear(Register(1, (made,) * (MAX_BATCH + 1)), S)
    with pytest.raises(ProtocolError, match="too many"):
        node.port.hear(AskTree(("x",) * (MAX_BATCH + 1)), P)


def test_foreign_attributes_are_refused_with_the_owner_that_is_known() -> None:
    node = owner()
    key = attribute_key("x")
    arc = Cluster("ring", key, f"{int(key, 16) - 1:040x}", (2, 1), peer("new_owner"))
    node.clusters.cluster = Cluster("ring", arc.start, key, (1, 2), peer("p"), None, (H,))
    node.ring.learn(arc)
    made = [registration(f"s/{a}", a, f"{a} > 1", S) for a in ("x", "y")]
    node.port.hear(Register(1, tuple(made)), S)
    assert node.port.sent_to(NotOwner) == [("s", NotOwner(("x",), arc))]
    assert list(node.owner.trees) == ["y"]


def test_an_arc_that_is_being_given_away_is_refused_without_another_owner() -> None:
    node = owner()
    node.clusters.giving_away = node.clusters.cluster
    ask_for(node, "s/0")
    node.port.hear(Unregister("x", ("s/0",)), S)
    node.port.hear(AskTree(("x",)), P)
    assert node.port.sent_to(NotOwner) == [
        ("s", NotOwner(("x",), None)),
        ("s", NotOwner(("x",), None)),
        ("pub", NotOwner(("x",), None)),
    ]
    assert node.clusters.log == []
    assert node.port.take(TreeAnswer) == []


# --- ending ---


def test_unregistering_ends_the_senders_registrations_only() -> None:
    node = owner()
    ask_for(node, "s/0", "s/1")
    node.port.hear(Unregister("x", ("s/0",)), peer("mallory"))
    assert len(node.owner.trees["x"].tree.registrations) == 2
    node.port.hear(Unregister("x", ("s/0", "unknown")), S)
    assert list(node.owner.trees["x"].tree.registrations) == ["s/1"]
    assert node.port.sent_to(Uninstall) == [("h", Uninstall("x", 1, ("s/0",)))]
    assert [m.ids for _, m in node.port.sent_to(Unregistered)] == [("s/0",)], "mallory's only"
    node.clusters.commit()
    assert [m.ids for _, m in node.port.sent_to(Unregistered)] == [("s/0", "unknown")]
    assert decode(node.clusters.log[-1]) == RegistrationsRemoved("x", ("s/0",))


def test_a_registration_that_ended_is_not_acknowledged_any_more() -> None:
    node = owner()
    ask_for(node, "s/0")
    node.port.hear(Unregister("x", ("s/0",)), S)
    node.clusters.commit()
    install(node, "s/0")
    assert acknowledged(node) == []


# --- many at once ---


def part(node: OwnerNode, due: Timer) -> int:
    """The turn of a timer that is due at once; how many entries the log has then."""
    assert node.port.timers.pop(due) <= node.port.now
    node.port.hear(due)
    return len(node.clusters.log)


def test_many_registrations_are_taken_a_few_in_each_turn_and_the_rest_waits_in_order() -> None:
    node = owner()
    many = [f"s/{number}" for number in range(2 * AT_ONCE + 1)]
    ask_for(node, *many)
    node.port.hear(Unregister("x", ("s/0",)), S)
    node.port.hear(Renew(1, (("x", len(many) - 1, ids_digest(many[1:])),)), S)
    entries = [len(node.clusters.log), *(part(node, RegisterMoreDue()) for _ in range(2))]
    assert entries == [1 + AT_ONCE - TREE, 1 + 2 * AT_ONCE - TREE, 1 + len(many) + 1]
    assert RegisterMoreDue() not in node.port.timers
    assert list(node.owner.trees["x"].tree.registrations) == many[1:]
    assert node.port.take(RenewRefused) == [], "it is compared with what came before it"


def test_a_bad_registration_is_counted_when_its_turn_comes() -> None:
    node = owner()
    ask_for(node, *(f"s/{number}" for number in range(AT_ONCE)))
    bad = Registration("s/bad", "x", S, "x >", EVERYTHING)
    node.port.hear(Register(1, (bad,)), S)
    ask_for(node, "s/good")
    part(node, RegisterMoreDue())
    assert node.port.counts["registrations_refused"] == 1
    assert "s/good" in node.owner.trees["x"].tree.registrations


def test_leases_that_lapse_together_end_a_part_in_each_turn() -> None:
    node = owner(settings(tree={"lease": 8.0}))
    many = 2 * AT_ONCE * ENDS + 1
    for first in range(0, many, AT_ONCE):
        ask_for(node, *(f"s/{number}" for number in range(first, min(first + AT_ONCE, many))))
        node.port.advance(0.0)
    registrations = node.owner.trees["x"].tree.registrations
    assert len(registrations) == many
    node.port.world.jump(9.0)
    left = []
    for _ in range(3):
        part(node, LeaseSweep())
        left.append(len(registrations))
    assert left == [many - AT_ONCE * ENDS, 1, 0]
    ended = [len(m.ids) for m in node.port.take(Uninstall)]
    assert ended == [BATCH_ITEMS] * (many // BATCH_ITEMS) + [1]
    assert node.port.counts["leases_lapsed"] == many


# --- leases ---


def test_what_is_not_renewed_ends_and_what_is_renewed_stays() -> None:
    node = owner(settings(tree={"lease": 8.0}))
    ask_for(node, "s/0")
    other = peer("t")
    node.port.hear(Register(1, (registration("t/0", "x", "x > 1", other),)), other)
    for _ in range(4):
        node.port.advance(4)
        node.port.hear(Renew(1, (("x", 1, ids_digest(["s/0"])),)), S)
    assert list(node.owner.trees["x"].tree.registrations) == ["s/0"]
    assert node.port.sent_to(Uninstall) == [("h", Uninstall("x", 1, ("t/0",)))]
    assert node.port.counts["leases_lapsed"] == 1


def test_a_renewal_that_claims_something_else_is_refused() -> None:
    node = owner()
    ask_for(node, "s/0", "s/1")
    right = ("x", 2, ids_digest(["s/1", "s/0"]))
    node.port.hear(Renew(1, (right,)), S)
    assert node.port.take(RenewRefused) == []
    assert node.port.take(Renewed) == [Renewed(0, (), (("x", 0.0),))], "its hosts are new"
    lost_one = ("x", 2, ids_digest(["s/0", "s/2"]))
    no_tree = ("y", 1, ids_digest(["s/0"]))
    node.port.hear(Renew(1, (lost_one, no_tree), number=7), S)
    assert node.port.take(RenewRefused) == [RenewRefused(("x", "y"))]
    assert node.port.take(Renewed) == [Renewed(7, ("x", "y"), (("x", 0.0),))]


def test_a_renewal_s_answer_names_trees_that_have_lost_a_host_of_late() -> None:
    node = owner()
    ask_for(node, "s/0", "s/1")
    claim = (("x", 2, ids_digest(["s/1", "s/0"])),)

    def replaced() -> list[tuple[tuple[str, float], ...]]:
        node.port.hear(Renew(1, claim), S)
        return [one.replaced for one in node.port.take(Renewed)]

    (host, *_) = (p for p in node.owner.trees["x"].all_hosts().values() if p.id != node.port.me.id)
    replaced()
    node.port.world.jump(REPLACED_FOR)
    assert replaced() == [()]
    node.port.hear(LinkDown(peer("nobody"), "silent", False))
    node.port.hear(LinkDown(host, "it leaves", True))
    assert replaced() == [()], "who leaves hands over what it holds"
    node.port.hear(LinkUp(host, True))
    node.port.hear(LinkDown(host, "silent", False))
    node.port.world.jump(3.0)
    assert replaced() == [(("x", 3.0),)]


def test_what_its_subscriber_has_not_ends_though_the_log_has_it() -> None:
    node = owner(settings(tree={"lease": 8.0}))
    made = ask_for(node, "s/0", "s/1")
    mine = ("x", 1, ids_digest(["s/0"]))
    node.port.hear(Renew(1, (mine,)), S)
    assert node.port.take(RenewRefused) == [RenewRefused(("x",))]
    node.port.hear(Register(1, (made[0],)), S)
    node.port.hear(Renew(1, (mine,)), S)
    assert list(node.owner.trees["x"].tree.registrations) == ["s/0"]
    for unsure in (("x",), ("x",), ("x",), (), (), (), ()):
        node.port.advance(3)
        assert list(node.owner.trees["x"].tree.registrations) == ["s/0"]
        node.port.hear(Renew(1, (), unsure), S)
    node.port.advance(3)
    assert list(node.owner.trees["x"].tree.registrations) == []


def test_a_renewal_for_an_arc_that_moved_is_no_loss() -> None:
    node = owner()
    made = ask_for(node, "s/0")
    node.clusters.giving_away = node.clusters.cluster
    node.port.hear(Renew(1, (("x", 1, ids_digest([made[0].id])),), ("z",)), S)
    assert node.port.take(RenewRefused) == []
    assert node.port.take(Renewed) == [Renewed(0, ("x", "z"))]
    assert node.port.sent_to(NotOwner) == [("s", NotOwner(("x", "z"), None))]


def test_a_new_primary_grants_a_full_term() -> None:
    node = owner(settings(tree={"lease": 8.0}))
    ask_for(node, "s/0")
    node.port.advance(7)
    cluster = node.clusters.cluster
    node.port.hear(RoleChanged(cluster, "standby"))
    node.port.hear(RoleChanged(cluster, "primary"))
    node.port.advance(7)
    assert list(node.owner.trees["x"].tree.registrations) == ["s/0"]
    node.port.advance(5)
    assert list(node.owner.trees["x"].tree.registrations) == []


# --- where trees are ---


def test_trees_that_exist_are_named_by_their_root() -> None:
    node = owner()
    ask_for(node, "s/0")
    node.port.hear(AskTree(("x", "y")), P)
    node.clusters.commit()
    (answer,) = node.port.take(TreeAnswer)
    assert [(e.attribute, e.hosts[0].id) for e in answer.entries] == [("x", "h")]
    assert answer.absent == ("y",)
    assert answer.term == Settings().tree.summary_term
