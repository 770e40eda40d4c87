"""Renewing the leases of this node's registrations, and finding out what their owners lack (P1).

Each owner gets one message for all registrations there, every third of a lease. What it does not
confirm is registered again. Once an owner was lost, another cluster leads its arc with whatever it
knew: until that is found out, renewals come more often.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from overlay.bounded import BoundedDict
from overlay.chord.events import ClusterForked
from overlay.chord.keys import attribute_key
from overlay.chord.ring.ring import Ring
from overlay.links.events import LocalStall
from overlay.machine import Alarm, Message, NodeId, Peer, Port, Timer
from overlay.settings import TreeSettings
from overlay.upper_tree.events import HostsReplaced, SubscriptionLapsed
from overlay.upper_tree.messages import Renew, Renewed, RenewRefused, ids_digest
from overlay.upper_tree.subscriber.constants import (
    CONFIRM_FOR,
    CONFIRM_PERIOD,
    DOUBT_SHARE,
    RENEW_WITHIN,
    RENEWALS_KEPT,
    RETRY_PAUSE,
    STALL_SHARE,
    STOOD_STILL,
    UNDER_WAY,
)
from overlay.upper_tree.subscriber.local_registrations import (
    EndedRegistrations,
    LocalRegistration,
    LocalRegistrations,
)

# What a subscriber knows of the leases of its registrations: per tree, when they last ran for
# certain (P1).
#
# A renewal that the owner answers proves that it had the tree's registrations when it came, so
# their leases run for `tree.lease` from the time when the renewal was sent, or longer. A node that
# was paused or cut off for longer cannot know whether they ran on: the tree is *in doubt*, and its
# subscriptions do not count as acknowledged, until a renewal is answered again.


class Renewal:
    """A renewal that was sent to one owner."""

    __slots__ = ("claimed", "sent_at", "unsure")

    def __init__(self, claimed: Iterable[str], unsure: Iterable[str], sent_at: float) -> None:
        self.claimed = tuple(claimed)
        self.unsure = tuple(unsure)
        self.sent_at = sent_at


class Confirmations:
    """The times at which the leases of this node's registrations were last confirmed. Times are the
    Port's seconds."""

    def __init__(self, lease: float) -> None:
        self._term = DOUBT_SHARE * lease
        self._confirmed_at: dict[str, float] = {}
        self._unanswered: dict[str, None] = {}  # trees of the last round
        self._sent: BoundedDict[int, Renewal] = BoundedDict(RENEWALS_KEPT)
        self._number = 0

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Trees for which the last round of renewals has no answer."""
        return tuple(self._unanswered)

    def unconfirmed_for(self, attribute: str, now: float) -> float:
        """Seconds since the tree's leases ran for certain; 0 where nothing was acknowledged yet."""
        return now - self._confirmed_at.get(attribute, now)

    def is_doubtful(self, attribute: str, now: float) -> bool:
        """Whether the tree's leases may have ended."""
        return self.unconfirmed_for(attribute, now) > self._term

    def doubtful_since(self, now: float) -> float | None:
        """Return when the leases of a doubtful tree were last certain to run; None: no tree is
        doubtful."""
        earliest = min(self._confirmed_at.values(), default=now)
        return earliest if now - earliest > self._term else None

    def begin_round(self, attributes: Collection[str]) -> None:
        """Note that renewals are sent for these trees, which are all that have registrations."""
        for attribute in [name for name in self._confirmed_at if name not in attributes]:
            self.forget(attribute)
        self._unanswered = dict.fromkeys(self._confirmed_at)

    def sent(self, claimed: Iterable[str], unsure: Iterable[str], now: float) -> int:
        """A renewal leaves for one owner. Returns the number that its answer names."""
        self._number += 1
        self._sent[self._number] = Renewal(claimed, unsure, now)
        return self._number

    def answered(self, number: int, unconfirmed: Collection[str]) -> Renewal | None:
        """An owner has answered a renewal: all that it claimed is there, except in the trees
        `unconfirmed`. Where nothing was claimed, leases that ran go on. Returns the renewal, None
        if it is not known (any more)."""
        renewal = self._sent.pop(number, None)
        if renewal is None:
            return None
        at = renewal.sent_at
        ran_on = [name for name in renewal.unsure if not self.is_doubtful(name, at)]
        for attribute in (*renewal.claimed, *ran_on):
            if attribute in self._confirmed_at and attribute not in unconfirmed:
                self._confirmed_at[attribute] = max(at, self._confirmed_at[attribute])
                self._unanswered.pop(attribute, None)
        return renewal

    def registered(self, attribute: str, now: float) -> None:
        """Note that the owner has acknowledged a registration in this tree."""
        self._confirmed_at.setdefault(attribute, now)

    def forget(self, attribute: str) -> None:
        """Forget a tree that has no registrations, or whose registrations are all made again."""
        self._confirmed_at.pop(attribute, None)
        self._unanswered.pop(attribute, None)


