"""Registrations of a ring that ends: adopted first, and then they are not served there any more."""

from __future__ import annotations

import msgspec

from overlay.chord.events import MergePhaseWanted
from overlay.machine import Peer
from overlay.upper_tree.messages import (
    Adopt,
    Adopted,
    AdoptRefused,
    AskTree,
    Invalidate,
    Invalidated,
    NotOwner,
    Register,
    Registered,
    Unregister,
)
from overlay.upper_tree.owner.registrations.registry_merge import RegistryMerge
from tests.support.trees import OwnerNode, Rig, S, cluster_of, registration
from tests.support.world import peer

INTO = msgspec.structs.replace(cluster_of("w"), ring="a better one")


class Stages:
    """What is reported of the stages reached."""

    def __init__(self) -> None:
        self.reached: list[int] = []
        self.audience: tuple[Peer, ...] = ()

    def merge_phase_reached(self, stage: int, audience: tuple[Peer, ...] = ()) -> None:
        if stage not in self.reached:
            self.reached.append(stage)
        self.audience = audience


def losing(*selectors: str) -> tuple[Rig, Stages]:
    """An owner with these registrations at h1, whose ring is about to end."""
    rig, stages = Rig("h1"), Stages()
    rig.net.node("w")
    node = rig.owner
    union = RegistryMerge(
        node.port, rig.settings, stages, node.owner, node.registry, node.summaries
    )
    node.port.add(union)
    rig.register(*selectors)
    rig.settle()
    return rig, stages


def begin(rig: Rig, stage: int) -> None:
    rig.owner.port.hear(MergePhaseWanted(INTO, stage))
    rig.settle(0.4)


def adopt_all(rig: Rig) -> None:
    """The winner's owner answers what it was asked for."""
    for _, message in rig.owner.port.sent_to(Adopt):
        for each in message.registrations:
            rig.owner.port.hear(Adopted(each.attribute, (each.id,)), peer("w"))
    rig.settle(0.4)


def winning(*names: str) -> OwnerNode:
    """An owner in the winning ring."""
    rig = Rig("h1")
    node = rig.owner
    node.port.add(
        RegistryMerge(node.port, rig.settings, Stages(), node.owner, node.registry, node.summaries)
    )
    return node


def test_all_is_united_when_the_winner_has_acknowledged_every_registration() -> None:
    rig, stages = losing("x > 1", "x > 2")
    begin(rig, 1)
    ((to, message), *_) = rig.owner.port.sent_to(Adopt)
    assert to == "w"
    assert [each.id for each in message.registrations] == ["s/0", "s/1"]
    assert message.incarnations == (1, 1)
    rig.owner.port.hear(Adopted("x", ("s/0",)), peer("w"))
    rig.settle(0.4)
    assert stages.reached == []
    rig.owner.port.hear(Adopted("x", ("s/1",)), peer("w"))
    rig.settle(0.4)
    assert stages.reached == [1]
    assert rig.serving(5) == ["h1"]


def test_who_registers_or_ends_waits_while_a_ring_ends() -> None:
    rig, _ = losing("x > 1")
    begin(rig, 1)
    rig.owner.port.sent.clear()
    late = registration("s/9", "x", "x > 3", S)
    rig.owner.port.hear(Register(1, (late,)), S)
    rig.owner.port.hear(Unregister("x", ("s/0",)), S)
    refused = [message.attributes for _, message in rig.owner.port.sent_to(NotOwner)]
    assert refused == [("x",), ("x",)]
    assert list(rig.owner.owner.trees["x"].tree.registrations) == ["s/0"]


def test_another_owner_in_the_winning_ring_is_asked_where_one_names_it() -> None:
    rig, _ = losing("x > 1")
    begin(rig, 1)
    rig.owner.port.sent.clear()
    rig.net.node("v")
    other = msgspec.structs.replace(cluster_of("v"), ring=INTO.ring)
    rig.owner.port.hear(AdoptRefused(("x",), other), peer("w"))
    rig.settle(0.4)
    assert [to for to, _ in rig.owner.port.sent_to(Adopt)] == ["v"]


