"""Tries what is promised, piece by piece, for as long as time allows.

    python -m bench.proof                        # each claim: what was reached, what is left
    python -m bench.proof soak                   # until the present commit has the fast form's size
    python -m bench.proof soak churn --for 30    # … for half an hour each, at most
    python -m bench.proof soak --full --for 600  # until all commits together have the full one's
    python -m bench.proof soak --red             # the seeds that were bad, once more
    python -m bench.proof soak --red --seed 47   # one of them
    python -m bench.proof soak --former          # seeds at which a former commit was bad

A piece is one run of the claim's command, with seeds that no piece had before. A run that is ended
loses only the piece that was under way: what a piece has found goes at once to
bench/results/proof.json, a row for each claim, part and commit, with the commit, the date, the
processor and the load (the least and the most). docs/lab/proof.md shows what all commits together
have tried. Each piece is also a line of build/proof/NAME.jsonl; that of a bad one has all that the
command has printed. A seed that was bad stays red, also in the rows of later commits, until it is
tried again and is good. One run goes on at a time.

The exit code is 1 if a piece of this run was bad.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import shlex
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from bench.lab import tables
from bench.lab.record import RESULTS, ROOT, commit, measure, place, write
from bench.lab.tables import PAGES, rows_of, value
from bench.proof.claims import CLAIMS, Claim

RESULT: Final = RESULTS / "proof.json"
PAGE: Final = PAGES / "proof.md"
STATE: Final = ROOT / "build" / "proof"

Row = dict[str, Any]


class Piece(NamedTuple):
    """Some seeds of a claim's part."""

    claim: Claim
    part: str
    seed: int
    seeds: int
    again: bool = False

    @property
    def command(self) -> str:
        """Return the command line that tries it."""
        return self.claim.command.format(seed=self.seed, seeds=self.seeds, part=self.part)

    def __str__(self) -> str:
        last = f" to {self.seed + self.seeds - 1}" if self.seeds > 1 else ""
        return f"{self.part + ', ' if self.part else ''}seed {self.seed}{last}"


class Reached(NamedTuple):
    """What the rows of a claim's part say together."""

    next: int
    size: int
    here: int
    """Units of the present commit."""
    hours: float
    pieces: int
    red: tuple[int, ...]

    @classmethod
    def of(cls, claim: Claim, part: str, rows: Iterable[Row], now: str) -> Reached:
        """`now`: the present commit."""
        mine = [row for row in rows if row["claim"] == claim.name and row["part"] == part]
        return cls(
            max((row["next"] for row in mine), default=claim.first),
            sum(row["size"] for row in mine),
            sum(row["size"] for row in mine if row["run"]["commit"] == now),
            sum(row["hours"] for row in mine),
            sum(row["pieces"] for row in mine),
            tuple(mine[-1]["red"]) if mine else (),
        )


def amount(found: Any) -> float:
    """What a number, a list or a dictionary of the command's rows counts."""
    if isinstance(found, dict):
        return sum(map(amount, found.values()))
    return found if isinstance(found, int | float) else len(found or ())


def counted(rows: Iterable[Row], paths: str) -> int:
    """The sum over these rows of what stands under each of these paths."""
    return round(sum(amount(value(row, path)) for row in rows for path in paths.split()))


def tried(piece: Piece) -> tuple[Row, dict[str, Any]]:
    """Run the command of a piece. Returns what it adds to its row, and the run as it was."""
    claim, began = piece.claim, time.monotonic()
    seeds = list(range(piece.seed, piece.seed + piece.seeds))
    try:
        run = measure(shlex.split(piece.command))
    except (OSError, ValueError) as error:
        run = {**place(piece.command), "rows": [], "exit_code": -1, "error": str(error)}
    rows = run["rows"]
    figures = [found for row in rows if (found := value(row, claim.figure)) is not None]
    figure = max(figures, default=None)
    lost = counted(rows, claim.lost)
    is_bad = lost or run.get("exit_code") or (figure or 0) > claim.most
    named = [seed for row in rows for seed in value(row, claim.red) or ()] if claim.red else []
    added = {
        "size": counted(rows, claim.size),
        "faults": counted(rows, claim.faults) if claim.faults else None,
        "lost": lost,
        "figure": figure,
        "hours": round((time.monotonic() - began) / 3600, 4),
        "red": (named or seeds) if is_bad else [],
        "again": seeds if piece.again else [],
        "next": piece.seed + piece.seeds if not piece.again else piece.claim.first,
    }
    return added, run


def add(runs: list[dict[str, Any]], piece: Piece, added: Row, run: dict[str, Any]) -> None:
    """Add what a piece has found to the row of its claim, part and commit."""
    claim, same = piece.claim, ("commit", "processor", "cores")
    for head in runs:
        if head["command"] == claim.command and all(head[key] == run[key] for key in same):
            break
    else:
        head = {**{key: run[key] for key in (*same, "date", "load")}, "rows": []}
        head = {"command": claim.command, **head}
        runs.append(head)
    loads = *head["load"], *run["load"]
    head["date"], head["load"] = run["date"], [min(loads), max(loads)]
    row = next((row for row in head["rows"] if row["part"] == piece.part), None)
    if row is None:
        rows = [row for run in runs for row in run["rows"] if row["claim"] == claim.name]
        reds = [row["red"] for row in rows if row["part"] == piece.part]
        row = {"claim": claim.name, "part": piece.part, "pieces": 0, "unit": claim.unit}
        row["red"] = reds[-1] if reds else []
        head["rows"].append(row)
    row["pieces"] += 1
    for key in ("size", "faults", "lost", "hours"):
        if added[key] is not None:
            row[key] = round(row.get(key, 0) + added[key], 4)
    if added["figure"] is not None:
        row["figure"] = max(row.get("figure", added["figure"]), added["figure"])
        row["figure_of"] = claim.figure_of
    row["next"] = max(row.get("next", 0), added["next"])
    row["again"] = sorted({*row.get("again", ()), *added["again"]})
    good = {*added["again"]} - {*added["red"]}
    row["red"] = sorted({*row["red"], *added["red"]} - good)


