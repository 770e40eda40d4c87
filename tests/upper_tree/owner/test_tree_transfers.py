"""Hosts that take virtual nodes over are given very many registrations some in each turn, and serve
when they have all."""

from __future__ import annotations

import pytest

from harness.overlays import settings
from overlay.links.events import LinkDown
from overlay.upper_tree.messages import Assign, Assigned, Install, Register, Unregister
from overlay.upper_tree.owner import registration_transfers
from overlay.upper_tree.owner.registration_transfers import TransferDue
from tests.support.trees import Rig, registration, served
from tests.support.trees import event as make_event
from tests.support.world import peer

PART = 10
MANY = 35


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration_transfers, "TRANSFERRED_AT_ONCE", PART)


def moving() -> Rig:
    """A tree at h1 with some registrations, which is about to be h1's and h2's."""
    rig = Rig("h1", chosen=settings(tree={"split_at": 1_000}), replicas=2)
    rig.register(*(f"x > {n}" for n in range(MANY)))
    rig.settle()
    return rig


def restoring() -> Rig:
    """… which h1, whose link was lost and is back, is about to be given again."""
    rig = moving()
    owner = rig.owner
    owner.port.hear(LinkDown(peer("h1"), "lost", False, ()))
    rig.members("h1")
    owner.port.sent.clear()
    owner.owner.hosts._unreachable.clear()
    owner.rebalance._restore(owner.owner.trees["x"])
    return rig


def sent(rig: Rig) -> tuple[int, list[bool]]:
    """How many registrations h1 was sent, and whether each `Assign` gave it something to serve."""
    port = rig.owner.port
    installed = [m for to, m in port.sent_to(Install) if to == "h1"]
    assigned = [bool(m.intervals) for to, m in port.sent_to(Assign) if to == "h1"]
    return sum(len(m.registrations) for m in installed), assigned


def test_a_host_is_ordered_to_serve_behind_the_last_part() -> None:
    rig = restoring()
    owned = rig.owner.owner.trees["x"]
    version = owned.next_map.version  # type: ignore[union-attr]
    assert sent(rig) == (PART, [False])
    rig.owner.port.hear(Assigned("x", version), peer("h1"))  # the order to forget
    assert owned.next_map is not None, "it has not everything yet"
    turns = []
    while TransferDue() in rig.owner.port.timers:
        rig.owner.port.world.now += 0.01
        rig.owner.port.fire(TransferDue())
        turns.append(sent(rig))
    assert [count for count, _ in turns] == [PART, PART, MANY - 3 * PART]
    assert [assigned for _, assigned in turns] == [[], [], [True]]
    rig.owner.port.hear(Assigned("x", version), peer("h1"))
    assert owned.next_map is None


def test_what_ends_or_comes_meanwhile_is_right_in_the_end() -> None:
    rig = restoring()
    port = rig.owner.port
    port.hear(Unregister("x", ("s/1", "s/30")), peer("s"))
    port.hear(Register(1, (registration("s/90", "x", "x > 0", peer("s")),)), peer("s"))
    rig.settle()
    found = served(rig.hosts["h1"], make_event(1, x=1_000))
    assert found is not None
    assert sorted(found) == sorted(f"s/{n}" for n in (*range(MANY), 90) if n not in (1, 30))


def test_a_change_that_is_given_up_ends_its_transfer() -> None:
    rig = restoring()
    sent(rig)
    rig.owner.port.hear(LinkDown(peer("h1"), "lost", False, ()))
    rig.owner.port.fire(TransferDue())
    assert sent(rig) == (0, [])
    rig.settle(12.0)
    assert not rig.owner.owner.trees["x"].is_changing


def test_hosts_that_gain_the_same_are_sent_the_same_messages() -> None:
    rig = Rig("h1", "h2", chosen=settings(tree={"split_at": 1_000}), replicas=2)
    rig.register(*(f"x > {n}" for n in range(MANY)))
    rig.settle()
    owner = rig.owner
    for name in ("h1", "h2"):
        owner.owner.trees["x"].mark_stale(peer(name))
    owner.port.sent.clear()
    owner.rebalance._restore(owner.owner.trees["x"])
    by_host = {
        name: [m for to, m in [(p.id, m) for p, m in owner.port.sent] if to == name]
        for name in ("h1", "h2")
    }
    first, second = ([m for m in by_host[name] if isinstance(m, Install)] for name in by_host)
    assert first
    assert all(mine is other for mine, other in zip(first, second, strict=True))
