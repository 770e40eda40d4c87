"""Keys, tokens and renewals: who gets a certificate, and for how long."""

from __future__ import annotations

import os
import ssl
import time
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from canopy.wire.keys.authority import found_overlay, invite, revoke
from canopy.wire.keys.certificates import (
    CertificateError,
    Holder,
    KeyFolderError,
    node_id,
    pem,
    read_der,
)
from canopy.wire.keys.enrolment import (
    REQUESTS,
    Denied,
    Enrol,
    Issued,
    RenewCertificate,
    Word,
    claim,
)
from canopy.wire.keys.issuer import DAY, Issuing
from canopy.wire.keys.join import JoinError, keep
from canopy.wire.keys.key_folder import KeyFolder
from canopy.wire.keys.rotation import finish, rotate
from canopy.wire.keys.tokens import PREFIX, Token, TokenError, read_token, write_token
from canopy.wire.process.security import NodeSecurity
from canopy.wire.transport.tls import TlsError, verified_chain
from overlay.rights import Role
from tests.support.real.keys import Keys

NONCE = bytes(range(32))


class Issuer:
    """An issuer whose clock the test turns, and what nodes ask of it."""

    def __init__(self, path: Path) -> None:
        self.keys = Keys(path)
        self.ahead = 0.0
        self.issuing = Issuing(self.keys.issuer, "canopy", lambda: time.time() + self.ahead)

    def token(self, role: Role = Role.VOTER, uses: int = 1) -> Token:
        return invite(self.keys.issuer, role, "acme", uses, 3600.0, ("127.0.0.1:1",))

    def enrol(self, folder: KeyFolder, token: Token, nonce: bytes = NONCE) -> Word:
        key = folder.node_key()
        signature = key.sign(claim(nonce, folder.public_key(), 1))
        word = Enrol(token.invitation, token.secret, folder.public_key(), signature)
        return self.issuing.answer(NONCE, word)

    def renew(self, folder: KeyFolder, generation: int = 1) -> Word:
        signature = folder.key().sign(claim(NONCE, folder.public_key(), generation))
        chain = pem(folder.chain()[0])
        return self.issuing.answer(
            NONCE, RenewCertificate(chain, generation, folder.public_key(), signature)
        )


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "keys")


def test_a_token_gives_one_node_the_role_that_it_names(issuer: Issuer, tmp_path: Path) -> None:
    first, second = KeyFolder(tmp_path / "a"), KeyFolder(tmp_path / "b")
    token = read_token(write_token(issuer.token(Role.LEAF)))
    issued = issuer.enrol(first, token)
    assert isinstance(issued, Issued)
    keep(first, issued, "canopy", time.time(), token.root)
    found = first.certificate()
    assert found is not None
    assert found.principal == (node_id(first.public_key(), 1), Role.LEAF, "acme")
    assert isinstance(issuer.enrol(first, token), Issued)  # its answer was lost: asked again
    assert issuer.enrol(second, token) == Denied("the token was used")


def test_a_token_that_is_wrong_withdrawn_or_old_gives_nothing(
    issuer: Issuer, tmp_path: Path
) -> None:
    folder, token = KeyFolder(tmp_path / "a"), issuer.token()
    wrong = msgspec.structs.replace(token, secret=bytes(16))
    assert isinstance(issuer.enrol(folder, wrong), Denied)
    assert isinstance(issuer.enrol(folder, token, nonce=bytes(32)), Denied)  # a replayed signature
    issuer.ahead = 3601.0
    assert issuer.enrol(folder, token) == Denied("the token has expired")
    issuer.ahead = 0.0
    assert isinstance(issuer.enrol(folder, token), Denied)  # and is forgotten


def test_the_issuer_keeps_no_secret_and_the_key_stays_at_its_node(
    issuer: Issuer, tmp_path: Path
) -> None:
    token = issuer.token()
    kept = b"".join(p.read_bytes() for p in issuer.keys.issuer.path.rglob("*") if p.is_file())
    assert token.secret not in kept
    assert token.secret.hex().encode() not in kept
    folder = KeyFolder(tmp_path / "a")
    key = folder.node_key()
    signature = key.sign(claim(NONCE, folder.public_key(), 1))
    word = Enrol(token.invitation, token.secret, folder.public_key(), signature)
    assert key.private_bytes_raw() not in msgspec.msgpack.encode(word)


