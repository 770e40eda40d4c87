"""Programs on other machines: tokens, scopes, and who answers at the node's address."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
import trio
from click.testing import CliRunner

import canopy.trio
from canopy.cli.main import canopy as cli
from canopy.client.blocking import ControlClient
from canopy.client.errors import CommandFailed, ControlError, DeniedError, UnreachableError
from canopy.client.remote import AccessFile, read_access, write_access
from canopy.wire.audit import verify
from canopy.wire.config import ConfigError, load_config
from canopy.wire.control.remote import RemoteDoor, token_file
from canopy.wire.control.scopes import ANY, SCOPE_OF, confined, refusal
from canopy.wire.keys.certificates import node_id
from canopy.wire.log import Log
from canopy.wire.token_file import ProgramToken, Scope, TokenFile
from canopy.wire.transport.framing import REPLY_FRAMES, FrameReader
from overlay.client import (
    DENIED,
    BeginReading,
    Draft,
    Drain,
    Failed,
    GetStatus,
    OpenSession,
    Publish,
    ResumeSession,
    SessionOpened,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from overlay.client_types import COMMANDS
from tests.support.real.keys import Keys
from tests.support.real.wire_rig import PATIENCE, Rig, rig

T = TypeVar("T")


class Node:
    """A node that serves programs over TCP."""

    def __init__(self, one: Rig, folder: Path, address: str) -> None:
        self.rig = one
        self.folder = folder
        self.address = address
        self.tokens = token_file(folder)

    def access(self, name: str, *scopes: Scope, node: str = "", **more: str) -> Path:
        """An access file for a new token."""
        secret = self.tokens.add(name, scopes, **more)  # type: ignore[arg-type]
        path = self.folder / f"{name}.access"
        write_access(path, AccessFile(1, self.address, node or self.id, secret))
        return path

    id = ""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@asynccontextmanager
async def served(keys: Keys, tmp_path: Path) -> AsyncIterator[Node]:
    async with rig(socket=tmp_path / "control.sock") as one:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        security = keys.security()
        door = RemoteDoor(tmp_path, security, Log("debug", one.log), time.monotonic)
        one.nursery.start_soon(one.control.serve_remote, listeners, door)
        node = Node(one, tmp_path, f"127.0.0.1:{port}")
        node.id = security.own.principal.id
        yield node


async def outside(work: Callable[[], T]) -> T:
    with trio.fail_after(PATIENCE):
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True)


def test_every_command_has_a_row_in_one_scope() -> None:
    known = set(COMMANDS.__args__)
    assert known == set(SCOPE_OF) | ANY
    assert not set(SCOPE_OF) & ANY


def test_a_token_allows_its_scopes_and_no_more() -> None:
    phone = ProgramToken("phone", "", ("subscribe",))
    assert refusal(phone, Subscribe(1, "mag > 1")) == ""
    assert refusal(phone, OpenSession(1)) == ""
    assert "the scope publish" in refusal(phone, Publish(1, (Draft({"a": 1}),)))
    assert "the scope observe" in refusal(phone, GetStatus(1))
    assert "the scope admin" in refusal(phone, Drain(1))
    assert "the scope observe" in refusal(ProgramToken("root", "", ("admin",)), GetStatus(1))


def test_a_selector_confines_what_is_followed_and_published() -> None:
    scopes: tuple[Scope, ...] = ("publish", "subscribe", "observe")
    token = ProgramToken("phone", "", scopes, publish="type = 'a'", subscribe="region = 'eu'")
    found = confined(token, Subscribe(1, "mag > 1 OR TRUE"))
    assert isinstance(found, Subscribe)
    assert found.selector == "(mag > 1 OR TRUE) AND (region = 'eu')"
    broken = Subscribe(1, "mag > 1) OR (a = 1")
    assert confined(token, broken) is broken  # the node refuses it as it is
    assert refusal(token, Publish(1, (Draft({"type": "a"}),))) == ""
    assert "event 2" in refusal(token, Publish(1, (Draft({"type": "a"}), Draft({"type": "b"}))))
    assert "confines" in refusal(token, BeginReading(1, "stream", "x"))
    assert "confines" in refusal(token, GetStatus(1))


def test_programs_over_tcp_need_the_node_s_keys(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="canopy keys init"):
        load_config(flags={"data": str(tmp_path), "clients": {"listen": "127.0.0.1:0"}})


@pytest.mark.trio
async def test_a_token_lets_a_program_in_and_its_removal_ends_it(
    keys: Keys, tmp_path: Path
) -> None:
    async with served(keys, tmp_path) as node:
        path = node.access("phone", "subscribe", "admin", subscribe="")
        client = await outside(lambda: ControlClient.connect(path))
        made = await outside(lambda: client.request(Subscribe(0, "mag >= 1")))
        assert isinstance(made, Subscribed)
        with pytest.raises(CommandFailed) as failed:
            await outside(lambda: client.request(Publish(0, (Draft({"a": 1}),))))
        assert failed.value.code == DENIED
        await outside(lambda: client.request(Unsubscribe(0, made.subscription)))
        assert not [found for found in node.rig.node.inputs if "Publish" in repr(found)]
        node.tokens.remove("phone")
        node.rig.control.recheck()
        await outside(lambda: ended(client))
        with pytest.raises(DeniedError, match="unknown here, was removed"):
            await outside(lambda: refused(path))
        assert verify(tmp_path).lines == 1  # an administrator connected


def refused(path: Path) -> None:
    with ControlClient.connect(path) as client:
        client.request(GetStatus(0))


def ended(client: ControlClient) -> None:
    with contextlib.suppress(UnreachableError):
        while True:
            client.deliveries(PATIENCE)


@pytest.mark.trio
async def test_the_faces_for_trio_and_for_large_frames(keys: Keys, tmp_path: Path) -> None:
    async with served(keys, tmp_path) as node:
        path = node.access("all", "publish", "subscribe", "observe")
        drafts = tuple(Draft({"n": n}, b"x" * 90_000) for n in range(9))
        with trio.fail_after(PATIENCE):
            async with canopy.trio.connect(path, reconnect=0) as client:
                result = await client.publish_many(drafts)
        assert result.count == 9


@pytest.mark.trio
async def test_the_secret_is_shown_to_no_other_node(keys: Keys, tmp_path: Path) -> None:
    async with served(keys, tmp_path) as node:
        other = node_id(b"x" * 32, 1)
        path = node.access("phone", "subscribe", node=other)
        with pytest.raises(DeniedError, match="was not shown"):
            await outside(lambda: ControlClient.connect(path))


@pytest.mark.trio
async def test_a_session_goes_on_for_the_same_token_alone(keys: Keys, tmp_path: Path) -> None:
    async with served(keys, tmp_path) as node:
        mine, other = (node.access(name, "subscribe") for name in ("a", "b"))
        client = await outside(lambda: ControlClient.connect(mine))
        opened = await outside(lambda: client.request(OpenSession(0)))
        assert isinstance(opened, SessionOpened)
        for path in (other, tmp_path / "control.sock"):
            with await outside(lambda path=path: ControlClient.connect(path)) as thief:  # type: ignore[misc]
                steal = ResumeSession(0, opened.session, 0)
                with pytest.raises(CommandFailed, match="no session"):
                    await outside(lambda thief=thief, steal=steal: thief.request(steal))  # type: ignore[misc]
        node.tokens.remove("a")
        client._sock.close()  # parked, or about to be
        with trio.fail_after(PATIENCE):
            while any(one.holder == "a" for one in node.rig.control._clients.values()):
                node.rig.control.recheck()
                await trio.sleep(0.01)


@pytest.mark.trio
@pytest.mark.parametrize("words", [b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x05hello"])
async def test_who_shows_no_token_asks_nothing(keys: Keys, tmp_path: Path, words: bytes) -> None:
    async with served(keys, tmp_path) as node:
        host, port = node.address.split(":")

        def attempt() -> bytes:
            with socket.create_connection((host, int(port)), PATIENCE) as plain:
                plain.sendall(words)  # plaintext
                with contextlib.suppress(ConnectionError):
                    while plain.recv(100):  # an alert at most
                        pass
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with (
                socket.create_connection((host, int(port)), PATIENCE) as plain,
                context.wrap_socket(plain) as wrapped,
            ):
                wrapped.sendall(b"cct1_" + words * 20)
                return wrapped.recv(1000)

        said = await outside(attempt)
        (found,) = FrameReader(REPLY_FRAMES).feed(said)
        assert isinstance(found, Failed)
        assert found.code == DENIED
        assert not [one for one in node.rig.node.inputs if one[0] == "command"]
        assert words.decode("latin-1") not in node.rig.log.getvalue()


def test_an_access_file_is_made_by_a_command_and_is_private(keys: Keys, tmp_path: Path) -> None:
    data, out = keys.issuer.path.parent, tmp_path / "phone.access"
    arguments = ["--address", "a.example:4471", "--data", str(data)]
    run = CliRunner()
    made = run.invoke(
        cli,
        ["access", "add", "phone", "--scope", "subscribe", "--out", str(out), *arguments],
    )
    assert made.exit_code == 0, made.output
    found = read_access(out)
    assert found.address == "a.example:4471"
    assert found.secret not in made.output + repr(found)
    assert found.secret not in (data / "tokens").read_text() + (data / "audit").read_text()
    assert TokenFile(data / "tokens").find(found.secret) is not None
    shown = run.invoke(cli, ["access", "ls", "--json", "--data", str(data)])
    assert [one["name"] for one in json.loads(shown.output)] == ["phone"]
    assert "hash" not in shown.output
    wide = run.invoke(
        cli,
        ["access", "add", "x", "--scope", "observe", "--where", "a = 1", *arguments],
    )
    assert wide.exit_code == 2
    assert "confine nobody" in wide.output
    out.chmod(0o640)
    with pytest.raises(DeniedError, match="can be read by other users"):
        read_access(out)
    out.chmod(0o600)
    out.write_text("{}")
    with pytest.raises(ControlError, match="no access file"):
        read_access(out)
    assert run.invoke(cli, ["access", "rm", "phone", "--data", str(data)]).exit_code == 0
