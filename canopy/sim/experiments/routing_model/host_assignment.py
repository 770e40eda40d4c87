"""The hosts of the runs: how many replicas each has, and which a publisher visits (C6, C11).

Each run has some hosts at least, each with all of the run's registrations, on different nodes. What
most events visit would burn one host. So runs get more replicas in proportion to what they
have to send and receive, until a host has no more to do than a wanted load. The registrations of
all replicas together stay within a bound; where that is not enough, all hosts do a little more.
What a run has to do is learnt from some events, with caution (`likely_work`).

A publisher picks a replica by a hash of itself and the run: it visits the same one each time, so
that its link stays open, and publishers spread. Where that one does not acknowledge it takes
another one by another hash, so that the work of the dead is spread too and does not fall to one
neighbour. When none does, the owner plants the run anew on another node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random
from zlib import crc32

STEPS = 60
"""Halvings when the load that fits the bound is looked for."""


def likely_work(handled: Sequence[int], most: int) -> float:
    """Messages that a run may have to handle in as many events again.

    `handled`: by each visit of the sample; `most`: what one visit can cost. It is the sum with one
    standard deviation of it more (visits come one by one, as a Poisson process; so its variance is
    the sum of the squares), counting one more visit of the costliest kind. Without that a run that
    the sample has hardly met would look as if it had nothing to do, and get the least replicas: at
    100,000 nodes with 150 kinds of events, of which 500 events show three of each, its hosts had 22
    times the mean load. Two deviations would take the replicas that the busiest runs need.
    """
    return sum(handled) + math.sqrt(sum(each * each for each in handled) + most * most)


def replicas_for(
    work: Sequence[float], entries: Sequence[int], least: int, wanted: float, registrations: float
) -> list[int]:
    """How many hosts each run gets.

    `work`: messages that each run handles, in any unit; `wanted`: what one host should handle at
    most, in that unit; `registrations`: how many all replicas together may have at most, unless
    `least` replicas each need more.
    """

    def copies(limit: float) -> list[int]:
        return [max(least, math.ceil(part / limit)) for part in work]

    def cost(limit: float) -> int:
        return sum(c * n for c, n in zip(copies(limit), entries, strict=True))

    if not work or max(work) <= 0:
        return [least] * len(work)
    low, high = wanted, max(wanted, *work)  # at `high` each run has `least`
    if cost(low) <= registrations:
        return copies(low)
    for _ in range(STEPS):
        middle = (low + high) / 2
        if cost(middle) <= registrations:
            high = middle
        else:
            low = middle
    return copies(high)


class Fleet:
    """The hosts of every run, and their work."""

    def __init__(
        self, copies: Sequence[int], entries: Sequence[int], nodes: int, rng: Random
    ) -> None:
        """`copies` and `entries` per run. No node has a second run before every node has one."""
        self._entries = entries
        self._free = list(range(nodes))
        rng.shuffle(self._free)
        self._taken = 0
        self.hosts = [[self._recruit() for _ in range(min(count, nodes))] for count in copies]
        self.planted: dict[int, int] = {}  # run -> the node on which it was planted anew

    def _recruit(self) -> int:
        self._taken += 1
        return self._free[(self._taken - 1) % len(self._free)]

    def choices(self, run: int, publisher: int, most: int) -> Iterator[int]:
        """At most `most` hosts of a run, in the order in which this publisher tries them: the
        beginning of a shuffle, in which each step is a hash."""
        hosts = self.hosts[run]
        moved: dict[int, int] = {}
        for number in range(min(most, len(hosts))):
            last = len(hosts) - number - 1
            place = crc32(b"%d %d %d" % (publisher, run, number)) % (last + 1)
            yield hosts[moved.get(place, place)]
            moved[place] = moved.get(last, last)

    def plant(self, run: int, alive: Sequence[bool]) -> int:
        """Another host for a run of which no replica answers, and answers itself."""
        if run not in self.planted:
            node = self._recruit()
            while not alive[node]:
                node = self._recruit()
            self.planted[run] = node
        return self.planted[run]

    def entries(self) -> dict[int, int]:
        """Index entries by node, of the nodes that host something."""
        found: dict[int, int] = {}
        for run, hosts in enumerate(self.hosts):
            for node in [*hosts, *([self.planted[run]] if run in self.planted else [])]:
                found[node] = found.get(node, 0) + self._entries[run]
        return found
