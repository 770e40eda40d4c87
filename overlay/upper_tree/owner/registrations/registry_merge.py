"""Two rings merge: what is registered in the losing one goes to the winning one (C6, P2).

The losing ring's owners do for their subscribers what these would do themselves: they register them
with the owners in the winning ring (`Adopt`), who take them like any registration and acknowledge
them when every later event in their ring reaches these subscribers as well (`Adopted`). Subscribers
notice nothing but that registering and unregistering waits meanwhile. The phases are those of
overlay/chord/events.py:

    UNITED   everything is adopted. The trees are served here as before: an event that is published
             in this ring finds every subscriber that registered in it.
    STOPPED  no host serves any of them: each has said so, or its serving lease is over; and no
             publisher has a summary of them. Events that are published now wait.

Then all nodes of the ring ask the winner's owners, who know every registration of both. A lease of
what was adopted is a full one, for the subscriber to renew in the winning ring; if merging takes
long, everything is adopted again.
"""

from __future__ import annotations

from collections.abc import Iterator

from overlay.chord.clusters import Clusters
from overlay.chord.events import ArcKept, ArcMerging, MergePhaseWanted, RoleChanged
from overlay.chord.keys import attribute_key
from overlay.chord.messages import MergePhase
from overlay.links.events import LinkDown
from overlay.machine import Alarm, Machine, NodeId, Peer, Port, ProtocolError, Timer
from overlay.settings import Settings
from overlay.upper_tree.batches import MAX_BATCH, in_batches, weigh_registration, weigh_text
from overlay.upper_tree.messages import Adopt, Adopted, AdoptRefused, Assign, Registration
from overlay.upper_tree.owner.constants import ADOPT_AGAIN, AUDIENCE_MOST, MERGE_PERIOD
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.registrations.registry import Registry, Summaries
from overlay.upper_tree.owner.tree_log import CacheHoldersChanged, encode

# --- ends the serving of all trees of an arc, before it goes to another owner (C6) ---
#
# Every host is ordered to drop its virtual nodes, and every publisher its summaries. Both is done
# when each has said so, or its serving lease, or the term of its summary, is over for certain. From
# then on no event is matched by what this owner has installed, and none passes its trees by; events
# that are published wait where they are published.


class TreeStop:
    """Follows at the primary how far the trees that it owns have stopped."""

    def __init__(self, port: Port, owner: Owner, summaries: Summaries) -> None:
        self.port = port
        self._owner = owner
        self._trees = owner.trees
        self._hosts = owner.hosts
        self._summaries = summaries
        self._stopping = False  # hosts were sent the order to stop

    def step(self) -> bool:
        """Give the orders, once no map is being changed. Whether everything has stopped."""
        if not self._stopping:
            if any(owned.is_changing for owned in self._trees.values()):
                return False  # which host serves what is just being changed
            self._stopping = True
            for attribute, owned in self._trees.items():
                version = self._owner.next_version()
                owned.begin_stop(version)
                for host in self._hosts.reachable(owned).values():
                    self.port.send(host, Assign(attribute, version))
        self._summaries.invalidate_all()
        return self._is_stopped()

    def _is_stopped(self) -> bool:
        may_serve = self._owner.hosts.leases.may_serve
        return self._summaries.none_cached() and not any(
            may_serve(host) for owned in self._trees.values() for host in owned.stopping_hosts
        )

    def forget(self) -> None:
        """Forget that the trees are being stopped, because this node no longer owns them."""
        self._stopping = False

    def cancel(self) -> None:
        """Keep the trees: hosts, which may have dropped everything, are given it again."""
        stopped, self._stopping = self._stopping, False
        if stopped:
            for owned in self._trees.values():
                owned.cancel_stop()
        self._hosts.watch()
        self._owner.rebalance_soon()


class MergeStepDue(Timer, frozen=True):
    """Time to check whether the present phase is complete."""


