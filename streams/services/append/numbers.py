"""Judges a batch by its producer's numbers and the log's knowledge of the producer.

A row's identity in a shard is (producer, sequence) (V7). The sequence has no gaps and goes on from
session to session, so that a program that starts again repeats what it is not sure of, and a batch
that overtook another one is not taken before it.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from streams.access.reasons import EXPIRED, FENCED, SEQUENCE
from streams.log.state import Appended, ProducerState
from streams.programs.producer.messages import JoinFork, opener_of
from streams.shard.replica import Replica


class New(NamedTuple):
    """The batch follows on the producer's last row."""


class Repeated(NamedTuple):
    """All its rows are in the log, at these places; None: where is no longer kept."""

    runs: tuple[Appended, ...] | None


class Wrong(NamedTuple):
    """The code and reason of a refused append."""

    code: str
    reason: str
    expected: int = 0


def replaced(known: ProducerState | None, token: str) -> Wrong | None:
    """Return why a program cannot continue as the producer in another session; None: it can, or it
    begins again. A program whose session was ended by another program's has to begin again, because
    rows below the next number may not be its own."""
    opener = opener_of(token)
    if not opener.resumed:
        return None
    if known is None:
        return Wrong(EXPIRED, "this producer is not known here, or not any more")
    former = opener_of(known.token)
    if former.program == opener.program and former.resumed <= opener.resumed:
        return None
    return Wrong(FENCED, f"session {known.session} of another program has replaced this one's")


def judge(
    known: ProducerState | None, session: int, following: int, sequence: int, count: int
) -> New | Repeated | Wrong:
    """Return how to handle a batch of `session` with `count` rows from `sequence` on. `known`: the
    producer's state in the log. `following`: the next number, after the queued rows."""
    if known is None:
        return Wrong(EXPIRED, "this producer is not known here: it was idle for too long")
    if known.session != session:
        return Wrong(FENCED, f"session {known.session} of the producer has replaced {session}")
    if sequence == following:
        return New()
    end = sequence + count
    if sequence > following or end > following:
        return Wrong(
            SEQUENCE, f"rows {sequence} to {end - 1} do not follow: {following} is next", following
        )
    return Repeated(places(known.window, sequence, count))


def places(window: tuple[Appended, ...], sequence: int, count: int) -> tuple[Appended, ...] | None:
    """Return where the rows are, by a producer's window; None if it does not have all of them."""
    found, at, end = [], sequence, sequence + count
    for run in window:
        last = min(end, run.sequence + run.count)
        if run.sequence <= at < last:
            offset = run.offset + at - run.sequence
            found.append(Appended(at, last - at, offset, run.chunk, run.epoch))
            at = last
    return tuple(found) if at == end else None


def joined(
    message: JoinFork, known: ProducerState | None, main: Replica | None
) -> ProducerState | Wrong:
    """Return a fork's state of a producer that comes from the main log, or why it may not come.
    `known`: its state in the fork. `main`: the replica of the main log at the node with the
    fork."""
    if known is not None and known.session > message.session:
        return Wrong(FENCED, f"session {known.session} of the producer has replaced this one")
    following = max(message.next, committed_in(main, message))
    if known is not None and known.session == message.session:
        # What the fork has beyond that was not answered; what it lacks is acknowledged elsewhere.
        return known if known.next >= following else replace(known, next=following, window=())
    return ProducerState(message.producer, message.session, following, ())


def committed_in(main: Replica | None, message: JoinFork) -> int:
    """Rows of the producer's session below this number are committed in the main log, as far as the
    holder knows; 0: it knows of none."""
    known = None if main is None else main.state.producers.get(message.producer)
    if main is None or known is None or known.session != message.session:
        return 0
    return max(
        (run.sequence + run.count for run in known.window if run.chunk <= main.committed), default=0
    )
