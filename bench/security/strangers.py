"""What strangers at a node's port cost the others: connections and frames by the million.

`python -m bench.security.strangers --json` starts three nodes with keys and a fourth process, which
attacks the first of them. All of them are in a network namespace of their own (Linux, as root) that
leads nowhere, with an address that is not loopback: so the limits for other machines hold, and
nothing that is sent can leave. A program publishes at the attacked node, at `--rate` events
per second, and programs at the two others subscribe. Each window of `--seconds` is measured calm,
then attacked, and with the same attack on a bare listener (`elsewhere`), since attacker and nodes
share this machine: it accepts and closes, and what it costs is the attacker's. The attacks:

- `connections`: 10,000 that are kept open, and say nothing
- `hello`: 10,000, each with a whole ClientHello, and closed again
- `joins`: 6,000 from 30 addresses, as of who asks for a certificate, with a whole ClientHello
- `frames`: 1,000,000 whole frames of nodes, without TLS
- `anonymous`: the same within TLS, by one who presents no certificate
- `slow`: 1,000 connections, each with a byte of a ClientHello per second

`p99_ms` is of the programs' events; `memory_mib` the most that the attacked node's resident memory
was above that before; `dispatched` how many frames nodes have read more than nodes have written;
`cpu_share` the processor time of the attacked node within the window. Medians of `--repetitions`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import ssl
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, Final

import psutil

from bench.command import medians, parser, show
from bench.processes.overlays import folder
from bench.processes.programs import Program
from bench.security.tls import SIZE, Nodes
from canopy.cli.bench import MeasurementPlan, measure
from canopy.wire.keys.enrolment import PREAMBLE
from canopy.wire.process.listener import raise_file_limit
from canopy.wire.transport.framing import NODE_FRAMES
from canopy.wire.transport.tls import new_context
from overlay.links.messages import Ack

PATIENCE: Final = 60.0
CONNECTIONS: Final = 10_000
FRAMES: Final = 1_000_000
AT_ONCE: Final = 10_000
"""Frames that one connection of `frames` is to say."""

SLOW: Final = 1_000
JOINS: Final = 6_000

SOURCES: Final = 30
SOURCE: Final = "10.99.1.{}"
"""Addresses of an attacker that has many."""

HOST: Final = "10.99.0.1"
"""The address in the namespace, on its loopback device."""

Address = tuple[str, int]


# --- the attacker, a process of its own ---


def dialled(target: Address) -> socket.socket | None:
    """A connection that is being opened; None: there is no room for it."""
    found = socket.socket()
    found.setblocking(False)
    found.connect_ex(target)
    return found


def client_hello() -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
    """A client that presents no certificate and believes anybody, with its first words."""
    context = new_context(False)
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return client, incoming, outgoing


def connections(target: Address, pause: Callable[[float], None]) -> None:
    kept = []
    for number in range(CONNECTIONS):
        kept.append(dialled(target))
        pause((number + 1) / CONNECTIONS)
    time.sleep(PATIENCE)


def hello(target: Address, pause: Callable[[float], None]) -> None:
    words = client_hello()[2].read()
    for number in range(CONNECTIONS):
        with suppress(OSError), closing(socket.create_connection(target, 1.0)) as one:
            one.sendall(words)
        pause((number + 1) / CONNECTIONS)


def joins(target: Address, pause: Callable[[float], None]) -> None:
    words = PREAMBLE + client_hello()[2].read()
    for number in range(JOINS):
        source = (SOURCE.format(number % SOURCES + 1), 0)
        with suppress(OSError), closing(socket.create_connection(target, 1.0, source)) as one:
            one.sendall(words)
            one.settimeout(0.002)
            one.recv(1)
        pause((number + 1) / JOINS)


def frames(target: Address, pause: Callable[[float], None]) -> None:
    words = NODE_FRAMES.encode(Ack(1, 2)) * AT_ONCE
    for number in range(FRAMES // AT_ONCE):
        with suppress(OSError), closing(socket.create_connection(target, 1.0)) as one:
            one.settimeout(1.0)
            one.sendall(words)
        pause((number + 1) / (FRAMES // AT_ONCE))


def anonymous(target: Address, pause: Callable[[float], None]) -> None:
    words = NODE_FRAMES.encode(Ack(1, 2)) * AT_ONCE
    for number in range(FRAMES // AT_ONCE):
        with suppress(OSError), closing(socket.create_connection(target, 1.0)) as one:
            one.settimeout(1.0)
            client, incoming, outgoing = client_hello()
            one.sendall(outgoing.read())
            incoming.write(one.recv(65_536))
            with suppress(ssl.SSLError):
                client.do_handshake()
                client.write(words)
            one.sendall(outgoing.read())
        pause((number + 1) / (FRAMES // AT_ONCE))


def slow(target: Address, pause: Callable[[float], None]) -> None:
    words = client_hello()[2].read()
    held: list[socket.socket | None] = [dialled(target) for _ in range(SLOW)]
    for place in range(len(words)):
        for number, one in enumerate(held):
            try:
                assert one is not None
                one.send(words[place : place + 1])
            except (OSError, AssertionError):  # it was closed: again from the beginning
                if one is not None:
                    one.close()
                held[number] = dialled(target)
        time.sleep(1.0)


ATTACKS: Final = {
    found.__name__: found for found in (connections, hello, joins, frames, anonymous, slow)
}


def attack(name: str, target: Address, seconds: float) -> None:
    """Attack, evenly over so many seconds, until this process is ended."""
    raise_file_limit()
    began = time.monotonic()

    def pause(done: float) -> None:
        if (early := began + done * seconds - time.monotonic()) > 0.002:
            time.sleep(early)

    ATTACKS[name](target, pause)


def listen() -> None:
    """Accept and close, until this process is ended; its port goes to standard output."""
    with socket.create_server(("0.0.0.0", 0), backlog=1024) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            server.accept()[0].close()


# --- the measurement ---


class Watch:
    """The most resident memory of a process meanwhile."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.before = self.most = self._process.memory_info().rss
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._done.wait(0.05):
            self.most = max(self.most, self._process.memory_info().rss)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def cpu(processes: Sequence[psutil.Process]) -> float:
    """Processor seconds of all of them so far."""
    return sum(sum(one.cpu_times()[:2]) for one in processes)


