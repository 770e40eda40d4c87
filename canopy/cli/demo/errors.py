"""The errors of a demo; `canopy.cli.errors` has their exit codes."""

from __future__ import annotations


class DemoError(Exception):
    """The demo failed; the message says why and what to do."""


class PlanError(DemoError):
    """The options or the subscriptions file are invalid (usage)."""


class OfflineError(DemoError):
    """The feed could not be fetched (unreachable)."""
