"""The block engine finds what brute force finds, through growth, churn and unusual values."""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matching import Index, Predicate, attr, compile_selector, warm
from matching.engine import block_engine
from matching.engine.block_engine import BlockEngine
from matching.engine.codes import EXACT, MISSING, Coder, StringDictionary, number_code
from matching.engine.columns import Columns
from matching.engine.events import MAX_SHAPES
from matching.engine.kernels import layout
from matching.selector.evaluate import condition
from matching.selector.expression import Expression
from matching.selector.parser import parse
from matching.values import Interval, prefix_interval
from tests.matching.matching_strategies import (
    PATIENT,
    any_value,
    big_ints,
    events,
    floats,
    ints,
    strings,
    typed,
    wild,
    wild_events,
)

Event = dict[str, Any]
keys = st.integers(0, 7)
additions = st.lists(st.tuples(keys, st.one_of(typed, wild)), min_size=1, max_size=4)
steps = st.lists(st.one_of(keys, additions), min_size=1, max_size=20)
"""A key that is removed, or predicates that are added together: of a key that is there, or twice
among them, the last one counts."""
finite = st.one_of(ints, floats, big_ints, st.floats(allow_nan=False, allow_infinity=False))


@pytest.fixture(autouse=True, scope="module")
def _warm() -> None:
    warm()


@settings(PATIENT, max_examples=150)
@given(
    steps=steps,
    batch=st.lists(st.one_of(events, wild_events), min_size=1, max_size=4),
    change_over=st.integers(1, 8),
    alike_from=st.sampled_from([1, 8]),
)
def test_block_engine_is_brute_force_through_any_churn(
    steps: list[int | list[tuple[int, Expression]]],
    batch: list[Event],
    change_over: int,
    alike_from: int,
) -> None:
    with mock.patch.object(block_engine, "ALIKE_FROM", alike_from):
        through_churn(steps, batch, change_over)


def through_churn(
    steps: list[int | list[tuple[int, Expression]]], batch: list[Event], change_over: int
) -> None:
    index: Index[int] = Index(change_over)
    model: dict[int, Predicate] = {}
    for step in steps:
        if isinstance(step, list):
            added = [(key, Predicate(tree)) for key, tree in step]
            index.add(*added[0]) if len(added) == 1 else index.add_many(added)
            model.update(added)
        elif step in model:
            index.remove(step)
            del model[step]
        # Matching takes part in the change-over.
        expected = [k for k, predicate in model.items() if predicate.matches(batch[0])]
        assert index.match(batch[0]) == expected
    assert [index.match(event) for event in batch] == [
        [k for k, predicate in model.items() if predicate.matches(event)] for event in batch
    ]


@settings(PATIENT, max_examples=80)
@given(trees=st.lists(st.one_of(typed, wild), min_size=1, max_size=30), event=wild_events)
def test_what_is_added_together_is_found(trees: list[Expression], event: Event) -> None:
    index: Index[int] = Index(1)
    index.add_many(enumerate(Predicate(tree) for tree in trees))
    assert index.match(event) == [n for n, t in enumerate(trees) if Predicate(t).matches(event)]


@settings(PATIENT, max_examples=40)
@given(ends=st.lists(st.tuples(strings, finite, finite, finite), min_size=1, max_size=12))
def test_conjunctions_of_one_shape_are_encoded_as_each_by_itself(
    ends: list[tuple[str, float, float, float]],
) -> None:
    """Also where a string has no code of its own, or integers share one."""
    made = [
        (attr("a") == text) & attr("b").between(*sorted([low, high])) & (attr("c") >= other)
        for text, low, high, other in ends
    ]
    conjunctions = [conjunction for one in made for conjunction in one.conjunctions]
    with mock.patch("matching.engine.codes.APPEND_GAP", 1):
        one, many = Columns(conjunctions[:1]), Columns(conjunctions[:1])
        alone: list[list[str]] = [[] for _ in conjunctions]
        right = [one.encode(n, each, alone[n]) for n, each in enumerate(conjunctions)]
        for conjunction in conjunctions:
            for constraint in conjunction.constraints.values():
                constraint.codes = None  # as if no engine had asked
        together: list[list[str]] = [[] for _ in conjunctions]
        names = tuple(conjunctions[0].constraints)
        assert many.has(names)
        assert all(each.is_box for each in conjunctions)
        labels = range(len(conjunctions))
        jobs, loose = many.encode_alike(names, labels, conjunctions, together)
    flags = [job[layout.J_FLAGS] for job in right]
    assert {n for n, flag in enumerate(flags) if flag & layout.PYTHON} == set(loose)
    assert jobs.tolist() == right
    assert together == alone


