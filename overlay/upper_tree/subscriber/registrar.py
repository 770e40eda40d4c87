"""The subscriber's side: each conjunction finds its place, and its lease is kept (C8, C9).

*pivot*: a conjunction is registered in one tree, that of the null-rejecting attribute with the
least traffic (pivots.py), as far as is known here; an owner that knows better says so, once. One
that has none goes to the reserved tree `$event`, which every event visits.

*counting*: each null-rejecting constraint of the conjunction is registered alone in its attribute's
tree, and the receiving node counts (receiver.py).

A subscription is ready (SUBACK) when all its registrations are acknowledged. Whatever is not
answered is sent again, to whoever owns the attribute by then; the owner knows a registration by
its id, so repeating is harmless.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from matching import EVERYTHING, Interval, Predicate
from overlay.chord.events import ClusterForked, OwnerFound, RingLeft
from overlay.chord.keys import attribute_key
from overlay.links.events import LinkDown
from overlay.machine import (
    Alarm,
    Handlers,
    Machine,
    NodeId,
    Peer,
    Port,
    ProtocolError,
    Timer,
)
from overlay.settings import Settings
from overlay.upper_tree.batches import in_batches, weigh_registration, weigh_text
from overlay.upper_tree.cluster_view import RingView
from overlay.upper_tree.compiled_selectors import compiled, keep
from overlay.upper_tree.events import OwnerRefused, SubscriptionLapsed, SubscriptionReady
from overlay.upper_tree.messages import (
    EVENT_TREE,
    BetterPivots,
    Register,
    Registered,
    Registration,
    Renew,
    RenewRefused,
    Unregister,
    Unregistered,
)
from overlay.upper_tree.pivots import choose_pivot
from overlay.upper_tree.registration_digest import ids_digest
from overlay.upper_tree.subscriber.placed import Placed

PAUSE = 0.25
"""Seconds until what was refused, or asked of a node that is gone, is tried again; wild guess."""


POPULARITY_MOST = 4_096
"""Attributes whose popularity is remembered; wild guess."""


RENEW_WITHIN = 0.5
"""Seconds over which the subscribers of a cluster spread their renewals after it was lost; wild
guess."""

DOUBT, RENEW_OFTEN = 12.0, 2.0
"""Seconds for which one renews often after that, and in between: what a new owner does not know yet
can not be claimed before it was registered again. Wild guesses."""


class RegisterDue(Timer, frozen=True):
    """Look for registrations without an answer."""


class RenewDue(Timer, frozen=True):
    """Renew all leases."""


class Registrar(Machine):
    """Registers the subscriptions of this node and renews their leases."""

    def __init__(self, port: Port, settings: Settings, incarnation: int, ring: RingView) -> None:
        super().__init__(port)
        self.settings = settings.tree
        self.incarnation = incarnation
        self.ring = ring
        self.placed: dict[tuple[str, str], Placed] = {}  # (attribute, registration id)
        self._of: dict[str, list[tuple[str, str]]] = {}  # subscription -> keys of `placed`
        self._again = Alarm(port, RegisterDue())
        self.ending: dict[tuple[str, str], float] = {}  # unregistrations without an answer
        self._renew = Alarm(port, RenewDue())
        self._doubt_until = 0.0  # an owner was lost: renew often
        self._leaving = False
        self.popularity: dict[str, int] = {}  # of attributes, as owners told (pivots.py)

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            Registered: self.on_registered,
            BetterPivots: self.on_better_pivots,
            Unregistered: self.on_unregistered,
            RenewRefused: self.on_renew_refused,
            OwnerFound: self.on_owner_found,
            OwnerRefused: self.on_owner_refused,
            ClusterForked: self.on_cluster_forked,
            RingLeft: self.on_ring_left,
            LinkDown: self.on_link_down,
            RegisterDue: self.on_register_due,
            RenewDue: self.on_renew_due,
        }

    def start(self) -> None:
        """Begin to renew leases."""
        self._renew.within(self.settings.lease / 3)

    # --- asked from above ---

    def plan(self, subscription: str, predicate: Predicate, level: int = 0) -> list[Placed]:
        """Which registrations the subscription needs, with its latency level."""
        return list(self._registrations(subscription, predicate, level))

    def subscribe(self, subscription: str, new: list[Placed]) -> None:
        """Register what was planned. `SubscriptionReady` follows (in this turn where nothing is
        planned, since nothing can match)."""
        for placed in new:
            key = (placed.registration.attribute, placed.registration.id)
            self.placed[key] = placed
            self._of.setdefault(subscription, []).append(key)
        if new:
            self._place(new)
        else:
            self.port.emit(SubscriptionReady(subscription))

    def _registrations(
        self, subscription: str, predicate: Predicate, level: int
    ) -> Iterable[Placed]:
        def placed(id_: str, attribute: str, text: str, where: Interval) -> Placed:
            me = self.port.me
            return Placed(subscription, Registration(id_, attribute, me, text, where, level))

        for number, conjunction in enumerate(predicate.conjunctions):
            id_ = f"{subscription}/{number}"
            if self.settings.routing == "counting" and conjunction.constraints:
                for attribute, constraint in conjunction.constraints.items():
                    text = constraint.text
                    yield placed(id_, attribute, text, constraint.hull)
                continue
            pivots = conjunction.pivots()
            attribute, interval = (
                choose_pivot(pivots, self.popularity) if pivots else (EVENT_TREE, EVERYTHING)
            )
            whole = Predicate.of(conjunction)
            whole = predicate if predicate.text == whole.text else whole
            keep(whole)
            yield placed(id_, attribute, whole.text, interval)

    def unsubscribe(self, subscription: str) -> None:
        """End all registrations of a subscription."""
        for key in self._of.pop(subscription, ()):
            if self.placed.pop(key, None) is not None:
                self.ending[key] = self.port.now
        self._end()

    def leave(self) -> None:
        """The node leaves: what an owner does not end at the first word ends with its lease."""
        self._leaving = True

    @property
    def settled(self) -> bool:
        """Whether no registration or end of one waits for an answer."""
        return not self.ending and all(p.acknowledged for p in self.placed.values())

    def is_ready(self, subscription: str) -> bool:
        """Whether all registrations of the subscription are acknowledged."""
        return all(
            self.placed[key].acknowledged
            for key in self._of.get(subscription, ())
            if key in self.placed
        )

    # --- registering ---

    def _place(self, placed: Sequence[Placed]) -> None:
        """Send to the owners that are known; look for the others."""
        batches: dict[tuple[NodeId, bool], tuple[Peer, list[Placed]]] = {}
        for one in placed:
            key = attribute_key(one.registration.attribute)
            owner = self.ring.owner(key)
            one.again_at = self.port.now + self.settings.retry
            if owner is None:
                one.asked = ""
                self.ring.find(key)
            else:
                one.asked = owner.primary.id
                one.sent += 1
                group = (owner.primary.id, one.final)
                batches.setdefault(group, (owner.primary, []))[1].append(one)
        for (_, final), (peer, batch) in batches.items():
            for registrations in in_batches((p.registration for p in batch), weigh_registration):
                self.port.send(peer, Register(self.incarnation, registrations, final))
        if placed:
            self._again.within(self.settings.retry)

    def on_owner_found(self, event: OwnerFound) -> None:
        """Send what waited for this owner."""
        self._place(
            [
                placed
                for (attribute, _), placed in self.placed.items()
                if not placed.acknowledged
                and not placed.asked
                and event.cluster.owns(attribute_key(attribute))
            ]
        )

    def on_registered(self, sender: Peer, message: Registered) -> None:
        """The owner has it; the subscription may be complete."""
        touched: dict[str, None] = {}
        for id_ in message.ids:
            placed = self.placed.get((message.attribute, id_))
            if placed is not None and not placed.acknowledged:
                placed.acknowledged = True
                touched[placed.subscription] = None
        for subscription in touched:
            if self.is_ready(subscription):
                self.port.emit(SubscriptionReady(subscription))

    def on_better_pivots(self, sender: Peer, message: BetterPivots) -> None:
        """The owner knows an attribute with less traffic: register there instead."""
        for name, count in message.popularity:
            self.popularity[name] = count
            if len(self.popularity) > POPULARITY_MOST:
                del self.popularity[next(iter(self.popularity))]
        moved = []
        for id_, attribute, better in message.registrations:
            placed = self.placed.get((attribute, id_))
            if placed is None or placed.acknowledged or placed.final:
                continue
            old = placed.registration
            (conjunction,) = compiled(old.selector).conjunctions
            interval = dict(conjunction.pivots()).get(better)
            if interval is None:
                raise ProtocolError("a pivot that the conjunction has not")
            new = msgspec.structs.replace(old, attribute=better, interval=interval)
            del self.placed[attribute, id_]
            moved.append(Placed(placed.subscription, new, final=True))
            self.placed[better, id_] = moved[-1]
            mine = self._of[placed.subscription]
            mine[mine.index((attribute, id_))] = (better, id_)
            if placed.sent > 1:  # an earlier or later attempt may have been taken
                self.ending[attribute, id_] = self.port.now
        self._place(moved)
        self._end()

    def on_owner_refused(self, event: OwnerRefused) -> None:
        """Another owner, or the same one a little later."""
        at_once = []
        renewed: dict[str, None] = {}
        for (attribute, _), placed in self.placed.items():
            if attribute in event.attributes and placed.acknowledged:
                renewed[attribute] = None
            elif attribute in event.attributes:
                placed.again_at = self.port.now + PAUSE
                owner = self.ring.owner(attribute_key(attribute))
                if owner is not None and owner.primary.id != placed.asked and not placed.redirected:
                    placed.redirected = True
                    at_once.append(placed)
        self._again.within(PAUSE)
        self._place(at_once)
        for attribute in renewed:
            self.ring.find(attribute_key(attribute))  # so that the next renewal finds its owner
        if renewed and self.port.now < self._doubt_until:
            self._renew.within(PAUSE)
        if self._leaving:
            for key in [key for key in self.ending if key[0] in event.attributes]:
                del self.ending[key]

    def on_link_down(self, event: LinkDown) -> None:
        """What an owner has not acknowledged goes to whoever owns it then."""
        for placed in self.placed.values():
            if not placed.acknowledged and placed.asked == event.peer.id:
                placed.again_at = self.port.now + PAUSE
                self._again.within(PAUSE)
        if self._leaving:
            self.ending.clear()

    def on_register_due(self, timer: RegisterDue) -> None:
        """What has waited long enough is sent again, after a fresh lookup."""
        self._again.rang()
        now = self.port.now
        due = [p for p in self.placed.values() if not p.acknowledged and p.again_at <= now]
        for placed in due:
            placed.redirected = False
            self.ring.find(attribute_key(placed.registration.attribute))
        self._place(due)
        self._end()
        waiting = [p.again_at for p in self.placed.values() if not p.acknowledged]
        if waiting:
            self._again.within(min(waiting) - now)

    # --- ending ---

    def _end(self) -> None:
        now = self.port.now
        batches: dict[tuple[NodeId, str], tuple[Peer, list[str]]] = {}
        for (attribute, id_), again_at in list(self.ending.items()):
            if again_at <= now:
                self.ending[attribute, id_] = now + self.settings.retry
                owner = self.ring.owner(attribute_key(attribute))
                if owner is None and self._leaving:
                    del self.ending[attribute, id_]
                elif owner is None:
                    self.ring.find(attribute_key(attribute))
                else:
                    group = batches.setdefault((owner.primary.id, attribute), (owner.primary, []))
                    group[1].append(id_)
        for (_, attribute), (peer, ids) in batches.items():
            for names in in_batches(ids, weigh_text):
                self.port.send(peer, Unregister(attribute, names))
        if self.ending:
            self._again.within(min(self.ending.values()) - now)

    def on_unregistered(self, sender: Peer, message: Unregistered) -> None:
        """Gone."""
        for id_ in message.ids:
            self.ending.pop((message.attribute, id_), None)

    # --- leases ---

    def on_renew_due(self, timer: RenewDue) -> None:
        """One message per owner, for all registrations there. It claims nothing of trees in which
        one is still on its way or about to end: the owner may have it already, or still."""
        self._renew.rang()
        trees: dict[str, list[str]] = {}
        unsure: dict[str, None] = dict.fromkeys(attribute for attribute, _ in self.ending)
        for (attribute, id_), placed in self.placed.items():
            trees.setdefault(attribute, []).append(id_)
            if not placed.acknowledged:
                unsure[attribute] = None
        owners: dict[NodeId, tuple[Peer, list[tuple[str, int, int]], list[str]]] = {}
        for attribute, ids in trees.items():
            owner = self.ring.owner(attribute_key(attribute))
            if owner is None:
                self.ring.find(attribute_key(attribute))
            else:
                _, claims, doubtful = owners.setdefault(owner.primary.id, (owner.primary, [], []))
                if attribute in unsure:
                    doubtful.append(attribute)
                else:
                    claims.append((attribute, len(ids), ids_digest(ids)))
        for peer, claims, doubtful in owners.values():
            self.port.send(peer, Renew(self.incarnation, tuple(claims), tuple(doubtful)))
        often = self.port.now < self._doubt_until
        if often:  # what nothing is claimed of has to be said
            said = [p for (name, _), p in self.placed.items() if name in unsure and p.acknowledged]
            for placed in said:
                placed.final = True
            self._place(said)
        self._renew.within(RENEW_OFTEN if often else self.settings.lease / 3)

    def on_cluster_forked(self, event: ClusterForked) -> None:
        """Another has taken the place of an owner: does it know what we registered?"""
        if any(event.cluster.owns(attribute_key(attribute)) for attribute, _ in self.placed):
            self._doubt()

    def _doubt(self) -> None:
        self._doubt_until = self.port.now + DOUBT
        self._renew.within(self.port.rng.random() * RENEW_WITHIN)

    def on_ring_left(self, event: RingLeft) -> None:
        """The owners of another ring have what those of the former one had: do they know it all?"""
        self._doubt()
        for placed in self.placed.values():
            placed.again_at = self.port.now
        self.ending = dict.fromkeys(self.ending, self.port.now)
        self._again.within(0.0)

    def on_renew_refused(self, sender: Peer, message: RenewRefused) -> None:
        """The owner does not know what we believe it knows: register again."""
        again = []
        for attribute in message.trees:
            mine = [p for (name, _), p in self.placed.items() if name == attribute]
            for placed in mine:
                placed.acknowledged = False
            if mine:
                self.port.count("registrations_repeated", len(mine))
                self.port.emit(SubscriptionLapsed(attribute))
                self.ring.find(attribute_key(attribute))
            again += mine
        self._place(again)
