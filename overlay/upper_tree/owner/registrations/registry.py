"""Registrations, at the primary of the cluster that owns the tree (C6, P1).

A registration is acknowledged (SUBACK) when three things are so:

1. the cluster's log has it (`Committed`: a majority of the voters has it), and so have the log's
   observers that answer (overlay/chord/recovery/observers.py),
2. every host that may serve a virtual node it overlaps has installed it, or has lost its serving
   lease for certain (../lease_grants.py). While a change of the map is prepared these are the hosts
   of the old *and* of the new map; once it is committed those of the old one must have stopped. No
   stale host may serve meanwhile,
3. no publisher has a cached summary any more that does not admit it (summaries/).

`../rebalance.py` moves and splits virtual nodes, registration_ends.py ends registrations.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from overlay.bounded import BoundedDict
from overlay.chord.events import Committed, ObserversProgressed, RoleChanged
from overlay.lower_random.policies import Policies
from overlay.machine import (
    Alarm,
    AnyNode,
    Handler,
    Handlers,
    Machine,
    Message,
    NodeId,
    NodeRoles,
    Peer,
    Port,
    ProtocolError,
    Timer,
)
from overlay.settings import Settings
from overlay.tenants.policy import (
    FORMER,
    LEAF_REGISTRATIONS,
    LEAF_TREES,
    PLANTED_AT_ONCE,
    PLANTED_RATE,
    Bucket,
)
from overlay.upper_tree.batches import MAX_BATCH, in_batches, weigh_registration
from overlay.upper_tree.compiled_selectors import boxes_of
from overlay.upper_tree.confined_registrations import narrowed_again
from overlay.upper_tree.events import CopyInvalidated, LeasesOver, MapSettled
from overlay.upper_tree.messages import (
    Adopted,
    BetterPivots,
    ComeAgain,
    Install,
    Installed,
    Register,
    Registered,
    Registration,
    Renew,
    Unregister,
)
from overlay.upper_tree.owner.constants import ACKNOWLEDGE_PERIOD
from overlay.upper_tree.owner.owned_tree import OwnedTree, PendingRegistration
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.registrations.leaf_inbox import PACE, LeafInbox
from overlay.upper_tree.owner.registrations.registration_ends import RegistrationEnds
from overlay.upper_tree.owner.registrations.restoration import TreeRestoration
from overlay.upper_tree.owner.tree_log import LeafHoldings, RegistrationAdded, Tree
from overlay.upper_tree.partition import PartitionMap
from overlay.upper_tree.pivots import better_pivot
from overlay.upper_tree.sliced_inbox import TREE, SlicedInbox
from overlay.upper_tree.summary import Box

# --- what an owner takes from one leaf (docs/design/security.md#quotas) ---
#
# The guard bounds how many registrations come from a leaf in a while (overlay/tenants/quotas.py).
# What it has is bounded here, and so are the trees that are planted for it, each of which costs as
# much as some 32 registrations. An honest leaf's node looks at its share before it registers
# (overlay/lower_random/policies.py), so that its program hears of it at once; it is refused here
# only if it asks for new trees faster than an owner plants them for one leaf, and asks again then.

LEAVES_MOST: Final = 65_536
"""Leaves of which it is remembered how many trees were planted for them."""

SHARE_AGAIN: Final = 5.0
"""Seconds after which a leaf is to ask again for what is beyond its share: programs end
subscriptions, and trees may be planted."""


class LeafQuota:
    """Whether one more registration of a leaf is taken."""

    def __init__(
        self,
        port: Port,
        policies: Policies,
        roles: NodeRoles,
    ) -> None:
        self._port = port
        self._policies = policies
        self._roles = roles
        self._planted: BoundedDict[NodeId, Bucket] = BoundedDict(LEAVES_MOST)

    def takes(
        self, registration: Registration, held: LeafHoldings, fresh: int, plants: bool
    ) -> bool:
        """Whether there is room for it beside what its subscriber has, and `fresh` more that are
        not counted there yet (in trees that are not either: a turn takes few). `plants`: its tree
        is not there; then it is counted as planted."""
        confined, node = registration.confined, registration.subscriber.id
        if confined is None or self._roles.takes_part(node):
            return True
        tenant = confined.tenant
        most = self._policies.confinement.of(tenant).quota.subscriptions if tenant else 0
        registrations, trees = held.of(node)
        if registrations + fresh >= FORMER * (most or LEAF_REGISTRATIONS):
            return False
        is_new = not held.has(node, registration.attribute)
        if is_new and trees >= FORMER * LEAF_TREES:
            return False
        return not plants or self._plants(node)

    def _plants(self, node: NodeId) -> bool:
        bucket = self._planted.get(node)
        if bucket is None:
            bucket = self._planted[node] = Bucket()
        else:
            self._planted.move_to_end(node)
        return bucket.take(1.0, PLANTED_RATE, PLANTED_AT_ONCE, self._port.now)


class AcknowledgeDue(Timer, frozen=True):
    """Look at all registrations that wait for their SUBACK."""


class RegisterMoreDue(Timer, frozen=True):
    """Time to handle more of the registrations that subscribers have sent."""


class Summaries(Protocol):
    """The part of the summaries' machines that a registration waits for: while a valid cached
    summary does not admit it, publishers may skip the tree (C9)."""

    def before_suback(self, owned: OwnedTree, new: Sequence[PendingRegistration]) -> None:
        """Invalidate cached summaries that do not admit the new registrations; `send_recalls`
        follows in this turn."""

    def send_recalls(self) -> None:
        """Recall invalidated summaries from publishers, with one message to each publisher."""

    def is_admitted(self, pending: PendingRegistration) -> bool:
        """Whether no publisher has a cached summary any more that does not admit it."""

    def has_inherited(self, attribute: str) -> bool:
        """Whether a publisher may use a summary of the tree that a former owner granted: that
        owner may have ended before it recalled the summary for a registration that the log has."""

    def invalidate_all(self) -> None:
        """Invalidate all cached summaries of this owner's trees: its ring ends."""

    def none_cached(self) -> bool:
        """Whether no publisher has a cached summary of this owner's trees."""


