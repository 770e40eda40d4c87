"""What programs may put into events."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

import canopy
from canopy.client.errors import UnreachableError
from canopy.client.publishing import no_value
from overlay.client import Draft


@pytest.mark.parametrize(("value", "kind"), [([1], "list"), (b"x", "bytes"), ({}, "dict")])
def test_values_that_no_attribute_has_are_named(value: object, kind: str) -> None:
    said = no_value([Draft({"a": 1}), Draft({"a": 1, "x": value})])  # type: ignore[dict-item]
    assert said.startswith(f"attribute 'x' of event 1 is a {kind}")
    assert not no_value([Draft({"a": True, "b": 1.5, "c": "x", "d": None})])


def test_a_program_hears_why_a_node_has_ended_its_connection(tmp_path: Path) -> None:
    events: list[Any] = [{"n": 1}, {"n": [1]}]
    with socket.socket(socket.AF_UNIX) as node:
        node.bind(str(tmp_path / "control.sock"))
        node.listen()

        def end_connections() -> None:
            for _ in range(2):
                connection, _ = node.accept()
                connection.recv(1 << 16)
                connection.close()

        thread = threading.Thread(target=end_connections)
        thread.start()
        for method, arguments in (("append", ("s", events)), ("publish_many", (events,))):
            ended = pytest.raises(UnreachableError)
            with canopy.connect(tmp_path, reconnect=0.0) as client, ended as failed:
                getattr(client, method)(*arguments)
            assert "attribute 'n' of event 1 is a list" in "\n".join(failed.value.__notes__)
        thread.join(30)
