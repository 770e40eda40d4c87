"""Programs on other machines: the control socket over TCP with TLS, for programs with a token.

The node presents its own certificate, whose id the program expects (canopy/client/remote.py). The
program's first `SECRET_LENGTH` bytes are a token; if it is unknown, the program only gets a
refusal. From then on the connection is like one of the control socket, but each command is looked
up in ``scopes``. The node keeps only hashes of tokens, in the file ``tokens`` of its data folder,
which it reads again when it changes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio

from canopy.wire.addresses import join_address
from canopy.wire.audit import append
from canopy.wire.constants import READ_SIZE
from canopy.wire.log import Log
from canopy.wire.token_file import ProgramToken, TokenFile, TokensError
from canopy.wire.transport.framing import REPLY_FRAMES
from canopy.wire.transport.inlet import Inlet
from canopy.wire.transport.tls import Doorkeeper, SecureInlet, TlsError, TlsPipe
from overlay.client import DENIED, Command, Failed

SECRET_PREFIX: Final = "cct1_"
SECRET_LENGTH: Final = len(SECRET_PREFIX) + 43
"""The characters of a token: the prefix and 256 random bits."""

PATIENCE: Final = 5.0
"""Seconds for the handshake and the token."""

AUDITED: Final = frozenset(("observe", "admin"))
"""Scopes whose programs are recorded in the audit file when they connect."""


class AdmittedProgram(NamedTuple):
    """A program that has shown its token."""

    token: ProgramToken
    secret: str
    pipe: TlsPipe
    inlet: SecureInlet
    first: bytes
    """Bytes that were received after the token."""
    address: str


class RemoteDoor:
    """Admits programs with tokens. `refused` counts the others."""

    def __init__(
        self, folder: Path, keys: Doorkeeper, log: Log, clock: Callable[[], float]
    ) -> None:
        """`folder`: the node's data folder; `clock`: monotonic seconds."""
        self.refused = 0
        self._folder = folder
        self._tokens = token_file(folder)
        self._keys = keys
        self._log = log
        self._clock = clock

    def admits(self, host: str) -> bool:
        """Return whether one more connection from `host` is accepted; `admit` must follow then."""
        if self._keys.limits(host).admits(host, self._clock()):
            return True
        self.refused += 1
        return False

    async def admit(
        self, stream: trio.SocketStream, host: str, port: int
    ) -> AdmittedProgram | None:
        """Authenticate a program. Returns None if it is refused, and its connection has to be
        closed."""
        limits = self._keys.limits(host)
        found: AdmittedProgram | None = None
        reason = f"nothing was shown within {PATIENCE:g} s"
        try:
            with trio.move_on_after(PATIENCE):
                await self._keys.turn(host)
                found = await self._greet(stream, join_address(host, port))
                reason = "it has left"
        except (TlsError, TokensError, OSError) as error:
            reason = str(error)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            reason = "it has left"
        finally:
            limits.done(host)
        if found is None:
            self.refused += 1
            self._log.seldom("program_refused", address=join_address(host, port), reason=reason)
        else:
            self._log.info("program", token=found.token.name, address=found.address)
            if AUDITED & set(found.token.scopes):
                self.note("program connected", token=found.token.name, address=found.address)
        return found

    async def _greet(self, stream: trio.SocketStream, address: str) -> AdmittedProgram:
        pipe = TlsPipe(self._keys.program_side(), True)
        await pipe.handshake(stream)
        inlet = SecureInlet(Inlet(stream), pipe)
        shown = b""
        while len(shown) < SECRET_LENGTH:
            data = await inlet.read(READ_SIZE)
            if not data:
                raise TlsError("it has left")
            shown += data
        secret = shown[:SECRET_LENGTH].decode("ascii", "replace")
        token = self._tokens.find(secret)
        if token is None:
            text = "the token is unknown here, was removed, or has expired"
            said = REPLY_FRAMES.encode(Failed(0, DENIED, text))
            await stream.send_all(pipe.encrypt([said]))
            raise TlsError(text)
        return AdmittedProgram(token, secret, pipe, inlet, shown[SECRET_LENGTH:], address)

    def is_still_good(self, token: ProgramToken, secret: str) -> bool:
        """Return whether this token still exists with the same rights."""
        try:
            return self._tokens.find(secret) == token
        except (TokensError, OSError):
            return False

    def note_command(self, token: ProgramToken, command: Command) -> None:
        """Record a program's administrative command in the audit file."""
        self.note("program's command", token=token.name, command=type(command).__name__)

    def note(self, kind: str, **fields: Any) -> None:
        """Write a line of the node's audit file."""
        try:
            append(self._folder, kind, **fields)
        except OSError as error:
            self._log.error("audit_failed", reason=error)


def token_file(folder: Path) -> TokenFile:
    """Return the token file of the node of this data folder."""
    return TokenFile(folder / "tokens", SECRET_PREFIX)
