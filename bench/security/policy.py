"""What a policy costs where it is applied: `python -m bench.security.policy --json`.

A host looks at batches of events of a thousand tenants, each with a policy of its own; and an owner
narrows registrations. Processor time of one process.
"""

from __future__ import annotations

import time
from typing import Any, Final

from bench.command import parser, show
from overlay.tenants.policy import Confinement, Policy, TenantPolicy

TENANTS: Final = 1_000
BATCHES: Final = 5
PUBLISH: Final = {
    "equality": "tenant = '{name}'",
    "prefix": "type LIKE '{name}.%'",
    "two": "type LIKE '{name}.%' AND region IN ('eu', 'us')",
    "alternative": "type LIKE '{name}.%' OR type LIKE 'shared.%'",
}
"""By name, what each tenant may publish."""

SUBSCRIBE: Final = "region = 'eu' AND secret = FALSE"


def events(name: str, count: int) -> list[dict[str, Any]]:
    """A batch of a tenant: eight types, and values that differ from event to event."""
    return [
        {
            "tenant": name, "type": f"{name}.{number % 8}", "region": "eu", "secret": False,
            "number": number, "value": number * 0.5,
        }
        for number in range(count)
    ]  # fmt: skip


def measure_publishing(kind: str, size: int) -> dict[str, Any]:
    """Microseconds per event at a host that has batches of all tenants in turn."""
    names = [f"t{number}" for number in range(TENANTS)]
    rules = {name: TenantPolicy(PUBLISH[kind].format(name=name), SUBSCRIBE) for name in names}
    known = Confinement(Policy(1, rules))
    batches = [(name, events(name, size)) for name in names]
    for name, batch in batches:  # compiled at the first use
        assert all(known.may_publish(name, batch))
    best = float("inf")
    for _ in range(BATCHES):
        began = time.process_time()
        for name, batch in batches:
            known.may_publish(name, batch)
        best = min(best, time.process_time() - began)
    found = best / (TENANTS * size) * 1e6
    return {"policy": kind, "tenants": TENANTS, "batch": size, "us_per_event": round(found, 3)}


def measure_narrowing() -> dict[str, Any]:
    """Microseconds per registration that an owner narrows for the first time."""
    known = Confinement(Policy(1, {"acme": TenantPolicy("TRUE", SUBSCRIBE)}))
    count = 2_000
    began = time.process_time()
    for number in range(count):
        known.narrow("acme", f"mag > {number} AND place LIKE 'a%'")
    found = (time.process_time() - began) / count * 1e6
    return {"policy": "narrow", "us_per_registration": round(found, 1)}


def main() -> None:
    """Run the command `python -m bench.security.policy`, which prints the rows."""
    options = parser(__doc__).parse_args()
    rows = [measure_publishing(kind, size) for kind in PUBLISH for size in (16, 256)]
    show([*rows, measure_narrowing()], options)


if __name__ == "__main__":
    main()
