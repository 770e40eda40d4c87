"""What was published and what came of it, in a run of endurance (endurance.py).

A *session* is one subscription from its SUBACK until its client or node ended. It is owed every
event that matches, was handed to a node after the SUBACK, and got its receipt at least `MARGIN`
before the session's end; each once, and nothing else. (An event without a receipt may come or not:
its publisher knows that.) What is owed and missing counts differently by whether a node was killed
on the event's way, and whether the program learnt of it:

* `lost_in_flight`: a node was killed between the publication and `HELD` after the receipt, or after
  the end of what silenced the session's node meanwhile. The receipt says that the virtual nodes
  accepted it, so its publisher does not learn of this loss; `lost_in_flight_elsewhere`: none of
  those killed was a host that the receipt names;
* `lost_reported`: none was, and the session's program learnt of a gap in which the event was
  published;
* `lost`: neither.

`after_heal_s` are the delays of events that were published within `HEALED` after the last silent
node is back, while none is silent.

`reported` is what the gaps count, where they do; it is at least `lost_reported` when counts are
exact, since each gap names what was dropped.

Times are seconds of this process' monotonic clock. Memory: 25 bytes per event and one per event and
session.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan
from operator import itemgetter
from typing import Any, Final

from bench.endurance.load import SELECTORS, attributes

MARGIN: Final = 30.0
"""Seconds: longer than anything is under way to a node that is cut off or stands still."""

HELD: Final = 8.0
"""Seconds for which a node may hold what it cannot deliver: `links.dead_after`, and some to find
another way; ample."""

SILENT: Final = 1.0
"""Seconds without a delivery to a client, of events that it usually gets many times a second."""

RECOVERED: Final = 12.0
"""Seconds that a node itself may need after it was out of reach: to register again, and for what
waited for it. Others are not excused."""

SHOWN: Final = 40
"""Lost events, and silences, that are named in the report."""

HEALED: Final = 10.0
"""Seconds after a heal that count as such, unless a node falls silent before."""


@dataclass(frozen=True)
class AdmittedGap:
    """Events may be missing that were published from `since` to `until`; `count` if it is known.
    `is_stamped`: by the times that they have, and not by when they were matched."""

    since: float
    until: float
    count: int = 0
    is_stamped: bool = False


class Session:
    """One subscription: its selector, when it was acknowledged and ended, and what it was shown."""

    def __init__(self, wanted: int, node: str, since: float) -> None:
        self.wanted = wanted  # index in SELECTORS
        self.node = node
        self.since = since
        self.until = inf
        self.came = bytearray()
        self.duplicates = 0
        self.spurious = 0
        self.gaps: list[AdmittedGap] = []
        self.delays: list[tuple[int, float]] = []  # number and delay of one delivery in `EVERY`

    def take(self, number: int, delay: float) -> None:
        """Take the delivery of event `number`, `delay` seconds after it was published."""
        if number >= len(self.came):
            self.came.extend(bytes(number + 4_096 - len(self.came)))
        if not SELECTORS[self.wanted].means(attributes(number)):
            self.spurious += 1
        elif self.came[number]:
            self.duplicates += 1
        self.came[number] = 1
        if number % EVERY == 0:
            self.delays.append((number, delay))

    def reports(self, asked: float, answered: float) -> bool:
        """Whether a gap may cover an event that was published then, and accepted at any time until
        it was answered."""
        return any(
            gap.since <= (asked if gap.is_stamped else answered) and asked <= gap.until
            for gap in self.gaps
        )

    def has(self, number: int) -> bool:
        """Whether it was delivered."""
        return number < len(self.came) and bool(self.came[number])


EVERY: Final = 10
"""One delay in this many is kept."""


class Ledger:
    """What was published, subscribed and delivered in the run; written by many threads."""

    def __init__(self, margin: float = MARGIN) -> None:
        """`margin`: seconds before a session's end from which on it is owed nothing."""
        self.margin = margin
        self.asked = array("d")
        self.answered = array("d")  # NaN: no receipt
        self.refused = 0
        self.hosts: list[Mapping[str, str]] = []
        """By event, the ids of the nodes that its receipt names, by tree; empty without one."""
        self.sources: list[str] = []
        """By event, the node that it was published through."""
        self.sessions: list[Session] = []
        self.kills: list[tuple[float, str, str]] = []  # when, the node's id and name
        self.pauses: list[tuple[str, float, float]] = []  # node that stood still, from, to
        self.started: dict[str, float] = {}  # by node: when it was started again last
        self.silences: list[tuple[str, float, float]] = []  # node, from, to
        self.last_arrival = 0.0
        self.quiet: list[tuple[str, float, float]] = []
        """Node, from, to: when a subscriber's client got nothing for longer than `SILENT`."""
        self._lock = threading.Lock()

    def ask(self, count: int, now: float, source: str = "") -> range:
        """Numbers for `count` events that are published now, through the node `source`."""
        with self._lock:
            first = len(self.asked)
            self.asked.extend([now] * count)
            self.answered.extend([nan] * count)
            self.sources.extend([source] * count)
            self.hosts.extend([{}] * count)
        return range(first, first + count)

    def answer(self, numbers: range, now: float, hosts: Sequence[Mapping[str, str]] = ()) -> None:
        """The receipt for these, and the hosts that it names."""
        for number in numbers:
            self.answered[number] = now
        for number, found in zip(numbers, hosts, strict=False):
            self.hosts[number] = found

    def begin(self, wanted: int, node: str, since: float) -> Session:
        """A SUBACK has come: open a session and return it."""
        session = Session(wanted, node, since)
        with self._lock:
            self.sessions.append(session)
        return session

    def kill(self, name: str, now: float, id_: str = "") -> None:
        """A node was killed, whose id is `id_`; the sessions of its clients end with it."""
        with self._lock:
            self.kills.append((now, id_, name))
        self.leave(name, now)

    def leave(self, name: str, now: float) -> None:
        """A node was asked to leave; the sessions of its clients end with it. What it accepted
        before is owed all the same."""
        for session in self.sessions:
            if session.node == name and session.until == inf:
                session.until = now

    def was_quiet(self, node: str, since: float, until: float) -> None:
        """Nothing arrived at a client of `node` between these two deliveries."""
        if until - since > SILENT:
            self.quiet.append((node, since, until))

    def silences_of_others(self) -> list[tuple[float, str, float]]:
        """The times in `quiet`, longest first (seconds, node, since), but for those of a node that
        was down, stood still or was cut off, from then until `RECOVERED` after it."""
        return sorted(
            (
                (until - since, node, since)
                for node, since, until in self.quiet
                if not any(
                    node == other and begun < until and since < ended + RECOVERED
                    for other, begun, ended in self.silences
                )
            ),
            reverse=True,
        )

    def receipts(self) -> int:
        """How many events have theirs."""
        return sum(at == at for at in self.answered)

    def missing(self) -> tuple[int, list[tuple[int, Session]]]:
        """How many deliveries are owed, and those that did not come."""
        owed, found = 0, []
        for number, (asked, answered) in enumerate(zip(self.asked, self.answered, strict=True)):
            if answered != answered:
                continue
            event = attributes(number)
            for session in self.sessions:
                if asked < session.since or answered > session.until - self.margin:
                    continue
                if SELECTORS[session.wanted].means(event):
                    owed += 1
                    if not session.has(number):
                        found.append((number, session))
        return owed, found

    def held_until(self, number: int, session: Session) -> float:
        """How long an event with a receipt may be under way to a session."""
        until = self.answered[number]
        for node, since, end in self.silences:
            if node == session.node and since <= until + HELD and end > self.asked[number]:
                until = max(until, end)
        return until + HELD

    def killed_meanwhile(self, since: float, until: float) -> tuple[str, ...]:
        """The ids of the nodes that were killed in that time."""
        first = bisect_left(self.kills, since, key=itemgetter(0))
        return tuple(id_ for at, id_, _ in self.kills[first:] if at <= until)

    def verdict(self, began: float) -> dict[str, Any]:
        """Judge the whole run; times are seconds from `began`."""
        owed, missing = self.missing()
        self.kills.sort()
        in_flight, reported, lost, elsewhere = [], [], [], 0
        for number, session in missing:
            killed = self.killed_meanwhile(self.asked[number], self.held_until(number, session))
            if killed:
                in_flight.append((number, session))
                elsewhere += not set(killed) & set(self.hosts[number].values())
            elif session.reports(self.asked[number], self.answered[number]):
                reported.append((number, session))
            else:
                lost.append((number, session))
        receipts, quiet = self.receipts(), self.silences_of_others()
        delays = [each for session in self.sessions for each in session.delays]
        healed = after_heals(self.silences)
        return {
            "published": len(self.asked),
            "receipts": receipts,
            "without_receipt": len(self.asked) - receipts - self.refused,
            "refused": self.refused,
            "owed": owed,
            "lost": len(lost),
            "lost_reported": len(reported),
            "lost_in_flight": len(in_flight),
            "lost_in_flight_elsewhere": elsewhere,
            "duplicates": sum(session.duplicates for session in self.sessions),
            "spurious": sum(session.spurious for session in self.sessions),
            "gaps": sum(len(session.gaps) for session in self.sessions),
            "reported": sum(gap.count for session in self.sessions for gap in session.gaps),
            "sessions": len(self.sessions),
            "delay_s": quantiles(delay for _, delay in delays),
            "after_heal_s": quantiles(
                delay for number, delay in delays if is_within(self.asked[number], healed)
            ),
            "longest_silence_s": round(quiet[0][0], 2) if quiet else 0.0,
            "silences": len(quiet),
            "silent": [
                [round(seconds, 2), node, round(since - began, 1)]
                for seconds, node, since in quiet[:SHOWN]
            ],
            "missing": [
                self._named(*one, began) for one in (lost or reported or in_flight)[:SHOWN]
            ],
        }

    def _named(self, number: int, session: Session, began: float) -> dict[str, Any]:
        return {
            "event": number,
            "selector": SELECTORS[session.wanted].selector,
            "node": session.node,
            "asked": round(self.asked[number] - began, 3),
            "answered": round(self.answered[number] - began, 3),
            "since": round(session.since - began, 3),
            "from": self.sources[number],
            "gaps": [
                [round(gap.since - began, 1), round(gap.until - began, 1), gap.count]
                for gap in session.gaps
            ],
        }


QUANTILES: Final = (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("most", 1.0))


def quantile(values: Sequence[float], at: float) -> float | None:
    """A quantile of sorted values, by nearest rank; None of none."""
    return round(values[min(len(values) - 1, int(at * len(values)))], 4) if values else None


def quantiles(values: Iterable[float]) -> dict[str, float | None]:
    """The `QUANTILES` of these values by name."""
    found = sorted(values)
    return {name: quantile(found, at) for name, at in QUANTILES}


def after_heals(silences: Iterable[tuple[str, float, float]]) -> list[tuple[float, float]]:
    """From, to: the first `HEALED` seconds from when no node is silent any more (node, from, to),
    or until one is again."""
    found: list[tuple[float, float]] = []
    end = -inf
    for _, since, until in sorted(silences, key=itemgetter(1)):
        if end < since and end > -inf:
            found.append((end, min(end + HEALED, since)))
        end = max(end, until)
    return [*found, (end, end + HEALED)] if end > -inf else found


def is_within(at: float, times: Sequence[tuple[float, float]]) -> bool:
    """Whether a moment is in one of these times, which are in order and apart."""
    index = bisect_right(times, at, key=itemgetter(0)) - 1
    return index >= 0 and at <= times[index][1]
