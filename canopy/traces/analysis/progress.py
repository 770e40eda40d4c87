"""The stages of an analysis, and the callback that hears of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

OnProgress = Callable[[str, int, int], None]
"""Called with (stage that begins, number of stages done, number of stages); at the end done =
total."""

STAGES: Final = (
    "starting Spark",
    "reading the traces",
    "computing expected deliveries",
    "comparing with the deliveries",
    "counting walks and tree hops",
    "adding up the load of nodes",
    "collecting details and slow paths",
    "writing the report",
)
"""The stages, in order."""


def silent(stage: str, done: int, total: int) -> None:
    """A callback that ignores the progress."""