class RenewDue(Timer, frozen=True):
    """Time to renew the leases of all registrations."""


class AnswerDue(Timer, frozen=True):
    """Look for renewals without an answer."""


class RegistrationSender(Protocol):
    """The part of the subscriber that registers."""

    def send(self, local: Iterable[LocalRegistration]) -> None:
        """Send these registrations to their owners, (again)."""


class Renewals:
    """The part of the `Registrar` that renews. Times are the Port's seconds."""

    def __init__(
        self,
        port: Port,
        settings: TreeSettings,
        incarnation: int,
        ring: Ring,
        local: LocalRegistrations,
        ended: EndedRegistrations,
        sender: RegistrationSender,
    ) -> None:
        """`ended`: what owners may still have; `sender` registers again."""
        self.port = port
        self._settings = settings
        self._incarnation = incarnation
        self._ring = ring
        self._local = local
        self._ended = ended
        self._sender = sender
        self._renew = Alarm(port, RenewDue())
        self._answers = Alarm(port, AnswerDue())
        self._confirmations = Confirmations(settings.lease)
        self._renewed_at = float("-inf")
        self._confirm_until = 0.0  # an owner was lost: renew often until then
        self._unasked: dict[str, None] = {}
        """Trees whose owners are to say if hosts were lost while this node stood still."""
        self._stood_since = self._woke_at = 0.0  # from when deliveries may have been held, and to

    def start(self) -> None:
        """Begin to renew, every third of a lease."""
        self._renew.within(self._settings.lease / 3)

    def is_doubtful(self, attribute: str) -> bool:
        """Whether leases in this tree may have ended, as far as is known here."""
        return self._confirmations.is_doubtful(attribute, self.port.now)

    def unconfirmed_since(self) -> float | None:
        """Return the last time at which all leases were certain to run, or since when hosts may
        have been lost while this node stalled, whichever is earlier; None: all leases run, and no
        host was lost."""
        found = [self._confirmations.doubtful_since(self.port.now)]
        found += [self._stood_since] if self._unasked else []
        return min([since for since in found if since is not None], default=None)

    def registered(self, attribute: str) -> None:
        """Note that an owner has acknowledged registrations in this tree."""
        self._confirmations.registered(attribute, self.port.now)

    def refused(self, attributes: Iterable[str]) -> None:
        """Look up the owners of these trees, in which registrations are acknowledged and which
        another node owns, so that the next renewal goes there."""
        attributes = list(attributes)
        for attribute in attributes:
            self._ring.find(attribute_key(attribute))
        if attributes and self.port.now < self._confirm_until:
            self._renew.within(RETRY_PAUSE)

    def lost(self, messages: Iterable[Message]) -> None:
        """Repeat the renewals among these messages, which may not have arrived."""
        if any(isinstance(message, Renew) for message in messages):
            self._answers.within(RETRY_PAUSE)

    def on_renew_due(self, timer: RenewDue) -> None:
        """Send each owner one message for all registrations there. It claims nothing of trees in
        which a registration is still on its way or about to end: the owner may have it already, or
        still."""
        self._renew.rang()
        self._renewed_at = now = self.port.now
        trees: dict[str, list[str]] = {}
        unsure = self._ended.attributes()
        for (attribute, id_), local in self._local.by_key.items():
            trees.setdefault(attribute, []).append(id_)
            if not local.acknowledged:
                unsure[attribute] = None
        # Nothing can be claimed of these:
        self._repeat([name for name in unsure if self._confirmations.is_doubtful(name, now)])
        self._confirmations.begin_round(trees)
        owners: dict[NodeId, tuple[Peer, list[tuple[str, int, int]], list[str]]] = {}
        for attribute, ids in trees.items():
            owner = self._ring.owner(attribute_key(attribute))
            if owner is None:
                self._ring.find(attribute_key(attribute))
            else:
                _, claims, doubtful = owners.setdefault(owner.primary.id, (owner.primary, [], []))
                if attribute in unsure:
                    doubtful.append(attribute)
                else:
                    claims.append((attribute, len(ids), ids_digest(ids)))
        for peer, claims, doubtful in owners.values():
            number = self._confirmations.sent([name for name, _, _ in claims], doubtful, now)
            self.port.send(peer, Renew(self._incarnation, tuple(claims), tuple(doubtful), number))
        if trees:
            self._answers.within(self._settings.retry)
        often = now < self._confirm_until
        if often:  # trees of which nothing is claimed: register again
            unclaimed = [
                p
                for (name, _), p in self._local.by_key.items()
                if name in unsure and p.acknowledged
            ]
            for local in unclaimed:
                local.final = True
            self._sender.send(unclaimed)
        self._renew.within(CONFIRM_PERIOD if often else self._settings.lease / 3)
        for attribute in [name for name in self._unasked if name not in trees]:
            del self._unasked[attribute]
        if self._unasked:
            self._renew.within(UNDER_WAY)

    def on_renewed(self, sender: Peer, message: Renewed) -> None:
        """An owner has renewed leases: note which registrations it has, and which it has not
        confirmed."""
        renewal = self._confirmations.answered(message.number, message.unconfirmed)
        if self._unasked and renewal is not None and renewal.sent_at >= self._woke_at:
            self._hosts_known(renewal, message)

    def _hosts_known(self, renewal: Renewal, message: Renewed) -> None:
        """Take an owner's answer whether its trees have lost hosts since this node stood still. The
        owner may not know of hosts that ended just now, so it is asked until `UNDER_WAY` later."""
        seconds = self.port.now - self._stood_since
        lost = [name for name, ago in message.replaced if name in self._unasked and ago <= seconds]
        is_final = renewal.sent_at >= self._woke_at + UNDER_WAY
        asked = [*renewal.claimed, *renewal.unsure] if is_final else []
        for name in (*lost, *(name for name in asked if name not in message.unconfirmed)):
            self._unasked.pop(name, None)
        if lost:
            self.port.emit(HostsReplaced(tuple(lost), seconds))

    def on_answer_due(self, timer: AnswerDue) -> None:
        """Some renewal may be lost, or its owner: renew again, after a fresh lookup."""
        self._answers.rang()
        unanswered = self._confirmations.unanswered
        for attribute in unanswered:
            self._ring.find(attribute_key(attribute))
        if unanswered:
            self._renew.within(RETRY_PAUSE)  # a lookup or a handshake takes about so long

    def on_local_stall(self, event: LocalStall) -> None:
        """Confirm the registrations at once after a stall, because owners may have ended them,
        without waiting for the next renewal. Hosts that held events for this node may have ended as
        well."""
        if event.seconds >= STOOD_STILL:
            since = self.port.now - event.seconds - UNDER_WAY
            self._stood_since = min(self._stood_since, since) if self._unasked else since
            self._woke_at = self.port.now
            self._unasked.update(dict.fromkeys(name for name, _ in self._local.by_key))
            self._renew.within(UNDER_WAY)
        stood_still = event.seconds >= self._settings.lease / STALL_SHARE
        if stood_still and self._renewed_at < self.port.now:
            self._renew.within(0.0)

    def on_cluster_forked(self, event: ClusterForked) -> None:
        """Renew soon to find missing registrations, because another cluster now leads in place of
        an owner."""
        if any(event.cluster.owns(attribute_key(attribute)) for attribute, _ in self._local.by_key):
            self.confirm_soon()

    def confirm_soon(self) -> None:
        """Renew soon, and often for a while, since an owner was lost: its successor may lack
        registrations."""
        self._confirm_until = self.port.now + CONFIRM_FOR
        self._renew.within(self.port.rng.random() * RENEW_WITHIN)

    def on_renew_refused(self, sender: Peer, message: RenewRefused) -> None:
        """Register again in the trees for which an owner has refused a renewal."""
        self._repeat(message.trees)

    def _repeat(self, trees: Sequence[str]) -> None:
        """Register again all registrations in these trees."""
        if not trees:
            return
        by_tree: dict[str, list[LocalRegistration]] = {name: [] for name in trees}
        for (attribute, _), local in self._local.by_key.items():
            if attribute in by_tree:
                by_tree[attribute].append(local)
        self._sender.send([one for item in by_tree.items() for one in self._lapsed(*item)])

    def _lapsed(self, attribute: str, mine: list[LocalRegistration]) -> list[LocalRegistration]:
        """The registrations in this tree are no longer acknowledged: those to send again."""
        for local in mine:
            self._local.add(local)
        if mine:
            self.port.count("registrations_repeated", len(mine))
            seconds = self._confirmations.unconfirmed_for(attribute, self.port.now)
            subscriptions = tuple(dict.fromkeys(local.subscription for local in mine))
            self.port.emit(SubscriptionLapsed(attribute, subscriptions, seconds))
            self._ring.find(attribute_key(attribute))
        self._confirmations.forget(attribute)
        return mine
