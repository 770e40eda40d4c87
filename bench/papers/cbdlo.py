"""CBDLO's figures 5 to 9: messages and comparisons of an event, in simulations of 3,000 nodes."""

from __future__ import annotations

from typing import Final

from bench.papers.experiment import Drawing, Experiment, Paper, Reported

_NOTE: Final = """\
What runs here are whole product nodes, 100 of them, and the same code in a routing model beside
them. The model carries the paper's 3,000 nodes: `canopy sim figure N --out FOLDER` draws its
curves, and [figures.md](figures.md) has what came out and everything that the paper leaves open."""


def _figure(
    number: int, title: str, question: str, reported: tuple[Reported, ...], differs: str
) -> Experiment:
    left, right = ("tera", "TERA") if number == 7 else ("simple", "Simple")
    return Experiment(
        name=f"cbdlo-figure-{number}",
        paper="CBDLO",
        place=f"figure {number}",
        title=title,
        question=question,
        reported=reported,
        file="figures-full-nodes",
        fast=(),
        full=(f"python -m bench.simulator.figures {number} --json",),
        seconds=180,
        tables=(
            f"figures-full-nodes.json | figure={number} | x ,: x | nodes ,: nodes | "
            f"{left} ,.0f: {right} | cbdlo ,.0f: CBDLO | model ,.0f: CBDLO in the model | "
            "expected: deliveries expected | delivered: by walks | shown: made | run.commit: "
            "commit",
        ),
        differs=differs,
    )


CBDLO: Final = Paper(
    "CBDLO",
    _NOTE,
    (
        _figure(
            5,
            "effective cost over subscriptions",
            "Messages divided by the share of the expected deliveries that are made, as "
            "subscriptions "
            "grow.",
            (
                Reported("Simple, first point: messages", "5.3", 68_605),
                Reported("… of 408 expected deliveries", "5.3", 68, "made"),
                Reported("… effective cost", "5.3", 411_630),
                Reported(
                    "shape", "5.3", None, words="Simple falls slowly, CBDLO far below it and flat"
                ),
            ),
            "*Simple*'s slow fall is not reproduced: walkers at random find a share of the "
            "matches that "
            "does not depend on how many subscriptions there are.",
        ),
        _figure(
            6,
            "effective cost over the hop limit",
            "The same measure, as walks may be longer.",
            (
                Reported(
                    "shape",
                    "5.3",
                    None,
                    words="Simple falls steeply, then rises a little; CBDLO falls more gently",
                ),
            ),
            "",
        ),
        _figure(
            7,
            "CBDLO and TERA over nodes",
            "Messages of an event in topic-based TERA and in CBDLO, as the overlay grows.",
            (
                Reported("nodes", "5.3", 1e9, "at most"),
                Reported("table of access points, TERA", "5.3", 50, "entries"),
                Reported("table of access points, CBDLO", "5.3", 100, "entries"),
                Reported("hits in 10 hops, both", "5.3", 90, "%"),
                Reported(
                    "shape",
                    "5.3",
                    None,
                    words="alike where nodes are few; TERA grows, CBDLO hardly",
                ),
            ),
            "CBDLO's copies to the lists of interested nodes, which the paper does not "
            "count, are in the "
            "file (`with_lists`), not in this column.",
        ),
        _figure(
            8,
            "comparisons over subscriptions",
            "Predicates that are compared for an event; *Simple* times 0.1 and CBDLO divided "
            "by 8, as "
            "printed in the paper.",
            (
                Reported(
                    "shape",
                    "5.4",
                    None,
                    words="CBDLO far below Simple, and falling below 3,000 subscriptions",
                ),
            ),
            "One point only: further ones take an hour of a free core each.",
        ),
        _figure(
            9,
            "comparisons over attributes",
            "The same, as there are more attributes.",
            (Reported("shape", "5.4", None, words="CBDLO nearly independent of attributes"),),
            "CBDLO does more here than the paper says, since a table of 20 access points is "
            "met later; it "
            "stays below a quarter of *Simple*'s in the model.",
        ),
    ),
    (
        Drawing("figure 1", "the two layers", "[design](../design/overview.md)"),
        Drawing(
            "figures 2, 3",
            "the walk, and a walk that is blocked",
            "[C3, C4](../design/lower-random.md#c3-random-walk-with-a-trace)",
        ),
        Drawing(
            "figure 4",
            "the way inside an attribute's tree",
            "[C7](../design/attribute-trees.md#c7-routing-along-the-midpoint-tree)",
        ),
    ),
)
