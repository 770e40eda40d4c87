"""Subscriptions of local programs (overlay/client.py). What they publish is admitted by
../publisher/publications.py.

A subscription belongs to the client that made it and ends with it. Questions about the overlay are
answered by inspection.py, those about one event by explanations.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby, islice

from msgspec.structs import replace

from matching import SelectorError, compile_selector
from overlay.bounded import BoundedDict
from overlay.client import (
    ENDED,
    GAP,
    Attributes,
    Delivered,
    Delivery,
    Done,
    Draft,
    Ended,
    EndSubscription,
    Event,
    Events,
    Failed,
    Gather,
    GetAttributes,
    GetEvents,
    GetSubscriptions,
    Lapsed,
    ResumeSession,
    SessionResumed,
    Subscribe,
    Subscribed,
    Subscriptions,
    Unsubscribe,
)
from overlay.command_faults import refused_selector
from overlay.incidents import FAULT, contain
from overlay.info import SubscriptionInfo
from overlay.lower_random.policies import POLICY, Policies, PolicyChanged
from overlay.machine import Alarm, Handlers, Machine, Port, Timer
from overlay.operator_commands import GetSchemas, Schemas
from overlay.settings import Settings
from overlay.upper_tree.batches import weigh_event
from overlay.upper_tree.clients.constants import (
    ENDED_AT_ONCE,
    ENDED_MOST,
    EVENTS_BYTES,
    MAX_SUBSCRIPTIONS,
)
from overlay.upper_tree.clients.gap_reports import GapReports
from overlay.upper_tree.clients.low_water import LocalSubscription, LowWater
from overlay.upper_tree.event_history import EventHistory
from overlay.upper_tree.events import (
    SubscriptionLapsed,
    SubscriptionsCame,
    SubscriptionsReady,
)
from overlay.upper_tree.messages import DeliveriesGivenUp
from overlay.upper_tree.publisher.admission import schemas_of
from overlay.upper_tree.publisher.publications import refuse_leaving
from overlay.upper_tree.subscriber.receiver import Added, Arrived, Receiver
from overlay.upper_tree.subscriber.registrar import Registrar


class EndDue(Timer, frozen=True):
    """Time to end further subscriptions of clients that have closed, a few per turn."""


class LocalClients(Machine):
    """Subscriptions of this node's clients."""

    def __init__(
        self,
        port: Port,
        incarnation: int,
        registrar: Registrar,
        receiver: Receiver,
        history: EventHistory,
        policies: Policies,
        settings: Settings,
        wall: Callable[[], float],
    ) -> None:
        """`wall`: seconds since 1970."""
        super().__init__(port)
        self._policies = policies
        self.incarnation = incarnation
        self.registrar = registrar
        self.receiver = receiver
        self.history = history
        self.subscriptions: dict[str, LocalSubscription] = {}
        self.ended: BoundedDict[str, LocalSubscription] = BoundedDict(ENDED_MOST)
        """The last that have ended, by id, for `canopy why`."""
        self._new: list[tuple[int, Subscribe, bool]] = []
        """The subscriptions that this turn has brought, by client, and whether it gathers."""
        self._by_client: dict[int, dict[str, None]] = {}  # ids of its subscriptions
        self._ending: deque[LocalSubscription] = deque()  # of clients that have closed
        self._end_more = Alarm(port, EndDue())
        self.gatherers: dict[int, None] = {}
        self._low_water = LowWater(port, settings, wall, registrar.unconfirmed_since)
        self._gaps = GapReports(port, self.subscriptions, self._low_water, wall)
        self.numbered = 0
        """The number of subscriptions that this node's process has made."""
        self._leaving = False

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {**super().handlers(), **self._gaps.handlers(), **self._low_water.handlers()}

    def commands(self) -> dict[type, Callable[..., None]]:
        """Commands with the method that carries each out."""
        return {
            Subscribe: self.subscribe,
            Gather: self.gather,
            Unsubscribe: self.unsubscribe,
            ResumeSession: self.resume_session,
            EndSubscription: self.end_subscription,
            GetAttributes: self.get_attributes,
            GetEvents: self.get_events,
            GetSchemas: self.get_schemas,
            GetSubscriptions: self.get_subscriptions,
        }

    @property
    def missed(self) -> Sequence[DeliveriesGivenUp]:
        """The last reports of deliveries that other nodes gave up, for `canopy why`."""
        return self._gaps.missed

    # --- subscriptions ---

    def subscribe(self, client: int, command: Subscribe) -> None:
        """Answered by `Subscribed` when all its registrations are acknowledged. What a turn brings
        is taken together, at its end."""
        if self._leaving:
            refuse_leaving(self.port, client, command.request)
            return
        if not self._new:
            self.port.emit(SubscriptionsCame())
        self._new.append((client, command, client in self.gatherers))

    def on_subscriptions_came(self, event: SubscriptionsCame) -> None:
        """Subscribe, each as far as it can be; those of one client are put into the index
        together."""
        new, self._new = self._new, []
        mine = [one for each in new if (one := self._planned(*each)) is not None]
        for _, some in groupby(mine, key=lambda one: (one.client, one.gathers)):
            self._show_safely(list(some))

    def _show_safely(self, together: Sequence[LocalSubscription]) -> None:
        """Begin to show events for these subscriptions of one client, except for one that causes a
        fault in the index."""
        try:
            self._show(together)
        except Exception as error:  # a program would bring it to the next node
            if len(together) > 1:
                for mine in together:
                    self._show_safely((mine,))
                return
            (mine,) = together
            self._remove(mine)
            self._fault(mine.client, mine.request, error)

    def _fault(self, client: int, request: int, error: Exception) -> None:
        contain(self.port, "Subscribe", error)
        self.port.reply(client, Failed(request, "fault", f"Subscribe: {FAULT}"))

    def _planned(self, client: int, command: Subscribe, gathers: bool) -> LocalSubscription | None:
        """A new subscription whose registrations are on their way; None: the client hears why there
        is none."""
        if len(self.subscriptions) >= MAX_SUBSCRIPTIONS:
            reason = f"this node has {MAX_SUBSCRIPTIONS} subscriptions; use another node"
            self.port.reply(client, Failed(command.request, "refused", reason))
            return None
        try:
            predicate = compile_selector(command.selector)
            if denial := self._policies.denies_subscription(command.selector):
                self.port.count("policy_refused")
                self.port.reply(client, Failed(command.request, POLICY, denial))
                return None
            id_ = f"{self.port.me.id}.{self.incarnation}.{self.numbered + 1}"
            registrations = self.registrar.plan(id_, predicate, command.latency_level)
        except SelectorError as error:
            self.port.reply(client, Failed(command.request, *refused_selector(error)))
            return None
        except Exception as error:
            self._fault(client, command.request, error)
            return None
        if self._policies.is_bounded and (
            quota := self._policies.over_quota(
                len(self.registrar.registrations) + len(registrations),
                self.registrar.trees_with(registrations),
            )
        ):
            self.port.count("quota_refused", len(registrations))
            self.port.reply(client, Failed(command.request, *quota))
            return None
        self.numbered += 1  # of a refused one the next has the number: the trace has no gaps
        mine = LocalSubscription(id_, client, command.request, command.name, predicate, gathers)
        mine.level, mine.marks, mine.since = command.latency_level, command.marks, command.since
        self.subscriptions[id_] = mine
        self._by_client.setdefault(client, {})[id_] = None
        self.registrar.subscribe(id_, registrations)
        mine.trees = self.registrar.trees_of(id_, len(predicate.conjunctions))
        return mine

    def _show(self, together: Sequence[LocalSubscription]) -> None:
        """Show events for these subscriptions of one client from now on."""
        gathered = together[0].client if together[0].gathers else None
        added: list[Added] = []
        for mine in together:
            trees = {f"{mine.id}/{number}": len(one) for number, one in enumerate(mine.trees)}
            added.append(Added(mine.id, mine.predicate, trees, mine.pivots))
        numbers = self.receiver.add_many(added, gathered)
        for mine, order in zip(together, numbers, strict=True):
            mine.order = order
            self.port.trace(
                "subscribe",
                subscription=mine.id,
                name=mine.name,
                selector=mine.predicate.text,
                tree=mine.predicate.tree_text,
                permitted=self._policies.remainder(mine.predicate.text),
                level=mine.level,
                client=mine.client,
            )

    def on_policy_changed(self, event: PolicyChanged) -> None:
        """Record how the new policy narrows the subscriptions of a tenant's programs."""
        for mine in self.subscriptions.values() if self._policies.tenant else ():
            left = self._policies.remainder(mine.predicate.text)
            self.port.trace("confined", subscription=mine.id, permitted=left)

    def on_subscriptions_ready(self, event: SubscriptionsReady) -> None:
        """SUBACKs, each given once: of a subscription that had lapsed the client hears that the gap
        is over."""
        ready = [
            self.subscriptions[id_] for id_ in event.subscriptions if id_ in self.subscriptions
        ]
        for mine in ready:
            trees = self.registrar.trees_of(mine.id, len(mine.predicate.conjunctions))
            if trees != mine.trees:  # an owner knew a better pivot
                mine.trees = trees
                self.receiver.move(mine.id, mine.predicate, mine.pivots)
        new = [mine for mine in ready if not mine.acknowledged]
        if new:
            self.port.trace_each("suback", "subscription", [mine.id for mine in new])
        for mine in ready:
            if not mine.acknowledged:
                self._acknowledge(mine)
            elif mine.missing_since is not None:
                self._end_gap(mine, mine.missing_since)

    def _acknowledge(self, mine: LocalSubscription) -> None:
        mine.acknowledged = True
        self.port.reply(mine.client, Subscribed(mine.request, mine.id))
        self._gaps.acknowledged(mine)
        if mine.marks:
            self._low_water.follow(mine.client)

    def _end_gap(self, mine: LocalSubscription, since: float) -> None:
        self._low_water.cease(mine.id)
        mine.missing_since = None
        seconds = self.port.now - since
        reason = (
            f"subscription {mine.name or mine.id} is registered again; events of the last "
            f"{seconds:.1f} s may be missing"
        )
        self.port.reply(mine.client, Lapsed(0, GAP, reason, mine.id, seconds, True))

    def on_subscription_lapsed(self, event: SubscriptionLapsed) -> None:
        """A cluster lost registrations of this node, which are being registered again: clients are
        informed of the gap."""
        for id_ in event.subscriptions:
            mine = self.subscriptions.get(id_)
            if mine is None or not mine.acknowledged:
                continue
            since = self.port.now - event.seconds
            known = mine.missing_since
            mine.missing_since = since if known is None else min(known, since)
            self._low_water.hinder(id_, mine.missing_since)
            reason = (
                f"subscription {mine.name or mine.id}: the tree of {event.attribute} had lost it; "
                f"it is being registered again, events since {event.seconds:.1f} s ago may be "
                "missing"
            )
            self.port.reply(mine.client, Lapsed(0, GAP, reason, mine.id, event.seconds, False))

    def gather(self, client: int, command: Gather) -> None:
        """Deliver each event once for all of the client's next subscriptions."""
        self.gatherers[client] = None
        self.port.reply(client, Done(command.request))

    def resume_session(self, client: int, command: ResumeSession) -> None:
        """Reply with the subscriptions of a client that has a new connection."""
        mine = [self.subscriptions[id_] for id_ in self._by_client.get(client, ())]
        self.port.reply(client, SessionResumed(command.request, tuple(map(self._info, mine))))

    def unsubscribe(self, client: int, command: Unsubscribe) -> None:
        """End one of the client's own subscriptions; no event is shown for it from now on."""
        mine = self.subscriptions.get(command.subscription)
        if mine is None or mine.client != client:
            reason = f"no subscription {command.subscription!r} of this client"
            self.port.reply(client, Failed(command.request, "unknown", reason))
            return
        self._remove(mine)
        self.port.reply(client, Done(command.request))

    def end_subscription(self, client: int, command: EndSubscription) -> None:
        """End a subscription for whichever client has it, which is notified."""
        mine = self.subscriptions.get(command.subscription)
        if mine is None:
            reason = f"no subscription {command.subscription!r} at this node"
            self.port.reply(client, Failed(command.request, "unknown", reason))
            return
        self._remove(mine)
        reason = f"subscription {mine.name or mine.id} was ended by another program of its node"
        if mine.acknowledged:
            self.port.reply(mine.client, Ended(0, ENDED, reason, mine.id))
        else:
            self.port.reply(mine.client, Failed(mine.request, ENDED, reason))
        self.port.reply(client, Done(command.request))

    def _remove(self, mine: LocalSubscription) -> None:
        """End one subscription: no event is shown for it from now on."""
        ids = self._by_client[mine.client]
        del ids[mine.id], self.subscriptions[mine.id]
        if not ids:
            del self._by_client[mine.client]
        self._end(mine)

    def client_closed(self, client: int, unread_for: float = 0.0) -> None:
        """End the subscriptions of a client that has closed; its publications go on. `unread_for`:
        seconds since its connection was lost, for which its session was kept and not resumed."""
        self._new = [one for one in self._new if one[0] != client]
        self.gatherers.pop(client, None)
        self._low_water.forget(client)
        for id_ in self._by_client.pop(client, ()):
            mine = self.subscriptions.pop(id_)
            mine.unread_for = unread_for
            self._ending.append(mine)
        self._end_some()

    def leave(self) -> None:
        """Leave: refuse further subscriptions; end all, and tell their clients."""
        self._leaving = True
        self.registrar.leave()
        new, self._new = self._new, []
        for client, command, _ in new:
            refuse_leaving(self.port, client, command.request)
        for mine in self.subscriptions.values():
            if not mine.acknowledged:
                refuse_leaving(self.port, mine.client, mine.request)
        for client in dict.fromkeys(mine.client for mine in self.subscriptions.values()):
            refuse_leaving(self.port, client, 0)
            self._low_water.forget(client)
        self._ending.extend(self.subscriptions.values())
        self.subscriptions.clear()
        self._by_client.clear()
        self.gatherers.clear()
        self._end_some()

    @property
    def ending(self) -> int:
        """Number of subscriptions of clients that have closed which have not ended yet."""
        return len(self._ending)

    def on_end_due(self, timer: EndDue) -> None:
        """End the next `ENDED_AT_ONCE` registrations' worth of subscriptions."""
        self._end_more.rang()
        self._end_some()

    def _end_some(self) -> None:
        """End as many subscriptions as a turn may. Nothing of the others is delivered either, while
        they wait for their turn."""
        ended = 0
        while self._ending and ended < ENDED_AT_ONCE:
            mine = self._ending.popleft()
            self._end(mine)
            ended += max(1, len(mine.predicate.conjunctions))
        if self._ending:
            self._end_more.within(0.0)

    def _end(self, mine: LocalSubscription) -> None:
        self._low_water.cease(mine.id)
        mine.until = self.receiver.remove(mine.id, len(mine.predicate.conjunctions))
        self.ended[mine.id] = mine
        self.registrar.unsubscribe(mine.id)
        self.port.trace("unsubscribe", subscription=mine.id, unread=mine.unread_for)

    def on_arrived(self, event: Arrived) -> None:
        """Hand events over, in one reply per client."""
        by_client: dict[int, list[Delivery]] = {}
        for delivery in event.deliveries:
            mine = self.subscriptions.get(delivery.subscription)
            if mine is not None:
                mine.delivered += 1
                by_client.setdefault(mine.client, []).append(delivery)
        for client, deliveries in by_client.items():
            self.port.reply(client, Delivered(0, tuple(deliveries)))
        gathered = event.gathered
        if not gathered.keys() <= self.gatherers.keys():  # the subscriptions of one are ending
            gathered = {client: gathered[client] for client in gathered if client in self.gatherers}
        if gathered:
            self.port.share(event.events, gathered)

    # --- what is known here ---

    def get_attributes(self, client: int, command: GetAttributes) -> None:
        """Reply the attributes that this node has seen, subscribes to or has schemas of, for
        completion."""
        names = dict.fromkeys(reversed(self.history.attributes))
        for mine in self.subscriptions.values():
            names.update(dict.fromkeys(mine.predicate.attributes))
        schemas = schemas_of(self.port)
        for schema in () if schemas is None else schemas.listed():
            names.update(dict.fromkeys(schema.attributes))
        self.port.reply(client, Attributes(command.request, tuple(names)))

    def get_schemas(self, client: int, command: GetSchemas) -> None:
        """Reply the schemas by which events are validated here."""
        schemas = schemas_of(self.port)
        found = Schemas(command.request, (), "")
        if schemas is not None:
            found = Schemas(command.request, schemas.listed(), schemas.otherwise)
        self.port.reply(client, found)

    def get_events(self, client: int, command: GetEvents) -> None:
        """Reply the last events that this node has published or received, at most `EVENTS_BYTES` of
        them."""
        events: list[Event] = []
        size = 0
        for event in islice(self.history.latest(), max(0, command.count)):
            size += weigh_event(Draft(event.attributes))
            if size > EVENTS_BYTES:
                break
            events.append(replace(event, payload=b"", payload_type="", proof=None))
        self.port.reply(client, Events(command.request, tuple(events)))

    def get_subscriptions(self, client: int, command: GetSubscriptions) -> None:
        """Reply with the subscriptions of all clients of this node, oldest first, as
        Subscriptions."""
        infos = tuple(map(self._info, self.subscriptions.values()))
        self.port.reply(client, Subscriptions(command.request, infos))

    def _info(self, mine: LocalSubscription) -> SubscriptionInfo:
        return SubscriptionInfo(
            mine.id,
            mine.name,
            mine.predicate.text,
            self._is_acknowledged(mine),
            self._delivered(mine),
            mine.pivots,
            mine.client,
            mine.level,
            *self.registrar.progress(mine.id),
        )

    def _is_acknowledged(self, mine: LocalSubscription) -> bool:
        """Whether it is for certain that every event is found now."""
        is_registered = mine.acknowledged and mine.missing_since is None
        return is_registered and not self.registrar.is_in_doubt(mine.id)

    def _delivered(self, mine: LocalSubscription) -> int:
        return self.receiver.delivered_to(mine.id) if mine.gathers else mine.delivered
