"""The main sections of the report: each is a function from the findings to HTML.

Names, selectors and everything else that a user wrote is escaped where it enters the HTML. A
section without content is "".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from canopy.traces.analysis.constants import BINS_PER_DECADE
from canopy.traces.analysis.report.pictures import (
    Bar,
    BarShare,
    Mark,
    columns,
    meter,
    spread_over_time,
    stacked,
    walk_picture,
)
from canopy.traces.analysis.report.wording import (
    SENTENCES,
    WRONG_KINDS,
    duration,
    number,
    percent,
    tree_of_all,
)
from overlay.phrases import counted, size

if TYPE_CHECKING:
    from canopy.traces.analysis.summary import Findings
    from canopy.traces.analysis.walks import WalkCounts


def name_of(findings: Findings, node: str | None) -> str:
    """A node's name, else the first half of its id."""
    if node is None:
        return "?"
    return findings.names.get(node) or node[:8]


def section(anchor: str, title: str, picture: str, text: str) -> str:
    """A section with a picture beside its text."""
    return (
        f'<section id="{anchor}"><h2>{escape(title)}</h2><div class="pair">'
        f'<div class="picture">{picture}</div><div class="text">{text}</div></div></section>'
    )


def wide_section(anchor: str, title: str, text: str, body: str) -> str:
    """A section with a text above a body that needs the whole width."""
    return f'<section id="{anchor}"><h2>{escape(title)}</h2>{text}{body}</section>'


def tiles(findings: Findings) -> str:
    """Render the most important numbers of the run, and those of its evidence, as tiles in HTML."""
    summary = findings.summary
    bad = {kind for kind in SENTENCES if getattr(summary, kind)}
    shown = (
        ("published", number(summary.published), "events"),
        ("expected", number(summary.expected), "deliveries"),
        ("delivered", number(summary.delivered), "of those"),
        ("missing", number(summary.missing), "not delivered"),
        ("dropped", number(summary.dropped), "given up, and reported"),
        ("discarded", number(summary.discarded), "not read by programs"),
        ("duplicates", number(summary.duplicates), "delivered again"),
        ("spurious", number(summary.spurious), "without a match"),
        ("unknown", number(summary.unknown), "no event or selector"),
        ("median latency", duration(summary.latency_ms["p50"]), "publish to delivery"),
        ("99 % within", duration(summary.latency_ms["p99"]), "publish to delivery"),
        ("messages", number(summary.messages_per_delivery), "per delivery"),
    )
    first = "".join(_tile(*each, "bad" if each[0] in bad else "") for each in shown)
    rest = "".join(_tile(*each) for each in _basis(findings))
    title = '<h2 class="over">What this rests on</h2>'
    return f'<dl class="tiles twelve">{first}</dl>{title}<dl class="tiles">{rest}</dl>'


def _tile(label: str, value: str, note: str, kind: str = "") -> str:
    marked = f' class="{kind}"' if kind else ""
    return (
        f"<div{marked}><dt>{escape(label)}</dt><dd>{escape(value)}"
        f"<small>{escape(note)}</small></dd></div>"
    )


def _basis(findings: Findings) -> list[tuple[str, str, str, str]]:
    """Return label, value, note and kind of the tiles on the evidence."""
    summary = findings.summary
    node, ahead = max(summary.clocks.items(), key=lambda each: abs(each[1]), default=("", 0.0))
    where = f"{name_of(findings, node)}; latencies by the causal clock"
    known = [each["records"] for each in summary.incomplete if each["records"]]
    open_ends = len(summary.incomplete) - len(known)
    stretches = ((len(known), "gap"), (open_ends, "open end"))
    lacking = ", ".join(counted(count, what) for count, what in stretches if count)
    lost = number(sum(known)) if known or not open_ends else "?"
    named = ", ".join(node[:8] for node in summary.absent_nodes[:2])
    return [
        (
            *("not judged", percent(summary.unjudged_share)),
            f"{counted(summary.unjudged, 'pair')} left open",
            "warn" if summary.unjudged else "",
        ),
        *(
            [("withheld", number(summary.withheld), "pairs, by the policy: no loss", "")]
            if summary.withheld
            else []
        ),
        (
            *("sampling", percent(summary.sample)),
            "of the events are traced" if summary.sample < 1 else "all events are traced",
            "warn" if summary.sample < 1 else "",
        ),
        (
            *("absent nodes", number(len(summary.absent_nodes))),
            f"{named} …" if len(summary.absent_nodes) > 2 else named or "all nodes have records",
            "warn" if summary.absent_nodes else "",
        ),
        (
            *("absent records", f"{lost} and more" if known and open_ends else lost),
            lacking or "of no node",
            "warn" if summary.incomplete else "",
        ),
        (
            *("clocks", duration(abs(ahead) * 1_000) if summary.clocks else "-"),
            "at most, off the median" if summary.clocks_agree else where,
            "" if summary.clocks_agree else "warn",
        ),
    ]


