"""How far a copy was behind, as a line of bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

STEPS: Final = " ▁▂▃▄▅▆▇█"
SOON: Final = 10.0
"""Seconds from which on a lag is not said in milliseconds."""


def lag_picture(lags: Sequence[float | None], unknown: str = "?") -> str:
    """The largest of these lags (seconds), and a bar for each; `unknown` for None."""
    most = max((lag for lag in lags if lag is not None), default=0.0)
    steps = len(STEPS) - 1
    bars = [unknown if lag is None else STEPS[round(lag / (most or 1.0) * steps)] for lag in lags]
    shown = f"{most:.1f} s" if most >= SOON else f"{most * 1000:,.0f} ms"
    return f"{shown}: {''.join(bars)}"
