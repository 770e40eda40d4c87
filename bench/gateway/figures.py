"""What HTTP and MQTT cost beside the client library: `python -m bench.gateway.figures --json`.

One node without keys, a gateway beside it, and this process, which publishes and follows by each
face in turns, `--repetitions` times, on loopback: `direct` (the library, at the node's own socket),
`http` (POST /events, server-sent events) and `mqtt` (quality of service 1 in, 0 out). Events have
three attributes and 100 bytes of text.

- `request_us`: one event, sent and answered, one after the other (wall clock)
- `in_per_second`: events in batches of 100: an array over HTTP, publications ahead over MQTT
- `in_cpu_us`: processor time of node and gateway for one of these
- `out_per_second`: events that one follower gets, at most 1,000 under way; the library publishes
- `out_cpu_us`: processor time of node and gateway for one of these
- `p50_ms`, `p99_ms`: until a follower has an event, at 200 per second

Medians of all repetitions. The follower reads in a thread of this process, in Python.
"""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import mqtt5
import psutil

from bench.command import medians, parser, show
from bench.processes.overlays import folder
from bench.security.tls import ROOT, Nodes
from canopy.cli.bench import percentiles
from canopy.client.client import Client, connect
from overlay.client import Delivery, Draft

PATIENCE: Final = 60.0
BATCH: Final = 100
AHEAD: Final = 1_000
RATE: Final = 200.0
TEXT: Final = "x" * 100
SELECTOR: Final = "bench = 'out'"
Seen = Callable[[float], None]
"""Called by a follower with the time that is in each event, as soon as it has it."""


def attributes(kind: str) -> dict[str, Any]:
    """An event's; `sent` is the time of this process's clock."""
    return {"bench": kind, "sent": time.perf_counter(), "text": TEXT}


class Face(Protocol):
    """One way to publish and to follow."""

    def publish(self, events: Sequence[dict[str, Any]]) -> None:
        """Returns when the node has admitted them."""

    def follow(self, seen: Seen, started: threading.Event) -> None:
        """Follow `SELECTOR` until `stop`; `started` is set when it is subscribed."""

    def stop(self) -> None:
        """End what `follow` does."""


class Direct:
    def __init__(self, data: Path) -> None:
        self._data = data
        self._client = connect(data)
        self._over = threading.Event()

    def publish(self, events: Sequence[dict[str, Any]]) -> None:
        self._client.publish_many([Draft(one) for one in events])

    def follow(self, seen: Seen, started: threading.Event) -> None:
        self._over.clear()
        with connect(self._data) as client:
            subscription = client.subscribe(SELECTOR)
            started.set()
            while not self._over.is_set():
                for found in subscription.receive(0.2):
                    assert isinstance(found, Delivery), found
                    seen(float(str(found.event.attributes["sent"])))

    def stop(self) -> None:
        self._over.set()


