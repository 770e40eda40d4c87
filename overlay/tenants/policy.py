"""What an overlay's tenants may publish and subscribe to, by content (docs/design/security.md).

A policy is one document for the whole overlay, signed by its operators. For each tenant it has two
selectors. What a tenant asks for is *intersected* with what it may see, so that a broad selector is
harmless; what it publishes has to match. Only *true* permits: an event without the attribute that a
selector asks about is not permitted.

A node whose certificate names no tenant is the operators' own, and is not restricted. A tenant that
the policy does not name may nothing, and so does every tenant where no policy is known, or one of a
format that this node does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

import msgspec

from matching import Attributes, Predicate, SelectorError, compile_selector
from matching.batches import matches_all
from overlay.bounded import BoundedDict
from overlay.machine import Uint53

FORMAT: Final = 1
"""Of policies that this version reads."""

TENANTS_MOST: Final = 10_000
SELECTOR_MOST: Final = 2_048
"""Characters of a policy's selector at most: with what a tenant asks for it has to fit into the
16 KiB of a selector."""

CONJUNCTIONS_MOST: Final = 16
"""Alternatives (OR) in what a tenant may subscribe to: each multiplies those that it asks for."""

KEPT: Final = 4_096
"""Intersections that a node remembers, some hundred bytes each."""

NOTHING: Final = "FALSE"
"""The selector of a tenant that may see nothing."""

Selector = Annotated[str, msgspec.Meta(max_length=SELECTOR_MOST)]


class Quota(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How much one node of a tenant may ask of each other node; 0: as much as any leaf."""

    events: Uint53 = 0
    """Events per second."""
    bytes: Uint53 = 0
    """Bytes per second of published events."""
    subscriptions: Uint53 = 0
    """Registrations of one node, one for each alternative (OR) of a subscription."""


class TenantPolicy(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one tenant may; an empty selector permits nothing."""

    publish: Selector = ""
    subscribe: Selector = ""
    quota: Quota = Quota()


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """All tenants. `version` only grows; `default` is for tenants that are not named."""

    version: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    tenants: Annotated[dict[str, TenantPolicy], msgspec.Meta(max_length=TENANTS_MOST)]
    default: Annotated[str, msgspec.Meta(pattern="^deny$")] = "deny"
    format: Uint53 = FORMAT


class PolicyError(Exception):
    """A policy that cannot be used; says where and why."""


def check_policy(policy: Policy) -> None:
    """Raise PolicyError if a selector does not compile, or has too many alternatives."""
    if policy.format != FORMAT:
        raise PolicyError(f"the policy's format is {policy.format}; this version reads {FORMAT}")
    for name, tenant in policy.tenants.items():
        for what, text in (("publish", tenant.publish), ("subscribe", tenant.subscribe)):
            try:
                count = len(compile_selector(text).conjunctions) if text else 0
            except SelectorError as error:
                raise PolicyError(f"tenant {name}, {what}:\n{error.caret()}") from None
            if count > CONJUNCTIONS_MOST:
                raise PolicyError(
                    f"tenant {name}, {what}: an OR of {count} conjunctions, and "
                    f"{CONJUNCTIONS_MOST} are allowed: use IN (…) for values of one attribute"
                )


class Remainder(NamedTuple):
    """What a policy leaves of a selector."""

    selector: str
    """`(asked) AND (permitted)`, or `FALSE`."""
    denial: str
    """Why nothing remains; "": something does."""


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
        self._compiled: dict[str, Predicate | None] = {}
        self._narrowed: BoundedDict[tuple[str, str], str] = BoundedDict(KEPT)

    def of(self, tenant: str) -> TenantPolicy:
        """What a tenant may."""
        found = None if self.reason or self.policy is None else self.policy.tenants.get(tenant)
        return found or TenantPolicy()

    def denial(self, tenant: str) -> str:
        """Why a tenant may nothing at all; "": it is named."""
        if self.reason:
            return self.reason
        assert self.policy is not None
        if tenant in self.policy.tenants:
            return ""
        return f"policy {self.version} does not name the tenant {tenant}"

    def narrow(self, tenant: str, selector: str) -> str:
        """What remains of a selector: `(selector) AND (what the tenant may see)`; "" for a selector
        is all. Raises SelectorError if it does not compile, or is too large with that."""
        key = (tenant, selector)
        found = self._narrowed.get(key)
        if found is None:
            may = self._predicate(self.of(tenant).subscribe)
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
            may = self.of(tenant).subscribe or "nothing"
            denial = f"policy {self.version} leaves nothing of it: {tenant} may see only {may}"
        return Remainder(found, denial)

    def may_publish(self, tenant: str, batch: Sequence[Attributes]) -> list[bool]:
        """For each event, by its attributes, whether the tenant may publish it."""
        may = self._predicate(self.of(tenant).publish)
        return [False] * len(batch) if may is None else matches_all(may, batch)

    def may_see(self, tenant: str, attributes: Attributes) -> bool:
        """Whether a tenant may see an event."""
        may = self._predicate(self.of(tenant).subscribe)
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
