"""Large trials go on where they were, and what was bad stays red until it is good."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.lab.record import place
from bench.proof import __main__ as proof
from bench.proof.claims import CLAIMS, Claim
from tests.fuzz.targets import TARGETS
from tests.streams.search import KINDS

ROW = "{{'n': {seeds}, 'bad': [s for s in range({seed}, {seed} + {seeds}) if s in (13, 14)]}}"
CLAIM = Claim(
    "trial",
    "A promise.",
    f'python -c "import json; print(json.dumps({ROW}))"',
    size="n",
    unit="seeds",
    lost="bad",
    red="bad",
    fast=30,
    full=60,
    step=10,
    first=10,
)


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, path in (("RESULT", "proof.json"), ("PAGE", "proof.md"), ("STATE", "state")):
        monkeypatch.setattr(proof, name, tmp_path / path)
    (tmp_path / "proof.md").touch()
    monkeypatch.setattr(proof, "CLAIMS", (CLAIM,))
    monkeypatch.setattr(proof, "commit", lambda: "abc")
    monkeypatch.setattr("bench.lab.record.commit", lambda: "abc")
    return tmp_path


def reached() -> proof.Reached:
    return proof.Reached.of(CLAIM, "", proof.known(), "abc")


def test_a_run_goes_on_where_it_was_ended(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = proof.measure

    def ended(words: list[str]) -> dict[str, Any]:
        if reached().pieces:
            raise KeyboardInterrupt
        return measure(words)

    monkeypatch.setattr(proof, "measure", ended)
    with pytest.raises(KeyboardInterrupt):
        proof.main(["trial"])
    assert (reached().next, reached().size, reached().red) == (20, 10, (13, 14))
    monkeypatch.setattr(proof, "measure", measure)
    assert proof.main(["trial"]) == 0  # the bad piece was of the run before
    assert (reached().next, reached().here, reached().pieces) == (40, 30, 3)
    lines = (rows / "state" / "trial.jsonl").read_text().splitlines()
    assert [json.loads(line)["seed"] for line in lines] == [10, 20, 30]


def test_another_commit_begins_the_fast_form_again_and_goes_on_with_the_full_one(
    rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert proof.main(["trial"]) == 1
    monkeypatch.setattr(proof, "commit", lambda: "def")
    assert proof.next_piece(CLAIM, False, "abc") is None
    assert proof.next_piece(CLAIM, False, "def") == proof.Piece(CLAIM, "", 40, 10)
    assert proof.Reached.of(CLAIM, "", proof.known(), "def").size == 30


def test_a_bad_seed_is_red_until_it_is_good(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert proof.main(["trial"]) == 1
    assert proof.main(["trial", "--red", "--seed", "13"]) == 1
    assert reached().red == (13, 14)
    mended = CLAIM._replace(command=CLAIM.command.replace("(13, 14)", "(14,)"))
    monkeypatch.setattr(proof, "CLAIMS", (mended,))
    monkeypatch.setattr("bench.lab.record.commit", lambda: "def")
    assert proof.main(["trial", "--red", "--seed", "13"]) == 0
    assert reached().red == (14,)
    assert proof.main(["trial", "--red"]) == 1
    assert reached().red == (14,)
    assert reached().next == 40
    former = mended._replace(former=(("", (14, 77)),))
    monkeypatch.setattr(proof, "CLAIMS", (former,))
    assert proof.main(["trial", "--former", "--seed", "77"]) == 0
    assert proof.main(["trial", "--former"]) == 1
    assert proof.known()[-1]["again"] == [13, 14, 77]
    assert (reached().red, reached().next) == ((14,), 40)


@pytest.mark.parametrize("command", ["python -c 1/0", "python -c print()", "/nowhere"])
def test_a_piece_that_prints_nothing_is_bad_with_all_its_seeds(rows: Path, command: str) -> None:
    added, run = proof.tried(proof.Piece(CLAIM._replace(command=command), "", 10, 2))
    assert added["red"] == [10, 11]
    assert {*place("")} <= {*run}


def test_a_figure_above_its_bound_is_bad(rows: Path) -> None:
    claim = CLAIM._replace(figure="n", figure_of="s", most=2.5)
    assert proof.tried(proof.Piece(claim, "", 20, 2))[0]["red"] == []
    added, run = proof.tried(proof.Piece(claim, "", 20, 3))
    assert added["red"] == [20, 21, 22]
    runs: list[dict[str, Any]] = []
    proof.add(runs, proof.Piece(claim, "", 20, 3), added, run)
    assert runs[0]["rows"][0]["figure"] == 3


def test_all_parsers_and_kinds_of_programs_are_tried() -> None:
    parts = {claim.name: claim.parts for claim in CLAIMS}
    assert parts["fuzz"] == tuple(TARGETS)
    assert {*parts["stream-worlds"]} == {*KINDS} - {"liars"}