def test_what_is_not_answered_is_said_again() -> None:
    rig, _ = losing("x > 1")
    begin(rig, 1)
    rig.owner.port.sent.clear()
    rig.settle(1.2)
    assert len(rig.owner.port.sent_to(Adopt)) > 1


def test_a_ring_has_stopped_when_its_hosts_have_said_so() -> None:
    rig, stages = losing("x > 1")
    rig.net.run(2.0)
    rig.net.flush()
    begin(rig, 1)
    adopt_all(rig)
    rig.owner.port.hear(MergePhaseWanted(INTO, 2))
    rig.net.run(0.2)  # the host has the order, and its answer is on its way
    assert stages.reached == [1]
    rig.settle(0.4)
    assert stages.reached == [1, 2]
    assert rig.serving(5) == []
    assert stages.audience == (S,)


def test_a_silent_host_is_waited_for_as_long_as_its_lease_lasts() -> None:
    rig, stages = losing("x > 1")
    rig.net.run(2.0)
    rig.net.flush()
    begin(rig, 1)
    adopt_all(rig)
    rig.net.links.clear()
    rig.net.cut("p", "h1")
    rig.owner.port.hear(MergePhaseWanted(INTO, 2))
    rig.settle(1.0)
    assert stages.reached == [1]
    rig.settle(rig.settings.tree.serving_most)
    assert stages.reached == [1, 2]


def test_a_ring_has_stopped_when_no_cached_answer_of_it_is_trusted() -> None:
    rig, stages = losing("x > 1")
    asker = rig.net.node("a")
    rig.owner.port.hear(AskTree(("nobody's",), 1), asker.me)
    begin(rig, 1)
    adopt_all(rig)
    rig.owner.port.hear(MergePhaseWanted(INTO, 2))
    rig.settle(0.4)
    ((to, recall),) = [(to, m) for to, m in rig.owner.port.sent_to(Invalidate)]
    assert (to, recall.attributes) == ("a", ("nobody's",))
    assert stages.reached == [1]
    rig.owner.port.hear(Invalidated(("nobody's",), recall.number), asker.me)
    rig.settle(0.4)
    assert stages.reached == [1, 2]


def test_a_ring_that_does_not_end_serves_again() -> None:
    rig, _ = losing("x > 1")
    begin(rig, 1)
    adopt_all(rig)
    begin(rig, 2)
    assert rig.serving(5) == []
    rig.owner.port.hear(MergePhaseWanted(None, 0))
    rig.settle(6.0)
    assert rig.serving(5) == ["h1"]
    rig.register("x > 7", first=1)
    assert list(rig.owner.owner.trees["x"].tree.registrations) == ["s/0", "s/1"]


def test_what_is_adopted_is_acknowledged_to_who_gave_it_not_to_its_subscriber() -> None:
    node = winning()
    sponsor = peer("l")
    given = registration("s/0", "x", "x > 1", S)
    for _ in range(2):  # who asks again gets the answer again
        node.port.hear(Adopt((given,), (3,)), sponsor)
        node.clusters.commit()
        node.port.world.flush()
    assert node.owner.trees["x"].tree.registrations == {"s/0": given}
    assert node.owner.trees["x"].tree.incarnations == {"s/0": 3}
    sent = [(to, m.ids) for to, m in node.port.sent_to(Adopted)]
    assert sent
    assert all(each == ("l", ("s/0",)) for each in sent)
    assert node.port.sent_to(Registered) == []


def test_what_an_owner_in_the_winning_ring_does_not_own_it_refuses() -> None:
    node = winning()
    node.clusters.giving_away = cluster_of("q")
    given = registration("s/0", "x", "x > 1", S)
    node.port.hear(Adopt((given,), (3,)), peer("l"))
    ((to, refused),) = node.port.sent_to(AdoptRefused)
    assert (to, refused.attributes, refused.cluster) == ("l", ("x",), None)
