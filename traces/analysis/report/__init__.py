"""The report: one HTML file that explains a run to a person."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traces.analysis.run import Findings


def render(findings: Findings) -> str:
    """The report as HTML."""
    return f"<!doctype html><meta charset=utf-8><pre>{escape(repr(findings))}</pre>"
