"""A private copy of the peers' harness, with Canopy and overlays of peers added, for one run of
bench/dataplane/compare.py.

The harness keeps its caches and logs beside its files and takes neither a seed nor other numbers of
connections. So it is copied to a temporary folder, where small patches of its text give it what the
bench needs: a seed, the variant *parts*, 64 connections. A text that is no longer found is an
error with its name: the harness has changed.

*parts* rewards routing as real interest does: each of 64 connections takes its own part of one
attribute's values, so that an event interests one connection at most.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

PARTS: Final = 64
"""Connections in the variant *parts*."""

SEEDED: Final = """
gen_events.__defaults__ = ({seed},)
gen_subs.__defaults__ = ({seed} + 6,)
"""
"""Appended to the workload. Seed 1 gives the harness's own events and subscriptions."""

IN_PARTS: Final = """
C = {parts}


def gen_subs(S, target, seed={seed} + 6):
    rnd = random.Random(seed * 1000003 + S)
    out = []
    for i in range(S):
        width = rnd.uniform(0.3, 1.0) / C
        lo = (i % C) / C + rnd.random() * (1 / C - width)
        preds = [('lat', 'range', float(q_lat(lo)), float(q_lat(lo + width)))]
        a = rnd.choice(('mag', 'depth', 'lon', 'sig', 'time'))
        lo = rnd.random() * 0.5
        preds.append((a, 'range', float(Q[a](np.float64(lo))), float(Q[a](np.float64(lo + 0.5)))))
        rnd.shuffle(preds)
        out.append(preds)
    return out


def target_of(variant, S):
    return None
"""
"""Appended to the workload of *parts*: each connection's subscriptions lie in its own 64th."""

WIDER: Final = (
    ("child.py", "GOT, WARMC, READY = 8, 24, 32", "GOT, WARMC, READY = 8, 72, 136"),
    ("child.py", "range(k * 4, k * 4 + 4)", "range(k * (W.C // 2), (k + 1) * (W.C // 2))"),
    ("harness.py", "ctl[32] and ctl[33]", "ctl[136] and ctl[137]"),
    ("harness.py", "ctl[24 + c] for c in range(8)", "ctl[72 + c] for c in range(W.C)"),
    ("adapters/tcpfan_py.py", "range(8)", "range(W.C)"),
    ("adapters/tcpfan_py.py", "l.listen(16)", "l.listen(2 * W.C)"),
    ("adapters/tcpfan_py.py", "k = s.recv(1)", "k = s.recv(2)"),  # numbers of two digits
)
"""(file, text, what stands there for *parts*): the harness's shared counters for 8 connections."""

CONTESTANT: Final = "from bench.dataplane.adapter import {name} as Adapter\n"

SHAPES: Final = {
    "canopy_one": "One",
    "canopy_one_untraced": "OneUntraced",
    "canopy_three": "Three",
    "canopy_eight": "Eight",
    "canopy_eight_untraced": "EightUntraced",
}
"""Canopy's adapters, and the class of each."""

OVERLAY: Final = """
from adapters.{base} import Adapter as Single
from bench.dataplane.overlays import {name}


class Adapter({name}, Single):
    pass
"""

OVERLAYS: Final = {
    "nats_three": ("NatsThree", "nats"),
    "nats_three_batch": ("NatsThreeBatch", "nats"),
    "zenoh_three": ("ZenohThree", "zenoh_"),
    "zenoh_three_batch": ("ZenohThreeBatch", "zenoh_"),
    "zmq_three_batch": ("ZeroMQThreeBatch", "zmq_batch"),
}
"""Peers in the shape of an overlay: the class of each, and the adapter of the harness that it
changes."""


class StageError(Exception):
    """The harness is not there, or not as this bench knows it."""


def stage(harness: Path, to: Path, seed: int, parts: bool) -> Path:
    """Copy the harness to a folder that does not exist yet, patched; the folder."""
    if not (harness / "harness.py").is_file():
        raise StageError(f"{harness} holds no harness.py; say where it is with --harness DIR")
    ignored = shutil.ignore_patterns("cache", "run", "deb", "venv", "__pycache__", "results")
    shutil.copytree(harness, to, ignore=ignored)
    if (harness / "deb").is_dir():
        (to / "deb").symlink_to(harness / "deb")  # the servers, if they have been unpacked
    for adapter, name in SHAPES.items():
        (to / "adapters" / f"{adapter}.py").write_text(CONTESTANT.format(name=name))
    for adapter, (name, base) in OVERLAYS.items():
        text = OVERLAY.format(name=name, base=base)
        (to / "adapters" / f"{adapter}.py").write_text(text)
    workload = to / "workload.py"
    added = IN_PARTS if parts else SEEDED
    events = f"\ngen_events.__defaults__ = ({seed},)\n" if parts else ""
    workload.write_text(workload.read_text() + added.format(seed=seed, parts=PARTS) + events)
    if parts:
        for name, old, new in WIDER:
            replace(to / name, old, new)
    return to


def replace(file: Path, old: str, new: str) -> None:
    """Change a text that must be there."""
    text = file.read_text()
    if old not in text:
        raise StageError(f"{file.name} of the harness has changed: {old!r} is not in it")
    file.write_text(text.replace(old, new))
