"""Registrations, at the primary of the cluster that owns the tree (C6, P1).

A registration is acknowledged (SUBACK) when three things are so:

1. the cluster's log has it (`Committed`: a majority of the voters has it), and so have the log's
   observers that answer (overlay/chord/recovery/observers.py),
2. every host that may serve a virtual node it overlaps has installed it, or has lost its serving
   lease for certain (lease_grants.py). While a change of the map is prepared these are the hosts of
   the old *and* of the new map; once it is committed those of the old one must have stopped. No
   stale host may serve meanwhile,
3. no publisher has a cached summary any more that does not admit it (summaries/).

`rebalance.py` moves and splits virtual nodes, `registration_leases.py` ends what is not renewed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from overlay.chord.events import (
    ArcDivided,
    Committed,
    Elected,
    ObserversProgressed,
    RoleChanged,
)
from overlay.chord.keys import attribute_key
from overlay.machine import Alarm, Handlers, Machine, NodeId, Peer, Port, ProtocolError, Timer
from overlay.settings import Settings
from overlay.upper_tree.batches import MAX_BATCH, in_batches, weigh_registration, weigh_text
from overlay.upper_tree.compiled_selectors import boxes_of
from overlay.upper_tree.events import (
    CopyInvalidated,
    LeasesOver,
    MapSettled,
    MatchingInterrupted,
)
from overlay.upper_tree.messages import (
    Adopted,
    BetterPivots,
    Install,
    Installed,
    Register,
    Registered,
    Registration,
    Renew,
    Renewed,
    RenewRefused,
    Uninstall,
    Unregister,
    Unregistered,
)
from overlay.upper_tree.owner.constants import ACKNOWLEDGE_PERIOD, UNREGISTERED_MOST
from overlay.upper_tree.owner.owned_tree import OwnedTree, PendingRegistration
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.registration_leases import (
    ClaimChecks,
    RegistrationLeases,
    registrations_of,
)
from overlay.upper_tree.owner.restoration import TreeRestoration
from overlay.upper_tree.owner.tree_log import (
    RegistrationAdded,
    RegistrationsRemoved,
    Tree,
)
from overlay.upper_tree.partition import PartitionMap
from overlay.upper_tree.pivots import better_pivot
from overlay.upper_tree.sliced_inbox import AT_ONCE, ENDS, TREE, SlicedInbox
from overlay.upper_tree.summary import Box

UNHEARD = "the node was not heard for longer than the lease of its registrations"
DIVIDED = "another cluster led in the place of its subscriptions' owner for a while"


class LeaseSweep(Timer, frozen=True):
    """Look for leases that have lapsed."""


class AcknowledgeDue(Timer, frozen=True):
    """Look at all registrations that wait for their SUBACK."""


class RegisterMoreDue(Timer, frozen=True):
    """Time to handle more of the registrations that subscribers have sent."""


class Summaries(Protocol):
    """The part of the summaries' machines that a registration waits for: while a valid cached
    summary does not admit it, publishers may skip the tree (C9)."""

    def before_suback(self, owned: OwnedTree, pending: PendingRegistration) -> None:
        """Invalidate cached summaries that do not admit the new registration; `send_recalls`
        follows in this turn."""

    def send_recalls(self) -> None:
        """Ask publishers for what was invalidated, each in one message."""

    def is_admitted(self, pending: PendingRegistration) -> bool:
        """Whether no publisher has a cached summary any more that does not admit it."""

    def invalidate_all(self) -> None:
        """Invalidate all cached summaries of this owner's trees: its ring ends."""

    def none_cached(self) -> bool:
        """Whether no publisher has a cached summary of this owner's trees."""


class FreshRegistration(NamedTuple):
    """One that was taken and is not in the log yet."""

    registration: Registration
    incarnation: int


