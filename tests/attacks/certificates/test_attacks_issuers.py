"""Issuers that sign more than they may: certificates made by hand, shown to a node with keys."""

from __future__ import annotations

import contextlib
import datetime
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from canopy.wire.keys.authority import (
    Issuer,
    invite,
    issuer_of,
    make_issuer,
    revoke,
    signer_of_all,
)
from canopy.wire.keys.certificates import (
    DAY,
    CertificateError,
    Holder,
    KeyFolderError,
    authority_certificate,
    fingerprint,
    node_certificate,
    node_id,
    pem,
    private_pem,
    raw_key,
)
from canopy.wire.keys.chains import authority_id
from canopy.wire.keys.enrolment import Denied, Enrol, Issued, RenewCertificate, claim
from canopy.wire.keys.issuer import Issuing
from canopy.wire.keys.join import JoinError, _Side, keep
from canopy.wire.keys.key_folder import KeyFolder
from canopy.wire.keys.ledger import Ledger
from canopy.wire.keys.policies import read_policy, sign_policy
from canopy.wire.keys.restrictions import OID, Restriction
from canopy.wire.keys.revocations import Revocations, sign
from canopy.wire.keys.revocations import read as read_revocations
from canopy.wire.keys.rotation import rotate
from canopy.wire.transport.tls import TlsError, TlsPipe
from overlay.rights import Role
from overlay.tenants.policy import Policy, PolicyError, TenantPolicy
from tests.attacks.test_attacks_transport import Bare, bare, believed
from tests.support.real.keys import Keys
from tests.support.real.wire_rig import PATIENCE, Rig, rig

LEAVES = Restriction(("leaf",), ("acme",))
NONCE = bytes(32)
POLICY = Policy(1, {"acme": TenantPolicy("x = 1", "x = 1")})

Chain = tuple[x509.Certificate, ...]


class Overlay:
    """The keys of an overlay, with an issuer that may sign leaves of acme."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys = Keys(path / "keys")
        self.folder = self.restricted("acme", LEAVES)
        self.issuer = issuer_of(self.folder)
        self.key = Ed25519PrivateKey.generate()

    def restricted(self, name: str, restriction: Restriction, days: float = 90.0) -> KeyFolder:
        folder = KeyFolder(self.path / name)
        make_issuer(self.keys.issuer, folder, restriction, days, time.time())
        return folder

    @property
    def root(self) -> x509.Certificate:
        return self.keys.issuer.chain("roots")[0]

    def node(
        self,
        holder: Holder,
        issuer: Issuer | None = None,
        key: Ed25519PrivateKey | None = None,
        now: float = 0.0,
    ) -> Chain:
        """A node's certificate, whatever its issuer may sign."""
        signer = issuer or self.issuer
        public = (key or self.key).public_key()
        when = now or time.time()
        return node_certificate(holder, public, signer.key, signer.certificate, when), *signer.chain

    def context(self, chain: Chain, key: Ed25519PrivateKey | None = None) -> ssl.SSLContext:
        """A side that presents this chain."""
        file = self.path / "presented.pem"
        file.write_bytes(private_pem(key or self.key) + pem(*chain))
        context = bare()
        context.load_cert_chain(file)
        return context


def holder(role: Role = Role.LEAF, tenant: str = "acme", place: int = 0) -> Holder:
    return Holder("canopy", role, tenant, 1, place)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Overlay:
    """For tests that change nothing in the issuers' folders."""
    return Overlay(tmp_path_factory.mktemp("issuers"))


@pytest.fixture
def overlay(tmp_path: Path) -> Overlay:
    return Overlay(tmp_path)


async def refusal(node: Rig, context: ssl.SSLContext) -> str:
    """Why the node refuses a connection with these certificates, as its log has it."""
    before = len(node.log.getvalue())
    stream = await node.dial()
    pipe = TlsPipe(Bare(context), False)
    with contextlib.suppress(TlsError, trio.BrokenResourceError):
        await pipe.handshake(stream)  # what counts is what the node says of it
    with trio.fail_after(PATIENCE):
        while " closed " not in node.log.getvalue()[before:]:
            assert all(found[0] in ("start", "tick") for found in node.node.inputs), "believed"
            await trio.sleep(0.005)
    assert all(found[0] in ("start", "tick") for found in node.node.inputs)
    return node.log.getvalue()[before:]


