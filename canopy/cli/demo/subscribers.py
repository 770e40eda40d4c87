"""The subscribers of a demo: subscribe at the nodes and write down every delivery.

One connection and one thread per node that has subscriptions. Every delivery becomes a line of
``deliveries.jsonl`` as it comes.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from canopy.cli.constants import DELIVERY_WAIT, SUBACK_TIMEOUT
from canopy.cli.demo.overlay import Overlay
from canopy.cli.demo.plan import PlannedSubscription
from canopy.client.blocking import ControlClient
from canopy.client.errors import ControlError, UnreachableError
from canopy.feeds import id_text
from overlay.client import LEAVING, Delivery, Dropped, Subscribe, Subscribed


class Subscribers:
    """All subscriptions of a plan, with one connection per node. A context manager.

    `delivered` counts deliveries by subscription name, `dropped` those that nodes dropped;
    `notices` has the gaps that nodes reported.
    """

    def __init__(self, overlay: Overlay, file: Path) -> None:
        self.delivered: Counter[str] = Counter()
        self.dropped = 0
        self.notices: list[str] = []
        self._overlay = overlay
        self._nodes = overlay.nodes
        self._out = file.open("w", encoding="utf-8")
        self._lock = threading.Lock()
        self._clients: list[tuple[int, ControlClient]] = []
        self._made: list[PlannedSubscription] = []
        self._names: dict[str, str] = {}  # id at the node -> name in the plan
        self._threads: list[threading.Thread] = []
        self._closing = False

    def __enter__(self) -> Subscribers:
        return self

    def __exit__(self, *exc: object) -> None:
        self._closing = True
        for _, client in self._clients:
            client.close()
        for thread in self._threads:
            thread.join()
        self._out.close()

    @property
    def total(self) -> int:
        """The number of deliveries so far."""
        with self._lock:
            return self.delivered.total()

    def of_node(self, number: int) -> list[PlannedSubscription]:
        """Return the subscriptions at the node of this number."""
        return [each for each in self._made if each.node == number]

    def subscribe(
        self, wanted: Sequence[PlannedSubscription], acknowledged: Callable[[int], None]
    ) -> None:
        """Make these subscriptions, wait for their acknowledgements, and collect their deliveries
        from then on.

        Calls `acknowledged` with the number of acknowledged subscriptions. Raises DemoError.
        """
        known = len(self._clients)
        by_node: dict[int, list[PlannedSubscription]] = {}
        for each in wanted:
            by_node.setdefault(each.node, []).append(each)
        count = 0
        with ThreadPoolExecutor(max_workers=min(len(by_node), 32)) as pool:
            for done in pool.map(self._subscribe_at, by_node, by_node.values()):
                count += done
                acknowledged(count)
        self._made += wanted
        for number, client in self._clients[known:]:
            thread = threading.Thread(target=self._collect, args=(number, client), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _subscribe_at(self, number: int, wanted: list[PlannedSubscription]) -> int:
        client = ControlClient.connect(self._nodes[number].data)
        with self._lock:
            self._clients.append((number, client))
        for each in wanted:
            try:
                command = Subscribe(0, each.where, each.name)
                reply = client.ask(command, Subscribed, timeout=SUBACK_TIMEOUT)
            except ControlError as error:
                self._overlay.fail(
                    f"the subscription {each.name!r} at node {number} was not acknowledged: {error}"
                )
            with self._lock:
                self._names[reply.subscription] = each.name
        return len(wanted)

    def _collect(self, number: int, client: ControlClient) -> None:
        """Run in a thread: write down the deliveries of one node until it or the demo ends."""
        while not self._closing:
            try:
                deliveries = client.deliveries(timeout=DELIVERY_WAIT)
            except UnreachableError:
                break  # the node has left; `Overlay.check` notices if it died
            if deliveries:
                self._write(number, deliveries)
        with self._lock:
            drops = [one for one in client.notices if isinstance(one, Dropped)]
            self.dropped += sum(one.count for one in drops if one.code == "overflow")
        gaps = [notice for notice in client.notices if notice.code != LEAVING]
        # (A node leaves when the demo stops it.)
        self.notices += [f"at node {number}: {gap.reason}" for gap in gaps]

    def _write(self, number: int, deliveries: list[Delivery]) -> None:
        node = self._nodes[number]
        lines = []
        with self._lock:
            for each in deliveries:
                name = self._names.get(each.subscription, each.subscription)
                self.delivered[name] += 1
                line = {
                    "subscription": name,
                    "event": id_text(each.event.attributes.get("id")),
                    "node": number,
                    "latency_ms": round(each.latency_ms, 3),
                    "identity": each.event.identity,
                    "hops": each.hops,
                    "node_id": node.id,
                }
                lines.append(json.dumps(line) + "\n")
            self._out.write("".join(lines))
            self._out.flush()
