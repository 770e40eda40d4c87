"""One MQTT client's session (MQTT 5.0): it publishes, subscribes, and may leave a will."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

import mqtt5
import trio

from canopy.client.client import AsyncClient
from canopy.client.publication import Drafting
from canopy.feeds.context import FORBIDDEN
from canopy.feeds.drafts import BadEventError
from canopy.gateway.access import GatewayRules, Permission, RequestRefused
from canopy.gateway.constants import (
    FILTERS,
    HEAD_TIMEOUT,
    IN_FLIGHT,
    MESSAGE_LIMIT,
    OPENED_TOGETHER,
    PUBLISHED_TOGETHER,
    RECHECK,
)
from canopy.gateway.feeds import FeedRequest, Item, OpenFeed, follow
from canopy.gateway.http.exchange import Gone, first_cause
from canopy.gateway.mqtt.messages import (
    TopicError,
    message_of,
    publish_packet,
    remaining,
    topic_of,
)
from canopy.gateway.mqtt.packet_check import MalformedPacketError, is_shared, is_wild
from canopy.gateway.mqtt.packets import PacketStream
from canopy.gateway.mqtt.topics import GAP, TOPIC, Filter, TopicFilterError, parse_filter
from canopy.gateway.publication import check_allowed, publish, publish_each
from canopy.wire.log import Log
from overlay.client import Draft
from overlay.phrases import in_one_line

OLD_VERSION: Final = b"\x20\x02\x00\x01"
"""CONNACK of MQTT 3.1.1: unacceptable protocol version."""

Reason = mqtt5.DisconnectReasonCode
ConnAck = mqtt5.ConnAckReasonCode
PubAck = mqtt5.PubAckReasonCode
PUBACKS: Final = {
    400: PubAck.PAYLOAD_FORMAT_INVALID,
    401: PubAck.NOT_AUTHORIZED,
    403: PubAck.NOT_AUTHORIZED,
    429: PubAck.QUOTA_EXCEEDED,
}
SUBACKS: Final = {
    400: mqtt5.SubAckReasonCode.TOPIC_FILTER_INVALID,
    401: mqtt5.SubAckReasonCode.NOT_AUTHORIZED,
    403: mqtt5.SubAckReasonCode.NOT_AUTHORIZED,
    429: mqtt5.SubAckReasonCode.QUOTA_EXCEEDED,
}


class SessionEnded(Exception):  # noqa: N818 - what happened
    """The session ends with a DISCONNECT that has this reason."""

    def __init__(self, code: mqtt5.DisconnectReasonCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class WillError(Exception):
    """A CONNECT is refused because of its will; `code`: the reason code of the CONNACK."""

    def __init__(self, code: mqtt5.ConnAckReasonCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class MqttDoor:
    """Serves all MQTT connections."""

    def __init__(self, client: AsyncClient, access: GatewayRules, log: Log) -> None:
        self._client = client
        self._access = access
        self._log = log
        self._drafting = Drafting()
        self._sessions: dict[tuple[str, str], _Session] = {}
        """The sessions by the token's name and the client identifier: no client takes over a
        session of another token."""

    async def serve(
        self, stream: trio.abc.Stream, peer: str, welcome: Callable[[], None] = lambda: None
    ) -> None:
        """Serve one connection. `peer` is for the log; `welcome` is called when the client has
        shown that it may use the gateway."""
        wire = PacketStream(stream)
        session: _Session | None = None
        try:
            with trio.move_on_after(HEAD_TIMEOUT):
                connect = await wire.receive()
                if isinstance(connect, mqtt5.ConnectPacket):
                    session = await self._admit(wire, connect, peer)
                    if session is not None:
                        await self._take_over(session)
                        await session.welcome()
            if session is not None and session.is_welcome:
                welcome()
                await session.run()
        except MalformedPacketError as error:
            self._log.debug("malformed", peer=peer, reason=str(error))
            with suppress(Gone), trio.move_on_after(1.0):
                await _reject(wire, error, session is not None)
        except Gone as error:
            self._log.debug("gone", peer=peer, reason=str(error))
        finally:
            if session is not None:
                session.over.set()
                if self._sessions.get(session.key) is session:
                    del self._sessions[session.key]

    async def _admit(
        self, wire: PacketStream, connect: mqtt5.ConnectPacket, peer: str
    ) -> _Session | None:
        """Open a session for a client whose token, sent as its password, allows one. Returns None
        for a client that was refused."""
        wire.most = min(connect.max_packet_size or MESSAGE_LIMIT, MESSAGE_LIMIT)
        wire.may_explain = connect.request_problem_info
        try:
            if connect.authentication_method is not None:
                raise SessionEnded(Reason.UNSPECIFIED_ERROR, "no such authentication")
            grant = self._access.grant((connect.password or b"").decode("utf-8", "replace"))
            will = self._will(connect.will, grant)
            about = {"peer": peer, "client": connect.client_id}
            services = Services(self._client, self._access, self._drafting, self._log, about)
            return _Session(services, grant, connect, wire, will)
        except SessionEnded as error:
            refused, status = str(error), ConnAck.BAD_AUTHENTICATION_METHOD
        except WillError as error:
            refused, status = str(error), error.code
        except RequestRefused as error:
            refused = error.reason
            status = ConnAck.SERVER_UNAVAILABLE if error.status == 503 else ConnAck.NOT_AUTHORIZED
        self._log.info("refused", peer=peer, client=connect.client_id, reason=refused)
        await wire.send(mqtt5.ConnAckPacket(reason_code=status, reason_str=one_line(refused)))
        return None

    def _will(self, will: mqtt5.Will | None, grant: Permission) -> Draft | None:
        """Return the event of a will. Raises WillError, and RequestRefused if the token does not
        allow it."""
        if will is None:
            return None
        if will.retain:
            raise WillError(ConnAck.RETAIN_NOT_SUPPORTED, "there are no retained messages here")
        if will.qos == mqtt5.QoS.EXACTLY_ONCE:
            raise WillError(ConnAck.QUALITY_NOT_SUPPORTED, "quality of service 0 and 1 are served")
        if not will.topic or is_wild(will.topic):
            raise WillError(
                ConnAck.TOPIC_NAME_INVALID, "the will's topic is empty or has wildcards"
            )
        try:
            draft = message_of(will.topic, will.payload or b"", will).draft
        except TopicError as error:
            raise WillError(ConnAck.TOPIC_NAME_INVALID, f"the will: {error}") from None
        except BadEventError as error:
            raise WillError(ConnAck.PAYLOAD_FORMAT_INVALID, f"the will: {error}") from None
        check_allowed(grant, (draft,))
        return draft

    async def _take_over(self, session: _Session) -> None:
        """End the former session of the same client, its will included, before the client is
        welcomed (MQTT 5.0, 3.1.4)."""
        while (former := self._sessions.get(session.key)) is not None:
            former.end(SessionEnded(Reason.SESSION_TAKEN_OVER, "the client has connected again"))
            await former.over.wait()
        self._sessions[session.key] = session


async def _reject(wire: PacketStream, error: MalformedPacketError, is_welcome: bool) -> None:
    """Send the reason why a connection ends. A DISCONNECT is sent only after a CONNACK (MQTT 5.0,
    3.14), and nothing to a client that has not sent a CONNECT."""
    if is_welcome:
        await wire.send(_disconnect(error.code, str(error)))
    elif error.is_old:
        await wire.send_raw(OLD_VERSION)
    elif error.is_connect:
        is_protocol = error.code == Reason.PROTOCOL_ERROR
        code = ConnAck.PROTOCOL_ERROR if is_protocol else ConnAck.MALFORMED_PACKET
        await wire.send(mqtt5.ConnAckPacket(reason_code=code, reason_str=one_line(str(error))))


class Services(NamedTuple):
    """The services that a session uses. `about`: the client's name in the log."""

    client: AsyncClient
    access: GatewayRules
    drafting: Drafting
    log: Log
    about: dict[str, str]


