"""A small run in which everything is right, as records that a fault can be planted into."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from tests.support.traces.runs import ABOVE_5, Overlay

Record = dict[str, Any]
EVENTS = 40
APART = 3.0
"""Seconds between two events."""


def written(folder: Path) -> dict[int, list[Record]]:
    """The records of each node: node 0 publishes, all others subscribe to everything, node 1 hosts
    the tree. An event is published every `APART` seconds."""
    o = Overlay(folder, 4)
    identities = [o.subscribe(node, ABOVE_5, f"on {node}", "a > 5") for node in (1, 2, 3)]
    o.wait(1.0)
    for number in range(EVENTS):
        event = o.publish(0, {"a": 6, "number": number})
        o.route(event, 1, "a", [2, 3])
        for identity in identities:
            o.deliver(event, identity, 2.0)
        o.wait(APART)
    o.wait(20.0)
    o.stop()
    return {
        number: [
            json.loads(line)
            for path in sorted(folder.rglob(f"node={name}/*.jsonl"))
            for line in path.read_text().splitlines()
            if line
        ]
        for number, name in enumerate(o.names)
    }


@dataclass
class Run:
    """The records of one copy of the good run, under nodes and an overlay of its own."""

    records: dict[int, list[Record]]

    def of(self, node: int, kind: str) -> list[Record]:
        """A node's records of this kind, in their order."""
        return [record for record in self.records[node] if record["kind"] == kind]

    def never(self, node: int, unwanted: Callable[[Record], bool]) -> list[Record]:
        """The node did not write the `unwanted` records. Returns them."""
        gone = self.cut(node, unwanted)
        self.renumber(node)
        return gone

    def cut(self, node: int, unwanted: Callable[[Record], bool]) -> list[Record]:
        """The node wrote the `unwanted` records, and they are absent. Returns them."""
        gone = [record for record in self.records[node] if unwanted(record)]
        self.records[node] = [record for record in self.records[node] if not unwanted(record)]
        return gone

    def also(self, node: int, record: Record, **changes: Any) -> None:
        """The node wrote this record, too, at its time by the hybrid logical clock."""
        self.records[node].append({**record, "node": self.name(node), **changes})
        self.renumber(node)

    def renumber(self, node: int) -> None:
        """Number the node's records in the order of their times, without gaps."""
        self.records[node].sort(key=lambda record: record.get("hlc", 0))
        numbers: dict[int, int] = {}
        for record in self.records[node]:
            if record["kind"] != "file":
                numbers[record["run"]] = record["n"] = numbers.get(record["run"], 0) + 1

    def name(self, node: int) -> str:
        """A node's id."""
        return str(self.records[node][0]["node"])

    def without(self, node: int, sample: float) -> None:
        """The node keeps a smaller share of the events."""
        self.never(
            node,
            lambda record: "event" in record and crc32(record["event"].encode()) >= sample * 2**32,
        )
        for record in self.of(node, "file"):
            record["sample"] = sample

    def store(self, folder: Path, inner: str = "") -> None:
        """Write one file for each node."""
        for node, records in self.records.items():
            place = folder / inner / "date=2026-09-21" / f"node={self.name(node)}" / "a.jsonl"
            place.parent.mkdir(parents=True)
            lines = (
                record.get("as it is") or json.dumps(record, separators=(",", ":"))
                for record in records
            )
            place.write_text("\n".join(["", *lines, ""]))


def copy_of(records: dict[int, list[Record]], overlay: str, number: int) -> Run:
    """The run again, of other nodes, in an overlay of this name."""
    text = json.dumps(records)
    for node, own in records.items():
        name = own[0]["node"]
        text = text.replace(name, f"{number:08x}{node:08x}")
    found = {int(node): own for node, own in json.loads(text).items()}
    for own in found.values():
        own[0]["overlay"] = overlay
    return Run(found)