class Window:
    """Measures one window after the other."""

    def __init__(self, nodes: Nodes, rate: float, seconds: float, watched: int = 1) -> None:
        """`watched`: so many nodes are looked at, from the first on."""
        self.nodes = nodes
        self.plan = MeasurementPlan(int(rate * seconds), SIZE, rate, receipt=True, timeout=30.0)
        self.seconds = seconds
        self._watched = watched

    def totals(self) -> dict[str, int]:
        """Counters, of all nodes."""
        found: dict[str, int] = {}
        for number in range(len(self.nodes.processes)):
            for name, count in self.nodes.status(number).counters.items():
                found[name] = found.get(name, 0) + count
        return found

    def measure(self) -> dict[str, Any]:
        """Milliseconds that events take in a window, and what the nodes spend in it."""
        watched = [psutil.Process(one.pid) for one in self.nodes.processes[: self._watched]]
        before, began, spent = self.totals(), time.monotonic(), cpu(watched)
        with ExitStack() as stack:
            watches = [stack.enter_context(Watch(one.pid)) for one in watched]
            found = measure(self.nodes.clients[:1], self.nodes.clients[1:], self.plan)
        spent = cpu(watched) - spent
        took = time.monotonic() - began
        assert found.missing == 0, f"{found.missing} deliveries are missing"
        more = {name: count - before.get(name, 0) for name, count in self.totals().items()}
        return {
            "p50_ms": found.latency_ms["p50"],
            "p99_ms": found.latency_ms["p99"],
            "memory_mib": max(one.most - one.before for one in watches) / 2**20,
            "cpu_share": spent / took,
            "refused": more["wire_accepts_refused"] + more["wire_tls_refused"],
            "quota_refused": more.get("quota_refused", 0),
            "dispatched": more["wire_frames_in"] - more["wire_frames_out"],
        }

    def attacked(self, name: str, target: Address) -> dict[str, Any]:
        words = ("--attack", name, *target, "--seconds", self.seconds)
        with Program("bench.security.strangers", *words) as attacker:
            row = self.measure()
            assert attacker.process.poll() in (None, 0), "the attacker has failed"
        self.settle()
        return row

    def settle(self) -> None:
        """Wait until nothing more is refused: some waits in the system's queue."""
        before = -1
        while (now := self.totals()["wire_accepts_refused"]) != before:
            before = now
            time.sleep(0.5)


