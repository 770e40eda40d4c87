"""One MQTT client's session (MQTT 5.0): it publishes, subscribes, and says when it has gone."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import mqtt5
import trio

from canopy.client.asynchronous import AsyncClient
from canopy.client.publishing import Drafting
from canopy.feeds.context import FORBIDDEN
from canopy.feeds.drafts import BadEventError
from canopy.gateway.access import Access, Grant, Refused
from canopy.gateway.constants import (
    FILTERS,
    HEAD_TIMEOUT,
    IN_FLIGHT,
    MESSAGE_LIMIT,
    PUBLISHED_TOGETHER,
    RECHECK,
)
from canopy.gateway.following import Feed, Item, Wanted, follow
from canopy.gateway.http.exchange import Gone
from canopy.gateway.mqtt.messages import draft_of, publish_packet, topic_of
from canopy.gateway.mqtt.packets import MalformedError, PacketStream
from canopy.gateway.mqtt.topics import GAP, Filter, TopicFilterError, parse_filter
from canopy.gateway.publishing import publish, publish_each
from canopy.wire.log import Log
from overlay.client import Draft

OLD_VERSION: Final = b"\x20\x02\x00\x01"
"""CONNACK of MQTT 3.1.1: unacceptable protocol version."""

Reason = mqtt5.DisconnectReasonCode
PUBACKS: Final = {
    400: mqtt5.PubAckReasonCode.PAYLOAD_FORMAT_INVALID,
    401: mqtt5.PubAckReasonCode.NOT_AUTHORIZED,
    403: mqtt5.PubAckReasonCode.NOT_AUTHORIZED,
    429: mqtt5.PubAckReasonCode.QUOTA_EXCEEDED,
}
SUBACKS: Final = {
    400: mqtt5.SubAckReasonCode.TOPIC_FILTER_INVALID,
    401: mqtt5.SubAckReasonCode.NOT_AUTHORIZED,
    403: mqtt5.SubAckReasonCode.NOT_AUTHORIZED,
    429: mqtt5.SubAckReasonCode.QUOTA_EXCEEDED,
}


class Ended(Exception):  # noqa: N818 - what happened
    """The session ends with a DISCONNECT of this reason."""

    def __init__(self, code: mqtt5.DisconnectReasonCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class MqttDoor:
    """Serves connections. One for all of them."""

    def __init__(self, client: AsyncClient, access: Access, log: Log) -> None:
        self._client = client
        self._access = access
        self._log = log
        self._drafting = Drafting()

    async def serve(
        self, stream: trio.abc.Stream, peer: str, welcome: Callable[[], None] = lambda: None
    ) -> None:
        """Serve one connection; `peer` is for the log, and `welcome` is called when it has shown
        that it may be here."""
        wire = PacketStream(stream)
        try:
            session: _Session | None = None
            with trio.move_on_after(HEAD_TIMEOUT):
                connect = await wire.receive()
                if isinstance(connect, mqtt5.ConnectPacket):
                    session = await self._welcome(wire, connect, peer)
            if session is not None:
                welcome()
                await session.run()
        except MalformedError as error:
            self._log.debug("malformed", peer=peer, reason=str(error))
            with suppress(Gone), trio.move_on_after(1.0):
                if error.is_old:
                    await wire.send_raw(OLD_VERSION)
                else:
                    await wire.send(_disconnect(error.code, str(error)))
        except Gone as error:
            self._log.debug("gone", peer=peer, reason=str(error))

    async def _welcome(
        self, wire: PacketStream, connect: mqtt5.ConnectPacket, peer: str
    ) -> _Session | None:
        """Begin a session for who may have one: a client's token is its password."""
        code = mqtt5.ConnAckReasonCode
        if connect.authentication_method is not None:
            refused, status = "no such authentication", code.BAD_AUTHENTICATION_METHOD
        else:
            try:
                grant = self._access.grant((connect.password or b"").decode("utf-8", "replace"))
                session = _Session(self._client, self._access, grant, connect, wire, self._drafting)
                await session.welcome()
                return session
            except Refused as error:
                refused = error.reason
                status = code.SERVER_UNAVAILABLE if error.status == 503 else code.NOT_AUTHORIZED
        self._log.info("refused", peer=peer, client=connect.client_id, reason=refused)
        await wire.send(mqtt5.ConnAckPacket(reason_code=status, reason_str=one_line(refused)))
        return None


class _Subscription:
    def __init__(
        self, feed: Feed, filter_: Filter, qos: mqtt5.QoS, id_: int | None, scope: trio.CancelScope
    ) -> None:
        self.feed = feed
        self.filter = filter_
        self.qos = qos
        self.id = id_
        self.scope = scope


