"""The registrations of this node's subscriptions, which of them wait for an answer, and those that
have ended here and not at their owners."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from math import inf
from typing import TypeAlias

from overlay.chord.keys import attribute_key
from overlay.chord.ring.ring import Ring
from overlay.machine import Alarm, NodeId, Peer, Port, Timer
from overlay.upper_tree.batches import in_batches, weigh_text
from overlay.upper_tree.messages import Registration, Unregister, Unregistered
from overlay.upper_tree.subscriber.constants import UNREGISTERED_AT_ONCE

RegistrationKey: TypeAlias = tuple[str, str]
"""(attribute, registration id)."""


class UnregisterDue(Timer, frozen=True):
    """Time to look up the owners of registrations that have ended here, and to ask them to end
    these."""


class EndedRegistrations:
    """Registrations that ended here: asks their owners to end them, until these have answered.

    A program that goes may leave tens of thousands. They stand in the order in which their owners
    are asked, so that none of the methods here looks through all of them for one.
    """

    def __init__(self, port: Port, ring: Ring, retry: float) -> None:
        """`retry`: seconds after which an owner that has not answered is asked again."""
        self._port = port
        self._ring = ring
        self._retry = retry
        self._new: OrderedDict[RegistrationKey, None] = OrderedDict()
        self._asked: OrderedDict[RegistrationKey, float] = OrderedDict()  # when to ask again
        self._unregister = Alarm(port, UnregisterDue())
        self._leaving = False

    def __len__(self) -> int:
        return len(self._new) + len(self._asked)

    def attributes(self) -> dict[str, None]:
        """The trees in which some registration is about to end."""
        keys = (*self._new, *self._asked)
        return dict.fromkeys(attribute for attribute, _ in keys)

    def end(self, keys: Sequence[RegistrationKey]) -> None:
        """End registrations: their owners are told soon, in one message with others that end
        meanwhile."""
        if keys:
            self._new.update(dict.fromkeys(keys))
            self._unregister.within(0.0)

    def leave(self) -> None:
        """Note that the node leaves: it asks an owner only once to end a registration, which
        otherwise ends with its lease."""
        self._leaving = True

    def owner_refused(self, attributes: Collection[str]) -> None:
        """Handle the answer of a node that does not own these trees. If this node leaves, it asks
        no other node."""
        if self._leaving:
            for keys in (self._new, self._asked):
                for key in [key for key in keys if key[0] in attributes]:
                    del keys[key]

    def owner_lost(self) -> None:
        """Handle that some owner may be lost. If this node leaves, it asks none again."""
        if self._leaving:
            self._new.clear()
            self._asked.clear()

    def ask_all_again(self) -> None:
        """Ask the owners of all registrations, because they have changed."""
        self._new.update(dict.fromkeys(self._asked))
        self._asked.clear()
        self._unregister.within(0.0)

    def on_unregister_due(self, timer: UnregisterDue) -> None:
        """Ask the owners of some; the rest follows in the next turns."""
        self._unregister.rang()
        now = self._port.now
        batches: dict[tuple[NodeId, str], tuple[Peer, list[str]]] = {}
        for attribute, id_ in self._take(now):
            owner = self._ring.owner(attribute_key(attribute))
            if owner is None and self._leaving:
                continue
            self._asked[attribute, id_] = now + self._retry
            if owner is None:
                self._ring.find(attribute_key(attribute))
            else:
                group = batches.setdefault((owner.primary.id, attribute), (owner.primary, []))
                group[1].append(id_)
        for (_, attribute), (peer, ids) in batches.items():
            for names in in_batches(ids, weigh_text):
                self._port.send(peer, Unregister(attribute, names))
        next_at = now if self._new else next(iter(self._asked.values()), None)
        if next_at is not None:
            self._unregister.within(next_at - now)

    def _take(self, now: float) -> list[RegistrationKey]:
        """Remove and return at most `UNREGISTERED_AT_ONCE` registrations whose owners are to be
        asked now."""
        taken: list[RegistrationKey] = []
        while self._new and len(taken) < UNREGISTERED_AT_ONCE:
            taken.append(self._new.popitem(last=False)[0])
        while (
            self._asked
            and len(taken) < UNREGISTERED_AT_ONCE
            and next(iter(self._asked.values())) <= now
        ):
            taken.append(self._asked.popitem(last=False)[0])
        return taken

    def on_unregistered(self, sender: Peer, message: Unregistered) -> None:
        """The owner has ended these registrations."""
        for id_ in message.ids:
            self._new.pop((message.attribute, id_), None)
            self._asked.pop((message.attribute, id_), None)


class LocalRegistration:
    """A registration of this node's subscriptions, and how far it is."""

    __slots__ = (
        *("acknowledged", "final", "key", "redirected", "registration", "retry_at", "sends"),
        *("sent_to", "subscription"),
    )

    def __init__(self, subscription: str, registration: Registration, final: bool = False) -> None:
        """`final`: an owner has named its pivot, which is not to be changed again."""
        self.subscription = subscription
        self.registration = registration
        self.key: RegistrationKey = (registration.attribute, registration.id)
        """The key by which owner and hosts know it: its attribute and its id."""
        self.acknowledged = False
        self.sent_to: NodeId = ""  # the owner that it was sent to last (`LocalRegistrations.move`)
        self.sends = 0  # how often it was sent
        self.retry_at = 0.0  # when to send it once more
        self.final = final
        self.redirected = False  # it was sent on at once to an owner that another one named


