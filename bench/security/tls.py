"""What TLS costs an overlay of real processes: with it and without, side by side.

`python -m bench.security.tls --json` starts two overlays of `--nodes` nodes, one with keys and one
without, and leaves both running. In turns, `--repetitions` times, one program publishes at one node
of each overlay and a program subscribes at every other one: `--events` events as fast as they are
taken (`events_per_second`, deliveries to all subscribers), then `--slow` at 200 per second
(`p50_ms`). `cpu_us` and `calm_cpu_us` are the processor time of all nodes for one delivery in the
one case and the other, which other load on the machine changes least. All processes share this
machine, and other programs disturb them, which only ever makes it slower: so `best_…` is the best
of all repetitions, beside the medians, and `…_ratio` and `p50_more_ms` compare the best of the
overlay with keys to the best of the other one. `paired_…` are the medians of what the two
measurements of one repetition differ by, which the machine disturbs alike.

Then, in this process: `handshake_ms` is the processor time of one TLS handshake for one side (half
of both), and `seal_us` that of encrypting and decrypting one batch. `join_seconds` is from `canopy
keys invite` to the new node's *ready*. Progress goes to standard error.
"""

from __future__ import annotations

import os
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from bench.command import medians, parser, show
from bench.processes.overlays import folder
from canopy.cli.bench import MeasurementPlan, measure
from canopy.client.blocking import ControlClient
from canopy.client.client import Client, connect
from canopy.client.errors import UnreachableError
from canopy.wire.keys.authority import found_overlay, issuer_of
from canopy.wire.keys.certificates import Holder
from canopy.wire.keys.key_folder import KeyFolder
from canopy.wire.transport.tls import new_context
from overlay.client import GetStatus, Status
from overlay.rights import Role

ROOT: Final = Path(__file__).resolve().parents[2]
PATIENCE: Final = 120.0
SIZES: Final = (64, 1024, 16_384)
"""Bytes of a batch that is encrypted."""

SLOW_RATE: Final = 200.0
BEST: Final = {"events_per_second": max, "p50_ms": min, "cpu_us": min, "calm_cpu_us": min}
"""Which of several measurements of the same was disturbed least."""

SIZE: Final = 100
"""Bytes of an event's payload."""


class Nodes:
    """One overlay. `first`: more arguments of the first node's command line."""

    def __init__(
        self,
        folder: Path,
        count: int,
        secured: bool,
        first: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.clients: list[Client] = []
        if secured:
            self._sign(count)
        seed = ""
        for number in range(count):
            self.start(number, *(["--peer", seed] if seed else first))
            seed = seed or self.status(0).address
        until = time.monotonic() + PATIENCE
        while not all(self.status(number).ready for number in range(count)):
            assert time.monotonic() < until, "nodes are not ready"
            time.sleep(0.1)
        self.clients = [connect(self.data(number)) for number in range(count)]

    def data(self, number: int) -> Path:
        return self.folder / str(number)

    def _sign(self, count: int) -> None:
        first = KeyFolder(self.data(0))
        found_overlay(first, "bench")
        issuer = issuer_of(first)
        for number in range(1, count):
            folder = KeyFolder(self.data(number))
            key = folder.node_key().public_key()
            holder = Holder("bench", Role.VOTER, "", 1)
            folder.write_chain("roots", *first.chain("roots"))
            folder.write_chain("node", *issuer.sign_node(holder, key, time.time()))

    def start(self, number: int, *arguments: str) -> None:
        command = [sys.executable, "node.py", "--listen", "127.0.0.1:0", "--no-directory"]
        command += ["--no-trace", "--data", str(self.data(number)), *arguments]
        with (self.folder / f"{number}.log").open("wb") as log:
            self.processes.append(subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log))

    def canopy(self, *words: str, number: int = 0) -> str:
        """What a command prints, about one node."""
        where = "--connect" if words[0] == "reload" else "--data"
        command = [sys.executable, "-m", "canopy", *words, where, str(self.data(number))]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout.strip()

    def join(self, number: int, *words: str) -> float:
        """Start one more node, with an invitation, and wait until it is ready. Returns how many
        seconds both took."""
        began = time.monotonic()
        self.start(number, "--join", self.canopy("keys", "invite", *words))
        while not self.status(number).ready:
            time.sleep(0.02)
        return time.monotonic() - began

    def status(self, number: int) -> Status:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                with ControlClient.connect(self.data(number)) as client:
                    return client.ask(GetStatus(0), Status)
            except UnreachableError:
                assert time.monotonic() < until, "a node does not start"
                time.sleep(0.05)

    def cpu(self) -> float:
        times = [psutil.Process(process.pid).cpu_times() for process in self.processes]
        return sum(one.user + one.system for one in times)

    def measure(self, events: int, rate: float) -> dict[str, float]:
        plan = MeasurementPlan(events, SIZE, rate, receipt=True, timeout=30.0)
        before = self.cpu()
        found = measure(self.clients[:1], self.clients[1:], plan)
        assert found.missing == 0, f"{found.missing} deliveries are missing"
        return {
            "events_per_second": found.delivery_rate,
            "p50_ms": found.latency_ms["p50"],
            "cpu_us": (self.cpu() - before) / found.delivered * 1e6,
        }

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        for process in self.processes:
            process.kill()
            process.wait()


