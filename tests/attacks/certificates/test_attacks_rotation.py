"""A stolen issuer's key, and the root that is replaced because of it: what its thief still gets."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from canopy.cli.doctor.machine import look_at_keys
from canopy.wire.config import NodeConfig
from canopy.wire.keys import rotation
from canopy.wire.keys.authority import Issuer, issuer_of, make_issuer, revoke, sign_self
from canopy.wire.keys.certificates import (
    Holder,
    KeyFolderError,
    authority_certificate,
    node_certificate,
    pem,
    private_pem,
    raw_key,
)
from canopy.wire.keys.chains import authority_id
from canopy.wire.keys.enrolment import Denied, Issued, RenewCertificate, claim
from canopy.wire.keys.issuer import Issuing
from canopy.wire.keys.join import keep
from canopy.wire.keys.key_folder import KeyFolder
from canopy.wire.keys.policies import sign_policy
from canopy.wire.keys.restrictions import Restriction
from canopy.wire.keys.revocations import Revocations, sign
from canopy.wire.keys.rotation import finish, rotate
from canopy.wire.process import security as security_module
from canopy.wire.process.security import NodeSecurity
from canopy.wire.transport.tls import TlsError, TlsPipe
from overlay.rights import Role
from overlay.tenants.policy import Confinement, Policy, TenantPolicy
from tests.attacks.certificates.test_attacks_issuers import der, refusal
from tests.attacks.test_attacks_transport import Bare, bare
from tests.support.real.keys import Keys
from tests.support.real.wire_rig import Rig, rig

NONCE = bytes(32)
POLICY = Policy(4, {"acme": TenantPolicy("x = 1", "x = 1")})
LEAVES = Restriction(("leaf",), ("acme",))
ADMIN = Holder("canopy", Role.ADMIN, "", 1)


class Stolen:
    """An overlay with a policy and a restricted issuer, and who has the issuer's key of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys = Keys(path / "keys")
        self.main = self.keys.issuer
        self.thief = issuer_of(self.main)
        self.key = Ed25519PrivateKey.generate()
        self.acme = KeyFolder(path / "acme")
        make_issuer(self.main, self.acme, LEAVES, 90.0, time.time())
        self.main.write_document("policy", self.policy(self.thief, POLICY))

    def policy(self, signer: Issuer, policy: Policy) -> bytes:
        return sign_policy(policy, "canopy", signer.key, signer.chain, time.time())

    def node(self, name: str, role: Role = Role.VOTER) -> KeyFolder:
        """A node that knows what the first one does."""
        folder = self.keys.folder(name, role)
        for document in ("policy", "revoked"):
            if data := self.main.document(document):
                (folder.path / document).write_bytes(data)
        return folder

    def forged(self, days: float = 7.0) -> tuple[x509.Certificate, ...]:
        """An admin's certificate for the thief, of which no ledger knows."""
        issuer, public = self.thief, self.key.public_key()
        made = node_certificate(ADMIN, public, issuer.key, issuer.certificate, time.time(), days)
        return made, *issuer.chain

    def context(self, days: float = 7.0) -> ssl.SSLContext:
        """The thief's side of a connection."""
        file = self.path / "thief.pem"
        file.write_bytes(private_pem(self.key) + pem(*self.forged(days)))
        context = bare()
        context.load_cert_chain(file)
        return context

    async def enters(self, node: Rig) -> None:
        """The thief connects, and is taken for an admin."""
        stream = await node.dial()
        await TlsPipe(Bare(self.context()), False).handshake(stream)
        await node.has("accepted")

    def renews(self, folder: KeyFolder) -> None:
        """As a node does that hears of another root."""
        now, key = time.time(), folder.key()
        public, chain = folder.public_key(), pem(folder.chain()[0])
        word = RenewCertificate(chain, 1, public, key.sign(claim(NONCE, public, 1)))
        answer = Issuing(self.main, "canopy").answer(NONCE, word)
        assert isinstance(answer, Issued), answer
        keep(folder, answer, "canopy", now)

    def hand_over(self, to: NodeSecurity) -> None:
        """The documents reach a node over the overlay."""
        to.accept(self.main.document("revoked"))
        to.accept_policy(self.main.document("policy"))

    def issuer_follows(self) -> None:
        """The restricted issuer gets its next certificate."""
        key = self.acme.key("issuer")
        public = raw_key(key.public_key())
        chain, signature = pem(self.acme.chain("issuer")[0]), key.sign(claim(NONCE, public, 0))
        answer = Issuing(self.main, "canopy").answer(
            NONCE, RenewCertificate(chain, 0, public, signature)
        )
        assert isinstance(answer, Issued), answer
        keep(self.acme, answer, "canopy", time.time(), name="issuer")


