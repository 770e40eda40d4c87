"""Messages to bytes and back: the one map between tag and type (docs/reference/wire.md).

All `Message` classes in the ``messages.py`` files of the overlay and of streams form one typed
union, whose tag is the class's name. Decoding knows only this union, so that a peer can forge
neither a timer nor a command, and a hostile body costs no more than its types allow: msgspec builds
typed structs directly (1 MiB of nested MessagePack takes 2 MB, decoded without types 75 MB), checks
lengths against the rest of the body before it allocates, and bounds recursion.

The body of a batch is a MessagePack array. Its parts are encoded one by one when they are sent and
only concatenated behind an array header when the batch is cut: nothing is encoded twice, neither
for two peers nor for a second attempt.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, Final, Union

import msgspec

import overlay
import streams
from canopy.wire.constants import BODY_LIMIT
from canopy.wire.transport.framing import MALFORMED, shorten
from overlay.machine import Message, ProtocolError


def message_modules() -> list[ModuleType]:
    """Return all modules below ``overlay`` and ``streams`` whose names end with ``messages``, by
    name."""
    packages = (overlay, streams)
    names = sorted(
        found.name
        for package in packages
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    )
    return [importlib.import_module(name) for name in names if name.endswith("messages")]


def collect(modules: Iterable[ModuleType]) -> dict[str, type[Message]]:
    """Return the class of each tag, for all messages that `modules` define themselves, in order of
    definition.

    AssertionError if two classes have the same tag, which is a fault of this program.
    """
    types: dict[str, type[Message]] = {}
    for module in modules:
        for found in vars(module).values():
            if not (isinstance(found, type) and issubclass(found, Message)):
                continue
            if found.__module__ != module.__name__:
                continue  # imported there, defined elsewhere
            tag = str(found.__struct_config__.tag)
            other = types.get(tag)
            assert other is None or other is found, (
                f"two messages have the tag {tag}: {other} and {found}"
            )
            types[tag] = found
    return types


MESSAGES: Final[dict[str, type[Message]]] = collect(message_modules())
"""Every message that peers may send, by its tag."""


def array_header(length: int) -> bytes:
    """Return the MessagePack header of an array of `length` items."""
    if length < 16:
        return bytes((0x90 | length,))
    if length < 1 << 16:
        return b"\xdc" + length.to_bytes(2, "big")
    return b"\xdd" + length.to_bytes(4, "big")


class WireCodec:
    """The codec of `overlay.links.events.Codec` for all messages of the overlay. Pure.

    `messages`: the known classes, `MESSAGES` by default.
    """

    def __init__(self, messages: Sequence[type[Message]] | None = None) -> None:
        known = tuple(MESSAGES.values()) if messages is None else tuple(messages)
        union: Any = Union[known]  # noqa: UP007 - built from a list
        self._encoder = msgspec.msgpack.Encoder()
        self.encode_one: Callable[[Message], bytes] = self._encoder.encode
        """Encodes one message, for `join`."""
        self._decoder: msgspec.msgpack.Decoder[list[Message]] = msgspec.msgpack.Decoder(list[union])

    def encode(self, messages: Sequence[Message]) -> bytes:
        """Return a list of messages as the body of a batch."""
        return self._encoder.encode(list(messages))

    def join(self, encoded: Sequence[bytes]) -> bytes:
        """Return encoded messages as the body of one batch."""
        if len(encoded) == 1:  # as most are
            return b"\x91" + encoded[0]
        return array_header(len(encoded)) + b"".join(encoded)

    def decode(self, body: bytes) -> list[Message]:
        """Return the messages of a body.

        Raises ProtocolError on anything that is not a list of known messages: unknown tag, wrong
        type, too deep, truncated, trailing bytes, or more than `BODY_LIMIT` bytes.
        """
        if len(body) > BODY_LIMIT:
            raise ProtocolError(f"a body of {len(body)} bytes is more than {BODY_LIMIT}")
        try:
            return self._decoder.decode(body)
        except MALFORMED as error:
            raise ProtocolError(f"bad message: {shorten(error)}") from None
