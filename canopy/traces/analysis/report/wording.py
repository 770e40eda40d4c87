"""The report's wording: numbers with units, and the verdict as sentences."""

from __future__ import annotations

from canopy.traces.analysis.summary import AnalysisSummary
from overlay.wording import counted

NONE = "-"  # shown for a share or percentile of nothing


def number(value: float | None) -> str:
    """A number for people: 12345 → 12,345 and 3.14159 → 3.14."""
    if value is None:
        return NONE
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"


def duration(ms: float | None) -> str:
    """Milliseconds with three digits, in the fitting unit."""
    if ms is None:
        return NONE
    if ms < 0:
        return "-" + duration(-ms)
    if ms < 0.9995:
        return f"{ms * 1_000:.0f} µs"
    if ms < 9.995:
        return f"{ms:.2f} ms"
    if ms < 99.95:
        return f"{ms:.1f} ms"
    if ms < 999.5:
        return f"{ms:.0f} ms"
    if ms < 120_000:
        return f"{ms / 1_000:.2f} s"
    return f"{ms / 60_000:.1f} min"


def percent(share: float | None) -> str:
    """A share of 1 in percent; 100 % only for all, 0 % only for none."""
    if share is None:
        return NONE
    if 0 < share < 0.001:
        return "under 0.1 %"
    if 0.999 < share < 1:
        return "over 99.9 %"
    return f"{share * 100:.1f} %".replace(".0 %", " %")


def size(count: float) -> str:
    """Bytes in the fitting unit."""
    for unit in ("bytes", "KB", "MB"):
        if count < 1_000:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1_000
    return f"{count:,.1f} GB"


def headline(summary: AnalysisSummary) -> str:
    """The verdict as a headline."""
    if summary.exact and summary.expected:
        return "Everything arrived"
    if summary.exact:
        return "Nothing was expected, and nothing went wrong"
    if summary.missing:
        return f"{counted(summary.missing, 'delivery', 'deliveries')} missing"
    if summary.dropped:
        return f"{counted(summary.dropped, 'delivery', 'deliveries')} given up"
    if summary.spurious:
        return f"{counted(summary.spurious, 'delivery', 'deliveries')} too many"
    if summary.duplicates:
        return f"{counted(summary.duplicates, 'delivery', 'deliveries')} repeated"
    return "Not everything could be judged"


def verdict_line(summary: AnalysisSummary) -> str:
    """The verdict in one line, for a terminal."""
    made = counted(summary.expected, "expected delivery", "expected deliveries")
    if summary.exact:
        if not summary.expected:
            return "exact: no delivery was expected, and none was made that should not have been"
        return f"exact: {made}, each made once, and no others"
    line = (
        f"not exact: {made}, {summary.missing:,} missing, {summary.dropped:,} dropped, "
        f"{summary.duplicates:,} repeated, {summary.spurious:,} spurious, "
        f"{summary.unknown:,} unknown"
    )
    if summary.unreadable_subscriptions:
        unread = counted(summary.unreadable_subscriptions, "subscription")
        line += f"; {unread} without a readable selector"
    return line


def verdict(summary: AnalysisSummary) -> list[str]:
    """The verdict in sentences, the most important first."""
    if summary.exact and summary.expected:
        every = (
            "The one expected delivery was made"
            if summary.expected == 1
            else f"Every one of {summary.expected:,} expected deliveries was made"
        )
        out = [f"{every}, nothing spurious, nothing twice."]
    elif summary.exact:
        out = ["No published event matched a subscription that was acknowledged before it."]
    else:
        out = _faults(summary)
    either_way = summary.early + summary.ending
    if either_way:
        out.append(
            f"Beside these, {counted(either_way, 'event')} reached a subscription that was just "
            "beginning or ending, which is allowed and not required."
        )
    if summary.sample < 1:
        out.append(
            f"The traces have {percent(summary.sample)} of the events, the same on all nodes; "
            "the verdict is about those."
        )
    if summary.corrupt_lines:
        out.append(
            f"{counted(summary.corrupt_lines, 'line')} of the traces could not be read and "
            f"{'was' if summary.corrupt_lines == 1 else 'were'} left out: see below."
        )
    return out


def _faults(summary: AnalysisSummary) -> list[str]:
    wanted = counted(summary.expected, "expected delivery", "expected deliveries")
    out = [f"{summary.delivered:,} of {wanted} {'was' if summary.expected == 1 else 'were'} made."]
    if summary.missing:
        out.append(
            f"{summary.missing:,} never arrived ({percent(summary.missing / summary.expected)})."
        )
    if summary.dropped:
        out.append(
            f"{summary.dropped:,} were given up by a node that says so "
            f"({percent(summary.dropped / summary.expected)}): their subscribers were out of "
            "reach, or slow, for longer than deliveries are held."
        )
    if summary.spurious:
        out.append(
            f"{counted(summary.spurious, 'delivery', 'deliveries')} should not have been made: the "
            "selector is not true for the event, or the subscription had ended."
        )
    if summary.duplicates:
        out.append(
            f"{counted(summary.duplicates, 'delivery', 'deliveries')} repeated an earlier one."
        )
    if summary.unknown:
        out.append(
            f"{counted(summary.unknown, 'delivery', 'deliveries')} cannot be judged, because the "
            "traces lack the event's publication or the subscription."
        )
    if summary.unreadable_subscriptions:
        out.append(
            f"{counted(summary.unreadable_subscriptions, 'subscription')} cannot be judged, "
            "because the traces lack a readable selector."
        )
    return out
