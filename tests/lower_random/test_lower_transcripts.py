"""CRAWL as transcripts: who sends what to whom, line by line (CBDLO section 3).

Most graphs here leave a walk no choice. Where it has one (the node of the trace from which a
blocked walk starts again) the test looks at the transcripts of several seeds.
"""

from __future__ import annotations

from textwrap import dedent

from overlay.links.events import LinkRecovered, LinkSuspected
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.crawl import Crawl
from overlay.lower_random.messages import Walk, WalkFailed, WalkFound, WalkMiss
from tests.support.walks import describe_walk, point, steps, walker, woods
from tests.support.world import World, WorldNode, one_node, peer

Nodes = dict[str, tuple[WorldNode, Crawl, AccessPoints]]


def lines(text: str) -> list[str]:
    return dedent(text).strip().split("\n")


def walk_from(
    links: dict[str, str],
    know: dict[str, str],
    attributes: str = "x",
    hops: int = 10,
    trace: int = 10,
    seed: int = 1,
) -> tuple[list[str], World, Nodes]:
    """Node A looks for `attributes` on the graph `links` (node: its neighbours), where `know`
    (node: attributes) says whose tables have them. The transcript, and the world afterwards."""
    world, nodes = woods(links, seed, hops=hops, trace=trace)
    for name, known in know.items():
        for attribute in known.split():
            nodes[name][2].learn(point(attribute, "H"))
    nodes["A"][1].walk(attributes.split())
    world.run(2.0)
    return steps(world, describe_walk), world, nodes


def test_a_walk_goes_on_until_a_node_has_the_attribute_in_its_table() -> None:
    row = {"A": "B", "B": "AC", "C": "BD", "D": "C"}
    transcript, _, nodes = walk_from(row, know={"D": "x"})
    assert transcript == lines(
        """
        A -> B: walk for x, hop 1, 9 of 10 left, trace A
        B -> C: walk for x, hop 2, 8 of 10 left, trace A B
        C -> D: walk for x, hop 3, 7 of 10 left, trace A B C
        D -> A: hit at hop 3: x at H
        """
    )
    assert nodes["A"][0].of(WalkFound) == [WalkFound(point("x", "H"), 3)]


def test_each_attribute_ends_on_its_own() -> None:
    row = {"A": "B", "B": "AC", "C": "BD", "D": "C"}
    transcript, _, nodes = walk_from(row, {"B": "y", "D": "x"}, "x y z", hops=3)
    assert transcript == lines(
        """
        A -> B: walk for x y z, hop 1, 2 of 3 left, trace A
        B -> A: hit at hop 1: y at H
        B -> C: walk for x z, hop 2, 1 of 3 left, trace A B
        C -> D: walk for x z, hop 3, 0 of 3 left, trace A B C
        D -> A: hit at hop 3: x at H
        D -> A: miss at hop 3: z
        """
    )
    assert nodes["A"][0].of(WalkFailed) == [WalkFailed(("z",), 3)]


def test_a_trace_of_k_nodes_lets_a_walk_return_after_k_others() -> None:
    ring = {"A": "B", "B": "C", "C": "A"}
    transcript, _, _ = walk_from(ring, {}, hops=4, trace=2)
    assert transcript == lines(
        """
        A -> B: walk for x, hop 1, 3 of 4 left, trace A
        B -> C: walk for x, hop 2, 2 of 4 left, trace A B
        C -> A: walk for x, hop 3, 1 of 4 left, trace B C
        A -> B: walk for x, hop 4, 0 of 4 left, trace C A
        B -> A: miss at hop 4: x
        """
    )


def test_a_blocked_walk_recovers_from_a_node_of_its_trace_with_half_of_the_limit() -> None:
    # Figure 3 of the paper, shortened: F is a leaf, and behind B is a node that has the attribute.
    dead_end = {"A": "B", "B": "F", "F": "B", "G": "B"}
    transcripts = set()
    for seed in range(20):
        transcript, _, nodes = walk_from(dead_end, {}, hops=4, seed=seed)
        assert transcript[:2] == lines(
            """
            A -> B: walk for x, hop 1, 3 of 4 left, trace A
            B -> F: walk for x, hop 2, 2 of 4 left, trace A B
            """
        )
        assert nodes["F"][0].counts["walks_blocked"] >= 1
        transcripts.add("\n".join(transcript[2:4]))
    assert transcripts >= {
        "F -> A: walk for x, hop 3, 2 of 2 left, trace A B F\n"
        "A -> B: walk for x, hop 4, 1 of 1 left, trace B F A",
        "F -> B: walk for x, hop 3, 2 of 2 left, trace A B F\n"
        "B -> A: walk for x, hop 4, 1 of 1 left, trace A F B",
    }


def test_a_recovered_walk_takes_another_way_and_finds() -> None:
    # From B the walk went to the leaf F; from B again it can only go to G.
    found = set()
    for seed in range(40):
        fork = {"A": "B", "B": "FG", "F": "B", "G": "B"}
        transcript, _, nodes = walk_from(fork, {"G": "x"}, seed=seed)
        if transcript[1].startswith("B -> F") and transcript[2].startswith("F -> B"):
            found.add("\n".join(transcript))
            assert nodes["A"][0].of(WalkFound) == [WalkFound(point("x", "H"), 4)]
    assert found == {
        "A -> B: walk for x, hop 1, 9 of 10 left, trace A\n"
        "B -> F: walk for x, hop 2, 8 of 10 left, trace A B\n"
        "F -> B: walk for x, hop 3, 5 of 5 left, trace A B F\n"
        "B -> G: walk for x, hop 4, 4 of 5 left, trace A F B\n"
        "G -> A: hit at hop 4: x at H"
    }