def table(head: str, rows: list[str]) -> str:
    """Render a table that scrolls sideways if it is too wide. `head`: the names of its columns,
    separated by " | "."""
    columns = "".join(f"<th>{name}</th>" for name in head.split(" | "))
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{columns}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def row(title: str, *numbers: str, more: str = "") -> str:
    """Render a row of a table: its title, numbers, and the HTML of `more` cells."""
    return f'<tr><th scope="row">{title}</th>{cells(*numbers)}{more}</tr>'


def cells(*numbers: str) -> str:
    """Render cells with numbers."""
    return "".join(f'<td class="n">{text}</td>' for text in numbers)


def titled(findings: Findings, of: dict[str, Any], selector: bool = False) -> str:
    """The title of the row of a subscription: its name, its node, and its `selector`."""
    title = f"{escape(of['name'] or of['subscription'])} "
    title += f"<small>on {escape(name_of(findings, of['node']))}</small>"
    return title + f'<code class="selector">{escape(of["selector"] or "?")}</code>' * selector


def latency_section(findings: Findings) -> str:
    """The section on latencies: percentiles and a histogram of all deliveries, in HTML."""
    histogram = dict(findings.details.latency)
    latency = findings.summary.latency_ms
    if not histogram:
        return section("speed", "How fast", '<p class="quiet">Nothing was delivered.</p>', "")
    first, last = min(histogram), max(histogram)
    bars = []
    for place in range(first, last + 1):
        low, high = (10 ** ((place + k) / BINS_PER_DECADE) for k in (0, 1))
        decade = place % BINS_PER_DECADE == 0 or last - first < 5
        bars.append(
            Bar(
                _round_duration(low) if decade else "",
                histogram.get(place, 0),
                f"{duration(low)} to {duration(high)}: {histogram.get(place, 0):,} deliveries",
            )
        )
    marks = [
        Mark(_bin_of(value) - first, f"{label} {duration(value)}")
        for label, value in (("half", latency["p50"]), ("99 %", latency["p99"]))
        if value is not None
    ]
    text = (
        f"<p>From a node's acceptance of an event to its delivery at the subscriber. "
        f"<strong>Half of the deliveries took {duration(latency['p50'])} or less</strong>, nine in "
        f"ten {duration(latency['p90'])}, ninety-nine in a hundred {duration(latency['p99'])}; the "
        f"slowest took {duration(latency['max'])}. The mean is {duration(latency['mean'])}, the "
        f"standard deviation {duration(latency['deviation'])} (variance "
        f"{number(latency['variance'])} ms²).</p><p>The scale is logarithmic: each column is "
        "about half as long again as the one before. A second peak to the right is usually the "
        "first events, which had to search for their trees.</p>"
    )
    title = f"Latency of deliveries: half within {duration(latency['p50'])}"
    picture = columns(bars, title, "deliveries per column", marks) + _over_time(findings)
    return section("speed", "How fast", picture, text + _by_hops(findings))


def _over_time(findings: Findings) -> str:
    """The median and the 99th percentile by the time of publication, as a picture."""
    found, width = findings.latencies.over_time, findings.details.bin_seconds
    if len(found) < 2:
        return ""
    count = bins_of(findings.summary.seconds, width, found)
    points = [found.get(place) for place in range(count)]
    drawn = spread_over_time(points, width, "Latency over the time of the run")
    return (
        f"<h3>Over the time of the run, by when events were published</h3>{drawn}"
        '<ul class="legend"><li><i class="leaf"></i>half within</li>'
        '<li><i class="sky"></i>99 % within</li></ul>'
    )


def _by_hops(findings: Findings) -> str:
    """The latencies by hops as a table."""
    found = findings.latencies.by_hops
    most = max((each.number for each in found.values()), default=0)
    rows = [
        row(
            counted(hops, "hop"),
            *(f"{each.number:,}{meter(each.number, most)}", duration(each.p50), duration(each.p99)),
        )
        for hops, each in sorted(found.items())[:HOPS_SHOWN]
    ]
    head = "from the publisher | deliveries | half | 99 %"
    return f"<h3>By hops</h3>{table(head, rows)}" if rows else ""


HOPS_SHOWN = 12  # numbers of hops; more than these are rare