@pytest.fixture
def stolen(tmp_path: Path) -> Stolen:
    return Stolen(tmp_path)


def leaves(security: NodeSecurity) -> str:
    """What acme may publish."""
    return Confinement(security.policy.policy).of("acme").publish


# --- lifetimes ---


@pytest.mark.trio
async def test_a_certificate_for_ten_years_is_refused_whoever_signed_it(stolen: Stolen) -> None:
    async with rig(security=stolen.keys.security()) as node:
        found = await refusal(node, stolen.context(days=3_650.0))
    assert "a certificate for 3,650 days, and 7 are allowed" in found
    chain, public = stolen.forged(days=3_650.0), raw_key(stolen.key.public_key())
    word = RenewCertificate(pem(chain[0]), 1, public, stolen.key.sign(claim(NONCE, public, 1)))
    assert "3,650 days" in str(Issuing(stolen.main, "canopy").answer(NONCE, word))
    own = sign_policy(Policy(9, {}), "canopy", stolen.key, chain, time.time())
    assert stolen.keys.security().accept_policy(own) == 4
    root, key = stolen.main.chain("roots")[0], Ed25519PrivateKey.generate()
    long = authority_certificate(
        "long", key.public_key(), stolen.main.key("root"), root, time.time(), restriction=LEAVES
    )
    leaf = Holder("canopy", Role.LEAF, "acme", 1)
    below = node_certificate(leaf, stolen.key.public_key(), key, long, time.time())
    with pytest.raises(TlsError, match="3,650 days, and 366 are allowed"):
        stolen.keys.security().identify(der(below, long, root))
    with pytest.raises(KeyFolderError, match="366 days at most"):
        make_issuer(stolen.main, KeyFolder(stolen.path / "x"), LEAVES, 400.0, time.time())


# --- what goes over ---


def test_all_that_hangs_on_the_root_goes_over_with_it(stolen: Stolen) -> None:
    """Nodes that run, that start again, that were off; restricted issuers; later policies."""
    folders = [stolen.node(name) for name in ("b", "c", "off")]
    running = stolen.keys.security(folders[0])
    leaf = KeyFolder(stolen.path / "leaf")
    public = leaf.node_key().public_key()
    holder = Holder("canopy", Role.LEAF, "acme", 1)
    acme = issuer_of(stolen.acme)
    leaf.write_chain("node", *acme.sign_node(holder, public, time.time()))
    leaf.write_chain("roots", *stolen.main.chain("roots"))
    rotate(stolen.main, time.time())
    stolen.hand_over(running)  # a list and a policy, by which it hears of the root
    assert running.beliefs.is_behind
    assert (running.policy.current()[0], leaves(running)) == (5, "x = 1")
    with pytest.raises(KeyFolderError, match=r"1 restricted issuer: .*; 3 nodes: "):
        finish(stolen.main, time.time())
    for folder in folders[:2]:
        stolen.renews(folder)
    running.load()
    assert not running.beliefs.is_behind
    stolen.issuer_follows()
    assert issuer_of(stolen.acme).id == acme.id  # the same key: only its certificate is new
    left = finish(stolen.main, time.time(), anyway=True)
    assert [one.node for one in left.nodes] == [id_of(folders[2])]
    assert not left.issuers
    stolen.hand_over(running)
    again = stolen.keys.security(folders[1])  # it has not heard of the end, and starts again
    stolen.hand_over(again)
    sign_self(stolen.acme, "canopy", 1, time.time())
    restricted = stolen.keys.security(stolen.acme)
    stolen.hand_over(restricted)
    for security in (running, again, stolen.keys.security(), restricted):
        assert [authority_id(root) for root in security.beliefs.roots] == [
            authority_id(stolen.main.chain("roots")[0])
        ]
        assert not security.beliefs.faults
        assert not security.beliefs.is_behind
    assert leaves(running) == leaves(again) == "x = 1"
    made = issuer_of(stolen.acme).sign_node(holder, public, time.time())
    assert running.identify(der(*made[:2], running.beliefs.roots[0])).tenant == "acme"
    late = stolen.keys.security(folders[2])  # off meanwhile: it starts, renews and is believed
    stolen.hand_over(late)
    assert late.beliefs.is_behind
    stolen.renews(folders[2])
    late.load()
    stolen.hand_over(late)
    assert (late.beliefs.is_behind, leaves(late)) == (False, "x = 1")
    assert not [one for one in findings(folders[1]) if one[0] in ("error", "warning")]


