"""Supervises the hosts of the owned trees: which can be reached, may serve, and are to be relieved
(C6).

The primary keeps a link to every host, so that it notices when one falls silent, and grants serving
leases (lease_grants.py) to those whose registrations it can rely on. A host that comes back as a
new process is sent what of the arc is its to serve (`TreesHosted`), and drops the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Protocol

import msgspec

from overlay.bounded import BoundedDict
from overlay.chord.clusters import Clusters
from overlay.chord.events import MemberJoined, MemberLeaving
from overlay.links.events import LinkDown, LinkRecovered, LinkSuspected, LinkUp
from overlay.machine import Alarm, Key, Machine, NodeId, Peer, Port, Timer
from overlay.settings import Settings
from overlay.upper_tree.events import LeasesOver
from overlay.upper_tree.host_load import Machines
from overlay.upper_tree.messages import ServingReply, StillHosting, StopsHosting, TreesHosted
from overlay.upper_tree.owner.constants import (
    DETOUR_LEAST,
    DETOUR_ROUND_TRIPS,
    LOST_NODES_MOST,
    REBALANCE_DELAY,
    RELIEVED_FOR,
    REPLACED_FOR,
    SILENT_LATE,
    SILENT_LEAST,
)
from overlay.upper_tree.owner.lease_grants import LeaseGrants, ServingBeatDue
from overlay.upper_tree.owner.owned_tree import OwnedTree, OwnedTrees
from overlay.upper_tree.owner.reported_loads import ReportedLoads

# --- hosts that are silent, long before their links are given up (C6) ---
#
# A virtual node whose hosts are all silent is served by none. So it is given one more at once
# (rebalance.py), though the silent host may only be paused, or slow. What says that a host is
# silent:
#
# - its link is suspected: something was not acknowledged in time (LinkSuspected). From then on
#   other nodes are asked to reach it (overlay/links/links.py), and where one does its link
#   recovers;
# - so long as that may take nothing was acknowledged, and no answer to a serving beat came for
#   `SILENT_LEAST` in any case. Both go by measured round trips, so a slow network makes none
#   silent;
# - this node did not stand still itself meanwhile.
#
# A host that is heard again counts as silent for `RELIEVED_FOR` more, so that one which stands
# still now and then is not relieved and given its virtual nodes back each time.


class SilenceDue(Timer, frozen=True):
    """A host whose link is suspected may count as silent now."""


class Suspicion(msgspec.Struct):
    """A host whose link is suspected, or was of late."""

    silent_at: float
    """The time from which it counts as silent if it is not heard."""
    wait: float
    """Seconds that the other ways to it take."""
    is_silent: bool = False
    until: float = inf
    """It was heard: until when it still counts as silent."""


class SilentHosts:
    """Notices hosts that fall silent, at the primary. Times are the Port's seconds."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._suspected: dict[NodeId, Suspicion] = {}
        self._due = Alarm(port, SilenceDue())

    def suspected(self, node: NodeId, heard_at: float, round_trip: float) -> None:
        """Suspect a host: its link is suspected. It has answered last at `heard_at`, and usually
        takes `round_trip` seconds for an answer."""
        known = self._suspected.get(node)
        if known is not None and (known.until == inf or known.is_silent):
            known.until = inf
            return
        now = self._port.now
        wait = max(DETOUR_LEAST, DETOUR_ROUND_TRIPS * round_trip)
        silent_at = max(now + wait, heard_at + SILENT_LEAST)
        self._suspected[node] = Suspicion(silent_at, wait)
        self._due.within(silent_at - now)

    def heard(self, node: NodeId) -> None:
        """Note that the host answers again."""
        known = self._suspected.get(node)
        if known is not None and not known.is_silent:
            del self._suspected[node]
        elif known is not None and known.until == inf:
            known.until = self._port.now + RELIEVED_FOR

    def forget(self, node: NodeId) -> None:
        """Forget a host whose link was given up: its virtual nodes move."""
        self._suspected.pop(node, None)

    def clear(self) -> None:
        """Forget all suspicions, because this node is not, or no longer, a primary."""
        self._suspected.clear()
        self._due.cancel()

    def rang(self) -> bool:
        """`SilenceDue` has come: set the next one. Whether some host is silent that was not."""
        self._due.rang()
        now, found = self._port.now, False
        waiting: list[float] = []
        for node, each in list(self._suspected.items()):
            if each.is_silent:
                if each.until <= now:
                    del self._suspected[node]
                continue
            if each.silent_at + SILENT_LATE < now:
                each.silent_at = now + each.wait  # this node stood still
            if each.silent_at <= now:
                each.is_silent = found = True
            else:
                waiting.append(each.silent_at)
        if waiting:
            self._due.within(min(waiting) - now)
        return found

    def is_silent(self, node: NodeId) -> bool:
        """Whether the host does not answer, or did not until shortly before."""
        known = self._suspected.get(node)
        if known is None or not known.is_silent:
            return False
        if known.until <= self._port.now:
            del self._suspected[node]
            return False
        return True

    def __len__(self) -> int:
        """Return the number of remembered hosts. Used by checks."""
        return len(self._suspected)


