"""Gets a node's certificates: the first with a token (`join`), later ones with the last (`renew`).

The private key never leaves the node: the node sends the public one, and signs the issuer's nonce.
To join it connects twice: the first time it trusts nobody, and only accepts the root whose
fingerprint is in its token; the second time the issuer has to present a certificate below that root
before it gets the secret.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import trio
from cryptography import x509

from canopy.wire.addresses import split_address
from canopy.wire.keys.certificates import (
    CertificateError,
    KeyFolderError,
    fingerprint,
    is_signed_by,
    key_of,
    load_pem,
    pem,
    raw_key,
)
from canopy.wire.keys.chains import path_of, read_chain, read_chain_der
from canopy.wire.keys.enrolment import (
    ANSWERS,
    PREAMBLE,
    REQUESTS,
    Denied,
    Enrol,
    Greeting,
    Issued,
    RenewCertificate,
    claim,
)
from canopy.wire.keys.key_folder import KeyFolder
from canopy.wire.keys.revocations import believed_list
from canopy.wire.keys.revocations import read as read_revocations
from canopy.wire.keys.tokens import Token
from canopy.wire.transport.framing import FrameReader
from canopy.wire.transport.tls import Chain, TlsError, TlsPipe, new_context, tls_fault
from overlay.machine import NodeId
from overlay.rights import Principal, Role

PATIENCE = 5.0
"""Seconds for each attempt: connecting, TLS, and one request."""


class JoinError(Exception):
    """No certificate could be obtained; the message says why."""


class _Side:
    """One connection to an issuer."""

    def __init__(self, roots: Sequence[x509.Certificate], issuer: NodeId | None = None) -> None:
        """`roots`: the roots to believe; none: any answer is accepted, and nothing is disclosed.
        `issuer`: the only node that may receive messages; "": any whose role is issuer or higher,
        None: any node of the overlay."""
        self._issuer = issuer
        self._context = new_context(False)
        self._believes = bool(roots)
        if roots:
            self._context.load_verify_locations(cadata=pem(*roots).decode())
        else:
            self._context.verify_mode = ssl.CERT_NONE
        self._stream: trio.SocketStream
        self._pipe: TlsPipe
        self._reader = FrameReader(ANSWERS)

    def context(self, is_server: bool) -> ssl.SSLContext:
        """Return the TLS context of this side, whichever side it is, as `TlsPipe` asks for it."""
        return self._context

    def identify(self, chain: Chain) -> Principal:
        """Raise TlsError unless the other end may receive a secret."""
        if not self._believes:
            return Principal("", Role.LEAF, "")
        try:
            found = read_chain_der(chain).node.principal
        except CertificateError as error:
            raise TlsError(str(error)) from None
        if self._issuer == "" and found.role < Role.ISSUER:
            raise TlsError("the node there is no issuer")
        if self._issuer and found.id != self._issuer:
            raise TlsError("the node there is not the issuer that the token names")
        return found

    async def connect(self, address: str) -> Greeting:
        """Connect, and return the issuer's first message."""
        host, port = split_address(address)
        self._stream = await trio.open_tcp_stream(host, port)
        await self._stream.send_all(PREAMBLE)
        self._pipe = TlsPipe(self, False)
        await self._pipe.handshake(self._stream)
        found = await self.hear()
        if not isinstance(found, Greeting):
            raise JoinError(f"{address} does not greet as an issuer does")
        return found

    async def ask(self, request: Enrol | RenewCertificate) -> Issued:
        """Send a request, and return the answer. Raises JoinError if it is refused."""
        await self._stream.send_all(self._pipe.encrypt([REQUESTS.encode(request)]))
        found = await self.hear()
        if isinstance(found, Denied):
            raise JoinError(found.reason)
        if not isinstance(found, Issued):
            raise JoinError("the issuer does not answer what was asked")
        return found

    async def hear(self) -> Greeting | Issued | Denied:
        """Wait for the other side's next message and return it. Raises JoinError if it is not one,
        or if the connection ends."""
        found = self._reader.feed(self._pipe.decrypt(b""))
        while not found and self._reader.error is None:
            data = await self._stream.receive_some()
            if not data or self._pipe.is_over:
                raise JoinError("the issuer closed the connection")
            found = self._reader.feed(self._pipe.decrypt(data))
        if not found:
            raise JoinError(f"the issuer's answer: {self._reader.error}")
        return found[0]

    async def close(self) -> None:
        """Close the connection, if it was opened."""
        if hasattr(self, "_stream"):
            await trio.aclose_forcefully(self._stream)


async def join(folder: KeyFolder, token: Token, now: float) -> None:
    """Get the first certificate for the node whose key is in `folder`, and keep it. Raises
    JoinError after all addresses of the token have failed."""
    key = folder.node_key()
    public = raw_key(key.public_key())

    async def attempt(address: str) -> Issued:
        stranger = _Side(())
        try:
            greeting = await stranger.connect(address)
        finally:
            await stranger.close()
        roots = load_pem(greeting.roots)
        wanted = [root for root in roots if fingerprint(root) == token.root]
        if not wanted:
            raise JoinError(f"{address} is not of the overlay that the token names")

        def enrol(nonce: bytes) -> Enrol:
            signature = key.sign(claim(nonce, public, 1))
            return Enrol(token.invitation, token.secret, public, signature)

        return await _ask(_Side(wanted, token.node), address, enrol)

    issued = await _first(token.addresses, attempt)
    keep(folder, issued, token.overlay, now, token.root)
    folder.write_issuer_place(token.addresses, token.peers)


