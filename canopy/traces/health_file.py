"""The health file, which `canopy trace health` writes and nodes load (T6).

JSON, written by ``canopy trace health`` and read by nodes whose configuration names it
(docs/reference/formats.md). This file has the format alone: it opens no file and has no clock.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

FORMAT: Final = "canopy-health"
VERSION: Final = 1  # incremented when a field changes its meaning, not for new fields

NODES_MOST: Final = 100_000
"""Nodes of one file. Guess; to be measured by the memory of a node that has loaded as many."""

Time = Annotated[float, Meta(ge=0, le=1e11)]
"""Seconds since 1970."""


class HealthFileError(ValueError):
    """The bytes are no health file of this version."""


class NodeFinding(msgspec.Struct, frozen=True):
    """The finding on one node within the window."""

    severity: Annotated[int, Meta(ge=0, le=3)]
    """Tensor's threat level: 0 healthy, 1 relatively high, 2 high, 3 extremely high."""
    reason: Annotated[str, Meta(max_length=1_000)]
    """The first signal on the way down the tree, for people; "" of a healthy node."""
    signals: dict[str, float] = {}
    """All signals that were hit, each with the worst value."""
    name: str = ""
    learnt: str = ""
    """The fault that the learnt tree names, or "none"; "": it was not asked."""


class HealthFile(msgspec.Struct, frozen=True):
    """The content of a health file (docs/reference/formats.md). Times are seconds since 1970."""

    until: Time  # of the newest trace record: by this it is new or stale
    window: float  # seconds before `until` that were looked at
    nodes: Annotated[dict[str, NodeFinding], Meta(max_length=NODES_MOST)]
    thresholds: dict[str, float] = {}
    made: Time = 0.0  # when it was written
    format: Literal["canopy-health"] = FORMAT
    version: Literal[1] = VERSION


_DECODER: Final = msgspec.json.Decoder(HealthFile)


def decode_health(data: bytes) -> HealthFile:
    """Decode a health file. Raises HealthFileError, which names the fault."""
    try:
        found = _DECODER.decode(data)
        marked = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise HealthFileError(f"not a health file: {error}") from None
    if marked.get("format") != FORMAT or marked.get("version") != VERSION:
        raise HealthFileError(f"not a health file: no format {FORMAT!r} of version {VERSION}")
    return found


def encode_health(file: HealthFile) -> bytes:
    """`file` as JSON, a line per node."""
    return msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n"
