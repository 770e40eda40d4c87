"""C5, P4: a new primary knows whom to ask what they have cached, and waits for no others."""

from __future__ import annotations

import pytest

from overlay.chord.events import Elected, EntryReceived, Replanted, RoleChanged
from overlay.links.events import LinkDown, LinkUp
from overlay.machine import Peer, ProtocolError
from overlay.settings import Settings
from overlay.upper_tree.batches import MAX_BATCH
from overlay.upper_tree.messages import (
    AskCached,
    AskTree,
    Assign,
    Assigned,
    CacheReport,
    Installed,
    Invalidate,
    Invalidated,
    NotOwner,
    Register,
    Registered,
    TreeAnswer,
)
from overlay.upper_tree.owner.tree_log import (
    CacheHoldersChanged,
    MapChanged,
    Operation,
    RegistrationAdded,
    decode,
    encode,
)
from overlay.upper_tree.partition import PartitionMap
from overlay.upper_tree.summaries.cache_holders import HOLDERS_MOST, KEEP_FOR, REPORTS_TOGETHER
from tests.support.trees import KEY, OwnerNode, cluster_of, registration
from tests.support.world import one_node, peer

S, P, Q, H = peer("s"), peer("pub"), peer("pub2"), peer("h")
TERM = Settings().tree.summary_term


def owner() -> OwnerNode:
    return OwnerNode(one_node("p"), Settings(), cluster_of("p", "h"))


def new_owner(*log: Operation) -> OwnerNode:
    """A voter with this log that was elected under epoch 2; its first entry is committed."""
    node = OwnerNode(one_node("p"), Settings(), cluster_of("old", "p", "h"), primary=False)
    node.port.hear(RoleChanged(node.clusters.cluster, "standby"))
    for index, operation in enumerate(log):
        node.port.hear(EntryReceived(KEY, index, encode(operation)))
        node.clusters.log.append(b"")
    cluster = node.clusters.cluster = cluster_of("p", "h", version=(2, 0))
    node.port.hear(RoleChanged(cluster, "primary"))
    node.port.hear(Elected(cluster, peer("old")))
    node.clusters.log.append(b"")
    node.clusters.commit()
    return node


def logged(node: OwnerNode) -> list[CacheHoldersChanged]:
    """What the node's own entries say of cache holders; forgets it."""
    said = [decode(entry) for entry in node.clusters.log if entry]
    node.clusters.log = [b""] * len(node.clusters.log)
    return [operation for operation in said if isinstance(operation, CacheHoldersChanged)]


def register(node: OwnerNode, tree: str = "x") -> None:
    """A registration that only what publishers have cached can hold up."""
    node.port.hear(Register(1, (registration("s/0", tree, f"{tree} > 1", S),), final=True), S)
    node.clusters.commit()
    node.port.hear(Installed(tree, ("s/0",)), H)


def acknowledged(node: OwnerNode) -> bool:
    return bool(node.port.take(Registered))


def report(node: OwnerNode, who: Peer, *cached: tuple[str, int], last: bool = True) -> None:
    node.port.hear(CacheReport(KEY, 2, cached, last), who)


# --- before a publisher is answered ---


def test_no_summary_is_sent_before_a_majority_knows_the_cache_holder() -> None:
    node = owner()
    node.port.hear(AskTree(("x",), 3), P)
    assert node.port.take(TreeAnswer) == []
    assert logged(node) == [CacheHoldersChanged((P,))]
    node.clusters.commit()
    (answer,) = node.port.take(TreeAnswer)
    assert (answer.absent, answer.term, answer.number, answer.epoch) == (("x",), TERM, 3, 1)


def test_who_is_in_the_log_is_informed_at_once_and_named_once() -> None:
    node = owner()
    for _ in range(3):
        node.port.hear(AskTree(("x",)), P)
        node.clusters.commit()
    node.port.hear(AskTree(("y",)), P)
    assert len(node.port.take(TreeAnswer)) == 4
    assert logged(node) == [CacheHoldersChanged((P,))]


def test_the_log_names_an_address_that_has_changed() -> None:
    node = new_owner(CacheHoldersChanged((P,)))
    moved = Peer(P.id, "elsewhere:1")
    node.port.hear(AskTree(("x",)), moved)
    assert logged(node) == [CacheHoldersChanged((moved,))]


