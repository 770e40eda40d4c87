"""Which stream has the newest events that a selector matches (no IO)."""

from __future__ import annotations

from collections.abc import Iterable

from canopy.client.comparison import covers
from canopy.client.errors import CommandFailed
from matching import compile_selector
from overlay.info import StreamInfo
from overlay.phrases import counted


def newest_stream(streams: Iterable[StreamInfo], selector: str) -> str:
    """The name of a stream with a key that captures all events that `selector` matches: read with
    it from `keys` on, it has the newest event of each key, and then all that come. The first by
    name if several do. Raises SelectorError, and CommandFailed (unknown) where none is known to
    capture them all."""
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
