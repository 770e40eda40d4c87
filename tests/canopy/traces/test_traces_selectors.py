"""The analysis' matching against an evaluator that shares nothing with it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canopy.traces.analysis import selection
from canopy.traces.analysis.selection import job
from canopy.traces.analysis.selection import matcher as matcher_module
from canopy.traces.analysis.selection.matcher import Matcher
from canopy.traces.analysis.selection.trees import (
    TreeError,
    condition,
    like_expression,
    parse_attributes,
    parse_tree,
)
from tests.support.traces.runs import Tree, verdict

OPS = ("=", "<>", "<", "<=", ">", ">=")
ODD = "we\"ird.'na?me[]`€😀"
VALUES: list[Any] = [
    *(True, False, None, 0, 1, -1, 5, 7, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)),
    *(0.0, -0.0, 1.0, 5.0, 0.1, 0.30000000000000004, 4.5, -2.5, 1e-7, 5e-324, 1e22, 1.5e300),
    *(9007199254740992.0, 9.223372036854775807e18, -9.3e18, 1e19),
    *(
        "",
        "a",
        "A",
        "abc",
        "a%c",
        "a_c",
        "10",
        "true",
        "é",
        "\uffff",
        "😀",
        "a\nb",
        "o'k\\",
        "x\0y",
    ),
]
PATTERNS: list[tuple[str, str | None]] = [
    *[(p, None) for p in ("a%", "%c", "a_c", "%", "", "_", "%b%", "a\\%c", "😀", "a%c", "%a%c%")],
    *[("a!%c", "!"), ("a!_c", "!"), ("a!", "!"), ("%!%%", "!"), ("a%%c", "%"), ("_", "_")],
]


def attr(name: str) -> Tree:
    return ["attr", name]


def lit(value: Any) -> Tree:
    return ["lit", value]


def single_trees() -> list[Tree]:
    """Every comparison of an attribute with a literal of each kind, and the other operators."""
    literals: list[Any] = [
        True,
        1,
        5,
        -1,
        2**53 + 1,
        2**63 - 1,
        -(2**63),
        4.5,
        5.0,
        0.1,
        1e22,
        -9.3e18,
        9.3e18,
    ]
    literals += ["abc", "", "😀", "10", "o'k\\", "x\0y", 9007199254740992.0, -0.0]
    trees: list[Tree] = [["cmp", op, attr("x"), lit(v)] for v in literals for op in OPS]
    trees += [["cmp", op, lit(4.5), attr("x")] for op in OPS]
    trees += [["cmp", op, attr("x"), attr("y")] for op in OPS]
    trees += [["like", attr("x"), pattern, escape] for pattern, escape in PATTERNS]
    trees += [
        attr("x"),
        lit(True),
        lit(False),
        ["isnull", attr("x")],
        ["isnull", ["arith", "+", attr("x"), lit(1)]],
        ["isnull", ["arith", "/", attr("x"), attr("y")]],
        ["in", attr("x"), ["a", "abc", "😀"]],
        ["in", attr("x"), [1, 5.0, 2**53 + 1, 0.1]],
        ["in", attr("x"), [1.5]],
        ["in", attr("x"), [0, *range(100, 130)]],
        ["in", attr("x"), [-0.0, *(n + 0.5 for n in range(30))]],
        ["in", attr("x"), [True]],
        ["in", attr("x"), [1, "a", True]],
        ["in", ["arith", "+", attr("x"), attr("y")], [2, 6.0, 5.1]],
        ["between", attr("x"), lit(-1), lit(4.5)],
        ["between", attr("x"), lit("a"), lit("b")],
        ["between", attr("x"), lit(1), lit("b")],
        ["between", ["arith", "*", attr("x"), lit(2)], attr("y"), lit(14)],
        ["cmp", "<", attr(ODD), lit(5)],
        ["cmp", "=", attr("absent"), lit(5)],
        ["cmp", "=", ["arith", "/", lit(7), lit(-2)], lit(-3)],
        ["cmp", "=", ["arith", "/", lit(7), lit(-2.0)], lit(-3.5)],
        ["cmp", "=", lit("a"), lit(1)],
        ["cmp", "=", ["arith", "+", lit("a"), attr("x")], lit(1)],
        ["cmp", ">", ["arith", "*", attr("x"), lit(10)], lit(2**63 - 1)],
        ["cmp", ">", ["arith", "*", attr("x"), lit(10)], lit(4.5)],
        ["cmp", "<", ["arith", "*", attr("x"), lit(1.5e300)], lit(0)],
        ["cmp", "=", ["arith", "*", attr("x"), attr("x")], lit(25)],
        ["cmp", "<>", ["neg", attr("x")], lit(1)],
        ["cmp", "=", ["neg", ["neg", attr("x")]], attr("x")],
        ["cmp", "=", ["neg", attr("x")], lit(2**63)],
        ["cmp", "=", ["arith", "-", attr("x"), attr("y")], lit(0)],
        ["cmp", "=", ["arith", "+", attr("x"), lit(2)], attr("y")],
        ["cmp", "<", attr("y"), ["arith", "+", attr("x"), lit(2)]],
    ]
    return trees


def random_tree(rng: random.Random, depth: int, terms: int = 2) -> Tree:
    """`terms` is how deep the arithmetic nests that is compared."""
    if depth == 0:
        return rng.choice(
            [
                ["cmp", rng.choice(OPS), random_term(rng, terms), random_term(rng, terms)],
                [
                    "cmp",
                    rng.choice(OPS),
                    attr(rng.choice("xy")),
                    lit(rng.choice(VALUES[:2] + VALUES[3:])),
                ],
                ["isnull", random_term(rng, 1)],
                ["like", attr(rng.choice("xy")), *rng.choice(PATTERNS)],
                ["between", random_term(rng, 1), random_term(rng, 1), random_term(rng, 1)],
                attr(rng.choice("xy")),
            ]
        )
    shape = rng.choice(["and", "or", "not"])
    if shape == "not":
        return ["not", random_tree(rng, depth - 1, terms)]
    parts = (random_tree(rng, rng.randrange(depth), terms) for _ in range(rng.randint(2, 3)))
    return [shape, *parts]


def random_trees(rng: random.Random) -> list[Tree]:
    small = [random_tree(rng, rng.randint(0, 2), terms=1) for _ in range(100)]
    return small + [random_tree(rng, rng.randint(0, 3)) for _ in range(60)]


def random_term(rng: random.Random, depth: int) -> Tree:
    if depth == 0 or rng.random() < 0.4:
        return rng.choice([attr("x"), attr("y"), lit(rng.choice([1, 2, 3, 0.5, -7, "a", True]))])
    if rng.random() < 0.2:
        return ["neg", random_term(rng, depth - 1)]
    return ["arith", rng.choice("+-*/"), random_term(rng, depth - 1), random_term(rng, depth - 1)]


def events() -> list[dict[str, Any]]:
    rng = random.Random(3)
    every = [{"x": v, "y": rng.choice(VALUES), ODD: rng.choice([1, 9])} for v in VALUES]
    pairs = [{"x": rng.choice(VALUES), "y": rng.choice(VALUES)} for _ in range(40)]
    beyond = {"x": 2**63 - 1, "y": 2.0**63}  # x + 2 is no double: the nearest one is y
    return [*every, *pairs, beyond, {}]


def test_trees_agree_with_the_language_in_three_values() -> None:
    trees = single_trees() + random_trees(random.Random(5))
    for tree in trees:
        evaluate = condition(json.loads(json.dumps(tree)))
        for attributes in events():
            given = parse_attributes(json.dumps(attributes))
            assert evaluate(given) == verdict(tree, attributes), (tree, attributes)
    assert len(trees) > 250


def naive(trees: Sequence[Tree], seen: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
    """Every selector evaluated for every event."""
    return [
        (at, number)
        for at, attributes in enumerate(seen)
        for number, tree in enumerate(trees)
        if verdict(tree, attributes) is True
    ]


def matched(matcher: Matcher, seen: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
    given = [parse_attributes(json.dumps(attributes)) for attributes in seen]
    return sorted(
        pair
        for places, numbers in matcher.matches(given)
        for pair in zip(places.tolist(), numbers.tolist(), strict=True)
    )


def test_the_join_finds_what_evaluating_all_pairs_finds() -> None:
    rng = random.Random(6)
    trees = single_trees() + random_trees(rng) + random_trees(rng)
    assert matched(texts_matched(trees), events()) == naive(trees, events())


def texts_matched(trees: Sequence[Tree]) -> Matcher:
    return Matcher([json.dumps(tree) for tree in trees])


SCALARS = st.one_of(
    st.sampled_from(VALUES),
    st.integers(-3, 3),
    st.sampled_from([n / 2 for n in range(-6, 7)]),
    st.text("ab%", max_size=3),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
)
NAMES = st.sampled_from("xyz")
LITERALS = SCALARS.filter(lambda value: value is not None)
COMPARED = st.one_of(
    st.tuples(st.just("cmp"), st.sampled_from(OPS), NAMES.map(attr), LITERALS.map(lit)),
    st.tuples(st.just("cmp"), st.sampled_from(OPS), LITERALS.map(lit), NAMES.map(attr)),
    st.tuples(st.just("cmp"), st.sampled_from(OPS), NAMES.map(attr), NAMES.map(attr)),
    st.tuples(st.just("between"), NAMES.map(attr), LITERALS.map(lit), LITERALS.map(lit)),
    st.tuples(st.just("in"), NAMES.map(attr), st.lists(LITERALS, min_size=1, max_size=9)),
    st.tuples(st.just("like"), NAMES.map(attr), st.text("ab%_", max_size=4), st.none()),
    st.tuples(st.just("isnull"), NAMES.map(attr)),
    st.tuples(
        *(st.just("cmp"), st.sampled_from(OPS)),
        st.tuples(st.just("arith"), st.sampled_from("+-*/"), NAMES.map(attr), LITERALS.map(lit)),
        LITERALS.map(lit),
    ),
    NAMES.map(attr),
    st.booleans().map(lit),
)
TREES = st.recursive(
    COMPARED,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.lists(inner, min_size=1, max_size=4).map(lambda parts: ("and", *parts)),
        st.lists(inner, min_size=1, max_size=4).map(lambda parts: ("or", *parts)),
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(TREES, min_size=1, max_size=6),
    st.lists(st.dictionaries(NAMES, SCALARS), min_size=1, max_size=12),
)
def test_the_join_agrees_with_evaluation_for_any_selectors_and_events(
    trees: list[Any], seen: list[dict[str, Any]]
) -> None:
    plain: list[Tree] = json.loads(json.dumps(trees))
    assert matched(texts_matched(plain), seen) == naive(plain, seen)


def test_pairs_that_are_checked_grow_with_the_most_selective_range_alone() -> None:
    """A wide range and a narrow one: what is looked at is what the narrow one leaves."""
    wide = ["cmp", ">=", attr("a"), lit(0)]
    trees: list[Tree] = [["and", wide, ["cmp", "=", attr("b"), lit(n)]] for n in range(500)]
    seen = [{"a": 5, "b": n % 1_000} for n in range(4_000)]
    matcher = texts_matched(trees)
    assert len(matched(matcher, seen)) == 2_000
    assert matcher.checked == 2_000


def test_parts_of_a_batch_keep_a_selectors_pairs_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher_module, "AT_ONCE", 7)
    trees: list[Tree] = [
        ["or", ["cmp", ">", attr("x"), lit(n)], ["cmp", "<", attr("y"), lit(n)]] for n in range(9)
    ]
    seen = [{"x": n, "y": 9 - n} for n in range(10)]
    assert matched(texts_matched(trees), seen) == naive(trees, seen)


def test_deep_and_long_selectors_are_matched() -> None:
    deep: Tree = ["cmp", "=", attr("x"), lit(1)]
    for _ in range(126):
        deep = ["not", deep]
    sums: Tree = attr("x")
    for _ in range(126):
        sums = ["arith", "+", sums, lit(1)]
    nested: Tree = ["cmp", "=", attr("x"), lit(1)]
    for _ in range(126):
        nested = ["and", ["or", nested, ["not", attr("z")]], ["cmp", "<", attr("x"), lit(7)]]
    wide = ["or", *(["cmp", "=", attr("x"), lit(n)] for n in range(1_000))]
    starry = ["like", attr("x"), "%a" * 200, None]
    trees = [deep, ["cmp", "=", sums, lit(127)], nested, wide, starry]
    assert matched(texts_matched(trees), [{"x": 1}, {"x": "a" * 190}]) == [
        *((0, 0), (0, 1), (0, 2), (0, 3)),
    ]


def test_a_worker_without_canopy_can_match() -> None:
    """What is sent has the code with it, and needs NumPy and PyArrow alone."""
    import pyspark.cloudpickle as cloudpickle

    cloudpickle.register_pickle_by_value(selection)  # type: ignore[no-untyped-call]
    texts = [json.dumps(tree) for tree in single_trees()]
    sent = cloudpickle.dumps(job.over_batches(SimpleNamespace(value={"trees": texts})))
    code = """
