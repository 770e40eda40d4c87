"""What a program on another machine pays for a request: TCP, TLS and a token beside the socket.

`python -m bench.security.programs --json` starts one node with keys that serves programs over TCP
on loopback, and connects to it twice: by its Unix socket, and by an access file. In turns,
`--repetitions` times, each connection publishes `--requests` events of 100 bytes one after the
other, each when the one before is answered (`request_us`, wall clock), then `--events` in batches
of 100 (`events_per_second`); `cpu_us` is the processor time of this process and the node for one
request. Medians over all repetitions; `best_…` is the best one, which other load disturbed least.
`more_us` and `…_ratio` compare the best by TCP with the best by the socket. Nobody subscribes.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from bench.security.tls import SIZE, Nodes
from canopy.client.client import Client, connect
from canopy.client.remote import AccessFile, write_access
from canopy.wire.control.remote import token_file
from canopy.wire.keys.key_folder import KeyFolder
from overlay.client import Draft

BATCH: Final = 100
BEST: Final = {"request_us": min, "cpu_us": min, "events_per_second": max}


def free_address() -> str:
    """A loopback address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return f"127.0.0.1:{found.getsockname()[1]}"


def measured(nodes: Nodes, client: Client, requests: int, events: int) -> dict[str, float]:
    """One repetition by one connection."""
    draft = Draft({"n": 1}, bytes(SIZE))
    cpu, began = nodes.cpu() + time.process_time(), time.perf_counter()
    for _ in range(requests):
        client.publish_many((draft,))
    taken = time.perf_counter() - began
    cpu = nodes.cpu() + time.process_time() - cpu
    batch = (draft,) * BATCH
    began = time.perf_counter()
    for _ in range(events // BATCH):
        client.publish_many(batch)
    rate = events // BATCH * BATCH / (time.perf_counter() - began)
    return {
        "request_us": taken / requests * 1e6,
        "cpu_us": cpu / requests * 1e6,
        "events_per_second": rate,
    }


def run(repetitions: int, requests: int, events: int, folder: Path) -> list[dict[str, Any]]:
    """Measure requests and publishing by the socket and by TCP, and return the rows."""
    address = free_address()
    config = folder / "node.yaml"
    config.write_text(f"clients: {{listen: '{address}'}}\n", encoding="utf-8")
    nodes = Nodes(folder, 1, True, ("--config", str(config)))
    try:
        data = nodes.data(0)
        secret = token_file(data).add("bench", ("publish",))
        own = KeyFolder(data).certificate()
        assert own is not None
        path = folder / "access"
        write_access(path, AccessFile(1, address, own.principal.id, secret))
        found: dict[str, list[dict[str, float]]] = {"socket": [], "tcp": []}
        with connect(data) as near, connect(path) as far:
            faces = {"socket": near, "tcp": far}
            for client in faces.values():
                measured(nodes, client, requests // 4, events // 4)
            for repetition in range(repetitions):
                for name in list(faces)[:: 1 if repetition % 2 else -1]:
                    found[name].append(measured(nodes, faces[name], requests, events))
                    print(f"{repetition} {name} {found[name][-1]}", file=sys.stderr)
    finally:
        nodes.stop()
    rows: list[dict[str, Any]] = []
    for name, each in found.items():
        row = {key: statistics.median(one[key] for one in each) for key in BEST}
        best = {f"best_{key}": choose(one[key] for one in each) for key, choose in BEST.items()}
        rows.append({"kind": name, "repetitions": repetitions, **row, **best})
    near_row, far_row = rows
    far_row["more_us"] = far_row["best_request_us"] - near_row["best_request_us"]
    for key in ("cpu_us", "events_per_second"):
        far_row[f"{key}_ratio"] = far_row[f"best_{key}"] / near_row[f"best_{key}"]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--requests", type=int, default=1_000)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--json", action="store_true", help="print rows")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="canopy-programs-") as folder:
        rows = run(chosen.repetitions, chosen.requests, chosen.events, Path(folder))
    if chosen.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
