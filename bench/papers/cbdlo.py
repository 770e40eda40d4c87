"""CBDLO's figures 5 to 9: messages and comparisons of an event, in simulations of 3,000 nodes."""

from __future__ import annotations

from typing import Final

from bench.experiments.figures.experiment import PICTURES
from bench.papers.experiment import Drawing, Experiment, Paper, Reported

_NOTE: Final = """\
The curves are of the paper's size: the product's walks, trees and counting in a routing model of
3,000 nodes. Whole product nodes, whose tables are filled by gossip, are an experiment of their
own. [figures.md](figures.md) lists what the paper leaves open and which of its claims are
reproduced."""

FIGURES: Final = "python -m bench.experiments figures "
POINTS: Final = "--set 'x=[10,30,100,300,1000,3000]' "
"""Two to four of each figure: hops of figure 6, nodes of 7, attributes of 9, subscriptions."""


def _figure(
    number: int,
    title: str,
    question: str,
    reported: tuple[Reported, ...],
    columns: str,
    differs: str,
) -> Experiment:
    """`columns`: of a table, beside the picture; "": there is none."""
    return Experiment(
        name=f"cbdlo-figure-{number}",
        paper="CBDLO",
        place=f"figure {number}",
        title=title,
        question=question,
        reported=reported,
        file="figures-model",
        fast=(f"{FIGURES}{POINTS}--set jobs=2 --json",),
        full=(f"{FIGURES}--json",),
        seconds=35 if number == 5 else 0,
        tables=(f"figures-model.json | figure={number} | {columns}",) if columns else (),
        differs=differs,
        picture=PICTURES[number],
    )


CBDLO: Final = Paper(
    "CBDLO",
    _NOTE,
    (
        _figure(
            5,
            "effective cost over subscriptions",
            "Messages divided by the share of the expected deliveries that are made, over the "
            "number of subscriptions.",
            (
                Reported("Simple, first point: messages", "5.3", 68_605),
                Reported("… of 408 expected deliveries", "5.3", 68, "made"),
                Reported("… effective cost", "5.3", 411_630),
                Reported(
                    "shape", "5.3", None, words="Simple falls slowly, CBDLO far below it and flat"
                ),
            ),
            "",
            "The fall of *Simple* is not reproduced: a flood, as the paper's text describes it, "
            "reaches every node whatever is subscribed to. One copy forwarded at random, counted "
            "by published messages, does fall ([figures.md](figures.md#simple)). CBDLO is flat "
            "only "
            "as long as the copies to its node lists are not counted.",
        ),
        _figure(
            6,
            "effective cost over the hop limit",
            "The same measure over the hops that a walk may take.",
            (
                Reported(
                    "shape",
                    "5.3",
                    None,
                    words="Simple falls steeply, then rises a little; CBDLO falls more gently",
                ),
            ),
            "",
            "*Simple* rises here: its first hops reach each node with the fewest messages. CBDLO "
            "falls "
            "to an eighth: a delivery needs a walk that hits for each attribute of the "
            "subscription.",
        ),
        _figure(
            7,
            "CBDLO and TERA over nodes",
            "Messages of an event in topic-based TERA and in CBDLO, over the number of nodes.",
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
            "x=100 or 1000 or 10000 or 100000 | x ,: nodes | tera ,.0f: TERA | tera_walks .1f: … "
            "its walk | cbdlo ,.0f: CBDLO | "
            "without_lists .1f: … its walks and trees | peak_bytes .1e: bytes",
            "The claim is not reproduced if deliveries are counted for both, TERA's broadcast and "
            "CBDLO's copies to its node lists: both grow with the number of interested nodes, and "
            "CBDLO sends each of these a copy per attribute. Only the search hardly grows.",
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
            "",
            "",
        ),
        _figure(
            9,
            "comparisons over attributes",
            "The same over the number of attributes.",
            (Reported("shape", "5.4", None, words="CBDLO nearly independent of attributes"),),
            "",
            "Not flat here: a table of 20 access points covers a smaller share of more attributes, "
            "so that walks are longer. CBDLO stays below an eighth of *Simple*'s cost.",
        ),
        Experiment(
            name="cbdlo-whole-nodes",
            paper="CBDLO",
            place="figures 5 to 9, whole nodes",
            title="the same by whole product nodes",
            question="Whether nodes that learn their tables by gossip cost what the model says.",
            reported=(Reported("nodes", "5.3", 3_000),),
            file="figures-full-nodes",
            fast=(f"{FIGURES}--set whole_nodes=100 --set 'x=[10,50,100]' --set jobs=2 --json",),
            full=(
                f"{FIGURES}--set whole_nodes=100 --json",
                f"{FIGURES}--set whole_nodes=3000 --set one_load=true "
                "--set kept=build/figures.jsonl --json",
            ),
            seconds=60,
            tables=(
                "figures-full-nodes.json | x=2 or 10 or 30 or 100 or 150 or 500 or 2000 or 3000 | "
                "figure: figure | x ,: x | hit_rate .1%: walks that hit | "
                "model_hit_rate .1%: … in the model | cbdlo ,.0f: cost | model ,.0f: … in the "
                "model | "
                "expected ,.0f: deliveries expected | delivered ,.0f: made by walks | "
                "shown ,.0f: made",
            ),
            differs="Cost is the y of the figure, x its abscissa; the file has more points. 26 of "
            "the paper's 36 "
            "points are measured. Those with more subscriptions at more hosts are not (figure 5 "
            "from 6,000, figure 8 from 3,000, figure 9 up to 100): the largest took 16 minutes of "
            "CPU and 5.6 GB ([figures.md](figures.md#whole-nodes)).",
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
