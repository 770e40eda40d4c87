"""The numbers of this folder, none of which is a setting."""

from __future__ import annotations

CLOCKS_MOST = 32
"""Neighbours that are asked for their clocks at a time; a view has 20 by default."""

CLOCK_TIMEOUT = 2.0
"""Seconds for which their answers are awaited: a person waits. Guess; to be measured by the round
trips of links where an overlay still works."""