class RegistryMerge(Machine):
    """Both sides: the owner that gives registrations away, and the one that adopts them."""

    def __init__(
        self,
        port: Port,
        settings: Settings,
        clusters: Clusters,
        owner: Owner,
        registry: Registry,
        summaries: Summaries,
    ) -> None:
        super().__init__(port)
        self._clusters = clusters
        self._owner = owner
        self._trees = owner.trees
        self._ring = owner.ring
        self._registry = registry
        self._trees_stop = TreeStop(port, owner, summaries)
        self._repeat = settings.tree.lease / 3
        self._due = Alarm(port, MergeStepDue())
        self._forget()

    def _forget(self) -> None:
        self._owner.enter_merge_phase(MergePhase.NONE)
        self._entry: Peer | None = None  # a primary of the winning ring
        self._since = 0.0  # when adopting began (once more)
        self._adopted: dict[str, dict[str, None]] = {}  # by attribute the registrations' ids
        self._winners: dict[str, Peer] = {}  # by attribute its owner there, as last heard
        self._ask_at: dict[str, float] = {}  # by attribute when to ask (once more)

    # --- at an owner of the losing ring ---

    def on_merge_phase(self, event: MergePhaseWanted) -> None:
        """The next phase is wanted; or, without a winning ring, this one does not end."""
        if event.into is None:
            self._cancel()
            return
        if self._entry is None:
            self._since = self.port.now
        self._entry = event.into.primary
        phase = MergePhase(event.phase)
        self._owner.enter_merge_phase(max(self._owner.merge_phase, phase))
        self._due.within(0.0)

    def on_role_changed(self, event: RoleChanged) -> None:
        """A primary that steps down drops the merge that is under way; the next primary begins it
        again."""
        if event.role != "primary" and self._entry is not None:
            self._forget()
            self._trees_stop.forget()
            self._due.cancel()

    def _cancel(self) -> None:
        self._forget()
        self._due.cancel()
        self._trees_stop.cancel()

    def on_merge_step(self, timer: MergeStepDue) -> None:
        """Go on with the present phase."""
        self._due.rang()
        if self._entry is None:
            return
        self._due.within(MERGE_PERIOD)
        if self._owner.merge_phase is MergePhase.UNITED:
            self._unite()
        else:
            self._stop()

    def _unite(self) -> None:
        now = self.port.now
        if now - self._since > self._repeat:
            self._since = now
            self._adopted.clear()
        missing = list(self._missing())
        if not missing:
            self._clusters.merge_phase_reached(MergePhase.UNITED)
            return
        wanted: dict[NodeId, tuple[Peer, list[Registration]]] = {}
        for attribute, registrations in missing:
            if self._ask_at.get(attribute, 0.0) > now:
                continue
            self._ask_at[attribute] = now + ADOPT_AGAIN
            peer = self._winners.get(attribute, self._entry)
            assert peer is not None
            wanted.setdefault(peer.id, (peer, []))[1].extend(registrations)
        for peer, registrations in wanted.values():
            for batch in in_batches(registrations, weigh_registration):
                since = tuple(self._trees[r.attribute].tree.incarnations[r.id] for r in batch)
                self.port.send(peer, Adopt(batch, since))

    def _missing(self) -> Iterator[tuple[str, list[Registration]]]:
        """Yield the registrations that are not adopted yet, by attribute."""
        for attribute, owned in self._trees.items():
            adopted = self._adopted.get(attribute, {})
            rest = [r for id_, r in owned.tree.registrations.items() if id_ not in adopted]
            if rest:
                yield attribute, rest

    def on_adopted(self, sender: Peer, message: Adopted) -> None:
        """The winning ring's owner has acknowledged these."""
        if self._entry is not None:
            self._adopted.setdefault(message.attribute, {}).update(dict.fromkeys(message.ids))
            self._due.within(0.0)

    def on_adopt_refused(self, sender: Peer, message: AdoptRefused) -> None:
        """Another owner there may take them, or the same one a little later."""
        cluster = message.cluster
        for attribute in message.attributes:
            asked = self._winners.get(attribute, self._entry)
            if asked is None or asked.id != sender.id or attribute not in self._trees:
                continue
            if cluster is None or cluster.primary.id == sender.id:
                self._ask_at[attribute] = self.port.now + ADOPT_AGAIN
            else:
                self._winners[attribute] = cluster.primary
                self._ask_at[attribute] = self.port.now
        self._due.within(MERGE_PERIOD)

    def on_link_down(self, event: LinkDown) -> None:
        """An owner there is lost: ask the primary by which the ring is known."""
        for attribute in [a for a, peer in self._winners.items() if peer.id == event.peer.id]:
            del self._winners[attribute]

    # --- the end of its trees ---

    def _stop(self) -> None:
        if self._trees_stop.step():
            self._clusters.merge_phase_reached(MergePhase.STOPPED, self._audience())

    def _audience(self) -> tuple[Peer, ...]:
        """The subscribers, whom the end concerns at once."""
        found = {
            registration.subscriber.id: registration.subscriber
            for owned in self._trees.values()
            for registration in owned.tree.registrations.values()
        }
        return tuple(found.values())[:AUDIENCE_MOST]

    # --- at an owner of the winning ring ---

    def on_adopt(self, sender: Peer, message: Adopt) -> None:
        """Take registrations of trees that this node owns; name the owner of the others.

        Raises ProtocolError if there are too many, or not as many incarnations."""
        if len(message.registrations) > MAX_BATCH or len(message.registrations) != len(
            message.incarnations
        ):
            raise ProtocolError("registrations to be adopted without their incarnations")
        foreign: dict[str, None] = {}
        for registration, incarnation in zip(
            message.registrations, message.incarnations, strict=True
        ):
            if self._owner.accepts_registrations(registration.attribute):
                self._registry.adopt(sender, registration, incarnation)
            else:
                foreign[registration.attribute] = None
        for names, cluster in self._owner.by_known_owner(foreign):
            if cluster is None:
                for attribute in names:
                    self._ring.find(attribute_key(attribute))
            for some in in_batches(names, weigh_text):
                self.port.send(sender, AdoptRefused(some, cluster))


