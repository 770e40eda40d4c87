"""When programs' nodes repeat, ask elsewhere and give up: every number of it, with its reason.

Seconds, unless another unit is named. Readings, memberships, sessions of producers and questions
to leaders and owners all use these.
"""

from __future__ import annotations

from typing import Final

PAUSE: Final = 0.05
"""Between two looks at producers with something under way, and before what a leader has refused for
a while is sent again for the first time; twice as long each time, up to `KEEP_ALIVE`. Short, since
programs wait with all that follows."""

LOOK: Final = 0.25
"""Between two looks at sessions and questions: what was lost or refused for a while is asked again
at the next one, and the owner of a stream where a shard has no leader, or the wrong one. An
election takes one to two seconds, of which this may add a fifth; 10,000 sessions are looked at in
5 ms."""

DOUBT: Final = 0.7
"""Without an answer after which it is asked who leads, where rows were sent, or who owns the
stream's name, where that was asked: above the time that a chunk takes on a slow disk, or a lookup
its round trips."""

KEEP_ALIVE: Final = 1.0
"""Between two words to a leader about what is wanted there; also what a durable consumer or a
member has said is repeated so often until it is answered. A leader that hears nothing ends a
session after `streams.services.read.shard_readings.SILENT`."""

SILENT: Final = 3.0
"""Without a word of a leader after which another one is looked for: three keep-alives, and above a
slow fdatasync at a majority. An origin of copies that cannot be read, for a reason that people have
to look at, is tried again after it."""

FORK_AFTER: Final = 5.0
"""Seconds for which a replica has to be without a leader or a majority before it opens a fork, and
for which a producer waits before it asks for one: twice an election with a lost owner, so that a
failover alone makes no fork; and more than the 3 s at which a leader asks followers that are
idle."""

GIVE_UP: Final = 15.0
"""After which a question is given up: to the owner of a stream (three elections of its cluster), or
of an operator to leaders. A session is left after it, though others of the same leader are
answered, and rows are sent again to a leader that does not answer: it does within
`appender.ANSWER_WITHIN`, if only that it does not know."""

HINTS_MOST: Final = 2
"""Leaders that former leaders have named, one after the other, after which the owner of the stream
is asked: two nodes that name one another would send a request to and fro."""

PROTOCOL_ERRORS_MOST: Final = 40
"""Answers of a shard's leaders that no honest leader gives, without a right one in between, after
which a session fails: it is opened again after each at the next look, so ten seconds, in which
another node may lead."""