class Http:
    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
        self._socket: socket.socket | None = None

    def publish(self, events: Sequence[dict[str, Any]]) -> None:
        body = json.dumps(events if len(events) > 1 else events[0])
        self._connection.request("POST", "/events", body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        told = answer.read()
        assert answer.status == 200, told

    def follow(self, seen: Seen, started: threading.Event) -> None:
        connection = http.client.HTTPConnection(*self._address, timeout=PATIENCE)
        connection.request("GET", "/events?where=bench%3D'out'")
        self._socket = connection.sock
        answer = connection.getresponse()
        assert answer.status == 200
        for line in answer:
            if line.startswith(b"data: "):
                seen(json.loads(line[6:])["attributes"]["sent"])
            elif line.startswith(b": subscribed"):
                started.set()
            elif line.startswith(b"event: gap"):
                raise AssertionError("the follower missed events")

    def stop(self) -> None:
        assert self._socket is not None
        self._socket.shutdown(socket.SHUT_RDWR)


class Mqtt:
    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._socket, self._packets = self._connect()
        self._number = 0
        self._follower: socket.socket | None = None

    def _connect(self) -> tuple[socket.socket, Iterator[Any]]:
        found = socket.create_connection(self._address, PATIENCE)
        found.sendall(mqtt5.ConnectPacket("").write())
        packets = self._read(found)
        next(packets)
        return found, packets

    def _read(self, found: socket.socket) -> Iterator[Any]:
        buffer = bytearray()
        while data := found.recv(65_536):
            buffer += data
            at, view = 0, memoryview(bytes(buffer))
            while True:
                try:
                    packet, size = mqtt5.read(view[at:])
                except IndexError:
                    break
                at += size
                yield packet
            del buffer[:at]

    def publish(self, events: Sequence[dict[str, Any]]) -> None:
        words = b""
        for one in events:
            self._number = self._number % 60_000 + 1
            payload = json.dumps(one).encode()
            options = {"qos": mqtt5.QoS.AT_LEAST_ONCE, "packet_id": self._number}
            words += mqtt5.PublishPacket("bench", payload, **options).write()  # type: ignore[arg-type]
        self._socket.sendall(words)
        for _ in events:
            assert next(self._packets).reason_code == mqtt5.PubAckReasonCode.SUCCESS

    def follow(self, seen: Seen, started: threading.Event) -> None:
        self._follower, packets = self._connect()
        what = mqtt5.TopicFilter("$where/" + SELECTOR, max_qos=mqtt5.QoS.AT_MOST_ONCE)
        self._follower.sendall(mqtt5.SubscribePacket(1, [what]).write())
        next(packets)
        started.set()
        for packet in packets:
            seen(float(dict(packet.user_properties)["sent"]))

    def stop(self) -> None:
        assert self._follower is not None
        self._follower.shutdown(socket.SHUT_RDWR)


class Bench:
    """Measures faces at one node and one gateway."""

    def __init__(self, nodes: Nodes, gateway: subprocess.Popen[str]) -> None:
        pids = [nodes.processes[0].pid, gateway.pid]
        self._processes = [psutil.Process(pid) for pid in pids]
        self._publisher: Client = connect(nodes.data(0))

    def cpu(self) -> float:
        times = [process.cpu_times() for process in self._processes]
        return sum(one.user + one.system for one in times)

    def measure(self, face: Face, requests: int, events: int) -> dict[str, float]:
        events = max(BATCH, events // BATCH * BATCH)
        began = time.perf_counter()
        for _ in range(requests):
            face.publish([attributes("in")])
        request = (time.perf_counter() - began) / requests
        cpu, began = self.cpu(), time.perf_counter()
        for _ in range(events // BATCH):
            face.publish([attributes("in") for _ in range(BATCH)])
        rate = events / (time.perf_counter() - began)
        row = {
            "request_us": request * 1e6,
            "in_per_second": rate,
            "in_cpu_us": (self.cpu() - cpu) / events * 1e6,
        }
        return {**row, **self._followed(face, events, requests)}

    def _followed(self, face: Face, events: int, slow: int) -> dict[str, float]:
        latencies: list[float] = []
        started = threading.Event()

        def seen(sent: float) -> None:
            latencies.append(time.perf_counter() - sent)

        def follow() -> None:
            try:
                face.follow(seen, started)
            except (OSError, http.client.HTTPException):
                return  # it was stopped

        thread = threading.Thread(target=follow)
        thread.start()
        assert started.wait(PATIENCE)
        cpu, began = self.cpu(), time.perf_counter()
        for done in range(0, events, BATCH):
            self._await(latencies, done + BATCH - AHEAD)
            self._publisher.publish_many([Draft(attributes("out")) for _ in range(BATCH)])
        self._await(latencies, events)
        rate = events / (time.perf_counter() - began)
        cpu = (self.cpu() - cpu) / events * 1e6
        began = time.perf_counter()
        for number in range(slow):
            time.sleep(max(0.0, began + number / RATE - time.perf_counter()))
            self._publisher.publish_many([Draft(attributes("out"))])
        self._await(latencies, events + slow)
        face.stop()
        thread.join()
        assert len(latencies) == events + slow
        found = percentiles([each * 1e3 for each in latencies[events:]])
        row = {"out_per_second": rate, "out_cpu_us": cpu}
        return {**row, "p50_ms": found["p50"], "p99_ms": found["p99"]}

    def _await(self, latencies: list[float], count: int) -> None:
        until = time.monotonic() + PATIENCE
        while len(latencies) < count:
            assert time.monotonic() < until, f"{count - len(latencies)} events did not come"
            time.sleep(0.0005)


@contextmanager
def gateway_of(data: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, tuple[str, int]]]]:
    """A gateway at a node, and where it serves."""
    command = [sys.executable, "-m", "canopy", "gateway", "--connect", str(data), "--json"]
    command += ["--http", "127.0.0.1:0", "--mqtt", "127.0.0.1:0"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        urls = json.loads(process.stdout.readline())
        found = {}
        for name, url in urls.items():
            host, _, port = url.split("/")[2].rpartition(":")
            found[name] = (host, int(port))
        yield process, found
    finally:
        process.terminate()
        process.wait()


def run(repetitions: int, requests: int, events: int, place: Path) -> list[dict[str, Any]]:
    """A row for each face, of medians: events per second, milliseconds, processor µs an event."""
    nodes = Nodes(place, 1, False)
    found: dict[str, list[dict[str, float]]] = {}
    try:
        with gateway_of(nodes.data(0)) as (process, places):
            bench = Bench(nodes, process)
            faces: dict[str, Face] = {
                "direct": Direct(nodes.data(0)),
                "http": Http(*places["http"]),
                "mqtt": Mqtt(*places["mqtt"]),
            }
            for face in faces.values():
                bench.measure(face, requests // 4, events // 4)
            for repetition in range(repetitions):
                for name in list(faces)[:: 1 if repetition % 2 else -1]:
                    found.setdefault(name, []).append(bench.measure(faces[name], requests, events))
                    print(f"{repetition} {name} {found[name][-1]}", file=sys.stderr)
    finally:
        nodes.stop()
    return [{"face": name, "repetitions": repetitions, **medians(found[name])} for name in faces]


def main() -> None:
    """Print a row for each face."""
    options = parser(
        __doc__,
        repetitions=(5, "of each face, in turns"),
        requests=(500, "events that are sent one after the other"),
        events=(10_000, "events in batches"),
    ).parse_args()
    with folder() as place:
        show(run(options.repetitions, options.requests, options.events, place), options)


if __name__ == "__main__":
    main()
