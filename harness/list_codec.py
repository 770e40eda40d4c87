"""A codec for tests: the given message types, as MessagePack, with no bounds of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

import msgspec

from overlay.machine import Message, ProtocolError


class ListCodec:
    """The codec of links (`overlay.links.events.Codec`) for the given message types."""

    def __init__(self, *types: type[Message]) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(list[Union[types]])  # type: ignore[valid-type]  # noqa: UP007

    def encode(self, messages: Sequence[Message]) -> bytes:
        return self._encoder.encode(list(messages))

    def encode_one(self, message: Message) -> bytes:
        return self._encoder.encode(message)

    def join(self, encoded: Sequence[bytes]) -> bytes:
        return b"\xdd" + len(encoded).to_bytes(4, "big") + b"".join(encoded)

    def decode(self, body: bytes) -> list[Message]:
        try:
            return self._decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise ProtocolError(str(error)) from error