def _bin_of(ms: float) -> float:
    from math import log10

    return log10(max(ms, 0.01)) * BINS_PER_DECADE


def _round_duration(ms: float) -> str:
    text = duration(ms)
    return text.replace(".00", "").replace(".0", "")


def tree_discovery(findings: Findings) -> str:
    """Render the ways in which trees were found: by walk, by the ring, or not; hops of walks and in
    trees."""
    walks, summary = findings.walk_counts, findings.summary
    searches = walks.by_walk + walks.by_ring
    shares = f"<h3>{counted(searches, 'search', 'searches')} that found the tree</h3>"
    shares += stacked(
        [
            BarShare("in the publisher's own table", walks.at_once, "leafwash"),
            BarShare("found by a random walk", max(walks.by_walk - walks.at_once, 0), "leaf"),
            BarShare("found by the ring", walks.by_ring, "sky"),
        ],
        "searches",
    )
    if walks.absent:
        # Not a share of the bar: such attributes are asked for again and again.
        asked = counted(walks.absent, "other search", "other searches")
        shares += f'<p class="quiet">{asked} found that an attribute has no subscriptions.</p>'
    hops = ""
    if walks.hop_counts:
        hops = f"<h3>Hops of the {counted(walks.hits, 'walk')} that hit</h3>" + columns(
            _hop_bars(walks.hop_counts, "walks"),
            "Hops of the walks that hit",
            "walks per column",
            height=150,
        )
    text = (
        "<p>A publisher searches for the tree of each attribute: in its own table of access "
        "points, which gossip fills, then with a random walk through the overlay, which is a "
        "<em>hit</em> if it meets an access point of the tree, else by the ring, where each "
        "attribute has an owner. Results are cached, so that later events go directly to the tree; "
        "that an attribute has no subscriptions is asked again after some seconds.</p>"
        + walks_text(walks)
    )
    if walks.unfinished:
        text += f"<p>{counted(walks.unfinished, 'walk')} left no record of an end.</p>"
    tree = findings.tree
    if tree.hop_counts:
        hops += (
            f"<h3>Hops from the publisher to the node that matched, {counted(tree.visits, 'visit')}"
            " of an event to a tree</h3>"
        )
        hops += columns(
            _hop_bars(tree.hop_counts, "visits"),
            "Hops to the matching node",
            "visits per column",
            height=150,
        )
        text += (
            "<h3>In the tree</h3><p>A tree divides the values of an attribute into intervals, its "
            f"virtual nodes, each served by a node. {tree_sizes_text(walks.trees)} Events took "
            f"{number(summary.tree_hops['mean'])} hops on average to theirs, and "
            f"{number(summary.tree_hops['max'])} at most; 0 hops means that the publisher served "
            "the interval itself.</p>"
        )
    if drawn := walk_picture(findings.walk, findings.names):
        explained = tree_of_all([findings.walk.attribute]) if findings.walk else ""
        hops += f"<h3>One walk</h3>{drawn}<p>{explained}</p>"
    return section("finding", "How events found their trees", shares + hops, text)


def walks_text(walks: WalkCounts) -> str:
    """Describe the walks in sentences: all of them, those for existing trees, and the hits among
    these. A lost walk begins again, so there may be more walks than searches."""
    if not walks.started:
        if walks.at_once:
            trees = f"all {counted(walks.at_once, 'tree')} that were searched for stood in the"
            return f"<p><strong>No walk was needed: {trees} publishers' own tables.</strong></p>"
        return (
            "<p>No walk was needed: each publisher knew the owners on the ring when it searched "
            "(and <code>walk.first</code> was off).</p>"
        )
    lost = walks.started - walks.findable
    every = f"{counted(walks.started, 'walk')} set out."
    if walks.at_once:
        needed = f"{counted(walks.at_once, 'search', 'searches')} needed no walk"
        every = f"{needed}: the tree stood in the publisher's own table. {every}"
    if walks.findable:
        mean = f", after {number(walks.hops['mean'])} hops on average" if walks.hits else ""
        share = percent(walks.hits / walks.findable)
        found = f"{walks.hits:,} of the {walks.findable:,} for attributes that have a tree hit"
        every += f" <strong>{found} ({share}){mean}.</strong>"
    if lost:
        others = f"The other {lost:,} could not" if walks.findable else "None of them could"
        every += f" {others} hit: there are no subscriptions to those attributes."
    if walks.asked_at_once:
        every += (
            f" {counted(walks.asked_at_once, 'search', 'searches')} of the ring came without a "
            "walk: what was known of the tree had proved wrong or did not answer, or it had no "
            "subscriptions when it was last searched for."
        )
    blocked = (
        f"{counted(walks.blocked, 'time')} a walk was blocked, with only visited neighbours, and "
        f"{counted(walks.recovered, 'time')} it continued from an earlier node with half the hops."
        if walks.blocked
        else "No walk was blocked by nodes that it had visited already."
    )
    return f"<p>{every} {blocked}</p>"


