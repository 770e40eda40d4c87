"""What a policy leaves of a selector, judged by SQLite: nothing that the policy does not permit.

`make confinement` tries as many triples of selector, policy and event as `CONFINEMENT` says.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from matching import GroupedIndex, Predicate, SelectorError, compile_selector
from matching.predicate import matches_all
from matching.selector.unparse import unparse
from overlay.tenants.policy import Confinement, Policy, TenantPolicy
from tests.matching.matching_strategies import PATIENT, events, texts, typed
from tests.matching.test_matching_sqlite import Oracle, oracle

__all__ = ["oracle"]

SELECTORS, POLICIES, EVENTS = 8, 4, 32
TRIPLES = int(os.environ.get("CONFINEMENT", "3000"))

selectors = st.lists(st.one_of(texts(), typed.map(unparse)), min_size=1, max_size=SELECTORS)
policies = st.lists(st.one_of(texts(), typed.map(unparse)), min_size=1, max_size=POLICIES)
batches = st.lists(events, min_size=EVENTS // 2, max_size=EVENTS)


@settings(PATIENT, max_examples=max(1, TRIPLES // (SELECTORS * POLICIES * EVENTS // 4)))
@given(asked=selectors, permitted=policies, rows=batches)
def test_nothing_leaks(
    oracle: Oracle, asked: list[str], permitted: list[str], rows: list[dict[str, Any]]
) -> None:
    wanted = [oracle.verdicts(text, rows) for text in asked]
    for may in permitted:
        known = Confinement(Policy(1, {"acme": TenantPolicy(may, may)}))
        allowed = oracle.verdicts(may, rows)
        assert known.may_publish("acme", rows) == [one is True for one in allowed]
        assert [known.may_see("acme", row) for row in rows] == [one is True for one in allowed]
        for text, verdicts in zip(asked, wanted, strict=True):
            expected = [a is True and b is True for a, b in zip(verdicts, allowed, strict=True)]
            assert found(known, text, rows) == expected


def found(known: Confinement, text: str, rows: list[dict[str, Any]]) -> list[bool]:
    """Which events a host finds for a subscription: each of its conjunctions is registered, and
    narrowed by the owner."""
    index: GroupedIndex[int, str] = GroupedIndex()
    for number, conjunction in enumerate(compile_selector(text).conjunctions):
        try:
            narrowed = known.narrow("acme", Predicate.of(conjunction).text)
        except SelectorError:
            assume(False)
        index.add(number, compile_selector(narrowed), "node")
    places = index.find_by_group(rows).get("node", ([], []))[0]
    return [place in places for place in range(len(rows))]


def test_columns_mean_what_each_event_by_itself_means() -> None:
    """TRUE and 1 are one key of a dictionary, and not one value."""
    predicate = compile_selector("a = 1 OR b IN ('x', 'y') AND a < 5")
    for batch in (
        [{"a": 1, "b": "x"}, {"a": True, "b": "x"}, {"a": 1.0, "b": "z"}] * 3,
        [{"a": n, "b": "xyz"[n % 3]} for n in range(9)],
        [{"a": None, "b": "x"}] * 6,
        [{"b": "x"}] * 6,
        [],
    ):
        assert matches_all(predicate, batch) == [predicate.matches(each) for each in batch]
