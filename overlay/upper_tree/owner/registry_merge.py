"""The trees of a ring that ends: what is registered in them goes to the winning ring (C6, P2).

The losing ring's owners do for their subscribers what these would do themselves: they register them
with the owners in the winning ring (`Adopt`), who take them like any registration and acknowledge
them when every later event in their ring reaches these subscribers as well (`Adopted`). Subscribers
notice nothing but that registering and unregistering waits meanwhile. The stages are those of
`chord/merging`:

    UNITED   everything is adopted. The trees are served here as ever: an event that is published in
             this ring finds whoever registered in it.
    STOPPED  no host serves any of them: each has said so, or its serving lease is over; and nobody
             believes what this owner told of them. Whatever is published now waits.

Then all nodes of the ring ask the winner's owners, who know every registration of both. A lease of
what was adopted is a full one, for the subscriber to renew in the winning ring; if uniting takes
long, everything is said again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from overlay.chord.events import MergeStageWanted, RoleChanged
from overlay.chord.keys import attribute_key
from overlay.chord.merging.merging import STOPPED, UNITED
from overlay.links.events import LinkDown
from overlay.machine import Alarm, Handlers, Machine, NodeId, Peer, Port, ProtocolError, Timer
from overlay.settings import Settings
from overlay.upper_tree.batches import MAX_BATCH, in_batches, weigh_registration, weigh_text
from overlay.upper_tree.messages import (
    Adopt,
    Adopted,
    AdoptRefused,
    Assign,
    Recall,
    Registration,
)
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.registry import Registry

LOOK = 0.1
"""Seconds between two looks at how far uniting is. Wild guess."""

AGAIN = 0.5
"""Seconds after a refusal, or without an answer, until an owner is asked again. Wild guess."""

TOLD_MOST = 10_000
"""Nodes that are told of the ring's end by each of its owners; the others hear of it from them.
Wild guess."""


class UnitingDue(Timer, frozen=True):
    """Look how far uniting is."""


class MergingView(Protocol):
    """What is needed of overlay/chord's `Clusters`."""

    def merge_stage_reached(self, stage: int, audience: tuple[Peer, ...] = ()) -> None:
        """Answer to Uniting."""


