"""Certificates that another tool has made, some of them signed by the overlay's own issuer."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from canopy.wire.transport.tls import TlsPipe
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
    openssl("x509", "-req", "-in", asked, *signer, "-extfile", extensions, "-out", chain)
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
