"""`canopy keys seal`: keys by which programs seal payloads (docs/guide/security.md)."""

from __future__ import annotations

from pathlib import Path

import click

from canopy.cli.connect import json_option
from canopy.cli.hints import HintingGroup
from canopy.cli.keys.command import when
from canopy.cli.output import console, print_json, table

file_argument = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@click.group(cls=HintingGroup)
def seal() -> None:
    """Make and rotate the keys by which a tenant's programs seal payloads.

    Programs that have the file seal what they publish and open what they get; nodes never see a
    key, and pass payloads on sealed. Attributes, sizes, times and ids stay visible to them.

    \b
    canopy keys seal new acme.seal
    canopy pub --seal acme.seal --data '{"id": "1", "card": {"number": "4111…"}}'
    canopy sub --seal acme.seal "id IS NOT NULL" --json
    """


@seal.command()
@file_argument
@json_option
def new(file: Path, as_json: bool) -> None:
    """Make FILE, with one key, readable for you alone.

    Copy it to the programs' machines as you would a password, with mode 0600.

    \b
    canopy keys seal new acme.seal
    """
    from canopy.wire.keys.sealing import found_seals

    key = found_seals(file).seals
    if as_json:
        print_json({"file": str(file), "key": key})
    else:
        console().print(f"{file}: key {key}")


@seal.command()
@file_argument
@click.option("--finish", is_flag=True, help="Seal with the newest key: all programs have it.")
@json_option
def rotate(file: Path, finish: bool, as_json: bool) -> None:
    """Seal with another key from some day on, and go on opening what the former ones have sealed.

    The first step adds a key that only opens. Copy the file to all programs, which read it again
    within a second; then `--finish`, and copy it once more to those that publish.

    \b
    canopy keys seal rotate acme.seal
    canopy keys seal rotate acme.seal --finish
    """
    from canopy.wire.keys.sealing import add_key, seal_with_newest

    if finish:
        seals = seal_with_newest(file).seals
        if as_json:
            print_json({"file": str(file), "key": seals, "use": "seals"})
        else:
            console().print(f"{file}: the key {seals} seals")
        return
    key = add_key(file).keys[-1]
    if as_json:
        print_json({"file": str(file), "key": key.id, "use": "opens"})
        return
    console().print(f"{file}: key {key.id} opens; copy the file to all programs, and then:")
    console().print(f"  canopy keys seal rotate {file} --finish")


@seal.command()
@file_argument
@click.argument("key", metavar="KEY")
@json_option
def forget(file: Path, key: str, as_json: bool) -> None:
    """Drop a key from FILE: what it has sealed is opened no more.

    \b
    canopy keys seal forget acme.seal 0f3c9a17b2d4e680
    """
    from canopy.wire.keys.sealing import forget_key

    forget_key(file, key)
    if as_json:
        print_json({"file": str(file), "removed": key})
    else:
        console().print(f"{file}: the key {key} is gone")


@seal.command()
@file_argument
@json_option
def ls(file: Path, as_json: bool) -> None:
    """List the ids of the keys in FILE, and which one seals.

    \b
    canopy keys seal ls acme.seal
    """
    from canopy.wire.keys.sealing import read_seals

    found = read_seals(file)
    rows = [
        (key.id, when(key.made), "seals" if key.id == found.seals else "opens")
        for key in found.keys
    ]
    if as_json:
        print_json([{"key": id_, "made": made, "use": use} for id_, made, use in rows])
        return
    shown = table("=key", "made", "")
    for row in rows:
        shown.add_row(*row)
    console().print(shown)