def test_a_node_renews_for_ninety_days_after_the_end(issuer: Issuer) -> None:
    folder = issuer.keys.folder("b", Role.MEMBER)
    issuer.ahead = (7 + 89) * DAY
    issued = issuer.renew(folder)
    assert isinstance(issued, Issued)
    keep(folder, issued, "canopy", time.time() + issuer.ahead)
    found = folder.certificate()
    assert found is not None
    assert found.principal.role is Role.MEMBER
    assert found.ends > time.time() + issuer.ahead + 6 * DAY
    issuer.ahead += (7 + 91) * DAY
    assert isinstance(issuer.renew(folder), Denied)


def test_a_renewal_needs_the_key_and_a_certificate_of_this_issuer(
    issuer: Issuer, tmp_path: Path
) -> None:
    folder, thief = issuer.keys.folder("b"), issuer.keys.folder("c", Role.LEAF)
    thief.write_chain("node", *folder.chain())
    assert isinstance(issuer.renew(thief), Denied)  # the certificate of another
    other = Keys(tmp_path / "other").folder("d")
    assert isinstance(issuer.renew(other), Denied)
    assert isinstance(issuer.renew(folder, generation=3), Denied)
    assert isinstance(issuer.renew(folder, generation=2), Issued)


def test_who_is_revoked_gets_nothing_more(issuer: Issuer, tmp_path: Path) -> None:
    folder = issuer.keys.folder("b")
    found = folder.certificate()
    assert found is not None
    revoke(issuer.keys.issuer, (found.principal.id,))
    assert issuer.renew(folder) == Denied("this node was revoked")
    assert issuer.enrol(folder, issuer.token()) == Denied("this node was revoked")


def test_the_next_generation_of_a_key_is_another_node(issuer: Issuer) -> None:
    folder = issuer.keys.folder("b")
    before = folder.certificate()
    issued = issuer.renew(folder, generation=2)
    assert isinstance(issued, Issued)
    keep(folder, issued, "canopy", time.time())
    after = folder.certificate()
    assert before is not None
    assert after is not None
    assert before.principal.id != after.principal.id
    assert after.principal.id == node_id(folder.public_key(), 2)


def test_who_is_revoked_is_so_under_every_later_id_of_its_key(issuer: Issuer) -> None:
    folder = issuer.keys.folder("b")
    first = folder.certificate()
    issued = issuer.renew(folder, 2)  # while it was still believed
    assert first is not None
    assert isinstance(issued, Issued)
    keep(folder, issued, "canopy", time.time())
    revoke(issuer.keys.issuer, (first.principal.id,))
    assert issuer.renew(folder, 2) == Denied("this node was revoked")
    node = issuer.keys.security()
    chain = (*folder.chain(), *folder.chain("roots"))
    with pytest.raises(TlsError, match="revoked"):
        node.identify(tuple(one.public_bytes(Encoding.DER) for one in chain))


def test_what_an_issuer_sends_is_looked_at(issuer: Issuer, tmp_path: Path) -> None:
    folder, other = KeyFolder(tmp_path / "a"), KeyFolder(tmp_path / "b")
    token = issuer.token(uses=2)
    issued = issuer.enrol(other, token)
    assert isinstance(issued, Issued)
    folder.node_key()
    for root, overlay, owner in (
        (token.root, "canopy", folder), (token.root, "another", other), ("0" * 64, "canopy", other)
    ):  # fmt: skip
        with pytest.raises(JoinError):
            keep(owner, issued, overlay, time.time(), root)
    assert other.certificate() is None


def test_keys_that_others_can_read_are_refused(tmp_path: Path) -> None:
    folder = KeyFolder(tmp_path)
    found_overlay(folder, "canopy")
    folder.check()
    for path, mode in ((folder.path, 0o755), (folder.path / "node.key", 0o640)):
        before = path.stat().st_mode
        path.chmod(mode)
        with pytest.raises(KeyFolderError, match="chmod"):
            folder.check()
        path.chmod(before)
    moved = folder.path / "elsewhere"
    os.rename(folder.path / "node.key", moved)
    (folder.path / "node.key").symlink_to(moved)
    with pytest.raises(KeyFolderError, match="link"):
        folder.check()


