"""TLS 1.3 between two nodes, before the outlet and after the inlet.

`ssl.SSLObject` with memory BIOs does no IO by itself, so outlet and inlet stay unchanged: all
pieces of a turn are joined, encrypted by one call and sent by one system call; bytes read from the
socket are decrypted into a buffer that is kept. (trio's SSLStream would bypass both: it takes three
calls and two locks for each piece.)

Both sides present certificates. There is no TLS session resumption (`num_tickets = 0`): a resumed
peer would not be verified again, and the sessions of overlay/links resume by themselves.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any, Final, Protocol

import trio

from canopy.wire.constants import GREETING_SIZE
from canopy.wire.transport.accept_limits import AcceptLimits
from canopy.wire.transport.framing import NODE_FRAMES
from canopy.wire.transport.inlet import Inlet
from overlay.links.messages import Bye
from overlay.rights import Principal

BUFFER: Final = 64 * 1024
"""Bytes that one call decrypts. `SSLObject.read` without a buffer allocates the requested size: 20
µs for 256 KiB, and 1.4 with a buffer that is kept."""


Chain = tuple[bytes, ...]
"""Certificates (DER): a peer's, and those by which it was verified. Empty: it presented none."""

IGNORE_CRITICAL: Final = ssl.VerifyFlags(0x10)
"""OpenSSL's X509_V_FLAG_IGNORE_CRITICAL: accept extensions that it does not know. `identify` checks
all of them (canopy/wire/keys/chains.py)."""


NO_TLS: Final = ("wrong version number", "packet length too long", "record layer failure")
"""OpenSSL's reasons if the other side's first bytes are not a TLS record."""

NO_KEYS: Final = "it speaks no TLS: it is a node without keys, or none, and this one has keys"

PLAIN_BYE: Final = NODE_FRAMES.encode(
    Bye(
        "this overlay has keys: start with --join and a token that 'canopy keys invite' prints "
        "at a node of it"
    )
)
"""The frame that a node with keys sends to a node without keys."""

_DER: Final = 2
"""The argument by which Python before 3.13 returns a certificate's bytes."""


class TlsError(Exception):
    """The peer is refused, or does not use TLS; the message says why."""


class Security(Protocol):
    """The part of the node's keys that a connection uses (canopy/wire/process/security)."""

    def context(self, is_server: bool) -> ssl.SSLContext:
        """Return the TLS context with the present certificate."""

    def identify(self, chain: Chain) -> Principal:
        """Return the identity of the node that presents this certificate, the first one, with those
        that vouch for it up to a root of the overlay. TLS has verified their signatures. Raises
        TlsError if it is not, or no longer, trusted."""


class Doorkeeper(Security, Protocol):
    """The further part of the keys that the doors for nodes and for programs use."""

    def program_side(self) -> Security:
        """Return the TLS side that presents this node's certificate, and asks the other side for
        none."""

    def note(self, kind: str, **fields: Any) -> None:
        """Write a line of the node's audit file."""

    def limits(self, host: str) -> AcceptLimits:
        """Return the limits on which connections from `host` count."""

    async def turn(self, host: str) -> None:
        """Wait until a handshake with `host` may begin."""

    def is_join(self, first: bytes) -> bool:
        """Return whether a connection that begins with these bytes requests a certificate."""

    async def serve_join(self, stream: trio.SocketStream, first: bytes) -> None:
        """Serve a request for a certificate, for a bounded time."""


