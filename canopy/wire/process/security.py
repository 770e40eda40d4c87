"""The keys of a running node: TLS contexts, trusted documents, renewals, revocations.

The files in the key folder are the state. This module reads them again when they change (another
command may have changed them), and replaces the TLS contexts, so that nothing needs a restart.
"""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import trio

from canopy.wire.addresses import is_loopback
from canopy.wire.config import NodeConfig
from canopy.wire.constants import CONNECTIONS
from canopy.wire.directory.signed_records import DirectoryKeys
from canopy.wire.keys.authority import issuer_of, sign_self
from canopy.wire.keys.beliefs import Beliefs, LiveIds, check_list, read_beliefs
from canopy.wire.keys.certificates import (
    DAY,
    SKEW,
    CertificateError,
    KeyFolderError,
    KeySigner,
    NodeCertificate,
    load_der,
    pem,
)
from canopy.wire.keys.chains import Vouched, issuer_name, names_successor, path_of, read_chain
from canopy.wire.keys.enrolment import (
    ANSWERS,
    PREAMBLE,
    REQUESTS,
    Denied,
    Greeting,
    Issued,
)
from canopy.wire.keys.issuer import Issuing
from canopy.wire.keys.join import JoinError, join, renew, renew_issuer
from canopy.wire.keys.key_folder import KeyFolder
from canopy.wire.keys.policies import read_policy
from canopy.wire.keys.revocations import Revocations
from canopy.wire.keys.rotation import RenewalTimes
from canopy.wire.keys.tokens import TokenError, read_token
from canopy.wire.log import Log, Sparing
from canopy.wire.private_file import PrivateFileError, secret_in
from canopy.wire.process.listener import StartError
from canopy.wire.transport.accept_limits import AcceptLimits, HandshakeTurns
from canopy.wire.transport.framing import FrameReader
from canopy.wire.transport.tls import Chain, Security, TlsError, TlsPipe, new_context
from overlay.bounded import BoundedDict
from overlay.machine import NodeId
from overlay.rights import Principal, Role
from overlay.tenants.policy import Policy, PolicyError

LOOK: Final = 1.0
"""Seconds between two checks of the key folder, and of the certificates of live connections: a
revocation closes links within 5."""

ISSUER_SOON: Final = 14 * DAY
"""Seconds before its expiry from which on an issuer's own node warns: only the holder of the root's
key can replace it."""

NOTE_AGAIN: Final = 60.0
"""Seconds between two records about wrong certificates of the same issuer."""

ISSUERS_NOTED: Final = 256

RENEW_AT_START: Final = 3_600.0
"""The least age in seconds at which a certificate is renewed at the start of its node."""

LOCAL_PER_SECOND: Final = 500.0
LOCAL_AWAITING: Final = 128
"""`AcceptLimits` for this machine: some dozen nodes that start at once."""

VOUCHED_KEPT: Final = 1_024
"""The most chains of other nodes whose verification is remembered: those in views arrive
repeatedly."""

JOIN_PATIENCE: Final = 5.0
"""The most seconds for a request for a certificate."""


