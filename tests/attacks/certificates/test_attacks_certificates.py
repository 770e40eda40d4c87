"""Certificates that another tool has made, some of them signed by the overlay's own issuer, and
what strangers and members send in their place."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from canopy.wire.keys.certificates import CertificateError, raw_key, read_der
from canopy.wire.keys.chains import CertifiedDocument
from canopy.wire.keys.enrolment import RenewCertificate, claim
from canopy.wire.keys.join import JoinError, _Side
from canopy.wire.keys.policies import PolicyBody, read_policy
from canopy.wire.keys.revocations import Revocations
from canopy.wire.transport.tls import TlsPipe
from overlay.tenants.policy import Policy, PolicyError
from tests.attacks.test_attacks_transport import Bare, bare, refused
from tests.support.real.keys import Keys
from tests.support.real.wire_rig import rig

pytestmark = [
    pytest.mark.trio,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command"),
]

NODE = "URI:canopy://canopy/voter//1"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=30)


def made(folder: Path, keys: Keys, key: tuple[str, ...], name: str, is_own: bool) -> ssl.SSLContext:
    """A side whose certificate for `name` has such a key; signed by the overlay's issuer, or by
    itself."""
    private, asked, chain = (folder / file for file in ("key", "request", "chain"))
    openssl("genpkey", *key, "-out", private)
    extensions = folder / "extensions"
    extensions.write_text(f"subjectAltName={name}\nextendedKeyUsage=clientAuth,serverAuth\n")
    openssl("req", "-new", "-key", private, "-subj", "/CN=x", "-out", asked)
    own = keys.issuer.path
    signer = ["-signkey", private] if not is_own else ["-CA", own / "issuer.pem"]
    signer += ["-CAkey", own / "issuer.key", "-CAcreateserial"] if is_own else []
    signer += ["-CAserial", folder / "serial"] if is_own else []
    openssl(
        "x509", "-req", "-days", 7, "-in", asked, *signer, "-extfile", extensions, "-out", chain
    )
    if is_own:
        chain.write_bytes(chain.read_bytes() + (own / "issuer.pem").read_bytes())
    context = bare()
    context.load_cert_chain(chain, private)
    return context


P256 = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
RSA = ("-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048")
ED25519 = ("-algorithm", "ED25519")


@pytest.mark.parametrize(
    ("key", "name", "is_own"),
    [
        (P256, NODE, True),
        (RSA, NODE, True),
        (ED25519, "URI:https://example.org/", True),
        (ED25519, f"{NODE},URI:canopy://canopy/admin//1", True),
        (ED25519, "URI:canopy://another/voter//1", True),
        (ED25519, "DNS:localhost", True),
        (ED25519, NODE, False),
    ],
    ids=[
        "another curve",
        "rsa",
        "no node",
        "two names",
        "another overlay",
        "a host",
        "self-signed",
    ],
)
async def test_what_is_no_certificate_of_a_node_is_refused(
    keys: Keys, tmp_path: Path, key: tuple[str, ...], name: str, is_own: bool
) -> None:
    context = made(tmp_path, keys, key, name, is_own)
    async with rig(security=keys.security()) as node:
        await refused(node, context)
        assert node.driver.counters.tls_refused == 1


async def test_one_that_the_issuer_has_signed_is_believed_whatever_made_it(
    keys: Keys, tmp_path: Path
) -> None:
    context = made(tmp_path, keys, ED25519, NODE, True)
    async with rig(security=keys.security()) as node:
        stream = await node.dial()
        await TlsPipe(Bare(context), False).handshake(stream)
        assert len((await node.has("accepted"))[2].id) == 32  # type: ignore[attr-defined]


def altered(keys: Keys) -> dict[str, bytes]:
    """The issuer's own node certificate (DER), changed so that its reader trips at another place
    each time: `cryptography` has an exception of its own for each."""
    whole = keys.issuer.chain()[0].public_bytes(Encoding.DER)
    purpose, names = b"\x55\x1d\x25", b"\x55\x1d\x11"  # extended key usage, alternative names
    algorithm = b"\x30\x05\x06\x03\x2b\x65\x70"  # Ed25519
    before, _, after = whole.rpartition(b"\x30\x2a" + algorithm)  # of the key itself
    found = {
        "no certificate": b"\x30\x03\x02\x01\x00",
        "an unknown version": whole.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x09", 1),
        "an extension twice": whole.replace(purpose, names, 1),
        "an unknown kind of key": before + b"\x30\x2a" + algorithm[:-1] + b"\x7f" + after,
        "a name of no kind": whole.replace(b"\x86\x18canopy", b"\xa3\x18canopy", 1),
        "no time": whole.replace(b"\x17\x0d2", b"\x17\x0dx", 1),
    }
    assert all(each != whole for each in found.values())
    return found


KINDS = (
    *("no certificate", "an unknown version", "an extension twice"),
    *("an unknown kind of key", "a name of no kind", "no time"),
)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_certificate_that_cannot_be_understood_is_refused_wherever_it_comes(
    keys: Keys, kind: str
) -> None:
    """A member passes signed documents on; whoever has signed them, the node goes on."""
    bad, security = altered(keys)[kind], keys.security()
    with pytest.raises(CertificateError):
        read_der(bad)
    revocations = msgspec.msgpack.encode(Revocations("canopy", 9, ()))
    policy = msgspec.msgpack.encode(PolicyBody("canopy", 0.0, Policy(9, {})))
    for signers in ((bad,), (bad, bad), (keys.issuer.chain()[0].public_bytes(Encoding.DER), bad)):
        assert (
            security.accept(msgspec.msgpack.encode(CertifiedDocument(revocations, b"", signers)))
            == 0
        )
        forged = msgspec.msgpack.encode(CertifiedDocument(policy, bytes(64), signers))
        assert security.policy.accept(forged) == 0
        with pytest.raises(PolicyError):
            read_policy(forged, "canopy", keys.issuer.chain("roots"))


async def test_a_strange_certificate_at_the_issuer_ends_its_connection_alone(
    keys: Keys,
) -> None:
    """Anybody can ask, so that nothing of it is to be believed before its signature was looked
    at."""
    key = Ed25519PrivateKey.generate()
    public = raw_key(key.public_key())
    async with rig(security=keys.security()) as node:
        for kind, bad in altered(keys).items():
            side = _Side(())
            greeting = await side.connect(node.address)
            text = ssl.DER_cert_to_PEM_cert(bad).encode()
            proof = key.sign(claim(greeting.nonce, public, 1))
            with pytest.raises(JoinError, match=r"certificate"):
                await side.ask(RenewCertificate(text, 1, public, proof))
            await side.close()
            assert not node.driver.connections, kind