class TlsPipe:
    """The state of one connection's encryption. No IO, except in `handshake`."""

    def __init__(self, security: Security, is_server: bool) -> None:
        self._security = security
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = security.context(is_server).wrap_bio(
            self._incoming, self._outgoing, server_side=is_server
        )
        self._buffer = bytearray()  # strangers, of whom there may be many, have none
        self.chain: Chain = ()
        """The peer's certificates, after the handshake."""
        self.is_over = False
        """Whether the peer has ended the session. Bytes after that are dropped."""

    async def handshake(self, stream: trio.SocketStream, first: bytes = b"") -> Principal:
        """Do the TLS handshake; `first`: bytes that were read already. Returns the peer's identity.
        Raises TlsError if it is not authenticated."""
        self._incoming.write(first)
        try:
            while True:
                try:
                    self._object.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    await self._send(stream)
                data = await stream.receive_some(GREETING_SIZE)
                if not data:
                    raise TlsError("the peer closed it during the handshake")
                self._incoming.write(data)
            self.chain = verified_chain(self._object)
            principal = self._security.identify(self.chain)
        except ssl.SSLError as error:
            fault = tls_fault(error)
            await self._tell(stream, PLAIN_BYE if fault == NO_KEYS and first else b"")
            raise TlsError(fault) from None
        except TlsError:
            await self._tell(stream)
            raise
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise TlsError(f"broken during the handshake: {error.__cause__ or error}") from None
        await self._send(stream)
        return principal

    async def _send(self, stream: trio.SocketStream) -> None:
        if self._outgoing.pending:
            await stream.send_all(self._outgoing.read())

    async def _tell(self, stream: trio.SocketStream, plain: bytes = b"") -> None:
        """Send the alert with the reason, within a second; or `plain`, to a node without TLS that
        would not understand an alert."""
        with trio.move_on_after(1.0):
            try:
                await (stream.send_all(plain) if plain else self._send(stream))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

    def encrypt(self, pieces: Sequence[bytes | memoryview]) -> bytes:
        """Return the bytes to send for all these pieces."""
        self._object.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        return self._outgoing.read()

    def decrypt(self, data: bytes | bytearray) -> bytes:
        """Return the plain bytes of the TLS records that are complete with `data`; b"" if none is,
        or after the peer has ended the session (`is_over`). Raises TlsError if they cannot be
        decrypted."""
        if self.is_over:
            return b""
        self._incoming.write(data)
        found: list[bytes] = []
        buffer = self._buffer = self._buffer or bytearray(BUFFER)
        # A read that finds nothing raises, which takes as long as decrypting 1 KiB.
        while self._incoming.pending or self._object.pending():
            try:
                count: Any = self._object.read(BUFFER, buffer)  # a number, with a buffer
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError as error:
                raise TlsError(tls_fault(error)) from None
            if not count:
                self.is_over = True
                break
            found.append(bytes(memoryview(buffer)[:count]))
        return found[0] if len(found) == 1 else b"".join(found)


class SecureInlet:
    """The incoming bytes of a stream, decrypted; see `Inlet`."""

    def __init__(self, inlet: Inlet, pipe: TlsPipe) -> None:
        self._inlet = inlet
        self._pipe = pipe
        self._is_new = True  # some may have come with the end of the handshake

    async def read(self, most: int) -> bytes | bytearray:
        """Return some bytes, as soon as there are any; b"" if the other side has closed. Raises
        trio.BrokenResourceError and trio.ClosedResourceError as `Inlet.read` does."""
        while True:
            data: bytes | bytearray = b""
            if not self._is_new and not (data := await self._inlet.read(most)):
                return b""
            self._is_new = False
            try:
                plain = self._pipe.decrypt(data)
            except TlsError as error:
                raise trio.BrokenResourceError(str(error)) from None
            if plain or self._pipe.is_over:
                return plain


def verified_chain(connection: ssl.SSLObject) -> Chain:
    """Return the certificates by which OpenSSL has verified the peer's, which is the first one,
    after the handshake. They prove nothing if OpenSSL was told to verify nothing."""
    found: Any = getattr(connection, "get_verified_chain", None)  # since Python 3.13
    if found is not None:
        return tuple(found())
    inner: Any = connection._sslobj  # type: ignore[attr-defined]
    return tuple([one.public_bytes(_DER) for one in inner.get_verified_chain() or ()])


def new_context(is_server: bool) -> ssl.SSLContext:
    """Return a context of TLS 1.3 only, with certificates on both sides and without resumption."""
    kind = ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT
    context = ssl.SSLContext(kind)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # a certificate names a node, not a machine
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= IGNORE_CRITICAL
    if is_server:
        context.num_tickets = 0
    return context


def tls_fault(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    reason = (error.reason or str(error) or type(error).__name__).lower().replace("_", " ")
    if reason in NO_TLS:
        return NO_KEYS
    return f"TLS failed: {reason}"