class _Session:
    """A client that is connected."""

    def __init__(
        self,
        client: AsyncClient,
        access: Access,
        grant: Grant,
        connect: mqtt5.ConnectPacket,
        wire: PacketStream,
        drafting: Drafting,
    ) -> None:
        self._client = client
        self._access = access
        self._grant = grant
        self._wire = wire
        self._drafting = drafting
        self._will = connect.will
        self._id = connect.client_id
        self._keep_alive = 1.5 * connect.keep_alive or math.inf  # MQTT 5.0, section 3.1.2.10
        self._most = min(connect.max_packet_size or MESSAGE_LIMIT, MESSAGE_LIMIT)
        self._subscriptions: dict[str, _Subscription] = {}
        self._hears_gaps = False
        self._window = min(connect.receive_max, IN_FLIGHT)
        self._room = trio.Semaphore(self._window)
        self._unacknowledged: set[int] = set()
        self._number = 0

    async def welcome(self) -> None:
        """Say what is served here. Raises Gone."""
        assigned = None if self._id else f"canopy-{secrets.token_hex(6)}"
        about = mqtt5.ConnAckPacket(
            session_expiry_interval=0,
            assigned_client_id=assigned,
            receive_max=IN_FLIGHT,
            max_qos=mqtt5.QoS.AT_LEAST_ONCE,
            retain_available=False,
            max_packet_size=MESSAGE_LIMIT,
            shared_subscription_available=False,
        )
        await self._wire.send(about)

    async def run(self) -> None:
        """Serve until one side ends it."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch)
                await self._read(nursery)
                nursery.cancel_scope.cancel()
        except* Ended as group:
            ended = group.exceptions[0]
            assert isinstance(ended, Ended)
            with suppress(Gone), trio.move_on_after(1.0):
                await self._wire.send(_disconnect(ended.code, str(ended)))
        except* MalformedError as group:
            raise group.exceptions[0] from None
        finally:
            with trio.move_on_after(5.0, shield=True):
                for subscription in self._subscriptions.values():
                    await subscription.feed.close()
                await self._leave_will()

    async def _watch(self) -> None:
        while self._access.is_still_good(self._grant):
            await trio.sleep(RECHECK)
        raise Ended(Reason.NOT_AUTHORIZED, "the token is no longer good")

    async def _read(self, nursery: trio.Nursery) -> None:
        while True:
            with trio.move_on_after(self._keep_alive) as scope:
                packet = await self._wire.receive()
            if scope.cancelled_caught:
                raise Ended(Reason.KEEP_ALIVE_TIMEOUT, "no packet within 1.5 times the keep alive")
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
                    if packet.reason_code == Reason.NORMAL_DISCONNECTION:
                        self._will = None
                    return
                case _:
                    raise Ended(Reason.PROTOCOL_ERROR, f"{type(packet).__name__} has no place here")

    async def _publish(self, first: mqtt5.PublishPacket) -> None:
        """Publish this one, and what has come behind it, in one request to the node."""
        ended: Ended | None = None
        packets: list[mqtt5.PublishPacket] = []
        drafts: list[Draft] = []
        bad: dict[int, str] = {}  # why, by place
        for packet in (first, *self._wire.publications(PUBLISHED_TOGETHER - 1)):
            try:
                self._check(packet)
                drafts.append(self._draft(packet.topic, packet.payload, packet))
            except BadEventError as error:
                bad[len(packets)] = one_line(str(error))
            except Ended as error:
                ended = error
                break
            packets.append(packet)
        refusals = iter(await publish_each(self._client, self._grant, drafts))
        answers = []
        for place, packet in enumerate(packets):  # in the order in which they came: section 4.6
            code, reason = mqtt5.PubAckReasonCode.SUCCESS, bad.get(place)
            if reason is not None:
                code = mqtt5.PubAckReasonCode.PAYLOAD_FORMAT_INVALID
            elif (refused := next(refusals)) is not None:
                code = PUBACKS.get(refused.status, mqtt5.PubAckReasonCode.UNSPECIFIED_ERROR)
                reason = one_line(refused.reason)
            if packet.packet_id is not None:
                answers.append(
                    mqtt5.PubAckPacket(packet.packet_id, reason_code=code, reason_str=reason)
                )
        if answers:
            await self._wire.send(*answers)
        if ended is not None:
            raise ended

    def _check(self, packet: mqtt5.PublishPacket) -> None:
        if packet.retain:
            raise Ended(Reason.RETAIN_NOT_SUPPORTED, "there are no retained messages here")
        if packet.qos == mqtt5.QoS.EXACTLY_ONCE:
            raise Ended(Reason.QOS_NOT_SUPPORTED, "quality of service 0 and 1 are served")
        if packet.topic_alias is not None:
            raise Ended(Reason.TOPIC_ALIAS_INVALID, "topic aliases are not served")

    def _draft(self, topic: str, payload: bytes, packet: mqtt5.PublishPacket | mqtt5.Will) -> Draft:
        """The event of a publication. Raises BadEventError."""
        draft = draft_of(topic, payload, packet.content_type, packet.user_properties)
        return self._drafting.draft(draft.attributes, draft.payload, draft.payload_type)

    async def _leave_will(self) -> None:
        """Publish the will of a client that has not said that it goes (MQTT 5.0, 3.1.2.5)."""
        will, self._will = self._will, None
        if will is not None:
            with suppress(Refused, BadEventError):
                draft = self._draft(will.topic, will.payload or b"", will)
                await publish(self._client, self._grant, [draft])

    async def _subscribe(self, packet: mqtt5.SubscribePacket, nursery: trio.Nursery) -> None:
        codes: list[mqtt5.SubAckReasonCode] = []
        reasons: list[str] = []
        for wanted in packet.topic_filters:
            try:
                codes.append(await self._open(wanted, packet.subscription_id, nursery))
            except TopicFilterError as error:
                codes.append(mqtt5.SubAckReasonCode.TOPIC_FILTER_INVALID)
                reasons.append(str(error))
            except Refused as error:
                codes.append(SUBACKS.get(error.status, mqtt5.SubAckReasonCode.UNSPECIFIED_ERROR))
                reasons.append(error.reason)
        about = one_line("; ".join(reasons)) or None
        await self._wire.send(mqtt5.SubAckPacket(packet.packet_id, codes, reason_str=about))

    async def _open(
        self, wanted: mqtt5.TopicFilter, id_: int | None, nursery: trio.Nursery
    ) -> mqtt5.SubAckReasonCode:
        code, qos = mqtt5.SubAckReasonCode, mqtt5.QoS
        once = wanted.max_qos == qos.AT_MOST_ONCE
        granted = code.GRANTED_QOS_AT_MOST_ONCE if once else code.GRANTED_QOS_AT_LEAST_ONCE
        if wanted.pattern.startswith("$share/"):
            return code.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
        if wanted.pattern == GAP:
            self._hears_gaps = True
            return granted
        if wanted.no_local:
            raise Refused(409, "the option No Local is not served")
        if wanted.pattern not in self._subscriptions and len(self._subscriptions) >= FILTERS:
            raise Refused(429, f"a connection has {FILTERS} subscriptions at most")
        filter_ = parse_filter(wanted.pattern)
        feed = await follow(self._client, self._grant, Wanted(filter_.selector, format="event"))
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
        """End a subscription; whether there was one."""
        found = self._subscriptions.pop(pattern, None)
        if found is None:
            return False
        found.scope.cancel()
        await found.feed.close()
        return True

    async def _deliver(self, subscription: _Subscription) -> None:
        with subscription.scope, suppress(Gone):
            while True:
                items = await subscription.feed.take(math.inf)
                if not items:  # it is closed, and would be so again and again without a pause
                    return
                for item in items:
                    await self._pass_on(item, subscription)

    async def _pass_on(self, item: Item, subscription: _Subscription) -> None:
        if item.kind == "gap":
            if self._hears_gaps:
                content = json.dumps(item.data).encode()
                kind = "application/json"
                await self._wire.send(mqtt5.PublishPacket(GAP, content, content_type=kind))
            return
        admits = subscription.filter.admits
        if admits is not None and not admits(topic_of(item.data)):
            return
        number = None
        if subscription.qos != mqtt5.QoS.AT_MOST_ONCE:
            await self._room.acquire()
            number = self._free_number()
        packet = publish_packet(item.data, subscription.qos, number, subscription.id).write()
        if len(packet) <= self._most:  # a client never gets more than it takes (3.1.2.11.4)
            await self._wire.send_raw(packet)
            return
        if number is not None:
            self._acknowledged(number)
        await self._pass_on(Item("gap", "", {"cause": "too-large", "event": item.id}), subscription)

    def _free_number(self) -> int:
        """A packet's number that is not in use."""
        while True:
            self._number = self._number % 0xFFFF + 1
            if self._number not in self._unacknowledged:
                self._unacknowledged.add(self._number)
                return self._number

    def _acknowledged(self, number: int) -> None:
        if number in self._unacknowledged:
            self._unacknowledged.discard(number)
            self._room.release()


def _disconnect(code: mqtt5.DisconnectReasonCode, reason: str) -> mqtt5.DisconnectPacket:
    return mqtt5.DisconnectPacket(reason_code=code, reason_str=one_line(reason))


def one_line(text: str) -> str:
    """A reason as MQTT may carry it."""
    return FORBIDDEN.sub("_", " ".join(text.split())[:1000])
