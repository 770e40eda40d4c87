"""Selector trees as Spark columns against an evaluator that shares nothing with them."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from canopy.traces.analysis.verdict.expected import (
    distinct_trees,
    groups,
    matching_pairs,
    typed_attributes,
)
from canopy.traces.analysis.verdict.selectors import (
    Translator,
    TreeError,
    attributes_of,
    parse_tree,
)
from canopy.traces.analysis.verdict.terms import like_expression, text_literal
from tests.support.trace_runs import Tree, verdict

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
AT_ONCE = 100
"""Predicates of one query: Spark's analysis of a query grows faster than its text."""
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
    literals = [
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
    """Some of all shapes, and many that are small, in which a fault is as likely: Spark's analysis
    of a query grows with its text, of which the large ones have most."""
    small = [random_tree(rng, rng.randint(0, 2), terms=1) for _ in range(60)]
    return small + [random_tree(rng, rng.randint(0, 3)) for _ in range(8)]


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


@pytest.mark.spark
def test_the_columns_agree_with_the_language_in_three_values(spark: Any) -> None:
    rng = random.Random(5)
    trees = single_trees() + random_trees(rng)
    rows = [(str(n), 0.0, json.dumps(e)) for n, e in enumerate(events())]
    frame = spark.createDataFrame(rows, "event string, published double, attributes string")
    frame = frame.selectExpr("*", "from_json(attributes, 'map<string,variant>') AS variants")
    names: dict[str, int] = {}
    translator = Translator(lambda name: f"a{names.setdefault(name, len(names))}")
    columns = [
        f"{translator.predicate(json.loads(json.dumps(tree)))} AS p{n}"
        for n, tree in enumerate(trees)
    ]
    typed = typed_attributes(frame, list(names)).cache()
    wrong = []
    for first in range(0, len(trees), AT_ONCE):
        for row in typed.selectExpr("event", *columns[first : first + AT_ONCE]).collect():
            attributes = json.loads(rows[int(row["event"])][2])
            for number, tree in enumerate(trees[first : first + AT_ONCE], first):
                right = verdict(tree, attributes)
                if row[f"p{number}"] != right:
                    wrong.append((tree, attributes, right, row[f"p{number}"]))
    assert not wrong, f"{len(wrong)} wrong, such as {wrong[:5]}"
    assert len(trees) > 250


@pytest.mark.spark
def test_deep_and_long_selectors_translate_and_run(spark: Any) -> None:
    deep: Tree = ["cmp", "=", attr("x"), lit(1)]
    for _ in range(126):
        deep = ["not", deep]
    sums: Tree = attr("x")
    for _ in range(30):  # matching allows 128 levels: tried once, and slow
        sums = ["arith", "+", sums, lit(1)]
    wide = ["or", *(["cmp", "=", attr("x"), lit(n)] for n in range(1_000))]
    starry = ["like", attr("x"), "%a" * 200, None]
    trees = [deep, ["cmp", "=", sums, lit(31)], wide, starry]
    published = spark.createDataFrame(
        [("e", 5.0, json.dumps({"x": 1})), ("f", 5.0, json.dumps({"x": "a" * 190}))],
        "event string, published double, attributes string",
    )
    subscribed = spark.createDataFrame(
        [(str(n), json.dumps(tree), 1.0, None, None) for n, tree in enumerate(trees)],
        "subscription string, tree string, acked double, ended double, kept double",
    ).selectExpr("*", "md5(tree) AS tree_key")
    found = distinct_trees(subscribed)
    assert not found.bad
    pairs = matching_pairs(spark, published, subscribed, found).collect()
    assert sorted((row["event"], row["subscription"]) for row in pairs) == [
        ("e", "0"),
        ("e", "1"),
        ("e", "2"),
    ]


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
        Translator(lambda name: "a").predicate(parse_tree(tree))


def test_a_tree_that_nests_too_deep_is_refused_without_a_recursion_error() -> None:
    tree: Tree = attr("x")
    for _ in range(5_000):
        tree = ["not", tree]
    with pytest.raises(TreeError):
        Translator(lambda name: "a").predicate(tree)


def test_user_text_cannot_leave_its_literal() -> None:
    text = text_literal("x' OR TRUE OR '\\'; --\n€😀")
    assert text[0] == text[-1] == "'"
    assert "'" not in text[1:-1]
    assert text.isascii()
    assert "\\U0001F600" in text


def test_like_becomes_a_regular_expression_without_backtracking() -> None:
    assert like_expression("a%b%c", None) == r"(?s)\A\x{61}(?>.*?\x{62}).*\x{63}\z"
    assert like_expression("a!", "!") is None


def test_groups_keep_every_tree_and_share_attributes() -> None:
    trees = [(f"k{n}", json.dumps(["cmp", ">", attr(f"x{n % 7}"), lit(n)])) for n in range(100)]
    made = groups(trees, limit=500)
    assert sorted(key for group in made for key, _ in group.predicates) == sorted(
        key for key, _ in trees
    )
    assert len(made) > 5
    assert all(len(group.attributes) <= 3 for group in made)


def test_attributes_are_those_of_the_tree_and_no_literals() -> None:
    tree = ["and", ["cmp", "=", attr("a"), ["lit", "attr"]], ["in", attr("b"), ["attr", "c"]]]
    assert list(attributes_of(tree)) == ["a", "b"]
