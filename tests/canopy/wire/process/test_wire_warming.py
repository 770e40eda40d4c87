"""The fast matching engine is compiled apart, and only once some index has become large."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import pytest
import trio
import trio.testing

import matching
from canopy.wire.log import Log
from canopy.wire.process.matching_setup import compile_apart, prepare_matching


@pytest.mark.trio
@pytest.mark.parametrize("is_kept", [False, True])
async def test_it_is_compiled_beside_the_node_when_it_is_wanted(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock, is_kept: bool
) -> None:
    wanted: list[bool] = []
    threads: list[int] = []
    monkeypatch.setattr(matching, "warm_wanted", lambda: bool(wanted))
    monkeypatch.setattr(matching, "warm", lambda: threads.append(threading.get_ident()))
    monkeypatch.setattr(matching, "warm_is_slow", lambda: not is_kept)
    apart: list[str] = []

    async def compile_apart() -> None:
        assert threads == [], "before this process reads what was compiled"
        apart.append("done")

    monkeypatch.setattr("canopy.wire.process.matching_setup.compile_apart", compile_apart)
    parser: list[int] = []
    monkeypatch.setattr(matching, "prepare_parser", lambda: parser.append(threading.get_ident()))
    out = io.StringIO()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(prepare_matching, Log("info", out))
        await trio.sleep(60)
        assert threads == []
        wanted.append(True)
    assert parser
    assert parser != [threading.get_ident()], "a turn would last as long"
    assert threads
    assert apart == ([] if is_kept else ["done"])
    assert threads != [threading.get_ident()]
    assert "matching_warm" in out.getvalue()


@pytest.mark.trio
async def test_another_process_compiles_and_its_failure_is_no_matter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    monkeypatch.setattr(
        "canopy.wire.process.matching_setup.COMPILE",
        f"import matching, pathlib as p; p.Path({str(done)!r}).touch()",
    )
    await compile_apart()
    assert done.exists(), "it finds the package where this process has it"
    monkeypatch.setattr("canopy.wire.process.matching_setup.COMPILE", "raise SystemExit(3)")
    await compile_apart()
    monkeypatch.setattr("sys.executable", str(tmp_path / "nowhere"))
    await compile_apart()
