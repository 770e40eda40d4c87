"""What a command says on standard error while its node is away and is looked for."""

from __future__ import annotations

import sys
import time

from canopy.cli.constants import REMIND_EVERY


class NodeSearch:
    """One search after the other, each for at most `patience` seconds."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since = 0.0  # when the node was found to be away (monotonic)
        self._is_on = False
        self._is_away = False  # the connection has ended; a node that leaves still delivers
        self._remind_at = 0.0

    def begin(self, reason: str) -> None:
        """The node has gone, or says that it leaves: print why, and for how long it is looked
        for."""
        self._is_on, self._is_away = True, False
        self._start()
        wait = f"looking for it for {self._patience:g} s (--timeout)"
        print(f"! {reason}; {wait}", file=sys.stderr, flush=True)

    def _start(self) -> None:
        self._since = time.monotonic()
        self._remind_at = self._since + REMIND_EVERY

    def limit(self, rest: float | None) -> float | None:
        """How long to wait for events at most, if `rest` seconds are left (None: any time): while
        the node is away until something is to be said."""
        if not self._is_on:
            return rest
        due = max(0.0, self._remind_at - time.monotonic()) if self._is_away else REMIND_EVERY
        return due if rest is None else min(rest, due)

    def looked(self, is_live: bool) -> None:
        """Whether the subscription is acknowledged by a node now: print what is left of the search,
        or end it."""
        if not self._is_on:
            return
        if is_live:
            self._is_on = not self._is_away
        elif not self._is_away:
            self._is_away = True
            self._start()
        now = time.monotonic()
        if self._is_on and self._is_away and now >= self._remind_at:
            self._remind_at = now + REMIND_EVERY
            left = max(0.0, self._since + self._patience - now)
            text = f"! still without the node; giving up in {left:.0f} s"
            print(text, file=sys.stderr, flush=True)
