"""Compiled kernels: stored once, loaded without numba, never from a damaged or foreign file."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from matching import compile_selector
from matching.engine import block_engine
from matching.engine.block_engine import BlockEngine
from matching.engine.kernels import code_cache, compiler
from matching.engine.kernels.code_cache import ENTRIES
from matching.engine.kernels.loader import bind, builtin, kernels, load_or_compile

NAMES = tuple(ENTRIES)
KERNELS = Path(code_cache.__file__).parent


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own, with copies of the stored kernels."""
    kernels()
    theirs, own = code_cache.cache_folder(), tmp_path / "canopy"
    assert theirs is not None
    own.mkdir(mode=0o700)
    for file in code_cache.find():
        shutil.copy2(theirs / file, own)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return own


def with_suffix(place: Path, suffix: str) -> Path:
    return next(place.glob(f"*{suffix}"))


def agrees_with_brute_force() -> bool:
    """An engine that grows, overflows and shrinks."""
    text = "x BETWEEN {} AND {} AND y >= {}"
    made = [compile_selector(text.format(n % 97, n % 97 + 5, n % 7)) for n in range(1500)]
    items = [(n, predicate.conjunctions[0]) for n, predicate in enumerate(made)]
    engine = BlockEngine([conjunction for _, conjunction in items])
    engine.add_many(items[:700])
    for label, conjunction in items[700:]:
        engine.add(label, conjunction)
    for label in range(0, 1500, 3):
        engine.remove(label)
    for x in range(0, 100, 7):
        event = {"x": x, "y": x % 9}
        expected = [n for n, predicate in enumerate(made) if n % 3 and predicate.matches(event)]
        if sorted(engine.match(event)[0].tolist()) != expected:
            return False
    return True


def test_a_process_loads_them_without_numba(place: Path) -> None:
    if not list(place.glob("*.so")):
        pytest.skip("there was no linker")
    with_suffix(place, ".o").unlink()
    code = """if True:
        import sys
        from matching import Index, attr, warm, warm_is_slow
        assert not warm_is_slow()
        warm()
        index = Index(change_over=1)
        index.add_many((n, attr("x") >= n) for n in range(600))
        assert index.match({"x": 2}) == [0, 1, 2] and index.block_engine
        assert not {"numba", "llvmlite"} & set(sys.modules)
    """
    path = os.pathsep.join(entry for entry in sys.path if entry)
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": path})


def test_a_kernel_is_compiled_linked_stored_and_loaded(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them: all take seconds, which are spent where their text has changed."""
    shutil.rmtree(place)
    monkeypatch.setattr(compiler, "ENTRIES", {"remove": ENTRIES["remove"]})
    with code_cache.exclusive():
        remove = builtin("remove", compiler.compile_and_store()["remove"])
    assert sorted(path.suffix for path in place.glob("kernels-*"))[0] == ".o"
    conjunctions = [compile_selector(f"x >= {n}").conjunctions[0] for n in range(3)]
    engine = BlockEngine(conjunctions)
    engine.add_many(list(enumerate(conjunctions)))
    remove(engine.address, int(engine._memory.where[1]))
    assert sorted(engine.match({"x": 5})[0].tolist()) == [0, 2]


def test_without_a_linker_the_object_file_is_loaded(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = with_suffix(place, ".o").read_bytes()
    shutil.rmtree(place)
    monkeypatch.setattr(compiler, "object_file", lambda: code)
    monkeypatch.setenv("PATH", "")
    addresses = load_or_compile()
    assert [Path(name).suffix for name in code_cache.find()] == [".o"]
    monkeypatch.setattr(block_engine, "kernels", lambda: bind(addresses))
    assert agrees_with_brute_force()


def test_what_cannot_be_stored_works_nevertheless(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = with_suffix(place, ".o").read_bytes()
    monkeypatch.setattr(compiler, "object_file", lambda: code)
    monkeypatch.setenv("XDG_CACHE_HOME", str(with_suffix(place, ".o")))
    addresses = load_or_compile()
    assert code_cache.find() == []
    monkeypatch.setattr(block_engine, "kernels", lambda: bind(addresses))
    assert agrees_with_brute_force()


def test_a_damaged_file_is_deleted_and_the_next_one_loaded(place: Path) -> None:
    for path in map(place.joinpath, code_cache.find()):
        assert code_cache.load(NAMES)
        data = path.read_bytes()
        path.unlink()  # what is loaded must not be written to
        path.write_bytes(data[:-100])
    assert code_cache.load(NAMES) is None
    assert code_cache.find() == []


def test_a_file_without_all_entries_is_deleted(place: Path) -> None:
    assert code_cache.load((*NAMES, "another")) is None
    assert code_cache.find() == []


def test_what_others_may_write_to_is_not_trusted(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.chmod(0o777)
    assert code_cache.load(NAMES) is None
    place.chmod(0o700)
    assert code_cache.load(NAMES)
    with monkeypatch.context() as another:
        another.setattr(os, "getuid", lambda: os.geteuid() + 1)
        assert code_cache.load(NAMES) is None
    for path in map(place.joinpath, code_cache.find()):
        path.chmod(0o620)
    assert code_cache.load(NAMES) is None


def test_a_folder_that_others_could_write_to_is_closed_to_them(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = with_suffix(place, ".o").read_bytes()
    monkeypatch.setattr(compiler, "object_file", lambda: code)
    place.chmod(0o777)
    assert not code_cache.find()
    assert load_or_compile()
    assert place.stat().st_mode & 0o777 == 0o700
    assert code_cache.find()


def test_a_link_is_not_followed(place: Path) -> None:
    for name in code_cache.find():
        elsewhere = place / name.replace("kernels", "elsewhere")
        (place / name).rename(elsewhere)
        (place / name).symlink_to(elsewhere)
    assert code_cache.load(NAMES) is None


def test_only_one_compiles(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = with_suffix(place, ".o").read_bytes()
    shutil.rmtree(place)
    compiled, found = [], []
    both = threading.Barrier(2, timeout=60)

    def object_file() -> bytes:
        compiled.append(1)
        return code

    def make() -> None:
        both.wait()
        found.append(load_or_compile())

    monkeypatch.setattr(compiler, "object_file", object_file)
    threads = [threading.Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 2
    assert compiled == [1]


def test_old_files_go(place: Path) -> None:
    for number in range(code_cache.MAX_FILES + 3):
        code_cache.store(b"%d" % number, ".so")
    assert len(list(place.glob("kernels-*"))) == code_cache.MAX_FILES


def test_all_that_the_code_is_made_from_is_in_the_key() -> None:
    for source in code_cache.SOURCES:
        tree = ast.parse((KERNELS / f"{source}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("matching"):
                module = (node.module or "").rpartition(".")[2]
                names = [n.name for n in node.names] if module == "kernels" else [module]
                known = {*code_cache.SOURCES, "code_cache"}
                assert set(names) <= known, f"{source} imports {names}"
