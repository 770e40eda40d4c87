"""What all commands share: waiting for a node, standard output, exit codes, help."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from canopy.cli.main import COMMANDS, main
from overlay.client import Command, Failed, Reply, Subscribed
from tests.canopy.cli.scripted_node import answer, out_of
from tests.support.real.fake_control import FakeControl

pytestmark = pytest.mark.usefixtures("no_waiting")


class TestWaiting:
    def test_a_node_that_starts_is_waited_for(self, tmp_path: Path) -> None:
        def start() -> None:
            time.sleep(0.3)
            fake.__enter__()

        fake = FakeControl(tmp_path / "n", answer)
        starting = threading.Thread(target=start)
        starting.start()
        try:
            assert main(["status", "--connect", str(tmp_path / "n"), "--wait", "30"]) == 0
        finally:
            starting.join()
            fake.__exit__()

    def test_a_long_wait_is_said(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("canopy.cli.connect.WAIT_SILENTLY", 0.0)
        where = str(tmp_path / "no node")
        assert main(["status", "--connect", where, "--wait", "0.2"]) == 3
        first, last = capsys.readouterr().err.splitlines()
        assert first.startswith("waiting 0.2 s for a node: there is no node at")
        assert last.startswith("Error: there is no node at")
        assert last.endswith(f"`canopy node --data '{where}'`"), "a shell takes it as it is"


class TestStandardOutput:
    def test_a_reader_that_had_enough_of_a_table_is_no_failure(self, node: FakeControl) -> None:
        assert reader_leaves("status", node.data) == (0, b"")

    def test_a_reader_that_goes_ends_a_subscription_that_gets_nothing(self, tmp_path: Path) -> None:
        def quiet(command: Command) -> Iterator[Reply]:
            yield Subscribed(command.request, "s1")

        with FakeControl(tmp_path / "n", quiet) as fake:
            code, err = reader_leaves("sub", fake.data, "TRUE")
        assert (code, err) == (0, b"subscribed (s1)\n")

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
    @pytest.mark.parametrize("command", [("status",), ("sub", "TRUE", "--count", "1")])
    def test_a_full_disk_is_no_bug(self, node: FakeControl, command: tuple[str, ...]) -> None:
        with open("/dev/full", "wb") as full:
            found = subprocess.run(
                [sys.executable, "-m", "canopy", *command], stdout=full, stderr=subprocess.PIPE
            )
        assert found.returncode == 1
        assert found.stderr.endswith(b"Error: cannot write: No space left on device\n")

    def test_a_closed_file_is_no_bug_and_another_does_not_take_its_place(
        self, node: FakeControl, tmp_path: Path
    ) -> None:
        """With ``2>&-`` a node's state would get what its libraries write to standard error."""
        command = shlex.join(
            [sys.executable, "-m", "canopy", "status", "--connect", str(node.data)]
        )
        found = subprocess.run(["sh", "-c", f"exec {command} >&-"], stderr=subprocess.PIPE)
        assert found.returncode == 1
        assert found.stderr.endswith(b"Error: cannot write: Bad file descriptor\n")
        state = tmp_path / "state"
        program = (
            "import os, sys; from canopy.cli.main import open_standard_files;"
            "open_standard_files(); file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY);"
            "os.write(file, b'whole'); print('x', file=sys.stderr, flush=True); os.write(2, b'y')"
        )
        command = shlex.join([sys.executable, "-c", program, str(state)])
        subprocess.run(["sh", "-c", f"exec {command} <&- >&- 2>&-"], check=True)
        assert state.read_bytes() == b"whole"