def a_sub_issuer(overlay: Overlay, restriction: Restriction | None = None) -> Chain:
    """The restricted issuer makes an issuer below itself, that is not restricted."""
    key = Ed25519PrivateKey.generate()
    below = authority_certificate(
        "below", key.public_key(), overlay.issuer.key, overlay.issuer.certificate, time.time(),
        restriction=restriction,
    )  # fmt: skip
    return overlay.node(holder(), Issuer(key, (below, *overlay.issuer.chain)))


def stripped(overlay: Overlay) -> Chain:
    """The restricted issuer's certificate once more, without the extension, signed by itself."""
    own = overlay.issuer.certificate
    bare_one = rebuilt(own, overlay.issuer.key)
    return overlay.node(holder(Role.VOTER, ""), Issuer(overlay.issuer.key, (bare_one,)))


def rebuilt(
    certificate: x509.Certificate,
    signer: Ed25519PrivateKey,
    *more: tuple[x509.ExtensionType, bool],
) -> x509.Certificate:
    """A certificate with the same names, key and times, without its restriction, and with more
    extensions."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(certificate.subject)
        .issuer_name(certificate.issuer)
        .public_key(certificate.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(certificate.not_valid_before_utc)
        .not_valid_after(certificate.not_valid_after_utc)
    )
    kept = [(e.value, e.critical) for e in certificate.extensions if e.oid != OID]
    for value, critical in (*kept, *more):
        builder = builder.add_extension(value, critical)
    return builder.sign(signer, None)


def damaged(overlay: Overlay, text: bytes) -> Chain:
    """Below an issuer that the root has signed with another restriction."""
    value = x509.UnrecognizedExtension(OID, b"\x0c" + bytes([len(text)]) + text)
    made = rebuilt(overlay.issuer.certificate, overlay.keys.issuer.key("root"), (value, True))
    return overlay.node(holder(), Issuer(overlay.issuer.key, (made,)))


def critical(overlay: Overlay) -> Chain:
    """A node's certificate with a critical extension that nobody knows."""
    (own, *rest) = overlay.node(holder())
    unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), b"\x05\x00")
    return rebuilt(own, overlay.issuer.key, (unknown, True)), *rest


FORGED: dict[str, tuple[Callable[[Overlay], Chain], str]] = {
    "a voter": (lambda o: o.node(holder(Role.VOTER)), "may sign leaf, and this is a voter"),
    "an admin": (lambda o: o.node(holder(Role.ADMIN, "")), "may sign leaf, and this is a admin"),
    "another tenant": (
        lambda o: o.node(holder(tenant="beta")),
        "may sign nodes of acme, and this is of beta",
    ),
    "no tenant": (
        lambda o: o.node(holder(tenant="")),
        "may sign nodes of acme, and this is of no tenant",
    ),
    "another overlay": (
        lambda o: o.node(Holder("other", Role.LEAF, "acme", 1)),
        "of the overlay 'other'",
    ),
    "an issuer's issuer": (a_sub_issuer, "path length constraint exceeded"),
    "a restricted one": (lambda o: a_sub_issuer(o, LEAVES), "path length constraint exceeded"),
    "stripped": (stripped, "certificate is refused"),
    "a restriction of a later release": (
        lambda o: damaged(o, b'{"roles":["leaf"],"tenants":null,"hours":"9-17"}'),
        "restriction is not understood",
    ),
    "unknown roles": (lambda o: damaged(o, b'{"roles":["leaf","king"]}'), "roles that are not"),
    "no restriction at all in it": (lambda o: damaged(o, b""), "restriction is no"),
    "a critical extension": (critical, "critical extension is not known here: 1.3.6.1.4.1.99999.1"),
}


@pytest.mark.trio
@pytest.mark.parametrize("name", FORGED)
async def test_what_an_issuer_signs_beyond_its_right_is_refused(shared: Overlay, name: str) -> None:
    make, reason = FORGED[name]
    async with rig(security=shared.keys.security()) as node:
        assert reason in await refusal(node, shared.context(make(shared)))