def test_an_inherited_cache_holder_is_asked_when_the_new_primary_has_a_majority() -> None:
    node = OwnerNode(one_node("p"), Settings(), cluster_of("old", "p", "h"), primary=False)
    node.port.hear(EntryReceived(KEY, 0, encode(CacheHoldersChanged((P,)))))
    cluster = node.clusters.cluster = cluster_of("p", "h", version=(2, 0))
    node.port.hear(RoleChanged(cluster, "primary"))
    node.port.hear(AskTree(("x",)), P)
    assert node.port.take(TreeAnswer) == []
    node.clusters.log = [b"", b""]
    node.clusters.commit()
    assert len(node.port.take(TreeAnswer)) == 1


def test_what_waited_for_the_log_is_asked_again_of_another_primary() -> None:
    node = owner()
    node.port.hear(AskTree(("x",)), P)
    node.port.hear(RoleChanged(None, "none"))
    node.clusters.commit()
    assert node.port.take(TreeAnswer) == []


def test_a_primary_trusts_itself_no_longer_than_it_leads_for_certain() -> None:
    node = owner()
    node.clusters.lease_left = 0.5
    node.port.hear(AskTree(("x",)), node.port.me)
    (answer,) = node.port.take(TreeAnswer)
    assert (answer.absent, answer.term) == (("x",), 0.5)
    assert logged(node) == []


def test_a_node_that_owns_nothing_any_more_remembers_no_cache_holders() -> None:
    node = owner()
    node.port.hear(AskTree(("x",)), P)
    node.clusters.commit()
    cluster = node.clusters.cluster = cluster_of("h", "p", version=(2, 0))
    node.port.hear(RoleChanged(cluster, "broker"))
    node.port.hear(AskTree(("x",)), P)
    node.port.advance(10 * TERM)  # it would write into a log that is not its own
    assert [m.attributes for m in node.port.take(NotOwner)] == [("x",)]


def test_who_has_no_room_in_the_log_learns_nothing_that_lasts() -> None:
    crowd = tuple(peer(f"c{n}") for n in range(HOLDERS_MOST))
    node = new_owner(CacheHoldersChanged(crowd))
    register(node)
    node.port.hear(AskTree(("x", "y")), P)
    (answer,) = node.port.take(TreeAnswer)
    assert [entry.attribute for entry in answer.entries] == ["x"]
    assert (answer.absent, answer.summaries, answer.term) == (("y",), (), 0.0)
    assert node.cache_holders.table.holders("y", node.port.now) == []


# --- a new primary ---


def test_a_suback_waits_for_those_only_who_may_have_cached_something() -> None:
    node = new_owner(CacheHoldersChanged((P, Q)))
    assert [to for to, _ in node.port.sent_to(AskCached)] == ["pub", "pub2"]
    register(node)
    report(node, P)
    assert not acknowledged(node)
    report(node, Q)
    assert acknowledged(node)


def test_without_cache_holders_a_suback_waits_for_none() -> None:
    node = new_owner(CacheHoldersChanged((P,)), CacheHoldersChanged((), (P.id,)))
    register(node)
    assert acknowledged(node)


def test_cached_copies_are_invalidated_before_the_suback() -> None:
    node = new_owner(CacheHoldersChanged((P,)))
    register(node)
    report(node, P, ("x", 7), ("other", 0))
    ((to, recall),) = node.port.sent_to(Invalidate)
    assert (to, recall.attributes, recall.epoch) == ("pub", ("x",), 2)
    assert not acknowledged(node)
    node.port.hear(Invalidated(("x",), recall.number), P)
    assert acknowledged(node)


@pytest.mark.parametrize("has_reported", [False, True])
def test_what_a_former_primary_took_and_did_not_acknowledge_waits_likewise(
    has_reported: bool,
) -> None:
    """It may have ended between the log entry and the recall."""
    map_ = PartitionMap.single((1, 1), (H,))
    node = new_owner(
        MapChanged("x", map_.version, map_.entries),
        RegistrationAdded("x", registration("s/0", "x", "x > 1", S), 1),
        CacheHoldersChanged((P,)),
    )
    for _ in range(4):  # until the host has everything under the new epoch
        node.port.advance(0.25)
        for _, message in node.port.sent_to(Assign):
            node.port.hear(Assigned("x", message.version), H)
        node.clusters.commit()
        node.port.sent.clear()
    assert not node.owner.trees["x"].stale_hosts
    if has_reported:
        report(node, P, ("x", 7))
    node.port.hear(Installed("x", ("none",)), H)  # something makes the owner look what is due
    register(node)
    assert not acknowledged(node)
    if not has_reported:
        report(node, P, ("x", 7))
    ((to, recall),) = node.port.sent_to(Invalidate)
    assert (to, recall.attributes) == ("pub", ("x",))
    assert not acknowledged(node)
    node.port.hear(Invalidated(("x",), recall.number), P)
    assert acknowledged(node)


