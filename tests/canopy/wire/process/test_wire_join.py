"""Two commands make a safe overlay: real processes, from the first key to a revocation."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from canopy.cli.main import canopy
from canopy.wire.keys.authority import issuer_of
from canopy.wire.keys.certificates import Holder, node_id, pem, private_pem, raw_key
from canopy.wire.keys.issuer import DAY
from canopy.wire.keys.key_folder import KeyFolder
from canopy.wire.transport.framing import NODE_FRAMES
from canopy.wire.transport.tls import new_context
from harness.real_overlay import (
    PATIENCE,
    ROOT,
    Overlay,
    delivered,
    status,
    wait_ready,
)
from overlay.client import Draft, GetPeers, Peers, Publish, Subscribe
from overlay.links.messages import PROTOCOL, Hello
from overlay.machine import Peer
from overlay.rights import Role

pytestmark = pytest.mark.process


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Overlay]:
    found = Overlay(tmp_path, "tree: {sign: true}")  # events are signed by these keys, too
    yield found
    found.stop()


def keys(overlay: Overlay, command: str, number: int, *arguments: str) -> str:
    data = str(overlay.folder / str(number))
    done = CliRunner().invoke(canopy, ["keys", command, "--data", data, *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_from_the_first_key_to_a_revocation(overlay: Overlay) -> None:
    keys(overlay, "init", 0, "--overlay", "acme")
    first = overlay.start()
    wait_ready(first)
    token = keys(overlay, "invite", 0, "--uses", "2").strip()
    os.environ["CANOPY_JOIN"] = token  # as `--join TOKEN`
    try:
        second, third = overlay.start(), overlay.start()
        wait_ready(second, third)
    finally:
        del os.environ["CANOPY_JOIN"]
    second.request(Subscribe(0, "a > 0"), PATIENCE)
    third.request(Publish(0, (Draft({"id": "x", "a": 1}),)), PATIENCE)
    assert delivered(second, 1) == ["x"]
    ids = [status(client).node for client in (first, second, third)]
    assert [len(node) for node in ids] == [32, 32, 32]
    shown = json.loads(keys(overlay, "ls", 0, "--json"))
    assert sorted(shown["invitations"][0]["used_by"]) == sorted(ids[1:])
    for number in range(3):
        assert token not in overlay.log(number)
        assert (overlay.folder / str(number)).stat().st_mode & 0o777 == 0o700
    keys(overlay, "revoke", 0, ids[1])
    until = time.monotonic() + PATIENCE
    while any(ids[1] in connected(client) for client in (first, third)):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert (overlay.folder / "2" / "keys" / "revoked").exists()  # it was passed on


def test_a_node_that_was_off_for_sixty_days_comes_back_by_itself(overlay: Overlay) -> None:
    """Its certificate ended 53 days ago; with the same data folder it is the same node."""
    keys(overlay, "init", 0, "--overlay", "acme")
    first = overlay.start()
    wait_ready(first)
    os.environ["CANOPY_JOIN"] = keys(overlay, "invite", 0).strip()
    try:
        second = overlay.start()
        wait_ready(second)
    finally:
        del os.environ["CANOPY_JOIN"]
    known = status(second).node
    overlay.kill(1)
    folder, issuer = KeyFolder(overlay.folder / "1"), issuer_of(KeyFolder(overlay.folder / "0"))
    own = folder.certificate()
    assert own is not None
    key, then = folder.key().public_key(), time.time() - 60 * DAY
    folder.write_chain("node", *issuer.sign_node(own.holder, key, then))
    overlay.start_again(1, "127.0.0.1:0")
    second = overlay.client_again(1)
    wait_ready(first, second)
    assert status(second).node == known
    while known not in connected(first):  # its link may be a moment behind
        time.sleep(0.1)
    renewed = folder.certificate()
    assert renewed is not None
    assert renewed.ends > time.time() + 6 * DAY


POLICY = """
version: 1
default: deny
tenants:
  t: {publish: "a = 1", subscribe: "a = 1"}
