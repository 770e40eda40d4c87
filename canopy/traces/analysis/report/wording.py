"""The report's wording: numbers with units, and the verdict as sentences."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from canopy.traces.analysis.summary import AnalysisSummary
from canopy.traces.analysis.verdict.outcome import NOT_EXACT, NOT_JUDGED
from overlay.phrases import counted

FAULT_NAMES: Final = {
    "missing": "missing",
    "dropped": "dropped",
    "discarded": "not read by their programs",
    "corrupted": "with another content than was published",
    "duplicates": "repeated",
    "spurious": "spurious",
    "unknown": "unknown",
    "unreadable": "subscriptions without a readable selector",
    "altered": "subscriptions whose tree is not that of their selector",
    "republished": "events with several publish records",
    "unpublished": "events that nobody published",
    "contradictions": "numbers of records that different records have",
}
"""The noun behind the number of each kind of fault (`outcome.FAULTS`)."""

WRONG_KINDS: Final = {
    "missing": "missing",
    "corrupted": "altered",
    "spurious": "spurious",
    "duplicates": "repeated",
    "unknown": "unknown",
    "dropped": "dropped",
    "discarded": "not read",
    "unjudged": "not judged",
}
"""The report's words for each kind of wrong delivery (`wrong.KINDS`), the worst first."""

SENTENCES: Final = {
    "missing": "{count:,} never arrived ({share}).",
    "dropped": "{count:,} were given up by a node that says so ({share}): their subscribers were "
    "out of reach, or slow, for longer than deliveries are held.",
    "discarded": "{count:,} reached the subscriber's node, which dropped them ({share}): their "
    "programs did not read in time.",
    "corrupted": "{deliveries} had another id or content than was published.",
    "spurious": "{deliveries} should not have been made: the selector is not true for the event, "
    "or the subscription had ended.",
    "duplicates": "{deliveries} repeated an earlier one.",
    "unknown": "{deliveries} cannot be judged, because the traces lack the event's publication or "
    "the subscription.",
}
"""The verdict's sentence on a fault of each kind; on others it has none of its own."""

EVERY_EVENT: Final = "$event"
"""The tree that every event visits."""

NONE = "-"  # shown for a share or percentile of nothing


def tree_of_all(attributes: Iterable[str | None]) -> str:
    """Explain `$event` in HTML; "" if it is none of the attributes that are shown."""
    if EVERY_EVENT not in attributes:
        return ""
    return (
        f"<code>{EVERY_EVENT}</code> is no attribute of a user: it is the tree that every event "
        "visits. It has the subscriptions whose selectors may be true for an event without any "
        "certain attribute, as <code>TRUE</code> or <code>a IS NULL</code>."
    )


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


def headline(summary: AnalysisSummary) -> str:
    """The verdict as a headline."""
    if summary.exact:
        return "Everything arrived"
    if summary.result == NOT_JUDGED:
        return "Not judged"
    kinds = (kind for kind in WRONG_KINDS if kind != "unjudged")
    numbers = [(getattr(summary, kind), WRONG_KINDS[kind]) for kind in kinds]
    parts = [(number, word) for number, word in numbers if number]
    if parts:
        first = f"{counted(parts[0][0], 'delivery', 'deliveries')} {parts[0][1]}"
        return ", ".join([first, *(f"{number:,} {word}" for number, word in parts[1:])])
    return "Not exact"


def verdict_line(summary: AnalysisSummary) -> str:
    """The verdict in one line, for a terminal."""
    made = counted(summary.expected, "expected delivery", "expected deliveries")
    left_open = f"; {unjudged(summary)}" if summary.unjudged else ""
    if summary.withheld:
        left_open += f"; {withheld(summary)}"
    if summary.exact:
        return f"exact: {made}, each made once, and no others{left_open}"
    if summary.result == NOT_JUDGED:
        kept = f"; {withheld(summary)}" if summary.withheld else ""
        return f"not judged: {'; '.join(summary.reasons)}{kept}"
    faults = ", ".join(f"{count:,} {FAULT_NAMES[name]}" for name, count in summary.faults.items())
    return f"not exact: {made}, {faults}{left_open}"


def unjudged(summary: AnalysisSummary) -> str:
    """Word the number of open pairs as part of a sentence."""
    return (
        f"{counted(summary.unjudged, 'pair')} ({percent(summary.unjudged_share)}) could not be "
        "judged"
    )


def withheld(summary: AnalysisSummary) -> str:
    """Word the number of withheld pairs as part of a sentence."""
    return f"{counted(summary.withheld, 'pair')} withheld by the policy, which is no loss"


