"""Why a demo cannot be made, or failed."""

from __future__ import annotations


class DemoError(Exception):
    """The demo stops here; the text says why and what to do."""


class PlanError(DemoError):
    """What is wanted makes no sense (usage)."""


class OfflineError(DemoError):
    """The feed cannot be fetched (unreachable)."""
