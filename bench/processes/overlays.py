"""An overlay of real nodes on this machine, started and ready, and what its processes take."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from bench.command import flags
from canopy.cli.demo.overlay import DemoNode, Overlay
from canopy.client.blocking import ControlClient
from overlay.client import GetStatus, Status

PATIENCE = 120.0
"""Seconds for an answer, or for events; ample."""


@contextmanager
def folder() -> Iterator[Path]:
    """An empty folder for the data, logs and traces of nodes, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="canopy-bench-") as name:
        for each in ("nodes", "logs", "traces"):
            (Path(name) / each).mkdir()
        yield Path(name)


@contextmanager
def started(nodes: int, trace: float, seed: int | None = 1) -> Iterator[Overlay]:
    """`nodes` nodes that trace the share `trace` of the events, and are ready."""
    with folder() as out, Overlay(nodes, out, flags(trace), seed) as overlay:
        overlay.start(lambda _: None)
        overlay.await_ready(lambda _: None)
        yield overlay


def process(node: DemoNode) -> psutil.Process:
    """The process of a node that was started."""
    assert node.process is not None
    return psutil.Process(node.process.pid)


def status(node: DemoNode) -> Status:
    """What a node says of itself."""
    with ControlClient.connect(node.data) as client:
        return client.ask(GetStatus(0), Status, PATIENCE)
