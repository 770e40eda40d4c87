"""The owner's side of the trees: registrations, at the primary of the cluster (C6, P1).

A registration is acknowledged (SUBACK) when three things are so:

1. the cluster's log has it (`Committed`: a majority of the voters holds it),
2. every host that may serve a virtual node it overlaps has installed it; while a map changes these
   are the hosts of the old *and* of the new map,
3. for a tree that was just planted: nobody believes any more that the attribute has no subscriber
   (`told.py`).

`balance.py` moves and splits virtual nodes, `leases.py` ends what is not renewed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from overlay.chord.events import Committed, Elected, RoleChanged
from overlay.machine import Handlers, Machine, NodeId, Peer, Port, ProtocolError, Timer, Version
from overlay.settings import Settings
from overlay.upper_tree.events import MapSettled
from overlay.upper_tree.leases import LeaseTable, ids_digest, registrations_of
from overlay.upper_tree.messages import (
    AskTree,
    Assign,
    Install,
    Installed,
    Location,
    NotOwner,
    Recall,
    Recalled,
    Register,
    Registered,
    Registration,
    Renew,
    RenewRefused,
    TreeAnswer,
    Uninstall,
    Unregister,
    Unregistered,
)
from overlay.upper_tree.owner import OwnedTree, Owner, Waiting
from overlay.upper_tree.partition import PartitionMap
from overlay.upper_tree.state import Added, Ended, MapChanged, Tree

MAX_BATCH = 4_096
"""Registrations or attributes in one message; a node splits longer lists. Wild guess."""


MAX_ENDED = 16_384
"""Answers to Unregister that wait for the log; whoever gets none asks again. Wild guess."""


class LeaseSweep(Timer, frozen=True):
    """Look for leases that have lapsed."""


class BeliefEnds(Timer, frozen=True):
    """The term of *nobody* answers that were never recalled is over."""

    attribute: str


class Registry(Machine):
    """Takes registrations for the trees that this node owns, and answers where trees are."""

    def __init__(self, port: Port, settings: Settings, owner: Owner) -> None:
        super().__init__(port)
        self.settings = settings
        self.owner = owner
        self.leases = LeaseTable(settings.tree.lease)
        self._ended: deque[tuple[int, Peer, Unregistered]] = (
            deque()
        )  # answers that wait for the log

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            Register: self.on_register,
            Unregister: self.on_unregister,
            Installed: self.on_installed,
            AskTree: self.on_ask_tree,
            Recalled: self.on_recalled,
            Renew: self.on_renew,
            LeaseSweep: self.on_lease_sweep,
            RoleChanged: self.on_role_changed,
            Elected: self.on_elected,
            BeliefEnds: self.on_belief_ends,
            Committed: self.on_committed,
            MapSettled: self.on_map_settled,
        }

    # --- registering ---

    def on_register(self, sender: Peer, message: Register) -> None:
        """Take what we own; name the owner of the rest."""
        if len(message.registrations) > MAX_BATCH:
            raise ProtocolError("too many registrations in one message")
        foreign: dict[str, None] = {}
        for registration in message.registrations:
            if registration.subscriber.id != sender.id:
                raise ProtocolError("a registration for somebody else")
            if self.owner.owns(registration.attribute):
                self._take(registration, message.incarnation)
            else:
                foreign[registration.attribute] = None
        self._refuse(sender, foreign)
        self.leases.touch(sender.id, message.incarnation, self.port.now)

    def _refuse(self, sender: Peer, attributes: Iterable[str]) -> None:
        by_owner: dict[str, list[str]] = {}
        for attribute in attributes:
            cluster = self.owner.who_owns(attribute)
            by_owner.setdefault("" if cluster is None else cluster.key, []).append(attribute)
        for names in by_owner.values():
            self.port.send(sender, NotOwner(tuple(names), self.owner.who_owns(names[0])))

    def _take(self, registration: Registration, incarnation: int) -> None:
        attribute = registration.attribute
        owned = self.owner.trees.get(attribute)
        if owned is None:
            owned = self._plant(attribute)
        tree = owned.tree
        index = 0
        if tree.registrations.get(registration.id) == registration:
            if registration.id in owned.waiting:
                return
            if not owned.unsure:
                self._acknowledge(tree, [registration])
                return
        else:
            index = self.owner.append(Added(attribute, registration, incarnation))
        owned.waiting[registration.id] = Waiting(registration, index)
        for host in owned.hosts_overlapping(registration.interval).values():
            self.port.send(host, Install(attribute, self.owner.epoch, (registration,)))
        self.owner.balance_soon()

    def _plant(self, attribute: str) -> OwnedTree:
        host = self.owner.emptiest_host()
        map_ = PartitionMap.single(self.owner.next_version(), host)
        self.owner.append(MapChanged(attribute, map_.version, map_.entries))
        owned = self.owner.adopt(attribute)
        self.port.send(
            host,
            Assign(attribute, map_.version, map_.hosted_by(host.id), 1, map_.slice_for(host.id)),
        )
        self.owner.watch_hosts()
        self.port.count("trees_planted")
        self.port.trace("map", attribute=attribute, version=map_.version[1], size=1,
                        epoch=map_.version[0])  # fmt: skip
        now = self.port.now
        for peer in self.owner.told.believers(attribute, now):
            owned.believers[peer.id] = None
            self.port.send(peer, Recall(attribute))
        owned.blind_until = self.owner.told.blind_until
        safe_at = self.owner.told.safe_at(attribute, now)
        if safe_at > now:
            self.port.set_timer(safe_at - now, BeliefEnds(attribute))
        return owned

    def on_recalled(self, sender: Peer, message: Recalled) -> None:
        """One believer less."""
        self.owner.told.recalled(message.attribute, sender.id)
        owned = self.owner.trees.get(message.attribute)
        if owned is not None and sender.id in owned.believers:
            del owned.believers[sender.id]
            self._check(owned)

    def on_belief_ends(self, timer: BeliefEnds) -> None:
        """Whoever did not answer believes it no more."""
        owned = self.owner.trees.get(timer.attribute)
        if owned is not None:
            owned.believers.clear()
            self._check(owned)

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

    def on_map_settled(self, event: MapSettled) -> None:
        """The hosts that a SUBACK waits for may be fewer now."""
        owned = self.owner.trees.get(event.attribute)
        if owned is not None and owned.waiting:
            self._check(owned)

    def _check(self, owned: OwnedTree) -> None:
        """Give the SUBACKs that are due."""
        if owned.believers or owned.blind_until > self.port.now:
            return
        if owned.unsure:
            if self.owner.live_strays(owned):
                return  # a host that the map does not name may still serve
            owned.unsure = False
        committed = self.owner.committed
        done = [
            waiting.registration
            for waiting in owned.waiting.values()
            if waiting.index < committed and owned.installed_everywhere(waiting)
        ]
        for registration in done:
            del owned.waiting[registration.id]
        if done:
            self._acknowledge(owned.tree, done)
            self.owner.settled()

    def _acknowledge(self, tree: Tree, registrations: list[Registration]) -> None:
        by_subscriber: dict[NodeId, list[Registration]] = {}
        for registration in registrations:
            by_subscriber.setdefault(registration.subscriber.id, []).append(registration)
        for group in by_subscriber.values():
            ids = tuple(registration.id for registration in group)
            reply = Registered(tree.attribute, tree.map.version, ids)
            self.port.send(group[0].subscriber, reply)

    # --- ending ---

    def on_unregister(self, sender: Peer, message: Unregister) -> None:
        """End registrations of the sender."""
        if not self.owner.owns(message.attribute):
            self._refuse(sender, [message.attribute])
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
        for host in self.owner.reachable_hosts(owned).values():
            self.port.send(host, Uninstall(attribute, self.owner.epoch, ids))
        self.owner.balance_soon()
        return index

    # --- leases ---

    def on_role_changed(self, event: RoleChanged) -> None:
        """A new primary grants a full term to everybody."""
        if event.role == "primary":
            self.port.set_timer(self.leases.term / 4, LeaseSweep())
        else:
            self._ended.clear()
            self.leases.clear()
            self.port.cancel_timer(LeaseSweep())

    def on_elected(self, event: Elected) -> None:
        """SUBACKs wait until nobody believes what the former primary told."""
        for attribute in self.owner.trees:
            self.port.set_timer(self.settings.tree.nobody_term, BeliefEnds(attribute))

    def on_renew(self, sender: Peer, message: Renew) -> None:
        """All leases of one subscriber with this cluster, in one message; never logged."""
        self.leases.touch(sender.id, message.incarnation, self.port.now)
        refused = []
        for attribute, count, digest in message.trees:
            owned = self.owner.trees.get(attribute)
            ids = () if owned is None else registrations_of(owned.tree, sender.id)
            if not self.owner.owns(attribute) or (len(ids), ids_digest(ids)) != (count, digest):
                refused.append(attribute)
        if refused:
            self.port.send(sender, RenewRefused(tuple(refused)))

    def on_lease_sweep(self, timer: LeaseSweep) -> None:
        """End what was not renewed."""
        for owned in list(self.owner.trees.values()):
            if self.owner.owns(owned.tree.attribute):
                lapsed = self.leases.lapsed(owned.tree, self.port.now)
                if lapsed:
                    self.port.count("leases_lapsed", len(lapsed))
                    self.end(owned, lapsed)
        self.port.set_timer(self.leases.term / 4, LeaseSweep())

    # --- answering ---

    def on_ask_tree(self, sender: Peer, message: AskTree) -> None:
        """Where trees are; who is told *nobody* is remembered."""
        if len(message.attributes) > MAX_BATCH:
            raise ProtocolError("too many attributes in one question")
        entries: list[Location] = []
        nobody: list[str] = []
        foreign: list[str] = []
        for attribute in message.attributes:
            owned = self.owner.trees.get(attribute)
            if not self.owner.owns(attribute):
                foreign.append(attribute)
            elif owned is None:
                nobody.append(attribute)
                self.owner.told.tell(attribute, sender, self.port.now)
            else:
                entries.append(self._entry(owned.tree))
        self._refuse(sender, foreign)
        if entries or nobody:
            term = self.settings.tree.nobody_term
            self.port.send(sender, TreeAnswer(tuple(entries), tuple(nobody), term))

    @staticmethod
    def _entry(tree: Tree) -> Location:
        version: Version = tree.map.version
        root = tree.map.root()
        return Location(tree.attribute, version, root.interval, root.host)