@pytest.mark.trio
async def test_what_it_may_sign_is_believed(shared: Overlay) -> None:
    folder = KeyFolder(shared.path / "leaf")
    chain = shared.node(holder(), key=folder.node_key())
    folder.write_chain("roots", shared.root)
    folder.write_chain("node", *chain)
    async with rig(security=shared.keys.security()) as node:
        found = await believed(node, folder, shared.keys)
    assert (found.role, found.tenant) == (Role.LEAF, "acme")


@pytest.mark.trio
async def test_an_issuer_holds_for_its_time_and_so_does_what_it_signed(shared: Overlay) -> None:
    """Of a chain the first certificate to end counts, also while a connection is open."""
    short = issuer_of(shared.restricted("short", LEAVES, days=2.0))
    ahead = 0.0
    security = shared.keys.security()
    security._now = lambda: time.time() + ahead
    own = shared.node(holder(), short)
    assert own[0].not_valid_after_utc == short.certificate.not_valid_after_utc
    longer = x509_until(shared, short, days=7.0)  # an issuer that lies
    chain = der(*longer, shared.root)
    assert security.identify(chain).role is Role.LEAF
    ahead = 3 * DAY
    with pytest.raises(TlsError, match="its issuer's has expired"):
        security.identify(chain)
    with pytest.raises(CertificateError, match="has ended"):
        shared.node(holder(), short, now=time.time() + ahead)
    root = shared.keys.issuer.key("root")
    past = authority_certificate(
        "past", short.key.public_key(), root, shared.root, time.time() - 3 * DAY,
        restriction=LEAVES, days=1.0,
    )  # fmt: skip
    expired = Issuer(short.key, (past,))
    async with rig(security=shared.keys.security()) as node:
        context = shared.context(x509_until(shared, expired, days=7.0))
        assert "certificate has expired" in await refusal(node, context)


def der(*chain: x509.Certificate) -> tuple[bytes, ...]:
    return tuple(one.public_bytes(Encoding.DER) for one in chain)


def x509_until(overlay: Overlay, issuer: Issuer, days: float) -> Chain:
    """A node's chain that ends in so many days, whenever its issuer's does."""
    begins = datetime.datetime.now(datetime.UTC)
    names = [x509.UniformResourceIdentifier(holder().uri)]
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(issuer.certificate.subject)
        .public_key(overlay.key.public_key())
        .serial_number(1)
        .not_valid_before(begins - datetime.timedelta(hours=1))
        .not_valid_after(begins + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(names), False)
        .sign(issuer.key, None)
    )
    return made, *issuer.chain


@pytest.mark.trio
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
async def test_certificates_of_openssl_are_looked_at_alike(shared: Overlay, tmp_path: Path) -> None:
    own = shared.folder.path
    (tmp_path / "key").write_bytes(private_pem(shared.key))

    def signed(uri: str) -> Chain:
        extensions = tmp_path / "extensions"
        extensions.write_text(f"subjectAltName=URI:{uri}\n")
        for arguments in (
            ("req", "-new", "-key", tmp_path / "key", "-subj", "/CN=x", "-out", tmp_path / "asked"),
            (
                "x509", "-req", "-in", tmp_path / "asked", "-CA", own / "issuer.pem", "-CAkey",
                own / "issuer.key", "-CAcreateserial", "-CAserial", tmp_path / "serial",
                "-days", "7", "-extfile", extensions, "-out", tmp_path / "made",
            ),
        ):  # fmt: skip
            subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
        made = x509.load_pem_x509_certificate((tmp_path / "made").read_bytes())
        return made, shared.issuer.certificate

    async with rig(security=shared.keys.security()) as node:
        voter = shared.context(signed("canopy://canopy/voter/acme/1"))
        assert "may sign leaf, and this is a voter" in await refusal(node, voter)
        stream = await node.dial()
        leaf = shared.context(signed("canopy://canopy/leaf/acme/1"))
        await TlsPipe(Bare(leaf), False).handshake(stream)
        assert (await node.has("accepted"))[2].role is Role.LEAF  # type: ignore[attr-defined]


