"""Knows which nodes are sub-healthy, by their own word and by a health file (T6,
docs/design/health.md).

Every node judges itself by what it measures (`judge`), needs nobody for it, and says what it found
to the primary of its cluster with each answer to a heartbeat (`hear`). A health file, which the
driver reads where one is configured, says more: what others saw of a node, and its past. Of both
the worse counts.

Health orders nodes and excludes none: wherever one of several is chosen, the healthy come first,
and where all are sub-healthy the order is as if nothing were known. A node of which nobody says
anything is healthy. What is not said again ends, by the node's own clock: a file after `valid_for`,
a node's word after `WORD_HOLDS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, Protocol

import msgspec
from msgspec import Meta

from overlay.machine import NodeId, Peer

Severity = Annotated[int, Meta(ge=0, le=3)]
"""Tensor's threat levels (table III): 0 healthy, 1 relatively high, 2 high, 3 extremely high."""

SIGN_HOLDS: Final = 120.0
"""Seconds for which a node takes a sign of itself for true after it was seen: a window of the
analysis (HEALTH_WINDOW). Guess; to be measured by how often a cluster changes its standby."""

WORD_HOLDS: Final = 30.0
"""Seconds for which a node's word holds where it is no longer heard. It is said several times a
second while it serves in a cluster; guess."""


class OwnSign(msgspec.Struct, frozen=True):
    """A signal of Tensor's tree that a node sees of itself: the `field` of a health record is at
    least `least` in `records` records within `SIGN_HOLDS`. `name` and `says` word it."""

    field: str
    name: str
    severity: Severity
    least: float
    says: str
    records: int = 1


LATE: Final = OwnSign("late_ms", "late", 2, 1_000.0, "ms by which its timers were late", records=2)
"""One stall is no sign: a machine may have been paused once."""
LATENCY: Final = OwnSign("round_trip_ms", "latency", 2, 1_000.0, "ms for a round trip")
MEMORY: Final = OwnSign("memory", "memory", 1, 95.0, "percent of the memory in use")
DISK: Final = OwnSign("disk", "disk", 1, 95.0, "percent of the disk in use")

OWN_SIGNS: Final = (LATE, LATENCY, MEMORY, DISK)
"""From the root of the tree to its leaves. Of the other four signals a node knows nothing (its
crash, its log), or they are its load, by which hosts are chosen anyway (processor, programs): a
busy node is not one that is about to fail."""


class NodeHealth(msgspec.Struct, frozen=True, array_like=True):
    """The health of a node, as stated by a file or by the node itself."""

    severity: Severity
    reason: Annotated[str, Meta(max_length=1_000)]
    """The reason, for people."""


class HealthReport(msgspec.Struct, frozen=True):
    """The content of a health file, for `valid_for` more seconds."""

    nodes: dict[NodeId, NodeHealth]
    valid_for: float


class Clock(Protocol):
    """The part of a node's Port that `Health` uses."""

    @property
    def now(self) -> float:
        """Seconds of a monotonic clock, from any beginning."""


class Health:
    """The known health of nodes: the newest health file while it is valid, and the nodes' own
    statements. Machines that choose among nodes read it."""

    def __init__(self, clock: Clock) -> None:
        self.own: NodeHealth | None = None
        """This node's finding about itself; None: it is healthy, or has not measured yet."""
        self.is_judged = False
        """Whether it has measured."""
        self.words: dict[NodeId, tuple[NodeHealth, float]] = {}
        """The words of sub-healthy nodes about themselves, and until when each holds: of members of
        the own cluster, who alone are heard."""
        self._clock = clock
        self._nodes: dict[NodeId, NodeHealth] = {}
        self._until = float("-inf")
        self._changes = 0
        # By field, when its sign was seen and with which value; as many as are needed.
        self._seen: dict[str, list[tuple[float, float]]] = {}

    def update(self, report: HealthReport) -> None:
        """Use `report` from now on in the place of the one before."""
        self._changes += 1
        self._nodes = {node: found for node, found in report.nodes.items() if found.severity}
        self._until = self._clock.now + report.valid_for

    def judge(self, me: NodeId, measured: Mapping[str, float]) -> None:
        """Judge this node by its own measurements (the fields of a health record). It is
        sub-healthy by the first sign from the root of the tree, until none has been seen for
        `SIGN_HOLDS`."""
        now = self._clock.now
        found = None
        for sign in OWN_SIGNS:
            seen = self._seen.setdefault(sign.field, [])
            value = measured.get(sign.field, 0.0)
            if value >= sign.least:
                seen.append((now, value))
            seen[:] = [each for each in seen[-sign.records :] if each[0] > now - SIGN_HOLDS]
            if found is None and len(seen) >= sign.records:
                worst = max(value for _, value in seen)
                found = NodeHealth(sign.severity, f"{sign.name}: {worst:g} {sign.says}")
        self.own, self.is_judged = found, True
        self._note(me, found, SIGN_HOLDS)

    def hear(self, node: NodeId, word: NodeHealth | None) -> None:
        """Take what a node says of its own health; None: it is healthy."""
        self._note(node, word, WORD_HOLDS)

    def _note(self, node: NodeId, word: NodeHealth | None, holds: float) -> None:
        before = self.words.get(node)
        if word is not None:
            self._forget_words()
            self.words[node] = (word, self._clock.now + holds)
        elif before is not None:
            del self.words[node]
        if (before and before[0]) != word:
            self._changes += 1

    @property
    def is_known(self) -> bool:
        """Whether there is a valid report."""
        return self._clock.now < self._until

    @property
    def changes(self) -> int:
        """Grows whenever another answer may be given than before."""
        if self._nodes and not self.is_known:
            self._nodes = {}
            self._changes += 1
        if self.words:
            self._forget_words()
        return self._changes

    def _forget_words(self) -> None:
        now = self._clock.now
        for node in [node for node, (_, until) in self.words.items() if until <= now]:
            del self.words[node]
            self._changes += 1

    def found(self, node: NodeId) -> NodeHealth | None:
        """The worse of what the report and the node itself say, if it is sub-healthy."""
        if not (self._nodes or self.words):
            return None
        found = self._nodes.get(node) if self.is_known else None
        word = self.words.get(node)
        if word is None or word[1] <= self._clock.now:
            return found
        return word[0] if found is None or word[0].severity > found.severity else found

    def severity(self, node: NodeId) -> int:
        """0 if the node is healthy, or nothing is known of it; else 1 to 3."""
        found = self.found(node)
        return 0 if found is None else found.severity

    def reason(self, node: NodeId) -> str:
        """Return why the node is sub-healthy; "" if it is not."""
        found = self.found(node)
        return "" if found is None else found.reason

    def reasons(self, nodes: Iterable[NodeId]) -> dict[NodeId, str]:
        """Return those of `nodes` that are sub-healthy, with the reason for each."""
        return {node: self.reason(node) for node in nodes if self.severity(node)}

    def healthy_first(self, peers: Iterable[Peer]) -> list[Peer]:
        """All of `peers`: by severity, those of one severity in the order given."""
        return sorted(peers, key=lambda peer: self.severity(peer.id))

    def healthiest(self, peers: Sequence[Peer]) -> Sequence[Peer]:
        """Return those of `peers` with the least severity among them; empty only if there are
        none."""
        if not (self._nodes or self.words) or len(peers) < 2:
            return peers
        least = min(self.severity(peer.id) for peer in peers)
        return [peer for peer in peers if self.severity(peer.id) == least]
