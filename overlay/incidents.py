"""Incidents: broken links, elections and recoveries around this node, for people (P8).

A machine that only listens: it turns local events of links and clusters into *incidents*, which it
keeps for the terminal UI (`GetIncidents`), counts (`canopy status`) and traces (kind ``incident``).
It sees what its own node sees: the links that this node loses, and, where it is a member of a
cluster, the elections there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from traceback import extract_tb
from typing import Final, NamedTuple

from overlay.bounded import BoundedDict
from overlay.chord.events import (
    Fenced,
    MemberJoined,
    MemberLost,
    PrimarySuspected,
    RingLeft,
    RoleChanged,
)
from overlay.chord.messages import Cluster
from overlay.client import Command, GetIncidents, Incidents
from overlay.info import Incident
from overlay.links.events import IdentityConflict, LinkDown, LinkUp
from overlay.machine import LocalEvent, Machine, NodeId, Port

MAX_INCIDENTS: Final = 200
"""Incidents that a node remembers. Guess: an hour with faults; to be measured by how far back
people scroll."""

MAX_PEERS_DOWN: Final = 1_000
"""Peers whose link is down that are remembered, to report when they are back. Guess: more than a
node has links to at a time."""

REPEAT_WITHIN: Final = 1.0
"""Seconds within which the same incident is not noted again: a new primary admits some members
twice. Guess; to be measured by incidents that repeat in the recovery trials."""


class IncidentRecord(NamedTuple):
    """An incident as it is kept. `at`: monotonic seconds; the rest as in `Incident`."""

    at: float
    what: str
    node: NodeId
    cluster: Cluster | None
    text: str


class Alarmed(LocalEvent, frozen=True):
    """Something that an operator has to look at. `what`: two or three words."""

    what: str
    text: str


FAULT = "a fault of this node, which its operators have to look at"
"""The error as others see it."""


def contain(port: Port, what: str, error: Exception) -> str:
    """Count a fault of this program, and report to operators where it is. `what` was handled.
    Return a description of the fault.

    A handler that raises an unexpected error usually ends the process: the state of a cluster's
    log, votes or leases in memory is then unknown, while the state on disk is whole. But the data
    of users passes through other nodes next: the next host of the tree, all interested nodes, the
    node at which a program connects again. Data that ends one node would end all of them, again at
    each start. So for these the event or command is refused instead.
    """
    place = extract_tb(error.__traceback__)[-1]
    where = f"{place.filename.rpartition('/')[2]}:{place.lineno}"
    text = f"{what}: {type(error).__name__} at {where}: {str(error)[:200]}"
    port.count("faults_contained")
    port.emit(Alarmed("fault contained", text))
    return text


class IncidentLog(Machine):
    """Keeps the last incidents that this node saw, counts them by kind, and writes them to the
    trace (P8)."""

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self.records: deque[IncidentRecord] = deque(maxlen=MAX_INCIDENTS)
        self._down: BoundedDict[NodeId, float] = BoundedDict(MAX_PEERS_DOWN)  # since when
        self._left: BoundedDict[NodeId, None] = BoundedDict(MAX_PEERS_DOWN)  # said that they leave
        self._role: tuple[Cluster | None, str] = (None, "none")  # as last heard
        self._suspected: float | None = None  # since when the primary is silent

    def commands(self) -> dict[type[Command], Callable[..., None]]:
        """Commands with the method that carries each out."""
        return {GetIncidents: self.get_incidents}

    def get_incidents(self, client: int, command: GetIncidents) -> None:
        """Reply with all incidents that are kept, the newest first."""
        now = self.port.now
        found = tuple(
            Incident(
                now - one.at,
                one.what,
                one.node,
                "" if one.cluster is None else one.cluster.key,
                0 if one.cluster is None else one.cluster.version[0],
                one.text,
            )
            for one in reversed(self.records)
        )
        self.port.reply(client, Incidents(command.request, found))

    # --- events of links and clusters ---

    def on_link_down(self, event: LinkDown) -> None:
        """The link to a peer has ended. Noted once until it is up again: each attempt that fails
        meanwhile ends a session of its own. A peer that said that it leaves is no incident, nor is
        that it is not reached afterwards."""
        if event.left:
            self._left[event.peer.id] = None
        if event.peer.id in self._left or event.peer.id in self._down:
            return
        self._down[event.peer.id] = self.port.now
        self._note("link down", event.peer.id, None, event.reason)

    def on_link_up(self, event: LinkUp) -> None:
        """Note that the link to a peer is up again, perhaps to another process."""
        self._left.pop(event.peer.id, None)
        since = self._down.pop(event.peer.id, None)
        if since is not None:
            self._note("back", event.peer.id, None, f"after {self._since(since)}")

    def on_identity_conflict(self, event: IdentityConflict) -> None:
        """Another process has this node's id."""
        which = "this one has to stop" if event.must_stop else "that one has to stop"
        text = f"another process at {event.peer.address}, start {event.incarnation}: {which}"
        self._note("identity conflict", event.peer.id, None, text)

    def on_primary_suspected(self, event: PrimarySuspected) -> None:
        """At a voter: the primary is silent. Noted once until a primary is elected."""
        if self._suspected is None:
            self._suspected = self.port.now
            self._note("silent", event.cluster.primary.id, event.cluster, "the primary")

    def on_role_changed(self, event: RoleChanged) -> None:
        """Another primary was elected, or this node has another role. Other changes of the
        cluster's description are no incidents."""
        (before, role), self._role = self._role, (event.cluster, event.role)
        now = event.cluster
        if now is not None and before is not None and now.key == before.key:
            self._compare(before, now)
        if event.role != role:
            cluster = before if now is None else now
            self._note("role", self.port.me.id, cluster, f"{event.role}, was {role}")

    def _compare(self, before: Cluster, now: Cluster) -> None:
        if now.version[0] == before.version[0]:
            return
        text = "again"
        if before.primary.id != now.primary.id:
            text = f"in place of {before.primary.id}"
        if self._suspected is not None:
            text += f", {self._since(self._suspected)} after it was suspected"
            self._suspected = None
        self._note("elected", now.primary.id, now, text)

    def on_fenced(self, event: Fenced) -> None:
        """Note that this node was primary, and another one is now."""
        self._note("fenced", event.cluster.primary.id, event.cluster, "leads what was led here")

    def on_member_joined(self, event: MemberJoined) -> None:
        """At the primary: a member serves in the cluster."""
        self._note("joined", event.peer.id, self._role[0], "serves in the cluster")

    def on_member_lost(self, event: MemberLost) -> None:
        """At the primary: a member no longer serves in the cluster."""
        self._note("member gone", event.peer.id, self._role[0], "serves no more")

    def on_ring_left(self, event: RingLeft) -> None:
        """Note that this node's ring has ended: two rings have become one."""
        text = f"{event.ring} has ended: over to {event.into}"
        self._note("ring ended", self.port.me.id, None, text)

    def on_alarmed(self, event: Alarmed) -> None:
        """A part of the node asks for an operator."""
        self._note(event.what, self.port.me.id, None, event.text)

    def _note(self, what: str, node: NodeId, cluster: Cluster | None, text: str) -> None:
        last = self.records[-1] if self.records else None
        same = last is not None and (last.what, last.node, last.text) == (what, node, text)
        if last is not None and same and self.port.now - last.at < REPEAT_WITHIN:
            return
        self.records.append(IncidentRecord(self.port.now, what, node, cluster, text))
        self.port.count(f"incidents_{what.replace(' ', '_')}")
        key, epoch = ("", 0) if cluster is None else (cluster.key, cluster.version[0])
        self.port.trace("incident", what=what, peer=node, name=key, epoch=epoch, reason=text)

    def _since(self, at: float) -> str:
        return f"{self.port.now - at:.1f} s"
