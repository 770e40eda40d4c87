"""Packets on a stream: the codec is the package ``mqtt5``; the bounds are ours."""

from __future__ import annotations

import mqtt5
import trio

from canopy.gateway.constants import MESSAGE_LIMIT
from canopy.gateway.http.exchange import LOST, READ, send_all

HEADER = 5
"""Bytes of a packet's type and length at most (MQTT 5.0, section 2.1)."""


class MalformedError(Exception):
    """What came is no MQTT 5. `code` of a DISCONNECT; `is_old`: it is an older version of it."""

    def __init__(self, reason: str, code: mqtt5.DisconnectReasonCode, is_old: bool = False) -> None:
        super().__init__(reason)
        self.code = code
        self.is_old = is_old


class PacketStream:
    """Reads and writes packets. One task reads; several may write."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._sending = trio.Lock()
        self._ahead: mqtt5.Packet | MalformedError | None = None  # what `publications` has met

    async def receive(self) -> mqtt5.Packet | None:
        """The next packet; None when the connection has ended. Raises MalformedError."""
        ahead, self._ahead = self._ahead, None
        if isinstance(ahead, MalformedError):
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
        """The next packets as far as they have come already and are PUBLISH, at most so many."""
        found: list[mqtt5.PublishPacket] = []
        while len(found) < most and self._ahead is None:
            try:
                packet = read_packet(self._buffer)
            except MalformedError as error:  # those before it are in order
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
        """Send packets together. Raises Gone."""
        await self.send_raw(b"".join([packet.write() for packet in packets]))

    async def send_raw(self, data: bytes) -> None:
        """Send packets that are written already. Raises Gone."""
        async with self._sending:
            await send_all(self._stream, data)


def read_packet(buffer: bytearray) -> mqtt5.Packet | None:
    """Take the first packet out of `buffer`; None if it is not whole. Raises MalformedError."""
    if packet_size(buffer) > MESSAGE_LIMIT:
        code = mqtt5.DisconnectReasonCode.PACKET_TOO_LARGE
        raise MalformedError(f"a packet larger than {MESSAGE_LIMIT} bytes", code)
    view = memoryview(buffer)
    code = mqtt5.DisconnectReasonCode.MALFORMED_PACKET
    try:
        packet, size = mqtt5.read(view)
    except IndexError:
        return None
    except ValueError as error:
        raise MalformedError(str(error), code, "protocol version" in str(error)) from None
    except BaseException as error:  # the codec panics at texts that are not UTF-8 (mqtt5 0.8.0)
        if type(error).__name__ != "PanicException":
            raise
        raise MalformedError("a text that is not UTF-8", code) from None
    finally:
        view.release()
    del buffer[:size]
    return packet


def packet_size(buffer: bytes | bytearray) -> int:
    """The size of the packet that begins here, as far as it is known; 0 if it is not."""
    size = 0
    for place, byte in enumerate(buffer[1:HEADER]):
        size |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return size
    return 0