def pair(folder: Path) -> tuple[ssl.SSLObject, ssl.SSLObject, list[ssl.MemoryBIO]]:
    """Both sides of a connection in memory; not greeted yet."""
    contexts = []
    for is_server in (False, True):
        context = new_context(is_server)
        context.load_verify_locations(folder / "roots.pem")
        context.load_cert_chain(folder / "node.pem", folder / "node.key")
        contexts.append(context)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = contexts[0].wrap_bio(back, there, server_side=False)
    server = contexts[1].wrap_bio(there, back, server_side=True)
    return client, server, [there, back]


def greet(client: ssl.SSLObject, server: ssl.SSLObject) -> None:
    waiting = [client, server]
    while waiting:
        side = waiting.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(side)


def in_memory(folder: Path) -> dict[str, Any]:
    """Handshakes, and batches of some sizes, without sockets."""
    rounds = 200
    pairs = [pair(folder)[:2] for _ in range(rounds)]
    began = time.process_time()
    for client, server in pairs:
        greet(client, server)
    found: dict[str, Any] = {"handshake_ms": (time.process_time() - began) / rounds / 2 * 1e3}
    client, server = pairs[0]
    buffer = bytearray(65_536)
    for size in SIZES:
        data = os.urandom(size)
        began = time.process_time()
        for _ in range(5_000):
            client.write(data)
            server.read(65_536, buffer)
        found[f"seal_us_{size}"] = (time.process_time() - began) / 5_000 * 1e6
    return found


def run(nodes: int, repetitions: int, events: int, slow: int, place: Path) -> list[dict[str, Any]]:
    found: dict[str, list[dict[str, float]]] = {"plain": [], "tls": []}
    overlays: dict[str, Nodes] = {}
    rows: list[dict[str, Any]] = []
    try:
        for name in found:
            (place / name).mkdir()
            overlays[name] = Nodes(place / name, nodes, name == "tls")
            overlays[name].measure(events // 4, 0.0)  # trees, tables, compiled kernels
        for repetition in range(repetitions):
            for name in list(found)[:: 1 if repetition % 2 else -1]:
                fast = overlays[name].measure(events, 0.0)
                calm = overlays[name].measure(slow, SLOW_RATE)
                more = {"p50_ms": calm["p50_ms"], "calm_cpu_us": calm["cpu_us"]}
                found[name].append({**fast, **more})
                print(f"{repetition} {name} {found[name][-1]}", file=sys.stderr)
        for name, each in found.items():
            row = medians(each)
            best = {f"best_{key}": choose(one[key] for one in each) for key, choose in BEST.items()}
            rows.append({"kind": name, "nodes": nodes, "repetitions": repetitions, **row, **best})
        plain, tls = rows
        pairs = list(zip(found["tls"], found["plain"], strict=True))
        for key in ("events_per_second", "cpu_us", "calm_cpu_us"):
            tls[f"{key}_ratio"] = tls[f"best_{key}"] / plain[f"best_{key}"]
            tls[f"paired_{key}"] = statistics.median(one[key] / other[key] for one, other in pairs)
        tls["p50_more_ms"] = tls["best_p50_ms"] - plain["best_p50_ms"]
        tls["paired_p50_more_ms"] = statistics.median(
            one["p50_ms"] - other["p50_ms"] for one, other in pairs
        )
        seconds = [overlays["tls"].join(nodes + number) for number in range(3)]
        memory = in_memory(place / "tls" / "0" / "keys")
        rows.append({"kind": "keys", "join_seconds": statistics.median(seconds), **memory})
    finally:
        for one in overlays.values():
            one.stop()
    return rows


def main() -> None:
    """Print a row for each overlay, and one for keys."""
    options = parser(
        __doc__,
        nodes=(8, "nodes of each overlay"),
        repetitions=(5, "in turns"),
        events=(20_000, "as fast as they are taken"),
        slow=(600, "events at a steady rate"),
    ).parse_args()
    with folder() as place:
        rows = run(options.nodes, options.repetitions, options.events, options.slow, place)
    show(rows, options)


if __name__ == "__main__":
    main()
