"""A host that is given back what it had takes it as it is, and nothing else."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from matching import BOTTOM, EVERYTHING, TOP, Cut, GroupedIndex, Interval, compile_selector, place
from overlay.machine import Peer
from overlay.settings import Settings
from overlay.upper_tree.host.assigned_trees import FormerOver
from overlay.upper_tree.host.constants import FORMER_FOR
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.messages import Assign, Install, Installed, Registration, Uninstall
from overlay.upper_tree.shards import lies_in
from overlay.upper_tree.sliced_inbox import AT_ONCE, ENDS
from tests.support.trees import HostNode, event, registration
from tests.support.world import one_node, peer

OLD, NEW, S = peer("old"), peer("new"), peer("s")


def made(numbers: range, attribute: str = "x") -> list[Registration]:
    return [registration(f"s{n}/0", attribute, f"{attribute} > {n}", S) for n in numbers]


def serving(registrations: list[Registration]) -> HostNode:
    """A host that serves all of x with these."""
    node = HostNode(one_node("h"), Settings()).lease()
    give(node, OLD, 1, registrations)
    return node


def give(node: HostNode, owner: Peer, epoch: int, registrations: list[Registration]) -> None:
    for at in range(0, len(registrations), 64):
        some = tuple(registrations[at : at + 64])
        node.port.hear(Install("x", epoch, some), owner)
        node.port.advance(0.01)
    node.port.hear(Assign("x", (epoch, 2), (EVERYTHING,)), owner)


def matched(node: HostNode, value: int) -> set[str]:
    tree = node.hosting.trees["x"]
    return set(tree.match(event(1, x=value)))


def test_what_a_new_owner_gives_again_is_neither_compiled_nor_indexed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registrations = made(range(100))
    node = serving(registrations)
    added: list[object] = []
    add_many = GroupedIndex.add_many

    def counted(self: Any, items: Any, group: object) -> None:
        added.extend(key for key, _ in items)
        add_many(self, items, group)

    monkeypatch.setattr(GroupedIndex, "add_many", counted)
    node.port.hear(Assign("x", (2, 1)), NEW)
    node.port.take(Installed)
    more = made(range(100, 103))
    give(node, NEW, 2, [*registrations, *more])
    assert added == [("x", one.id) for one in more]
    said = [id_ for message in node.port.take(Installed) for id_ in message.ids]
    assert said == [one.id for one in (*registrations, *more)]
    assert matched(node, 1_000) == {one.id for one in (*registrations, *more)}


def test_what_its_owner_does_not_give_again_is_gone_when_the_tree_is_served() -> None:
    registrations = made(range(20))
    node = serving(registrations)
    node.port.hear(Assign("x", (2, 1)), NEW)
    changed = registration("s3/0", "x", "x > 500", S)
    kept = [one for n, one in enumerate(registrations) if n % 2 and n != 3]
    give(node, NEW, 2, [*kept, changed])
    assert matched(node, 100) == {one.id for one in kept}
    assert matched(node, 1_000) == {one.id for one in (*kept, changed)}
    assert len(node.hosting.trees["x"].registrations) == len(kept) + 1


def test_what_ends_while_the_tree_is_given_back_stays_ended() -> None:
    registrations = made(range(4))
    node = serving(registrations)
    node.port.hear(Assign("x", (2, 1)), NEW)
    node.port.hear(Install("x", 2, tuple(registrations)), NEW)
    node.port.hear(Uninstall("x", 2, ("s1/0",)), NEW)
    node.port.hear(Assign("x", (2, 2), (EVERYTHING,)), NEW)
    assert matched(node, 100) == {"s0/0", "s2/0", "s3/0"}


def test_a_tree_that_is_not_given_back_is_dropped_in_parts() -> None:
    part = AT_ONCE * ENDS
    node = serving(made(range(part + 10)))
    assert node.hosting.index is not None
    node.port.hear(Assign("x", (2, 1)), NEW)
    assert len(node.hosting.index) == part + 10, "one turn drops nothing"
    node.port.world.run(FORMER_FOR - 0.1)
    assert len(node.hosting.index) == part + 10
    node.port.fire(FormerOver())
    assert len(node.hosting.index) == part + 10, "too early"
    node.port.world.now += 0.2
    node.port.fire(FormerOver())
    assert len(node.hosting.index) == 10
    node.port.fire(FormerOver())
    assert len(node.hosting.index) == 0
    assert node.hosting.trees == {}


BOUNDS = (
    BOTTOM,
    *(place(number) for number in range(6)),
    *((1, 6, side / 4) for side in range(5)),
    TOP,
)


ENDS_OF_VALUES = st.sampled_from([cut for cut in BOUNDS if cut[2] in (0, 1)])
"""Not those of shards."""


@given(
    spans=st.lists(st.integers(0, len(BOUNDS) - 2), unique=True),
    ends=st.lists(st.tuples(ENDS_OF_VALUES, ENDS_OF_VALUES), max_size=12),
)
def test_a_host_keeps_the_registrations_that_lie_in_what_it_serves(
    spans: list[int], ends: list[tuple[Cut, Cut]]
) -> None:
    tree = HostedTree("x", None, Random(1))
    some = [
        replace(registration(f"s{number}/0", "x", "x > 1", S), interval=Interval(*each))
        for number, each in enumerate(ends)
    ]
    tree.install([(one, compile_selector("x > 1")) for one in some])
    served = [Interval(BOUNDS[number], BOUNDS[number + 1]) for number in sorted(spans)]
    tree.assign(Assign("x", (1, 1), tuple(served)))
    kept = {one.id for one in some if any(lies_in(one, interval) for interval in served)}
    assert set(tree.registrations) == (kept if served else {one.id for one in some})
