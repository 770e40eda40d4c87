"""What signed events cost: `python -m bench.security.signing --json`.

In this process (`kind` work): microseconds of processor time for each event to sign it, to look at
it when its batch's signature is new, and when it is known already, and the bytes of its proof.

In real processes (`kind` overlay): two overlays of three nodes with keys, one of which signs. In
turns, `--repetitions` times, a program publishes at one node, in batches of which each waits until
it has arrived, and programs at the two others subscribe; `cpu_us` is the processor time of all
three nodes for each event, the least of all repetitions and the median.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bench.security.tls import PATIENCE, Nodes
from canopy.client.consumer import Gathering
from canopy.wire.keys.certificates import node_id, raw_key
from canopy.wire.keys.signer import KeySigner
from overlay.client import Draft, Event
from overlay.upper_tree.event_proofs import EventProofs

BATCHES: Final = {1: 300, 16: 2_400, 256: 10_240}
"""By the size of a batch, how many events of such are published in one repetition."""

ATTRIBUTES: Final[dict[str, int | float | str | None]] = {
    "id": "e",
    "type": "reading",
    "region": "eu",
    "sensor": 7,
    "value": 1.5,
}


def best(work: Callable[[], object], events: int, rounds: int) -> float:
    """Microseconds of processor time for each of so many events."""
    found = float("inf")
    for _ in range(rounds):
        began = time.process_time_ns()
        work()
        found = min(found, time.process_time_ns() - began)
    return found / events / 1_000


def work(count: int) -> dict[str, Any]:
    """One row of `kind` work."""
    key = Ed25519PrivateKey.generate()
    publisher = node_id(raw_key(key.public_key()), 1)
    signer = KeySigner(key, 1)
    events = [
        Event(publisher, 1, n, time.time(), {**ATTRIBUTES, "n": n}, bytes(100), "x/y")
        for n in range(count)
    ]
    rounds = max(10, 2_000 // count)
    proofs = EventProofs(signer, True, time.time)
    signing = best(lambda: proofs.sign(events), count, rounds)
    signed = proofs.sign(events)

    def look() -> None:
        looking = EventProofs(signer, True, time.time)
        assert not any(map(looking.fault, signed))

    new = best(look, count, rounds)
    known = best(lambda: [proofs.fault(event) for event in signed], count, rounds)
    return {
        "kind": "work",
        "batch": count,
        "sign_us": signing,
        "look_us": new,
        "look_again_us": known,
        "proof_bytes": sum(len(event.proof or b"") for event in signed) / count,
    }


class Side:
    """One of the two overlays, with a program that publishes and two that subscribe."""

    def __init__(self, folder: Path, signs: bool) -> None:
        folder.mkdir()
        config = folder / "node.yaml"
        config.write_text(f"tree: {{sign: {str(signs).lower()}}}\n", encoding="utf-8")
        self.nodes = Nodes(folder, 3, True, ("--config", str(config)))
        self.publisher, *others = self.nodes.clients
        self.subscribers = [client.gather(["n >= 0"]) for client in others]

    def measure(self, batch: int, events: int) -> float:
        """Microseconds of all nodes for each event."""
        drafts = [Draft({**ATTRIBUTES, "n": n}, bytes(100), "x/y") for n in range(batch)]
        before = self.nodes.cpu()
        for _ in range(events // batch):
            self.publisher.publish_many(drafts, receipt=True)
            for subscriber in self.subscribers:
                self.take(subscriber, batch)
        return (self.nodes.cpu() - before) / (events // batch * batch) * 1e6

    @staticmethod
    def take(subscriber: Gathering, wanted: int) -> None:
        """Wait for so many events."""
        until = time.monotonic() + PATIENCE
        while wanted > 0:
            wanted -= len(subscriber.receive(1.0))
            assert not subscriber.gaps, subscriber.gaps
            assert time.monotonic() < until, f"{wanted} events are missing"


def overlays(repetitions: int, folder: Path) -> list[dict[str, Any]]:
    """The rows of `kind` overlay."""
    sides: dict[str, Side] = {}
    found: dict[int, dict[str, list[float]]] = {}
    try:
        for name in ("off", "on"):
            sides[name] = Side(folder / name, name == "on")
            sides[name].measure(16, 1_600)
        for batch, events in BATCHES.items():
            found[batch] = {name: [] for name in sides}
            for repetition in range(repetitions):
                for name in list(sides)[:: 1 if repetition % 2 else -1]:
                    found[batch][name].append(sides[name].measure(batch, events))
            print(f"{batch} {found[batch]}", file=sys.stderr)
    finally:
        for side in sides.values():
            side.nodes.stop()
    return [
        {
            "kind": "overlay",
            "batch": batch,
            "repetitions": repetitions,
            "best_cpu_us": {name: min(each) for name, each in by_side.items()},
            "cpu_us": {name: statistics.median(each) for name, each in by_side.items()},
        }
        for batch, by_side in found.items()
    ]


def main() -> None:
    """Measure signatures, and print the rows as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    rows = [work(count) for count in BATCHES]
    with tempfile.TemporaryDirectory(prefix="canopy-signing-") as folder:
        rows += overlays(chosen.repetitions, Path(folder))
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
