"""Which traces the nodes of a bench write: a sample, as a user has it where there is traffic, or
none.

A bench has the option `--trace` and names the share in its rows, so that what traces cost is the
difference of two rows."""

from __future__ import annotations

import argparse
from typing import Any, Final

SAMPLE: Final = 0.01
"""The share of events that is traced: as docs/reference/configuration.md says, it is lowered where
there are thousands of events a second."""


def add_option(parser: argparse.ArgumentParser) -> None:
    """The option `--trace` of a bench."""
    parser.add_argument(
        "--trace",
        type=float,
        default=SAMPLE,
        metavar="SHARE",
        help=f"share of events that the nodes trace ({SAMPLE:g}); 0: they write no traces",
    )


def flags(share: float) -> list[str]:
    """Arguments of a node that traces this share of the events."""
    return ["--trace-sample", f"{share:g}"] if share else ["--no-trace"]


def group(share: float) -> dict[str, Any]:
    """The group `trace` of the configuration of a node that traces this share of the events."""
    return {"enabled": share > 0, "sample": share}