class RegistryUnion(Machine):
    """Both sides of it: who gives registrations away, and who adopts them."""

    def __init__(
        self,
        port: Port,
        settings: Settings,
        clusters: MergingView,
        owner: Owner,
        registry: Registry,
    ) -> None:
        super().__init__(port)
        self.clusters = clusters
        self.owner = owner
        self.registry = registry
        self._repeat = settings.tree.lease / 3
        self._due = Alarm(port, UnitingDue())
        self._forget()

    def _forget(self) -> None:
        self.owner.uniting = 0
        self._way: Peer | None = None  # into the winning ring
        self._since = 0.0
        self._adopted: dict[str, dict[str, None]] = {}  # by attribute the registrations' ids
        self._to: dict[str, Peer] = {}  # by attribute its owner there, as last told
        self._again_at: dict[str, float] = {}  # by attribute when to ask (once more)
        self._stopping = False  # hosts were told to stop

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            MergeStageWanted: self.on_uniting,
            Adopt: self.on_adopt,
            Adopted: self.on_adopted,
            AdoptRefused: self.on_adopt_refused,
            UnitingDue: self.on_due,
            RoleChanged: self.on_role_changed,
            LinkDown: self.on_link_down,
        }

    # --- at an owner of the losing ring ---

    def on_uniting(self, event: MergeStageWanted) -> None:
        """The next stage, or none any more."""
        if event.into is None:
            self._go_on_as_before()
            return
        if self._way is None:
            self._since = self.port.now
        self._way = event.into.primary
        self.owner.uniting = max(self.owner.uniting, event.stage)
        self._due.within(0.0)

    def on_role_changed(self, event: RoleChanged) -> None:
        """Whoever leads next begins anew."""
        if event.role != "primary" and self._way is not None:
            self._forget()
            self._due.cancel()

    def _go_on_as_before(self) -> None:
        stopped = self._stopping
        self._forget()
        self._due.cancel()
        if stopped:  # hosts have dropped all, and are given it anew
            for owned in self.owner.trees.values():
                owned.stopping.clear()
                for host in owned.all_hosts().values():
                    owned.stray(host)
        self.owner.watch_hosts()
        self.owner.balance_soon()

    def on_due(self, timer: UnitingDue) -> None:
        """One look."""
        self._due.rang()
        if self._way is None:
            return
        self._due.within(LOOK)
        if self.owner.uniting == UNITED:
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
            self.clusters.merge_stage_reached(UNITED)
            return
        wanted: dict[NodeId, tuple[Peer, list[Registration]]] = {}
        for attribute, registrations in missing:
            if self._again_at.get(attribute, 0.0) > now:
                continue
            self._again_at[attribute] = now + AGAIN
            peer = self._to.get(attribute, self._way)
            assert peer is not None
            wanted.setdefault(peer.id, (peer, []))[1].extend(registrations)
        for peer, registrations in wanted.values():
            for batch in in_batches(registrations, weigh_registration):
                trees = self.owner.state.trees
                since = tuple(trees[r.attribute].incarnations[r.id] for r in batch)
                self.port.send(peer, Adopt(batch, since))

    def _missing(self) -> Iterator[tuple[str, list[Registration]]]:
        """What is not adopted yet, by attribute."""
        for attribute, owned in self.owner.trees.items():
            adopted = self._adopted.get(attribute, {})
            rest = [r for id_, r in owned.tree.registrations.items() if id_ not in adopted]
            if rest:
                yield attribute, rest

    def on_adopted(self, sender: Peer, message: Adopted) -> None:
        """The winner has them."""
        if self._way is not None:
            self._adopted.setdefault(message.attribute, {}).update(dict.fromkeys(message.ids))
            self._due.within(0.0)

    def on_adopt_refused(self, sender: Peer, message: AdoptRefused) -> None:
        """Another owner has them there, or the same a little later."""
        cluster = message.cluster
        for attribute in message.attributes:
            asked = self._to.get(attribute, self._way)
            if asked is None or asked.id != sender.id or attribute not in self.owner.trees:
                continue
            if cluster is None or cluster.primary.id == sender.id:
                self._again_at[attribute] = self.port.now + AGAIN
            else:
                self._to[attribute] = cluster.primary
                self._again_at[attribute] = self.port.now
        self._due.within(LOOK)

    def on_link_down(self, event: LinkDown) -> None:
        """An owner there is lost: ask where the way in is."""
        for attribute in [a for a, peer in self._to.items() if peer.id == event.peer.id]:
            del self._to[attribute]

    # --- the end of its trees ---

    def _stop(self) -> None:
        if not self._stopping:
            if any(owned.changing for owned in self.owner.trees.values()):
                return  # which host serves what is just being changed
            self._stopping = True
            for attribute, owned in self.owner.trees.items():
                owned.stopping = owned.all_hosts()
                owned.stop_version = version = self.owner.next_version()
                for host in self.owner.reachable_hosts(owned).values():
                    self.port.send(host, Assign(attribute, version, (), 0, ()))
        self._recall()
        if self._is_stopped():
            self.clusters.merge_stage_reached(STOPPED, self._audience())

    def _recall(self) -> None:
        """Publishers forget what they were told, by this owner or by one before."""
        told, now = self.owner.told, self.port.now
        for attribute in told.attributes():
            for belief in told.believers(attribute, now):
                if not belief.recalled:
                    belief.recalled = True
                    self.port.send(belief.peer, Recall(attribute, told.number))

    def _is_stopped(self) -> bool:
        told, now = self.owner.told, self.port.now
        if not self.registry.beliefs.all_known():
            return False
        if told.blind_until > now or any(told.believers(a, now) for a in told.attributes()):
            return False
        may_serve = self.owner.leases.may_serve
        return not any(
            may_serve(host) for owned in self.owner.trees.values() for host in owned.stopping
        )

    def _audience(self) -> tuple[Peer, ...]:
        """Whom the end concerns at once."""
        found = {
            registration.subscriber.id: registration.subscriber
            for owned in self.owner.trees.values()
            for registration in owned.tree.registrations.values()
        }
        return tuple(found.values())[:TOLD_MOST]

    # --- at an owner of the winning ring ---

    def on_adopt(self, sender: Peer, message: Adopt) -> None:
        """Take what we own; name the owner of the rest."""
        if len(message.registrations) > MAX_BATCH or len(message.registrations) != len(
            message.incarnations
        ):
            raise ProtocolError("registrations to be adopted without their incarnations")
        foreign: dict[str, None] = {}
        for registration, incarnation in zip(
            message.registrations, message.incarnations, strict=True
        ):
            if self.owner.takes(registration.attribute):
                self.registry.adopt(sender, registration, incarnation)
            else:
                foreign[registration.attribute] = None
        by_owner: dict[str, list[str]] = {}
        for attribute in foreign:
            cluster = self.owner.who_owns(attribute)
            if cluster is None:
                self.owner.ring.find(attribute_key(attribute))
            by_owner.setdefault("" if cluster is None else cluster.key, []).append(attribute)
        for names in by_owner.values():
            for some in in_batches(names, weigh_text):
                self.port.send(sender, AdoptRefused(some, self.owner.who_owns(some[0])))
