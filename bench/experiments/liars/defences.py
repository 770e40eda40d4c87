"""What is compared for each attack: settings of the nodes, and whether they have keys."""

from __future__ import annotations

from typing import Any

import msgspec

from overlay.settings import Settings


class Defence(msgspec.Struct, frozen=True):
    """How honest nodes are set up (liars, too). `keys`: they have certificates, and those of liars
    say *member*, so that liars are no voters. `certified`: an entry of a view needs its node's
    certificate, and not a signature alone."""

    name: str
    keys: bool
    settings: dict[str, dict[str, Any]] = {}
    certified: bool = True

    def chosen(self) -> Settings:
        """All settings."""
        return msgspec.convert(self.settings, Settings)


NOT_RANKED = {"sampling": "shuffle"}
BELIEVING = {"confirm": "never"}

NONE = Defence("none", False, {"view": NOT_RANKED, "walk": BELIEVING})
"""Nodes as they are without keys."""

KEYS = Defence("keys", True, {"view": NOT_RANKED, "walk": BELIEVING})
"""With roles, and what follows from these."""

RANKED = Defence("ranked views", True, {"walk": BELIEVING})
SIGNED = Defence("ranked views, signed", True, {"walk": BELIEVING}, certified=False)
CONFIRMED = Defence("confirmed hosts", True, {"view": NOT_RANKED})
ALL = Defence("all", True)
"""What nodes with keys do by default."""

ANY_DELEGATES = Defence("all, members are delegates", True, {"tree": {"delegates": "members"}})
NO_DELEGATES = Defence("all, no delegates", True, {"tree": {"fan_out": 1_000_000}})

MAJORITY = Defence("keys, a majority stores", True, {"cluster": {"commit": "majority"}})
MORE = Defence("keys, one more stores", True, {"cluster": {"commit": "more"}})

DEFENCES: dict[str, tuple[Defence, ...]] = {
    "poisoning": (NONE, KEYS, RANKED),
    "made-up": (NONE, SIGNED, RANKED),
    "eclipse": (NONE, KEYS, RANKED),
    "access-points": (NONE, KEYS, CONFIRMED),
    "black-hole": (NONE, ANY_DELEGATES, ALL, NO_DELEGATES),
    "push-and-drop": (NONE, KEYS, ALL),
    "nobody-there": (NONE, KEYS),
    "owners": (NONE, KEYS),
    "voter": (NONE, MAJORITY, MORE),
}
"""By attack, from the least to the most."""
