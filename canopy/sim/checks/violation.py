"""The result of a check."""

from __future__ import annotations

import msgspec


class Violation(msgspec.Struct, frozen=True):
    """A property that does not hold. `about` names the event and the subscription concerned, if
    any, by their identities (`failure_report`)."""

    kind: str  # missing, spurious, duplicate, altered, late, unanswered, map, arc, …
    text: str
    about: tuple[str, ...] = ()
