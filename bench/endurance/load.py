"""What a run of endurance publishes and wants, computed from an event's number (endurance.py).

The attributes of event n are arithmetic on n, and each selector has beside it what it means, in
Python: so what is delivered is held against something that shares nothing with the overlay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from matching import Value

TREES: Final = 8
"""Attributes with a range of values, of which each event has two: more than one cluster owns."""

VALUES: Final = 1_000

MASK: Final = (1 << 64) - 1

Attributes = Mapping[str, Any]


class KnownSelector(NamedTuple):
    """A selector, and what it means."""

    selector: str
    means: Callable[[Attributes], bool]


def mixed(number: int, salt: int) -> int:
    """A number without order, from one with: the finalizer of SplitMix64 (Steele, Lea and Flood
    2014, section 4; Stafford's variant 13)."""
    x = (number * 0x9E3779B97F4A7C15 + salt * 0xD1B54A32D192ED03) & MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


def attributes(number: int) -> dict[str, Value | None]:
    """The attributes of event `number`."""
    chance = mixed(number, 1)
    first, step = chance % TREES, 1 + (chance >> 8) % (TREES - 1)
    values = mixed(number, 2)
    return {
        "id": str(number),
        "type": "reading",
        "kind": f"k{(chance >> 16) % 6}",
        "level": (chance >> 32) % 10,
        f"a{first}": values % VALUES,
        f"a{(first + step) % TREES}": (values >> 32) % VALUES,
    }


def _below(found: Attributes, name: str, bound: int) -> bool:
    return name in found and found[name] < bound


SELECTORS: Final = (
    KnownSelector("a0 >= 0", lambda e: "a0" in e),
    KnownSelector("a1 BETWEEN 100 AND 400", lambda e: "a1" in e and 100 <= e["a1"] <= 400),
    KnownSelector(
        "a2 > 500 AND a3 < 500",
        lambda e: "a2" in e and "a3" in e and e["a2"] > 500 and e["a3"] < 500,
    ),
    KnownSelector(
        "a4 < 200 OR a5 >= 900",
        lambda e: _below(e, "a4", 200) or ("a5" in e and e["a5"] >= 900),
    ),
    KnownSelector("kind = 'k1' AND a6 > 250", lambda e: e["kind"] == "k1" and e.get("a6", 0) > 250),
    KnownSelector("kind LIKE '%2' AND level <> 4", lambda e: e["kind"] == "k2" and e["level"] != 4),
    KnownSelector("level IN (1, 3)", lambda e: e["level"] in (1, 3)),
    KnownSelector(
        "NOT (a1 > 300) AND kind <> 'k0'", lambda e: _below(e, "a1", 301) and e["kind"] != "k0"
    ),
    KnownSelector("a0 * 2 > a7", lambda e: "a0" in e and "a7" in e and e["a0"] * 2 > e["a7"]),
    KnownSelector("a6 IS NOT NULL AND level = 5", lambda e: "a6" in e and e["level"] == 5),
    KnownSelector("a3 >= 250 AND a3 < 750", lambda e: "a3" in e and 250 <= e["a3"] < 750),
    KnownSelector("a7 < 100 OR a7 > 800", lambda e: "a7" in e and (e["a7"] < 100 or e["a7"] > 800)),
)
"""In turn for the subscribing nodes."""
