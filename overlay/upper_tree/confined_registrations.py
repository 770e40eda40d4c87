"""Registrations of tenants, as the policy that holds has them."""

from __future__ import annotations

import msgspec

from matching import SelectorError
from overlay.tenants.policy import Confinement
from overlay.upper_tree.messages import Confined, Registration

NOBODY = Confinement(None)
"""Permits nothing."""


def narrowed_again(known: Confinement, registration: Registration) -> Registration:
    """A registration that another policy may have narrowed, by this one. Where that is too large it
    matches nothing."""
    if registration.confined is None or not registration.confined.tenant:
        return registration
    tenant = registration.confined.tenant
    try:
        return narrowed(known, registration, tenant)
    except SelectorError:
        return narrowed(NOBODY, registration, tenant)


def narrowed(known: Confinement, registration: Registration, tenant: str) -> Registration:
    """Return the registration with its subscriber's selector AND the selector of its tenant. Raises
    SelectorError if the result is too large."""
    asked = registration.asked
    return msgspec.structs.replace(
        registration, selector=known.narrow(tenant, asked), confined=Confined(tenant, asked)
    )