class ServingAuthority(Protocol):
    """The part of the owner's role that the supervisor uses."""

    @property
    def epoch(self) -> int:
        """The epoch under which hosts are given orders."""

    def serving_arc(self) -> tuple[Key, Key] | None:
        """(start, key] of the arc for which serving leases may be granted now; None: for none."""

    def transfer_if_settled(self) -> None:
        """Transfer an arc, if it waited for hosts to stop serving and none serves any more."""

    def rebalance_soon(self, delay: float = REBALANCE_DELAY) -> None:
        """Look at the load in `delay` seconds."""


class HostSupervisor(Machine):
    """Supervises hosts at the primary; where a node is no primary it only remembers who cannot be
    reached."""

    def __init__(
        self,
        port: Port,
        settings: Settings,
        clusters: Clusters,
        trees: OwnedTrees,
        authority: ServingAuthority,
    ) -> None:
        super().__init__(port)
        self.leases = LeaseGrants(port, settings.tree.serving_lease, settings.tree.serving_most)
        self.loads = ReportedLoads()
        self.machines = Machines()
        self.machines.reported(port.me, port.processors)
        self._silent = SilentHosts(port)
        self._clusters = clusters
        self._trees = trees
        self._authority = authority
        self._unreachable: BoundedDict[NodeId, None] = BoundedDict(LOST_NODES_MOST)
        self._leaving: dict[NodeId, Peer] = {}  # members that want to be released
        self._lost_at: dict[str, float] = {}
        """By tree: when a host of it was lost last, or since when its hosts are known."""

    # --- the role ---

    def begin(self, hosts: list[Peer]) -> None:
        """Begin to supervise hosts as the new primary. `hosts` may have serving leases from the
        previous primary."""
        self._leaving.clear()
        self._lost_at.clear()
        self.leases.begin(hosts)
        self.loads.begin(self.port.now, are_known=not hosts)

    def begin_elected(self, lost: Peer, members: list[Peer], hosts: list[Peer]) -> None:
        """Begin to supervise hosts after this node was elected in place of `lost`. A member may
        have begun to serve a tree without any other node knowing it as a host, so send every member
        the trees that it hosts."""
        me = self.port.me.id
        self._lost_at.clear()
        if lost.id != me:
            self._unreachable[lost.id] = None
        self.leases.begin(hosts)
        self.loads.begin(self.port.now, are_known=not hosts)
        for owned in self._trees.values():
            owned.doubt_acknowledgements()
            owned.begin_epoch()
        for member in (*members, lost):
            if member.id != me:
                self._send_hosted(member)

    def end(self) -> None:
        """Stop to renew hosts' leases and to watch hosts: this node leads no cluster any more."""
        self.leases.end()
        self._silent.clear()
        self.loads.begin(self.port.now, are_known=True)
        self.port.watch("hosts", ())

    # --- reachability ---

    def on_link_down(self, event: LinkDown) -> None:
        """Give a silent host no further work."""
        self._unreachable[event.peer.id] = None
        self._silent.forget(event.peer.id)
        if self._clusters.is_primary and not event.left:
            for attribute in [name for name in self._lost_at if name not in self._trees]:
                del self._lost_at[attribute]
            for attribute, owned in self._trees.items():
                if event.peer.id in owned.all_hosts():
                    self._lost_at[attribute] = self.port.now
        self._leaving.pop(event.peer.id, None)
        self.loads.forget(event.peer.id, self.port.now)
        if event.left:
            self.leases.left(event.peer)
        if self._clusters.is_primary:
            self._authority.rebalance_soon()

    def on_link_up(self, event: LinkUp) -> None:
        """The node can be reached again. In a new session it is sent which trees it hosts: it may
        have missed the end of one."""
        self._unreachable.pop(event.peer.id, None)
        self._silent.heard(event.peer.id)
        if event.fresh and self._clusters.is_primary:
            self._send_hosted(event.peer)

    def on_link_suspected(self, event: LinkSuspected) -> None:
        """A host, or one that may be asked to, does not acknowledge: if it is not heard soon, its
        virtual nodes that have no other host are given one."""
        node, cluster = event.peer.id, self._clusters.cluster
        if not self._clusters.is_primary or cluster is None:
            return
        if self.leases.attends(node) or cluster.has_member(node):
            self._silent.suspected(node, *self.leases.last_answer(node))

    def on_link_recovered(self, event: LinkRecovered) -> None:
        """A host acknowledges again: it is no longer silent."""
        self._silent.heard(event.peer.id)

    def on_silence_due(self, timer: SilenceDue) -> None:
        """Hosts that were not heard for so long are silent: relieve them at once."""
        if self._silent.rang() and self._clusters.is_primary:
            self._authority.rebalance_soon(0.0)

    def is_silent(self, node: NodeId) -> bool:
        """Whether a host does not answer, though its link is not given up, or did not of late."""
        return self._silent.is_silent(node)

    def on_member_joined(self, event: MemberJoined) -> None:
        """A member that joins can be reached, and may host."""
        self._leaving.pop(event.peer.id, None)
        self._unreachable.pop(event.peer.id, None)

    def on_member_leaving(self, event: MemberLeaving) -> None:
        """A member wants to leave: it is given nothing more, and released when it hosts nothing."""
        self._leaving[event.peer.id] = event.peer

    def on_stops_hosting(self, sender: Peer, message: StopsHosting) -> None:
        """A host that is no member leaves: it is given nothing more, and its trees move. (Of a
        member the cluster knows that it leaves, and when it may go.)"""
        cluster = self._clusters.cluster
        if self._clusters.is_primary and cluster is not None and not cluster.has_member(sender.id):
            self._leaving[sender.id] = sender
            self._authority.rebalance_soon()

    def on_still_hosting(self, sender: Peer, message: StillHosting) -> None:
        """A host serves trees of an owner that was lost, or of none that it knows."""
        cluster = self._clusters.cluster
        if self._clusters.is_primary and cluster is not None and cluster.key == message.key:
            if message.epoch > self._authority.epoch:
                self._clusters.outrank(message.epoch)
            self._send_hosted(sender)

    def _send_hosted(self, peer: Peer) -> None:
        """Send the node which trees of this arc it hosts; it drops the others."""
        cluster = self._clusters.cluster
        if cluster is not None:
            hosted = tuple(a for a, owned in self._trees.items() if peer.id in owned.all_hosts())
            start, key, ring = cluster.start, cluster.key, cluster.ring
            self.port.send(peer, TreesHosted(start, key, self._authority.epoch, hosted, ring))

    def replaced(self, attributes: Iterable[str]) -> tuple[tuple[str, float], ...]:
        """Return those of these trees that lost a host within `REPLACED_FOR`, or are new here,
        with the number of seconds since then. Events that such a host held for others are lost
        with it."""
        now = self.port.now
        found = [
            (name, now - self._lost_at.setdefault(name, now))
            for name in attributes
            if name in self._trees
        ]
        return tuple([(name, seconds) for name, seconds in found if seconds < REPLACED_FOR])

    def is_reachable(self, node: NodeId) -> bool:
        """Whether no link to the node was lost since it was last there."""
        return node not in self._unreachable

    @property
    def unreachable(self) -> int:
        """The number of remembered lost nodes."""
        return len(self._unreachable)

    def may_be_given_trees(self, node: NodeId) -> bool:
        """Whether the node can be reached and does not want to leave."""
        return node not in self._unreachable and node not in self._leaving

    def take_released(self) -> list[Peer]:
        """Members that want to leave and host nothing any more. Each is returned once."""
        released = [
            peer
            for peer in self._leaving.values()
            if not any(peer.id in owned.all_hosts() for owned in self._trees.values())
        ]
        for peer in released:
            del self._leaving[peer.id]
        return released

    def reachable(self, owned: OwnedTree) -> dict[NodeId, Peer]:
        """Every host that may have registrations of this tree and can be reached."""
        return {n: peer for n, peer in owned.all_hosts().items() if n not in self._unreachable}

    def has_reachable_stale(self, owned: OwnedTree) -> bool:
        """Whether a stale host of the tree can be reached; it has to be given everything again."""
        return any(node not in self._unreachable for node in owned.stale_hosts)

    def has_serving_stale(self, owned: OwnedTree) -> bool:
        """Return whether a stale host of this tree may serve with an outdated map: one that is
        reachable, or a lost one whose serving lease has not expired."""
        may_serve = self.leases.may_serve
        return any(n not in self._unreachable or may_serve(n) for n in owned.stale_hosts)

    @property
    def awaits_lost_leases(self) -> bool:
        """Whether a host that cannot be reached may still serve: SUBACKs, and changes of maps, wait
        until its lease is over."""
        return any(self.leases.may_serve(node) for node in self._unreachable)

    # --- serving ---

    def load_of(self, owned: OwnedTree) -> float:
        """Return the recent load of a tree's events."""
        loads, now = self.loads, self.port.now
        each = [loads.recent(owned.attribute, e.interval, now) for e in owned.tree.map.entries]
        return sum([busy for busy, _ in each])

    def watch(self) -> None:
        """Watch the present hosts of all trees: notice when one falls silent, and let them
        serve."""
        hosts: dict[NodeId, Peer] = {}
        for owned in self._trees.values():
            for map_ in owned.maps():
                hosts.update(map_.hosts())
            hosts.update(self.reachable(owned))
        self.leases.attend(hosts.values())
        self._grant(self.leases.due())
        hosts.pop(self.port.me.id, None)
        self.port.watch("hosts", tuple(hosts.values()))

    def attend(self, owned: OwnedTree) -> None:
        """Watch the hosts of this tree, which may have changed. Hosts that it has left are found by
        the next `watch`: looking through all trees for each tree that changes would take a number
        of steps that grows with the square of their number."""
        hosts = [host for map_ in owned.maps() for host in map_.hosts()]
        if all(map(self.leases.attends, (*hosts, *self.reachable(owned)))):
            self._grant(self.leases.due())
        else:
            self.watch()

    def _grant(self, due: Sequence[NodeId]) -> None:
        """Serving beats to those of these hosts whose registrations can be relied on, or that were
        ordered to forget them. All trees are looked through once, and not for each host."""
        arc = self._authority.serving_arc()
        if arc is None or not due:
            return
        doubtful = dict.fromkeys(self._unreachable)
        for owned in self._trees.values():
            doubtful.update((n, None) for n in owned.stale_hosts if not owned.is_prepared(n))
        for node in due:
            if node not in doubtful:
                self.leases.send(node, *arc, self._authority.epoch)

    def on_serving_reply(self, sender: Peer, message: ServingReply) -> None:
        """Handle a host's answer to a serving beat, and its load report. The next beat prolongs the
        host's lease."""
        self.leases.on_reply(sender, message)
        if self._clusters.is_primary and self.leases.attends(sender.id):
            self.loads.reported(sender.id, message.load, self.port.now)
            self.machines.reported(sender, message.processors)
            if self.loads.is_busy(sender.id):
                self._authority.rebalance_soon()
            if self.leases.is_due(sender.id):
                self._grant((sender.id,))

    def on_serving_beat_due(self, timer: ServingBeatDue) -> None:
        """Renew all leases; tell who waits for the end of one."""
        if self.leases.rang():
            self.port.emit(LeasesOver())
            self._authority.transfer_if_settled()
        self._grant(self.leases.due())
