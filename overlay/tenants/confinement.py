"""Confines or refuses a tenant's messages before a machine sees them: one table
(docs/design/security.md).

Asked for each message of a node whose certificate names a tenant, after its rights
(overlay/rights.py). A rule returns the message as it is to be taken, without what the tenant may
not say or see, and answers for the sender. A message without a rule, and not in `HARMLESS`, is
refused: a test demands that each message a leaf may send is in one of the two. The rules of streams
are in streams/tenant_rules.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from matching import SelectorError
from overlay.machine import Message, ProtocolError
from overlay.rights import Principal, Role
from overlay.tenants.policy import Confinement
from overlay.upper_tree.confined_registrations import narrowed
from overlay.upper_tree.inspection_messages import AskEvent, AskMatches, AskTrees, EventFacts
from overlay.upper_tree.messages import EventsRefused, Register, Registration, Visit
from overlay.upper_tree.visits import select_events


class Ruling(NamedTuple):
    """The decision about a message of a tenant."""

    message: Message | None
    """The message to be handled, perhaps narrowed; None: none."""
    answers: tuple[Message, ...] = ()
    refused: int = 0
    """The events, rows or questions of the message that were refused."""


Rule = Callable[[Confinement, Principal, Any], Ruling]

HARMLESS_NAMES: Final = (
    "RevocationsKnown DocumentVersion AskClock ClockTold Shuffle Walk Find Contact "
    "AskNeighbourhood Unregister Renew AskTree "
    "Invalidated CacheReport FindHosts EventFacts AskStream AskStreams AskShards AskFork "
    "KeepReadings EndReadings"
)
HARMLESS: Final = frozenset(HARMLESS_NAMES.split())
"""Messages that a tenant may send unchanged: they bring no events, and ask for none. (`EventFacts`
answers a question that this node asked; of where trees are and what their summaries admit a tenant
learns as much as any publisher.)"""


def _register(known: Confinement, sender: Principal, message: Register) -> Ruling:
    taken: list[Registration] = []
    for one in message.registrations:
        try:
            taken.append(confine(known, sender.tenant, one))
        except SelectorError as error:
            raise ProtocolError(f"a registration that cannot be narrowed: {error}") from None
    return Ruling(msgspec.structs.replace(message, registrations=tuple(taken)))


def confine(known: Confinement, tenant: str, registration: Registration) -> Registration:
    """A registration as its owner keeps it: what its subscriber asked for, AND the policy. Raises
    SelectorError if that is too large."""
    return narrowed(known, msgspec.structs.replace(registration, confined=None), tenant)


def _visit(known: Confinement, sender: Principal, message: Visit) -> Ruling:
    if message.origin.id != sender.id:
        return Ruling(message)  # on its way through a node that hosts; its first host has looked
    allowed = known.may_publish(sender.tenant, [event.attributes for event in message.events])
    if all(allowed):
        return Ruling(message)
    refused = tuple([e.sequence for e, may in zip(message.events, allowed, strict=True) if not may])
    places = [place for place, may in enumerate(allowed) if may]
    answer = EventsRefused(message.events[0].incarnation, refused, known.version)
    left = select_events(message, places) if places else None
    return Ruling(left, (answer,), len(refused))


def _ask_event(known: Confinement, sender: Principal, message: AskEvent) -> Ruling:
    return Ruling(None, (EventFacts(message.number, None, (), ""),), 1)


def refuse(known: Confinement, sender: Principal, message: Message) -> Ruling:
    """Refuse a question that tenants may not ask. The asker gets no answer."""
    return Ruling(None, (), 1)


RULES: Final[Mapping[type[Message], Rule]] = {
    Register: _register,
    Visit: _visit,
    AskEvent: _ask_event,
    AskTrees: refuse,
    AskMatches: refuse,
}
"""The rule for each message that is intersected, looked at or refused."""


def outcome(
    rules: Mapping[type[Message], Rule], known: Confinement, sender: Principal, message: Message
) -> Ruling:
    """Decide how to handle a message of a tenant. Raises ProtocolError for a message that no tenant
    sends."""
    rule = rules.get(type(message))
    if rule is not None:
        return rule(known, sender, message)
    if type(message).__name__ in HARMLESS or sender.role > Role.LEAF:
        return Ruling(message)
    raise ProtocolError(f"{type(message).__name__} is not for a tenant")
