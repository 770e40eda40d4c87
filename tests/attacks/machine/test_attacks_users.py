"""Other users of the machine, at the port of a node without keys."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import trio

from canopy.wire.config import NodeConfig
from canopy.wire.durable import CopiedFolderError
from canopy.wire.folder import DataFolder
from canopy.wire.log import Log
from canopy.wire.process.node_process import NodeProcess, build_node
from canopy.wire.transport import local_users
from canopy.wire.transport.framing import NODE_FRAMES
from canopy.wire.transport.local_users import LocalUsers, owner_of
from overlay.links.events import IdentityConflict
from overlay.links.messages import PROTOCOL, Hello
from overlay.machine import Peer
from tests.attacks.test_attacks_transport import closed, heard_nothing
from tests.support.real.wire_rig import rig

HELLO = NODE_FRAMES.encode(Hello(PROTOCOL, "canopy", Peer("x", "x:1"), 1, 0, 0, 1 << 20))
NOBODY = 65_534

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel does not say it")


@linux
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
@pytest.mark.parametrize("has_netlink", [True, False])
def test_the_kernel_says_whose_a_socket_is(
    family: int, has_netlink: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By either way; and of one that its program has closed that it is nobody's."""
    if not has_netlink:

        def absent(*arguments: object) -> None:
            raise OSError("no such family")

        monkeypatch.setattr(local_users, "_ask", absent)
    host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    with closing(socket.create_server((host, 0), family=family)) as listener:
        at = listener.getsockname()[:2]
        client = socket.create_connection(at)
        mine = client.getsockname()[:2]
        accepted, _ = listener.accept()
        with closing(accepted):
            for local, remote in ((mine, at), (at, mine), (at, ("", 0))):
                found = owner_of(family, local, remote)
                assert found is not None
                assert found.user == os.getuid()
                assert found.inode
            client.shutdown(socket.SHUT_WR)
            found = owner_of(family, mine, at)
            assert found is not None
            assert found.inode  # it has said all, and is there still
            client.close()
            gone = owner_of(family, mine, at)
            assert gone is None or not gone.inode
    assert owner_of(family, at, ("", 0)) is None


@linux
@pytest.mark.trio
async def test_programs_of_other_users_are_not_heard() -> None:
    """Whoever of the two has dialled; they hear why, and the log does once."""
    other = LocalUsers((os.getuid() + 1,))
    async with rig(users=other) as node, rig() as free:
        for _ in range(3):
            stream = await node.dial()
            with trio.move_on_after(1.0):
                await stream.send_all(HELLO)
            assert b"another user" in await closed(stream)
        node.driver.dial(free.address)
        reason = (await node.has("closed"))[2]
        assert "a program of another user" in str(reason)
        assert {one[0] for one in node.node.inputs} <= {"start", "tick", "closed"}
        assert node.driver.counters.users_refused == 4
        assert node.log.getvalue().count("warning user_refused") == 1
    async with rig(users=LocalUsers()) as node:
        stream = await node.dial()
        await stream.send_all(HELLO)
        await node.has("frames")


PROGRAM = f"""
import os, socket, sys
os.setuid({NOBODY})
found = socket.socket()  # (modules that are not loaded yet cannot be read now)
found.connect((b"127.0.0.1", int(sys.argv[1])))
found.sendall(bytes.fromhex(sys.argv[2]))
if sys.argv[3] == "stays":
    sys.exit(b"another user" not in found.recv(65536))
"""


@linux
@pytest.mark.trio
@pytest.mark.skipif(os.getuid() != 0, reason="only root is other users")
@pytest.mark.parametrize("how", ["stays", "goes"])
async def test_another_user_of_the_machine_is_refused(how: str) -> None:
    """Also one who connects, writes and goes, whose socket the kernel then shows as root's."""
    async with rig(users=LocalUsers()) as node:
        words = [sys.executable, "-c", PROGRAM, node.address.split(":")[1], HELLO.hex(), how]
        if how == "goes":  # the node is busy meanwhile
            subprocess.run(words, check=True, timeout=30)
        else:
            done = await trio.run_process(words, check=False)
            assert done.returncode == 0
        with trio.fail_after(20.0):
            while not node.driver.counters.users_refused:
                await trio.sleep(0.01)
        assert heard_nothing(node)


@pytest.mark.parametrize("insecure", [False, True])
def test_no_hello_ends_a_node_whose_id_is_locked_on_the_machine(
    tmp_path: Path, insecure: bool
) -> None:
    """Only where others can come from other machines may a later process of the node be there."""
    config = NodeConfig(listen="127.0.0.1:0", data=str(tmp_path), insecure=insecure)
    folder, out = DataFolder(tmp_path), io.StringIO()
    process = NodeProcess(config, folder, Log("debug", out), build_node)
    conflict = IdentityConflict(Peer(folder.node, "127.0.0.1:1"), 1 << 40, True)
    try:
        if insecure:
            with pytest.raises(CopiedFolderError):
                process._on_conflict(conflict)
        else:
            process._on_conflict(conflict)
            assert "identity_refused" in out.getvalue()
    finally:
        process.close_shards()
        folder.close()