def go_apart() -> None:
    """Begin again in a network namespace of its own. Does not return."""
    again = [sys.executable, "-m", "bench.security.strangers", "--apart", *sys.argv[1:]]
    made = (
        f"ip link set lo up && ip address add {HOST}/32 dev lo && "
        f"for n in $(seq {SOURCES}); do ip address add {SOURCE.format('$n')}/32 dev lo; done && "
        f"exec {shlex.join(again)}"
    )
    try:
        os.execvp("unshare", ["unshare", "--net", "sh", "-c", made])
    except OSError as error:
        raise SystemExit(f"no network namespace can be made: unshare: {error.strerror}") from None


def run(chosen: argparse.Namespace, place: Path) -> list[dict[str, Any]]:
    """A row for each attack and each of calm, attacked and elsewhere: medians of all windows."""
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    nodes = Nodes(place, 3, True, first=("--listen", f"{HOST}:{port}"))
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    try:
        window = Window(nodes, chosen.rate, chosen.seconds)
        with Program("bench.security.strangers", "--listen") as bare:
            elsewhere = (HOST, int(bare.line()))
            window.measure()
            for repetition in range(chosen.repetitions):
                for name in chosen.attacks or ATTACKS:
                    for where in ("calm", "elsewhere", "attacked")[:: 1 if repetition % 2 else -1]:
                        if where == "calm":
                            row = window.measure()
                        else:
                            target = (HOST, port) if where == "attacked" else elsewhere
                            row = window.attacked(name, target)
                        found.setdefault((name, where), []).append(row)
                        print(repetition, name, where, row, file=sys.stderr)
    finally:
        nodes.stop()
    rows = []
    for (name, where), each in sorted(found.items()):
        middle = medians(each)
        for other in ("calm", "elsewhere"):
            p99 = statistics.median(one["p99_ms"] for one in found[name, other])
            middle[f"p99_over_{other}"] = middle["p99_ms"] / p99
        rows.append({"attack": name, "where": where, "repetitions": chosen.repetitions, **middle})
    return rows


def main() -> None:
    made = parser(
        __doc__,
        rate=(200.0, "events per second"),
        seconds=(10.0, "of a window"),
        repetitions=(3, "of all windows"),
    )
    made.add_argument("--attacks", nargs="*", choices=list(ATTACKS))
    made.add_argument("--attack", nargs=3, help=argparse.SUPPRESS)
    made.add_argument("--listen", action="store_true", help=argparse.SUPPRESS)
    made.add_argument("--apart", action="store_true", help=argparse.SUPPRESS)
    chosen = made.parse_args()
    if chosen.listen:
        return listen()
    if chosen.attack:
        name, host, port = chosen.attack
        return attack(name, (host, int(port)), chosen.seconds)
    if not chosen.apart:
        go_apart()
    with folder() as place:
        show(run(chosen, place), chosen)
    return None


if __name__ == "__main__":
    main()