def test_an_overlay_is_founded_once(tmp_path: Path) -> None:
    folder = KeyFolder(tmp_path)
    node = found_overlay(folder, "canopy")
    with pytest.raises(KeyFolderError):
        found_overlay(folder, "canopy")
    found = folder.certificate()
    assert found is not None
    assert found.principal == (node, Role.ADMIN, "")
    with pytest.raises(CertificateError):
        found_overlay(KeyFolder(tmp_path / "x"), "../etc")


@pytest.mark.parametrize("text", ["", "canopy1.", PREFIX + "AAAA", "canopy1.%%%%", "Bearer x"])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(TokenError):
        read_token(text)


@pytest.mark.parametrize("data", [b"", b"\x30\x82", b"\xff" * 400])
def test_what_is_no_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(CertificateError):
        read_der(data)


@pytest.mark.parametrize("body", [b"", b"\x91" * 20_000, msgspec.msgpack.encode(["Issued", b""])])
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        REQUESTS.decode(body)


def test_the_names_in_a_certificate_are_read_back() -> None:
    for role in Role:
        assert Holder("a.b-c_1", role, "", 7).uri == f"canopy://a.b-c_1/{role.name.lower()}//7"


def greets(one: NodeSecurity, other: NodeSecurity) -> bool:
    """Whether TLS between two nodes succeeds, and each believes the other."""
    sides = [Side(one, False), Side(other, True)]
    sides[0].peer, sides[1].peer = sides[1], sides[0]
    try:
        waiting = sides
        while waiting:
            waiting = [side for side in waiting if not side.goes_on()]
    except ssl.SSLError:
        return False
    return True


class Side:
    """One side of a connection in memory."""

    def __init__(self, security: NodeSecurity, is_server: bool) -> None:
        self.security, self.peer = security, self
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = security.context(is_server)
        self.object = context.wrap_bio(self.incoming, self.outgoing, server_side=is_server)

    def goes_on(self) -> bool:
        try:
            self.object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self.peer.incoming.write(self.outgoing.read())
        self.security.identify(verified_chain(self.object))
        return True


def test_the_root_is_replaced_while_old_and_new_nodes_believe_each_other(issuer: Issuer) -> None:
    keys = issuer.keys
    folders = [keys.folder(name) for name in ("b", "c")]
    revoke(keys.issuer, ("0" * 32,))
    before = keys.security(folders[0])
    rotate(keys.issuer, time.time())
    first = keys.security()
    assert greets(before, first)  # who knows only the former root …
    assert greets(first, before)
    assert before.accept(keys.issuer.revocations("canopy")[1]) == 2  # … takes lists, too
    issued = issuer.renew(folders[1])  # signed by the former issuer
    assert isinstance(issued, Issued)
    keep(folders[1], issued, "canopy", time.time())
    renewed = keys.security(folders[1])
    assert greets(before, renewed)
    assert greets(renewed, before)
    with pytest.raises(KeyFolderError, match="1 node: "):  # one has not renewed
        finish(keys.issuer, time.time())
    finish(keys.issuer, time.time(), anyway=True)
    issued = issuer.renew(folders[1])
    assert isinstance(issued, Issued)
    keep(folders[1], issued, "canopy", time.time())
    last = keys.security(folders[1])
    assert greets(last, keys.security())
    assert not greets(before, last)  # it has not renewed in time, and may still do so
    assert isinstance(issuer.renew(folders[0]), Issued)


def test_a_root_is_replaced_with_its_key_alone(issuer: Issuer, tmp_path: Path) -> None:
    with pytest.raises(KeyFolderError):
        finish(issuer.keys.issuer, time.time())
    kept = tmp_path / "drawer"
    (issuer.keys.issuer.path / "root.key").rename(kept)
    with pytest.raises(KeyFolderError, match="put the root's key back"):
        rotate(issuer.keys.issuer, time.time())
    other = Keys(tmp_path / "other").issuer.path / "root.key"
    other.rename(issuer.keys.issuer.path / "root.key")
    with pytest.raises(KeyFolderError, match="not the key of the root"):
        rotate(issuer.keys.issuer, time.time())
    kept.replace(issuer.keys.issuer.path / "root.key")
    rotate(issuer.keys.issuer, time.time())
    with pytest.raises(KeyFolderError, match="not finished"):
        rotate(issuer.keys.issuer, time.time())
