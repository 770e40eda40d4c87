"""A shard's folder checked offline, from the log's own bytes and from a receipt."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import msgspec
import pytest

from canopy.cli.main import main
from harness.logs import SHARD, LogWriter, batch, random_log
from streams.log.chunk import EVENTS, pack
from streams.log.verify import Receipt, Verified, Verifier
from tests.support.examples import seeds


def receipt_for(made: LogWriter, place: int) -> Receipt:
    chunk = made.chunks[place]
    hash_ = chunk.hash.hex()
    return Receipt("stream", 0, chunk.epoch, chunk.first, chunk.offsets, chunk.number, hash_)


def verified(files: dict[str, bytes], receipt: Receipt | None = None) -> Verified:
    return Verifier(SHARD, receipt).run(list(files), lambda name: files[name])


@pytest.mark.parametrize("seed", seeds(10))
def test_a_whole_log_is_whole_and_no_flipped_bit_is(seed: int) -> None:
    rng = Random(seed)
    made = random_log(rng)
    files = {name: bytes(data) for name, data in made.files.items()}
    whole = verified(files, receipt_for(made, -1))
    assert whole.fault is None
    assert (whole.receipt, whole.chunks, whole.rows) == (
        *("proved", len(made.chunks)),
        sum(chunk.offsets for chunk in made.chunks),
    )
    for _ in range(10):
        name = rng.choice(sorted(files))
        data = bytearray(files[name])
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)
        fault = verified({**files, name: bytes(data)}).fault
        assert fault is not None
        assert fault.segment == name
        number = next(c.number for c in made.chunks if c.number == fault.chunk)
        assert fault.at <= at < fault.at + len(made.chunks[number - 1].data)


def test_what_was_altered_with_its_crc_breaks_the_chain() -> None:
    made = random_log(Random(5), 5, 1)
    (name,) = made.files
    old = made.chunks[2]
    head = (EVENTS, old.epoch, made.chunks[1].id, old.first, old.offsets, old.time, old.rows)
    forged = pack(*head, zones=old.zones, committed=0)
    assert len(forged.data) == len(old.data)
    at = sum(len(chunk.data) for chunk in made.chunks[:2])
    data = made.load(name)
    found = verified({name: data[:at] + forged.data + data[at + len(old.data) :]})
    assert found.fault is not None
    assert (found.fault.chunk, "hashes differ" in found.fault.what) == (4, True)


def test_a_state_without_a_producer_is_found() -> None:
    made = LogWriter()
    made.begin_segment()
    made.events(batch("p", 1, 0, 2))
    made.state.producers.clear()
    made.begin_segment()
    files = {name: bytes(data) for name, data in made.files.items()}
    found = verified(files)
    assert found.fault is not None
    assert found.fault.what == "the state here is not what the log before it comes to"


def test_a_missing_segment_is_found_and_an_older_one_may_be_gone() -> None:
    made = random_log(Random(2), 12, 3)
    files = {name: bytes(data) for name, data in made.files.items()}
    first, middle, _ = sorted(files)
    gone = verified({name: data for name, data in files.items() if name != middle})
    assert gone.fault is not None
    assert gone.fault.at == 0
    rest = {name: data for name, data in files.items() if name != first}
    kept = verified(rest, receipt_for(made, 1))
    assert (kept.fault, kept.receipt) == (None, "not kept")
    other = Verifier("other/0").run(list(files), lambda name: files[name])
    assert other.fault is not None
    assert other.fault.what == "the log is not that of shard other/0"


@pytest.mark.parametrize(
    ("field", "value"), [("hash", "00" * 32), ("epoch", 99), ("first", 10_000), ("count", 0)]
)
def test_a_false_receipt_is_refuted(field: str, value: object) -> None:
    made = random_log(Random(2))
    files = {name: bytes(data) for name, data in made.files.items()}
    false = msgspec.structs.replace(receipt_for(made, 1), **{field: value})
    assert verified(files, false).receipt == "refuted"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = random_log(Random(4))
    folder = tmp_path / "0"
    folder.mkdir()
    for name, data in made.files.items():
        (folder / name).write_bytes(data)
    receipt = tmp_path / "receipt.json"
    receipt.write_bytes(msgspec.json.encode(receipt_for(made, 2)))
    assert main(["stream", "verify", str(folder), "--receipt", str(receipt)]) == 0
    assert "receipt: proved" in capsys.readouterr().out
    assert main(["stream", "verify", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["whole"] is True

    victim = folder / min(made.files)
    data = bytearray(victim.read_bytes())
    data[150] ^= 1
    victim.write_bytes(data)
    assert main(["stream", "verify", str(folder)]) == 1
    assert f"{victim.name}, byte" in capsys.readouterr().err
    assert main(["stream", "verify", str(folder), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["fault"]["segment"] == victim.name

    assert main(["stream", "verify", str(folder), "--receipt", str(victim)]) == 1
    assert "is no receipt" in capsys.readouterr().err
    assert main(["stream", "verify", str(tmp_path)]) == 1
    assert "has no segments" in capsys.readouterr().err
    assert main(["stream", "verify", str(tmp_path / "missing")]) == 2
    capsys.readouterr()
