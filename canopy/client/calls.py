"""Calls: an event that asks for answers, and the events that answer it (no IO).

A call has an address of its own, a random text. The event that asks has it as the attribute
``answer_to``, and its answers as ``answers``, to which the caller has subscribed before: so who
answers is found by content, as everybody, and nobody else sees the answers.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from canopy.client.notices import Notice
from matching import Value
from overlay.client import Delivery, Draft, Event

ASKING: Final = "answer_to"
ANSWERING: Final = "answers"


class Call:
    """One call: the event to publish, the selector to subscribe to before, and the answers."""

    def __init__(self, asking: Draft, most: int, timeout: float) -> None:
        """Up to `most` answers are waited for, for `timeout` seconds from `begin` on."""
        self.address = secrets.token_hex(8)
        self.draft = replace(asking, attributes={**asking.attributes, ASKING: self.address})
        self.selector = f"{ANSWERING} = '{self.address}'"
        self.found: list[Event] = []
        self._most = most
        self._timeout = timeout
        self._deadline = 0.0

    def begin(self) -> None:
        """The event leaves now. What the subscription to its answers took is no part of the
        time: on a busy machine nobody would be waited for."""
        self._deadline = time.monotonic() + self._timeout

    @property
    def left(self) -> float:
        """For how many seconds answers are still waited for; 0: no more."""
        if len(self.found) >= self._most:
            return 0.0
        return max(0.0, self._deadline - time.monotonic())

    def take(self, items: Iterable[Delivery | Notice]) -> None:
        """Take what has come for the subscription."""
        self.found += [item.event for item in items if isinstance(item, Delivery)]
        del self.found[self._most :]


def answering(event: Event, attributes: Mapping[str, Value]) -> dict[str, Value]:
    """The attributes of an answer to `event`. ValueError if that asks for none."""
    address = event.attributes.get(ASKING)
    if not isinstance(address, str):
        raise ValueError(f"the event asks for no answer: it has no attribute {ASKING}")
    return {**attributes, ANSWERING: address}
