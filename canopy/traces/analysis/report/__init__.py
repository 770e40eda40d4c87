"""The report: one HTML file about a run, without network access or scripts.

``page.html`` has the frame and the style (light and dark, by the reader's setting), ``wording``
formats numbers and the verdict, ``pictures`` draws, and ``sections``, ``breakdown``,
``incident_timeline``, ``paths`` (slow events, and wrong ones) and ``downloads`` make the sections.
Everything that a user wrote is escaped where it enters the HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Final

from canopy.traces.analysis.report import breakdown, downloads, paths, sections
from canopy.traces.analysis.report.incident_timeline import incident_timeline
from canopy.traces.analysis.report.wording import duration, headline, verdict
from canopy.traces.analysis.verdict.outcome import EXACT, NOT_JUDGED
from overlay.phrases import counted

if TYPE_CHECKING:
    from canopy.traces.analysis.summary import Findings


Story = Sequence[tuple[str, str]]
"""Faults that were injected while the nodes ran: titles, each with the observations in
sentences."""


def render(findings: Findings, story: Story = ()) -> str:
    """Render the whole report as HTML, with the `story` of the run if it is given."""
    summary = findings.summary
    kind, sign = {EXACT: ("good", "✓"), NOT_JUDGED: ("open", "?")}.get(summary.result, ("bad", "!"))
    page = Template(files(__name__).joinpath("page.html").read_text(encoding="utf-8"))
    facts = [
        counted(summary.nodes, "node"),
        counted(summary.published, "event"),
        counted(summary.subscriptions, "subscription"),
        duration(summary.seconds * 1_000),
        *([f"{findings.routing} routing"] if findings.routing else []),
        _begun(findings.first),
    ]
    first, *rest = verdict(summary)
    return page.substitute(
        title=escape(f"Canopy · {headline(summary)}"),
        kind=kind,
        sign=sign,
        headline=escape(headline(summary)),
        verdict=escape(first),
        more="".join(f"<p>{escape(sentence)}</p>" for sentence in rest),
        facts=" · ".join(f"<span>{escape(fact)}</span>" for fact in facts),
        tiles=drawn(sections.tiles, findings),
        sections=told(story) + "".join(drawn(section, findings) for section in SECTIONS),
    )


def told(story: Story) -> str:
    """Render the section on injected faults; "" without any."""
    scenes = "".join(f"<dt>{escape(title)}</dt><dd>{escape(said)}</dd>" for title, said in story)
    text = f'<dl class="story">{scenes}</dl>'
    return sections.wide_section("shown", "What the demo showed", text, "") if story else ""


def drawn(section: Section, findings: Findings) -> str:
    """A section in HTML; of one that cannot be drawn that and why: the verdict stands above it."""
    try:
        return section(findings)
    except Exception as error:
        name = section.__name__.replace("_", " ")
        why = escape(f"{type(error).__name__}: {error}"[:REASON_CHARACTERS])
        return f'<section><p class="quiet">{escape(name)} cannot be drawn: {why}</p></section>'


Section = Callable[["Findings"], str]

SECTIONS: Final[tuple[Section, ...]] = (
    *(incident_timeline, paths.wrong, breakdown.overlays, sections.days),
    *(sections.latency_section, breakdown.slow_places, sections.tree_discovery),
    *(breakdown.attributes, sections.cost, sections.subscriptions, breakdown.subacks),
    *(breakdown.withheld, sections.load, paths.slowest, paths.corrupt, downloads.downloads),
)
"""In the order of the page."""

REASON_CHARACTERS: Final = 200  # of an error's text that are shown


def _begun(seconds: float) -> str:
    """When the first record was written."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%-d %B %Y, %H:%M} UTC"
    except (ValueError, OverflowError, OSError):  # a damaged record
        return f"at {seconds:g} s"
