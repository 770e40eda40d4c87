"""Load that programs make in a hostile run of endurance: floods, many and long subscriptions.

None of it is owed to these programs; what it does to others is what the run looks at.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from random import Random
from typing import Final

from bench.endurance.clients import SUBACK, LoadPublisher
from bench.processes.nodes import ProxiedNodes
from canopy.client.blocking import ControlClient
from canopy.client.errors import ControlError
from overlay.client import Subscribe, Subscribed

FLOOD: Final = (0.5, 4.0)
"""Seconds of a flood, from and to."""

THRONG: Final = (500, 8_000)
"""Subscriptions of one program that subscribes and goes, from and to."""

TERMS: Final = (50, 1_000)
"""Attributes of a long selector, from and to."""

AHEAD: Final = 64
"""Subscriptions asked for and not yet acknowledged."""


class Pressure:
    """Starts such programs at nodes drawn by `rng`; each ends by itself."""

    def __init__(self, nodes: ProxiedNodes, sources: Sequence[LoadPublisher]) -> None:
        self.nodes = nodes
        self.sources = sources
        self.errors: list[str] = []
        self.acknowledged = 0

    def press(self, kind: str, rng: Random) -> str:
        """Carry out `kind` and return what is done."""
        if kind == "flood":
            seconds = rng.uniform(*FLOOD)
            source = rng.choice(self.sources)
            source.flood(seconds)
            return f"flood through {source.node} for {seconds:.1f}"
        name = rng.choice(list(self.nodes.nodes))
        if kind == "throng":
            count = rng.randint(*THRONG)
            selectors = [f"t{n % 7} = {n}" for n in range(count)]
            self._start(name, selectors)
            return f"{count} subscriptions of one program at {name}, which then goes"
        terms = rng.randint(*TERMS)
        self._start(name, [" OR ".join(f"s{n} = 1" for n in range(terms))])
        return f"a selector of {terms} attributes at {name}"

    def _start(self, name: str, selectors: Sequence[str]) -> None:
        where = str(self.nodes.nodes[name].data)
        threading.Thread(target=self._subscribe, args=(where, selectors), daemon=True).start()

    def _subscribe(self, where: str, selectors: Sequence[str]) -> None:
        """Subscribe to all of them, then go without a word; end early where the node does."""
        try:
            with ControlClient.connect(where) as client:
                begun: list[int] = []
                for selector in selectors:
                    if len(begun) >= AHEAD:
                        self._finish(client, begun.pop(0))
                    begun.append(client.begin(Subscribe(0, selector), SUBACK))
                for number in begun:
                    self._finish(client, number)
        except ControlError as error:
            self.errors.append(str(error))

    def _finish(self, client: ControlClient, number: int) -> None:
        if isinstance(client.finish(number, SUBACK), Subscribed):
            self.acknowledged += 1
