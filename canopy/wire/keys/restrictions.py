"""Restrictions of an issuer: an extension of its certificate.

The extension is critical: software that does not know it, such as a node of an earlier release,
refuses everything that such an issuer has signed, and does not take it for an unrestricted one. Its
value is a JSON text (a DER UTF8String), for example
``{"roles":["leaf"],"tenants":["acme"],"ids":100}``. An issuer without the extension may sign any
node.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from cryptography import x509

from overlay.rights import ROLES, Role

OID: Final = x509.ObjectIdentifier("2.25.42741758685272327580905820144448320007")
"""The extension's identifier: an arc that follows from a random UUID, which needs no registry."""

VALUE_MOST: Final = 8_192
IDS_MOST: Final = 1_000_000

_UTF8_STRING: Final = 0x0C


class RestrictionError(ValueError):
    """The text is not a valid restriction; the message gives the reason."""


class Restriction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The nodes that an issuer may sign. An unknown field makes the whole restriction invalid, so
    that ignoring a field never permits more."""

    roles: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=8)]
    """The names of the roles."""
    tenants: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=64)] | None = ("",)
    """The tenants; "" stands for nodes without a tenant; None: any tenant or none."""
    ids: Annotated[int, msgspec.Meta(ge=0, le=IDS_MOST)] = 0
    """The most ids at a time: each has a place of its own from 1 to this. 0: not bounded."""

    def refusal(self, role: Role, tenant: str, place: int) -> str:
        """Return why this issuer may not sign such a node; empty if it may."""
        name = role.name.lower()
        if name not in self.roles:
            return f"its issuer may sign {', '.join(self.roles)}, and this is a {name}"
        if self.tenants is not None and tenant not in self.tenants:
            whose = ", ".join(map(_tenant, self.tenants))
            return f"its issuer may sign nodes of {whose}, and this is of {_tenant(tenant)}"
        if self.ids and not 1 <= place <= self.ids:
            return f"its issuer may sign {self.ids} ids, and this has place {place}"
        return ""

    def __str__(self) -> str:
        whose = "any tenant" if self.tenants is None else ", ".join(map(_tenant, self.tenants))
        ids = f", {self.ids} ids" if self.ids else ""
        return f"{', '.join(self.roles)} of {whose}{ids}"

    def own(self) -> tuple[Role, str]:
        """Role and tenant of the issuer's own node: the highest role, and the first tenant."""
        return max(ROLES[name] for name in self.roles), (self.tenants or ("",))[0]


def _tenant(name: str) -> str:
    return name or "no tenant"


def extension(restriction: Restriction) -> x509.UnrecognizedExtension:
    """Return the restriction as an extension of a certificate. Raises RestrictionError."""
    text = msgspec.json.encode(restriction)
    if unknown := [name for name in restriction.roles if name not in ROLES]:
        raise RestrictionError(f"unknown roles: {', '.join(unknown)}")
    if len(text) > VALUE_MOST:
        raise RestrictionError(f"the restriction has {len(text):,} bytes")
    length = bytes([len(text)]) if len(text) < 128 else b"\x82" + len(text).to_bytes(2, "big")
    if 128 <= len(text) < 256:
        length = bytes([0x81, len(text)])
    return x509.UnrecognizedExtension(OID, bytes([_UTF8_STRING]) + length + text)


def restriction_of(certificate: x509.Certificate) -> Restriction | None:
    """Return the restriction in an issuer's certificate; None: there is none. Raises
    RestrictionError if the extension is present and cannot be understood."""
    try:
        found = certificate.extensions.get_extension_for_oid(OID).value
    except x509.ExtensionNotFound:
        return None
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise RestrictionError(f"its issuer's certificate is not understood: {error}") from None
    value = found.value if isinstance(found, x509.UnrecognizedExtension) else b""
    try:
        restriction = msgspec.json.decode(_utf8_string(value), type=Restriction)
    except msgspec.MsgspecError as error:
        raise RestrictionError(f"its issuer's restriction is not understood: {error}") from None
    if any(name not in ROLES for name in restriction.roles):
        raise RestrictionError("its issuer's restriction names roles that are not known")
    return restriction


def _utf8_string(value: bytes) -> bytes:
    """Return the content of a DER UTF8String that fills all of `value`."""
    if len(value) >= 2 and value[0] == _UTF8_STRING:
        size = value[1] & 0x7F if value[1] & 0x80 else 0
        body = value[2 + size :]
        length = int.from_bytes(value[2 : 2 + size], "big") if size else value[1]
        if length == len(body) <= VALUE_MOST:
            return body
    raise RestrictionError("its issuer's restriction is no text")