"""


def test_the_guide_replaces_a_root_with_a_thief_at_the_door(overlay: Overlay) -> None:
    """Its commands, with a policy, a tenant's issuer, its leaf, and somebody who has the issuer's
    key. In the end the tenant's issuer is revoked, with all that it has signed."""
    keys(overlay, "init", 0, "--overlay", "acme")
    first = overlay.start()
    wait_ready(first)
    at = (overlay.folder / "0" / "address").read_text().strip()
    made = ("--role", "leaf", "--tenant", "t", "--ids", "5", "--into", str(overlay.folder / "1"))
    keys(overlay, "issuer", 0, *made)
    issuer = overlay.start(at)
    wait_ready(issuer)
    token = keys(overlay, "invite", 1, "--role", "leaf", "--tenant", "t", "--peer", at).strip()
    os.environ["CANOPY_JOIN"] = token
    try:
        leaf = overlay.start()
        wait_ready(leaf)
    finally:
        del os.environ["CANOPY_JOIN"]
    nodes = [status(client).node for client in (issuer, leaf)]
    while not set(nodes) <= set(connected(first)):
        time.sleep(0.1)
    policy = overlay.folder / "policy.yaml"
    policy.write_text(POLICY)
    command("policy", "push", str(policy), "--data", str(overlay.folder / "0"))
    thief = Thief(overlay.folder / "0", overlay.folder / "thief.pem")
    thief.enters(at)
    for one in guide("canopy keys rotate"):
        if "--finish" in one:  # a minute later: here who renews at once does so by command
            shown = json.loads(keys(overlay, "ls", 0, "--json"))
            assert not shown["not_renewed"]
            keys(overlay, "renew", 1)
            keys(overlay, "renew", 2)
            thief.enters(at)
        command(*one[1:], "--data", str(overlay.folder / "0"))
    until = time.monotonic() + PATIENCE
    while thief.is_inside():
        assert time.monotonic() < until
        time.sleep(0.05)
    assert thief.refusal(at)
    thief.goes()
    for number in range(3):
        while len(KeyFolder(overlay.folder / str(number)).chain("roots")) > 1:
            assert time.monotonic() < until, overlay.log(number)
            time.sleep(0.05)
        while KeyFolder(overlay.folder / str(number)).policy("acme")[0] is None:
            assert time.monotonic() < until, overlay.log(number)
            time.sleep(0.05)
        assert "keys_unchanged" not in overlay.log(number)
    overlay.kill(0)
    overlay.start_again(0, at)
    first = overlay.client_again(0)
    wait_ready(first)
    while not set(nodes) <= set(connected(first)):
        assert time.monotonic() < until, overlay.log(0)
        time.sleep(0.05)
    leaf.request(Publish(0, (Draft({"id": "x", "a": 1}),)), PATIENCE)
    policy.write_text(POLICY.replace("version: 1", "version: 3"))
    command("policy", "push", str(policy), "--data", str(overlay.folder / "0"))
    (present, *_) = json.loads(keys(overlay, "ls", 1, "--json"))["issuers"]
    keys(overlay, "revoke", 0, present["id"])
    while set(nodes) & set(connected(first)):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert f"its issuer {present['id']} was revoked" in overlay.log(0)


def command(*words: str) -> str:
    done = CliRunner().invoke(canopy, list(words))
    assert done.exit_code == 0, (words, done.output, done.exception)
    return done.output


def guide(begin: str) -> list[list[str]]:
    """The commands of the guide's block that begins so."""
    page = (ROOT / "docs/guide/security.md").read_text()
    block = page[page.index(f"```sh\n{begin} ") + len("```sh\n") :].partition("```")[0]
    lines = [re.sub("^until (.*); do .*", r"\1", line) for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines]


class Thief:
    """Somebody who has a copy of the issuer's key, and signs an admin's certificate for itself."""

    def __init__(self, data: Path, file: Path) -> None:
        issuer, key = issuer_of(KeyFolder(data)), Ed25519PrivateKey.generate()
        holder = Holder("acme", Role.ADMIN, "", 1)
        chain = issuer.sign_node(holder, key.public_key(), time.time())
        file.write_bytes(private_pem(key) + pem(*chain))
        self._context = new_context(False)
        self._context.verify_mode = ssl.CERT_NONE
        self._context.load_cert_chain(file)
        me = Peer(node_id(raw_key(key.public_key()), 1), "127.0.0.1:1")
        self._hello = NODE_FRAMES.encode(Hello(PROTOCOL, "acme", me, 1, 0, 0, 1 << 20))
        self._sockets: list[ssl.SSLSocket] = []

    def enters(self, address: str) -> None:
        found = self._connect(address)
        assert found.recv(1 << 16)  # a Welcome
        found.settimeout(0.0)

    def is_inside(self) -> bool:
        try:
            return bool(self._sockets[-1].recv(1 << 16))
        except (ssl.SSLWantReadError, BlockingIOError):
            return True
        except OSError:
            return False

    def refusal(self, address: str) -> bool:
        try:
            return not self._connect(address).recv(1 << 16)
        except OSError:
            return True

    def _connect(self, address: str) -> ssl.SSLSocket:
        host, port = address.split(":")
        plain = socket.create_connection((host, int(port)), PATIENCE)
        found = self._context.wrap_socket(plain)
        self._sockets.append(found)
        found.sendall(self._hello)
        return found

    def goes(self) -> None:
        for one in self._sockets:
            one.close()


def connected(client: object) -> list[str]:
    """Ids of the nodes with which this one has a live link."""
    found = client.ask(GetPeers(0), Peers)  # type: ignore[attr-defined]
    return [peer.node for peer in found.peers if peer.state == "CONNECTED"]
