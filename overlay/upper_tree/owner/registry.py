"""The owner's side of the trees: registrations, at the primary of the cluster (C6, P1).

A registration is acknowledged (SUBACK) when three things are so:

1. the cluster's log has it (`Committed`: a majority of the voters holds it), and so have the log's
   observers that answer (overlay/chord/recovery/observers.py),
2. every host that may serve a virtual node it overlaps has installed it, or has lost its serving
   lease for certain (serving.py); while a change is prepared
   these are the hosts of the old *and* of the new map, and once it is committed those of the old
   one must have stopped; while there are strays nobody knows,
3. no publisher believes any more what it contradicts: that the attribute has no subscriber, or only
   such as a summary admits (`beliefs.py`).

`balance.py` moves and splits virtual nodes, `leases.py` ends what is not renewed.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from overlay.chord.events import Committed, ObserversProgressed, RoleChanged
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
from overlay.upper_tree.batches import MAX_BATCH
from overlay.upper_tree.compiled_selectors import boxes_of
from overlay.upper_tree.events import BeliefEnded, LeasesOver, MapSettled
from overlay.upper_tree.messages import (
    Adopted,
    Assign,
    BetterPivots,
    Install,
    Installed,
    Register,
    Registered,
    Registration,
    Renew,
    RenewRefused,
    Uninstall,
    Unregister,
    Unregistered,
)
from overlay.upper_tree.owner.leases import Doubts, LeaseTable, registrations_of
from overlay.upper_tree.owner.owned_tree import OwnedTree, Waiting
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.tree_log import Added, Ended, MapChanged, Tree
from overlay.upper_tree.partition import PartitionMap
from overlay.upper_tree.pivots import better_pivot
from overlay.upper_tree.summary import Box

MAX_ENDED = 16_384
"""Answers to Unregister that wait for the log; whoever gets none asks again. Wild guess."""


class LeaseSweep(Timer, frozen=True):
    """Look for leases that have lapsed."""


class Summaries(Protocol):
    """What a registration waits for: no publisher may skip a tree by a summary without it (C9)."""

    def take(self, owned: OwnedTree, waiting: Waiting) -> None:
        """Invalidate cached summaries that do not admit the new registration."""

    def is_over(self, waiting: Waiting) -> bool:
        """Whether no publisher has a cached summary any more that does not admit it."""

    def all_known(self) -> bool:
        """Whether this node knows of every summary that a publisher may have cached."""


class Registry(Machine):
    """Takes registrations for the trees that this node owns."""

    def __init__(self, port: Port, settings: Settings, owner: Owner, beliefs: Summaries) -> None:
        super().__init__(port)
        self.counting = settings.tree.routing == "counting"
        self.owner = owner
        self.beliefs = beliefs
        self.leases = LeaseTable(settings.tree.lease)
        self.doubts = Doubts()
        self._sweep = Alarm(port, LeaseSweep())
        self._ended: deque[tuple[int, Peer, Unregistered]] = deque()
        """Answers that wait for the log, with the number of their entry."""

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            Register: self.on_register,
            Unregister: self.on_unregister,
            Installed: self.on_installed,
            Renew: self.on_renew,
            LeaseSweep: self.on_lease_sweep,
            RoleChanged: self.on_role_changed,
            Committed: self.on_committed,
            MapSettled: self.on_tree_eased,
            BeliefEnded: self.on_tree_eased,
            LeasesOver: self.on_all_eased,
            ObserversProgressed: self.on_all_eased,
        }

    # --- registering ---

    def on_register(self, sender: Peer, message: Register) -> None:
        """Take what we own; name the owner of the rest."""
        if len(message.registrations) > MAX_BATCH:
            raise ProtocolError("too many registrations in one message")
        foreign: dict[str, None] = {}
        better: list[tuple[str, str, str]] = []
        for registration in message.registrations:
            attribute = registration.attribute
            if registration.subscriber.id != sender.id:
                raise ProtocolError("a registration for somebody else")
            if not self.owner.takes(attribute):
                foreign[attribute] = None
                continue
            self.doubts.registered(sender.id, attribute, registration.id)
            if not self._is_known(registration):
                boxes = boxes_of(registration.selector)
                pivot = None if message.final else self._better(attribute, boxes)
                if pivot is None:
                    self._take(registration, boxes, message.incarnation)
                else:
                    better.append((registration.id, attribute, pivot))
        self.owner.refuse(sender, foreign)
        if better:
            self._direct(sender, better)
        self.leases.touch(sender.id, message.incarnation, self.port.now)

    def adopt(self, sponsor: Peer, registration: Registration, incarnation: int) -> None:
        """Take a registration of a ring that ends; `sponsor` hears when it is acknowledged."""
        if not self._is_known(registration, sponsor):
            self._take(registration, boxes_of(registration.selector), incarnation)
        owned = self.owner.trees[registration.attribute]
        if (waiting := owned.waiting.get(registration.id)) is not None:
            waiting.sponsor = sponsor
        self.leases.touch(registration.subscriber.id, incarnation, self.port.now)
        self._check(owned)

    def _is_known(self, registration: Registration, sponsor: Peer | None = None) -> bool:
        """Whether we have it already; its SUBACK is given again if it was given."""
        owned = self.owner.trees.get(registration.attribute)
        if owned is None or owned.tree.registrations.get(registration.id) != registration:
            return False
        if registration.id not in owned.waiting:
            if owned.unsure or owned.adopted_at >= self.owner.committed:
                self._await(owned, registration, owned.adopted_at)
            else:
                self._acknowledge(owned.tree, [(registration, sponsor)])
        return True

    def _better(self, attribute: str, boxes: tuple[Box, ...]) -> str | None:
        """A pivot with far less traffic, as far as this cluster knows (C9)."""
        if self.counting or len(boxes) != 1 or attribute not in dict(boxes[0]):
            return None
        return better_pivot(attribute, boxes[0], self.owner.popularity)

    def _direct(self, subscriber: Peer, better: list[tuple[str, str, str]]) -> None:
        """Send registrations elsewhere, with what makes the subscriber choose well next time."""
        names = dict.fromkeys(name for _, *pivots in better for name in pivots)
        known = self.owner.popularity
        counts = tuple((name, known.get(name, 0)) for name in names)
        self.port.count("registrations_directed", len(better))
        self.port.send(subscriber, BetterPivots(tuple(better), counts))

    def _take(self, registration: Registration, boxes: tuple[Box, ...], incarnation: int) -> None:
        attribute = registration.attribute
        owned = self.owner.trees.get(attribute)
        if owned is None:
            owned = self._plant(attribute)
        index = self.owner.append(Added(attribute, registration, incarnation))
        self.owner.replanting.registered(attribute, self.port.now)
        self.owner.popularity.remove(owned.boxes.pop(registration.id, ()))
        self.owner.popularity.add(boxes)
        owned.boxes[registration.id] = boxes
        self._await(owned, registration, index)

    def _await(self, owned: OwnedTree, registration: Registration, index: int) -> None:
        """The SUBACK is due when entry `index` of the log is committed, and all hosts have it."""
        attribute = owned.tree.attribute
        if registration.id not in owned.boxes:  # another primary took it
            owned.boxes[registration.id] = boxes = boxes_of(registration.selector)
            self.owner.popularity.add(boxes)
        waiting = owned.waiting[registration.id] = Waiting(registration, index)
        self.beliefs.take(owned, waiting)
        for host in owned.hosts_overlapping(registration.interval).values():
            self.port.send(host, Install(attribute, self.owner.epoch, (registration,)))
        self.owner.balance_soon()

    def _plant(self, attribute: str) -> OwnedTree:
        map_ = PartitionMap.single(self.owner.next_version(), self.owner.homes.home())
        self.owner.append(MapChanged(attribute, map_.version, map_.entries))
        owned = self.owner.adopt(attribute)
        self.owner.watch_hosts()
        for host in map_.hosts().values():
            hosted, known = map_.hosted_by(host.id), map_.slice_for(host.id)
            self.port.send(host, Assign(attribute, map_.version, hosted, 1, known))
        self.port.count("trees_planted")
        self.port.trace("map", attribute=attribute, version=map_.version[1], size=1,
                        epoch=map_.version[0])  # fmt: skip
        return owned

    # --- acknowledging ---

    def on_installed(self, sender: Peer, message: Installed) -> None:
        """A host matches these registrations now."""
        owned = self.owner.trees.get(message.attribute)
        if owned is None:
            return
        for id_ in message.ids:
            waiting = owned.waiting.get(id_)
            if waiting is not None:
                waiting.installed[sender.id] = None
        self._check(owned)

    def on_committed(self, event: Committed) -> None:
        """The log is further: some answers may be due."""
        while self._ended and self._ended[0][0] < event.next:
            _, peer, answer = self._ended.popleft()
            self.port.send(peer, answer)
        for owned in list(self.owner.trees.values()):
            if owned.waiting:
                self._check(owned)

    def on_tree_eased(self, event: MapSettled | BeliefEnded) -> None:
        """What a SUBACK waits for may be less now."""
        owned = self.owner.trees.get(event.attribute)
        if owned is not None and owned.waiting:
            self._check(owned)

    def on_all_eased(self, event: LeasesOver | ObserversProgressed) -> None:
        """Silent replicas need not be waited for; observers have more of the log."""
        for owned in list(self.owner.trees.values()):
            if owned.waiting:
                self._check(owned)

    def _check(self, owned: OwnedTree) -> None:
        """Give the SUBACKs that are due."""
        if self.owner.wild_strays(owned):  # one may serve what it prepared in vain (balance.py)
            return
        owned.unsure = False
        committed = self.owner.committed
        done = [
            (waiting.registration, waiting.sponsor)
            for waiting in owned.waiting.values()
            if waiting.index < committed
            and self.beliefs.is_over(waiting)
            and self.owner.clusters.is_copied(waiting.index)
            and owned.installed_everywhere(waiting, self.owner.leases.is_over)
        ]
        for registration, _ in done:
            del owned.waiting[registration.id]
        if done:
            self._acknowledge(owned.tree, done)
            self.owner.settled()

    def _acknowledge(self, tree: Tree, done: list[tuple[Registration, Peer | None]]) -> None:
        by_peer: dict[tuple[NodeId, bool], tuple[Peer, list[str]]] = {}
        for registration, sponsor in done:
            peer = sponsor or registration.subscriber
            group = by_peer.setdefault((peer.id, sponsor is not None), (peer, []))
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
        """End registrations of the sender."""
        if not self.owner.takes(message.attribute):
            self.owner.refuse(sender, [message.attribute])
            return
        owned = self.owner.trees.get(message.attribute)
        if owned is not None:
            mine = tuple(
                id_
                for id_ in message.ids
                if (known := owned.tree.registrations.get(id_)) is not None
                and known.subscriber.id == sender.id
            )
            if (index := self.end(owned, mine)) is not None:
                answer = Unregistered(message.attribute, message.ids)
                self._ended.append((index, sender, answer))
                if len(self._ended) > MAX_ENDED:
                    self._ended.popleft()  # it will ask again
                if index < self.owner.committed:
                    self.on_committed(Committed("", self.owner.committed))
                return
        self.port.send(sender, Unregistered(message.attribute, message.ids))

    def end(self, owned: OwnedTree, ids: tuple[str, ...]) -> int | None:
        """Take registrations out of log and hosts. The log entry's number, if there was any."""
        if not ids:
            return None
        attribute = owned.tree.attribute
        index = self.owner.append(Ended(attribute, ids))
        for id_ in ids:
            owned.waiting.pop(id_, None)
            self.owner.popularity.remove(owned.boxes.pop(id_, ()))
        for host in self.owner.reachable_hosts(owned).values():
            self.port.send(host, Uninstall(attribute, self.owner.epoch, ids))
        self.owner.balance_soon()
        return index

    # --- leases ---

    def on_role_changed(self, event: RoleChanged) -> None:
        """A new primary grants a full term to everybody."""
        if event.role == "primary":
            self._sweep.within(self.leases.term / 4)
        else:
            self._ended.clear()
            self.leases.clear()
            self.doubts.clear()
            self._sweep.cancel()

    def on_renew(self, sender: Peer, message: Renew) -> None:
        """All leases of one subscriber with this cluster, in one message; never logged."""
        named = [*(attribute for attribute, _, _ in message.trees), *message.unsure]
        self.leases.touch(sender.id, message.incarnation, self.port.now, named)
        refused, foreign = [], []
        for attribute, count, digest in message.trees:
            if not self.owner.owns(attribute):
                foreign.append(attribute)
                continue
            owned = self.owner.trees.get(attribute)
            ids = () if owned is None else registrations_of(owned.tree, sender.id)
            right, over = self.doubts.check(sender.id, attribute, ids, (count, digest))
            if not right:
                refused.append(attribute)
            elif owned is not None and over:
                self.port.count("registrations_disowned", len(over))
                self.end(owned, over)
        self.owner.refuse(sender, foreign)
        if refused:
            self.port.send(sender, RenewRefused(tuple(refused)))

    def on_lease_sweep(self, timer: LeaseSweep) -> None:
        """End what was not renewed."""
        self._sweep.rang()
        self.leases.forget_old(self.port.now)
        for owned in list(self.owner.trees.values()):
            if self.owner.takes(owned.tree.attribute):
                lapsed = self.leases.lapsed(owned.tree, self.port.now)
                if lapsed:
                    self.port.count("leases_lapsed", len(lapsed))
                    self.end(owned, lapsed)
        self._sweep.within(self.leases.term / 4)
