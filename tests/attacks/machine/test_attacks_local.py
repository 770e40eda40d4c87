"""Other users of the machine, and who changes what was written down."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from canopy.cli.main import canopy, main
from canopy.cli.process.node import is_shown
from canopy.sync.databases import shown
from canopy.wire import audit
from canopy.wire.audit import FIRST, append, verify
from canopy.wire.config import NodeConfig
from canopy.wire.control import client_connection
from canopy.wire.durable import FolderError
from canopy.wire.folder import DataFolder
from canopy.wire.keys.authority import invite, revoke
from canopy.wire.keys.tokens import PREFIX
from canopy.wire.log import Log
from canopy.wire.process.listener import StartError
from canopy.wire.process.reload import ConfigSource, Reloading
from canopy.wire.process.security import prepare_keys, token_text
from canopy.wire.process.trace_shipper import open_trace, secure_traces
from overlay.rights import Role
from tests.support.real.keys import Keys


def written(folder: Path) -> list[str]:
    for number in range(4):
        append(folder, "invited", name=f"n{number}", tenant="akme\u0301")
    return (folder / "audit").read_text().splitlines(keepends=True)


def test_what_was_written_down_is_whole(tmp_path: Path) -> None:
    assert verify_lines(tmp_path, written(tmp_path)) == (4, "")
    assert (tmp_path / "audit").stat().st_mode & 0o777 == 0o600
    append(tmp_path, "revoked", nodes=["aa"])
    assert verify(tmp_path).lines == 5


def verify_lines(folder: Path, lines: list[str]) -> tuple[int, str]:
    (folder / "audit").write_text("".join(lines))
    found = verify(folder)
    return found.lines, found.damage


def test_no_line_is_changed_taken_out_or_put_in_unseen(tmp_path: Path) -> None:
    lines = written(tmp_path)
    other = json.loads(lines[1])
    other["name"] = "nobody"
    changed = json.dumps(other, separators=(",", ":")) + "\n"
    del other["hash"]  # who changes a line can hash it again, and the next one does not follow
    other["hash"] = audit._hash(json.loads(lines[0])["hash"], other)
    forged = json.dumps(other, separators=(",", ":")) + "\n"
    for wrong, whole in (
        ([lines[0], changed, *lines[2:]], 1),
        ([lines[0], forged, *lines[2:]], 2),
        ([*lines[:2], lines[3]], 2),
        ([lines[1]], 0),
        ([*lines, lines[3]], 4),
        ([*lines[:3], lines[3][:-9]], 3),
        ([lines[0], "[1]\n"], 1),
    ):
        found = verify_lines(tmp_path, wrong)
        assert found[0] == whole
        assert found[1]
    assert verify_lines(tmp_path, []) == (0, "")
    assert verify(tmp_path).last == FIRST


def test_keys_are_written_down_without_their_secrets(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    token = invite(keys.issuer, Role.LEAF, "acme", 1, 60.0, ("127.0.0.1:1",))
    revoke(keys.issuer, ("a" * 32,))
    folder = keys.issuer.path.parent
    found = verify(folder)
    assert (found.lines, found.damage) == (3, "")
    text = (folder / "audit").read_text()
    kinds = [json.loads(line)["kind"] for line in text.splitlines()]
    assert kinds == ["overlay founded", "invited", "revoked"]
    assert token.secret.hex() not in text


def test_a_linked_or_foreign_data_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "true").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "true")
    with pytest.raises(FolderError, match="is a link"):
        DataFolder(tmp_path / "link")
    monkeypatch.setattr(os, "getuid", lambda: 12_345)
    with pytest.raises(FolderError, match="another user"):
        DataFolder(tmp_path / "true")


def test_a_trace_file_is_private_and_no_link(tmp_path: Path) -> None:
    path = tmp_path / "traces" / "a"
    open_trace(str(path)).close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    (tmp_path / "traces" / "b").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        open_trace(str(tmp_path / "traces" / "b"))


def test_a_linked_or_foreign_trace_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "traces"
    secure_traces(folder)  # it is made later
    open_trace(str(folder / "date=1" / "node=a" / "a")).close()
    folder.chmod(0o777)
    secure_traces(folder)
    assert folder.stat().st_mode & 0o777 == 0o755
    (tmp_path / "link").symlink_to(folder)
    (folder / "date=2").mkdir()
    (folder / "date=2" / "node=a").symlink_to(tmp_path)
    with pytest.raises(StartError, match="is a link"):
        secure_traces(tmp_path / "link")
    with pytest.raises(OSError, match="a link, or another user's"):
        open_trace(str(folder / "date=2" / "node=a" / "a"))
    monkeypatch.setattr(os, "getuid", lambda: 12_345)
    with pytest.raises(StartError, match="another user"):
        secure_traces(folder)
    with pytest.raises(OSError, match="another user"):
        open_trace(str(folder / "date=1" / "node=a" / "b"))


class Socket:
    """A socket whose other end is of some user."""

    def __init__(self, user: int) -> None:
        self.user = user

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        return b"".join(n.to_bytes(4, "little") for n in (77, self.user, 5))


def test_programs_of_other_users_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1_000)
    own = [client_connection.is_own_user(Socket(user)) for user in (1_000, 0, 1_001)]  # type: ignore[arg-type]
    assert own == [True, True, False]


def test_a_token_is_shown_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    canary, log = "canopy1.CANARYSECRET", io.StringIO()
    monkeypatch.setenv("CANOPY_JOIN", canary)
    for arguments in (["config", "check"], ["config", "check", "--json"]):
        found = CliRunner().invoke(canopy, arguments)
        assert found.exit_code == 0
        assert "CANARY" not in found.output
    config = NodeConfig(join=canary, data=str(tmp_path / "node"))
    with pytest.raises(StartError) as refused:
        prepare_keys(config, Log("debug", log))
    assert "CANARY" not in str(refused.value) + log.getvalue()


def test_a_token_may_be_in_a_private_file(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    file.write_text("canopy1.abc\n")
    file.chmod(0o600)
    assert token_text(f"@{file}") == "canopy1.abc"
    file.chmod(0o640)
    with pytest.raises(StartError, match=r"read by other users; .* chmod 600 '.*/a token'$"):
        token_text(f"@{file}")
    with pytest.raises(StartError, match="cannot read"):
        token_text(f"@{tmp_path}/none")


def test_a_password_in_the_url_of_a_database_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor one that a URL should have escaped, or among its parameters."""
    told = ["postgresql://bob:CANARY@h:5/x", "mariadb://bob:CAN/A@RY@h/x"]
    told += ["postgresql://h:5/x?password=CANARY&user=bob", "postgresql://:CANARY@h/x"]
    assert [shown(url) for url in told] == [
        "postgresql://bob:…@h:5/x",
        "mariadb://bob:…@h/x",
        "postgresql://h:5/x?password=…&user=bob",
        "postgresql://:…@h/x",
    ]
    for plain in ("postgresql://bob@h:5/x", "sqlite:/a:b@c", "postgresql://h:5/x?options=a@b"):
        assert shown(plain) == plain
    file = tmp_path / "url"
    file.write_text(told[0] + "\n")
    file.chmod(0o600)
    where = ["--config", str(tmp_path / "syncs.json"), "--stream", "s"]
    assert main(["sync", "add", "one", *where, "--from", f"@{file}"]) == 0
    assert "CANARY" not in "".join(capsys.readouterr())
    assert "CANARY" in (tmp_path / "syncs.json").read_text()
    assert main(["sync", "add", "two", *where, "--from", told[0]]) == 0
    said = "".join(capsys.readouterr())
    assert "other users could read it" in said
    assert "--from @FILE" in said
    file.chmod(0o644)
    assert main(["sync", "add", "one", *where, "--from", f"@{file}"]) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_a_token_among_the_arguments_is_overwritten() -> None:
    """`ps` shows the rest of them as before."""
    program = (
        "from canopy.cli.arguments import hide; from canopy.cli.process.node import TOKEN;"
        "assert hide(TOKEN);"
        "import sys; sys.stdout.buffer.write(open('/proc/self/cmdline', 'rb').read())"
    )
    words = ["--join", PREFIX + "A" * 40, "--listen", "127.0.0.1:0"]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, check=True)
    shown = done.stdout.decode().split("\0")[3:-1]
    assert shown == ["--join", "x" * (len(PREFIX) + 40), "--listen", "127.0.0.1:0"]
    assert is_shown(words[1])
    assert not any(map(is_shown, ("@file", "", None)))


def test_a_reload_says_that_keys_are_refused(tmp_path: Path) -> None:
    """And takes nothing on, as with a configuration that is invalid."""
    read: list[str] = []

    def config() -> NodeConfig:
        read.append("config")
        return NodeConfig()

    def apply(held: NodeConfig, found: NodeConfig) -> None:
        read.append("applied")

    keys = Keys(tmp_path)
    security = keys.security()
    (keys.issuer.path / "node.key").chmod(0o644)
    reloading = Reloading(ConfigSource("", config), Log("debug", io.StringIO()), apply, security)
    outcome = reloading.reload(NodeConfig())
    assert "the former ones hold on" in outcome.refused
    assert "chmod 600" in outcome.refused
    assert not read
    (keys.issuer.path / "node.key").chmod(0o600)
    assert not reloading.reload(NodeConfig()).refused
