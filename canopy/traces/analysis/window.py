"""The stretch of time that an analysis reads, and which files have records of it.

A node writes the records of a day (UTC) below a folder ``date=YYYY-MM-DD``, so that files of other
days need not be opened. Files below no such folder are read, and what they have of other times is
left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

DAY_FOLDER: Final = re.compile(r"date=(\d{4}-\d{2}-\d{2})")


@dataclass(frozen=True)
class TimeWindow:
    """From `since` to before `until`, in seconds since 1970; None is without a bound."""

    since: float | None = None
    until: float | None = None

    def meets(self, day: date | None) -> bool:
        """Whether it has a moment of this day; of files of no day that is not known, and true."""
        if day is None:
            return True
        begins = datetime(day.year, day.month, day.day, tzinfo=UTC)
        ends = (begins + timedelta(days=1)).timestamp()
        after = self.since is None or ends > self.since
        return after and (self.until is None or begins.timestamp() < self.until)


ALWAYS: Final = TimeWindow()


def day_of(path: Path) -> date | None:
    """The day that the folders of a trace file name, None without one."""
    for part in reversed(path.parts[:-1]):
        found = DAY_FOLDER.fullmatch(part)
        if found is not None:
            try:
                return date.fromisoformat(found.group(1))
            except ValueError:
                return None
    return None


def day_of_time(time: str) -> str:
    """SQL: the day (UTC) of `time`, in seconds since 1970; NULL if it is out of range."""
    known = f"{time} >= 0 AND {time} < 253402300800"  # until the year 9999
    return f"IF({known}, date_format(timestamp_seconds({time}), 'yyyy-MM-dd'), NULL)"


DAY_OF_EVENT: Final = day_of_time("published")
"""SQL: the day of an event, which is that of its publication."""

DAY_OF_PAIR: Final = day_of_time("coalesce(published, delivered)")
"""SQL: the day of a judged pair: that of its event, and of its delivery if no record has that."""


def parse_time(text: str, *, end: bool = False) -> float:
    """Seconds since 1970 of a day or a time (ISO 8601, UTC unless it says otherwise). A day is its
    beginning, as the `end` of a window its end. Raises ValueError."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
    else:
        moment = datetime(day.year, day.month, day.day) + timedelta(days=1 if end else 0)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