class Registry(Machine):
    """Takes registrations for the trees that this node owns.

    What a turn takes goes into the log in one step, to each host in one message per tree, and is
    acknowledged likewise; each registration has its own answer all the same. What a turn takes is
    what has come: nothing waits for more."""

    def __init__(
        self,
        port: Port,
        settings: Settings,
        owner: Owner,
        summaries: Summaries,
        restoration: TreeRestoration,
    ) -> None:
        super().__init__(port)
        self._counting = settings.tree.routing == "counting"
        self._owner = owner
        self._clusters = owner.clusters
        self._trees = owner.trees
        self._hosts = owner.hosts
        self._summaries = summaries
        self._restoration = restoration
        self._leases = RegistrationLeases(settings.tree.lease)
        self._claims = ClaimChecks()
        self._sweep = Alarm(port, LeaseSweep())
        self._unlogged: deque[tuple[int, str, str]] = deque()
        """Registrations that the log may not have yet: number of the entry, attribute, id."""
        self._all_soon = Alarm(port, AcknowledgeDue())
        self._lapsed: deque[tuple[OwnedTree, tuple[str, ...]]] = deque()
        """Registrations to be ended that were not renewed."""
        self._unregistered: deque[tuple[int, Peer, Unregistered]] = deque()
        """Answers that wait for the log, with the number of their entry."""
        self._fresh: dict[tuple[str, str], FreshRegistration] = {}
        """By (attribute, id), what this turn has taken so far."""
        self._again: dict[str, list[tuple[Registration, Peer | None]]] = {}
        """By attribute, what was acknowledged before and is asked for again in this turn."""
        self.inbox = SlicedInbox(
            port,
            RegisterMoreDue(),
            {Register: self.on_register, Unregister: self.on_unregister, Renew: self.on_renew},
            self._finish,
        )

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {**super().handlers(), **self.inbox.handlers(), Register: self.take}

    # --- registering ---

    def take(self, sender: Peer, message: Register) -> None:
        """Registrations come: they are taken now, or when their turn comes.

        Raises ProtocolError if there are too many, or some of another subscriber's."""
        if len(message.registrations) > MAX_BATCH:
            raise ProtocolError("too many registrations in one message")
        if any(one.subscriber.id != sender.id for one in message.registrations):
            raise ProtocolError("a registration of another subscriber")
        self.inbox.take(sender, message)

    def on_register(self, sender: Peer, message: Register) -> None:
        """Take registrations of trees that this node owns; name the owner of the others."""
        foreign: dict[str, None] = {}
        better: list[tuple[str, str, str]] = []
        for registration in message.registrations:
            attribute = registration.attribute
            if not self._owner.accepts_registrations(attribute):
                foreign[attribute] = None
                continue
            self._claims.registered(sender.id, attribute, registration.id)
            if (attribute, registration.id) in self._fresh:
                self._log_fresh()
            if not self._is_known(registration):
                boxes = boxes_of(registration.selector)
                pivot = None if message.final else self._better_pivot(attribute, boxes)
                if pivot is None:
                    self._add(registration, boxes, message.incarnation)
                else:
                    better.append((registration.id, attribute, pivot))
        self._owner.refuse(sender, foreign)
        if better:
            self._redirect(sender, better)
        self._leases.renew(sender.id, message.incarnation, self.port.now)

    def adopt(self, merging_owner: Peer, registration: Registration, incarnation: int) -> None:
        """Take a registration of a ring that ends; its owner there, `merging_owner`, hears when
        it is acknowledged."""
        if not self._is_known(registration, merging_owner):
            self._add(registration, boxes_of(registration.selector), incarnation)
        self._finish()
        owned = self._trees[registration.attribute]
        if (pending := owned.pending.get(registration.id)) is not None:
            pending.merging_owner = merging_owner
        self._leases.renew(registration.subscriber.id, incarnation, self.port.now)
        self._acknowledge_due(owned)

    def _is_known(self, registration: Registration, merging_owner: Peer | None = None) -> bool:
        """Whether the log has it already; its SUBACK is given again if it was given."""
        owned = self._trees.get(registration.attribute)
        if owned is None or owned.tree.registrations.get(registration.id) != registration:
            return False
        if registration.id not in owned.pending:
            if owned.was_acknowledged(self._owner.committed):
                again = self._again.setdefault(registration.attribute, [])
                again.append((registration, merging_owner))
            else:
                self._await([(owned, owned.register(registration, owned.restored_index))])
        return True

    def _better_pivot(self, attribute: str, boxes: tuple[Box, ...]) -> str | None:
        """An attribute with far less traffic, as far as this cluster knows (C9)."""
        if self._counting or len(boxes) != 1 or attribute not in dict(boxes[0]):
            return None
        return better_pivot(attribute, boxes[0], self._trees.popularity)

    def _redirect(self, subscriber: Peer, better: list[tuple[str, str, str]]) -> None:
        """Send registrations elsewhere, with what makes the subscriber choose well next time."""
        names = dict.fromkeys(name for _, *pivots in better for name in pivots)
        known = self._trees.popularity
        counts = tuple((name, known.get(name, 0)) for name in names)
        self.port.count("registrations_redirected", len(better))
        self.port.send(subscriber, BetterPivots(tuple(better), counts))

    def _add(self, registration: Registration, boxes: tuple[Box, ...], incarnation: int) -> None:
        """Take one more; `_finish` follows in this turn."""
        attribute = registration.attribute
        owned = self._trees.get(attribute)
        if owned is None:
            owned = self._create_tree(attribute)
        owned.add_boxes(registration.id, boxes)
        self._restoration.registered(attribute, self.port.now)
        self._fresh[attribute, registration.id] = FreshRegistration(registration, incarnation)

    def _finish(self) -> None:
        """Do for all that was taken what they need together."""
        self._log_fresh()
        again, self._again = self._again, {}
        for attribute, registrations in again.items():
            self._acknowledge(self._trees[attribute].tree, registrations)

    def _log_fresh(self) -> None:
        """Write what was taken to the log, in one step, and bring about its SUBACKs."""
        fresh, self._fresh = tuple(self._fresh.values()), {}
        if not fresh:
            return
        last = self._owner.append_all(
            RegistrationAdded(one.registration.attribute, one.registration, one.incarnation)
            for one in fresh
        )
        taken = []
        for index, (registration, _) in enumerate(fresh, last - len(fresh) + 1):
            owned = self._trees[registration.attribute]
            taken.append((owned, owned.register(registration, index)))
        self._await(taken)

    def _await(self, taken: Iterable[tuple[OwnedTree, PendingRegistration]]) -> None:
        """Bring about what the SUBACKs wait for: hosts get one message for each tree."""
        installs: dict[tuple[str, ...], tuple[tuple[Peer, ...], list[Registration]]] = {}
        for owned, pending in taken:
            registration = pending.registration
            self._unlogged.append((pending.log_index, owned.attribute, registration.id))
            self._summaries.before_suback(owned, pending)
            hosts = owned.hosts_overlapping(registration.interval)
            group = installs.setdefault((owned.attribute, *hosts), (tuple(hosts.values()), []))
            group[1].append(registration)
        self._summaries.send_recalls()
        for (attribute, *_), (peers, registrations) in installs.items():
            for some in in_batches(registrations, weigh_registration):
                message = Install(attribute, self._owner.epoch, some)  # encoded once for all
                for host in peers:
                    self.port.send(host, message)
        self._owner.rebalance_soon()

    def _create_tree(self, attribute: str) -> OwnedTree:
        hosts = self._owner.selector.hosts_for_new_tree()
        map_ = PartitionMap.single(self._owner.next_version(), hosts)
        self._owner.write_map(attribute, map_, "created")
        owned = self._owner.adopt(attribute)
        self._hosts.attend(owned)
        for host in map_.hosts().values():
            self.port.send(host, map_.assignment(attribute, host.id))
        self.inbox.charge(TREE)
        self.port.count("trees_created")
        return owned

    # --- acknowledging ---

    def on_installed(self, sender: Peer, message: Installed) -> None:
        """A host matches these registrations now: acknowledge those for which nothing else is
        awaited."""
        owned = self._trees.get(message.attribute)
        if owned is not None:
            owned.host_installed(sender.id, message.ids)
            self._acknowledge_due(owned, message.ids)

    def on_committed(self, event: Committed) -> None:
        """More of the log is committed: some answers may be due."""
        while self._unregistered and self._unregistered[0][0] < event.next:
            _, peer, answer = self._unregistered.popleft()
            self.port.send(peer, answer)
        self._acknowledge_logged()

    def on_tree_advanced(self, event: MapSettled | CopyInvalidated) -> None:
        """A change ended, or a summary was recalled: SUBACKs of this tree may be due."""
        owned = self._trees.get(event.attribute)
        if owned is not None and owned.pending:
            self._acknowledge_due(owned)

    def on_observers_progressed(self, event: ObserversProgressed) -> None:
        """Acknowledge what waited for copies outside of the cluster."""
        self._acknowledge_logged()

    def on_leases_over(self, event: LeasesOver) -> None:
        """Acknowledge what waited for replicas whose serving leases are over now."""
        self._acknowledge_all_due()

    def on_acknowledge_due(self, timer: AcknowledgeDue) -> None:
        """Acknowledge all registrations that are due."""
        self._all_soon.rang()
        self._acknowledge_all_due()

    def _acknowledge_logged(self) -> None:
        """The log has more than before: look at the registrations that it has now."""
        logged: dict[str, list[str]] = {}
        while self._unlogged and self._is_logged(self._unlogged[0][0]):
            _, attribute, id_ = self._unlogged.popleft()
            logged.setdefault(attribute, []).append(id_)
        for attribute, ids in logged.items():
            owned = self._trees.get(attribute)
            if owned is not None and owned.pending:
                self._acknowledge_due(owned, ids)
        self._all_soon.within(ACKNOWLEDGE_PERIOD)

    def _is_logged(self, index: int) -> bool:
        return index < self._owner.committed and self._clusters.is_copied(index)

    def _acknowledge_all_due(self) -> None:
        for owned in list(self._trees.values()):
            if owned.pending:
                self._acknowledge_due(owned)

    def _acknowledge_due(self, owned: OwnedTree, ids: Iterable[str] | None = None) -> None:
        """Give the SUBACKs of a tree that are due; `ids`: of these registrations only."""
        if self._hosts.has_serving_stale(
            owned
        ):  # it may serve what it prepared and was not confirmed
            return
        owned.trust_acknowledgements()
        due = owned.take_due(lambda pending: self._is_due(owned, pending), ids)
        if due:
            self._acknowledge(owned.tree, [(p.registration, p.merging_owner) for p in due])
            self._owner.transfer_if_settled()

    def _is_due(self, owned: OwnedTree, pending: PendingRegistration) -> bool:
        return (
            self._is_logged(pending.log_index)
            and self._summaries.is_admitted(pending)
            and owned.is_installed(pending, self._owner.leases.is_over)
        )

    def _acknowledge(
        self, tree: Tree, registrations: Iterable[tuple[Registration, Peer | None]]
    ) -> None:
        """Tell the subscriber of each, or the owner that gave it (in one message per peer)."""
        by_peer: dict[tuple[NodeId, bool], tuple[Peer, list[str]]] = {}
        for registration, merging_owner in registrations:
            peer = merging_owner or registration.subscriber
            group = by_peer.setdefault((peer.id, merging_owner is not None), (peer, []))
            group[1].append(registration.id)
        for (_, adopted), (peer, found) in by_peer.items():
            ids = tuple(found)
            self.port.send(
                peer,
                Adopted(tree.attribute, ids)
                if adopted
                else Registered(tree.attribute, tree.map.version, ids),
            )

    # --- ending ---

    def on_unregister(self, sender: Peer, message: Unregister) -> None:
        """End registrations of the sender; answered when that is committed."""
        if not self._owner.accepts_registrations(message.attribute):
            self._owner.refuse(sender, [message.attribute])
            return
        owned = self._trees.get(message.attribute)
        if owned is not None:
            mine = tuple(
                id_
                for id_ in message.ids
                if (known := owned.tree.registrations.get(id_)) is not None
                and known.subscriber.id == sender.id
            )
            if (index := self._end(owned, mine)) is not None:
                answer = Unregistered(message.attribute, message.ids)
                self._unregistered.append((index, sender, answer))
                if len(self._unregistered) > UNREGISTERED_MOST:
                    self._unregistered.popleft()  # the subscriber will ask again
                if index < self._owner.committed:
                    self.on_committed(Committed("", self._owner.committed))
                return
        self.port.send(sender, Unregistered(message.attribute, message.ids))

    def _end(self, owned: OwnedTree, ids: tuple[str, ...]) -> int | None:
        """Take registrations out of log and hosts. The log entry's number, if there was any."""
        if not ids:
            return None
        index = self._owner.append(RegistrationsRemoved(owned.attribute, ids))
        owned.unregister(ids)
        for host in self._hosts.reachable(owned).values():
            self.port.send(host, Uninstall(owned.attribute, self._owner.epoch, ids))
        self._owner.rebalance_soon()
        return index

    # --- leases ---

    def on_role_changed(self, event: RoleChanged) -> None:
        """A new primary grants a full term to every subscriber."""
        if event.role == "primary":
            self._sweep.within(self._leases.term / 4)
        else:
            self._unregistered.clear()
            self._unlogged.clear()
            self._all_soon.cancel()
            self._lapsed.clear()
            self._leases.clear()
            self._claims.clear()
            self._sweep.cancel()

    def on_renew(self, sender: Peer, message: Renew) -> None:
        """All leases of one subscriber with this cluster, in one message; never logged."""
        named = [*(attribute for attribute, _, _ in message.trees), *message.unsure]
        self._leases.renew(sender.id, message.incarnation, self.port.now, named)
        refused, foreign = [], []
        for attribute, count, digest in message.trees:
            if not self._owner.decides(attribute):
                foreign.append(attribute)
                continue
            owned = self._trees.get(attribute)
            ids = () if owned is None else registrations_of(owned.tree, sender.id)
            right, over = self._claims.check(sender.id, attribute, ids, (count, digest))
            if not right:
                refused.append(attribute)
            elif owned is not None and over:
                self.port.count("registrations_reconciled", len(over))
                self._end(owned, over)
        foreign += [name for name in message.unsure if not self._owner.decides(name)]
        self._owner.refuse(sender, foreign)
        if refused:
            self.port.send(sender, RenewRefused(tuple(refused)))
        self.port.send(sender, Renewed(message.number, (*refused, *foreign)))

    def on_lease_sweep(self, timer: LeaseSweep) -> None:
        """End registrations whose leases were not renewed, a bounded number per turn."""
        self._sweep.rang()
        if not self._lapsed:
            self._find_lapsed()
        ended = 0
        while self._lapsed and ended < AT_ONCE * ENDS:
            owned, ids = self._lapsed.popleft()
            is_mine = self._trees.get(owned.attribute) is owned
            if is_mine and self._owner.accepts_registrations(owned.attribute):
                self._end(owned, ids)
                ended += len(ids)
        self._sweep.within(0.0 if self._lapsed else self._leases.term / 4)

    def _find_lapsed(self) -> None:
        self._leases.expire(self.port.now)
        silent: dict[NodeId, tuple[Peer, list[str]]] = {}  # with the trees
        for owned in self._trees.values():
            if self._owner.accepts_registrations(owned.attribute):
                lapsed = self._leases.lapsed(owned.tree, self.port.now)
                if lapsed:
                    self.port.count("leases_lapsed", len(lapsed))
                    for peer in self._unheard(owned.tree, lapsed):
                        silent.setdefault(peer.id, (peer, []))[1].append(owned.attribute)
                    self._lapsed += [(owned, some) for some in in_batches(lapsed, weigh_text)]
        for peer, trees in silent.values():
            self.port.emit(MatchingInterrupted(peer, UNHEARD, tuple(trees), self.port.now))

    def _unheard(self, tree: Tree, ids: Iterable[str]) -> list[Peer]:
        """Those of their subscribers that were not heard any more. (Others run anew, or have ended
        these registrations.)"""
        subscribers = {s.id: s for s in (tree.registrations[id_].subscriber for id_ in ids)}
        is_silent = self._leases.is_silent
        return [p for p in subscribers.values() if is_silent(p.id, self.port.now)]

    def on_elected(self, event: Elected) -> None:
        """A cluster that was out of sight is led on by the same primary: another one has led in its
        place meanwhile, with whatever it knew of the registrations."""
        if event.forked and event.lost.id == self.port.me.id:
            self._tell_divided(self._trees)

    def on_arc_divided(self, event: ArcDivided) -> None:
        """Another node has led this arc as well, out of sight."""
        self._tell_divided(name for name in self._trees if event.arc.owns(attribute_key(name)))

    def _tell_divided(self, attributes: Iterable[str]) -> None:
        """The subscribers of these trees may lack what was published where they were not known."""
        concerned: dict[NodeId, tuple[Peer, list[str]]] = {}
        for attribute in attributes:
            registrations = self._trees[attribute].tree.registrations.values()
            for peer in {one.subscriber.id: one.subscriber for one in registrations}.values():
                concerned.setdefault(peer.id, (peer, []))[1].append(attribute)
        for peer, trees in concerned.values():
            self.port.emit(MatchingInterrupted(peer, DIVIDED, tuple(trees)))