def test_recoveries_end_because_the_limit_is_halved() -> None:
    pair = {"A": "B", "B": "A"}
    transcript, _, nodes = walk_from(pair, {}, hops=10)
    assert transcript == lines(
        """
        A -> B: walk for x, hop 1, 9 of 10 left, trace A
        B -> A: walk for x, hop 2, 5 of 5 left, trace A B
        A -> B: walk for x, hop 3, 2 of 2 left, trace B A
        B -> A: walk for x, hop 4, 1 of 1 left, trace A B
        A -> A: miss at hop 4: x
        """
    )
    assert nodes["A"][0].of(WalkFailed) == [WalkFailed(("x",), 4)]


def test_a_walk_that_ends_with_a_node_is_a_miss_after_the_time_out() -> None:
    row = {"A": "B", "B": "AC", "C": "B"}
    world, nodes = woods(row)
    nodes["C"][0].ignore(Walk)  # it takes the walk and dies
    nodes["A"][1].walk(["x"])
    world.run(2.9)
    assert steps(world, describe_walk) == lines(
        """
        A -> B: walk for x, hop 1, 9 of 10 left, trace A
        B -> C: walk for x, hop 2, 8 of 10 left, trace A B
        """
    )
    assert not nodes["A"][0].of(WalkFailed)
    world.run(0.2)
    assert nodes["A"][0].of(WalkFailed) == [WalkFailed(("x",), 0)]


def lost_walk(row: dict[str, str], silent: str, seed: int) -> tuple[list[str], Nodes]:
    """A walks for x, which H serves as D knows; `silent` takes no message and acknowledges none."""
    world, nodes = woods(row, seed)
    nodes["D"][2].learn(point("x", "H"))
    nodes[silent][0].ignore(Walk)
    nodes["A"][1].walk(["x"])
    world.run(0.5)
    for name, (member, _, _) in nodes.items():
        sent = [walk for source, to, walk in world.sent if (source, to) == (name, silent)]
        if sent:
            member.hear(LinkSuspected(peer(silent), tuple(sent)))
    world.run(0.5)
    return steps(world, describe_walk), nodes


def test_a_walk_to_a_silent_node_is_reported_lost_and_begins_again_with_half_of_the_hops() -> None:
    found = [
        lost_walk({"A": "B", "B": "ACD", "C": "B", "D": "B"}, "C", seed) for seed in range(1, 9)
    ]
    transcript, nodes = next(each for each in found if "B -> C" in each[0][1])
    assert transcript == lines(
        """
        A -> B: walk for x, hop 1, 9 of 10 left, trace A
        B -> C: walk for x, hop 2, 8 of 10 left, trace A B
        B -> A: lost at hop 2: x
        A -> B: walk for x, hop 1, 4 of 5 left, trace A
        B -> D: walk for x, hop 2, 3 of 5 left, trace A B
        D -> A: hit at hop 2: x at H
        """
    )
    assert nodes["A"][0].of(WalkFound) == [WalkFound(point("x", "H"), 2)]
    assert not nodes["A"][0].of(WalkFailed)
    assert nodes["B"][0].counts["walks_unanswered"] == 1


def test_walks_that_are_lost_again_and_again_end_after_the_halving() -> None:
    port = one_node("A")
    crawl, _ = walker(port, "B", "C", hops=10)
    crawl.walk(["x"])
    limits = []
    for _ in range(4):
        ((_, walk),) = port.sent_to(Walk)
        limits.append(walk.limit)
        port.hear(WalkMiss(walk.number, 3, ("x",), lost=True), peer("B"))
    assert limits == [10, 5, 2, 1]
    assert port.of(WalkFailed) == [WalkFailed(("x",), 3)]
    assert not port.timers


def test_no_walk_goes_to_a_silent_neighbour_until_it_answers() -> None:
    port = one_node("A")
    crawl, _ = walker(port, "B", "C")
    port.hear(LinkSuspected(peer("C"), ()))
    for _ in range(20):
        crawl.walk(["x"])
    assert {to for to, _ in port.sent_to(Walk)} == {"B"}
    port.hear(LinkRecovered(peer("C")))
    for _ in range(20):
        crawl.walk(["x"])
    assert {to for to, _ in port.sent_to(Walk)} == {"B", "C"}


def test_a_stale_access_point_is_named_to_its_source_and_a_new_walk_has_half_of_the_hops() -> None:
    # CBDLO section 4: the entry node no longer has the attribute, so a new walk starts.
    row = {"A": "B", "B": "AC", "C": "B"}
    transcript, world, nodes = walk_from(row, {"B": "x"})
    assert transcript == lines(
        """
        A -> B: walk for x, hop 1, 9 of 10 left, trace A
        B -> A: hit at hop 1: x at H
        """
    )
    world.sent.clear()
    nodes["C"][2].learn(point("x", "I", (1, 2)))
    nodes["A"][2].invalidate("x", "H")  # H answered that it does not serve x
    world.run(0.1)
    nodes["A"][1].walk(["x"], hops=5)
    world.run(1.0)
    assert steps(world, describe_walk) == lines(
        """
        A -> B: StalePoint
        A -> B: walk for x, hop 1, 4 of 5 left, trace A
        B -> C: walk for x, hop 2, 3 of 5 left, trace A B
        C -> A: hit at hop 2: x at I
        """
    )
    assert not nodes["B"][2].points("x"), "B, which had named H, has removed it, too"
    assert nodes["A"][2].points("x")[0] == point("x", "I", (1, 2))