# --- what such an issuer does itself ---


def asks_to_renew(overlay: Overlay, folder: KeyFolder, chain: Chain, generation: int = 1) -> object:
    """What the issuer in `folder` answers to the holder of `overlay.key` with this chain."""
    raw = raw_key(overlay.key.public_key())
    signature = overlay.key.sign(claim(NONCE, raw, generation))
    word = RenewCertificate(pem(chain[0]), generation, raw, signature)
    return Issuing(folder, "canopy").answer(NONCE, word)


def test_it_invites_and_renews_nobody_beyond_its_right(overlay: Overlay) -> None:
    with pytest.raises(KeyFolderError, match="may sign leaf, and this is a voter"):
        invite(overlay.folder, Role.VOTER, "acme", 1, 60.0, ("a:1",))
    with pytest.raises(KeyFolderError, match="of acme, and this is of no tenant"):
        invite(overlay.folder, Role.LEAF, "", 1, 60.0, ("a:1",))
    assert invite(overlay.folder, Role.LEAF, "acme", 1, 60.0, ("a:1",)).node
    voter = overlay.node(holder(Role.VOTER))
    answer = asks_to_renew(overlay, overlay.folder, voter)
    assert answer == Denied("its issuer may sign leaf, and this is a voter")
    assert isinstance(asks_to_renew(overlay, overlay.keys.issuer, voter), Denied)
    with pytest.raises(CertificateError, match="may sign leaf"):
        overlay.issuer.sign_node(holder(Role.MEMBER), overlay.key.public_key(), time.time())
    own = overlay.folder.certificate()
    assert own is not None
    assert (own.principal.role, own.principal.tenant) == (Role.LEAF, "acme")


def test_it_signs_no_documents_of_the_overlay(overlay: Overlay) -> None:
    """Nor does an issuer below it, whom it would have to vouch for."""
    roots, issuer = [overlay.root], overlay.issuer
    below = Ed25519PrivateKey.generate()
    made = authority_certificate(
        "below", below.public_key(), issuer.key, issuer.certificate, time.time()
    )
    admin = overlay.node(holder(Role.ADMIN, ""))
    for key, chain in (
        (issuer.key, issuer.chain),
        (below, (made, *issuer.chain)),
        (overlay.key, admin),
    ):
        listed = sign(Revocations("canopy", 9, ("0" * 32,)), key, chain)
        with pytest.raises(CertificateError):
            read_revocations(listed, "canopy", roots)
        policy = sign_policy(POLICY, "canopy", key, chain, time.time())
        with pytest.raises(PolicyError):
            read_policy(policy, "canopy", roots)
    with pytest.raises(KeyFolderError, match="does not revoke"):
        signer_of_all(overlay.folder)


def test_a_newcomer_keeps_nothing_that_the_issuer_may_not_sign(overlay: Overlay) -> None:
    folder = KeyFolder(overlay.path / "new")
    key = folder.node_key()
    voter = overlay.node(holder(Role.VOTER), key=key)
    with pytest.raises(JoinError, match="may sign leaf"):
        keep(folder, issued(voter, overlay.root), "canopy", time.time(), fingerprint(overlay.root))
    # No root that another one does not vouch for takes the place of those that are known.
    leaf = overlay.node(holder(), key=key)
    folder.write_chain("roots", overlay.root)
    other = Keys(overlay.path / "other").issuer.chain("roots")[0]
    with pytest.raises(JoinError, match="a root that none of those vouches for"):
        keep(folder, issued(leaf, overlay.root, other), "canopy", time.time())
    keep(folder, issued(leaf, overlay.root), "canopy", time.time())


def issued(chain: Chain, *roots: x509.Certificate) -> Issued:
    return Issued(pem(*chain), pem(*roots), b"")


# --- revocation and rotation ---


