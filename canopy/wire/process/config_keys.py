"""Every key of a node's configuration with its default and its meaning, as `canopy config keys` and
the reference show them: read from the texts below the fields of `canopy.wire.config` and
`overlay.settings`."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from canopy.wire.config import NodeConfig
from canopy.wire.process.reload import HOT, NOW, RESTART
from overlay.settings import SettingsGroup

GROUPS: Final = (
    *("log", "metrics", "trace", "health", "clients", "schemas"),
    *("tree", "links", "election", "cluster", "ring", "view", "walk"),
)
"""All groups of keys: what an operator sets first, then tuning."""

LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")


class ConfigKey(NamedTuple):
    """One key. Texts are Markdown, whose links lead from the repository's root."""

    name: str
    """As in the configuration, with its group: ``tree.lease``."""
    default: str
    """As a configuration file has it; whole numbers with commas."""
    effect: str
    """When a change holds: "now" (`canopy reload`) or "restart"."""
    meaning: str


class KeyGroup(NamedTuple):
    """The keys of a group; of the node itself the name is ""."""

    name: str
    about: str
    keys: tuple[ConfigKey, ...]


def groups() -> Iterator[KeyGroup]:
    """The node's own keys, then `GROUPS`."""
    yield KeyGroup("", "", tuple(_keys(NodeConfig, "")))
    fields = {field.name: type(field.default) for field in msgspec.structs.fields(NodeConfig)}
    for name in GROUPS:
        yield KeyGroup(name, _text(fields[name]), tuple(_keys(fields[name], f"{name}.")))


def plain(text: str) -> str:
    """A text without the links of Markdown."""
    return LINK.sub(r"\1", text)


def _keys(type_: type[SettingsGroup], prefix: str) -> Iterator[ConfigKey]:
    meanings = dict(_meanings(type_))
    for field in msgspec.structs.fields(type_):
        name = prefix + field.name
        if not isinstance(field.default, SettingsGroup):
            effect = NOW if name in HOT else RESTART
            yield ConfigKey(name, written(field.default), effect, meanings.get(field.name, ""))


def _meanings(type_: type[SettingsGroup]) -> Iterator[tuple[str, str]]:
    """The name of each field and the text below it."""
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(type_))).body
    assert isinstance(found, ast.ClassDef)
    for field, below in zip(found.body, found.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, " ".join(text.split())


def _text(type_: type[SettingsGroup]) -> str:
    return " ".join((inspect.getdoc(type_) or "").split())


def written(value: Any) -> str:
    """A default as it is shown."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"
    if value is None:
        return "null"
    return "[]" if value == () else str(value) or '""'
