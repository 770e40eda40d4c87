"""Replaces root and issuer of a running overlay, in two steps.

========== ===================================== ==========================================
state      roots in the issuer's folder          what leads on
========== ===================================== ==========================================
settled    one                                   `rotate`: another root, for which the
                                                 former one vouches, and another issuer
both       the new one, the former one           nodes renew (they hear of it by the list
                                                 of revocations); `finish`
========== ===================================== ==========================================

All that a root vouches for goes over with it: the list of revocations and the policy are signed
again under their next versions, and restricted issuers get another certificate for their key.
`finish` has the former root's id in the list of revocations, so that each node drops it within
seconds, with what hangs on it; before that it looks whether anything that is needed still does.
"""

from __future__ import annotations

from collections.abc import Callable
from random import random
from typing import Final, NamedTuple

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID

from canopy.wire.keys.authority import Issuer, issuer_of, root_key_of, signed_for_self
from canopy.wire.keys.certificates import (
    DAY,
    NODE_DAYS,
    RENEW_AFTER,
    SKEW,
    CertificateError,
    KeyFolderError,
    authority_certificate,
    fingerprint,
    key_of,
    load_pem,
    pem,
    private_pem,
)
from canopy.wire.keys.chains import authority_id, path_of
from canopy.wire.keys.key_folder import KeyFolder, MadeIssuer
from canopy.wire.keys.ledger import Ledger, Signed
from canopy.wire.keys.policies import read_policy, sign_policy
from canopy.wire.keys.restrictions import restriction_of
from canopy.wire.keys.revocations import Revocations
from canopy.wire.keys.revocations import read as read_revocations
from overlay.machine import NodeId
from overlay.phrases import counted
from overlay.tenants.policy import PolicyError

# --- when a node asks for its next certificate ---
#
# Certificates of nodes that were started together end together, and an issuer that was away finds
# all of them waiting. So nodes ask at times of their own: the first time within an hour from when
# it is time, after each failure twice as long after it as before, up to five minutes, and never in
# step with others. What comes at once is spread, and as long as the issuer is away it costs little.

RENEW_SPREAD: Final = 20.0
"""Seconds over which nodes spread their renewals when they all learn of another root, or start, at
once. Guess: an issuer takes some 3 ms for each."""

RENEW_APART: Final = 3_600.0
"""Seconds over which nodes spread their renewals if their certificates began at the same time;
these are valid for five more days."""

RENEW_AGAIN: Final = 60.0
RENEW_AGAIN_MOST: Final = 300.0
"""Seconds until a failed renewal is tried again: the first delay, and the longest. The actual delay
is random, 0.5 to 1.5 times as long. So 3,000 nodes ask ten times a second. Guess."""


RENEW_LATER: Final = 3_600.0
"""Seconds until a failed renewal is tried again if the certificate is still valid for long and the
node only asks whether there is another root."""


class RenewalTimes:
    """Decides when one process renews its certificate. Times are seconds since 1970."""

    def __init__(self, chance: Callable[[], float] = random) -> None:
        """`chance`: returns a random number from 0 to 1."""
        self._chance = chance
        self._at = 0.0
        self._failed = 0
        self._apart = chance() * RENEW_APART

    def is_time(self, now: float, begins: float) -> bool:
        """Return whether a certificate that began at `begins` is due for renewal."""
        return now >= begins + RENEW_AFTER * DAY + self._apart

    def may_ask(self, now: float) -> bool:
        """Return whether this node may ask for another certificate now."""
        return now >= self._at

    def soon(self, now: float) -> None:
        """Delay the next request by a random time: other nodes have the same reason to ask at this
        moment."""
        self._at = now + self._chance() * RENEW_SPREAD

    def asks(self, now: float, has_to: bool = True) -> None:
        """Note a request, and set the time of the next one if `granted` is not called. `has_to`:
        False if the node's own certificate is valid for long and it only asks whether there is
        another root."""
        wait = min(RENEW_AGAIN * 2.0 ** min(self._failed, 16), RENEW_AGAIN_MOST)
        wait = wait if has_to else RENEW_LATER
        self._failed += 1
        self._at = now + wait * (0.5 + self._chance())

    def granted(self) -> None:
        """Note that there is a new certificate."""
        self._failed = 0


