"""The graph of ranked views beside that of shuffled ones: how random it is, and what holds it
together.

    python -m bench.security.graph --json

Nodes without anything but views, in virtual time, begin with one neighbour, the same one. After
`PERIODS` exchanges of each, the views are the directed edges of a graph; for all but the in-degree
it is taken without directions. What is left after a part of the nodes has died is looked at
at once, before any view is mended.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from random import Random
from statistics import fmean, pstdev
from typing import Any, Final, Literal

from bench.security.views import grown

NODES: Final = 200
SIZE: Final = 10
PERIODS: Final = 60
SEEDS: Final = (1, 2, 3)
SOURCES: Final = 20
"""Nodes from which ways are counted."""

Graph = Mapping[str, frozenset[str]]


def undirected(views: Mapping[str, tuple[str, ...]]) -> Graph:
    """Neighbours of each node, whoever has whom in its view."""
    found: dict[str, set[str]] = {name: set(others) for name, others in views.items()}
    for name, others in views.items():
        for other in others:
            found[other].add(name)
    return {name: frozenset(others) for name, others in found.items()}


def clustering(graph: Graph) -> float:
    """The mean share of pairs of a node's neighbours that are neighbours."""
    shares = []
    for others in graph.values():
        pairs = len(others) * (len(others) - 1)
        linked = sum(len(graph[other] & others) for other in others)
        shares.append(linked / pairs if pairs else 0.0)
    return fmean(shares)


def distances(graph: Graph, source: str) -> dict[str, int]:
    """Hops from `source` to all that are reached."""
    found, edge = {source: 0}, [source]
    while edge:
        following = []
        for name in edge:
            for other in graph[name]:
                if other not in found:
                    found[other] = found[name] + 1
                    following.append(other)
        edge = following
    return found


def left_together(graph: Graph, share: float, rng: Random) -> float:
    """Of the nodes that live after this share has died: the share in the largest component."""
    alive = rng.sample(sorted(graph), round(len(graph) * (1 - share)))
    rest = {name: graph[name] & frozenset(alive) for name in alive}
    largest, seen = 0, set[str]()
    for name in alive:
        if name not in seen:
            component = distances(rest, name)
            seen |= component.keys()
            largest = max(largest, len(component))
    return largest / len(alive)


def measure(sampling: Literal["shuffle", "ranked"], seed: int) -> dict[str, Any]:
    """The figures of one graph."""
    views = grown(NODES, SIZE, sampling, seed, PERIODS)
    graph, rng = undirected(views), Random(seed)
    counts = dict.fromkeys(views, 0)
    for others in views.values():
        for other in others:
            counts[other] += 1
    ways = [
        hops
        for source in rng.sample(sorted(graph), SOURCES)
        for hops in distances(graph, source).values()
        if hops
    ]
    return {
        "in_degree_sd": pstdev(counts.values()),
        "in_degree_least": min(counts.values()),
        "in_degree_most": max(counts.values()),
        "clustering": clustering(graph),
        "path": fmean(ways),
        "reached": fmean(len(distances(graph, n)) for n in sorted(graph)[:SOURCES]) / NODES,
        "left_20": left_together(graph, 0.2, rng),
        "left_50": left_together(graph, 0.5, rng),
    }


def main() -> None:
    """Print one row for each kind of view: means over the seeds, and the extremes of degrees."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="as JSON")
    as_json = parser.parse_args().json
    rows = []
    kinds: tuple[Literal["shuffle", "ranked"], ...] = ("shuffle", "ranked")
    for sampling in kinds:
        found = [measure(sampling, seed) for seed in SEEDS]
        row: dict[str, Any] = {"views": sampling, "nodes": NODES, "size": SIZE, "seeds": len(SEEDS)}
        for key in found[0]:
            values = [each[key] for each in found]
            pick = min if key.endswith("least") else max if key.endswith("most") else fmean
            row[key] = round(pick(values), 4)
        rows.append(row)
    print(json.dumps(rows) if as_json else "\n".join(map(str, rows)))


if __name__ == "__main__":
    main()