class LocalRegistrations:
    """All registrations of this node, by key, by subscription, and by owner or reason for which
    they wait."""

    def __init__(self) -> None:
        self.by_key: dict[RegistrationKey, LocalRegistration] = {}
        self._by_tree: dict[str, int] = {}
        """By attribute, how many; none is 0."""
        self._unacknowledged: dict[str, dict[RegistrationKey, LocalRegistration]] = {}
        """By subscription, those that are not acknowledged; none is empty."""
        self._by_subscription: dict[str, dict[RegistrationKey, None]] = {}
        self._ownerless: dict[RegistrationKey, LocalRegistration] = {}
        """The registrations whose owner is looked for."""
        self._unanswered_by: dict[NodeId, int] = {}
        """The number of unanswered registrations, by the node in `sent_to`."""

    @property
    def settled(self) -> bool:
        """Whether all are acknowledged."""
        return not self._unacknowledged

    def trees_with(self, attributes: Iterable[str]) -> int:
        """The number of trees with registrations, if some were in these trees too."""
        new = {name for name in attributes if name not in self._by_tree}
        return len(self._by_tree) + len(new)

    def is_ready(self, subscription: str) -> bool:
        """Whether all registrations of the subscription are acknowledged."""
        return subscription not in self._unacknowledged

    def keys_of(self, subscription: str) -> Collection[RegistrationKey]:
        """The keys of a subscription's registrations, in the order in which they were added."""
        return self._by_subscription.get(subscription, ())

    def unanswered_by(self, owner: NodeId) -> int:
        """Return how many unacknowledged registrations were last sent to this owner."""
        return self._unanswered_by.get(owner, 0)

    def move(self, some: Iterable[LocalRegistration], owner: NodeId) -> None:
        """Note the owner to which these registrations were last sent, or the reason for which they
        wait instead."""
        before: dict[NodeId, int] = {}
        for local in some:
            waiting = self._unacknowledged.get(local.subscription)
            if waiting is not None and waiting.get(local.key) is local:
                before[local.sent_to] = before.get(local.sent_to, 0) + 1
            local.sent_to = owner
        for former, count in before.items():
            self._count(former, -count)
        self._count(owner, sum(before.values()))

    def _count(self, owner: NodeId, more: int) -> None:
        count = self._unanswered_by.get(owner, 0) + more
        if count:
            self._unanswered_by[owner] = count
        else:
            self._unanswered_by.pop(owner, None)

    def unanswered_of(self, subscription: str) -> Collection[LocalRegistration]:
        """Return the unacknowledged registrations of a subscription."""
        return self._unacknowledged.get(subscription, {}).values()

    def unanswered(self) -> Iterator[LocalRegistration]:
        """Yield all unacknowledged registrations, by subscription."""
        for waiting in self._unacknowledged.values():
            yield from waiting.values()

    def add(self, local: LocalRegistration) -> None:
        """Add a registration, or note that one is no longer acknowledged."""
        key = local.key
        waiting = self._unacknowledged.setdefault(local.subscription, {})
        if (former := waiting.get(key)) is not None:
            self._count(former.sent_to, -1)
        local.acknowledged = False
        if key not in self.by_key:
            self._by_tree[key[0]] = self._by_tree.get(key[0], 0) + 1
        self.by_key[key] = local
        self._by_subscription.setdefault(local.subscription, {})[key] = None
        waiting[key] = local
        self._count(local.sent_to, 1)

    def add_new(
        self, subscription: str, new: Sequence[LocalRegistration], waits_for: NodeId
    ) -> None:
        """Add all registrations of a new subscription. `waits_for`: as `move` has it."""
        waiting = {local.key: local for local in new}
        self.by_key.update(waiting)
        self._by_subscription[subscription] = dict.fromkeys(waiting)
        self._unacknowledged[subscription] = waiting
        for local in new:
            local.sent_to = waits_for
            tree = local.key[0]
            self._by_tree[tree] = self._by_tree.get(tree, 0) + 1
        self._count(waits_for, len(new))

    def remove(self, key: RegistrationKey) -> None:
        """Remove one that gives way to another under another pivot."""
        local = self.by_key.pop(key)
        self._gone(key)
        self._ownerless.pop(key, None)
        del self._by_subscription[local.subscription][key]
        self.acknowledge(key, local)

    def end(self, subscription: str) -> list[RegistrationKey]:
        """Remove all registrations of a subscription; returns the keys that there were."""
        for local in self._unacknowledged.pop(subscription, {}).values():
            self._count(local.sent_to, -1)
        keys = self._by_subscription.pop(subscription, ())
        for key in keys:
            self._ownerless.pop(key, None)
        ended = [key for key in keys if self.by_key.pop(key, None) is not None]
        for key in ended:
            self._gone(key)
        return ended

    def _gone(self, key: RegistrationKey) -> None:
        left = self._by_tree.pop(key[0]) - 1
        if left:
            self._by_tree[key[0]] = left

    def acknowledge_all(self, attribute: str, ids: Iterable[str]) -> Collection[str]:
        """Note that nothing is to be waited for any more at these registrations of a tree. Returns
        the subscriptions of those for which that is new."""
        before: dict[NodeId, int] = {}
        touched: dict[str, None] = {}
        for id_ in ids:
            key = (attribute, id_)
            local = self.by_key.get(key)
            if local is None or local.acknowledged:
                continue
            before[local.sent_to] = before.get(local.sent_to, 0) + 1
            self._acknowledged(key, local)
            touched[local.subscription] = None
        for sent_to, count in before.items():
            self._count(sent_to, -count)
        return touched

    def acknowledge(self, key: RegistrationKey, local: LocalRegistration) -> None:
        """Note that nothing is to be waited for at this registration any more."""
        self._count(local.sent_to, -1)
        self._acknowledged(key, local)

    def _acknowledged(self, key: RegistrationKey, local: LocalRegistration) -> None:
        local.acknowledged = True
        waiting = self._unacknowledged[local.subscription]
        del waiting[key]
        if not waiting:
            del self._unacknowledged[local.subscription]

    def await_owner(self, local: LocalRegistration) -> None:
        """Note that the owner of this registration is looked for."""
        self.move((local,), "")
        self._ownerless[local.key] = local

    def take_owned(self, owns: Callable[[str], bool]) -> list[LocalRegistration]:
        """Take out those that waited for an owner of attributes for which `owns` is true, and that
        were not sent elsewhere meanwhile."""
        found = {
            key: local
            for key, local in self._ownerless.items()
            if local.sent_to or owns(local.registration.attribute)
        }
        for key in found:
            del self._ownerless[key]
        return [local for local in found.values() if not local.sent_to]