def tree_sizes_text(sizes: Mapping[str, int]) -> str:
    """Into how many virtual nodes the trees of the run were cut, in a sentence; "" if no map was
    made in it. `sizes`: the most that each had, by attribute."""
    if not sizes:
        return ""
    divided = sum(each > 1 for each in sizes.values())
    if not divided:
        of = "The only tree" if len(sizes) == 1 else f"Each of the {len(sizes):,} trees"
        return f"{of} had one, for all values: none was so busy or so full that it was cut."
    largest = max(sorted(sizes), key=sizes.__getitem__)
    if len(sizes) == 1:
        return f"The only tree had {sizes[largest]:,} at most."
    return (
        f"{divided:,} of {counted(len(sizes), 'tree')} had more than one; that of "
        f"<code>{escape(largest)}</code> had most, {sizes[largest]:,}."
    )


def _hop_bars(counts: tuple[tuple[int, int], ...], what: str) -> list[Bar]:
    known = dict(counts)
    # At least six columns, so that a single one does not fill the picture; at most forty.
    return [
        Bar(str(hop), known.get(hop, 0), f"{counted(hop, 'hop')}: {known.get(hop, 0):,} {what}")
        for hop in range(min(max(*known, 5), 39) + 1)
    ]


def bins_of(seconds: float, bin_seconds: float, bins: Iterable[int]) -> int:
    """Return the number of bins of a picture of the whole run, though the last of `bins` may be
    earlier."""
    return max(round(seconds / bin_seconds), *(each + 1 for each in bins), 1)


