"""When programs' nodes repeat, ask elsewhere and give up: every number of it, with its reason.

Seconds, unless another unit is named. Readings, memberships, sessions of producers and questions
all use these; a number that only one of them uses says so.
"""

from __future__ import annotations

from typing import Final

LOOK: Final = 0.25
"""Between two looks at sessions: a session that was lost is opened again at the next one. An
election takes one to two seconds, of which this may add a fifth; 10,000 sessions are looked at in
5 ms."""

KEEP_ALIVE: Final = 4
"""Looks between two words to a leader about what is wanted there, a second; also what a durable
consumer or a member has said is repeated so often until it is answered."""

ANSWER_WITHIN: Final = 2.0
"""Without an answer to what opens a session, or to a question, after which another leader is looked
for: above a slow fdatasync at a majority, below what people wait for."""

SILENT: Final = 3.0
"""Without a word of the leader of an open session after which another one is looked for: three
keep-alives."""

BUSY: Final = 5
"""Times as long for one session while others of the same leader are answered: a leader that has
thousands to begin is late with some, and asking anew would only give it more to do."""

OPENING_MOST: Final = 500
"""Sessions that a leader is asked to open at a time: 0.1 s of work, most of it for selectors."""

PROTOCOL_ERRORS_MOST: Final = 40
"""Answers of a shard's leaders that no honest leader gives, without a right one in between, after
which a session fails: it is opened again after each at the next look, so ten seconds, in which
another node may lead."""

SHORT_LEASE: Final = 4.0
"""Leases of rows that wait for a program are extended at each look if they are shorter than this,
else with keep-alives: half of a shorter one may be over before the next of these."""

HINTS_MOST: Final = 2
"""Leaders that former leaders have named, one after the other, after which the owner of the stream
is asked: two nodes that name one another would send a request to and fro."""

REPEAT: Final = 0.2
"""After which what was refused for a while is asked again, and the owner of a stream where a shard
has no leader, or the wrong one: a tenth of an election."""

ASK_FOR: Final = 8.0
"""For which a question of an operator is asked again and again: two changes of a leader."""

ORIGIN_AGAIN: Final = 2.0
"""After which a stream that copies tries an origin again that cannot be read, for a reason that
people have to look at (`stream info` says it)."""

OWNER_AGAIN: Final = 0.7
"""Without an answer of the owner of a stream's name after which it is looked up again and asked: a
lookup takes some round trips, an election of its cluster a second and more."""

OWNER_FOR: Final = 15.0
"""After which a question to an owner is given up: three elections of a cluster."""

PAUSE: Final = 0.05
"""Between two looks at producers with something under way, and before what a leader has refused for
a while is sent again for the first time; twice as long each time, up to `PAUSE_MOST`. Short, since
programs wait with all that follows."""

PAUSE_MOST: Final = 1.0
"""As `PAUSE`, in the end: what a leader does not take for long costs it little."""

DOUBT: Final = 0.5
"""Without an answer to rows after which it is asked who leads, and in a stream that prefers
availability another replica for a fork: above the time that a chunk takes on a slow disk."""

RESEND: Final = 15.0
"""Without an answer to rows after which they are sent again to the same leader: it answers within
`appender.ANSWER_WITHIN`, if only that it does not know."""


class Pauses:
    """Pauses that grow, until there is progress."""

    def __init__(self) -> None:
        self._next = PAUSE
        self.until = float("-inf")
        """When the pause is over."""

    def pause(self, now: float) -> None:
        """Begin a pause."""
        self.until = now + self._next
        self._next = min(PAUSE_MOST, 2 * self._next)

    def progress(self) -> None:
        """The next pause is a short one again."""
        self._next = PAUSE
