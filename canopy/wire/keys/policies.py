"""The policy as a YAML file, and as the document that an admin signs.

The signer is an authority (root or unrestricted issuer), or a node whose certificate has the role
admin, was valid when the policy was signed, and was not revoked. The overlay has one policy, and
each new version has a higher number; overlay/tenants/policy defines its contents.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from canopy.wire.keys.certificates import CertificateError, check_name, ids_of
from canopy.wire.keys.chains import check_signer, read_document, sign_document
from overlay.machine import NodeId
from overlay.rights import Role
from overlay.tenants.policy import FORMAT, Policy, PolicyError, check_policy

CONTEXT: Final = b"canopy policy 1\n"
SIGNED_MOST: Final = 1_000_000
"""The largest signed policy, in bytes: it has to fit into one message."""


class PolicyBody(msgspec.Struct, frozen=True):
    """The signed part of a policy. `signed`: seconds since 1970."""

    overlay: str
    signed: float
    policy: Policy


def parse_policy(text: str) -> Policy:
    """Parse and check the policy in a YAML text. Raises PolicyError."""
    try:
        found: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise PolicyError(f"not YAML: {error}") from None
    if not isinstance(found, dict):
        raise PolicyError("expected `version`, `default: deny` and `tenants`")
    unknown = [str(name) for name in found if name not in ("version", "default", "tenants")]
    if unknown:
        raise PolicyError(f"unknown: {', '.join(unknown)}")
    try:
        policy = msgspec.convert({"format": FORMAT, **found}, Policy)
        for name in policy.tenants:
            check_name("tenant", name)
    except (msgspec.ValidationError, CertificateError) as error:
        raise PolicyError(str(error)) from None
    check_policy(policy)
    return policy


def write_policy(policy: Policy) -> str:
    """Return a policy as YAML."""
    tenants = {name: msgspec.to_builtins(each) for name, each in policy.tenants.items()}
    content = {"version": policy.version, "default": policy.default, "tenants": tenants}
    return yaml.safe_dump(content, sort_keys=False, width=1_000)


def sign_policy(
    policy: Policy,
    overlay: str,
    key: Ed25519PrivateKey,
    chain: Sequence[x509.Certificate],
    now: float,
) -> bytes:
    """Return the signed policy; `chain`: the signer's certificate and those that vouch for it.
    Raises PolicyError if it is too large."""
    found = sign_document(CONTEXT, PolicyBody(overlay, now, policy), key, chain)
    if len(found) > SIGNED_MOST:
        raise PolicyError(f"the policy has {len(found):,} bytes, and {SIGNED_MOST:,} are allowed")
    return found


def read_policy(
    data: bytes, overlay: str, roots: list[x509.Certificate], revoked: Collection[NodeId] = ()
) -> Policy:
    """Return a policy that an authority or an admin below one of `roots` has signed. A policy of a
    later format is accepted, and permits tenants nothing. Raises PolicyError."""

    def check(chain: list[x509.Certificate], body: PolicyBody) -> None:
        found = check_signer(chain, roots, revoked, body.signed)
        if found is None:
            return
        if found.principal.role < Role.ADMIN:
            raise PolicyError(f"the policy is signed by a {found.principal.role.name.lower()}")
        if not set(ids_of(found.key, found.holder.generation)).isdisjoint(revoked):
            raise PolicyError("the policy's signer was revoked")

    try:
        body = read_document(data, CONTEXT, PolicyBody, check)
    except CertificateError as error:
        raise PolicyError(f"no signed policy: {error}") from None
    if body.overlay != overlay:
        raise PolicyError(f"the policy is of the overlay {body.overlay!r}")
    return body.policy


def believed_policy(
    data: bytes, overlay: str, roots: list[x509.Certificate]
) -> tuple[Policy | None, str]:
    """Return the policy that a node has stored, and ""; if it is not, or no longer, trusted, None
    and the reason."""
    if not data:
        return None, ""
    try:
        return read_policy(data, overlay, roots), ""
    except PolicyError as error:
        return None, str(error)
