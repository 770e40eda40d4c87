"""The policy of an overlay's tenants: what they may publish and subscribe to, by content
(docs/design/security.md).

A policy is one document for the whole overlay, signed by its operators. For each tenant it has two
selectors. What a tenant asks for is *intersected* with what it may see, so that a broad selector is
harmless; what it publishes has to match. Only *true* permits: an event without the attribute that a
selector asks about is not permitted.

A tenant may *export*: of what it may publish, others that it names see what the export's selector
says, besides what they may see anyhow.

A node whose certificate names no tenant is the operators' own, and is not restricted. A tenant that
the policy does not name may nothing, and so does every tenant where no policy is known, or one of a
format that this node does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple, Protocol

import msgspec

from matching import Attributes, Predicate, SelectorError, compile_selector
from matching.predicate import matches_all
from overlay.bounded import BoundedDict
from overlay.machine import Uint53

FORMAT: Final = 1
"""The format of policies that this version reads."""

TENANTS_MOST: Final = 10_000
SELECTOR_MOST: Final = 2_048
"""Characters of a policy's selector at most: with what a tenant asks for it has to fit into the
16 KiB of a selector."""

CONJUNCTIONS_MOST: Final = 16
"""Alternatives (OR) in what a tenant may subscribe to: each multiplies those that it asks for."""

EXPORTS_MOST: Final = 100
"""Exports of one tenant."""

KEPT: Final = 4_096
"""Intersections that a node remembers, some hundred bytes each."""

NOTHING: Final = "FALSE"
"""The selector of a tenant that may see nothing."""

STREAMS_MOST: Final = 64
"""Streams, or patterns, of one tenant."""

Streams = Annotated[
    tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=256)], ...],
    msgspec.Meta(max_length=STREAMS_MOST),
]
Selector = Annotated[str, msgspec.Meta(max_length=SELECTOR_MOST)]


class Quota(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Bounds of one tenant's node's requests to each other node; 0: as much as any leaf."""

    events: Uint53 = 0
    """Events per second."""
    bytes: Uint53 = 0
    """Bytes per second of published events."""
    subscriptions: Uint53 = 0
    """Registrations of one node, one for each alternative (OR) of a subscription."""


