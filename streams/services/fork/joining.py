"""A producer goes on in a fork: what the fork's log says of it from then on.

The fork does not have the main log's rows, so the producer says from which number on its rows are
not acknowledged. Some of these may be in the main log all the same: those of which the holder knows
that they are committed count as appended; of all others it is found out when the fork is copied.
"""

from __future__ import annotations

from msgspec.structs import replace

from streams.access.reasons import FENCED
from streams.log.state import ProducerState
from streams.programs.producer.messages import JoinFork
from streams.services.append.numbers import Wrong
from streams.shard.replica import Replica


def joined(
    message: JoinFork, known: ProducerState | None, main: Replica | None
) -> ProducerState | Wrong:
    """What the fork is to say of the producer. `known`: what it says; `main`: the holder's replica
    of the main log."""
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