def _random_predicate(rng: random.Random) -> Predicate:
    predicate = None
    for name in rng.sample("abcdefgh", rng.randint(1, 4)):
        low = rng.randint(-40, 40)
        part = rng.choice(
            [
                attr(name).between(low, low + rng.randint(0, 30)),
                attr(name) > low / 3,
                attr(name) == low,
                attr(name).isin([low, low + 7, str(low)]),
                attr(name) != low,
                attr(name).like(f"{low}%"),
                attr(name) >= str(low),
                attr(name) == bool(low % 2),
            ]
        )
        predicate = part if predicate is None else predicate & part
    assert predicate is not None
    return predicate


def _random_event(rng: random.Random) -> Event:
    number = rng.randint(-45, 60)
    choices: list[Any] = [number, number / 3, float(number), str(number), bool(number % 2), None]
    return {name: rng.choice(choices) for name in rng.sample("abcdefgh", rng.randint(1, 8))}


def test_thousands_through_growth_and_churn() -> None:
    """Enough to fill blocks, split leaves, hand leaves over and use places again."""
    rng = random.Random(1)
    index: Index[int] = Index(100)
    model: dict[int, Predicate] = {}
    for number in range(200):
        model[number] = _random_predicate(rng)
        index.add(number, model[number])
    for number in range(200, 3000, 50):  # they meet blocks that are full
        more = {number + n: _random_predicate(rng) for n in range(50)}
        index.add_many(more.items())
        model |= more
    for number in range(3000, 5000, 50):
        for gone in rng.sample(list(model), 50):
            index.remove(gone)
            del model[gone]
        more = {number + n: _random_predicate(rng) for n in range(50)}
        index.add_many(more.items())
        model |= more
    assert index.block_engine is not None
    assert len(index.block_engine) > 2900
    for _ in range(40):
        event = _random_event(rng)
        expected = [n for n, predicate in model.items() if predicate.matches(event)]
        assert index.match(event) == expected
        labels = index.match_labels(event).tolist()
        assert sorted(set(index.keys_of(labels))) == sorted(expected)
    for number in list(model):
        index.remove(number)
    assert len(index.block_engine) == 0
    assert index.match({"a": 1}) == []


def test_alike_subscriptions_fill_block_after_block() -> None:
    """No tree can part them, and their blocks are used again when they are empty."""
    index: Index[int] = Index(10)
    for _ in range(3):
        for number in range(3 * layout.BLOCK):
            index.add(number, attr("x") == 1)
        assert index.match({"x": 1}) == list(range(3 * layout.BLOCK))
        assert index.match({"x": 2}) == []
        for number in range(3 * layout.BLOCK):
            index.remove(number)
    assert index.block_engine is not None
    assert len(index.block_engine._blocks) <= 6


def test_integers_beyond_the_floats_are_exact() -> None:
    index: Index[int] = Index(1)
    numbers = [EXACT - 1, EXACT, EXACT + 1, EXACT + 2, 2**63 - 1, 2**63 - 2, float(2**62)]
    for key, number in enumerate(numbers):
        index.add(key, attr("x") == number)
        index.add(~key, attr("x") > number)
    for value in [*numbers, 2**62 + 1, 0, -EXACT - 1, 1e300]:
        expected = [k for k, n in enumerate(numbers) if value == n]
        expected += [~k for k, n in enumerate(numbers) if value > n]
        assert sorted(index.match({"x": value})) == sorted(expected)


def test_events_of_one_shape_and_exceptions_among_them() -> None:
    """Written at once from the third on; what is no number, and new columns, come in between."""
    index: Index[int] = Index(1)
    predicates = [attr("x") > 1, attr("y") <= 2, attr("x") == "a", attr("y") == True]  # noqa: E712
    for key, predicate in enumerate(predicates):
        index.add(key, predicate)
    odd: list[Any] = ["a", True, False, 10**400, -(10**400), None, 1, -0.0, 2.5]
    for number, value in enumerate(odd * 2):
        if number == len(odd):
            predicates += [attr("z") < 0, attr("w") == 3]
            for key in (4, 5):
                index.add(key, predicates[key])
        for event in (
            {"z": -1.0, "x": 2.0, "w": 3, "y": 1},
            {"z": -1.0, "x": 0.0, "w": 3, "y": 1},
            {"z": -1.0, "x": 2.0, "w": 3, "y": value},
            {"z": value, "x": value, "w": 3, "y": 7},
            {"w": 3.0, "y": 7},
            {"y": 7, "w": 3.0},
        ):
            expected = [key for key, predicate in enumerate(predicates) if predicate.matches(event)]
            assert index.match(event) == expected


