"""The attribute ``traceparent``: W3C Trace Context (https://www.w3.org/TR/trace-context/,
section 3.2)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

ATTRIBUTE: Final = "traceparent"
SAMPLED: Final = 1
FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class TraceContext(NamedTuple):
    """Which trace an event belongs to. `parent`: the span that published it."""

    trace: str  # 32 hex digits
    parent: str  # 16 hex digits
    flags: int

    @property
    def is_sampled(self) -> bool:
        """Whether the publisher's tracer records this trace."""
        return bool(self.flags & SAMPLED)


def read_traceparent(text: object) -> TraceContext | None:
    """What the attribute says; None if it is not valid, which the specification has ignored. Of
    later versions than 00 the fields that this one has are taken."""
    found = FORM.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    version, trace, parent, flags, more = found.groups()
    if version == "ff" or (version == "00" and more):
        return None
    if not int(trace, 16) or not int(parent, 16):
        return None
    return TraceContext(trace, parent, int(flags, 16))