SHOWN_MOST = 10
"""The most ids that a message names."""


class Awaited(NamedTuple):
    """The issuers and nodes that still depend on the old root."""

    issuers: tuple[NodeId, ...]
    """Restricted issuers that have not fetched their next certificate."""
    nodes: tuple[Signed, ...]
    """Nodes whose certificate is still valid and was signed by the former issuer."""

    def __str__(self) -> str:
        parts = []
        for what, names in (
            ("restricted issuer", self.issuers),
            ("node", tuple([one.node for one in self.nodes])),
        ):
            if names:
                more = f" and {len(names) - SHOWN_MOST} more" if len(names) > SHOWN_MOST else ""
                parts.append(f"{counted(len(names), what)}: {', '.join(names[:SHOWN_MOST])}{more}")
        return "; ".join(parts)


def rotate(folder: KeyFolder, now: float) -> None:
    """Make another root and issuer. The former root, whose key must be in the folder, vouches for
    the new one, so that nodes trust both until `finish`. Raises KeyFolderError."""
    with folder.locked():
        _rotate(folder, now)


def _rotate(folder: KeyFolder, now: float) -> None:
    former = issuer_of(folder)
    if former.restriction is not None:
        raise KeyFolderError(
            "this is a restricted issuer: it goes over to another root when that is replaced"
        )
    own, roots = folder.certificate(), folder.chain("roots")
    if own is None or len(roots) != 1:
        raise KeyFolderError("the last rotation is not finished: canopy keys rotate --finish")
    former_key = root_key_of(folder)
    overlay = own.holder.overlay
    root_key, issuer_key = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    name, public = f"{overlay} root {int(now)}", root_key.public_key()
    root = authority_certificate(name, public, root_key, None, now)
    cross = authority_certificate(name, public, former_key, roots[0], now, is_root=True)
    certificate = authority_certificate(
        f"{overlay} issuer {int(now)}", issuer_key.public_key(), root_key, root, now
    )
    issuer = Issuer(issuer_key, (certificate, cross))
    files = {
        "root.key": private_pem(root_key),
        "roots.pem": pem(root, roots[0]),
        "issuer.key": private_pem(issuer_key),
        "issuer.pem": pem(*issuer.chain),
        "former.pem": pem(*folder.issuers()),
        "node.pem": pem(*signed_for_self(folder, issuer, overlay, own.holder.generation, now)),
        "revoked": _next_list(folder, overlay, issuer),
    }
    policy, _ = folder.policy(overlay)
    if policy is not None:
        following = msgspec.structs.replace(policy, version=policy.version + 1)
        files["policy"] = sign_policy(following, overlay, issuer.key, issuer.chain, now)
    folder.write_together(files)
    _sign_issuers_again(folder, root, root_key, now)
    folder.note("root replaced", root=fingerprint(root))


def finish(folder: KeyFolder, now: float, anyway: bool = False) -> Awaited:
    """Make all nodes drop the former root. Raises KeyFolderError while something that is needed
    depends on it. With `anyway`, nodes that have not changed to the new root are left behind, and
    returned."""
    with folder.locked():
        issuer, roots, own = issuer_of(folder), folder.chain("roots"), folder.certificate()
        if len(roots) < 2 or own is None:
            raise KeyFolderError("there is no rotation to be finished")
        overlay = own.holder.overlay
        if again := _sign_again(folder, overlay, issuer, roots[0], now):
            raise KeyFolderError(
                f"{' and '.join(again)} hung on the former root; signed again now. Give the nodes "
                "a minute to hear of it, and then: canopy keys rotate --finish"
            )
        awaited = Awaited(_not_taken(folder, overlay, now), not_renewed(folder, overlay, now))
        if any(awaited) and not anyway:
            raise KeyFolderError(
                f"not everybody has gone over to the new root yet: {awaited}. Nodes renew within a "
                "minute while they run; revoke those that are gone for good, or leave them behind "
                "with --anyway: those that run renew then, and are cut off until they have"
            )
        gone = tuple(map(authority_id, roots[1:]))
        data = _next_list(folder, overlay, issuer, gone)
        folder.write_together({"roots.pem": pem(roots[0]), "revoked": data})
    folder.note("former root dropped", root=fingerprint(roots[1]), left_behind=len(awaited.nodes))
    return awaited


