"""The JavaScript client in Node, beside a gateway that fails as told, and its package. It is at a
real one in test_gateway_clients.py."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest

from harness.real_overlay import PATIENCE, ROOT

CLIENT: Final = ROOT / "canopy" / "gateway" / "javascript"
TESTS: Final = Path(__file__).with_name("javascript")
NODE: Final = shutil.which("node") or ""


@pytest.mark.skipif(not NODE, reason="not installed: node")
def test_the_client_s_promises_hold_beside_a_gateway_that_fails() -> None:
    command = [NODE, "--test", TESTS / "client.test.mjs"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_types_are_those_of_the_client() -> None:
    """canopy.d.ts is made from the comments of canopy.js (`npm run types`), and not forgotten."""

    def comments(name: str, before: str) -> list[str]:
        text = (CLIENT / name).read_text("utf-8").partition("\nclass ")[0]  # what is its own
        found = re.findall(rf"/\*\*((?:(?!\*/).)*)\*/\s*{before}", text, re.DOTALL)
        return [" ".join(one.replace("\n", " ").replace(" * ", " ").split()) for one in found]

    public = comments("canopy.js", r"(?:export class|(?:async )?\w+\()")
    assert len(public) > 15
    assert [one for one in public if one not in comments("canopy.d.ts", "")] == []


def test_the_package_has_the_version_of_the_project() -> None:
    about = json.loads((CLIENT / "package.json").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (about["version"], about["license"]) == (project["version"], project["license"])
    assert set(about["files"]) < {path.name for path in CLIENT.iterdir()}
