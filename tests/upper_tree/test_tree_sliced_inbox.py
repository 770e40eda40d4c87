"""C6: a host that is given very many registrations goes on with its other work in between."""

from __future__ import annotations

import pytest

from matching import EVERYTHING
from overlay.machine import Message, Peer, ProtocolError
from overlay.settings import Settings
from overlay.upper_tree import sliced_inbox
from overlay.upper_tree.host.assigned_trees import InstallDue
from overlay.upper_tree.host.orphaned_trees import ServingLeases
from overlay.upper_tree.messages import (
    Assign,
    Entry,
    Install,
    Register,
    ServingBeat,
    ServingReply,
    Uninstall,
)
from overlay.upper_tree.partition import PartitionMap
from overlay.upper_tree.sliced_inbox import (
    ASSIGNED,
    AT_ONCE,
    PART,
    PART_OF_TREE,
    SlicedInbox,
    parts,
)
from tests.support.trees import HostNode, registration
from tests.support.world import one_node, peer

OWNER, OTHER, S = peer("o"), peer("p"), peer("s")


class Host:
    """Notes what is done, and how many registrations in which turn."""

    def __init__(self) -> None:
        self.port = one_node("h")
        self.done: list[tuple[str, str, int]] = []
        kinds: tuple[type[Message], ...] = (Install, Uninstall, Assign)
        self.machine = SlicedInbox(
            self.port,
            InstallDue(),
            dict.fromkeys(kinds, self.do),
        )
        self.port.add(self.machine)

    def do(self, sender: Peer, message: Message) -> None:
        count = len(message.registrations) if isinstance(message, Install) else 0
        if isinstance(message, Install) and message.attribute == "bad":
            raise ProtocolError("a registration that does not compile")
        self.done.append((sender.id, type(message).__name__, count))

    def turn(self) -> int:
        """The timer's turn, if it is set; how many registrations were installed."""
        before = self.installed()
        self.port.fire(InstallDue())
        return self.installed() - before

    def installed(self) -> int:
        return sum(count for _, _, count in self.done)


def install(count: int, tree: str = "x") -> Install:
    made = [registration(f"{tree}/{n}", tree, f"{tree} = {n}", S) for n in range(count)]
    return Install(tree, 1, tuple(made))


KEY = "f" * 40
ASSIGN = Assign("x", (1, 1), (), 0, ())


def test_few_are_installed_in_the_turn_in_which_they_come() -> None:
    host = Host()
    host.port.hear(install(PART), OWNER)
    host.port.hear(ASSIGN, OWNER)
    assert host.done == [("o", "Install", PART), ("o", "Assign", 0)]
    assert host.turn() == 0


def test_many_take_several_turns_and_all_else_waits_behind_in_order() -> None:
    host = Host()
    host.port.hear(install(2 * AT_ONCE + 1), OWNER)
    host.port.hear(Uninstall("x", 1, ("x/0",)), OWNER)
    host.port.hear(install(3, "y"), OTHER)
    host.port.hear(ASSIGN, OWNER)
    assert host.installed() == AT_ONCE
    assert len(host.machine) == AT_ONCE + 1 + 1 + 3 + ASSIGNED
    assert [host.turn(), host.turn(), host.turn()] == [AT_ONCE, 1 + 3, 0]
    assert [kind for _, kind, _ in host.done] == [
        *["Install"] * (2 * AT_ONCE // PART_OF_TREE + 1), "Uninstall", "Install", "Assign",
    ]  # fmt: skip
    assert len(host.machine) == 0


def test_registrations_of_several_trees_are_taken_in_smaller_parts() -> None:
    alike = install(2 * PART_OF_TREE).registrations
    other = install(1, "y").registrations
    for taken, most in ((alike, PART_OF_TREE), (alike[1:] + other, PART)):
        found = [part for part, _ in parts(Register(1, taken)) if isinstance(part, Register)]
        sizes = [len(part.registrations) for part in found]
        assert sizes == [most] * (2 * PART_OF_TREE // most)
        assert [one for part in found for one in part.registrations] == list(taken)


def test_no_more_than_a_bound_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_inbox, "WAITING_MOST", AT_ONCE)
    host = Host()
    host.port.hear(install(10 * AT_ONCE), OWNER)
    assert host.installed() == 9 * AT_ONCE
    assert len(host.machine) == AT_ONCE


def test_a_bad_one_holds_up_nothing() -> None:
    host = Host()
    with pytest.raises(ProtocolError):
        host.port.hear(install(1, "bad"), OWNER)
    host.port.hear(install(AT_ONCE + 1), OWNER)
    host.port.hear(install(1, "bad"), OWNER)
    host.port.hear(ASSIGN, OWNER)
    while host.turn():
        pass
    assert host.installed() == AT_ONCE + 1
    assert host.done[-1] == ("o", "Assign", 0)
    assert host.port.counts["registrations_refused"] == 1


def test_what_a_lost_ring_said_is_forgotten() -> None:
    host = Host()
    host.port.hear(install(2 * AT_ONCE), OWNER)
    host.machine.clear()
    assert host.turn() == 0
    assert len(host.machine) == 0


def test_a_host_serves_by_no_lease_before_it_has_done_what_was_said_before() -> None:
    node = HostNode(one_node("h"), Settings()).lease()
    entry = Entry(EVERYTHING, (node.port.me,))
    served = Assign("x", (1, 1), (EVERYTHING,), 1, PartitionMap((1, 1), (entry,)).slice_for("h"))
    node.port.hear(served, OWNER)
    node.hosting.assigned.leases = (
        ServingLeases()
    )  # its term is over, and meanwhile much was registered
    words = [Assign("x", (1, 2), (), 0, ()), *(install(AT_ONCE, "y") for _ in range(3))]
    for word in [install(AT_ONCE + 1, "y"), *words]:
        node.port.hear(word, OWNER)
    for number in range(1, 4):
        node.port.hear(ServingBeat(KEY, KEY, 1, number, number - 1, 4.0), OWNER)
    assert "x" in node.hosting.trees, "what was said of it waits"
    assert not node.hosting.assigned.has_lease(node.hosting.trees["x"])
    assert node.port.take(ServingReply) == []
    node.port.advance(0.0)
    assert "x" not in node.hosting.trees
    assert len(node.port.take(ServingReply)) == 3


def test_a_long_selector_counts_for_as_many_as_it_costs() -> None:
    """32 of 16 KiB were one part, which took two seconds: longer than a primary may be silent."""
    host = Host()
    long = "x > 1 AND z LIKE '%" + "y" * 16_000 + "'"
    made = [registration(f"x/{n}", "x", long if n % 2 else "x > 1", S) for n in range(8)]
    host.port.hear(Install("x", 1, tuple(made)), OWNER)
    turns = [host.installed()]
    while len(host.machine):
        turns.append(host.turn())
    assert turns == [1] * 8