class OwnerWindow:
    """A node's registrations that one owner has not answered, up to a bound, and those that wait
    because of it."""

    def __init__(self, local: LocalRegistrations, most: float) -> None:
        """`local`: all registrations of the node; `most`: the bound, for each owner."""
        self._local = local
        self._most = most
        self._waiting: dict[NodeId, deque[LocalRegistration]] = {}  # by owner; none is empty
        self.is_bounded = most < inf

    def owners(self) -> list[NodeId]:
        """The owners for whose answers some registrations wait."""
        return list(self._waiting)

    def holds_back(self, one: LocalRegistration, owner: NodeId, leaving: int) -> bool:
        """Whether this registration has to wait, as it does from now on. `leaving`: how many others
        are sent to its owner in this turn."""
        if self._local.unanswered_by(owner) + leaving < self._most:
            return False
        self._waiting.setdefault(owner, deque()).append(one)
        return True

    def take(self, owner: NodeId) -> list[LocalRegistration]:
        """Take out as many as the owner may be sent now."""
        waiting = self._waiting.get(owner)
        if waiting is None:
            return []
        room = self._most - self._local.unanswered_by(owner)
        found: list[LocalRegistration] = []
        while waiting and len(found) < room:
            one = waiting.popleft()
            if self._local.by_key.get(one.key) is one:  # else it has ended
                found.append(one)
        if not waiting:
            del self._waiting[owner]
        return found

    def take_all(self) -> list[LocalRegistration]:
        """Take out all, since owners have changed, perhaps."""
        found = [one for waiting in self._waiting.values() for one in waiting]
        self._waiting.clear()
        return found