def not_renewed(folder: KeyFolder, overlay: str, now: float) -> tuple[Signed, ...]:
    """Return the nodes whose certificate is still valid and was not signed with the issuer's
    present one."""
    issuer = issuer_of(folder).certificate
    began = issuer.not_valid_before_utc.timestamp() + SKEW.total_seconds()
    live = Ledger(folder.path).live(now, folder.revocations(overlay)[0].ids)
    return tuple(
        one
        for one in live.values()
        if one.last + NODE_DAYS * DAY > now
        and (one.by != fingerprint(issuer) if one.by else one.last < began)
    )


def _next_list(
    folder: KeyFolder, overlay: str, issuer: Issuer, more: tuple[NodeId, ...] = ()
) -> bytes:
    """Return the next version of the list. Each rotation makes one, even without new ids: it tells
    nodes that there is another root."""
    known, _ = folder.revocations(overlay)
    ids = tuple(dict.fromkeys((*known.ids, *more)))
    return issuer.sign_revocations(Revocations(overlay, known.version + 1, ids))


def _sign_again(
    folder: KeyFolder, overlay: str, issuer: Issuer, root: x509.Certificate, now: float
) -> list[str]:
    """Sign again the documents and certificates that depend on a former root, and return their
    names. Raises KeyFolderError for those that cannot be signed here."""
    again = []
    policy, data = folder.policy(overlay)
    if policy is not None:
        try:
            read_policy(data, overlay, [root])
        except PolicyError:
            following = msgspec.structs.replace(policy, version=policy.version + 1)
            folder.write_document(
                "policy", sign_policy(following, overlay, issuer.key, issuer.chain, now)
            )
            again.append("the policy")
    try:
        read_revocations(folder.document("revoked"), overlay, [root])
    except CertificateError:
        folder.write_document("revoked", _next_list(folder, overlay, issuer))
        again.append("the list of revocations")
    if any(_hangs(made, root, now) for made in folder.made_issuers().values()):
        again += _sign_issuers_again(folder, root, root_key_of(folder), now)
    return again


def _hangs(made: MadeIssuer, root: x509.Certificate, now: float) -> bool:
    """Return whether a restricted issuer is still valid and not below this root."""
    (certificate,) = load_pem(made.certificate)
    if certificate.not_valid_after_utc.timestamp() <= now:
        return False
    try:
        path_of(certificate, (), [root])
    except CertificateError:
        return True
    return False


def _sign_issuers_again(
    folder: KeyFolder, root: x509.Certificate, root_key: Ed25519PrivateKey, now: float
) -> list[str]:
    """Sign certificates below this root for the restricted issuers that were made here, with the
    same key, rights and expiry. They fetch them (`issuer`)."""
    names = []
    for name, made in folder.made_issuers().items():
        if not _hangs(made, root, now):
            continue
        (former,) = load_pem(made.certificate)
        key = key_of(former)
        assert isinstance(key, Ed25519PublicKey)  # it is one of those that were made here
        certificate = authority_certificate(
            str(former.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value),
            key,
            root_key,
            root,
            now,
            restriction=restriction_of(former),
            days=(former.not_valid_after_utc.timestamp() - now) / DAY,
        )
        folder.write_made_issuer(name, MadeIssuer(pem(certificate), 0.0))
        names.append(f"the restricted issuer {name}")
    return names


def _not_taken(folder: KeyFolder, overlay: str, now: float) -> tuple[NodeId, ...]:
    revoked = folder.revocations(overlay)[0].ids
    return tuple(
        name
        for name, made in folder.made_issuers().items()
        if not made.taken
        and name not in revoked
        and load_pem(made.certificate)[0].not_valid_after_utc.timestamp() > now
    )