class NodeSecurity:
    """The keys of one running node: `canopy.wire.transport.tls.Security`."""

    def __init__(
        self, folder: KeyFolder, overlay: str, log: Log, now: Callable[[], float] = time.time
    ) -> None:
        """Raises KeyFolderError if the keys cannot be used."""
        self._folder = folder
        self.overlay = overlay
        """The overlay's name."""
        self._log = log
        self._now = now
        self._issuing = Issuing(folder, overlay, now) if folder.is_issuer else None
        self._seen: dict[str, int] = {}
        self._renewals = RenewalTimes()
        self._read: BoundedDict[Chain, Vouched] = BoundedDict(CONNECTIONS)
        self._ids = LiveIds()
        self._vouched: BoundedDict[Chain, Vouched | None] = BoundedDict(VOUCHED_KEPT)
        """The nodes of chains that were verified; None: the chain is not trusted."""
        self._sparing = Sparing(time.monotonic)
        self._noted: BoundedDict[bytes, float] = BoundedDict(ISSUERS_NOTED)
        self._limits = AcceptLimits()
        self._local_limits = AcceptLimits(LOCAL_PER_SECOND, LOCAL_AWAITING)
        self._turns = HandshakeTurns()
        self.changed: Callable[[], None] = lambda: None
        """Called when the trusted documents have changed, outside the node's turns."""
        self._has_changed = False
        self._wants_root = False
        """Whether there may be a later root: the node was off, or has met a node that knows one."""
        self.policy = PolicyDocument(self)
        self._held: _Held | None = None
        self.load()
        if self._now() > self.own.begins + SKEW.total_seconds() + RENEW_AT_START:
            self._renew_soon()
            self._wants_root = True

    # --- what is believed ---

    @property
    def beliefs(self) -> Beliefs:
        """The present trust, which is replaced as a whole and never changed in part."""
        assert self._held is not None
        return self._held.beliefs

    @property
    def own(self) -> NodeCertificate:
        """This node's certificate, with its role and tenant."""
        return self.beliefs.own

    @property
    def revocations(self) -> Revocations:
        """The list of revocations."""
        return self.beliefs.revocations

    def load(self) -> None:
        """Read the folder, and adopt its contents. Raises KeyFolderError, and then the former trust
        stays in force."""
        folder, former = self._folder, None if self._held is None else self._held.beliefs
        folder.check()
        with folder.locked():
            seen = self._times()
            found = read_beliefs(folder, self.overlay, former)
            contexts = tuple([self._make_context(is_server, found) for is_server in (False, True)])
            joining = self._make_context(True, found)
            joining.verify_mode = ssl.CERT_NONE
            if found.has_dropped:
                folder.write_chain("roots", *found.roots)
            for name, data in (("revoked", found.revocations_data), ("policy", found.policy_data)):
                if data and folder.document(name) != data:  # somebody has put an older one there
                    self._log.warning("document_not_newer", file=name)
                    folder.write_document(name, data)
            if found.has_dropped:
                seen = self._times()
        self._seen = seen
        self._believe(_Held(found, contexts, joining))

    def _believe(self, held: _Held) -> None:
        """Replace the former value, and record the changes."""
        former, self._held = self._held, held
        found = held.beliefs
        before = None if former is None else former.beliefs
        self._vouched.clear()
        if before is None or before.roots != found.roots:
            self._read.clear()  # all who are connected are looked at again
        if found.is_behind and not (before and before.is_behind):
            self._renew_soon()
        if before is not None and (before.policy_version, before.roots) != (
            found.policy_version,
            found.roots,
        ):
            self._has_changed = True
        if before is not None and len(before.roots) > len(found.roots):
            self._log.info("former_root_dropped", roots=len(found.roots))
            self.note("former root dropped", roots=len(found.roots))
        policy = found.policy
        if policy is not None and (before is None or before.policy_version != policy.version):
            self.note("policy", version=policy.version, tenants=len(policy.tenants))
            self._log.info("policy", version=policy.version, tenants=len(policy.tenants))
        for fault in found.faults:
            if before is None or fault not in before.faults:
                self._log.warning("not_believed", reason=fault)

    def _renew_soon(self) -> None:
        """Schedule a renewal at a random time, since all nodes of an overlay may learn of another
        root at once."""
        self._renewals.soon(self._now())

    def _make_context(self, is_server: bool, found: Beliefs) -> ssl.SSLContext:
        context, path = new_context(is_server), self._folder.path
        try:
            context.load_verify_locations(cadata=pem(*found.roots).decode())
            context.load_cert_chain(path / "node.pem", path / "node.key")
        except (OSError, ssl.SSLError) as error:
            raise KeyFolderError(f"cannot use the keys in {path}: {error}") from None
        return context

    def _times(self) -> dict[str, int]:
        found = {}
        for name in ("node.pem", "roots.pem", "revoked", "policy", "next"):
            try:
                found[name] = (self._folder.path / name).stat().st_mtime_ns
            except OSError:
                found[name] = 0
        return found

    def note(self, kind: str, **fields: Any) -> None:
        """Write a line of the audit file; a failure is logged."""
        try:
            self._folder.note(kind, **fields)
        except OSError as error:
            self._log.error("audit_failed", reason=error)

    # --- what connections ask ---

    def context(self, is_server: bool) -> ssl.SSLContext:
        """Return the TLS context with the present certificate."""
        assert self._held is not None
        return self._held.contexts[is_server]

    def identify(self, chain: Chain) -> Principal:
        """Return the identity of the node that presents this chain, below a trusted root. Raises
        TlsError."""
        found = self._read.get(chain)
        if found is None:  # else it is looked at again and again, while its holder is connected
            try:
                found = self._read[chain] = self._judge(chain)
            except CertificateError as error:
                self._note_refused(chain, str(error))
                raise TlsError(str(error)) from None
        now = self._now()
        if reason := self.beliefs.refusal(found, now):
            raise TlsError(reason)
        if reason := self._ids.refusal(found, now, self.beliefs.revoked):
            self._note_refused(chain, reason)
            raise TlsError(reason)
        return found.node.principal

    def _judge(self, chain: Chain) -> Vouched:
        """Read a chain that TLS has verified up to a root that was trusted then. Raises
        CertificateError."""
        roots = self.beliefs.roots
        certificates = [load_der(one) for one in chain]
        if certificates and certificates[-1] not in roots:
            certificates = list(path_of(certificates[0], certificates[1:], roots))
        found = read_chain(certificates)
        if not self._wants_root and names_successor(certificates, roots):
            self._wants_root = True  # the other one has renewed already
            self._renew_soon()
        return found

    def _note_refused(self, chain: Chain, reason: str) -> None:
        """Record that an issuer of this overlay has signed a certificate that it may not sign: once
        in `NOTE_AGAIN` seconds for each issuer, since a lying one can sign any number."""
        issuer, now = chain[1] if len(chain) > 1 else b"", self._now()
        if now - self._noted.get(issuer, 0.0) < NOTE_AGAIN:
            return
        self._noted.renew(issuer, now)
        name = issuer_name(issuer)
        self._log.warning("certificate_refused", issuer=name, reason=reason)
        self._folder.note("certificate refused", issuer=name, reason=reason)

    def program_side(self) -> Security:
        """Return the TLS side for programs, which present no certificate."""
        assert self._held is not None
        return _JoinSide(self._held.joining)

    @property
    def introducers(self) -> tuple[str, ...]:
        """Return addresses to join at: those in the token, and the issuer's."""
        place = self._folder.issuer_place()
        return () if place is None else (*place.peers, *place.addresses)

    def signer(self) -> KeySigner:
        """Return the signer of this node's statements about clusters. Raises KeyFolderError."""
        return KeySigner(self._folder.key(), self.own.holder.generation, self)

    def directory_keys(self) -> DirectoryKeys:
        """Return the keys that the directory's thread uses. Raises KeyFolderError."""
        signer = KeySigner(self._folder.key(), self.own.holder.generation)
        return DirectoryKeys(signer, lambda: self.beliefs, self._now)

    # --- who there is, by what others show of them (`canopy.wire.keys.certificates.Vouching`) ---

    def chain(self) -> Chain:
        """Return this node's certificate, and those that vouch for it."""
        return self.beliefs.chain

    def vouches(self, node: NodeId, chain: Chain, votes: bool = False) -> bool:
        """Return whether the overlay has certified this node as one that may be in views (`votes`:
        that may serve in clusters), and the certificate is still valid. Each chain is verified
        once: it takes 0.3 ms."""
        if chain in self._vouched:
            found = self._vouched[chain]
        else:
            found = self._vouched[chain] = self.beliefs.look_at(chain)
        if found is None or found.node.principal.id != node:
            return False
        now = self._now()
        return (
            found.node.principal.role >= (Role.VOTER if votes else Role.MEMBER)
            and not self.beliefs.refusal(found, now)
            and not self._ids.refusal(found, now, self.beliefs.revoked)
        )

    # --- `overlay.lower_random.documents.DocumentStore`, for revocations ---

    def current(self) -> tuple[int, bytes]:
        """Return the version of the list of revocations, and its encoding."""
        return self.beliefs.list_version, self.beliefs.revocations_data

    def limits(self, host: str) -> AcceptLimits:
        """Return the limits for connections from `host`. This machine has limits of its own, since
        it may have many nodes."""
        return self._local_limits if is_loopback(host) else self._limits

    async def turn(self, host: str) -> None:
        """Wait until a handshake with `host` may begin. All handshakes with other machines (nodes,
        programs, and requesters of a certificate) share one rate."""
        if not is_loopback(host):
            await self._turns.wait(host)

    # --- revocations that other nodes bring ---

    def accept(self, data: bytes) -> int:
        """Keep a list that is newer than the present one. Returns the version in force."""
        try:
            found = check_list(data, self.beliefs, self._now())
        except CertificateError as error:
            self._log.seldom("revocations_refused", reason=error)
            return self.beliefs.list_version
        if found.version > self.beliefs.list_version:
            self._keep("revoked", data)
            self.note("revocations", version=found.version, nodes=len(found.ids))
            if found.version > self.beliefs.list_version:  # the folder cannot be used just now
                assert self._held is not None
                holds = replace(
                    self.beliefs,
                    revocations=found,
                    revocations_data=data,
                    revoked=self.beliefs.revoked | frozenset(found.ids),
                )
                self._believe(replace(self._held, beliefs=holds))
        return self.beliefs.list_version  # connections are looked at within `constants.RECHECK`

    def accept_policy(self, data: bytes) -> int:
        """Keep a policy that is newer than the present one. Returns the version in force."""
        held = self.beliefs
        try:
            found = read_policy(data, self.overlay, [held.roots[0]], held.revoked)
        except PolicyError as error:
            self._log.seldom("policy_refused", reason=error)
            return held.policy_version
        if found.version > held.policy_version:
            self._keep("policy", data)
        return self.beliefs.policy_version

    def _keep(self, name: str, data: bytes) -> None:
        """Store a signed document, and load the folder again."""
        try:
            with self._folder.locked():
                self._folder.write_document(name, data)
            self.load()
        except (KeyFolderError, OSError) as error:
            self._log.warning("keys_unchanged", reason=error)

    # --- tasks ---

    async def run(self) -> None:
        """Check the folder, and renew the certificate when due, until cancelled."""
        while True:
            await trio.sleep(LOOK)
            if self._times() != self._seen:
                self.reload()
            if self._has_changed:
                self._has_changed = False
                self.changed()
            now = self._now()
            has_to = self.beliefs.is_behind or self._renewals.is_time(now, self.own.begins)
            if self._renewals.may_ask(now) and (has_to or self._wants_root):
                self._renewals.asks(now, has_to)
                await self.renew(self.own.holder.generation)

    async def renew(self, generation: int) -> bool:
        """Get the next certificate. Returns whether that succeeded; otherwise it is tried again
        later."""
        try:
            if self._issuing is not None:
                await self._renew_issuer()
                sign_self(self._folder, self.overlay, generation, self._now())
            else:
                await renew(self._folder, generation, self._now())
        except (JoinError, KeyFolderError) as error:
            left = (self.own.ends - self._now()) / DAY
            self._log.warning("renewal_failed", reason=error, days_left=round(left, 1))
            return False
        self._wants_root = False
        self._renewals.granted()
        self.reload()
        left = 0.0 if self._issuing is None else self._issuer_ends() - self._now()
        if self._issuing is not None and left < ISSUER_SOON:
            self._log.warning("issuer_ends", days_left=round(left / DAY, 1))
        self._folder.note("renewed", node=self.own.principal.id, until=int(self.own.ends))
        self._log.info("renewed", node=self.own.principal.id, until=int(self.own.ends))
        return True

    async def _renew_issuer(self) -> None:
        """Get a restricted issuer's certificate below the present root, if there is another
        root."""
        if not self.beliefs.is_behind or issuer_of(self._folder).restriction is None:
            return
        try:
            await renew_issuer(self._folder, self._now())
        except JoinError as error:
            self._log.warning("issuer_unchanged", reason=error)

    def _issuer_ends(self) -> float:
        return self._folder.chain("issuer")[0].not_valid_after_utc.timestamp()

    def reload(self) -> str:
        """Read the folder again. An error is logged and returned, and the former trust stays in
        force; "": everything was loaded."""
        try:
            self.load()
        except KeyFolderError as error:
            self._seen = self._times()
            self._log.warning("keys_unchanged", reason=error)
            return f"the keys are not believed, and the former ones hold on: {error}"
        self._has_changed = False
        self.changed()
        return "; ".join(self.beliefs.faults)

    # --- those who ask for a certificate ---

    def is_join(self, first: bytes) -> bool:
        """Return whether a connection that begins with these bytes requests a certificate."""
        return first[:1] == PREAMBLE[:1]

    async def serve_join(self, stream: trio.SocketStream, first: bytes) -> None:
        """Serve a request for a certificate, for at most `JOIN_PATIENCE` seconds."""
        with trio.move_on_after(JOIN_PATIENCE):
            try:
                await self._serve_join(stream, first)
            except (
                TlsError,
                OSError,
                ValueError,
                msgspec.MsgspecError,
                KeyFolderError,
                trio.BrokenResourceError,
                trio.ClosedResourceError,
            ) as error:
                self._log.seldom("join_refused", reason=error)

    async def _serve_join(self, stream: trio.SocketStream, first: bytes) -> None:
        while len(first) < len(PREAMBLE):
            more = await stream.receive_some(len(PREAMBLE) - len(first))
            if not more:
                return
            first += more
        if not first.startswith(PREAMBLE) or self._issuing is None:
            raise ValueError("this node signs no certificates")
        pipe = TlsPipe(self.program_side(), True)
        await pipe.handshake(stream, first[len(PREAMBLE) :])
        nonce = secrets.token_bytes(32)
        roots = (self._folder.path / "roots.pem").read_bytes()
        await stream.send_all(pipe.encrypt([ANSWERS.encode(Greeting(nonce, roots))]))
        reader = FrameReader(REQUESTS)
        found = reader.feed(pipe.decrypt(b""))
        while not found:
            if reader.error is not None:
                raise ValueError(reader.error)
            data = await stream.receive_some()
            found = reader.feed(pipe.decrypt(data))
            if not data or pipe.is_over:
                return  # it only wanted to know the root
        answer = self._issuing.answer(nonce, found[0])
        self._note_answer(found[0].key.hex(), answer)
        await stream.send_all(pipe.encrypt([ANSWERS.encode(answer)]))

    def _note_answer(self, key: str, answer: Issued | Denied) -> None:
        """Record the answer to a request for a certificate, sparingly, since anybody can ask."""
        said: dict[str, Any] = {"answer": type(answer).__name__}
        if isinstance(answer, Issued):
            said |= {"key": key}
        elif isinstance(answer, Denied):
            key, said = "", said | {"reason": answer.reason}
        if times := self._sparing.due(f"{said['answer']} {key}"):
            said |= {"times": times} if times > 1 else {}
            self._folder.note("certificate asked for", **said)
            self._log.info("join_answered", **said)