def verdict(summary: AnalysisSummary) -> list[str]:
    """The verdict in sentences, the most important first."""
    if summary.exact:
        every = (
            "The one expected delivery was made"
            if summary.expected == 1
            else f"Every one of {summary.expected:,} expected deliveries was made"
        )
        out = [f"{every}, nothing spurious, nothing twice."]
    elif summary.result == NOT_JUDGED:
        out = [sentence("; ".join(summary.reasons))]
    else:
        out = _faults(summary)
    either_way = summary.early + summary.ending
    if either_way:
        out.append(
            f"Beside these, {counted(either_way, 'event')} reached a subscription that was just "
            "beginning or ending, which is allowed and not required."
        )
    if summary.withheld:
        out.append(
            f"{sentence(withheld(summary))} That the policy leaves so little of the selectors is "
            "what the nodes of the tenants have recorded."
        )
    if summary.unjudged and summary.result != NOT_JUDGED:
        out.append(f"{unjudged(summary)}, since records are absent or unreadable.")
    if summary.result == NOT_EXACT:
        out += [sentence(reason) for reason in summary.reasons]
    return out + circumstances(summary)


def sentence(text: str) -> str:
    """A text as a sentence of its own."""
    return f"{text[:1].upper()}{text[1:]}."


def circumstances(summary: AnalysisSummary) -> list[str]:
    """Describe the evidence in sentences: overlays, absences, copies, clocks, the share of the
    events that is traced, unreadable lines."""
    out = []
    if summary.since is not None:
        day = datetime.fromtimestamp(summary.since, UTC).date()
        late = counted(summary.late_records, "record") if summary.late_records else ""
        out.append(
            f"Days before {day} are closed: each has its line among the days, and all else is of "
            "the days since." + (f" {late} of them came later and were left out." if late else "")
        )
    if len(summary.overlays) > 1:
        named = ", ".join(f"{each['name']} ({each['result']})" for each in summary.overlays[:5])
        out.append(f"The folder has records of {len(summary.overlays):,} overlays: {named}.")
    if summary.incomplete:
        first = summary.incomplete[0]
        nodes = len({each["node"] for each in summary.incomplete})
        out.append(
            f"Records are absent of {counted(nodes, 'node')}, first of {first['node']}: "
            f"{first['cause']}."
        )
    if summary.copies:
        times = counted(summary.copies, "record")
        out.append(f"{times} in the folder repeated others, and counted once.")
    if not summary.clocks_agree:
        out.append(
            f"{_clocks(summary)}. The verdict does not depend on wall clocks, and latencies are "
            "taken from the hybrid logical clock."
        )
    if summary.sample < 1:
        out.append(
            f"The traces have {percent(summary.sample)} of the events, the same on all nodes "
            "(trace.rate, trace.sample); the verdict is about those."
        )
    if summary.undrawn:
        out.append(f"Could not be worked out, and is not shown: {'; '.join(summary.undrawn)}.")
    if summary.corrupt_lines:
        out.append(
            f"{counted(summary.corrupt_lines, 'line')} of the traces could not be read and "
            f"{'was' if summary.corrupt_lines == 1 else 'were'} left out."
        )
    return out


def _clocks(summary: AnalysisSummary) -> str:
    """Describe the faults of wall clocks."""
    if summary.clock_steps:
        node, step = max(summary.clock_steps.items(), key=lambda item: item[1])
        return f"The wall clock of {node} was set by {duration(step * 1_000)} while it ran"
    node, ahead = max(summary.clocks.items(), key=lambda item: abs(item[1]))
    way = "ahead" if ahead > 0 else "behind"
    return f"Wall clocks differ: that of {node} was {duration(abs(ahead) * 1_000)} {way}"


def _faults(summary: AnalysisSummary) -> list[str]:
    wanted = counted(summary.expected, "expected delivery", "expected deliveries")
    out = [f"{summary.delivered:,} of {wanted} {'was' if summary.expected == 1 else 'were'} made."]
    for kind, said in SENTENCES.items():
        if count := getattr(summary, kind):
            deliveries = counted(count, "delivery", "deliveries")
            share = percent(count / summary.expected if summary.expected else None)
            out.append(said.format(count=count, deliveries=deliveries, share=share))
    others = {name: count for name, count in summary.faults.items() if name not in SENTENCES}
    out += [f"{count:,} {FAULT_NAMES[name]}." for name, count in others.items()]
    return out
