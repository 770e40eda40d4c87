"""Ends registrations at the primary of the cluster that owns the tree (P1).

Their subscriber ends them (`Unregister`); or its leases run out, or its renewals claim another set
(`RegistrationLeases`). A subscriber that may have missed events because it was not matched for is
reported (`MatchingInterrupted`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from overlay.chord.events import ArcDivided, Committed, Elected, RoleChanged
from overlay.chord.keys import attribute_key
from overlay.machine import Alarm, Handlers, Machine, NodeId, Peer, Port, Timer
from overlay.settings import Settings
from overlay.upper_tree.batches import in_batches, weigh_text
from overlay.upper_tree.events import MatchingInterrupted
from overlay.upper_tree.messages import (
    Registration,
    Renew,
    Renewed,
    RenewRefused,
    Uninstall,
    Unregister,
    Unregistered,
    ids_digest,
)
from overlay.upper_tree.owner.constants import UNREGISTERED_MOST
from overlay.upper_tree.owner.owned_tree import OwnedTree
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.tree_log import RegistrationsRemoved, Tree
from overlay.upper_tree.sliced_inbox import AT_ONCE, ENDS

# --- leases of registrations: one that its subscriber does not renew ends (P1) ---
#
# One renewal per subscriber and cluster covers all its registrations there. It has, per tree, their
# number and a digest of their ids, so that a side that lost some is found out. The other way round,
# an owner may have what its subscriber has ended: its log is that of a cluster that was lost, and
# the end was sent to another owner. So a tree that renewals do not name is not renewed; and where
# digests differ, the subscriber registers again what it has, and the rest ends when its next claim
# is right without it (`ClaimChecks`).


def registrations_of(tree: Tree, subscriber: NodeId) -> tuple[str, ...]:
    """Ids of one subscriber's registrations in a tree."""
    return tuple(
        id_ for id_, known in tree.registrations.items() if known.subscriber.id == subscriber
    )


class RegistrationLeases:
    """The times at which each subscriber, and each of its incarnations, was last heard. Times are
    the Port's."""

    def __init__(self, term: float) -> None:
        """`term`: seconds for which a lease runs after each renewal."""
        self.term = term
        self._until: dict[NodeId, dict[int, float]] = {}
        self._named: dict[NodeId, tuple[float, frozenset[str]]] = {}
        """The trees that each subscriber's last renewal named, and when that came."""
        self._unnamed: dict[tuple[NodeId, str], float] = {}
        """Since which renewal one has registrations in a tree that it does not name."""

    def renew(
        self, subscriber: NodeId, incarnation: int, now: float, trees: Iterable[str] | None = None
    ) -> None:
        """Renew a subscriber's leases for a full term from `now`, and end those of its older
        incarnations at once. `trees`: all trees in which it says that it has registrations; None if
        it did not say."""
        terms = self._until.setdefault(subscriber, {})
        for older in [known for known in terms if known < incarnation]:
            terms[older] = now
        terms[incarnation] = now + self.term
        if trees is None:
            self._named.pop(subscriber, None)  # it may have some in another tree now
        else:
            self._named[subscriber] = now, frozenset(trees)

    def lapsed(self, tree: Tree, now: float) -> tuple[str, ...]:
        """Ids in `tree` whose lease has lapsed. A subscriber that was never heard gets a full term
        first."""
        ids = []
        unnamed: dict[NodeId, bool] = {}
        for id_, registration in tree.registrations.items():
            subscriber = registration.subscriber.id
            terms = self._until.setdefault(subscriber, {})
            if subscriber not in unnamed:
                unnamed[subscriber] = self._is_unnamed(subscriber, tree.attribute)
            over = terms.setdefault(tree.incarnations[id_], now + self.term) <= now
            if over or unnamed[subscriber]:
                ids.append(id_)
        return tuple(ids)

    def is_silent(self, subscriber: NodeId, now: float) -> bool:
        """Whether no process of this node has renewed within a term."""
        return all(until <= now for until in self._until.get(subscriber, {}).values())

    def _is_unnamed(self, subscriber: NodeId, attribute: str) -> bool:
        """Whether its renewals of a whole term did not name a tree in which it has something."""
        at, names = self._named.get(subscriber, (0.0, None))
        if names is None or attribute in names:
            self._unnamed.pop((subscriber, attribute), None)
            return False
        return at - self._unnamed.setdefault((subscriber, attribute), at) >= self.term

    def expire(self, now: float) -> None:
        """Forget subscribers that were silent for two terms: all that they had has lapsed by
        now."""
        for subscriber, terms in list(self._until.items()):
            for incarnation in [i for i, until in terms.items() if until + self.term <= now]:
                del terms[incarnation]
            if not terms:
                del self._until[subscriber]
                self._named.pop(subscriber, None)
        for one in [one for one in self._unnamed if one[0] not in self._named]:
            del self._unnamed[one]

    def clear(self) -> None:
        """Forget all, when the node is no longer the primary."""
        self._until.clear()
        self._named.clear()
        self._unnamed.clear()


