"""Lines of trace files as Arrow tables: all at once, by the rules for each of them."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from canopy.traces.analysis import parsing
from canopy.traces.analysis.parsing import stretches
from canopy.traces.analysis.parsing.blocks import BlockParser
from canopy.traces.analysis.parsing.lines import blocks_of
from canopy.traces.analysis.parsing.stretches import (
    Bounds,
    Stretch,
    records_of,
    shared_out,
    texts_of,
)
from tests.support.traces.runs import CORRUPT_LINES, busy_run

ALL = Bounds(None, None)


def record(number: int, **fields: Any) -> bytes:
    common = {"v": 2, "time": 1.5 + number, "hlc": 4, "node": "a0", "run": 1, "n": number}
    return json.dumps(common | {"kind": "ready"} | fields).encode()


def values(table: Any) -> list[dict[str, Any]]:
    """The rows without fields that are absent."""
    return [
        {name: value for name, value in row.items() if value is not None}
        for row in table.to_pylist()
    ]


def rows(text: bytes) -> list[dict[str, Any]]:
    return values(BlockParser().parse(text, "file:///a"))


def one_by_one(text: bytes) -> list[dict[str, Any]]:
    return values(BlockParser().one_by_one(text, "file:///a"))


@pytest.mark.parametrize(
    "other",
    [
        *(line for line, _ in CORRUPT_LINES),
        b"",
        b"\t",
        record(2) + record(3),  # two on a line, …
        record(2).replace(b", ", b",\n", 1),  # … and one on two
        record(2) + b"\r",
        record(2, reason={"a": [1]}),
        record(2, reason=7),
        record(2, hop=2**31),
        record(2, hop=1.5),
        record(2, hop=None, other={"b": 1}),
        record(2, name="\u20ac"),
        record(2).replace(b"a0", b"\xc3"),
        record(2).replace(b'"v"', b'"n": 9, "v"'),
        record(2, kind="deliver", event="e"),
        record(2, kind="file"),
        record(2, kind="dance"),
        record(2, v=3),
    ],
)
def test_a_block_has_the_records_that_its_lines_have(other: bytes) -> None:
    for text in (other, b"\n".join((record(1), other, record(4), b"")), record(1) + b"\n" + other):
        assert rows(text) == one_by_one(text)


def test_what_nodes_write_is_parsed_at_once(tmp_path: Path, monkeypatch: Any) -> None:
    """And has the same records as line by line."""
    busy_run(tmp_path, 4, 12)
    texts = [path.read_bytes() for path in tmp_path.rglob("*.jsonl")]
    expected = [one_by_one(text) for text in texts]
    assert sum(map(len, expected)) > 150
    monkeypatch.setattr(BlockParser, "one_by_one", None)
    assert [rows(text) for text in texts] == expected


def test_a_field_that_its_kind_does_not_have_is_left_out_whatever_is_beside_it(
    tmp_path: Path,
) -> None:
    """So that two copies of a record among different others are the same."""
    from pyarrow import parquet

    strange = record(1, attribute="a", reason=[7])
    beside = (b"", record(2, kind="unmatched", attribute="b", size=3), b"no record")
    for number, other in enumerate(beside):
        path = tmp_path / f"{number}.jsonl"
        path.write_bytes(b"\n".join((strange, other)))
        folder = tmp_path / str(number)
        stretches.store(
            records_of([Stretch(str(path), 0, path.stat().st_size)], ALL), str(folder), "part"
        )
        (found,) = values(parquet.read_table(folder / "kind=ready" / "part.parquet"))
        assert set(found) == {"v", "time", "hlc", "node", "run", "n", "file"}


def test_fields_of_a_kind_that_comes_late_are_read(monkeypatch: Any) -> None:
    monkeypatch.setattr(BlockParser, "one_by_one", None)
    parser = BlockParser()
    texts = [record(1), record(2, kind="suback", subscription="s"), record(3, kind="ready")]
    found = [values(parser.parse(text, "file:///a"))[0] for text in texts]
    assert [row.get("subscription") for row in found] == [None, "s", None]


@pytest.mark.parametrize("block", [1, 7, 40, 1000])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_each_line_is_in_one_stretch(
    block: int, end: bytes, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(stretches, "BLOCK", block)
    path = tmp_path / "a.jsonl"
    lines = [record(number, name="x" * (number * 7 % 30)) for number in range(1, 9)]
    path.write_bytes(b"\n" + b"\n".join(lines) + end)
    size = path.stat().st_size
    for cut in range(0, size + 1, 3):
        parts = [Stretch(str(path), 0, cut), Stretch(str(path), cut, size)]
        texts = [b"".join(texts_of(part)) for part in parts]
        found = [[line for line in text.split(b"\n") if line] for text in texts]
        assert found[0] + found[1] == lines, cut


def test_a_line_that_is_too_long_costs_itself_alone_in_little_memory(monkeypatch: Any) -> None:
    monkeypatch.setattr("canopy.traces.analysis.parsing.lines.LINE_BYTES", 1_000)
    for size in (1, 3, 999, 5_000):
        text = record(1) + b"\n" + b"x" * 2_500 + b"\n" + record(2) + b"\n" + b"y" * 4_000
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        found = list(blocks_of(iter(pieces)))
        lines = [line[:1] for block in found for line in block.split(b"\n") if line]
        assert lines == [b"{", b"x", b"{", b"y"], size
        assert max(map(len, found)) <= max(1_000, 2 * size)


def test_a_file_without_an_end_of_line_costs_its_rest_and_no_task_more(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(stretches, "STRETCH", 1 << 23)
    path = tmp_path / "a.jsonl"
    path.write_bytes(record(1) + b"\n" + b"x" * (40 << 20))
    tasks = shared_out([(path, path.stat().st_size)])
    assert len(tasks) == 6
    tables = [records_of(task, ALL) for task in tasks]
    assert [len(table) for table in tables] == [2] + [0] * 5
    assert tables[0]["problem"].to_pylist() == [None, "longer than 16 MB"]


def test_of_a_damaged_file_everything_before_the_damage_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a b+ü.jsonl.gz"
    text = b"\n".join(record(number, name=f"{number * 7919:x}") for number in range(1, 3000))
    packed = gzip.compress(text)
    path.write_bytes(packed[: len(packed) // 2])
    table = records_of([Stretch(str(path), 0, len(text))], ALL)
    numbers = table["n"].to_pylist()
    assert len(numbers) > 500
    assert numbers == [*range(1, len(numbers)), None]
    problem = table["problem"].to_pylist()[-1]
    assert problem.startswith("the file cannot be read to its end: Compressed file ended")
    assert set(table["file"].to_pylist()) == {path.as_uri()}
    with pytest.raises(FileNotFoundError):  # not a file of the run that this machine sees
        records_of([Stretch(str(tmp_path / "other.jsonl"), 0, 9)], ALL)


def test_records_of_other_times_are_left_out_and_lines_without_a_time_are_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.jsonl"
    lines = [*(record(number) for number in range(1, 6)), record(9, v=3), b"no record"]
    path.write_bytes(b"\n".join(lines))
    share = [Stretch(str(path), 0, path.stat().st_size)]
    found = records_of(share, Bounds(3.5, 5.5))
    assert found["n"].to_pylist() == [2, 3, None]
    assert found["problem"].to_pylist() == [None, None, "not a JSON object"]


def test_small_files_share_a_task_and_compressed_ones_are_whole() -> None:
    files = [(Path(f"/{number}.jsonl"), 1 << 20) for number in range(100)]
    tasks = shared_out(files)
    assert sorted(name for task in tasks for name, _, _ in task) == sorted(
        str(path) for path, _ in files
    )
    assert len(tasks) == 2
    (packed,) = shared_out([(Path("/a.jsonl.gz"), 1 << 30)])
    assert packed == [Stretch("/a.jsonl.gz", 0, 1 << 30)]


def test_a_worker_without_canopy_can_read(tmp_path: Path) -> None:
    """What is sent has the code with it, and needs PyArrow and msgspec alone."""
    import pyspark.cloudpickle as cloudpickle
    from pyarrow import parquet

    cloudpickle.register_pickle_by_value(parsing)  # type: ignore[no-untyped-call]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join((record(1), record(2, kind="suback", subscription="s"), b"no")))
    (share,) = shared_out([(path, path.stat().st_size)])
    plain = [tuple(each) for each in share]
    sent = cloudpickle.dumps((stretches.task(str(tmp_path / "out"), ALL), plain))
    code = """
import sys
sys.modules["canopy"] = None
import pickle
run, share = pickle.loads(sys.stdin.buffer.read())
((tally, offsets),) = run(7, iter([share]))
print(sum(tally["count"].to_pylist()), offsets["records"].to_pylist())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], input=sent, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b"3 [2]\n"
    kinds = {
        path.parent.name: parquet.read_table(path).to_pylist()
        for path in (tmp_path / "out").rglob("part-00007.parquet")
    }
    assert set(kinds) == {"kind=ready", "kind=suback", "kind=corrupt"}
    assert kinds["kind=suback"][0]["subscription"] == "s"