@pytest.mark.trio
async def test_with_an_issuer_all_that_it_has_signed_is_revoked(overlay: Overlay) -> None:
    """Live connections are closed, new ones refused, and nothing of it is renewed or signed."""
    folder, security = KeyFolder(overlay.path / "leaf"), overlay.keys.security()
    chain = overlay.node(holder(), key=folder.node_key())
    folder.write_chain("roots", overlay.root)
    folder.write_chain("node", *chain)
    async with rig(security=security) as node:
        await believed(node, folder, overlay.keys)
        revoke(overlay.keys.issuer, (overlay.issuer.id,))
        security.load()
        node.driver.recheck()
        reason = str((await node.has("closed"))[2])
        assert f"its issuer {overlay.issuer.id} was revoked" in reason
        node.node.inputs.clear()
        assert "was revoked" in await refusal(node, overlay.context(overlay.node(holder())))
    overlay.folder.write_document("revoked", overlay.keys.issuer.revocations("canopy")[1])
    answer = asks_to_renew(overlay, overlay.folder, overlay.node(holder()))
    assert answer == Denied("the certificate is of an issuer that was revoked")


def test_a_revoked_issuer_takes_nothing_back(overlay: Overlay) -> None:
    """One that was unrestricted: it signs no later list, and none of its admins a policy."""
    keys = overlay.keys
    node = keys.security(keys.folder("b"))
    main = issuer_of(keys.issuer)
    (keys.issuer.path / "root.key").rename(overlay.path / "drawer")
    with pytest.raises(KeyFolderError, match="an issuer that is revoked, which does not revoke"):
        revoke(keys.issuer, (main.id,))
    (overlay.path / "drawer").rename(keys.issuer.path / "root.key")
    revoke(keys.issuer, (main.id,))  # signed by the root
    assert node.accept(keys.issuer.revocations("canopy")[1]) == 1
    rotate(keys.issuer, time.time())  # which the former root vouches for
    revoke(keys.issuer, (issuer_of(keys.issuer).id,))
    assert node.accept(keys.issuer.revocations("canopy")[1]) == 3
    later = sign(Revocations("canopy", 9, ()), main.key, main.chain)
    assert node.accept(later) == 3
    assert node.revocations.ids == (main.id, issuer_of(keys.issuer).id)
    other = keys.folder("c")
    other.write_document("revoked", keys.issuer.revocations("canopy")[1])
    store = keys.security(other).policy
    admin = keys.folder("admin", Role.ADMIN)
    for key, chain in ((main.key, main.chain), (admin.key(), tuple(admin.chain()))):
        assert store.accept(sign_policy(POLICY, "canopy", key, chain, time.time())) == 0


def test_a_restricted_issuer_is_replaced_and_its_nodes_renew(overlay: Overlay) -> None:
    """Those of the former one too, until that is revoked: then what a thief signs with its key is
    not washed clean by its successor."""
    former, chain = overlay.issuer, overlay.node(holder())
    raw = raw_key(overlay.key.public_key())
    Ledger(overlay.folder.path).enter(holder(), raw, time.time(), (), LEAVES)
    overlay.restricted("acme", LEAVES)
    present = issuer_of(overlay.folder)
    assert present.id != former.id
    answer = asks_to_renew(overlay, overlay.folder, chain)
    assert isinstance(answer, Issued)
    renewed = x509.load_pem_x509_certificates(answer.chain)
    assert authority_id(renewed[1]) == present.id
    revoke(overlay.keys.issuer, (former.id,))
    overlay.folder.write_document("revoked", overlay.keys.issuer.revocations("canopy")[1])
    answer = asks_to_renew(overlay, overlay.folder, chain)
    assert answer == Denied("the certificate is of an issuer that was revoked")
    assert isinstance(asks_to_renew(overlay, overlay.folder, tuple(renewed)), Issued)
    with pytest.raises(KeyFolderError, match="the keys of another node"):
        overlay.restricted("keys/issuer", LEAVES)


# --- how many ids ---