def reader_leaves(command: str, data: Path, *args: str) -> tuple[int, bytes]:
    """Exit code and standard error of a command whose output nothing reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    found = subprocess.run(
        [sys.executable, "-m", "canopy", command, *args, "--connect", str(data)],
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    os.close(writing)
    return found.returncode, found.stderr


class TestExitCodes:
    def test_no_node(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for command in (["status"], ["peers"], ["ring"], ["where", "a"], ["why", "e"], ["pub"]):
            assert main([*command, "--connect", str(tmp_path / "none")]) == 3
            assert "canopy node --data" in capsys.readouterr().err

    def test_connect_by_environment(
        self, node: FakeControl, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CANOPY_CONNECT", "/nowhere")
        assert main(["status"]) == 3
        monkeypatch.setenv("CANOPY_CONNECT", str(node.data))
        assert main(["status"]) == 0

    def test_an_address_needs_a_token(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["status", "--connect", "127.0.0.1:4470"]) == 2
        assert "canopy access add" in capsys.readouterr().err

    def test_a_silent_node_is_a_time_out(self, tmp_path: Path) -> None:
        with FakeControl(tmp_path / "n", lambda _: ()):
            where = ["--connect", str(tmp_path / "n"), "--timeout", "0.2"]
            assert main(["status", *where]) == 5
            assert main(["sub", "TRUE", *where]) == 5

    def test_what_the_node_refuses(
        self, node: FakeControl, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["why", "nope"]) == 1
        assert "no such event here" in capsys.readouterr().err
        for code, exit_code in (("usage", 2), ("selector", 2), ("refused", 1), ("time-out", 5)):

            def refuse(command: Command, code: str = code) -> list[Reply]:
                return [Failed(command.request, code, "x")]

            with FakeControl(tmp_path / code, refuse):
                assert main(["status", "--connect", str(tmp_path / code)]) == exit_code

    def test_usage(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["statsu"]) == 2
        assert "'status'" in capsys.readouterr().err
        assert main(["sub"]) == 2
        assert main(["sub", "TRUE", "--count", "0"]) == 2

    def test_a_fault_of_ours_is_one_line_unless_asked(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def broken(*_: object) -> None:
            raise RuntimeError("two\nlines")

        monkeypatch.setattr("canopy.cli.connect.open_client", broken)
        monkeypatch.delenv("CANOPY_DEBUG", raising=False)
        assert main(["status"]) == 1
        message = capsys.readouterr().err
        assert message.splitlines() == [
            "Error: RuntimeError: two lines (a bug in canopy; CANOPY_DEBUG=1 shows where)"
        ]
        monkeypatch.setenv("CANOPY_DEBUG", "1")
        assert main(["status"]) == 1
        assert "Traceback" in capsys.readouterr().err


class TestConfig:
    def test_a_good_file(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "c.yaml").write_text("listen: 127.0.0.1:7\ntree: {routing: counting}\n")
        found = json.loads(out_of(capsys, "config", "check", str(tmp_path / "c.yaml"), "--json"))
        assert (found["listen"], found["tree"]["routing"]) == ("127.0.0.1:7", "counting")
        assert "is valid" in out_of(capsys, "config", "check", str(tmp_path / "c.yaml"))

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("lisen: x", "did you mean listen"),
            ("tree: {split_at: many}", "tree.split_at"),
            ("a: [", "line"),
            ("listen: 0.0.0.0:1", "--insecure"),
        ],
    )
    def test_a_bad_file(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
    ) -> None:
        (tmp_path / "c.yaml").write_text(text)
        assert main(["config", "check", str(tmp_path / "c.yaml")]) == 2
        assert says in capsys.readouterr().err
        assert main(["node", "--config", str(tmp_path / "c.yaml")]) == 2

    def test_keys_are_explained(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert out_of(capsys, "config", "keys", "view.size", "metrics").startswith(
            'metrics.listen: ""  (now)\n    HOST:PORT that serves '
        )
        found = json.loads(out_of(capsys, "config", "keys", "tree", "--json"))
        assert found[0]["name"] == "tree.order_hold"
        assert not any("](docs/" in key["meaning"] for key in found)
        assert main(["config", "keys", "tree.leese"]) == 2
        assert "tree.leese" in capsys.readouterr().err


def test_every_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for section in COMMANDS.values():
        for name in section:
            shown = out_of(capsys, name, "--help")
            assert "Usage: canopy" in shown
            assert not re.search(r"[^\]]\.\.\.$", shown, re.M), f"{name}: a sentence is cut off"
    for name in ("node", "demo", "tui", "sub", "pub", "why", "status", "ring", "where"):
        assert f"\n  canopy {name}" in out_of(capsys, name, "--help")
    shown = out_of(capsys, "--help")
    assert all(f"  {name}  " in shown for section in COMMANDS.values() for name in section)


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import io, sys; from canopy.cli.main import main; sys.stdout = io.StringIO();"
        "main(['--help']);"
        "print([m for m in ('trio', 'pyspark', 'textual', 'lark', 'msgspec', 'rich', 'yaml')"
        " if m in sys.modules], file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, timeout=60)
    assert ended.stderr.strip() == b"[]"


def test_a_node_loads_no_spark_and_no_textual() -> None:
    code = (
        "import sys; import canopy.cli.main, canopy.cli.process.node, node;"
        "import canopy.wire.process.node_process;"
        "print([m for m in ('pyspark', 'textual', 'matplotlib', 'psutil') if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=60)
    assert ended.stdout.strip() == b"[]"


def test_unprintable_characters_stay_off_the_terminal() -> None:
    from canopy.cli.output import print_json, printable

    assert "\x1b" not in printable("\x1b[2J")
    old, sys.stdout = sys.stdout, io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    try:
        print_json({"a": "ü"})
        sys.stdout.seek(0)
        assert json.loads(sys.stdout.read()) == {"a": "ü"}
    finally:
        sys.stdout = old
