"""Why programs are refused, and why they wait: one vocabulary, whoever says it.

A reason is a code, by which programs and exit codes tell them apart, and a text for people. Codes
of what a program itself has got wrong (usage, selector, event) are not here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from overlay.client import NO_MAJORITY
from overlay.machine import Peer
from streams.access.locator import StreamLocated

REMOVED: Final = "unknown"
"""There is no such stream, or not any more."""
TIME_OUT: Final = "time-out"
"""Nobody has answered in time: it is not known whether it was carried out."""
MALFORMED: Final = "malformed"
"""Leaders answer what no honest leader answers."""


class Cause(NamedTuple):
    """Why something does not happen."""

    code: str
    text: str


def replaced() -> Cause:
    """The stream that was meant is no more."""
    return Cause(REMOVED, "the stream was removed, and there is another one")


def no_majority(located: StreamLocated, shard: int) -> Cause | None:
    """That too few replicas of a shard answer for anything to be committed; None: enough do, as far
    as is known."""
    said = located.no_majority(shard)
    return Cause(NO_MAJORITY, said) if said else None


def stuck(located: StreamLocated, shard: int) -> Cause | None:
    """As `no_majority`, of a shard that has no leader either, so that nothing can be read."""
    return no_majority(located, shard) if located.leaders[shard] is None else None


def no_answer(stream: str, shard: int) -> Cause:
    """No leader of a shard has answered a question."""
    return Cause(TIME_OUT, f"no leader of shard {shard} of {stream} has answered")


def protocol_error(shard: int, leader: Peer | None, why: str) -> Cause:
    """Leaders of a shard go on giving answers that no honest leader gives."""
    node = "" if leader is None else f", {leader.id},"
    return Cause(MALFORMED, f"the leader of shard {shard}{node} answers what cannot be: {why}")
