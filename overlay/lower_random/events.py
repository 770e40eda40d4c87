"""What the lower layer emits for the machines above."""

from __future__ import annotations

from overlay.lower_random.messages import AccessPoint, RingHint
from overlay.machine import LocalEvent


class RingHintReceived(LocalEvent, frozen=True):
    """An exchange brought a way into a ring. Emitted for old news, too."""

    hint: RingHint


class WalkFound(LocalEvent, frozen=True):
    """A walk of this node found an access point, `hop` messages away (0: in its own table), and
    perhaps others of the same tree."""

    point: AccessPoint
    hop: int
    others: tuple[AccessPoint, ...] = ()


class WalkFailed(LocalEvent, frozen=True):
    """A walk of this node ended at `hop` without finding these attributes, or was not heard of in
    time (hop 0)."""

    attributes: tuple[str, ...]
    hop: int
