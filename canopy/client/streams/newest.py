"""Finds the stream that has the newest events of a selector (no IO)."""

from __future__ import annotations

from collections.abc import Iterable

from canopy.client.comparison import covers
from canopy.client.errors import CommandFailed
from matching import compile_selector
from overlay.info import StreamInfo
from overlay.phrases import counted


def newest_stream(streams: Iterable[StreamInfo], selector: str) -> str:
    """Return the name of a stream with a key that captures all events that `selector` matches; the
    first by name if there are several. A reading that starts with `keys` has the newest event of
    each key, and then all new ones. Raises SelectorError, and CommandFailed (unknown) if no such
    stream is known."""
    wanted = compile_selector(selector)
    keyed = sorted((one for one in streams if one.key and one.capture), key=lambda one: one.name)
    for one in keyed:
        if covers(compile_selector(one.capture), wanted):
            return one.name
    looked = f" ({counted(len(keyed), 'other stream')} with a key and a capture)" if keyed else ""
    raise CommandFailed(
        "unknown",
        f"no stream with a key is known to capture all of {selector}{looked}: found one with "
        f"canopy stream add NAME --key ATTRIBUTE --capture SELECTOR, or read one by its name",
    )
