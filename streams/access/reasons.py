"""Why programs are refused, and why they wait: one vocabulary, whoever says it.

A reason is a code, by which programs, exit codes and other nodes tell reasons apart, and a text for
people. Leaders, owners and programs' nodes use the codes below in all messages about streams; codes
of what a program itself has got wrong (usage, event) are not here; `overlay.client` has the code of
*no majority*, which the command line knows as well. The texts below the codes that programs hear
are a page of the reference (`python -m bench.site.pages reasons`).
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
"""There is no such stream. Shortly after a start or a lost cluster this may be said of a stream
that exists: repeat."""
TIME_OUT: Final = "time-out"
"""Nobody has answered in time: it is not known whether the request was carried out. The node may
still be trying; repeat as the same producer."""
FULL: Final = "full"
"""A bound is reached: of uncommitted rows, undecided transactions (1,000 or 64 MiB of a shard),
readings, durable consumers, groups, members, or former selectors of a group. Nothing was done;
repeat later."""
QUOTA: Final = "quota"
"""The shard has as many rows, bytes or keys as its stream may have. Not appended."""
POLICY: Final = "policy"
"""The policy does not permit the sender's tenant to do this, or the stream has other writers."""
MALFORMED: Final = "malformed"
"""The request cannot be read, a row lacks the key of its stream, or leaders answer what no honest
leader answers (the text names the node)."""
TOO_LARGE: Final = "too-large"
"""A batch is larger than a chunk may be (896 KiB). Not appended."""

# -- of sessions -----------------------------------------------------------------------------------

FENCED: Final = "fenced"
"""A newer session of this producer, durable consumer or member has ended this one. Stop."""
EXPIRED: Final = "expired"
"""The stream does not know this producer or durable consumer (any more). Begin again, and look at
what is there."""
IN_DOUBT: Final = "in-doubt"
"""Rows may be appended, or a part of them, and nobody is asked any more: a fork was closed before
it answered, some of several shards refused (the text says which), or no majority answers the
leader."""
SEQUENCE: Final = "sequence"
"""The number of the first row is above what the stream has of this producer. Not appended."""
SELECTOR: Final = "selector"
"""The selector cannot be read (a mark shows the place), or is not that of the durable consumer or
group (which the text has)."""
OUT_OF_RANGE: Final = "offset-out-of-range"
"""There is no such row (any more). The text has the offsets that there are."""
LOST: Final = "position-lost"
"""Rows below the position are lost, or were another stream's. A reading begins again. A durable
consumer or group continues before the lost rows at the next attempt; its program hears of it
once."""
NO_KEY: Final = "no-key"
"""The stream has no key of which each value has a newest row."""
UNREADABLE: Final = "unreadable"
"""The log of the shard's only replica is damaged there. Begin behind that offset, or restore the
file."""

# -- of groups and transactions --------------------------------------------------------------------

OPTIONS: Final = "options"
"""Another option is not that of the group (which the text has), is invalid, or cannot be
changed."""
UNKNOWN_GROUP: Final = "unknown-group"
"""There is no such group (any more)."""
NOT_DEAD: Final = "not-dead"
"""The group has no such dead letter."""
UNKNOWN_TRANSACTION: Final = "unknown-transaction"
"""The transaction was never prepared, or was decided more than 1,000 decisions ago."""
CONFLICT: Final = "conflict"
"""Another producer uses the transaction's id."""


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
