"""The policy of the overlay, as this node applies it (overlay/tenants/policy.py).

Owners and leaders of shards apply it to what other nodes ask for, before a machine sees it
(overlay/tenants/confinement.py); what is here answers the programs of this node, and says to the
machines above when there is another policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from matching import Attributes, SelectorError, compile_selector
from overlay.lower_random.documents import DocumentChanged, DocumentStore
from overlay.machine import LocalEvent, Machine, Port
from overlay.tenants.policy import NOTHING, Confinement, Policy, over_share

POLICY = "policy"
"""The kind of document that it is, and the code of what it does not permit."""

QUOTA = "quota"
"""The code of what is more than a leaf may have."""


class PolicyStore(DocumentStore, Protocol):
    """Keeps the signed policy."""

    @property
    def policy(self) -> Policy | None:
        """The policy in the document; None: there is no document."""


class PolicyChanged(LocalEvent, frozen=True):
    """Another policy holds from now on."""


class Policies(Machine):
    """The policy that applies at this node, and its rules for the node's own tenant."""

    def __init__(
        self,
        port: Port,
        store: PolicyStore | None,
        tenant: str,
        counts_constraints: bool,
        is_leaf: bool = False,
    ) -> None:
        """`tenant`: this node's own, "" for none; `counts_constraints`: in counting routing hosts
        match single constraints, so that nothing can be intersected; `is_leaf`: this node is one
        by its certificate."""
        super().__init__(port)
        self.tenant = tenant
        self._is_leaf = is_leaf
        self._store = store
        self._reason = "counting routing cannot confine tenants" if counts_constraints else ""
        self.confinement = self._read()
        """The confinement that holds now."""

    def _read(self) -> Confinement:
        return Confinement(None if self._store is None else self._store.policy, self._reason)

    def on_document_changed(self, event: DocumentChanged) -> None:
        """Apply the new policy, and say so to those who have narrowed something by the former."""
        if event.kind == POLICY:
            self.confinement = self._read()
            self.port.count("policy_changes")
            self.port.emit(PolicyChanged())

    # --- for the programs of this node ---

    def denies_subscription(self, selector: str) -> str:
        """Return why nothing would remain of a selector (which compiles) for this node's tenant; ""
        if something does. Raises SelectorError if the remainder is too large."""
        if not self.tenant:
            return ""
        if denial := self.confinement.denial(self.tenant):
            return denial
        return self.confinement.remains(self.tenant, selector).denial

    def remainder(self, selector: str) -> Callable[[], list[object]] | None:
        """Return a function that makes the tree of a selector (which compiles) as narrowed by the
        policy for this node's tenant; None: the node has no tenant, and the selector is not
        narrowed."""
        if not self.tenant:
            return None
        try:
            left = self.confinement.narrow(self.tenant, selector)
        except SelectorError:  # too large with it: owners take nothing of it
            left = NOTHING
        return compile_selector(left).tree

    @property
    def is_bounded(self) -> bool:
        """Whether the number of registrations of this node is bounded (`over_quota`)."""
        return bool(self.tenant) or self._is_leaf

    def over_quota(self, registrations: int, trees: int) -> tuple[str, str] | None:
        """Return a code and the reason why this node may not have `registrations` registrations in
        `trees` attribute trees; None: it may."""
        most = self.confinement.of(self.tenant).quota.subscriptions if self.tenant else 0
        if not most or registrations <= most:
            share = over_share(registrations, trees, most) if self._is_leaf else ""
            reason = f"a leaf may have {share}, and this would be {registrations:,} in {trees:,}"
            return (QUOTA, reason) if share else None
        return POLICY, (
            f"policy {self.confinement.version} gives a node of {self.tenant} {most} registrations "
            f"(one for each alternative of a selector), and this would be {registrations}"
        )

    def denied(self, batch: Sequence[Attributes]) -> list[bool]:
        """Return, for each event, whether this node's tenant may not publish it; empty: it may
        publish all."""
        if not self.tenant:
            return []
        allowed = self.confinement.may_publish(self.tenant, batch)
        return [] if all(allowed) else [not one for one in allowed]

    def publication_denial(self) -> str:
        """Return the reason why an event is `denied`, for the program that published it."""
        known = self.confinement
        return known.denial(self.tenant) or (
            f"policy {known.version} permits {self.tenant} to publish only: "
            f"{known.of(self.tenant).publish or 'nothing'}"
        )

    def describe(self, attributes: Attributes) -> str:
        """Describe the policy's decision about an event that the tenant asked about; "" if the node
        has no tenant."""
        if not self.tenant:
            return ""
        known = self.confinement
        may = known.of(self.tenant).subscribe or "nothing"
        verdict = "permits" if known.may_see(self.tenant, attributes) else "does not permit"
        return (
            known.denial(self.tenant)
            or f"policy {known.version} of {self.tenant} {verdict} it: {may}"
        )
