"""The overlays: nodes whose headers name one overlay and that met, directly or through others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from canopy.traces.analysis.completeness.facts import PeerFacts
from canopy.traces.analysis.completeness.holes import RunFacts


@dataclass(frozen=True)
class OverlayFacts:
    """Nodes that are judged together, apart from all others in the folder."""

    name: str  # the overlay's, with a number if several of this name never met
    runs: tuple[RunFacts, ...]
    absent: tuple[str, ...]
    """Ids of nodes that others name and that have no record."""
    forwards: int  # events that were sent to these
    apart: bool
    """Whether another part of the same overlay's name, which did something at the same time, never
    met this one."""
    strangers: tuple[str, ...] = ()
    """Ids of its nodes that met nodes of another overlay's name, which no nodes do."""

    @property
    def nodes(self) -> set[str]:
        """Ids of the nodes that have records."""
        return {run.node for run in self.runs}

    @property
    def is_whole(self) -> bool:
        """Whether every record of each node that others name is there."""
        return all(run.is_whole for run in self.runs) and not self.absent and not self.apart

    @property
    def sample(self) -> float:
        """The share of the events that all of its nodes keep."""
        return min((run.sample for run in self.runs if run.sample is not None), default=1.0)


def overlays_of(runs: Sequence[RunFacts], peers: Sequence[PeerFacts]) -> list[OverlayFacts]:
    """The overlays, those with most nodes first. A part that neither published nor subscribed
    anything goes with the largest of its name."""
    said = {run.node: run.overlay for run in runs if run.overlay}
    named = _named(said, peers)
    joined = {run.node: run.node for run in runs}

    def root(node: str) -> str:
        while joined[node] != node:
            joined[node] = node = joined[joined[node]]
        return node

    # A node without records may be all that two others have in common.
    for each in peers:
        for node in (each.node, each.peer) if each.met else ():
            joined.setdefault(node, node)
    strangers: set[str] = set()
    for each in peers:
        if not each.met:
            continue
        names = {named.get(each.node), named.get(each.peer)} - {None}
        if len(names) < 2:
            joined[root(each.peer)] = root(each.node)
        elif each.node in said and each.peer in said:
            strangers |= {each.node, each.peer}
    parts: dict[tuple[str, str], list[RunFacts]] = {}
    for run in runs:
        parts.setdefault((named.get(run.node, ""), root(run.node)), []).append(run)
    return _labelled(_without_idle(parts), peers, strangers)


def _named(said: Mapping[str, str], peers: Iterable[PeerFacts]) -> dict[str, str]:
    """Return the overlay's name of each node: from its headers, else from all the nodes that it
    met."""
    named = dict(said)
    met: dict[str, set[str]] = {}
    for each in peers:
        if each.met:
            met.setdefault(each.node, set()).add(each.peer)
            met.setdefault(each.peer, set()).add(each.node)
    left = sorted(met.keys() - named.keys())
    while left:
        found = {
            node: names.pop()
            for node in left
            if len(names := {named[peer] for peer in met[node] if peer in named}) == 1
        }
        if not found:
            break
        named |= found
        left = [node for node in left if node not in found]
    return named


def _without_idle(
    parts: dict[tuple[str, str], list[RunFacts]],
) -> dict[str, list[tuple[str, list[RunFacts]]]]:
    """By name the parts with their roots, the largest first."""
    by_name: dict[str, list[tuple[str, list[RunFacts]]]] = {}
    for (name, at), found in sorted(parts.items(), key=lambda item: (-len(item[1]), item[0])):
        by_name.setdefault(name, []).append((at, found))
    for name, groups in by_name.items():
        groups.sort(key=lambda group: -sum(run.acts for run in group[1]))
        busy = [group for group in groups if any(run.acts for run in group[1])] or groups[:1]
        idle = [run for group in groups if group not in busy for run in group[1]]
        by_name[name] = [(busy[0][0], busy[0][1] + idle), *busy[1:]]
    return by_name


def _labelled(
    by_name: dict[str, list[tuple[str, list[RunFacts]]]],
    peers: Iterable[PeerFacts],
    strangers: Set[str],
) -> list[OverlayFacts]:
    present = {run.node for groups in by_name.values() for _, runs in groups for run in runs}
    sent: dict[str, int] = {}
    home: dict[str, set[str]] = {}
    for each in peers:
        if each.peer not in present and each.met:
            sent[each.peer] = sent.get(each.peer, 0) + each.forwards
            home.setdefault(each.node, set()).add(each.peer)
    found = []
    for name, groups in by_name.items():
        for number, (_, runs) in enumerate(groups, 1):
            nodes = {run.node for run in runs}
            absent = sorted({peer for node in nodes for peer in home.get(node, ())})
            others = [run for other, more in groups if more is not runs for run in more]
            met_in_time = any(
                one.first <= other.last and other.first <= one.last
                for one in runs
                for other in others
            )
            label = name or "without a name"
            found.append(
                OverlayFacts(
                    name=label if len(groups) == 1 else f"{label} #{number}",
                    runs=tuple(runs),
                    absent=tuple(absent),
                    forwards=sum(sent[peer] for peer in absent),
                    apart=met_in_time,
                    strangers=tuple(sorted(nodes & strangers)),
                )
            )
    return sorted(found, key=lambda each: (-len(each.nodes), each.name))