def id_of(folder: KeyFolder) -> str:
    own = folder.certificate()
    assert own is not None
    return own.principal.id


def findings(folder: KeyFolder) -> list[tuple[str, str]]:
    config = NodeConfig(data=str(folder.path.parent))
    return [(one.level, one.what) for one in look_at_keys(config)]


def test_a_rotation_is_not_finished_while_something_hangs_on_the_former_root(
    stolen: Stolen,
) -> None:
    """Somebody who has not renewed signs a policy meanwhile; the list is put back."""
    former = stolen.main.document("revoked")
    assert former == b""
    revoke(stolen.main, ("0" * 32,))
    former = stolen.main.document("revoked")
    rotate(stolen.main, time.time())
    stolen.issuer_follows()
    stolen.main.write_document("policy", stolen.policy(stolen.thief, Policy(9, POLICY.tenants)))
    with pytest.raises(KeyFolderError, match="the policy hung on the former root; signed again"):
        finish(stolen.main, time.time(), anyway=True)
    policy, _ = stolen.main.policy("canopy")
    assert policy == Policy(10, POLICY.tenants)
    stolen.main.write_document("revoked", former)
    with pytest.raises(KeyFolderError, match="the list of revocations hung on"):
        finish(stolen.main, time.time(), anyway=True)
    finish(stolen.main, time.time())
    assert ("0" * 32) in stolen.main.revocations("canopy")[0].ids


# --- the thief ---


@pytest.mark.trio
async def test_connections_below_a_root_that_is_dropped_are_closed(stolen: Stolen) -> None:
    """Also one whose id nobody knows; and no other is opened, by a node that heard of the end
    alone, and has not renewed, either."""
    renewed, late = stolen.node("b"), stolen.node("c")
    first, second = stolen.keys.security(renewed), stolen.keys.security(late)
    async with rig(security=first) as node, rig(security=second) as other:
        for each in (node, other):
            await stolen.enters(each)
        rotate(stolen.main, time.time())
        stolen.renews(renewed)
        first.load()
        for each in (node, other):
            each.driver.recheck()
        assert not any("closed" in found for found in node.node.inputs)  # both are believed
        stolen.issuer_follows()
        finish(stolen.main, time.time(), anyway=True)
        for security, each in ((first, node), (second, other)):
            stolen.hand_over(security)
            each.driver.recheck()
            reason = str((await each.has("closed"))[2])
            assert "nobody whom this overlay believes" in reason or "was revoked" in reason
            each.node.inputs.clear()
            assert "refused" in (found := await refusal(each, stolen.context())) or "was" in found
    assert len(renewed.chain("roots")) == 1


@pytest.mark.trio
async def test_connections_are_looked_at_again_when_roots_change(stolen: Stolen) -> None:
    """Whatever has changed them, and though no list names anybody."""
    folder = stolen.node("b")
    security = stolen.keys.security(folder)
    async with rig(security=security) as node:
        await stolen.enters(node)
        rotate(stolen.main, time.time())
        stolen.renews(folder)
        folder.write_chain("roots", folder.chain("roots")[0])
        security.load()
        node.driver.recheck()
        reason = str((await node.has("closed"))[2])
        assert "nobody whom this overlay believes" in reason


