"""Packets on a stream: the package ``mqtt5`` is the codec; this module bounds their sizes."""

from __future__ import annotations

from typing import Final

import mqtt5
import trio

from canopy.gateway.constants import MESSAGE_LIMIT
from canopy.gateway.http.exchange import LOST, READ, Gone, send_all
from canopy.gateway.mqtt.packet_check import (
    CONNECT,
    MalformedPacketError,
    check_bytes,
    check_packet,
)

EXPLAINING: Final = (mqtt5.ConnAckPacket, mqtt5.DisconnectPacket, mqtt5.PublishPacket)
"""Packets that may always have a reason or user properties."""

UNFORESEEN: Final = "what the codec cannot read"

PROTOCOL_ERRORS: Final = (
    ("Topic alias must be != 0", mqtt5.DisconnectReasonCode.TOPIC_ALIAS_INVALID),
    ("Topic alias must be set", mqtt5.DisconnectReasonCode.PROTOCOL_ERROR),
    ("Duplicate value", mqtt5.DisconnectReasonCode.PROTOCOL_ERROR),
    ("must be != 0", mqtt5.DisconnectReasonCode.PROTOCOL_ERROR),
)
"""The codec's error texts for well-formed packets that violate the protocol, with their reason
codes."""

HEADER = 5
"""The largest fixed header of a packet (type and length), in bytes (MQTT 5.0, section 2.1)."""


class PacketStream:
    """Reads and writes packets. One task reads; several may write."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._sending = trio.Lock()
        self._is_cut = False  # a packet was begun and not sent to its end
        self._ahead: mqtt5.Packet | MalformedPacketError | None = (
            None  # what `publications` has met
        )
        self.most = MESSAGE_LIMIT
        """The largest packet that the client accepts, in bytes."""
        self.may_explain = True
        """Whether the client accepts reasons in packets other than CONNACK and DISCONNECT (Request
        Problem Information, 3.1.2.11.7)."""

    async def receive(self) -> mqtt5.Packet | None:
        """Return the next packet; None at the end of the connection. Raises
        MalformedPacketError."""
        ahead, self._ahead = self._ahead, None
        if isinstance(ahead, MalformedPacketError):
            raise ahead
        if ahead is not None:
            return ahead
        while (packet := read_packet(self._buffer)) is None:
            try:
                data = await self._stream.receive_some(READ)
            except LOST:
                return None
            if not data:
                return None
            self._buffer += data
        return packet

    def publications(self, most: int) -> list[mqtt5.PublishPacket]:
        """Return the next PUBLISH packets that have arrived already, at most `most`."""
        found: list[mqtt5.PublishPacket] = []
        while len(found) < most and self._ahead is None:
            try:
                packet = read_packet(self._buffer)
            except MalformedPacketError as error:  # those before it are in order
                packet = None
                self._ahead = error
            if packet is None:
                break
            if isinstance(packet, mqtt5.PublishPacket):
                found.append(packet)
            else:
                self._ahead = packet
        return found

    async def send(self, *packets: mqtt5.Packet) -> None:
        """Send packets together. A packet that is too large for the client is sent without its
        reason (MQTT 5.0, 3.1.2.11.4), or not at all if it is still too large. Raises Gone."""
        written = (self._fitting(packet) for packet in packets)
        if data := b"".join(found for found in written if len(found) <= self.most):
            await self.send_raw(data)

    def _fitting(self, packet: mqtt5.Packet) -> bytes:
        """Encode a packet, without its reason if the client does not accept that."""
        written = packet.write()
        if len(written) <= self.most and (self.may_explain or isinstance(packet, EXPLAINING)):
            return written
        return without_reason(packet).write()

    async def send_raw(self, data: bytes) -> None:
        """Send encoded packets. A task that is cancelled meanwhile ends the stream: what followed
        half a packet would be taken for its rest. Raises Gone."""
        async with self._sending:
            if self._is_cut:
                raise Gone("a packet was not sent to its end")
            self._is_cut = True
            await send_all(self._stream, data)
            self._is_cut = False


def read_packet(buffer: bytearray) -> mqtt5.Packet | None:
    """Take the first packet out of `buffer`; None if it is incomplete. Raises
    MalformedPacketError."""
    if packet_size(buffer) > MESSAGE_LIMIT:
        code = mqtt5.DisconnectReasonCode.PACKET_TOO_LARGE
        raise MalformedPacketError(f"a packet larger than {MESSAGE_LIMIT} bytes", code)
    code = mqtt5.DisconnectReasonCode.MALFORMED_PACKET
    begin, end = packet_span(buffer)
    if not end and len(buffer) >= HEADER:
        raise MalformedPacketError("a length of more than four bytes", code)
    if not end or end > len(buffer):
        return None
    whole = bytes(buffer[:end])
    del buffer[:end]
    try:
        check_bytes(whole, begin)
        packet = _decoded(whole)
        check_packet(packet)
    except MalformedPacketError as error:
        error.is_connect = whole[0] >> 4 == CONNECT
        raise
    return packet


def _decoded(whole: bytes) -> mqtt5.Packet:
    code = mqtt5.DisconnectReasonCode.MALFORMED_PACKET
    try:
        return mqtt5.read(memoryview(whole))[0]
    except IndexError:  # its parts are longer than it is
        raise MalformedPacketError("a packet that ends too early", code) from None
    except ValueError as error:
        text = str(error)
        code = next((known for word, known in PROTOCOL_ERRORS if word in text), code)
        raise MalformedPacketError(text, code, "protocol version" in text) from None
    except BaseException as error:  # so ends the codec that meets what it did not foresee
        if type(error).__name__ != "PanicException":
            raise
        raise MalformedPacketError(UNFORESEEN, code) from None


def packet_size(buffer: bytes | bytearray) -> int:
    """Return the size of the buffer's first packet without its header; 0 while it is unknown."""
    begin, end = packet_span(buffer)
    return end - begin


def packet_span(buffer: bytes | bytearray) -> tuple[int, int]:
    """Return where the header of the first packet in the buffer ends, and where the packet ends;
    (0, 0) while too few bytes have arrived to know that."""
    size = 0
    for place, byte in enumerate(buffer[1:HEADER]):
        size |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return place + 2, place + 2 + size
    return 0, 0


def without_reason(packet: mqtt5.Packet) -> mqtt5.Packet:
    """Return the packet without its reason."""
    match packet:
        case mqtt5.PubAckPacket():
            return mqtt5.PubAckPacket(packet.packet_id, reason_code=packet.reason_code)
        case mqtt5.SubAckPacket():
            return mqtt5.SubAckPacket(packet.packet_id, packet.reason_codes)
        case mqtt5.DisconnectPacket():
            return mqtt5.DisconnectPacket(reason_code=packet.reason_code)
        case mqtt5.ConnAckPacket() if packet.reason_code:
            return mqtt5.ConnAckPacket(reason_code=packet.reason_code)
    return packet
