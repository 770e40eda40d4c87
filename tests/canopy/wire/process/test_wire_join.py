"""Two commands make a safe overlay: real processes, from the first key to a revocation."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from canopy.cli.main import canopy
from canopy.wire.keys.authority import issuer_of
from canopy.wire.keys.issuing import DAY
from canopy.wire.keys.key_folder import KeyFolder
from overlay.client import Draft, GetPeers, Peers, Publish, Subscribe
from tests.support.real.real_overlay import (
    PATIENCE,
    Overlay,
    delivered,
    status,
    wait_ready,
)

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
    assert known in connected(first)
    renewed = folder.certificate()
    assert renewed is not None
    assert renewed.ends > time.time() + 6 * DAY


def test_an_issuer_of_a_tenant_invites_and_is_revoked_with_all_that_it_signed(
    overlay: Overlay,
) -> None:
    """Its node and the one that it has invited are leaves; both are cut off within seconds."""
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
    ids = [status(client).node for client in (issuer, leaf)]
    assert set(ids) <= set(connected(first))
    (found,) = json.loads(keys(overlay, "ls", 1, "--json"))["issuers"]
    keys(overlay, "revoke", 0, found["id"])
    until = time.monotonic() + PATIENCE
    while set(ids) & set(connected(first)):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert f"its issuer {found['id']} was revoked" in overlay.log(0)


def connected(client: object) -> list[str]:
    """Ids of the nodes with which this one has a live link."""
    found = client.ask(GetPeers(0), Peers)  # type: ignore[attr-defined]
    return [peer.node for peer in found.peers if peer.state == "CONNECTED"]