def test_shapes_are_remembered_within_bounds() -> None:
    index: Index[int] = Index(1)
    for key in range(20):
        index.add(key, attr(f"x{key}") > key)
    for number in range(2 * MAX_SHAPES):
        names = [f"x{number % 20}", f"u{number}"]
        for _ in range(3):
            assert index.match(dict.fromkeys(names, 30.0)) == [number % 20]
    assert index.block_engine is not None
    assert len(index.block_engine._event._shapes) == MAX_SHAPES


def test_more_attributes_than_columns() -> None:
    index: Index[int] = Index(1)
    for number in range(layout.COLUMNS + 50):
        index.add(number, (attr(f"x{number}") > number) & (attr("y") == 1))
    for number in range(0, layout.COLUMNS + 50, 7):
        event = {f"x{number}": number + 1, f"x{number - 1}": 0, "y": 1}
        assert index.match(event) == [number]


@pytest.mark.parametrize("at_once", [False, True])
def test_of_attributes_without_columns_nothing_is_asked_for_each_event(at_once: bool) -> None:
    """One selector of 900 attributes made every event 20 times as expensive."""
    index: Index[str] = Index(1)
    names = [f"s{number}" for number in range(layout.COLUMNS + 200)]
    items = [("long", compile_selector(" OR ".join(f"{name} = 1" for name in names)))]
    items += [(f"y{number}", compile_selector(f"y = {number}")) for number in range(20)]
    if at_once:
        index.add_many(items)
    else:
        for key, predicate in items:
            index.add(key, predicate)
    for name in names:
        assert index.match({name: 1, "z": 1}) == ["long"]
        assert index.match({name: 2, "y": 3}) == ["y3"]
    engine = index.block_engine
    assert engine is not None
    assert not engine._checks, "Python would evaluate these for each event"
    index.remove("long")
    assert index.match({names[-1]: 1}) == []


def test_more_constraints_than_a_record_has_room_for() -> None:
    index: Index[str] = Index(1)
    names = [f"x{number}" for number in range(layout.STRIDE + 4)]
    index.add("all", compile_selector(" AND ".join(f"{name} > 1" for name in names)))
    event: Event = dict.fromkeys(names, 2)
    assert index.match(event) == ["all"]
    for name in names:
        assert index.match(event | {name: 1}) == []


@settings(PATIENT, max_examples=60)
@given(lists=st.lists(st.lists(st.integers(-500, 500), min_size=200, max_size=300), max_size=2))
def test_in_with_hundreds_of_values(lists: list[list[int]]) -> None:
    index: Index[int] = Index(1)
    index.add(99, attr("x") > 0)
    for key, values in enumerate(lists):
        index.add(key, attr("x").isin(values))
    for value in range(-20, 20):
        expected = [k for k, values in enumerate(lists) if value in values]
        assert index.match({"x": value}) == [99] * (value > 0) + expected


@settings(PATIENT, max_examples=300)
@given(low=any_value, high=any_value, value=any_value, others=st.lists(strings, max_size=8))
def test_codes_keep_the_order(low: Any, high: Any, value: Any, others: list[str]) -> None:
    """A value in an interval has a code in the interval's codes; and only then, if not loose."""
    coder = Coder()
    for text in others:
        coder.strings.acquire(text)
    for interval in (
        Interval(_cut(low, 0), _cut(high, 1)),
        Interval(_cut(low, 1), _cut(high, 0)),
        prefix_interval(str(low)),
    ):
        first, last, loose = coder.interval(interval, [])
        inside = first <= _code(coder, value) <= last
        if interval.contains(value):
            assert inside
        elif not loose and not _beyond(value):
            assert not inside
        assert not first <= MISSING


def _cut(value: Any, side: int) -> Any:
    rank = 0 if isinstance(value, bool) else 2 if isinstance(value, str) else 1
    return (rank, value, side)


def _beyond(value: Any) -> bool:
    return isinstance(value, int) and abs(value) >= EXACT


def _code(coder: Coder, value: Any) -> int:
    if isinstance(value, bool):
        return MISSING + 2 + value
    return coder.strings.code(value) if isinstance(value, str) else number_code(value)


