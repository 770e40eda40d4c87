"""What nodes ask one another for a person who runs one."""

from __future__ import annotations

from overlay.machine import Message, Uint53


class AskClock(Message, frozen=True):
    """What does the receiver's wall clock show?"""

    overtakes = True
    capability = "clocks"

    number: Uint53


class ClockTold(Message, frozen=True):
    """Answer to AskClock: the sender's wall clock, in microseconds since 1970."""

    overtakes = True
    capability = "clocks"

    number: Uint53
    wall: Uint53