def keep(piece: Piece, added: Row, run: dict[str, Any]) -> None:
    """Write down what a piece has found, and make the page again."""
    line = {"seed": piece.seed, "seeds": piece.seeds, "part": piece.part, **added}
    line |= run if added["red"] else {key: item for key, item in run.items() if key != "rows"}
    with (STATE / f"{piece.claim.name}.jsonl").open("a", encoding="utf-8") as state:
        print(json.dumps(line, ensure_ascii=False), file=state)
    runs = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else []
    add(runs, piece, added, run)
    write(RESULT, runs)
    PAGE.write_text(tables.page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def known() -> list[Row]:
    """All rows, each with its run."""
    return list(rows_of(RESULT)) if RESULT.exists() else []


def next_piece(claim: Claim, is_full: bool, now: str) -> Piece | None:
    """Of the part that is furthest from its aim; None if all have reached theirs."""
    rows, aim = known(), claim.full if is_full else claim.fast
    reached = {part: Reached.of(claim, part, rows, now) for part in claim.parts}
    sizes = {part: each.size if is_full else each.here for part, each in reached.items()}
    part = min(sizes, key=lambda name: (sizes[name] >= aim, reached[name].pieces))
    return None if sizes[part] >= aim else Piece(claim, part, reached[part].next, claim.step)


def red_pieces(claim: Claim, seed: int | None) -> Iterator[Piece]:
    """The seeds that were bad, one at a time."""
    for part in claim.parts:
        for red in Reached.of(claim, part, known(), commit()).red:
            if seed in (None, red):
                yield Piece(claim, part, red, 1, again=True)


def former_pieces(claim: Claim, seed: int | None) -> Iterator[Piece]:
    """The seeds at which a former commit was bad, one at a time."""
    for part, seeds in claim.former:
        for former in seeds:
            if seed in (None, former):
                yield Piece(claim, part, former, 1, again=True)


def pieces(claim: Claim, options: argparse.Namespace) -> Iterator[Piece]:
    """What is to be tried, one after the other."""
    if options.former:
        yield from former_pieces(claim, options.seed)
        return
    if options.red:
        yield from red_pieces(claim, options.seed)
        return
    while (piece := next_piece(claim, options.full, commit())) is not None:
        yield piece


def work(claim: Claim, options: argparse.Namespace) -> bool:
    """Try a claim for as long as is allowed; whether all went well. A piece is not begun if it
    takes longer than there is time, in the mean of those before."""
    began, done, is_good = time.monotonic(), 0, True
    for piece in pieces(claim, options):
        spent = time.monotonic() - began
        if done and options.minutes and spent + spent / done > options.minutes * 60:
            break
        print(f"{said(claim, options.full)}\n  {piece} …", file=sys.stderr, flush=True)
        added, run = tried(piece)
        keep(piece, added, run)
        done, is_good = done + 1, is_good and not added["red"]
        figure = "" if added["figure"] is None else f", {added['figure']:g} {claim.figure_of}"
        bad = f", RED: {added['red']}" if added["red"] else ""
        print(
            f"  {added['size']:,} {claim.unit}, {added['lost']} lost{figure}, "
            f"{added['hours'] * 3600:.0f} s{bad}",
            file=sys.stderr,
            flush=True,
        )
    print(said(claim, options.full), file=sys.stderr)
    return is_good


def said(claim: Claim, is_full: bool) -> str:
    """How far a claim is, in one line."""
    rows, now = known(), commit()
    reached = [Reached.of(claim, part, rows, now) for part in claim.parts]
    aim = claim.full if is_full else claim.fast
    sizes = [each.size if is_full else each.here for each in reached]
    total, wanted = sum(min(size, aim) for size in sizes), aim * len(sizes)
    units, hours = sum(each.size for each in reached), sum(each.hours for each in reached)
    left = sum(max(0, aim - size) for size in sizes)
    about = f"about {left * hours / units:.1f} h left" if units and left else ""
    red = sum(len(each.red) for each in reached)
    form = "in all" if is_full else f"at {now}"
    parts = (f"{total:,} of {wanted:,} {claim.unit} {form}", about, f"{red} red" if red else "")
    return f"{claim.name:14} {'; '.join(part for part in parts if part)}"


def listed() -> str:
    """Each claim: what was reached, and what is left."""
    blocks = ((said(each, True), f"{'':14} {each.promise}") for each in CLAIMS)
    return "\n".join(line for block in blocks for line in block)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.proof` and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.proof",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = {each.name: each for each in CLAIMS}
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--for", dest="minutes", type=float, default=0.0, help="minutes, at most")
    parser.add_argument("--full", action="store_true", help="until the full size is reached")
    parser.add_argument("--red", action="store_true", help="only the seeds that were bad")
    parser.add_argument(
        "--former", action="store_true", help="only seeds at which a former commit was bad"
    )
    parser.add_argument("--seed", type=int, help="with --red or --former: only this one")
    options = parser.parse_args(args)
    if unknown := [name for name in options.names if name not in names]:
        parser.error(f"no claim is called {unknown[0]}; there are {', '.join(names)}")
    if not options.names:
        print(listed())
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what runs is ended as well
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / "lock").open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another run goes on here: it holds {lock.name}", file=sys.stderr)
            return 1
        results = [work(names[name], options) for name in options.names]
    return 0 if all(results) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
