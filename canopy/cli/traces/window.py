"""`--since` and `--until`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from canopy.traces.analysis import TimeWindow


def window_of(since: str | None, until: str | None) -> TimeWindow:
    """What is read. Raises UsageError."""
    from canopy.traces.analysis import TimeWindow, parse_time

    bounds: list[float | None] = []
    for name, text in (("--since", since), ("--until", until)):
        try:
            bounds.append(None if text is None else parse_time(text, end=name == "--until"))
        except ValueError:
            raise click.BadParameter(
                f"{text!r} is no time: write 2026-09-21 or 2026-09-21T06:30 (UTC)", param_hint=name
            ) from None
    window = TimeWindow(*bounds)
    if window.since is not None and window.until is not None and window.since >= window.until:
        raise click.UsageError("--since is not before --until")
    return window
