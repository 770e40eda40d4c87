"""A codec for many nodes in one process: what an owner sends to many hosts is in memory once."""

from __future__ import annotations

from collections.abc import Iterable

from canopy.wire.transport.codec import WireCodec
from overlay.machine import Message
from overlay.upper_tree.compiled_selectors import compiled, keep, keep_at_most
from overlay.upper_tree.messages import Install, Registration

KEPT = 500_000
"""Predicates: of all registrations of the largest figure, eight for each of 10,000 subscriptions,
several times over."""


class SharingCodec(WireCodec):
    """Decodes as the wire's codec; equal registrations that hosts are given are one object, with
    one compiled predicate. They are immutable, so no node notices."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[str, str], Registration] = {}
        keep_at_most(KEPT)

    def decode(self, body: bytes) -> list[Message]:
        """The messages of a body; ProtocolError as in `WireCodec`."""
        found = super().decode(body)
        return [self._install(each) if type(each) is Install else each for each in found]

    def _install(self, message: Install) -> Install:
        return Install(message.attribute, message.epoch, self._shared(message.registrations))

    def _shared(self, registrations: Iterable[Registration]) -> tuple[Registration, ...]:
        found = []
        for one in registrations:
            known = self._known.get((one.attribute, one.id))
            if known is None or known != one:
                known = self._known[one.attribute, one.id] = one
                keep(compiled(one.selector))
            found.append(known)
        return tuple(found)