async def _ask(
    side: _Side, address: str, request: Callable[[bytes], Enrol | RenewCertificate]
) -> Issued:
    """Connect, and return the answer to what `request` makes of the issuer's nonce."""
    try:
        greeting = await side.connect(address)
        return await side.ask(request(greeting.nonce))
    finally:
        await side.close()


async def renew(folder: KeyFolder, generation: int, now: float) -> None:
    """Get the node's next certificate, and keep it. Raises JoinError."""
    await _renew(folder, "node", generation, now)


async def renew_issuer(folder: KeyFolder, now: float) -> None:
    """Get a restricted issuer's certificate below the present root from where the issuer was made,
    and keep it. Raises JoinError."""
    await _renew(folder, "issuer", 0, now)


async def _renew(folder: KeyFolder, name: str, generation: int, now: float) -> None:
    key, chain, place = folder.key(name), folder.chain(name), folder.issuer_place()
    known, roots = folder.certificate(), folder.chain("roots")
    if place is None or known is None:
        raise JoinError("it is not known where the issuer is")
    public = raw_key(key.public_key())

    def request(nonce: bytes) -> RenewCertificate:
        signature = key.sign(claim(nonce, public, generation))
        return RenewCertificate(pem(chain[0]), generation, public, signature)

    async def attempt(address: str) -> Issued:
        # Nothing secret is said, and `keep` looks at the answer.
        return await _ask(_Side(roots), address, request)

    keep(folder, await _first(place.addresses, attempt), known.holder.overlay, now, name=name)


def renew_now(folder: KeyFolder, generation: int) -> None:
    """Run `renew` in a program that does nothing else. Raises JoinError."""
    trio.run(renew, folder, generation, time.time())


def renew_issuer_now(folder: KeyFolder) -> None:
    """Run `renew_issuer` in a program that does nothing else. Raises JoinError."""
    trio.run(renew_issuer, folder, time.time())


async def _first(addresses: Sequence[str], attempt: Callable[[str], Awaitable[Issued]]) -> Issued:
    reasons = []
    for address in addresses:
        reason = f"no answer within {PATIENCE:g} s"
        with trio.move_on_after(PATIENCE):
            try:
                return await attempt(address)
            except (
                JoinError,
                TlsError,
                OSError,
                ValueError,
                ssl.SSLError,
                trio.BrokenResourceError,
                msgspec.MsgspecError,
                CertificateError,
            ) as error:
                reason = tls_fault(error) if isinstance(error, ssl.SSLError) else str(error)
        reasons.append(f"{address}: {reason}")
    raise JoinError("; ".join(reasons))


def keep(
    folder: KeyFolder, issued: Issued, overlay: str, now: float, root: str = "", name: str = "node"
) -> None:
    """Check the issuer's answer, and write it into the folder. Raises JoinError. `root`: the
    fingerprint, in a token, of a certificate that must be among the roots; with it, the other roots
    that the issuer names are trusted too. Without it only the roots in the folder are trusted, and
    those for which they vouch. `name`: "issuer" for the certificate of a restricted issuer."""
    try:
        chain, roots = load_pem(issued.chain), load_pem(issued.roots)
        known = [each for each in roots if fingerprint(each) == root] or folder.chain("roots")
        path = path_of(chain[0], chain[1:], known)
        of = read_chain(path).node.holder.overlay if name == "node" else overlay
        files = {"roots.pem": pem(*roots), f"{name}.pem": pem(*chain)}
        if issued.revocations:
            listed = read_revocations(issued.revocations, overlay, roots).version
            if listed > _kept_version(folder, overlay, roots):
                files["revoked"] = issued.revocations
    except (ValueError, CertificateError, KeyFolderError) as error:
        raise JoinError(f"the issuer sent no certificate: {error}") from None
    is_ours = key_of(chain[0]) == folder.key(name).public_key() and of == overlay
    if not is_ours or chain[0].not_valid_after_utc.timestamp() < now:
        raise JoinError("the issuer sent a certificate for something else")
    if root and root not in [fingerprint(each) for each in roots]:
        raise JoinError("the issuer sent other roots than the token's")
    if not root and not all(_is_vouched_for(each, chain[1:], known) for each in roots):
        raise JoinError(
            "the issuer sent a root that none of those vouches for which are known here"
        )
    if name == "issuer":
        if chain[0] == folder.chain(name)[0]:
            return
        files["former.pem"] = pem(*folder.issuers())
    folder.write_together(files)


def _kept_version(folder: KeyFolder, overlay: str, roots: list[x509.Certificate]) -> int:
    """Return the version of the list of revocations in the folder; 0 if none is valid below these
    roots."""
    found, data, _ = believed_list(folder.document("revoked"), overlay, roots[:1])
    return found.version if data else 0


def _is_vouched_for(
    root: x509.Certificate,
    others: Sequence[x509.Certificate],
    known: Sequence[x509.Certificate],
) -> bool:
    """Return whether a root is known, or a known one has signed it, by a certificate among
    `others`."""
    return root in known or any(
        key_of(one) == key_of(root) is not None and is_signed_by(one, known) for one in others
    )