# The trees of a cluster that merges with the next one (P1); the clusters' part is
# overlay/chord/membership/cluster_merge.py and taking_in.py.
#
# At the one that ends, they are stopped (`TreeStop`) and their state is handed over: so no host
# serves by what the other one does not know of, and no publisher skips by it. If the merge is given
# up, the hosts are given everything again. At the one that takes them they are restored as those of
# a lost cluster are (restoration.py), from a state that lacks nothing.
#
# Registrations, and their ends, are refused meanwhile; their subscribers ask again, and find the
# next owner.


class StopStepDue(Timer, frozen=True):
    """Time to check whether everything has stopped."""


class ArcMerge(Machine):
    """Stops the trees of an owner whose whole arc goes to the next cluster, and hands over their
    state."""

    def __init__(self, port: Port, clusters: Clusters, owner: Owner, summaries: Summaries) -> None:
        super().__init__(port)
        self._clusters = clusters
        self._owner = owner
        self._stop = TreeStop(port, owner, summaries)
        self._under_way = False
        self._due = Alarm(port, StopStepDue())

    def on_arc_merging(self, event: ArcMerging) -> None:
        """Stop all trees; or, where a former primary has done so, hand over their state."""
        self._under_way = True
        self._owner.enter_merge_phase(MergePhase.STOPPED)
        if event.decided:
            self._hand_over()
        else:
            self._step()

    def on_stop_step_due(self, timer: StopStepDue) -> None:
        """Check again which trees have stopped."""
        self._due.rang()
        if self._under_way:
            self._step()

    def _step(self) -> None:
        if self._stop.step():
            self._hand_over()
        else:
            self._due.within(MERGE_PERIOD)

    def _hand_over(self) -> None:
        # No publisher has a summary of these trees any more.
        state = self._owner.state.operations()
        trees = [encode(one) for one in state if not isinstance(one, CacheHoldersChanged)]
        self._clusters.hand_to_successor(trees)

    def on_arc_kept(self, event: ArcKept) -> None:
        """The arc stays: serve its trees again."""
        if self._under_way:
            self._end()
            self._stop.cancel()

    def on_role_changed(self, event: RoleChanged) -> None:
        """Stop the merge here when this node no longer leads the cluster. The next primary finds
        its progress in the log."""
        if self._under_way and event.role != "primary":
            self._end()
            self._stop.forget()

    def _end(self) -> None:
        self._under_way = False
        self._due.cancel()
        self._owner.enter_merge_phase(MergePhase.NONE)
