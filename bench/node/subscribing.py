"""How fast one program registers and ends many selectors, and how soon others take them over.

`python -m bench.node.subscribing --json` starts one node, and then eight, as real processes on this
machine, and through one connection to a node that hosts nothing (of one node: to that one)

* makes some subscriptions one after the other (`one_ms`: the median of what each takes),
* registers `--selectors` selectors, `AHEAD` of them unanswered at a time (`subscribed_per_second`),
* ends them in the same way (`unsubscribed_per_second`, until no owner has any of them),
* registers them again, kills the primary of the cluster that has them (kill -9), and subscribes
  once more: `primary_s` is the time from the kill to the SUBACK, which the new primary gives when
  all hosts of the tree have everything,
* kills a host of them: `host_s` is the time until another one has everything and serves in its
  place.

`cpu_us` is the processor time of all nodes per registration and `busiest_us` that of the busiest
one, which says how many a second it could take on a processor of its own (`could_per_second`);
`longest_turn_ms` is the longest time that any of them did nothing else, up to the first kill.
Takeovers need more nodes than one.
Progress goes to standard error.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from random import Random
from typing import Any, Final

from bench.command import TRACE, Progress, parser, show
from bench.processes.overlays import PATIENCE, spent, started, status
from canopy.cli.demo.overlay import DemoNode, Overlay
from canopy.client.blocking import ControlClient
from canopy.client.errors import ControlError
from overlay.client import (
    Done,
    Gather,
    Located,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Where,
)

AHEAD: Final = 512
"""Unanswered requests: the limit of the client library (canopy/client/resubscription.py)."""

SINGLE: Final = 50  # subscriptions that are made one after the other
SETTLED: Final = 2.0
"""Seconds without a change after which the hosts of a tree are taken to be the last."""

TREE: Final = "sensor"
"""The attribute that all of the selectors are registered under."""


def selectors(count: int, seed: int = 1) -> list[str]:
    """Such as one program makes; no two are equal."""
    rng = Random(seed)
    return [
        f"sensor = 's{n % 1_000:03}' AND value BETWEEN {n / 8} AND {n / 8 + 2} "
        f"AND battery >= {rng.randrange(100)}"
        for n in range(count)
    ]


def wait(what: str, is_done: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not is_done():
        if time.monotonic() > until:
            raise TimeoutError(f"not within {PATIENCE:g} s: {what}")
        time.sleep(0.02)


class Subscribing:
    """One overlay, and one program at one of its nodes."""

    def __init__(self, overlay: Overlay, count: int, progress: Progress) -> None:
        self.overlay = overlay
        self.texts = selectors(count)
        self.progress = progress
        self.row: dict[str, Any] = {"nodes": len(overlay.nodes), "selectors": count}

    def run(self, stack: ExitStack) -> dict[str, Any]:
        """Measure everything: a row of the table."""
        where = next((n for n in self.running() if status(n).role == "none"), None)
        self.home = where or self.overlay.nodes[0]
        self.client = stack.enter_context(ControlClient.connect(self.home.data))
        self.client.ask(Gather(0), Done)
        self.single()
        before = spent(self.running())
        ids = self.subscribe()
        taken = [now - then for now, then in zip(spent(self.running()), before, strict=True)]
        self.row["cpu_us"] = round(sum(taken) / len(ids) * 1e6)
        self.row["busiest_us"] = round(max(taken) / len(ids) * 1e6)
        self.row["could_per_second"] = round(len(ids) / max(taken))
        self.unsubscribe(ids)
        self.row["longest_turn_ms"] = max(
            int(status(node).counters["longest_turn"]) for node in self.running()
        )
        if len(self.overlay.nodes) > 1:
            self.subscribe("again")
            self.lose_primary()
            self.lose_host()
        return self.row

    def single(self) -> None:
        took = []
        for number in range(SINGLE):
            began = time.monotonic()
            made = self.client.ask(Subscribe(0, f"{TREE} = 'one{number}'"), Subscribed, PATIENCE)
            took.append(time.monotonic() - began)
            self.client.ask(Unsubscribe(0, made.subscription), Done, PATIENCE)
        self.row["one_ms"] = round(statistics.median(took) * 1e3, 1)

    def subscribe(self, key: str = "subscribed") -> list[str]:
        self.progress.say(f"{self.row['nodes']} nodes: {len(self.texts)} selectors")
        commands = [Subscribe(0, text) for text in self.texts]
        began = time.monotonic()
        answers = self.client.ask_many(commands, Subscribed, PATIENCE, AHEAD)
        self.row[f"{key}_per_second"] = round(len(answers) / (time.monotonic() - began))
        return [answer.subscription for answer in answers]

    def unsubscribe(self, ids: Sequence[str]) -> None:
        commands = [Unsubscribe(0, id_) for id_ in ids]
        began = time.monotonic()
        self.client.ask_many(commands, Done, PATIENCE, AHEAD)
        wait("the ends", lambda: not self.registered())
        self.row["unsubscribed_per_second"] = round(len(ids) / (time.monotonic() - began))

    def lose_primary(self) -> None:
        time.sleep(2.0)
        (primary,) = [n for n in self.running() if n.id == self.located().cluster.primary]
        self.progress.say("the primary is killed")
        began = time.monotonic()
        self.kill(primary)
        self.client.ask(Subscribe(0, f"{TREE} = 'after'"), Subscribed, PATIENCE)
        self.row["primary_s"] = round(time.monotonic() - began, 2)
        self.progress.say(f"SUBACK after {self.row['primary_s']} s")

    def lose_host(self) -> None:
        self.settle()
        before = self.hosts()
        spared = (self.home.id, self.located().cluster.primary)
        lost = next((n for n in self.running() if n.id in before and n.id not in spared), None)
        if lost is None:
            return
        self.progress.say("a host is killed")
        began = time.monotonic()
        self.kill(lost)
        wait("another host", lambda: lost.id not in self.hosts() and len(self.hosts()) > 0)
        self.row["host_s"] = round(time.monotonic() - began, 2)

    def settle(self) -> None:
        """Wait until the tree has the same hosts for some seconds."""
        hosts: list[str] = []
        since = time.monotonic()

        def is_settled() -> bool:
            nonlocal hosts, since
            if (now := self.hosts()) != hosts:
                hosts, since = now, time.monotonic()
            return bool(hosts) and time.monotonic() - since > SETTLED

        wait("hosts", is_settled)

    # --- what is asked ---

    def running(self) -> list[DemoNode]:
        nodes = self.overlay.nodes
        return [n for n in nodes if n.process is not None and n.process.poll() is None]

    def registered(self) -> int:
        """How many registrations the owner has."""
        try:
            return sum(one.registrations for one in self.located().virtual_nodes)
        except ControlError:
            return 0  # there is no tree any more

    def located(self) -> Located:
        return self.client.ask(Where(0, TREE), Located, PATIENCE)

    def hosts(self) -> list[str]:
        try:
            return [id_ for one in self.located().virtual_nodes for id_ in (one.host, *one.others)]
        except ControlError:
            return []

    def kill(self, node: DemoNode) -> None:
        assert node.process is not None
        node.process.kill()
        node.process.wait()


def measure(nodes: int, count: int, trace: float, progress: Progress) -> dict[str, Any]:
    """Measure an overlay of `nodes` nodes that traces the share `trace` of the events."""
    progress.say(f"{nodes} nodes start")
    settle = 1.0 if nodes == 1 else 5.0  # until clusters are complete
    with started(nodes, trace, settle=settle) as overlay, ExitStack() as stack:
        return {**Subscribing(overlay, count, progress).run(stack), "trace": trace}


def main(args: Sequence[str] | None = None) -> int:
    """Print a row for each overlay."""
    options = parser(
        __doc__,
        selectors=(20_000, "how many"),
        nodes=([1, 8], "nodes of each overlay"),
        trace=TRACE,
    ).parse_args(args)
    progress = Progress(len(options.nodes))
    rows = [measure(nodes, options.selectors, options.trace, progress) for nodes in options.nodes]
    show(rows, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
