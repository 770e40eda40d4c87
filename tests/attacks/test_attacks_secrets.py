"""A node with every kind of secret, and all that it writes."""

from __future__ import annotations

import faulthandler
import io
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from canopy.client.blocking import ControlClient
from canopy.client.remote import AccessFile, write_access
from canopy.wire.config import load_config
from canopy.wire.control.remote import token_file
from canopy.wire.folder import DataFolder
from canopy.wire.keys.authority import invite
from canopy.wire.keys.tokens import write_token
from canopy.wire.log import Log
from canopy.wire.process.node_process import NodeProcess, build_node
from canopy.wire.process.security import prepare_keys
from overlay.client import Draft, GetStatus, OpenSession, Publish, SessionOpened, Status, Subscribe
from overlay.rights import Role
from tests.support.real.keys import Keys
from tests.support.real.wire_rig import PATIENCE

pytestmark = pytest.mark.trio
T = TypeVar("T")

VALUE = "CanaryValue"
"""In attributes and in selectors."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


async def outside(work: Callable[[], T]) -> T:
    with trio.fail_after(PATIENCE):
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True)


def use(path: Path, secrets: list[str], said: list[str]) -> None:
    """What a program of another machine does there."""
    with ControlClient.connect(path) as client:
        opened = client.request(OpenSession(0))
        assert isinstance(opened, SessionOpened)
        secrets.append(opened.session)
        client.request(Subscribe(0, f"name = '{VALUE}'"))
        drafts = (Draft({"id": VALUE + "Id", "name": VALUE, "n": 1}), Draft({VALUE * 30: 1}))
        client.request(Publish(0, drafts))
        assert [one.event.attributes["n"] for one in client.deliveries(PATIENCE)] == [1]
        status = client.request(GetStatus(0))
        assert isinstance(status, Status)
        said.append(repr(status))


async def test_no_secret_and_with_redaction_no_value_is_written(tmp_path: Path) -> None:
    keys, log = Keys(tmp_path / "keys"), io.StringIO()
    data = keys.issuer.path.parent
    token = invite(keys.issuer, Role.LEAF, "acme", 1, 60.0, ("127.0.0.1:1",))
    invitation = write_token(token)
    access = token_file(data).add("all", ("publish", "subscribe", "observe", "admin"))
    flags = {
        "data": str(data),
        "listen": "127.0.0.1:0",
        "join": invitation,
        "directory": False,
        "clients": {"listen": f"127.0.0.1:{free_port()}"},
        "trace": {"redact": True},
    }
    config, out = load_config(flags=flags), Log("debug", log)
    security = prepare_keys(config, out)
    assert security is not None
    folder = DataFolder(config.folder, security.own.principal.id)
    process = NodeProcess(config, folder, out, build_node, security)
    path = tmp_path / "access"
    write_access(path, AccessFile(1, config.clients.listen, folder.node, access))
    secrets, said = [invitation, access, access[:20]], [repr(config.clients)]
    secrets += [key.read_text().splitlines()[1] for key in keys.issuer.path.glob("*.key")]
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(process.run)
            with trio.fail_after(PATIENCE):
                while not all(word in log.getvalue() for word in (" ready ", " programs ")):
                    await trio.sleep(0.05)
            await outside(lambda: use(path, secrets, said))
            process.drain("test")
    finally:
        faulthandler.cancel_dump_traceback_later()  # which ends a process that does not leave
        process.close_shards()
        folder.close()
    assert len(secrets) > 5
    written = {"log": log.getvalue(), "said": "".join(said)}
    for file in data.rglob("*"):
        if file.is_file() and file.suffix != ".key":
            written[str(file.relative_to(data))] = file.read_bytes().decode("latin-1")
    for name, text in written.items():
        assert not [secret for secret in secrets if secret in text], name
    traces = "".join(text for name, text in written.items() if name.startswith("traces/"))
    assert VALUE not in traces + written["log"] + written["audit"]
    for kind in ("subscribe", "publish", "deliver"):
        assert f'"kind":"{kind}"' in traces
    assert '["id","n","name"]' in traces.replace("\\", "")
    private = [data, data / "tokens", data / "audit", *(data / "traces").rglob("*")]
    assert {path.stat().st_mode & 0o077 for path in private} == {0}
