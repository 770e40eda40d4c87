"""What is said of a graph of views, on graphs whose figures are known."""

from __future__ import annotations

from random import Random

import pytest

from bench.security.graph import clustering, distances, left_together, undirected
from bench.security.views import grown

RING = {f"{n}": (f"{(n + 1) % 6}",) for n in range(6)}
FULL = {f"{n}": tuple(f"{m}" for m in range(5) if m != n) for n in range(5)}


def test_figures_of_small_graphs() -> None:
    ring, full = undirected(RING), undirected(FULL)
    assert clustering(ring) == 0.0
    assert clustering(full) == 1.0
    assert sorted(distances(ring, "0").values()) == [0, 1, 1, 2, 2, 3]
    assert left_together(full, 0.4, Random(1)) == 1.0
    apart = undirected({"a": ("b",), "b": (), "c": ("d",), "d": ()})
    assert left_together(apart, 0.0, Random(1)) == 0.5


@pytest.mark.parametrize("sampling", ["shuffle", "ranked"])
def test_views_fill_from_one_neighbour(sampling: str) -> None:
    views = grown(30, 5, sampling, 1, 20)  # type: ignore[arg-type]
    assert all(len(others) == 5 for others in views.values())
    assert all(name not in others for name, others in views.items())