import sys
sys.modules["canopy"] = None
import pickle, pyarrow
matched = pickle.loads(sys.stdin.buffer.read())
(found,) = matched(iter([pyarrow.array(['{"x": 5}', None, '{"x": "abc", "y": 1}'])]))
print(found.to_pylist())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], input=sent, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    pairs = naive(single_trees(), [{"x": 5}, {}, {"x": "abc", "y": 1}])
    assert [sorted(numbers) for numbers in json.loads(done.stdout)] == [
        [number for place, number in pairs if place == at] for at in range(3)
    ]


def test_a_worker_matches_more_events_at_a_time_where_few_match(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trees: list[Tree] = [["cmp", "<", attr("x"), lit(n)] for n in range(10)]
    seen = [{"x": n} for n in (*[20] * 150, *[-1] * 250)]  # none match, then all
    sizes: list[int] = []
    plain = job._lists

    def noted(matcher: Matcher, texts: Sequence[str | None]) -> tuple[Any, Any]:
        sizes.append(len(texts))
        return plain(matcher, texts)

    monkeypatch.setattr(job, "_lists", noted)
    monkeypatch.setattr(job, "PAIRS_AT_ONCE", 100)
    held = SimpleNamespace(value={"trees": [json.dumps(tree) for tree in trees]})
    (found,) = job.over_batches(held)(iter([pa.array([json.dumps(each) for each in seen])]))
    assert found.to_pylist() == [*[[]] * 150, *[list(range(10))] * 250]
    assert sizes[:5] == [10, 20, 40, 80, 100], "as if all matched, then twice as many"
    assert set(sizes[5:-1]) == {9}, "all match: 100 pairs at most"


@pytest.mark.spark
def test_workers_and_this_process_match_the_same(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = single_trees()
    texts = [json.dumps(tree) for tree in trees]
    rows = [(str(n), float(n), n, "", json.dumps(e)) for n, e in enumerate(events())]
    broken = [
        ("no JSON", 0.0, 0, "", '{"x":'),
        ("no object", 0.0, 0, "", "[1]"),
        ("nothing", 0.0, 0, "", None),
    ]
    published = spark.createDataFrame(
        rows + broken,
        "event string, published double, at long, overlay string, attributes string",
    )
    right = naive(trees, [*events(), {}, {}, {}])
    names = [name for name, *_ in rows + broken]
    for pairs_here in (0, 10**6):
        monkeypatch.setattr(job, "PAIRS_HERE", pairs_here)
        found = job.selected(published, texts, True).collect()
        assert sorted((row["event"], row["tree"]) for row in found) == sorted(
            (names[at], number) for at, number in right
        )
        assert all(
            row["published"] == float(row["event"]) for row in found if row["event"][0] < "a"
        )


@pytest.mark.parametrize(
    "tree",
    [
        "",
        "[",
        "null",
        "[]",
        '["cmp","~",["attr","a"],["lit",1]]',
        '["cmp","=",["attr","a"]]',
        '["attr",3]',
        '["and"]',
        '["like",["attr","a"],3,null]',
        '["arith","%",["lit",1],["lit",1]]',
        '{"a":1}',
        '["in",["attr","a"],3]',
        json.dumps(["not"]) * 2,
    ],
)
def test_what_is_no_tree_is_refused(tree: str) -> None:
    with pytest.raises(TreeError):
        condition(parse_tree(tree))


def test_a_tree_that_nests_too_deep_is_refused_without_a_recursion_error() -> None:
    with pytest.raises(TreeError):
        parse_tree('["not",' * 900 + '["attr","x"]' + "]" * 900)
    with pytest.raises(TreeError):
        parse_tree('["not",' * 50_000 + '["attr","x"]' + "]" * 50_000)


def test_like_becomes_a_regular_expression_without_backtracking() -> None:
    assert like_expression("a%b%c", None) == r"(?s:a(?>.*?b).*c\Z)"
    assert like_expression("a!", "!") is None


def test_what_a_publish_record_may_hold_beside_values_counts_as_absent() -> None:
    text = '{"a":null,"b":[1],"c":{"d":1},"e":1e999,"f":36893488147419103232,"g":"x","h":false}'
    assert parse_attributes(text) == {"f": 2.0**65, "g": "x", "h": False}
