"""The subscriber's side: registers each conjunction with an owner (C8, C9).

*pivot*: a conjunction is registered in one tree, that of the null-rejecting attribute with the
least traffic (pivots.py), as far as is known here; an owner that knows better says so, once. A
conjunction that has no such attribute goes to the reserved tree `$event`, which every event visits.

*counting*: each null-rejecting constraint of the conjunction is registered alone in its attribute's
tree, and the receiving node counts (receiver.py).

A subscription is ready (SUBACK) when all its registrations are acknowledged. Whatever is not
answered is sent again, to the owner of the attribute by then; the owner knows a registration by
its id, so repeating is harmless.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from matching import EVERYTHING, Conjunction, Interval, Predicate
from overlay.bounded import BoundedDict
from overlay.chord.events import OwnerFound, RingLeft
from overlay.chord.keys import attribute_key
from overlay.chord.ring.ring import Ring
from overlay.incidents import Alarmed
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
    handlers_of,
)
from overlay.settings import Settings
from overlay.upper_tree.batches import in_batches, weigh_registration
from overlay.upper_tree.compiled_selectors import compiled, keep
from overlay.upper_tree.events import (
    OwnerRefused,
    RegistrationsCame,
    SubscriptionsReady,
)
from overlay.upper_tree.messages import (
    EVENT_TREE,
    BetterPivots,
    ComeAgain,
    Register,
    Registered,
    Registration,
)
from overlay.upper_tree.pivots import choose_pivot
from overlay.upper_tree.subscriber.constants import (
    LEAF_SENT_AT_ONCE,
    LEAF_WINDOW,
    POPULARITY_MOST,
    PUT_OFF_MOST,
    PUT_OFF_SAID_EVERY,
    REGISTRATIONS_LOOKED_AT,
    RETRY_PAUSE,
    SENT_AT_ONCE,
)
from overlay.upper_tree.subscriber.local_registrations import (
    EndedRegistrations,
    LocalRegistration,
    LocalRegistrations,
    OwnerWindow,
    RegistrationKey,
)
from overlay.upper_tree.subscriber.renewals import Renewals

WAITING = "-"
"""The mark in place of a node id of what is to be sent in this turn, or in a later one, since a
turn sends no more."""


PUT_OFF = "~"
"""… its owner has said when it may be sent again."""


class RegisterDue(Timer, frozen=True):
    """Send more of the registrations that wait; look for those without an answer."""


class Registrar(Machine):
    """Registers the subscriptions of this node and renews their leases."""

    def __init__(
        self,
        port: Port,
        settings: Settings,
        incarnation: int,
        ring: Ring,
        is_leaf: bool = False,
        token: bytes = b"",
    ) -> None:
        """`is_leaf`: this node is a leaf, from which owners take fewer registrations at a time;
        `token`: the delivery token that its registrations carry (delivery_tokens.py)."""
        super().__init__(port)
        self._token = token
        self._at_once = LEAF_SENT_AT_ONCE if is_leaf else SENT_AT_ONCE
        self._put_off_said: dict[tuple[NodeId, str], float] = {}
        """When it was said last that a node has put off what was asked of it."""
        self.settings = settings.tree
        self.incarnation = incarnation
        self.ring = ring
        self._local = LocalRegistrations()
        self._window = OwnerWindow(self._local, LEAF_WINDOW if is_leaf else math.inf)
        self._waiting: deque[LocalRegistration] = deque()
        """The registrations to be sent next: these are `WAITING`, or have ended."""
        self._retry = Alarm(port, RegisterDue())
        self._refused_at = -math.inf
        self._refused: dict[str, NodeId] = {}
        """Attributes that were refused in the turn of that time, and who owned them then."""
        self._look_at = math.inf  # when to look for those without an answer
        self._ended = EndedRegistrations(port, ring, self.settings.retry)
        self._renewals = Renewals(
            port, self.settings, incarnation, ring, self._local, self._ended, self
        )
        self.popularity: BoundedDict[str, int] = BoundedDict(POPULARITY_MOST)
        """The popularity of attributes, as owners reported it (pivots.py)."""

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return handlers_of(self, self._renewals, self._ended)

    def start(self) -> None:
        """Begin to renew the leases of all registrations."""
        self._renewals.start()

    # --- asked from above ---

    @property
    def registrations(self) -> Mapping[RegistrationKey, LocalRegistration]:
        """All registrations of this node's subscriptions."""
        return self._local.by_key

    def trees_with(self, planned: Iterable[LocalRegistration]) -> int:
        """The number of trees in which this node has registrations, together with these."""
        return self._local.trees_with(one.registration.attribute for one in planned)

    def plan(
        self, subscription: str, predicate: Predicate, level: int = 0
    ) -> list[LocalRegistration]:
        """The registrations that a subscription with this latency level needs."""
        me, token = self.port.me, self._token
        planned: list[LocalRegistration] = []
        for number, conjunction in enumerate(predicate.conjunctions):
            id_ = f"{subscription}/{number}"
            for attribute, text, interval in self._places(predicate, conjunction):
                made = Registration(id_, attribute, me, text, interval, level, None, token)
                planned.append(LocalRegistration(subscription, made))
        return planned

    def trees_of(self, subscription: str, conjunctions: int) -> tuple[tuple[str, ...], ...]:
        """For each of its conjunctions the trees in which it is registered, which an owner may have
        changed."""
        keys = self._local.keys_of(subscription)
        if conjunctions == 1 and len(keys) == 1:  # mostly
            return tuple([(attribute,) for attribute, _ in keys])
        found: dict[str, list[str]] = {}
        for attribute, id_ in keys:
            found.setdefault(id_, []).append(attribute)
        return tuple(tuple(found.get(f"{subscription}/{n}", ())) for n in range(conjunctions))

    def subscribe(self, subscription: str, new: list[LocalRegistration]) -> None:
        """Register the planned registrations. Those of one turn are sent together, in one message
        to each owner. `SubscriptionsReady` follows, in this turn if there are none, since nothing
        can match."""
        if not new:
            self.port.emit(SubscriptionsReady((subscription,)))
            return
        if not self._waiting:
            self.port.emit(RegistrationsCame())
        self._local.add_new(subscription, new, WAITING)
        self._waiting += new

    def on_registrations_came(self, event: RegistrationsCame) -> None:
        """Send the registrations planned in this turn."""
        self._send_some()

    def _places(
        self, predicate: Predicate, conjunction: Conjunction
    ) -> Sequence[tuple[str, str, Interval]]:
        """Return where to register a conjunction of a predicate: trees, each with the text to match
        there, and the interval."""
        if self.settings.routing == "counting" and conjunction.constraints:
            return [(name, one.text, one.hull) for name, one in conjunction.constraints.items()]
        whole = predicate
        if len(predicate.conjunctions) > 1:
            whole = Predicate.of(conjunction)
            keep(whole)
        pivots = conjunction.pivots()
        if not pivots:
            return ((EVENT_TREE, whole.text, EVERYTHING),)
        attribute, interval = choose_pivot(pivots, self.popularity)
        return ((attribute, whole.text, interval),)

    def unsubscribe(self, subscription: str) -> None:
        """End all registrations of a subscription: their owners hear it in a moment, in one message
        with others that end meanwhile."""
        self._ended.end(self._local.end(subscription))
        self._unpark(self._window.owners())

    def leave(self) -> None:
        """Note that the node leaves: it asks an owner only once to end a registration, which
        otherwise ends with its lease."""
        self._ended.leave()

    @property
    def settled(self) -> bool:
        """Whether no registration or end of one waits for an answer."""
        return not self._ended and self._local.settled

    def is_ready(self, subscription: str) -> bool:
        """Whether all registrations of the subscription are acknowledged."""
        return self._local.is_ready(subscription)

    def is_in_doubt(self, subscription: str) -> bool:
        """Whether leases of some of its registrations may have ended, as far as is known here."""
        return any(
            self._renewals.is_doubtful(attribute)
            for attribute, _ in self._local.keys_of(subscription)
        )

    def unconfirmed_since(self) -> float | None:
        """Since when (Port's seconds) leases of some registrations are not known to run, None if
        all are."""
        return self._renewals.unconfirmed_since()

    # --- registering ---

    def send(self, registrations: Iterable[LocalRegistration]) -> None:
        """Send registrations to the owners that are known; look for the others. What a turn does
        not send follows in the next."""
        is_first = not self._waiting
        for one in registrations:
            self._wait(one)
        if is_first:
            self._send_some()

    def _wait(self, one: LocalRegistration) -> None:
        """Queue a registration behind those that wait to be sent."""
        if one.sent_to != WAITING:
            self._local.move((one,), WAITING)
            self._waiting.append(one)

    def _send_some(self) -> None:
        """Send as many of those that wait as a turn may."""
        batches: dict[tuple[NodeId, bool], tuple[Peer, list[LocalRegistration]]] = {}
        owners: dict[str, Peer | None] = {}
        taken: dict[NodeId, int] = {}
        sent = looked = 0
        while self._waiting and sent < self._at_once and looked < REGISTRATIONS_LOOKED_AT:
            looked += 1
            one = self._waiting.popleft()
            attribute = one.registration.attribute
            if self.registrations.get(one.key) is not one:
                continue  # it has ended
            if attribute not in owners:
                owners[attribute] = self._find_owner(attribute)
            owner = owners[attribute]
            if owner is not None and self._window.is_bounded:
                if self._window.holds_back(one, owner.id, taken.get(owner.id, 0)):
                    continue
                taken[owner.id] = taken.get(owner.id, 0) + 1
            sent += 1
            one.retry_at = self.port.now + self.settings.retry
            if owner is None:
                self._local.await_owner(one)
            else:
                one.sends += 1
                batches.setdefault((owner.id, one.final), (owner, []))[1].append(one)
        for (_, final), (peer, batch) in batches.items():
            self._local.move(batch, peer.id)
            for some in in_batches((p.registration for p in batch), weigh_registration):
                self.port.send(peer, Register(self.incarnation, some, final))
        if sent:
            self._look_within(self.settings.retry)
        if self._waiting:
            self._retry.within(0.0)

    def _unpark(self, owners: Iterable[NodeId]) -> None:
        """Send registrations that waited for answers of these owners, as far as their windows have
        room."""
        for owner in owners:
            if room := self._window.take(owner):
                self._waiting += room
                self._retry.within(0.0)

    def _find_owner(self, attribute: str) -> Peer | None:
        """Return the primary of the cluster that owns the attribute; None if it is not known, and
        then a lookup begins."""
        key = attribute_key(attribute)
        owner = self.ring.owner(key)
        if owner is None:
            self.ring.find(key)
        return None if owner is None else owner.primary

    def _look_within(self, delay: float) -> None:
        """Look for unanswered registrations in `delay` seconds, or earlier."""
        self._look_at = min(self._look_at, self.port.now + delay)
        self._retry.within(delay)

    def on_owner_found(self, event: OwnerFound) -> None:
        """Send the registrations that waited for this owner."""
        owns = event.cluster.owns
        self.send(self._local.take_owned(lambda attribute: owns(attribute_key(attribute))))

    def on_registered(self, sender: Peer, message: Registered) -> None:
        """An owner has acknowledged registrations; their subscriptions may be complete."""
        if any((message.attribute, id_) in self.registrations for id_ in message.ids):
            self._renewals.registered(message.attribute)
        touched = self._local.acknowledge_all(message.attribute, message.ids)
        self._unpark((sender.id,))
        ready = tuple([one for one in touched if self.is_ready(one)])
        if ready:
            self.port.emit(SubscriptionsReady(ready))

    def on_come_again(self, sender: Peer, message: ComeAgain) -> None:
        """Handle that a node has put off requests of this one. Registrations are sent again after
        the time that it names, and the delay is reported. (Other requests are repeated by their
        senders.)"""
        seconds = min(message.seconds, PUT_OFF_MOST)
        mine = (self.registrations.get(key) for key in message.registrations)
        put_off = [one for one in mine if one is not None and one.sent_to == sender.id]
        for local in put_off:
            if not local.acknowledged:
                self._local.move((local,), PUT_OFF)
                local.retry_at = self.port.now + seconds * (1.0 + self.port.rng.random() / 4)
        if put_off:
            self._look_within(seconds)
            self._unpark((sender.id,))
        if message.what == "Register":
            self.port.count("registrations_put_off", len(put_off))
        else:
            self.port.count("questions_put_off")
        self._say_put_off(sender.id, message)

    def _say_put_off(self, node: NodeId, message: ComeAgain) -> None:
        """Report a delay as an incident, at most once in `PUT_OFF_SAID_EVERY` seconds for each node
        and kind of request."""
        key, now = (node, message.what), self.port.now
        said = {k: at for k, at in self._put_off_said.items() if now - at < PUT_OFF_SAID_EVERY}
        if key not in said:
            said[key] = now
            what = "registrations" if message.what == "Register" else f"{message.what} questions"
            text = f"{what}, by {node}: {message.reason or 'a leaf asks for too much'}"
            self.port.emit(Alarmed("put off", text))
        self._put_off_said = said

    def progress(self, subscription: str) -> tuple[int, int]:
        """Return how many registrations of a subscription are unacknowledged, and how many of these
        wait because their owner at present accepts no more from this node."""
        unanswered = self._local.unanswered_of(subscription)
        held = sum(one.sent_to in (PUT_OFF, WAITING) for one in unanswered)
        return len(unanswered), held if self._window.is_bounded else 0

    def on_better_pivots(self, sender: Peer, message: BetterPivots) -> None:
        """The owner knows attributes with less traffic: register there instead.

        Raises ProtocolError if a conjunction has no such pivot."""
        for name, count in message.popularity:
            self.popularity[name] = count
        moved: list[LocalRegistration] = []
        ended: list[RegistrationKey] = []
        for id_, attribute, better in message.registrations:
            local = self.registrations.get((attribute, id_))
            if local is None or local.acknowledged or local.final:
                continue
            old = local.registration
            (conjunction,) = compiled(old.selector).conjunctions
            interval = dict(conjunction.pivots()).get(better)
            if interval is None:
                raise ProtocolError("a pivot that the conjunction has not")
            new = msgspec.structs.replace(old, attribute=better, interval=interval)
            moved.append(LocalRegistration(local.subscription, new, final=True))
            self._local.add(moved[-1])
            self._local.remove((attribute, id_))
            if local.sends > 1:  # an earlier or later attempt may have been taken
                ended.append((attribute, id_))
        self.send(moved)
        self._ended.end(ended)

    def on_owner_refused(self, event: OwnerRefused) -> None:
        """Ask another owner, or the same one a little later."""
        refused = self._newly_refused(event.attributes)
        if not refused:
            return
        at_once = []
        renewed: dict[str, None] = {}
        for (attribute, _), local in self.registrations.items():
            if attribute not in refused:
                continue
            if local.acknowledged:
                renewed[attribute] = None
            else:
                local.retry_at = self.port.now + RETRY_PAUSE
                owner = refused[attribute]
                if owner not in ("", local.sent_to) and not local.redirected:
                    local.redirected = True
                    at_once.append(local)
        self._waiting += self._window.take_all()
        self._look_within(RETRY_PAUSE)
        self.send(at_once)
        self._renewals.refused(renewed)
        self._ended.owner_refused(event.attributes)

    def _newly_refused(self, attributes: Iterable[str]) -> dict[str, NodeId]:
        """Return those of these trees that were not yet refused in this turn under the same owner,
        each with its owner ("": unknown). Many registrations get many refusals together that state
        the same."""
        if self._refused_at != self.port.now:
            self._refused_at, self._refused = self.port.now, {}
        owners = {name: self.ring.owner(attribute_key(name)) for name in attributes}
        found = {name: "" if one is None else one.primary.id for name, one in owners.items()}
        new = {name: owner for name, owner in found.items() if self._refused.get(name) != owner}
        self._refused |= new
        return new

    def on_link_down(self, event: LinkDown) -> None:
        """Send registrations that a lost owner has not acknowledged to the next owner."""
        for local in self._local.unanswered():
            if local.sent_to == event.peer.id:
                local.retry_at = self.port.now + RETRY_PAUSE
                self._look_within(RETRY_PAUSE)
        self._waiting += self._window.take_all()
        self._ended.owner_lost()
        self._renewals.lost(event.lost)

    def on_register_due(self, timer: RegisterDue) -> None:
        """Send more of the waiting registrations. Repeat, after a fresh lookup, those that have
        waited long enough for an answer."""
        self._retry.rang()
        if self._look_at <= self.port.now:
            self._look_at = math.inf
            self._look_for_unanswered()
        self._send_some()
        if self._look_at < math.inf:
            self._look_within(self._look_at - self.port.now)

    def _look_for_unanswered(self) -> None:
        now = self.port.now
        sent = [local for local in self._local.unanswered() if local.sent_to != WAITING]
        due = [local for local in sent if local.retry_at <= now]
        for local in due:
            local.redirected = False
            self._wait(local)
        for attribute in dict.fromkeys(local.registration.attribute for local in due):
            self.ring.find(attribute_key(attribute))
        later = [local.retry_at for local in sent if local.retry_at > now]
        if later:
            self._look_within(min(later) - now)
        self._unpark(self._window.owners())
        if self._window.owners():
            self._look_within(self.settings.retry)

    # --- another ring ---

    def on_ring_left(self, event: RingLeft) -> None:
        """The owners of the new ring should have what those of the former one had: find out
        soon."""
        self._renewals.confirm_soon()
        for local in self.registrations.values():
            local.retry_at = self.port.now
        self._ended.ask_all_again()
        self._look_within(0.0)
