"""C9: pivots go where few events come by, and nodes agree on them without talking."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from matching import EVERYTHING, Conjunction, compile_selector
from overlay.upper_tree.owner.placement import by_popularity, pack
from overlay.upper_tree.pivots import breadth, choose_pivot
from tests.matching.matching_strategies import PATIENT


def only(text: str) -> Conjunction:
    (conjunction,) = compile_selector(text).conjunctions
    return conjunction


def chosen(text: str, **popularity: int) -> str:
    return choose_pivot(only(text).pivots(), popularity)[0]


def test_the_rarest_attribute_is_the_pivot() -> None:
    assert chosen("a > 1 AND b > 1 AND c > 1", a=90, b=7, c=30) == "b"


def test_an_attribute_without_other_subscribers_is_the_rarest() -> None:
    assert chosen("a > 1 AND b > 1", a=1) == "b"


def test_a_value_of_a_popular_attribute_beats_a_wide_range_of_a_rarer_one() -> None:
    assert chosen("symbol = 'ABC' AND volume > 0", symbol=100, volume=60) == "symbol"
    assert chosen("symbol = 'ABC' AND volume > 0", symbol=100, volume=2) == "volume"


def test_shapes_are_ordered_by_what_they_let_through() -> None:
    shapes = ["x = 3", "x BETWEEN 1 AND 3", "x > 3", "x <> 3"]
    shares = [breadth(only(text).pivots()[0][1]) for text in shapes]
    assert shares == sorted(set(shares))
    assert breadth(only("x").pivots()[0][1]) == breadth(only("x > 3").pivots()[0][1])
    assert breadth(only("x LIKE 'a%'").pivots()[0][1]) < 1
    assert breadth(only("x IS NOT NULL").pivots()[0][1]) == 1
    assert breadth(EVERYTHING) == 1


@PATIENT
@given(
    order=st.permutations(["a", "b", "c", "d"]),
    popularity=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3)),
)
def test_the_order_of_the_pivots_does_not_matter(
    order: list[str], popularity: dict[str, int]
) -> None:
    sorted_text = " AND ".join(f"{name} > 1" for name in sorted(order))
    pivots = only(sorted_text).pivots()
    by_name = dict(pivots)
    shuffled = [(name, by_name[name]) for name in order]
    assert choose_pivot(shuffled, popularity) == choose_pivot(pivots, popularity)


def test_without_knowledge_attributes_are_not_taken_by_name() -> None:
    texts = [f"m{i} > 1 AND n{i} > 1" for i in range(40)]
    first = [chosen(text)[0] for text in texts]
    assert 8 <= first.count("m") <= 32


def test_trees_are_packed_in_order_and_a_large_one_is_alone() -> None:
    assert pack([("a", 3), ("b", 4), ("c", 4), ("d", 20), ("e", 1)], 10) == [
        ["a", "b"],
        ["c"],
        ["d"],
        ["e"],
    ]
    assert pack([], 10) == []
    assert by_popularity(["a", "b", "c"], {"b": 5, "c": 9})[:2] == ["c", "b"]


def hosts_visited(rare_first: bool) -> float:
    """Hosts per event of a small paper-like load, pivots chosen one way or the other."""
    rng = Random(3)
    law = [min(1.0, 0.98 * rank**-0.8) for rank in range(1, 101)]
    names = [f"a{n}" for n in range(100)]

    def draw() -> list[str]:
        while True:
            if found := [name for name, p in zip(names, law, strict=True) if rng.random() < p]:
                return found

    asked = [draw() for _ in range(3_000)]
    popularity = {name: sum(name in one for one in asked) for name in names}
    sizes: dict[str, int] = {}
    for one in asked:
        pivot = choose_pivot([(name, EVERYTHING) for name in one], popularity)[0]
        if not rare_first:
            pivot = max(one, key=lambda name: popularity[name])
        sizes[pivot] = sizes.get(pivot, 0) + 1
    hosts: dict[str, list[int]] = {}
    parts: list[tuple[str, int]] = []
    for name in by_popularity(sizes, popularity):
        shards = -(-sizes[name] // 1_000)
        parts += [(name, sizes[name] // shards)] * shards
    for number, run in enumerate(pack(parts, 1_000)):
        for name in run:
            hosts.setdefault(name, []).append(number)
    events = [draw() for _ in range(300)]
    visits = [len({h for name in event for h in hosts.get(name, ())}) for event in events]
    return sum(visits) / len(visits)


def test_rare_pivots_cost_half_the_visits_of_a_cover_by_popular_ones() -> None:
    assert hosts_visited(rare_first=True) < 0.5 * hosts_visited(rare_first=False)