def test_a_former_issuer_is_washed_clean_by_nobody(stolen: Stolen) -> None:
    """What it signed beside its ledger is not renewed by the present one."""
    rotate(stolen.main, time.time())
    chain, public = stolen.forged(), raw_key(stolen.key.public_key())
    word = RenewCertificate(pem(chain[0]), 1, public, stolen.key.sign(claim(NONCE, public, 1)))
    answer = Issuing(stolen.main, "canopy").answer(NONCE, word)
    assert answer == Denied("a certificate of the former issuer that was not signed here")
    member = stolen.keys.folder("m", Role.MEMBER)  # a node of the overlay, and its own thief
    issuer, public = stolen.thief, member.public_key()
    upgraded = node_certificate(
        ADMIN, member.key().public_key(), issuer.key, issuer.certificate, time.time()
    )
    word = RenewCertificate(pem(upgraded), 1, public, member.key().sign(claim(NONCE, public, 1)))
    assert Issuing(stolen.main, "canopy").answer(NONCE, word) == answer


def test_who_has_the_former_issuer_cannot_drop_the_later_root(stolen: Stolen) -> None:
    folder, early = stolen.node("b"), stolen.keys.security(stolen.node("early"))
    rotate(stolen.main, time.time())
    stolen.renews(folder)
    security = stolen.keys.security(folder)
    version = security.beliefs.list_version
    new, former = stolen.main.chain("roots")
    for root in (new, former):
        listed = Revocations("canopy", 99, (authority_id(root),))
        forged = sign(listed, stolen.thief.key, (*stolen.thief.chain, *stolen.main.chain("issuer")))
        assert security.accept(forged) == version
        if root == former:
            assert early.accept(forged) == 0  # who knows of no other one
    assert len(security.beliefs.roots) == 2
    with pytest.raises(KeyFolderError, match="canopy keys rotate replaces it"):
        revoke(stolen.main, (authority_id(new),))


@pytest.mark.trio
async def test_who_knows_the_new_root_hears_nothing_more_of_the_former_issuer(
    stolen: Stolen,
) -> None:
    """A list and a policy under the highest versions, which reach some before these have renewed:
    they keep nobody from the new root."""
    folder = stolen.node("b")
    caught, renewed = stolen.keys.security(folder), stolen.keys.security(stolen.node("c"))
    lied = sign(Revocations("canopy", 999, ("1" * 32,)), stolen.thief.key, stolen.thief.chain)
    opened = stolen.policy(stolen.thief, Policy(999, {"acme": TenantPolicy("x = 2", "x = 2")}))
    rotate(stolen.main, time.time())
    stolen.renews(renewed._folder)
    renewed.load()
    for security, versions in ((caught, (999, 999)), (renewed, (1, 4))):
        assert (security.accept(lied), security.accept_policy(opened)) == versions
    stolen.hand_over(renewed)
    stolen.hand_over(caught)
    assert not caught.beliefs.is_behind  # by documents it hears of nothing
    chain = der(*renewed._folder.chain(), stolen.main.chain("roots")[1])
    assert caught.identify(chain).role is Role.VOTER
    assert caught._wants_root  # by the first connection with who has renewed it does
    stolen.renews(folder)
    caught.load()
    assert caught.beliefs.list_version == 1
    stolen.issuer_follows()
    finish(stolen.main, time.time())
    stolen.hand_over(caught)
    assert len(caught.beliefs.roots) == 1
    stolen.hand_over(caught)
    assert (caught.beliefs.list_version, leaves(caught)) == (2, "x = 1")


# --- as one step ---