def test_strings_are_found_when_their_table_is_full() -> None:
    """Each falls between the one before and "a1": a gap has few dozen halvings in it."""
    index: Index[int] = Index(1)
    texts = ["a", "a1", *(f"a{'0' * number}1" for number in range(1, 80))]
    for key, text in enumerate(texts):
        index.add(key, attr("s") == text)
    assert index.block_engine is not None
    assert len(index.block_engine._columns.strings) < 60
    for key, text in enumerate(texts):
        assert index.match({"s": text}) == [key]
        assert index.match({"s": text + "x"}) == []


def test_strings_without_references_are_forgotten() -> None:
    strings_ = StringDictionary()
    for _ in range(2):
        assert strings_.acquire("b") is not None
    strings_.release("b")
    assert len(strings_) == 2
    strings_.release("b")
    assert len(strings_) == 1


def test_an_engine_without_columns_in_its_sample() -> None:
    engine = BlockEngine([])
    engine.add(0, compile_selector("x > 3").conjunctions[0])
    assert engine.match({"x": 4})[0].tolist() == [0]
    assert engine.match({"x": 3})[0].tolist() == []


def test_a_column_that_few_use_has_fewer_rows() -> None:
    """Both kinds side by side, through building, inserting and taking out; all values."""
    rng = random.Random(5)
    index: Index[int] = Index(1)
    model: dict[int, Predicate] = {}
    for number in range(3000):
        low = rng.randint(0, 400)
        model[number] = attr("often").between(low, low + rng.randint(0, 300))
        if number % 10 == 0:
            model[number] = attr("seldom").between(low, low + rng.randint(0, 99))
    index.add_many(list(model.items())[:2500])
    for number in range(2500, 3000):
        index.add(number, model[number])
    for number in range(0, 3000, 3):
        index.remove(number)
        del model[number]
    assert index.block_engine is not None
    lines = index.block_engine.columns.lines.tolist()
    assert lines == [0, layout.ROWS, layout.ROWS + layout.FEW_ROWS]
    for value in range(-1, 702, 6):
        for event in ({"often": value}, {"seldom": value, "often": value + 1}, {"seldom": value}):
            expected = [n for n, predicate in model.items() if predicate.matches(event)]
            assert index.match(event) == expected


def test_an_event_looks_at_a_part_of_the_blocks() -> None:
    """The tree puts those together that fail together; in order of arrival all blocks are alive."""
    rng = random.Random(3)
    items = []
    for label in range(6_000):
        names = rng.sample("abcdef", 3)
        lows = [rng.random() * 0.7 for _ in names]
        parts = [attr(n).between(low, low + 0.3) for n, low in zip(names, lows, strict=True)]
        items.append((label, (parts[0] & parts[1] & parts[2]).conjunctions[0]))
    engine = BlockEngine([conjunction for _, conjunction in items[:1000]])
    engine.add_many(items)
    alive = 0
    for _ in range(20):
        engine._memory.scratch.alive[:] = -1
        engine.match({name: rng.random() for name in "abcdef"})
        alive += int((engine._memory.scratch.alive >= 0).sum())
    assert alive / 20 < 0.7 * len(engine._blocks)


def test_what_selectors_share_has_the_codes_of_each_engine() -> None:
    shared = [
        compile_selector(text)
        for text in ("s >= 'm' AND x > 1", "s < 'q' AND x > 1", "s = 'm' AND x > 1", "x > 1")
    ]
    batch = [{"s": s, "x": 2} for s in ("a", "l", "m", "n", "n5", "p", "q", "z")]
    expected = [[n for n, one in enumerate(shared) if one.matches(event)] for event in batch]
    for other in "azn":  # strings that lie before, behind and between those that are shared
        index: Index[int] = Index(1)
        for number in range(40):
            index.add(100 + number, compile_selector(f"s = '{other}{number:03}' AND x < 0"))
        for number, one in enumerate(shared):
            index.add(number, one)
        index.match(batch[0])
        assert [index.match(event) for event in batch] == expected


@pytest.mark.parametrize(
    ("one", "other", "value"),
    [
        ("x = 1", "x = TRUE", True),
        ("x = 1", "x = '1'", "1"),
        ("x >= 1", "x > 1", 1),
        ("x = 1", "y = 1", 1),
        ("x BETWEEN 1 AND 5", "x BETWEEN 5 AND 1", 3),
        ("x BETWEEN 1 AND 5", "x BETWEEN 1 AND 'a'", 3),
    ],
)
def test_only_equal_comparisons_share_a_constraint(one: str, other: str, value: Any) -> None:
    index: Index[str] = Index(1)
    for text in (one, other):
        index.add(text, Predicate(parse(text)))
    event = {"x": value}
    expected = [text for text in (one, other) if condition(parse(text))(event)]
    assert index.match(event) == expected
    assert len(expected) == 1
