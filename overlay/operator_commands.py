"""Commands of a node's operator, beside those of `overlay.client`: `canopy reload`, `canopy doctor`
and `canopy schema`."""

from __future__ import annotations

import msgspec

from overlay.client import Command, Reply
from overlay.machine import NodeId


class Reload(Command, frozen=True):
    """Read the configuration again, as SIGHUP has it. Handled by the process (canopy/wire/), not by
    the node. Answered by Reloaded, or by Failed (code usage) where the configuration is invalid:
    then nothing has changed."""


class ChangedSetting(msgspec.Struct, frozen=True, array_like=True):
    """A key whose value has changed, with both values as text. `effective`: from when the new value
    holds, "now" or "restart" (of the node)."""

    key: str
    before: str
    after: str
    effective: str


class Reloaded(Reply, frozen=True):
    """The changes after the configuration was read again. `read`: the sources: the configuration
    file, or "" where the node has none, and others that a reload covers."""

    read: tuple[str, ...]
    changed: tuple[ChangedSetting, ...]


class GetClocks(Command, frozen=True):
    """Ask neighbours what their wall clocks show. Answered by Clocks, within
    `overlay.lower_random.clock_offsets.CLOCK_TIMEOUT`."""


class ClockOffset(msgspec.Struct, frozen=True, array_like=True):
    """A neighbour's wall clock beside this node's.

    `offset`: seconds by which it is ahead; the error is at most half of `round_trip` (seconds).
    `state`: "answered", "silent" (no answer in time), or "older" (its version cannot be asked)."""

    node: NodeId
    address: str
    state: str
    offset: float = 0.0
    round_trip: float = 0.0


class Clocks(Reply, frozen=True):
    """The wall clocks of this node's neighbours."""

    clocks: tuple[ClockOffset, ...]


class GetSchemas(Command, frozen=True):
    """Ask for the schemas of events that this node checks. Answered by Schemas."""


class EventSchema(msgspec.Struct, frozen=True, array_like=True):
    """The JSON Schema, as a JSON text, of the events of a type. `attributes`: the names that it
    has."""

    type: str
    text: str
    attributes: tuple[str, ...]


class Schemas(Reply, frozen=True):
    """The schemas, by type. `otherwise`: what becomes of events that are not so: "refuse", "park"
    or "count"; "": there are no schemas."""

    schemas: tuple[EventSchema, ...]
    otherwise: str


OPERATOR_COMMANDS = Reload | GetClocks | GetSchemas
OPERATOR_REPLIES = Reloaded | Clocks | Schemas