class FreshRegistration(NamedTuple):
    """A registration that was taken and is not in the log yet."""

    registration: Registration
    incarnation: int


class FreshRegistrations:
    """The registrations that a turn has taken so far."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str], FreshRegistration] = {}  # (attribute, id)
        self._of: Counter[NodeId] = Counter()

    def __contains__(self, registration: Registration) -> bool:
        return (registration.attribute, registration.id) in self._by_key

    def add(self, registration: Registration, incarnation: int) -> None:
        """Add a registration that was taken."""
        self._by_key[registration.attribute, registration.id] = FreshRegistration(
            registration, incarnation
        )
        self._of[registration.subscriber.id] += 1

    def of(self, subscriber: NodeId) -> int:
        """Return how many there are of this subscriber."""
        return self._of[subscriber]

    def take_all(self) -> tuple[FreshRegistration, ...]:
        """Take out all, as they came: they go into the log."""
        found = tuple(self._by_key.values())
        self._by_key.clear()
        self._of.clear()
        return found


class Registry(Machine):
    """Takes registrations for the trees that this node owns.

    The registrations taken in a turn go into the log in one step and to each host in one message
    per tree, and are acknowledged in the same way. Each registration still has its own answer. A
    turn takes the registrations that have arrived, and does not wait for more.
    """

    def __init__(
        self,
        port: Port,
        settings: Settings,
        owner: Owner,
        summaries: Summaries,
        restoration: TreeRestoration,
        policies: Policies,
        roles: NodeRoles | None = None,
    ) -> None:
        """`roles`: the registrations of a node that does not take part have a quota."""
        super().__init__(port)
        self._roles = roles or AnyNode()
        self._quota = LeafQuota(port, policies, self._roles)
        self._policies = policies
        self._counting = settings.tree.routing == "counting"
        self._owner = owner
        self._trees = owner.trees
        self._hosts = owner.hosts
        self._summaries = summaries
        self._restoration = restoration
        self.ends = RegistrationEnds(port, settings, owner)
        """Renews and ends registrations; a machine of its own, beside this one in node.py."""
        self._unlogged: deque[tuple[int, str, str]] = deque()
        """Registrations that the log may not have yet: number of the entry, attribute, id."""
        self._all_soon = Alarm(port, AcknowledgeDue())
        self._fresh = FreshRegistrations()
        self._again: dict[str, list[tuple[Registration, Peer | None]]] = {}
        """By attribute, what was acknowledged before and is asked for again in this turn."""
        handlers_of: dict[type[Message], Handler] = {
            Register: self.on_register,
            Unregister: self.ends.on_unregister,
            Renew: self.ends.on_renew,
        }
        self.inbox = SlicedInbox(port, RegisterMoreDue(), handlers_of, self._finish)
        self.leaves = LeafInbox(port, handlers_of, self._finish, self._put_off)
        """The queue of leaves' messages."""

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            **super().handlers(),
            **self.inbox.handlers(),
            **self.leaves.handlers(),
            Register: self.take,
            Unregister: self.enqueue,
            Renew: self.take_renewal,
        }

    # --- registering ---

    def take(self, sender: Peer, message: Register) -> None:
        """Registrations come: they are taken now, or when their turn comes.

        Raises ProtocolError if there are too many, or some of another subscriber's."""
        if len(message.registrations) > MAX_BATCH:
            raise ProtocolError("too many registrations in one message")
        if any(one.subscriber.id != sender.id for one in message.registrations):
            raise ProtocolError("a registration of another subscriber")
        self.enqueue(sender, message)

    def take_renewal(self, sender: Peer, message: Renew) -> None:
        """Queue a renewal. It is checked now, or when its turn comes. Raises ProtocolError if it
        names a tree twice, since checking a tree goes through all of the sender's registrations in
        it."""
        if len({attribute for attribute, _, _ in message.trees}) < len(message.trees):
            raise ProtocolError("a renewal that names a tree twice")
        self.enqueue(sender, message)

    def enqueue(self, sender: Peer, message: Message) -> None:
        """Do what a subscriber asks for when its turn comes."""
        inbox = self.inbox if self._roles.takes_part(sender.id) else self.leaves
        inbox.take(sender, message)

    def _put_off(self, leaf: Peer, message: Message, seconds: float) -> None:
        """Refuse a message of a leaf for lack of room. The leaf may ask again in `seconds` seconds
        for registrations that it has not made; it repeats other messages by itself."""
        if isinstance(message, Register):
            reason = f"an owner takes {1 / PACE:,.0f} registrations per second of all leaves"
            self._come_again(leaf, message.registrations, seconds, reason)

    def _come_again(
        self, leaf: Peer, refused: Sequence[Registration], seconds: float, reason: str
    ) -> None:
        self.port.count("quota_refused", len(refused))
        keys = tuple([(one.attribute, one.id) for one in refused])
        self.port.send(leaf, ComeAgain("Register", seconds, reason, keys))

    def on_register(self, sender: Peer, message: Register) -> None:
        """Take registrations of trees that this node owns; name the owner of the others."""
        foreign: dict[str, None] = {}
        better: list[tuple[str, str, str]] = []
        accepts: dict[str, bool] = {}  # mostly all are of one tree
        taken: list[Registration] = []
        over: list[Registration] = []
        for registration in message.registrations:
            attribute = registration.attribute
            if attribute not in accepts:
                accepts[attribute] = self._owner.accepts_registrations(attribute)
            if not accepts[attribute]:
                foreign[attribute] = None
                continue
            taken.append(registration)
            if registration in self._fresh:
                self._log_fresh()
            if not self._is_known(registration):
                boxes = boxes_of(registration.selector)
                asked = boxes_of(registration.asked) if registration.confined else boxes
                pivot = None if message.final else self._better_pivot(attribute, asked)
                if pivot is not None:
                    better.append((registration.id, attribute, pivot))
                elif self._has_room(registration):
                    self._add(registration, boxes, message.incarnation)
                else:
                    over.append(registration)  # sent again while its subscriber wants it
        self.ends.registered(sender.id, taken)
        self._owner.refuse(sender, foreign)
        if over:
            self._come_again(sender, over, SHARE_AGAIN, "a leaf has its share at this owner")
        if better:
            self._redirect(sender, better)
        self.ends.heard(sender.id, message.incarnation)

    def adopt(self, merging_owner: Peer, registration: Registration, incarnation: int) -> None:
        """Take a registration of a ring that ends; its owner there, `merging_owner`, hears when
        it is acknowledged. It is narrowed by the policy that holds here, not by that of the other
        ring."""
        registration = narrowed_again(self._policies.confinement, registration)
        if not self._is_known(registration, merging_owner):
            self._add(registration, boxes_of(registration.selector), incarnation)
        self._finish()
        owned = self._trees[registration.attribute]
        if (pending := owned.pending.get(registration.id)) is not None:
            pending.merging_owner = merging_owner
        self.ends.heard(registration.subscriber.id, incarnation)
        self._acknowledge_due(owned)

    def replace(self, owned: OwnedTree, changed: Iterable[Registration]) -> None:
        """Registrations of a tree are other ones from now on, under their ids: as if their
        subscribers had registered them again."""
        for registration in changed:
            incarnation = owned.tree.incarnations[registration.id]
            self._add(registration, boxes_of(registration.selector), incarnation)
        self._finish()

    def _is_known(self, registration: Registration, merging_owner: Peer | None = None) -> bool:
        """Whether the log has it already; its SUBACK is given again if it was given."""
        owned = self._trees.get(registration.attribute)
        known = None if owned is None else owned.tree.registrations.get(registration.id)
        if owned is None or known is None or known != registration:
            return False
        if registration.id not in owned.pending:
            if owned.was_acknowledged(self._owner.committed):
                again = self._again.setdefault(registration.attribute, [])
                again.append((registration, merging_owner))
            else:
                self._await([(owned, owned.register(registration, owned.restored_index))])
        return True

    def _has_room(self, registration: Registration) -> bool:
        """Return whether the subscriber may have this registration. If it is a leaf, its existing
        registrations and those taken in this turn count."""
        if registration.confined is None:
            return True
        plants = registration.attribute not in self._trees
        fresh = self._fresh.of(registration.subscriber.id)
        return self._quota.takes(registration, self._owner.state.leaves, fresh, plants)

    def _better_pivot(self, attribute: str, boxes: tuple[Box, ...]) -> str | None:
        """An attribute with far less traffic, as far as this cluster knows (C9)."""
        if self._counting or len(boxes) != 1 or not boxes[0]:
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
        """Enter a new registration into its tree, which is created if there is none. `_finish` has
        to be called in the same turn."""
        attribute = registration.attribute
        owned = self._trees.get(attribute)
        if owned is None:
            owned = self._create_tree(attribute)
        owned.boxes.put(registration.id, boxes)
        self._fresh.add(registration, incarnation)

    def _finish(self) -> None:
        """Finish the turn: log and acknowledge all registrations taken."""
        self._log_fresh()
        again, self._again = self._again, {}
        for attribute, registrations in again.items():
            self._acknowledge(self._trees[attribute].tree, registrations)

    def _log_fresh(self) -> None:
        """Write the taken registrations to the log in one step, and start their
        acknowledgements."""
        fresh = self._fresh.take_all()
        if not fresh:
            return
        for attribute in dict.fromkeys([one.registration.attribute for one in fresh]):
            self._restoration.registered(attribute, self.port.now)
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
        by_tree: dict[str, list[PendingRegistration]] = {}
        for owned, pending in taken:
            registration = pending.registration
            self._unlogged.append((pending.log_index, owned.attribute, registration.id))
            by_tree.setdefault(owned.attribute, []).append(pending)
            hosts = owned.hosts_for(registration)
            group = installs.setdefault((owned.attribute, *hosts), (tuple(hosts.values()), []))
            group[1].append(registration)
        for attribute, some in by_tree.items():
            self._summaries.before_suback(self._trees[attribute], some)
        self._summaries.send_recalls()
        for (attribute, *_), (peers, registrations) in installs.items():
            for batch in in_batches(registrations, weigh_registration):
                message = Install(attribute, self._owner.epoch, batch)  # encoded once for all
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
            self.port.send(host, self._owner.assignment(map_, attribute, host.id))
        self.inbox.charge(TREE)
        self.leaves.charge(TREE)
        self.port.count("trees_created")
        return owned

    def on_role_changed(self, event: RoleChanged) -> None:
        """Forget pending SUBACKs when this node leads no cluster."""
        if event.role != "primary":
            self._unlogged.clear()
            self._all_soon.cancel()

    # --- acknowledging ---

    def on_installed(self, sender: Peer, message: Installed) -> None:
        """A host matches these registrations now: acknowledge those for which nothing else is
        awaited."""
        owned = self._trees.get(message.attribute)
        if owned is not None:
            owned.host_installed(sender.id, message.ids)
            self._acknowledge_due(owned, message.ids)

    def on_committed(self, event: Committed) -> None:
        """More of the log is committed: SUBACKs may be due."""
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
        """Handle the registrations that the log has stored meanwhile, and acknowledge those that
        may be."""
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
        return index < self._owner.committed and self._owner.clusters.is_copied(index)

    def _acknowledge_all_due(self) -> None:
        for owned in list(self._trees.values()):
            if owned.pending:
                self._acknowledge_due(owned)

    def _acknowledge_due(self, owned: OwnedTree, ids: Iterable[str] | None = None) -> None:
        """Give the SUBACKs of a tree that are due; `ids`: of these registrations only."""
        if self._hosts.has_serving_stale(owned):
            return  # it may serve what it prepared and was not confirmed
        if not self._summaries.has_inherited(owned.attribute):
            owned.trust_acknowledgements()
        due = owned.take_due(lambda pending: self._is_due(owned, pending), ids)
        if due:
            self._acknowledge(owned.tree, [(p.registration, p.merging_owner) for p in due])
            self._owner.transfer_if_settled()

    def _is_due(self, owned: OwnedTree, pending: PendingRegistration) -> bool:
        return (
            self._is_logged(pending.log_index)
            and self._summaries.is_admitted(pending)
            and owned.is_installed(pending, self._owner.hosts.leases.is_over)
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