class ClaimChecks:
    """Compares what a subscriber says that it has in a tree with what the owner has. Remembers,
    where they differ, which registrations have not been registered again since: at most all that
    the subscriber has there."""

    def __init__(self) -> None:
        self._unconfirmed: dict[tuple[NodeId, str], dict[str, None]] = {}

    def check(
        self, subscriber: NodeId, attribute: str, ids: tuple[str, ...], claim: tuple[int, int]
    ) -> tuple[bool, tuple[str, ...]]:
        """Whether `claim` (number and digest) is right for the registrations `ids`, and which of
        them have to end for that. If it is not, all are unconfirmed until they are registered
        again."""
        if (len(ids), ids_digest(ids)) == claim:
            self._unconfirmed.pop((subscriber, attribute), None)
            return True, ()
        unconfirmed = self._unconfirmed.pop((subscriber, attribute), {})
        confirmed = [id_ for id_ in ids if id_ not in unconfirmed]
        if (len(confirmed), ids_digest(confirmed)) == claim:
            return True, tuple(id_ for id_ in ids if id_ in unconfirmed)
        self._unconfirmed[subscriber, attribute] = dict.fromkeys(ids)
        return False, ()

    @property
    def is_any_unconfirmed(self) -> bool:
        """Whether `registered` has to be told anything."""
        return bool(self._unconfirmed)

    def registered(self, subscriber: NodeId, attribute: str, id_: str) -> None:
        """Note that the subscriber has registered this one again: it is no longer unconfirmed."""
        if unconfirmed := self._unconfirmed.get((subscriber, attribute)):
            unconfirmed.pop(id_, None)

    def clear(self) -> None:
        """Forget all, when the node is no longer the primary."""
        self._unconfirmed.clear()


UNHEARD = "the node was not heard for longer than the lease of its registrations"
DIVIDED = "another cluster led in the place of its subscriptions' owner for a while"


class LeaseSweep(Timer, frozen=True):
    """Look for leases that have lapsed."""


class RegistrationEnds(Machine):
    """Ends registrations of the trees that this node owns. `Unregister` and `Renew` come in their
    turn, from the inbox of the `Registry`."""

    def __init__(self, port: Port, settings: Settings, owner: Owner) -> None:
        super().__init__(port)
        self._owner = owner
        self._trees = owner.trees
        self._hosts = owner.hosts
        self._leases = RegistrationLeases(settings.tree.lease)
        self._claims = ClaimChecks()
        self._sweep = Alarm(port, LeaseSweep())
        self._lapsed: deque[tuple[OwnedTree, tuple[str, ...]]] = deque()
        """Registrations to be ended that were not renewed."""
        self._unregistered: deque[tuple[int, Peer, Unregistered]] = deque()
        """Answers that wait for the log, with the number of their entry."""

    def handlers(self) -> Handlers:
        """Timers and events with their handlers."""
        of_inbox = (Unregister, Renew)
        return {kind: on for kind, on in super().handlers().items() if kind not in of_inbox}

    # --- by their subscriber ---

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
                self._answer_committed(self._owner.committed)
                return
        self.port.send(sender, Unregistered(message.attribute, message.ids))

    def on_committed(self, event: Committed) -> None:
        """More of the log is committed: some answers are due."""
        self._answer_committed(event.next)

    def _answer_committed(self, end: int) -> None:
        while self._unregistered and self._unregistered[0][0] < end:
            _, peer, answer = self._unregistered.popleft()
            self.port.send(peer, answer)

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

    def registered(self, subscriber: NodeId, taken: Iterable[Registration]) -> None:
        """Note that the subscriber has asked for these registrations, perhaps again."""
        if self._claims.is_any_unconfirmed:
            for one in taken:
                self._claims.registered(subscriber, one.attribute, one.id)

    def heard(self, subscriber: NodeId, incarnation: int) -> None:
        """Let the subscriber's leases run for a full term from now on, since it has registered
        something."""
        self._leases.renew(subscriber, incarnation, self.port.now)

    def on_role_changed(self, event: RoleChanged) -> None:
        """A new primary grants a full term to every subscriber."""
        if event.role == "primary":
            self._sweep.within(self._leases.term / 4)
        else:
            self._unregistered.clear()
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
        replaced = self._hosts.replaced(name for name in named if name not in foreign)
        self.port.send(sender, Renewed(message.number, (*refused, *foreign), replaced))

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
        """Return the subscribers of these registrations that are silent. (The others run again, or
        have ended the registrations.)"""
        subscribers = {s.id: s for s in (tree.registrations[id_].subscriber for id_ in ids)}
        is_silent = self._leases.is_silent
        return [p for p in subscribers.values() if is_silent(p.id, self.port.now)]

    # --- events that were not matched ---

    def on_elected(self, event: Elected) -> None:
        """A cluster that was out of sight is led on by the same primary: another one has led in its
        place meanwhile, with whatever it knew of the registrations."""
        if event.forked and event.lost.id == self.port.me.id:
            self._report_divided(self._trees)

    def on_arc_divided(self, event: ArcDivided) -> None:
        """Another node has led this arc as well, out of sight."""
        self._report_divided(name for name in self._trees if event.arc.owns(attribute_key(name)))

    def _report_divided(self, attributes: Iterable[str]) -> None:
        """Report to the subscribers of these trees that they may lack events published where they
        were unknown."""
        concerned: dict[NodeId, tuple[Peer, list[str]]] = {}
        for attribute in attributes:
            registrations = self._trees[attribute].tree.registrations.values()
            for peer in {one.subscriber.id: one.subscriber for one in registrations}.values():
                concerned.setdefault(peer.id, (peer, []))[1].append(attribute)
        for peer, trees in concerned.values():
            self.port.emit(MatchingInterrupted(peer, DIVIDED, tuple(trees)))