class Export(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The events that a tenant shares, among those it may publish, and the tenants with which it
    shares them."""

    where: Selector
    to: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=TENANTS_MOST)]


class TenantPolicy(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The rights of one tenant; an empty selector permits nothing."""

    publish: Selector = ""
    subscribe: Selector = ""
    streams: Streams = ()
    """The streams that it may append to, by names or patterns (`*`, `?`); none where none is
    named."""
    quota: Quota = Quota()
    exports: Annotated[dict[str, Export], msgspec.Meta(max_length=EXPORTS_MOST)] = {}
    """By name, which says nothing to nodes."""


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """All tenants. `version` only grows; `default` is for tenants that are not named."""

    version: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    tenants: Annotated[dict[str, TenantPolicy], msgspec.Meta(max_length=TENANTS_MOST)]
    default: Annotated[str, msgspec.Meta(pattern="^deny$")] = "deny"
    format: Uint53 = FORMAT


class PolicyError(Exception):
    """A policy that cannot be used; says where and why."""


def check_policy(policy: Policy) -> None:
    """Raise PolicyError if a selector does not compile, or has too many alternatives, with what
    others export; or if an export goes to a tenant that is not there."""
    if policy.format != FORMAT:
        raise PolicyError(f"the policy's format is {policy.format}; this version reads {FORMAT}")
    seen = visible(policy)
    for name, tenant in policy.tenants.items():
        _check_selector(f"tenant {name}, publish", tenant.publish)
        _check_selector(f"tenant {name}, subscribe", tenant.subscribe)
        for export, shared in tenant.exports.items():
            _check_selector(f"tenant {name}, export {export}", shared.where)
            unknown = [other for other in shared.to if other not in policy.tenants]
            if unknown or name in shared.to:
                whom = unknown[0] if unknown else "itself"
                raise PolicyError(f"tenant {name}, export {export}: to {whom}, which is no other")
        what = f"tenant {name}, subscribe with what others export to it"
        _check_selector(what, seen[name])
        if len(seen[name]) > SELECTOR_MOST:
            raise PolicyError(f"{what}: {len(seen[name]):,} characters, {SELECTOR_MOST:,} at most")


def _check_selector(where: str, text: str) -> None:
    try:
        count = len(compile_selector(text).conjunctions) if text else 0
    except SelectorError as error:
        raise PolicyError(f"{where}:\n{error.caret()}") from None
    if count > CONJUNCTIONS_MOST:
        raise PolicyError(
            f"{where}: an OR of {count} conjunctions, and "
            f"{CONJUNCTIONS_MOST} are allowed: use IN (…) for values of one attribute"
        )


def visible(policy: Policy) -> dict[str, str]:
    """For each tenant a selector of all that it may see: its own, or what others export to it, of
    which each may publish that itself. "": nothing."""
    parts = {name: [tenant.subscribe] for name, tenant in policy.tenants.items()}
    for tenant in policy.tenants.values():
        for export in tenant.exports.values():
            for other in export.to if tenant.publish and export.where else ():
                if other in parts:
                    parts[other].append(f"({tenant.publish}) AND ({export.where})")
    return {
        name: " OR ".join(f"({each})" if len(found) > 1 else each for each in found if each)
        for name, found in parts.items()
    }


class Remainder(NamedTuple):
    """The remainder of a selector under a policy."""

    selector: str
    """`(asked) AND (permitted)`, or `FALSE`."""
    denial: str
    """Why nothing remains; "": something does."""


class PolicySource(Protocol):
    """Gives the present policy (overlay/lower_random/policies.py)."""

    @property
    def confinement(self) -> Confinement:
        """The policy as this node applies it now."""


class Confinement:
    """A policy, or none, as a node applies it."""

    def __init__(self, policy: Policy | None, reason: str = "") -> None:
        """`reason`: why no tenant may anything, whatever the policy says; "": nothing speaks
        against it."""
        self.policy = policy
        self.version = 0 if policy is None else policy.version
        if policy is None:
            reason = reason or "this overlay has no policy, so its tenants may nothing"
        elif policy.format != FORMAT:
            reason = reason or f"policy {policy.version} is of a format that this node cannot read"
        self.reason = reason
        self._visible = {} if self.reason or policy is None else visible(policy)
        self._compiled: dict[str, Predicate | None] = {}
        self._narrowed: BoundedDict[tuple[str, str], str] = BoundedDict(KEPT)

    def of(self, tenant: str) -> TenantPolicy:
        """Return the rights of a tenant."""
        found = None if self.reason or self.policy is None else self.policy.tenants.get(tenant)
        return found or TenantPolicy()

    def sees(self, tenant: str) -> str:
        """Return the selector of all that a tenant may see, including what others export to it; ""
        if it may see nothing."""
        return self._visible.get(tenant, "")

    def denial(self, tenant: str) -> str:
        """Return why a tenant has no rights at all; "" if the policy names it."""
        if self.reason:
            return self.reason
        assert self.policy is not None
        if tenant in self.policy.tenants:
            return ""
        return f"policy {self.version} does not name the tenant {tenant}"

    def narrow(self, tenant: str, selector: str) -> str:
        """Return the remainder of a selector: `(selector) AND (the selector of the tenant)`. An
        empty selector stands for all events. Raises SelectorError if it does not compile, or the
        result is too large."""
        key = (tenant, selector)
        found = self._narrowed.get(key)
        if found is None:
            may = self._predicate(self.sees(tenant))
            if may is None:
                found = NOTHING
            else:
                found = (compile_selector(selector) & may).text if selector else may.text
            self._narrowed[key] = found
        return found

    def remains(self, tenant: str, selector: str) -> Remainder:
        """`narrow`, and whether anything can match it, as far as the selectors show. Raises
        SelectorError."""
        found, denial = self.narrow(tenant, selector), self.denial(tenant)
        if not denial and not compile_selector(found).conjunctions:
            may = self.sees(tenant) or "nothing"
            denial = f"policy {self.version} leaves nothing of it: {tenant} may see only {may}"
        return Remainder(found, denial)

    def may_publish(self, tenant: str, batch: Sequence[Attributes]) -> list[bool]:
        """For each event, by its attributes, whether the tenant may publish it."""
        may = self._predicate(self.of(tenant).publish)
        return [False] * len(batch) if may is None else matches_all(may, batch)

    def may_see(self, tenant: str, attributes: Attributes) -> bool:
        """Whether a tenant may see an event."""
        may = self._predicate(self.sees(tenant))
        return may is not None and may.matches(attributes)

    def _predicate(self, text: str) -> Predicate | None:
        """A selector of the policy; None if it permits nothing, or cannot be read."""
        if text not in self._compiled:
            try:
                found = compile_selector(text) if text else None
            except SelectorError:
                found = None
            self._compiled[text] = found if found is None or found.conjunctions else None
        return self._compiled[text]


# --- a token bucket: how much may pass in a while, and how much at once ---


class Bucket:
    """Fills by `rate` per second up to `most`."""

    __slots__ = ("_at", "_left")

    def __init__(self) -> None:
        self._at = float("-inf")
        self._left = 0.0

    def take(self, wanted: float, rate: float, most: float, now: float) -> bool:
        """Take `wanted` tokens if there are enough, and return whether there were. A full bucket
        lets more than `most` pass."""
        left = min(most, self._left + (now - self._at) * rate) if self._at > float("-inf") else most
        self._at, self._left = now, left
        if left < min(wanted, most):
            return False
        self._left = left - wanted
        return True


# --- what one leaf may have registered (docs/design/security.md#quotas) ---

LEAF_REGISTRATIONS: Final = 20_000
"""Registrations of one leaf, where no policy says how many: as many as one host has room for
(`tree.host_entries`)."""

LEAF_TREES: Final = 1_024
"""Trees in which one leaf may have registrations: the longest selector has this many alternatives,
each of which may need a tree of its own."""

PLANTED_RATE: Final = 16.0
"""Trees per second that one leaf may have an owner plant: half of what its
rate of registrations costs, since a tree costs as much as 32 of them (measured). Guess."""

PLANTED_AT_ONCE: Final = 256.0
"""… and trees that it may plant at once: 0.8 s of the owner's time. A program that starts may plant
the trees of all attributes of its selectors. Guess."""

FORMER: Final = 2
"""An owner accepts this many times a leaf's limit: after a leaf has restarted, the owner also holds
the registrations of the former process until their lease has ended."""


def over_share(registrations: int, trees: int, most: int) -> str:
    """Return which of these numbers exceeds the share of a leaf; "" if none does. `most`: the
    number of registrations that a policy gives it, 0 for none."""
    most = most or LEAF_REGISTRATIONS
    if registrations > most:
        return f"{most:,} registrations (one for each alternative of a selector)"
    return f"registrations in {LEAF_TREES:,} attribute trees" if trees > LEAF_TREES else ""
