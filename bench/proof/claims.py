"""What is promised, each with the command that tries it and the size that is to be reached."""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple


class Claim(NamedTuple):
    """A promise and its trials. Paths are those of `bench.lab.tables` in the rows that the command
    prints; several are separated by spaces. A number counts as itself, a list by its length, a
    dictionary by the sum of its values."""

    name: str
    promise: str
    command: str
    """Of one piece. `{seed}`, `{seeds}` and `{part}` are replaced."""
    size: str
    """Path of how large a piece was …"""
    unit: str
    """… and what is counted there."""
    lost: str
    """Paths of what must be 0."""
    fast: int
    """Units that the present commit has to reach, of each part …"""
    full: int
    """… and that all commits have to reach together."""
    faults: str = ""
    """Path of the faults that were injected."""
    red: str = ""
    """Path of the list of seeds that were bad; "": those of a bad piece are."""
    figure: str = ""
    """Path of a figure of which the largest is kept …"""
    figure_of: str = ""
    """… what it says …"""
    most: float = inf
    """… and what it must not exceed."""
    step: int = 1
    """Seeds of a piece."""
    parts: tuple[str, ...] = ("",)
    """What each seed is tried on: parsers, former commits, kinds of programs."""
    first: int = 1
    """The first seed."""
    former: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Parts, each with seeds at which a former commit was bad."""


WIRE_CHANGES: Final = (
    *("78d79175~1 --keys", "f81b9366~1 --keys", "3b6c6d00~1 --keys"),
    *("00a757c6~1", "0391c383"),
)
"""Commits before changes of the wire that an overlay may be upgraded from: orders that a host has
not believed, signed records in the directory, one conversation of programs with leaders, the
beginning of a gap; and the first of whose nodes two versions can be one overlay. The last two
without keys: with them their hosts do not show the tokens that receivers ask for."""

FORMER_SEEDS: Final = (
    ("", (709,)),
    (
        "--keys",
        (10, 19, 47, 88, 143, 155, 170, 182, 253, 394, 397, 404, 448, 479, 543, 615, 616, 673),
    ),
    ("--length 600 --keys", (30_020,)),
)
"""Seeds of the soak at which a former commit lost something or had an arc without an owner."""

RUNS: Final = (
    "--events 185000 --selectors 300",
    "--events 555000 --selectors 300",
    "--events 1850000 --selectors 300",
    "--events 100000 --selectors 100000 --width 0.0002 --workers 2",
)
"""Runs of one, three and ten million records, and one with many selectors on a cluster."""

CLAIMS: Final = (
    Claim(
        "soak",
        "Live events keep their promises in every simulated scenario, with and without keys.",
        "canopy sim soak {part} --seed {seed} --seeds {seeds} --keep-going --shrink 0 --json "
        "--quiet",
        size="seeds",
        unit="seeds",
        lost="bad",
        faults="faults",
        red="bad",
        fast=40,
        full=20_000,
        step=10,
        first=30_000,
        parts=("", "--keys", "--length 600", "--length 600 --keys"),
        former=FORMER_SEEDS,
    ),
    Claim(
        "streams",
        "Every acknowledged row is there, once, in order, whatever happens to five real nodes.",
        "python -m bench.streams.endurance {part} --faults 60 --rows 600000 --rate 100000 "
        "--batch 20000 --every 0.8 --minutes 6 --seed {seed} --json",
        size="acknowledged",
        unit="rows",
        lost="wrong_count ended",
        faults="faults",
        fast=500_000,
        full=10_000_000,
        first=2_000,
        parts=("--replicas 5 --shards 4 --mirror --at-once 3", ""),
    ),
    Claim(
        "retention",
        "Of each stream is left what was to be kept, and the newest row of each key, and disks and "
        "memory do not grow, while real nodes are killed.",
        "python -m bench.streams.retention --rows 2000000 --kills 4 --seed {seed} --json",
        size="rows",
        unit="rows",
        lost="wrong_count ended",
        faults="kills",
        fast=2_000_000,
        full=100_000_000,
    ),
    Claim(
        "stream-worlds",
        "Rows of every kind of program are there and right in simulated shards, with crashes, lost "
        "power, cut links and bad disks.",
        "python -m tests.streams.search {part} --seed {seed} --seeds {seeds} --keep-going --json",
        size="rows",
        unit="rows",
        lost="bad",
        faults="rounds",
        red="bad",
        fast=20_000,
        full=5_000_000,
        step=200,
        first=50_000,
        parts=("shards", "programs", "transactions", "groups", "tables", "forks"),
    ),
    Claim(
        "churn",
        "A program that keeps a subscription is told of each event that it misses.",
        "python -m bench.endurance.churn --seconds 600 --seed {seed} --json",
        size="owed",
        unit="deliveries",
        lost="untold early twice ended errors",
        faults="faults",
        figure="after_heal_s.p99",
        figure_of="s of delay for 99 % of deliveries after a heal",
        most=3.0,
        fast=20_000,
        full=1_000_000,
        first=100,
    ),
    Claim(
        "live",
        "No delivery is lost in silence, whatever happens to nodes, disks, links and clusters.",
        "python -m bench.endurance.endurance {part} --events 100000 --faults 60 --seed {seed} "
        "--json",
        size="owed",
        unit="deliveries",
        lost="lost duplicates spurious ended",
        faults="faults",
        figure="delay_s.p99",
        figure_of="s of delay for 99 % of all deliveries",
        fast=50_000,
        full=10_000_000,
        first=500,
        parts=("", "--hostile"),
    ),
    Claim(
        "upgrade",
        "Nodes are upgraded one by one under load, and go back, and nothing is lost.",
        "python -m bench.processes.upgrade --nodes 12 --old {part} --back --json",
        size="owed",
        unit="deliveries",
        lost="lost twice spurious wrong faults",
        faults="restarts",
        figure="rows",
        figure_of="rows of a stream",
        fast=1_000,
        full=1_000,
        parts=WIRE_CHANGES,
    ),
    Claim(
        "blackout",
        "Events flow within 10 s after all nodes were killed and are started at once.",
        "python -m bench.endurance.blackout --seed {seed} --json",
        size="blackouts",
        unit="blackouts",
        lost="ended never",
        figure="flow_s",
        figure_of="s until all get events of all",
        most=10.0,
        fast=3,
        full=100,
    ),
    Claim(
        "passing",
        "A node's memory does not grow with the programs that came and went, after a warm-up.",
        "python -m bench.node.passing --seconds 3600 --seed {seed} --json",
        size="programs",
        unit="programs",
        lost="",
        figure="growth",
        figure_of="% more memory in the second half",
        most=1.0,
        fast=10_000,
        full=1_000_000,
    ),
    Claim(
        "scale",
        "A thousand simulated nodes in slow churn: all is delivered or told, every tree has an "
        "owner, and nothing outgrows its bound.",
        "python -m bench.endurance.days --nodes 1000 --minutes 10 --attributes 300 "
        "--split-trees 40 --subscriptions 1000 --rate 1 --trouble 15 --seed {seed} --json",
        size="minutes",
        unit="simulated minutes",
        lost="violations",
        faults="faults",
        figure="bytes_at_end",
        figure_of="bytes a node holds at the end",
        fast=10,
        full=1_440,
    ),
    Claim(
        "week",
        "Nodes with keys run for a week of slow churn, and neither memory nor disks grow.",
        "python -m bench.endurance.days --nodes 12 --hours 2 --rate 0.3 --keys --certificate 0.5 "
        "--stream --seed {seed} --json",
        size="minutes",
        unit="simulated minutes",
        lost="violations rows_lost",
        faults="faults",
        figure="growth",
        figure_of="% more memory in the last third",
        most=5.0,
        fast=120,
        full=10_080,
    ),
    Claim(
        "crowd",
        "Two hundred nodes on one machine are one overlay, and need little while nothing happens.",
        "python -m bench.node.crowd --nodes 200 --seed {seed} --json",
        size="nodes",
        unit="nodes",
        lost="lost ended further_rings",
        figure="cpu_seconds_per_minute",
        figure_of="CPU s a minute of a node",
        fast=200,
        full=200,
    ),
    Claim(
        "idle",
        "Streams to which nobody appends for an hour cost three real nodes hardly any processor "
        "time, and no memory.",
        "python -m bench.streams.idle --streams 500 --minutes 60 --json",
        size="streams",
        unit="streams",
        lost="grown",
        figure="cpu_seconds_per_minute",
        figure_of="CPU s a minute of all three nodes",
        most=6.0,
        fast=500,
        full=500,
    ),
    Claim(
        "analysis",
        "The analysis of traces finds each fault of a run and no others, and a record costs the "
        "same in a run of any size.",
        "python -m bench.traces.analysis {part} --seed {seed} --faults 10",
        size="records",
        unit="records",
        lost="wrong",
        faults="faults",
        figure="cpu_per_million",
        figure_of="CPU s a million records",
        fast=300_000,
        full=100_000_000,
        parts=RUNS,
    ),
    Claim(
        "fuzz",
        "No input makes a parser do anything but refuse it.",
        "python -m tests.fuzz {part} --seconds 20 --seed {seed} --json",
        size="inputs",
        unit="inputs",
        lost="failed",
        figure="percent",
        figure_of="% of the lines of what it enters",
        fast=10_000,
        full=100_000_000,
        first=100,
        parts=(
            "wire_frames",
            "wire_messages",
            "control_commands",
            "control_replies",
            "selectors",
            "feeds",
            "gateway_requests",
            "gateway_http",
            "gateway_mqtt",
            "configuration",
            "gateway_tokens",
            "tokens",
            "policies",
            "seal_files",
            "envelopes",
            "event_proofs",
            "certificates",
            "signed_documents",
            "enrolment",
            "trace_lines",
            "health_files",
            "state_files",
            "segments",
            "chunks",
            "zone_maps",
            "receipts",
        ),
    ),
)
