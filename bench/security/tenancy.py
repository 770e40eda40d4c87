"""What trees of their own would do for tenants: `python -m bench.security.tenancy --json`.

The simulator, with nine nodes that host (with slow processors) and eight tenants, each with a node
of its own that publishes and subscribes. An attribute of the name ``tenant/attribute`` is a tree of
the tenant's own, so that the product need not know of it:

* *shared*: all tenants use the same six attributes. What a tenant may see, its own events and the
  half of its neighbour's that this one exports, is ANDed to its selectors, as owners do by policy.
* *prefixed*: each tenant has six trees of its own. What a tenant exports carries the other's
  attributes as well, so that it visits the other's trees, too; an operator who looks at all tenants
  subscribes to each.

Then one tenant publishes as much as hosts can match, and the others as before. Counted are trees,
messages for each subscription and event, and the time until events of the other tenants arrive.
Every figure is a function of the seed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from canopy.sim.world.processor import Processor
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from matching import Value
from overlay.settings import Settings

HOSTS: Final = 9
TENANTS: Final = 8
SUBSCRIPTIONS: Final = 20
"""Of each tenant."""

RATE: Final = 10.0
"""Events per second of each tenant, …"""

FLOOD: Final = 400.0
"""… and of the one that publishes much."""

SECONDS: Final = 10.0
SLOWER: Final = 150
PROCESSOR: Final = Processor(
    per_input=SLOWER * 0.000_02,
    per_match=SLOWER * 0.000_02,
    per_further=SLOWER * 0.000_002,
    per_recipient=SLOWER * 0.000_01,
)


class Tenancy:
    """One overlay, shared or prefixed."""

    def __init__(self, seed: int, prefixed: bool) -> None:
        self.prefixed = prefixed
        self.world = world = World(seed, WireCodec(), Settings())
        for number in range(HOSTS + TENANTS):
            if number == HOSTS:
                cluster = msgspec.structs.replace(world.settings.cluster, serve=False)
                world.settings = msgspec.structs.replace(world.settings, cluster=cluster)
            world.add_node(["n0"] if number else [])
            world.run(0.2)
        assert world.run_until(world.ready, 60.0)
        world.run(5.0)
        self.rng = world.generator("tenancy")
        before = self._counts()["other_messages"]
        for number in range(TENANTS):
            for _ in range(SUBSCRIPTIONS):
                world.subscribe(self.node(number), self.selector(number))
                world.run(0.02)
        assert world.run_until(world.acknowledged, 120.0)
        self.control = self._counts()["other_messages"] - before
        world.subscribe("n0", self.for_operators())
        assert world.run_until(world.acknowledged, 60.0)
        world.run(10.0)
        for name in world.names()[:HOSTS]:
            world.drivers[name].processor = PROCESSOR

    @staticmethod
    def node(tenant: int) -> str:
        """The name of a tenant's node."""
        return f"n{HOSTS + tenant}"

    def name(self, tenant: int, attribute: str) -> str:
        """An attribute of a tenant, as selectors write it."""
        return f'"t{tenant}/{attribute}"' if self.prefixed else attribute

    def selector(self, tenant: int) -> str:
        """What a program of a tenant asks for, as its owner keeps it."""
        low = self.rng.randrange(90)
        region = self.rng.choice(("eu", "us"))
        region_of, value = self.name(tenant, "region"), self.name(tenant, "value")
        asked = f"{region_of} = '{region}' AND {value} BETWEEN {low} AND {low + 10}"
        if self.prefixed:
            return asked
        other = (tenant - 1) % TENANTS
        return f"({asked}) AND (type = 't{tenant}' OR type = 't{other}' AND region = 'us')"

    def for_operators(self) -> str:
        """All events of all tenants with a large value."""
        if not self.prefixed:
            return "value > 95"
        return " OR ".join(f"{self.name(tenant, 'value')} > 95" for tenant in range(TENANTS))

    def event(self, tenant: int) -> Mapping[str, Value | None]:
        """An event of a tenant, which half of the time another may see."""
        region = self.rng.choice(("eu", "us"))
        found: dict[str, Value | None] = {
            "type": f"t{tenant}", "region": region, "value": self.rng.randrange(100),
            "sensor": self.rng.randrange(16), "unit": "C", "is_valid": True,
        }  # fmt: skip
        if not self.prefixed:
            return found
        whose = [tenant, (tenant + 1) % TENANTS] if region == "us" else [tenant]
        return {f"t{each}/{name}": value for each in whose for name, value in found.items()}

    def _counts(self) -> Counter[str]:
        names = self.world.names()
        return sum((Counter(self.world.node(name).counters) for name in names), Counter())

    def _publish(self, tenant: int, rate: float, until: float) -> None:
        world = self.world
        if world.now < until:
            world.publish(self.node(tenant), self.event(tenant))
            world.at(world.now + 1.0 / rate, self._publish, tenant, rate, until)

    def load(self, flood: bool) -> dict[str, Any]:
        """All tenants publish, one of them perhaps much more."""
        world, since = self.world, len(self.world.clients.publications)
        shown, before = len(world.clients.deliveries), self._counts()["data_messages"]
        until = world.now + SECONDS
        for tenant in range(TENANTS):
            rate = FLOOD if flood and tenant == 0 else RATE
            world.at(world.now + tenant / 100, self._publish, tenant, rate, until)
        world.run(SECONDS)
        world.settle(300.0)
        published = world.clients.publications[since:]
        others = {each.identity: each.published for each in published
                  if each.node not in (self.node(0), self.node(TENANTS - 1))}  # fmt: skip
        waits = sorted(
            one.time - others[one.delivery.event.identity]
            for one in world.clients.deliveries[shown:]
            if one.delivery.event.identity in others
        )
        messages = self._counts()["data_messages"] - before
        return {
            "messages_per_event": messages / len(published),
            "deliveries": len(world.clients.deliveries) - shown,
            "others_p50_ms": waits[len(waits) // 2] * 1e3,
            "others_p99_ms": waits[len(waits) * 99 // 100] * 1e3,
        }

    def row(self, seed: int) -> dict[str, Any]:
        """What is counted."""
        trees = sum(len(self.world.node(name).owner.trees) for name in self.world.names())
        return {
            "trees_are": "prefixed" if self.prefixed else "shared",
            "seed": seed,
            "trees": trees,
            "messages_per_subscription": self.control / (TENANTS * SUBSCRIPTIONS),
            "calm": self.load(False),
            "flood": self.load(True),
        }


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    rows = []
    for seed in range(1, chosen.seeds + 1):
        for prefixed in (False, True):
            rows.append(Tenancy(seed, prefixed).row(seed))
            print(rows[-1], file=sys.stderr, flush=True)
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
