"""Why programs are refused, and why they wait: one vocabulary, whoever says it.

A reason is a code, by which programs, exit codes and other nodes tell reasons apart, and a text for
people. Leaders, owners and programs' nodes use the codes below in all messages about streams; codes
of what a program itself has got wrong (usage, event) are not here; `overlay.client` has the code of
*no majority*, which the command line knows as well.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from overlay.machine import Peer

# -- from leaders, to be repeated: programs do not hear of it --------------------------------------

MOVED: Final = "moved"
"""The node does not lead the shard (any more). Whether it was carried out is not known: repeat the
request, with the same numbers, at the leader."""
NOT_YET: Final = "unknown"
"""The leader cannot say yet, or no majority has confirmed it in time."""
BUSY: Final = "busy"
"""Too much waits for a commit at the leader."""
DISK_FULL: Final = "disk-full"
"""The leader's disk has no room. Not known to be appended."""
ELSEWHERE: Final = "elsewhere"
"""Another shard decides for all of the transaction."""

NOT_HERE: Final = (MOVED, NOT_YET)
"""Another leader may serve the session that this one refuses."""

# -- of streams and shards -------------------------------------------------------------------------

REMOVED: Final = "unknown"
"""There is no such stream, or not any more."""
TIME_OUT: Final = "time-out"
"""Nobody has answered in time: it is not known whether it was carried out."""
FULL: Final = "full"
"""There is as much as there can be: of rows that are not committed, readings, durable consumers,
groups, or members. To be repeated after a while."""
QUOTA: Final = "quota"
"""The shard has as many bytes as its stream may have. Not appended."""
POLICY: Final = "policy"
"""The policy does not permit the sender's tenant to do this, or the stream has other writers."""
MALFORMED: Final = "malformed"
"""What was sent cannot be read, or leaders answer what no honest leader answers."""
TOO_LARGE: Final = "too-large"
"""A batch is larger than a chunk may be. Not appended."""

# -- of sessions -----------------------------------------------------------------------------------

FENCED: Final = "fenced"
"""A newer session of this producer, durable consumer or member has ended this one."""
EXPIRED: Final = "expired"
"""Nothing is known of this producer or durable consumer (any more)."""
IN_DOUBT: Final = "in-doubt"
"""What was sent may be appended or not, or in part, and nobody is asked any more."""
SEQUENCE: Final = "sequence"
"""The numbers do not follow on the producer's last. Not appended."""
SELECTOR: Final = "selector"
"""The selector cannot be read, or is not that of the durable consumer or group."""
OUT_OF_RANGE: Final = "offset-out-of-range"
"""There is no such row (any more)."""
LOST: Final = "position-lost"
"""Rows below the position are lost, or were another stream's: there is no going on there. A group
goes on before them, and its next program is told so."""
NO_KEY: Final = "no-key"
"""The stream has no key of which each value has a newest row."""
UNREADABLE: Final = "unreadable"
"""The log of the shard's only replica is damaged there."""

# -- of groups and transactions --------------------------------------------------------------------

OPTIONS: Final = "options"
"""Another option is not that of the group."""
UNKNOWN_GROUP: Final = "unknown-group"
"""There is no such group (any more)."""
NOT_DEAD: Final = "not-dead"
"""The group has no such dead letter."""
UNKNOWN_TRANSACTION: Final = "unknown-transaction"
"""There is no such half, or it was decided too long ago."""
CONFLICT: Final = "conflict"
"""The transaction's id is taken by another producer."""


class Cause(NamedTuple):
    """A code and a text for why a request cannot be carried out."""

    code: str
    text: str


def replaced() -> Cause:
    """Return the cause for a stream that was removed and replaced by another."""
    return Cause(REMOVED, "the stream was removed, and there is another one")


def no_answer(stream: str, shard: int) -> Cause:
    """No leader of a shard has answered a question."""
    return Cause(TIME_OUT, f"no leader of shard {shard} of {stream} has answered")


def protocol_error(shard: int, leader: Peer | None, why: str) -> Cause:
    """Leaders of a shard go on giving answers that no honest leader gives."""
    node = "" if leader is None else f", {leader.id},"
    return Cause(MALFORMED, f"the leader of shard {shard}{node} answers what cannot be: {why}")