class _Subscription:
    def __init__(
        self,
        feed: OpenFeed,
        filter_: Filter,
        qos: mqtt5.QoS,
        id_: int | None,
        scope: trio.CancelScope,
    ) -> None:
        self.feed = feed
        self.filter = filter_
        self.qos = qos
        self.id = id_
        self.scope = scope
        self.is_over = False
        """Whether nothing more is to be sent."""
        self._is_sending = False

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send a packet to its end, whatever becomes of the subscription (a context manager)."""
        self._is_sending = True
        try:
            yield
        finally:
            self._is_sending = False

    def end(self) -> None:
        """Send nothing more, but the rest of a packet that is being sent."""
        self.is_over = True
        if not self._is_sending:
            self.scope.cancel()


class _Session:
    """The session of a connected client."""

    def __init__(
        self,
        services: Services,
        grant: Permission,
        connect: mqtt5.ConnectPacket,
        wire: PacketStream,
        will: Draft | None,
    ) -> None:
        self._services = services
        self._client = services.client
        self._access = services.access
        self._grant = grant
        self._wire = wire
        self._will = will
        self._assigned = None if connect.client_id else f"canopy-{secrets.token_hex(6)}"
        self.key = (grant.name, connect.client_id or self._assigned or "")
        self.over = trio.Event()
        """Set when the connection is closed and the will, if due, is published."""
        self.is_welcome = False
        self._has_expiry = connect.session_expiry_interval > 0
        self._keep_alive = 1.5 * connect.keep_alive or math.inf  # MQTT 5.0, section 3.1.2.10
        self._subscriptions: dict[str, _Subscription] = {}
        self._hears_gaps = False
        self._window = min(connect.receive_max, IN_FLIGHT)
        self._room = trio.Semaphore(self._window)
        self._unacknowledged: set[int] = set()
        self._number = 0
        self._ending = trio.Event()
        self._why = SessionEnded(Reason.UNSPECIFIED_ERROR, "")
        self._logged: set[str] = set()

    def end(self, why: SessionEnded) -> None:
        """End the session for this reason; `over` is set when it has ended."""
        self._why = why
        self._ending.set()

    async def welcome(self) -> None:
        """Send the CONNACK with the capabilities of this server. Raises Gone."""
        about = mqtt5.ConnAckPacket(
            session_expiry_interval=0,
            assigned_client_id=self._assigned,
            receive_max=IN_FLIGHT,
            max_qos=mqtt5.QoS.AT_LEAST_ONCE,
            retain_available=False,
            max_packet_size=MESSAGE_LIMIT,
            shared_subscription_available=False,
        )
        if len(about.write()) > self._wire.most:
            raise Gone("the client takes no packet that is as large as a CONNACK")
        await self._wire.send(about)
        self.is_welcome = True

    async def run(self) -> None:
        """Serve until one side ends the session."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch)
                nursery.start_soon(self._until_ended)
                await self._read(nursery)
                nursery.cancel_scope.cancel()
        except* SessionEnded as group:
            ended = first_cause(group)
            assert isinstance(ended, SessionEnded)
            with suppress(Gone), trio.move_on_after(1.0):
                await self._wire.send(_disconnect(ended.code, str(ended)))
        except* (MalformedPacketError, Gone) as group:
            raise first_cause(group) from None
        finally:
            with trio.move_on_after(5.0, shield=True):
                await self._leave_will()
                for subscription in self._subscriptions.values():
                    await subscription.feed.close()

    async def _until_ended(self) -> None:
        await self._ending.wait()
        raise self._why

    async def _watch(self) -> None:
        while self._access.is_still_good(self._grant):
            await trio.sleep(RECHECK)
        raise SessionEnded(Reason.NOT_AUTHORIZED, "the token is no longer good")

    async def _read(self, nursery: trio.Nursery) -> None:
        while True:
            with trio.move_on_after(self._keep_alive) as scope:
                packet = await self._wire.receive()
            if scope.cancelled_caught:
                raise SessionEnded(
                    Reason.KEEP_ALIVE_TIMEOUT, "no packet within 1.5 times the keep alive"
                )
            match packet:
                case None:
                    return
                case mqtt5.PublishPacket():
                    await self._publish(packet)
                case mqtt5.PubAckPacket():
                    self._acknowledged(packet.packet_id)
                case mqtt5.SubscribePacket():
                    await self._subscribe(packet, nursery)
                case mqtt5.UnsubscribePacket():
                    await self._unsubscribe(packet)
                case mqtt5.PingReqPacket():
                    await self._wire.send(mqtt5.PingRespPacket())
                case mqtt5.DisconnectPacket():
                    if packet.session_expiry_interval and not self._has_expiry:
                        raise SessionEnded(
                            Reason.PROTOCOL_ERROR, "a session that was to end at once"
                        )
                    if packet.reason_code == Reason.NORMAL_DISCONNECTION:
                        self._will = None
                    return
                case _:
                    raise SessionEnded(
                        Reason.PROTOCOL_ERROR, f"{type(packet).__name__} has no place here"
                    )

    async def _publish(self, first: mqtt5.PublishPacket) -> None:
        """Publish this packet and those that have arrived after it, in one request to the node."""
        ended: SessionEnded | None = None
        packets: list[mqtt5.PublishPacket] = []
        drafts: list[Draft] = []
        told: list[str] = []
        bad: dict[int, BadEventError] = {}  # why, by place
        for packet in (first, *self._wire.publications(PUBLISHED_TOGETHER - 1)):
            try:
                self._check(packet)
                found = message_of(packet.topic, packet.payload, packet)
                drafts.append(named(self._services.drafting, found.draft))
                told.append(found.told)
            except BadEventError as error:
                bad[len(packets)] = error
                told.append(str(error))
            except SessionEnded as error:
                ended = error
                break
            packets.append(packet)
        refusals = iter(await publish_each(self._client, self._grant, drafts))
        answers = []
        for place, packet in enumerate(packets):  # in the order in which they came: section 4.6
            code, reason = PubAck.SUCCESS, told[place]
            if (fault := bad.get(place)) is not None:
                is_topic = isinstance(fault, TopicError)
                code = PubAck.TOPIC_NAME_INVALID if is_topic else PubAck.PAYLOAD_FORMAT_INVALID
            elif (refused := next(refusals)) is not None:
                code = PUBACKS.get(refused.status, PubAck.UNSPECIFIED_ERROR)
                reason = refused.reason
            if packet.packet_id is not None:
                about = one_line(reason) or None
                answers.append(
                    mqtt5.PubAckPacket(packet.packet_id, reason_code=code, reason_str=about)
                )
            elif reason:  # nothing of quality of service 0 is answered
                self._log("not_published" if code else "not_attributes", reason, packet.topic)
        if answers:
            await self._wire.send(*answers)
        if ended is not None:
            raise ended

    def _log(self, what: str, reason: str, topic: str) -> None:
        """Log an error that the client is not told. Only the first of each kind is logged above the
        debug level."""
        log = self._services.log.debug if what in self._logged else self._services.log.info
        self._logged.add(what)
        log(what, topic=topic, reason=one_line(reason), **self._services.about)

    def _check(self, packet: mqtt5.PublishPacket) -> None:
        if packet.retain:
            raise SessionEnded(Reason.RETAIN_NOT_SUPPORTED, "there are no retained messages here")
        if packet.qos == mqtt5.QoS.EXACTLY_ONCE:
            raise SessionEnded(Reason.QOS_NOT_SUPPORTED, "quality of service 0 and 1 are served")
        if packet.topic_alias is not None:
            raise SessionEnded(Reason.TOPIC_ALIAS_INVALID, "topic aliases are not served")

    async def _leave_will(self) -> None:
        """Publish the will of a client that has not sent a DISCONNECT (MQTT 5.0, 3.1.2.5), if its
        token is still valid. The session ends with its connection, so a will delay ends there
        too."""
        will, self._will = self._will, None
        if will is None:
            return
        topic = str(will.attributes.get(TOPIC))
        if not self._access.is_still_good(self._grant):
            self._log("will_not_published", "the token is no longer good", topic)
            return
        try:
            await publish(self._client, self._grant, [named(self._services.drafting, will)])
        except RequestRefused as error:
            self._log("will_not_published", error.reason, topic)

    async def _subscribe(self, packet: mqtt5.SubscribePacket, nursery: trio.Nursery) -> None:
        """Open all subscriptions of a packet at once, filters that occur twice one after the other,
        and answer in the packet's order."""
        code = mqtt5.SubAckReasonCode
        codes = [code.UNSPECIFIED_ERROR] * len(packet.topic_filters)
        reasons = [""] * len(packet.topic_filters)
        places: dict[str, list[int]] = {}
        for place, wanted in enumerate(packet.topic_filters):
            places.setdefault(wanted.pattern, []).append(place)
        limiter = trio.CapacityLimiter(OPENED_TOGETHER)

        async def open_some(same: list[int]) -> None:
            for place in same:
                wanted = packet.topic_filters[place]
                try:
                    async with limiter:
                        codes[place] = await self._open(wanted, packet.subscription_id, nursery)
                except TopicFilterError as error:
                    codes[place], reasons[place] = code.TOPIC_FILTER_INVALID, str(error)
                except RequestRefused as error:
                    codes[place] = SUBACKS.get(error.status, code.UNSPECIFIED_ERROR)
                    reasons[place] = error.reason

        each = list(places.values())
        room = max(0, FILTERS - len(self._subscriptions))
        async with trio.open_nursery() as opening:
            for same in each[:room]:
                opening.start_soon(open_some, same)
        for same in each[room:]:  # as many as there is room for: some before may be refused
            await open_some(same)
        about = one_line("; ".join(filter(None, reasons))) or None
        await self._wire.send(mqtt5.SubAckPacket(packet.packet_id, codes, reason_str=about))

    async def _open(
        self, wanted: mqtt5.TopicFilter, id_: int | None, nursery: trio.Nursery
    ) -> mqtt5.SubAckReasonCode:
        code, qos = mqtt5.SubAckReasonCode, mqtt5.QoS
        once = wanted.max_qos == qos.AT_MOST_ONCE
        granted = code.GRANTED_QOS_AT_MOST_ONCE if once else code.GRANTED_QOS_AT_LEAST_ONCE
        if is_shared(wanted.pattern):
            return code.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
        if wanted.pattern == GAP:
            self._hears_gaps = True
            return code.GRANTED_QOS_AT_MOST_ONCE
        if wanted.no_local:
            raise RequestRefused(409, "the option No Local is not served")
        if wanted.pattern not in self._subscriptions and len(self._subscriptions) >= FILTERS:
            raise RequestRefused(429, f"a connection has {FILTERS} subscriptions at most")
        filter_ = parse_filter(wanted.pattern)
        feed = await follow(
            self._client, self._grant, FeedRequest(filter_.selector, format="event")
        )
        await self._end(wanted.pattern)
        scope = trio.CancelScope()
        made = _Subscription(
            feed, filter_, qos.AT_MOST_ONCE if once else qos.AT_LEAST_ONCE, id_, scope
        )
        self._subscriptions[wanted.pattern] = made
        nursery.start_soon(self._deliver, made)
        return granted

    async def _unsubscribe(self, packet: mqtt5.UnsubscribePacket) -> None:
        code = mqtt5.UnsubAckReasonCode
        codes = []
        for pattern in packet.patterns:
            known = await self._end(pattern)
            if pattern == GAP:
                known, self._hears_gaps = self._hears_gaps, False
            codes.append(code.SUCCESS if known else code.NO_SUBSCRIPTION_EXISTED)
        await self._wire.send(mqtt5.UnsubAckPacket(packet.packet_id, codes))

    async def _end(self, pattern: str) -> bool:
        """End a subscription. Returns whether there was one."""
        found = self._subscriptions.pop(pattern, None)
        if found is None:
            return False
        found.end()
        await found.feed.close()
        return True

    async def _deliver(self, subscription: _Subscription) -> None:
        with subscription.scope:
            while True:
                items = await subscription.feed.take(math.inf)
                if not items:  # it is closed, and would be so again and again without a pause
                    return
                for item in items:
                    await self._pass_on(item, subscription)
                    if subscription.is_over:
                        return

    async def _pass_on(self, item: Item, subscription: _Subscription) -> None:
        if item.kind == "gap":
            if self._hears_gaps:
                content = json.dumps(item.data).encode()
                kind = "application/json"
                with subscription.sending():
                    await self._wire.send(mqtt5.PublishPacket(GAP, content, content_type=kind))
            return
        admits = subscription.filter.admits
        if admits is not None and not admits(topic_of(item.data)):
            return
        number = None
        if subscription.qos != mqtt5.QoS.AT_MOST_ONCE:
            await self._room.acquire()
            number = self._free_number()
        expiry = remaining(item.data, time.time())  # it may have waited for room
        if expiry != 0:
            made = publish_packet(item.data, subscription.qos, number, subscription.id, expiry)
            packet = made.write()
            if len(packet) <= self._wire.most:  # a client gets no more than it takes (3.1.2.11.4)
                with subscription.sending():
                    await self._wire.send_raw(packet)
                return
        if number is not None:
            self._acknowledged(number)
        if expiry == 0:
            return
        await self._pass_on(Item("gap", "", {"cause": "too-large", "event": item.id}), subscription)

    def _free_number(self) -> int:
        """Return a packet identifier that is not in use."""
        while True:
            self._number = self._number % 0xFFFF + 1
            if self._number not in self._unacknowledged:
                self._unacknowledged.add(self._number)
                return self._number

    def _acknowledged(self, number: int) -> None:
        if number in self._unacknowledged:
            self._unacknowledged.discard(number)
            self._room.release()


def named(drafting: Drafting, draft: Draft) -> Draft:
    """Return the event of a message, with an `id`."""
    return drafting.draft(draft.attributes, draft.payload, draft.payload_type)


def _disconnect(code: mqtt5.DisconnectReasonCode, reason: str) -> mqtt5.DisconnectPacket:
    return mqtt5.DisconnectPacket(reason_code=code, reason_str=one_line(reason))


def one_line(text: str) -> str:
    """Return a reason without characters that MQTT forbids, on one line."""
    return FORBIDDEN.sub("_", in_one_line(text)[:1000])