def test_what_is_trusted_is_taken_back_for_later_registrations_as_well() -> None:
    node = new_owner(CacheHoldersChanged((P,)))
    report(node, P, ("x", 0))
    register(node)
    assert [to for to, _ in node.port.sent_to(Invalidate)] == ["pub"]
    assert not acknowledged(node)


def test_an_answer_in_several_messages_counts_with_the_last() -> None:
    node = new_owner(CacheHoldersChanged((P,)))
    register(node)
    report(node, P, ("y", 0), last=False)
    assert not acknowledged(node)
    report(node, P)
    assert acknowledged(node)


def test_an_answer_to_another_primarys_question_counts_for_nothing() -> None:
    node = new_owner(CacheHoldersChanged((P,)))
    register(node)
    node.port.hear(CacheReport(KEY, 1, (), True), P)
    assert not acknowledged(node)


def test_who_does_not_answer_is_waited_out() -> None:
    node = new_owner(CacheHoldersChanged((P, Q)))
    report(node, Q)
    register(node)
    node.port.advance(TERM - 0.1)
    assert not acknowledged(node)
    node.port.advance(0.2)
    assert acknowledged(node)


def test_who_has_left_has_nothing_cached() -> None:
    node = new_owner(CacheHoldersChanged((P,)))
    register(node)
    node.port.hear(LinkDown(P, "bye", left=True))
    assert acknowledged(node)


def test_who_is_back_is_asked_again() -> None:
    node = new_owner(CacheHoldersChanged((P,)))
    node.port.take(AskCached)
    node.port.hear(LinkUp(P, True))
    assert node.port.sent_to(AskCached) == [], "the question is on its way"
    node.port.hear(LinkDown(P, "silent", left=False))
    node.port.hear(LinkUp(P, True))
    assert [to for to, _ in node.port.sent_to(AskCached)] == ["pub"]


@pytest.mark.parametrize("how", ["forked", "replanted", "logged"])
def test_where_others_may_have_cached_something_all_registrations_wait_for_the_term(
    how: str,
) -> None:
    """The cache holders of the other branch of a fork are not known."""
    node = new_owner(*([CacheHoldersChanged((), (), True)] if how == "logged" else []))
    cluster = node.clusters.cluster
    assert cluster is not None
    if how == "forked":
        node.port.hear(Elected(cluster, peer("old"), True))
    elif how == "replanted":
        node.port.hear(Replanted(cluster_of("gone")))
    assert [change.has_unknown for change in logged(node)] == ([] if how == "logged" else [True])
    register(node)
    node.port.advance(TERM - 0.1)
    assert not acknowledged(node)
    node.port.advance(0.2)
    assert acknowledged(node)
    assert node.owner.state.has_unknown_holders is False, "that is over"
    assert logged(node)[-1].has_unknown is False


def test_no_flood_of_reports_is_taken() -> None:
    node = new_owner(CacheHoldersChanged((P,)))
    with pytest.raises(ProtocolError):
        report(node, P, *[("x", 1)] * (MAX_BATCH + 1))


# --- those who have nothing cached any more ---


def test_who_is_gone_leaves_the_log_when_its_reports_are_over() -> None:
    node = owner()
    node.port.hear(AskTree(("x",)), P)
    node.clusters.commit()
    node.port.hear(LinkDown(P, "silent", left=False))
    logged(node)
    node.port.advance(TERM - 0.1)
    assert logged(node) == []
    node.port.advance(TERM)
    assert logged(node) == [CacheHoldersChanged((), (P.id,))]
    node.port.hear(AskTree(("x",)), P)
    assert logged(node) == [CacheHoldersChanged((P,))]


def test_who_reports_no_copy_leaves_the_log_and_is_not_waited_for_by_the_next_primary() -> None:
    node = new_owner(CacheHoldersChanged((P, Q)))
    report(node, P)
    report(node, Q, ("y", 0))
    node.port.advance(REPORTS_TOGETHER)
    assert logged(node) == [CacheHoldersChanged((), (P.id,))]


def test_who_reports_no_copy_and_is_granted_one_at_once_stays_in_the_log() -> None:
    node = new_owner(CacheHoldersChanged((P,)))
    report(node, P)
    node.port.hear(AskTree(("x",)), P)
    node.port.advance(REPORTS_TOGETHER)
    assert logged(node) == []


def test_who_may_ask_again_stays_for_a_while() -> None:
    node = new_owner(CacheHoldersChanged((P,)))
    node.port.advance(KEEP_FOR)
    assert logged(node) == []
    node.port.advance(2 * TERM)
    assert logged(node) == [CacheHoldersChanged((), (P.id,))]