def test_a_policy_that_is_not_believed_permits_nothing_and_the_node_goes_on(
    stolen: Stolen,
) -> None:
    """The root below it is dropped before another policy is there: not the former keys, no end of
    the node, and doctor names it."""
    folder = stolen.node("b")
    security = stolen.keys.security(folder)
    changes = []
    security.changed = lambda: changes.append(security.policy.current()[0])
    assert leaves(security) == "x = 1"
    rotate(stolen.main, time.time())
    stolen.renews(folder)
    stolen.issuer_follows()
    finish(stolen.main, time.time(), anyway=True)
    security.load()
    security.accept(stolen.main.document("revoked"))
    assert (security.policy.current(), leaves(security)) == ((0, b""), "")
    (fault,) = security.beliefs.faults
    assert "policy is not believed, so tenants may nothing" in fault
    assert ("error", fault) in findings(folder)
    assert stolen.keys.security(folder).policy.policy is None  # it starts
    assert fault in security.reload()
    assert changes == [0]
    assert security.accept_policy(stolen.main.document("policy")) == 5
    assert leaves(security) == "x = 1"


class Ended(BaseException):
    """The process is killed."""


@pytest.mark.parametrize("step", ["rotate", "renew"])
def test_a_process_that_ends_in_between_leaves_all_of_it_or_nothing(
    stolen: Stolen, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever file was the last that it moved to its place."""
    folder = stolen.node("b")
    if step == "renew":
        rotate(stolen.main, time.time())
    changed = stolen.main if step == "rotate" else folder
    kept, outcomes = stolen.path / "kept", []
    shutil.copytree(changed.path, kept)
    for moves in itertools.chain((0, 1), itertools.count(3, 4)):
        shutil.rmtree(changed.path)
        shutil.copytree(kept, changed.path)
        left = moves

        def moved(real: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
            def move(self: Path, target: Path) -> Path:
                nonlocal left
                left -= 1
                if left < 0:
                    raise Ended
                return real(self, target)

            return move

        with monkeypatch.context() as patched, contextlib.suppress(Ended):
            patched.setattr(Path, "replace", moved(Path.replace))
            patched.setattr(Path, "rename", moved(Path.rename))
            rotate(stolen.main, time.time()) if step == "rotate" else stolen.renews(folder)
        after = stolen.keys.security(changed).beliefs
        is_done = len(after.roots) == 2
        assert not after.faults
        if step == "rotate":
            signed = issuer_of(changed)
            assert signed.key.public_key() == signed.certificate.public_key()
            assert (after.policy_version, after.list_version) == ((5, 1) if is_done else (4, 0))
        outcomes.append(is_done)
        if left >= 0:
            break
    assert (outcomes[0], set(outcomes[1:])) == (False, {True})
    assert len(outcomes) > 2


def test_keys_that_do_not_belong_together_change_nothing_and_are_named(stolen: Stolen) -> None:
    """Half of another overlay's keys, copied over a node that runs."""
    folder = stolen.node("b")
    security = stolen.keys.security(folder)
    held = security.beliefs
    other = Keys(stolen.path / "other")
    folder.write_chain("roots", *other.issuer.chain("roots"))
    assert "does not belong to roots.pem" in security.reload()
    assert security.beliefs is held
    assert any("does not belong" in text for level, text in findings(folder) if level == "error")


@pytest.mark.trio
async def test_nodes_renew_when_they_hear_of_another_root(
    stolen: Stolen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By themselves, over the issuer's port; the restricted issuer too."""
    monkeypatch.setattr(rotation, "RENEW_SPREAD", 0.0)
    monkeypatch.setattr(security_module, "LOOK", 0.01)
    folder = stolen.node("b")
    async with rig(security=stolen.keys.security()) as node:
        folder.write_issuer_place((node.address,))
        stolen.acme.write_issuer_place((node.address,))
        nodes = [stolen.keys.security(each) for each in (folder, stolen.acme)]
        rotate(stolen.main, time.time())
        node.driver._security.load()  # type: ignore[union-attr]
        async with trio.open_nursery() as nursery:
            for each in nodes:
                nursery.start_soon(each.run)
                stolen.hand_over(each)
            with trio.fail_after(20.0):
                while any(len(each.beliefs.roots) < 2 for each in nodes):
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    assert not any(each.beliefs.is_behind for each in nodes)
    finish(stolen.main, time.time())
