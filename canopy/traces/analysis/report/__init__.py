"""The report: one HTML file about a run, without network access or scripts.

``page.html`` has the frame and the style (light and dark, by the reader's setting), ``wording``
formats numbers and the verdict, ``pictures`` draws, and ``sections``, ``wrong``,
``incident_timeline`` and ``paths`` make the sections. Everything that a user wrote is escaped where
it enters the HTML.
"""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from canopy.traces.analysis.report import paths, sections, wrong
from canopy.traces.analysis.report.incident_timeline import incident_timeline
from canopy.traces.analysis.report.wording import duration, headline, verdict
from canopy.traces.analysis.verdict.outcome import EXACT, NOT_JUDGED
from overlay.wording import counted

if TYPE_CHECKING:
    from canopy.traces.analysis.findings import Findings


def render(findings: Findings) -> str:
    """The whole report as HTML."""
    summary = findings.summary
    kind, sign = {EXACT: ("good", "✓"), NOT_JUDGED: ("open", "?")}.get(summary.result, ("bad", "!"))
    page = Template(files(__name__).joinpath("page.html").read_text(encoding="utf-8"))
    begun = datetime.fromtimestamp(findings.first, UTC)
    facts = [
        counted(summary.nodes, "node"),
        counted(summary.published, "event"),
        counted(summary.subscriptions, "subscription"),
        duration(summary.seconds * 1_000),
        *([f"{findings.routing} routing"] if findings.routing else []),
        f"{begun:%-d %B %Y, %H:%M} UTC",
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
        tiles=sections.tiles(findings),
        sections="".join(
            (
                incident_timeline(findings),
                wrong.wrong(findings),
                sections.days(findings),
                sections.latency_section(findings),
                sections.tree_discovery(findings),
                sections.cost(findings),
                sections.subscriptions(findings),
                sections.load(findings),
                paths.slowest(findings),
                paths.corrupt(findings),
            )
        ),
    )
