"""Canopy: a content-based publish/subscribe overlay of peers, and its client library.

A program talks to a node on its own machine (`canopy node`):

>>> import canopy
>>> with canopy.connect() as client:
...     with client.subscribe("mag >= 4.5 AND place LIKE '%Alaska'") as quakes:
...         client.publish({"mag": 5.1, "place": "Nome, Alaska"}).count
...         for event in quakes:
...             print(event.attributes["place"], event.attributes["mag"])
...             break
1
Nome, Alaska 5.1

`trio` and `aio` are the same for trio and asyncio, `schemas` has the JSON Schemas of events, and
`__main__` is the command. See docs/guide/python.md. The names below are loaded when they are first
used, so `import canopy` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from canopy.client.client import Client, connect
    from canopy.client.consumer import Gathering, Subscription
    from canopy.client.errors import (
        AddressError,
        CommandFailed,
        CommandTimeoutError,
        ContextError,
        ControlError,
        DeniedError,
        EventRefusedError,
        NodeFullError,
        NodeLeavingError,
        NoMajorityError,
        SelectorRefusedError,
        SubscriptionEndedError,
        UnknownContextError,
        UnreachableError,
    )
    from canopy.client.frames import OpaqueEvent
    from canopy.client.notices import Disconnected, Gap
    from canopy.client.publication import PublishResult
    from canopy.client.seals import seal_of
    from canopy.client.streams.management import newest_stream
    from canopy.client.streams.membership import Member
    from canopy.client.streams.positions import Positions
    from canopy.client.streams.producer import AppendResult, Producer, ProducerStart
    from canopy.client.streams.reading import Reading
    from overlay.client import Delivery, Draft, Event, StreamEvent
    from overlay.info import AppendReceipt
    from overlay.stream_client import GroupRow

__all__ = [
    "AddressError",
    "AppendReceipt",
    "AppendResult",
    "Client",
    "CommandFailed",
    "CommandTimeoutError",
    "ContextError",
    "ControlError",
    "Delivery",
    "DeniedError",
    "Disconnected",
    "Draft",
    "Event",
    "EventRefusedError",
    "Gap",
    "Gathering",
    "GroupRow",
    "Member",
    "NoMajorityError",
    "NodeFullError",
    "NodeLeavingError",
    "OpaqueEvent",
    "Positions",
    "Producer",
    "ProducerStart",
    "PublishResult",
    "Reading",
    "SelectorRefusedError",
    "StreamEvent",
    "Subscription",
    "SubscriptionEndedError",
    "UnknownContextError",
    "UnreachableError",
    "connect",
    "newest_stream",
    "seal_of",
]

_HOMES: Final = {
    "canopy.client.streams.producer": ("AppendResult", "Producer", "ProducerStart"),
    "canopy.client.streams.membership": ("Member",),
    "canopy.client.streams.reading": ("Reading",),
    "canopy.client.streams.management": ("newest_stream",),
    "canopy.client.streams.positions": ("Positions",),
    "canopy.client.errors": (
        "AddressError",
        "CommandFailed",
        "CommandTimeoutError",
        "ContextError",
        "ControlError",
        "DeniedError",
        "EventRefusedError",
        "NodeFullError",
        "NoMajorityError",
        "NodeLeavingError",
        "SelectorRefusedError",
        "SubscriptionEndedError",
        "UnknownContextError",
        "UnreachableError",
    ),
    "canopy.client.frames": ("OpaqueEvent",),
    "canopy.client.notices": ("Disconnected", "Gap"),
    "canopy.client.publication": ("PublishResult",),
    "canopy.client.seals": ("seal_of",),
    "canopy.client.client": ("Client", "connect"),
    "canopy.client.consumer": ("Gathering", "Subscription"),
    "overlay.client": ("Delivery", "Draft", "Event", "StreamEvent"),
    "overlay.info": ("AppendReceipt",),
    "overlay.stream_client": ("GroupRow",),
}


def __getattr__(name: str) -> Any:
    """Load a public name from its module (PEP 562)."""
    if name == "__version__":
        from importlib.metadata import version

        return version("canopy-overlay")
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
