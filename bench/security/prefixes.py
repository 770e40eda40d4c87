"""Views in which each address prefix counts alike, beside those in which each id does.

    python -m bench.security.prefixes --json

What Basalt proposes besides ranks by id (Auvolat and others 2021, *hierarchical ranking*): a place
of a view goes to a random prefix first, and there to a random id. Here 240 honest nodes are in a
few prefixes, and 60 liars in one, in the same ones, or in one each. Each of `VIEWERS` honest nodes
has heard of all. *Most* is by how many times the mean the most wanted honest node is in views.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from random import Random
from statistics import fmean
from typing import Any, Final

from overlay.lower_random.ranked_slots import PRIME, RankedSlots
from overlay.machine import NodeId, Peer

HONEST: Final = 240
LIARS: Final = 60
VIEW: Final = 20
VIEWERS: Final = 200
SIZES: Final = (60, 40, 40, 30, 20, 20, 10, 10, 4, 3, 2, 1)
"""Honest nodes in each prefix."""
PLACES: Final = ("one prefix", "the honest ones' prefixes", "a prefix each")


class PrefixSlots(RankedSlots):
    """Slots that rank prefixes first."""

    def __init__(self, size: int, rng: Random, prefixes: dict[NodeId, str]) -> None:
        super().__init__(size, 0, lambda peer: False, rng)
        self._prefixes = prefixes

    def _hash(self, node: NodeId) -> int:
        return super()._hash(f"prefix {self._prefixes[node]}") << 64 | super()._hash(node)

    def _rank(self, number: int, hashed: int, is_near: bool) -> tuple[int, int]:
        slot = self._slots[number]
        first, second = hashed >> 64, hashed & (1 << 64) - 1
        ranks = [(slot.factor * part + slot.offset) % PRIME for part in (first, second)]
        return 0, ranks[0] << 61 | ranks[1]


def prefixes(place: str) -> dict[NodeId, str]:
    """By id, the prefix of each node's address."""
    honest = [f"p{number}" for number, size in enumerate(SIZES) for _ in range(size)]
    found = {f"honest{number}": prefix for number, prefix in enumerate(honest)}
    for number in range(LIARS):
        where = {PLACES[0]: "l", PLACES[1]: honest[number * 4], PLACES[2]: f"l{number}"}
        found[f"liar{number}"] = where[place]
    return found


def row(place: str, by: str) -> dict[str, Any]:
    """The share of liars in views, and how uneven honest nodes are in them."""
    where, shares, times = prefixes(place), [], Counter[NodeId]()
    peers = [Peer(node, f"{prefix}:1") for node, prefix in where.items()]
    for viewer in range(VIEWERS):
        rng = Random(f"{place} {viewer}")
        slots = (
            PrefixSlots(VIEW, rng, where)
            if by == "prefix"
            else RankedSlots(VIEW, 0, lambda peer: False, rng)
        )
        for peer in peers:
            slots.offer(peer)
        view = [slot.holder.id for slot in slots._slots if slot.holder is not None]
        shares.append(sum(node.startswith("liar") for node in view) / len(view))
        times.update(node for node in view if node.startswith("honest"))
    mean = sum(times.values()) / HONEST
    most = max(times.values()) / mean
    return {"liars": place, "by": by, "share": round(fmean(shares), 3), "most": round(most, 1)}


def main() -> None:
    """Print one line for each way to place liars and to rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="rows for the lab")
    arguments = parser.parse_args()
    rows = [row(place, by) for place in PLACES for by in ("id", "prefix")]
    if arguments.json:
        print(json.dumps(rows))
        return
    for each in rows:
        print(f"liars in {each['liars']}: by {each['by']} {each['share']}, most {each['most']}")


if __name__ == "__main__":
    main()
