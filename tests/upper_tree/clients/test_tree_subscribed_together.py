"""What programs subscribe in one turn goes through owner, host and indexes together: they notice
nothing of it that they would not notice of one subscription after the other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matching import Index, warm
from overlay.client import Failed, Gather, Gathered, Subscribe, Subscribed, Unsubscribe
from tests.matching.matching_strategies import PATIENT
from tests.upper_tree.clients.clients_rig import Rig

SHAPES = [
    "x = {n}",
    "x BETWEEN {n} AND {m}",  # of none of these if n > m
    "x >= {n} AND y = 's{m}'",
    "y = 's{n}' AND x <= {m}.5",
    "y LIKE 's{n}%'",
    "x = {n} OR y = 's{m}'",
    "x IS NULL",
    "x + z > {n}",
    "x > {n} AND x < {n}",
    "x > {n} AND",
    "y = 's{n}",
    "x = {n} AND z = 9007199254740993",
]
GRID: list[dict[str, Any]] = [
    *({"x": n} for n in range(4)),
    *({"x": n, "y": f"s{n + 1}", "z": n} for n in range(4)),
    *({"y": f"s{n}"} for n in range(4)),
    {"x": 1, "z": 9007199254740993},
    {"x": 1, "z": 9007199254740992},
    {"x": True, "y": 1},
]
NUMBERS = st.integers(0, 3)
SELECTORS = st.builds(
    lambda shape, n, m: shape.format(n=n, m=m), st.sampled_from(SHAPES), NUMBERS, NUMBERS
)
TURNS = st.lists(
    st.tuples(st.lists(SELECTORS, max_size=9), st.lists(st.integers(0, 20), max_size=2)),
    min_size=1,
    max_size=4,
)
"""Selectors that are subscribed in a turn, and which of all subscriptions end after it."""


@pytest.fixture(autouse=True, scope="module")
def _warm() -> None:
    warm()


class Program(Rig):
    """A program, and how it subscribes."""

    def __init__(self, gathers: bool, together: bool) -> None:
        super().__init__()
        self.together = together
        self.heard: list[tuple[str, int, str]] = []
        """Answers: kind, request, and what is in it."""
        assert self.host.hosting.index is not None
        indexes: list[Index[Any]] = [
            self.receiver.index, self.receiver.gathering.index, self.host.hosting.index.index,
        ]  # fmt: skip
        for index in indexes:
            index._change_over = 4  # so that both engines take part
        if gathers:
            self.command(1, Gather)

    def subscribe_all(self, texts: list[str]) -> None:
        for text in texts:
            self._request += 1
            self.clients.subscribe(1, Subscribe(self._request, text))
            if not self.together:
                self.port.turn()
                self.settle()
        self.port.turn()
        self.settle()
        failed = [("failed", one.request, one.reason) for one in self.port.answers(Failed)]
        self.acknowledged = [
            ("subscribed", one.request, one.subscription) for one in self.port.answers(Subscribed)
        ]
        self.heard = sorted([*self.heard, *failed, *self.acknowledged])

    def in_order(self) -> bool:
        """Whether what is registered in the same trees was acknowledged in its order."""
        trees = {mine.request: mine.trees for mine in self.clients.subscriptions.values()}
        order: dict[Any, list[int]] = {}
        for _, request, _ in self.acknowledged:
            order.setdefault(trees[request], []).append(request)
        return all(requests == sorted(requests) for requests in order.values())

    def end(self, which: list[int]) -> None:
        for number in which:
            ids = list(self.clients.subscriptions)
            if ids:
                self.command(1, Unsubscribe, ids[number % len(ids)])
        self.settle()

    def deliveries(self) -> list[Any]:
        self.publish(*GRID, client=2)
        self.settle()
        gathered = [
            [(event.sequence, event.attributes) for event in one.events]
            for one in self.port.answers(Gathered)
        ]
        return [gathered, self.shown()]

    def everywhere(self) -> list[Any]:
        """What owner, host and subscriber have."""
        trees = self.owner.owner.trees
        hosted = self.host.hosting.trees
        return [
            {name: list(owned.tree.registrations.values()) for name, owned in trees.items()},
            {name: list(tree.registrations) for name, tree in hosted.items() if tree.registrations},
            list(self.registrar.registrations),
            self.receiver.pivots,
            self.receiver.required,
            dict(trees.popularity),
            [(mine.id, mine.order, mine.trees) for mine in self.clients.subscriptions.values()],
        ]


@settings(PATIENT, max_examples=25)
@given(turns=TURNS, gathers=st.booleans())
def test_what_is_subscribed_together_is_as_one_after_the_other(
    turns: list[tuple[list[str], list[int]]], gathers: bool
) -> None:
    one, many = Program(gathers, together=False), Program(gathers, together=True)
    for texts, ended in turns:
        one.subscribe_all(texts)
        many.subscribe_all(texts)
        assert many.in_order()
        one.end(ended)
        many.end(ended)
        assert many.heard == one.heard
        assert many.everywhere() == one.everywhere()
        assert many.deliveries() == one.deliveries()


def test_one_that_causes_a_fault_does_not_take_the_others_of_its_turn_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Program(gathers=True, together=True)
    add_many = rig.receiver.gathering.index.add_many

    def fault(items: Any) -> None:
        if any("13" in predicate.text for _, predicate in items):
            raise RuntimeError("a fault")
        add_many(items)

    monkeypatch.setattr(rig.receiver.gathering.index, "add_many", fault)
    rig.subscribe_all(["x = 1", "x = 13", "x = 2"])
    assert [(kind, request) for kind, request, _ in rig.heard] == [
        ("failed", 3), ("subscribed", 2), ("subscribed", 4),
    ]  # fmt: skip
    assert rig.port.counts["faults_contained"] == 1
    assert len(rig.owner.owner.trees["x"].tree.registrations) == 2