def cost(findings: Findings) -> str:
    """Messages per delivery, the effective distribution cost (CBDLO section 5.3), over time."""
    summary, details = findings.summary, findings.details
    bins = {row["bin"]: row for row in details.timeline}
    count = bins_of(summary.seconds, details.bin_seconds, bins)
    published, delivered = (
        [bins.get(place, {}).get(name, 0) for place in range(count)]
        for name in ("published", "delivered")
    )
    width = details.bin_seconds
    bars = [
        Bar(
            f"{place * width:.3g} s" if place in (0, count // 2, count - 1) else "",
            made,
            f"{place * width:.1f} s: {events:,} published, {made:,} delivered",
        )
        for place, (events, made) in enumerate(zip(published, delivered, strict=True))
    ]
    title = "Events published and delivered over the time of the run"
    picture = columns(bars, title, f"per {width:.2g} s", height=190, line=published)
    picture += (
        '<ul class="legend"><li><i class="leaf"></i>delivered</li>'
        '<li><i class="sky"></i>published</li></ul>'
    )
    text = (
        f"<p><strong>{number(summary.messages)} data-plane messages</strong> (an event or an "
        "attribute that is sent from one node to another) were needed: "
        f"<strong>{number(summary.messages_per_delivery)} per delivery</strong>. "
        f"{number(summary.walk_messages)} of them were steps of walks, which a publisher makes "
        "once for each attribute and not for each event. Acknowledgements and maintenance took "
        f"{number(summary.other_messages)} more.</p>"
        "<p>The <em>effective distribution cost</em> of the CBDLO paper is the number of messages "
        "divided by the share of expected deliveries that was made, so that lost events do "
        f"not lower it: {number(summary.effective_distribution_cost)}.</p>"
    )
    said = "".join(
        f"<li>{row['count']:,} {'dropped' if row['kind'] == 'drop' else 'refused'}: "
        f"{escape(row['reason'] or 'no reason given')}</li>"
        for row in details.reasons
    )
    if said:
        text += f"<p>Reported by the nodes as refused or dropped:</p><ul>{said}</ul>"
    return section("cost", "Messages", picture, text)


def days(findings: Findings) -> str:
    """A line for each day, where the run had several."""
    rows = findings.summary.days
    if not rows:
        return ""
    most = max(row["events"] for row in rows)
    slowest = max((row["p99_ms"] or 0 for row in rows), default=0)
    bad = ("missing", "spurious", "duplicates", "unjudged")
    lines = [
        row(
            escape(day["day"]),
            number(day["events"]) + meter(day["events"], most, "sky"),
            number(day["expected"]),
            *(f"<b>{day[kind]:,}</b>" if day[kind] else "0" for kind in bad),
            duration(day["p50_ms"]),
            duration(day["p99_ms"]) + meter(day["p99_ms"] or 0, slowest),
        )
        for day in rows
    ]
    text = (
        "<p>A day (UTC) is that of the publication. <em>Missing</em> counts what was given up or "
        "not read, too, and <em>spurious</em> what has no event or subscription.</p>"
    )
    head = (
        "day | events | expected | missing | spurious | twice | not judged | median | 99 % within"
    )
    return wide_section("days", "Day by day", text, table(head, lines))


def load(findings: Findings) -> str:
    """The table of each node's work."""
    rows = findings.summary.load
    most = max((row["data_messages"] for row in rows), default=0)
    busiest = max((row["deliveries"] for row in rows), default=0)
    lines = [
        row(
            f"{escape(each['name'] or each['node'][:8])}<br><small>{escape(each['node'])}</small>",
            number(each["data_messages"])
            + "*" * each["counted"]
            + meter(each["data_messages"], most, "sky"),
            number(each["deliveries"]) + meter(each["deliveries"], busiest),
            *(number(each[name]) for name in ("matches", "published")),
            f'<b class="flag">{each["drops"]:,}</b>' if each["drops"] else "0",
            number(each["other_messages"]),
            size(each["bytes"]),
        )
        for each in sorted(rows, key=lambda each: -each["data_messages"])[:60]
    ]
    mean = sum(row["data_messages"] for row in rows) / len(rows) if rows else 0
    text = (
        "<p>All nodes are peers, so the work should be distributed. The busiest node sent "
        f"<strong>{f'{most / mean:.1f}' if mean else '-'} times</strong> as many data-plane "
        "messages as the average one."
    )
    for kind, words in (("data_messages", "messages sent"), ("deliveries", "deliveries")):
        spread = findings.summary.load_spread[kind]
        text += (
            f" A node's {words}: {number(spread['mean'])} in the mean, standard deviation "
            f"{number(spread['deviation'])}, variance {number(spread['variance'])}."
        )
    if any(row["counted"] for row in rows):
        text += (
            " * A node that left no stop record (it was killed) has its messages counted from its "
            "own records."
        )
    if len(rows) > 60:
        text += " The 60 busiest are shown; all are in the table <code>load</code>."
    head = (
        "node | data messages sent | deliveries | matches | "
        "published | dropped | other messages | sent"
    )
    return wide_section("load", "Load of the nodes", text + "</p>", table(head, lines))


def subscriptions(findings: Findings) -> str:
    """Each subscription with its selector and its deliveries."""
    rows = findings.details.subscriptions
    most = max((row["expected"] for row in rows), default=0)
    lines = [_subscription_row(findings, each, most) for each in rows]
    total = findings.summary.subscriptions
    text = (
        "<p>The selector of each subscription, how many published events it should have received "
        "by Spark's computation, and how many it received.</p>"
    )
    if total > len(rows):
        text += (
            f"<p>{len(rows)} of {total:,} are shown, those with faults and with most events "
            "first; all are in the table <code>subscriptions</code>.</p>"
        )
    head = "subscription | expected | delivered | wrong | half within | 90 % | 99 % | slowest"
    return wide_section(
        "subscriptions", "Deliveries of each subscription", text, table(head, lines)
    )


def _subscription_row(findings: Findings, of: dict[str, Any], most: int) -> str:
    faults = [f"{of[kind]:,} {word}" for kind, word in WRONG_KINDS.items() if of.get(kind)]
    if not of["readable"]:
        faults.append("unreadable selector")
    if of["altered"]:
        faults.append(f"not the recorded tree: {of['tree']}")
    wrong = f'<b class="flag">{escape(", ".join(faults))}</b>' if faults else "nothing"
    unjudged_only = len(faults) == 1 and bool(of["unjudged"])
    colour = "sand" if unjudged_only else "clay" if faults else "leaf"
    if of["acked"] is None:
        wrong += "<br><small>never acknowledged</small>"
    if of["withheld"]:
        wrong += f"<br><small>{of['withheld']:,} withheld by the policy</small>"
    if of["either_way"]:
        wrong += f"<br><small>{of['either_way']:,} allowed, not required</small>"
    expected = number(of["expected"]) + meter(of["expected"], most, colour)
    times = cells(*(duration(of[name]) for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms")))
    return row(
        titled(findings, of, selector=True),
        *(expected, number(of["delivered"])),
        more=f"<td>{wrong}</td>{times}",
    )