def test_an_issuer_of_so_many_ids_signs_no_more(overlay: Overlay) -> None:
    """Places are kept through renewals, and free again when their id is revoked."""
    folder = overlay.restricted("few", Restriction(("leaf",), ("acme",), 3))
    token = invite(folder, Role.LEAF, "acme", 10, 60.0, ("a:1",))

    def enrolled(key: Ed25519PrivateKey) -> object:
        raw = raw_key(key.public_key())
        word = Enrol(token.invitation, token.secret, raw, key.sign(claim(NONCE, raw, 1)))
        return Issuing(folder, "canopy").answer(NONCE, word)

    first, second, third = [Ed25519PrivateKey.generate() for _ in range(3)]
    places = []
    for key in (first, second, first):
        answer = enrolled(key)
        assert isinstance(answer, Issued)
        uri = x509.load_pem_x509_certificates(answer.chain)[0].extensions
        names = uri.get_extension_for_class(x509.SubjectAlternativeName).value
        places.append(names.get_values_for_type(x509.UniformResourceIdentifier)[0])
    assert places == [f"canopy://canopy/leaf/acme/1/{n}" for n in (2, 3, 2)]  # 1: its own node
    assert enrolled(third) == Denied("this issuer may sign 3 ids, and has")
    node = node_id(raw_key(first.public_key()), 1)
    revoke(overlay.keys.issuer, (node,))
    folder.write_document("revoked", overlay.keys.issuer.revocations("canopy")[1])
    assert isinstance(enrolled(third), Issued)
    assert enrolled(first) == Denied("this node was revoked")


def test_of_two_ids_in_one_place_a_node_believes_one(overlay: Overlay) -> None:
    """An issuer that keeps no count gains nothing at any node; nor does one that goes beyond."""
    few = issuer_of(overlay.restricted("few", Restriction(("leaf",), ("acme",), 3)))
    security = overlay.keys.security()

    def shown(place: int, key: Ed25519PrivateKey, generation: int = 1) -> str:
        made = overlay.node(Holder("canopy", Role.LEAF, "acme", generation, place), few, key)
        try:
            security.identify(der(*made, overlay.root))
        except TlsError as error:
            return str(error)
        return ""

    keys = [Ed25519PrivateKey.generate() for _ in range(3)]
    assert [shown(place, keys[0]) for place in (2, 2)] == ["", ""]
    assert "another node in its place 2" in shown(2, keys[1])
    assert "3 ids, and this has place 4" in shown(4, keys[1])
    assert "3 ids, and this has place 0" in shown(0, keys[1])
    assert shown(3, keys[1]) == ""
    assert shown(2, keys[0], generation=2) == ""  # one key has one id
    assert "has become another node" in shown(2, keys[0])
    revoke(overlay.keys.issuer, (node_id(raw_key(keys[0].public_key()), 2),))
    security.load()
    assert shown(2, keys[2]) == ""


def test_a_key_does_not_become_any_number_of_nodes(overlay: Overlay) -> None:
    chain = overlay.node(holder())
    for generation in (1, 2, 3, 4):
        answer = asks_to_renew(overlay, overlay.folder, chain, generation)
        assert isinstance(answer, Issued)
        former, chain = chain, tuple(x509.load_pem_x509_certificates(answer.chain))
    answer = asks_to_renew(overlay, overlay.folder, chain, 5)
    assert isinstance(answer, Denied)
    assert "got 3 new ids within 7 days" in answer.reason
    answer = asks_to_renew(overlay, overlay.folder, former, 3)
    assert answer == Denied("this key has become another node: it has a later generation")
    assert isinstance(asks_to_renew(overlay, overlay.folder, chain, 4), Issued)


def test_the_token_of_a_restricted_issuer_is_for_its_node_alone(overlay: Overlay) -> None:
    """Its node is a leaf, so that a role does not tell it from others of the overlay."""
    own, other = overlay.folder.certificate(), overlay.node(holder())
    assert own is not None
    presented = (*overlay.folder.chain(), overlay.root)
    side = _Side([overlay.root], own.principal.id)
    assert side.identify(der(*presented)) == own.principal
    with pytest.raises(TlsError, match="not the issuer that the token names"):
        side.identify(der(*other, overlay.root))
    voter = overlay.node(holder(Role.ISSUER, ""))
    with pytest.raises(TlsError, match="may sign leaf"):
        _Side([overlay.root], "").identify(der(*voter, overlay.root))