@dataclass(frozen=True, slots=True)
class _Held:
    """The present trust, and its TLS contexts."""

    beliefs: Beliefs
    contexts: tuple[ssl.SSLContext, ...]
    """The contexts of the dialling side and of the accepting side."""
    joining: ssl.SSLContext
    """The context for peers without a certificate."""


class PolicyDocument:
    """The policy in force: an `overlay.lower_random.policies.PolicyStore`."""

    def __init__(self, security: NodeSecurity) -> None:
        self._security = security

    @property
    def policy(self) -> Policy | None:
        """The policy in force; None: none is trusted, and tenants have no rights."""
        return self._security.beliefs.policy

    def current(self) -> tuple[int, bytes]:
        """Return the version of the policy, and its encoding."""
        return self._security.beliefs.policy_version, self._security.beliefs.policy_data

    def accept(self, data: bytes) -> int:
        """Keep a policy that is newer than the present one. Returns the version in force."""
        return self._security.accept_policy(data)


class _JoinSide:
    """TLS in which the other side presents no certificate."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context

    def context(self, is_server: bool) -> ssl.SSLContext:
        """The TLS context of one side of a connection, for `TlsPipe`."""
        return self._context

    def identify(self, chain: Chain) -> Principal:
        """Return an identity without rights."""
        return Principal("", Role.LEAF, "")


def prepare_keys(config: NodeConfig, log: Log) -> NodeSecurity | None:
    """Return the keys of a node that is about to start; None if it has none. Joins or renews first
    if needed. Raises StartError. (Token and certificate have the overlay's name, so it need not be
    configured.)"""
    folder = KeyFolder(config.folder)
    try:
        folder.check()
        if config.join and folder.certificate_or_none() is None:
            token = read_token(token_text(config.join))
            trio.run(join, folder, token, time.time())
            log.info("joined_overlay", node=node_of(folder), overlay=token.overlay)
        if not folder.exists:
            if config.tree.sign:
                raise StartError("tree.sign: a node signs with its key, and this one has none")
            return None
        security = NodeSecurity(folder, overlay_of(config, folder), log)
        if security.own.ends < time.time() and not trio.run(
            security.renew, security.own.holder.generation
        ):
            raise StartError("the node's certificate has expired, and its issuer does not answer")
    except (KeyFolderError, TokenError, JoinError) as error:
        raise StartError(str(error)) from None
    return security


def token_text(join: str) -> str:
    """Return the configured token, or the one in the file ``@PATH``. Raises StartError."""
    try:
        return secret_in(join)
    except PrivateFileError as error:
        raise StartError(f"the token: {error}") from None


def overlay_of(config: NodeConfig, folder: KeyFolder) -> str:
    """Return the overlay's name: the certificate's, unless another one is configured."""
    found = folder.certificate()
    if found is None or config.overlay != NodeConfig().overlay:
        return config.overlay
    return found.holder.overlay


def node_of(folder: KeyFolder) -> NodeId:
    """Return the id of the node whose certificate is in `folder`; "" if there is none."""
    found = folder.certificate() if folder.exists else None
    return "" if found is None else found.principal.id
