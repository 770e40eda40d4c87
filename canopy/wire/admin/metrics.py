"""/metrics: a node's counters and state in the exposition format of Prometheus.

prometheus_client writes the format. Writing everything takes milliseconds, for which the node would
do nothing else, so a few families are written at a time, and the node's other tasks run in between.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

import trio
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder

from canopy.wire.admin.http import OK, HttpAnswer, Request
from canopy.wire.admin.turn_times import TurnTimes
from overlay.client import Status
from overlay.links.messages import PROTOCOL

# --- the help texts of counters, read from the page beside this file: one source for both ---

PAGE: Final = "counters.md"
ROW: Final = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| (.*?) \|$", re.MULTILINE)
LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")

NOT_COUNTS: Final = {
    "longest_turn": "Longest turn of the node since it listens, with what it wrote to its disk",
    "longest_turn_cpu": "Most processor time that one turn of the node took since it listens",
}
"""Names on the page that are milliseconds and not counts, with their texts."""


@cache
def help_texts() -> dict[str, str]:
    """Return the help text of each counter by its name, in the order of the page."""
    return parse(resources.files(__package__).joinpath(PAGE).read_text(encoding="utf-8"))


def parse(page: str) -> dict[str, str]:
    """Return the rows of the page's tables as plain text. If a row has several names and as many
    parts between semicolons, each name gets its part; else each gets the whole row."""
    found: dict[str, str] = {}
    for names, text in ROW.findall(page):
        counters = re.findall(r"`(\w+)`", names)
        plain = LINK.sub(r"\1", text).replace("**", "").replace("`", "")
        parts = [part.strip() for part in plain.split(";")]
        each = parts if len(parts) == len(counters) > 1 else [plain] * len(counters)
        for name, part in zip(counters, each, strict=True):
            if name not in NOT_COUNTS:
                found[name] = part[:1].upper() + part[1:]
    return found


PREFIX: Final = "canopy_"
PIECE: Final = 8
"""Families that are written before other tasks run: some 0.2 ms of work."""

ROLES: Final = ("primary", "standby", "broker", "none")
END: Final = b"# EOF\n"
"""The end of an exposition in the OpenMetrics format, and so of each piece of one."""


@dataclass(frozen=True, slots=True)
class MetricFacts:
    """The facts from which the exposition is made. `expires`: when the node's certificate ends
    (seconds since 1970; 0: it has none); `free`: free bytes of its disk."""

    status: Status
    turns: TurnTimes
    version: str
    expires: float
    free: int


class MetricsPage:
    """Answers /metrics. `look` returns the facts, all of one moment."""

    def __init__(self, look: Callable[[], MetricFacts]) -> None:
        self._look = look
        self._process = ProcessCollector(registry=None)
        self._garbage = CollectorRegistry()  # its own, not the one of the whole process
        GCCollector(registry=self._garbage)

    async def answer(self, request: Request) -> HttpAnswer:
        """Return the whole exposition, in the format that the caller accepts."""
        encode, kind = choose_encoder(request.accept)
        facts = self._look()
        pieces: list[bytes] = []
        together: list[Metric] = []
        for family in self._families(facts):
            together.append(family)
            if len(together) == PIECE:
                pieces.append(encode(_Piece(together)))
                together = []
                await trio.lowlevel.checkpoint()
        pieces.append(encode(_Piece(together)))
        if pieces[-1].endswith(END):
            pieces = [piece.removesuffix(END) for piece in pieces] + [END]
        return HttpAnswer(OK, b"".join(pieces), kind)

    def _families(self, facts: MetricFacts) -> Iterator[Metric]:
        yield from gauges(facts)
        yield HistogramMetricFamily(
            f"{PREFIX}turn_seconds",
            "Turns of the node by how long they took: all that it does with what came in together",
            buckets=facts.turns.buckets(),
            sum_value=facts.turns.total,
        )
        counters = facts.status.counters
        for name, text in help_texts().items():
            yield CounterMetricFamily(f"{PREFIX}{name}", text, counters.get(name, 0))
        for name, text in NOT_COUNTS.items():
            yield GaugeMetricFamily(f"{PREFIX}{name}_seconds", text, counters.get(name, 0) / 1_000)
        yield from self._process.collect()
        yield from self._garbage.collect()


def gauges(facts: MetricFacts) -> Iterator[Metric]:
    """Yield the metrics of the node's identity and present state."""
    status = facts.status
    yield InfoMetricFamily(
        f"{PREFIX}node",
        "What the node is",
        {
            "node": status.node,
            "name": status.name,
            "address": status.address,
            "region": status.region,
            "version": facts.version,
            "protocol": str(PROTOCOL),
        },
    )
    role = GaugeMetricFamily(
        f"{PREFIX}role", "1 for the role of the node in its cluster", labels=("role",)
    )
    for each in ROLES:
        role.add_metric((each,), float(each == status.role))
    yield role
    led = sum(shard.here.state == "leads" for shard in status.shards)
    plain: tuple[tuple[str, str, float], ...] = (
        (
            "ready",
            "1 if the node has found its way into the overlay and does not leave",
            status.ready,
        ),
        ("draining", "1 if the node leaves", status.draining),
        (
            "lease",
            "1 if the node leads its cluster and a majority follows it",
            status.way == "lease",
        ),
        (
            "owner_reachable",
            "1 if the node is an owner of keys or knows a way to them",
            status.way in ("lease", "member", "known"),
        ),
        ("neighbours", "Other nodes in the node's view", status.neighbours),
        ("links", "Links that are connected", status.links),
        ("subscriptions", "Subscriptions of the node's programs", status.subscriptions),
        (
            "pending",
            "Events, visits, deliveries and publications that are not finished",
            status.pending,
        ),
        ("hosted_trees", "Attribute trees in which the node hosts virtual nodes", status.trees),
        (
            "programs",
            "Programs that are connected, and sessions that are kept",
            len(status.clients),
        ),
        ("shards", "Shards of streams that the node has (256 at most)", len(status.shards)),
        ("shards_led", "Shards of streams that the node leads", led),
        ("uptime_seconds", "Since the start of the process", status.uptime),
        ("disk_free_bytes", "Free on the disk of the data folder", facts.free),
    )
    for name, text, value in plain:
        yield GaugeMetricFamily(f"{PREFIX}{name}", text, float(value))
    if facts.expires:
        yield GaugeMetricFamily(
            f"{PREFIX}certificate_expiry_timestamp_seconds",
            "When the node's certificate ends, in seconds since 1970",
            facts.expires,
        )


class _Piece:
    """Some families, as a collector for an encoder."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
